//! TLS between a client and the server: who gets in, what travels, and ends of every kind.

#[path = "../../../proto/tls/tests/authority/mod.rs"]
mod authority;
mod support;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use authority::{Authority, Folder};
use support::*;
use weir_bio::Op;
use weir_front_nbd::{Address, Export, Listen, Scope, Security, ServerTls, Settings};
use weir_proto_nbd::client::{Handshake, Step, Wanted};
use weir_proto_nbd::wire::{Command, CommandFlags as F, OptionCode, Request, put_option};
use weir_queue::Config;
use weir_tls::{ClientTls, Session};

const MIB: u64 = 1 << 20;

/// Bytes that a tunnel's threads read at once.
const PIECE: usize = 64 << 10;

fn server_tls(folder: &Folder) -> ServerTls {
    ServerTls::read(folder.path(), true, &[]).expect("a good folder")
}

fn client_tls(folder: &Folder) -> ClientTls {
    ClientTls::read(folder.path(), "localhost").expect("a good folder")
}

/// A server with one more address, where this is done about TLS.
fn secured(fixture: &Fixture, security: Security) -> std::path::PathBuf {
    let path = socket_path();
    let listen = Listen::from(Address::Unix(path.clone()));
    fixture.server().listen_secured(&listen, Scope::All, security).expect("a free path");
    path
}

fn connect(path: &std::path::Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn send(session: &mut Session, mut stream: &UnixStream) -> Result<(), String> {
    let sent = session.send(|pieces| stream.write_vectored(pieces));
    sent.map_err(|error| error.to_string())
}

/// Takes a socket up to the grant of TLS.
fn ask_for_tls(stream: &mut UnixStream) {
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    let mut out = vec![0, 0, 0, 3];
    put_option(&mut out, OptionCode::STARTTLS, |_| ());
    stream.write_all(&out).expect("a server that reads");
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[12..16], [0, 0, 0, 1], "TLS is granted");
}

/// Does the handshake of TLS.
fn shake(tls: &ClientTls, stream: &UnixStream) -> Result<Session, String> {
    let mut session = tls.session().expect("a session");
    let mut piece = [0; PIECE];
    while session.is_handshaking() {
        send(&mut session, stream)?;
        let count = (&*stream).read(&mut piece).map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("closed".into());
        }
        session.open(&piece[..count], |_| Ok(())).map_err(|why: weir_tls::TlsError| {
            let _ = send(&mut session, stream);
            why.to_string()
        })?;
    }
    send(&mut session, stream)?;
    Ok(session)
}

/// A tunnel: what the test writes in the clear goes out in records, and the other way round.
struct Tunnel {
    stream: UnixStream,
    end: JoinHandle<Result<bool, String>>,
}

/// The plain side of a tunnel into a server, behind STARTTLS; the thread says whether the server
/// ended TLS as it should.
fn tunnel(path: &std::path::Path, tls: &ClientTls) -> Result<Tunnel, String> {
    let mut outer = connect(path);
    ask_for_tls(&mut outer);
    let mut session = shake(tls, &outer)?;
    let (inner, ours) = UnixStream::pair().unwrap();
    let end = std::thread::spawn(move || {
        outer.set_nonblocking(true).unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut piece = [0; PIECE];
        let (mut open, mut waiting) = (true, Vec::new());
        loop {
            let mut idle = true;
            // Out: one piece at a time, and the next when it is gone.
            match session.send(|pieces| (&outer).write_vectored(pieces)) {
                Ok(()) if open => match (&ours).read(&mut piece) {
                    Ok(0) => {
                        session.end();
                        (open, idle) = (false, false);
                    }
                    Ok(count) => {
                        let piece = std::io::IoSlice::new(&piece[..count]);
                        assert_eq!(session.seal(&[piece]).unwrap(), count);
                        idle = false;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.to_string()),
                },
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // A server that has left is found out by reading.
                Err(_) => open = false,
            }
            if waiting.is_empty() {
                match (&outer).read(&mut piece) {
                    Ok(0) => return Ok(session.has_ended()),
                    Ok(count) => {
                        idle = false;
                        let opened = session.open(&piece[..count], |plain| {
                            waiting.extend_from_slice(plain);
                            Ok::<(), weir_tls::TlsError>(())
                        });
                        opened.map_err(|why| why.to_string())?;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
            match (&ours).write(&waiting) {
                Ok(count) => drop(waiting.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => waiting.clear(),
            }
            if idle {
                std::thread::yield_now();
            }
        }
    });
    inner.set_read_timeout(Some(PATIENCE)).unwrap();
    Ok(Tunnel { stream: inner, end })
}

/// Goes on with the NBD handshake in a tunnel.
fn through(tunnel: Tunnel, wanted: Wanted) -> (Client, JoinHandle<Result<bool, String>>) {
    let Tunnel { mut stream, end } = tunnel;
    // The greeting and the grant of TLS have been read in front of the tunnel.
    let mut handshake = Handshake::new(Wanted { tls: true, ..wanted }).expect("a name");
    let mut out = Vec::new();
    let mut before = Vec::new();
    weir_proto_nbd::wire::Greeting { flags: weir_proto_nbd::wire::HandshakeFlags::KNOWN }
        .put(&mut before);
    weir_proto_nbd::wire::put_option_reply(
        &mut before,
        OptionCode::STARTTLS,
        weir_proto_nbd::wire::OptionReplyCode::ACK,
        |_| (),
    );
    assert_eq!(handshake.input(&before, &mut out).step, Step::StartTls);
    out.clear();
    handshake.secured(&mut out);
    let client = Client::go_on(&mut stream, handshake, out).expect("a server that agrees");
    (client, end)
}

fn fixture() -> (Fixture, Folder) {
    (Fixture::on(ram(64 * MIB)), Authority::new().folder())
}

#[test]
fn what_a_client_does_over_tls_is_what_it_does_without() {
    let (fixture, folder) = fixture();
    let path = secured(&fixture, Security::require(server_tls(&folder)));
    for (mode, wanted) in every_mode() {
        let (mut client, end) =
            through(tunnel(&path, &client_tls(&folder)).expect("all is well"), wanted);
        assert_eq!(client.info.mode, mode);
        // Many small ones at once, long ones in pieces, and both read again.
        let mut out = Vec::new();
        let small: Vec<u64> = (0..200)
            .map(|i| {
                let request = Request::new(Command::WRITE, 0, i * 512, 512);
                client.encode(request, &pattern(i, 512), &mut out)
            })
            .collect();
        client.stream.write_all(&out).unwrap();
        small.into_iter().for_each(|cookie| drop(client.wait(cookie).ok()));
        let long = pattern(4711, 5 << 20);
        client.write(8 * MIB, &long).ok();
        for i in [0, 7, 199] {
            assert_eq!(client.read(i * 512, 512), pattern(i, 512));
        }
        assert!(client.read(8 * MIB, 5 << 20) == long);
        assert!(client.read(8 * MIB + 512, 70_144) == long[512..512 + 70_144]);
        client.flush().ok();
        client.disconnect();
        assert_eq!(end.join().unwrap(), Ok(true), "the server ends TLS");
    }
    fixture.stop();
    assert!(!path.exists());
}

#[test]
fn a_client_without_tls_or_without_a_good_certificate_stays_out() {
    let (fixture, folder) = fixture();
    let path = secured(&fixture, Security::require(server_tls(&folder)));
    let plain = Client::try_over(connect(&path), Wanted::everything("sda")).err().unwrap();
    assert!(plain.contains("requires TLS"), "{plain}");
    let wanted = Wanted { tls: true, ..Wanted::everything("sda") };
    let asked = Client::try_over(fixture.socket(), wanted).err().unwrap();
    assert!(asked.contains("does not offer TLS"), "{asked}");
    // TLS 1.3 lets a client finish before it hears that it is refused: it gets no answer.
    let other = Authority::new().folder();
    for file in ["client-cert.pem", "client-key.pem"] {
        std::fs::copy(other.path().join(file), folder.path().join(file)).unwrap();
    }
    let tunnel = tunnel(&path, &client_tls(&folder)).expect("refused later");
    let end = tunnel.end.join().unwrap();
    assert!(end.as_ref().is_err_and(|why| why.contains("UnknownCA")), "{end:?}");
    fixture.wait_for_connections(0);
    // Where TLS is offered and not required, both get in.
    let both = secured(&fixture, Security::on(server_tls(&folder)));
    Client::over(connect(&both), Wanted::everything("sda")).disconnect();
    fixture.stop();
}

#[test]
fn half_a_handshake_of_tls_is_cut_off_when_its_time_is_up_and_others_go_on() {
    let settings = Settings { handshake_timeout_ns: SECOND, ..Settings::default() };
    let device = device(Config { name: "sda".into(), ..Config::default() }, ram(MIB));
    let fixture = Fixture::new(1, vec![Export::new("sda", device)], settings);
    let folder = Authority::new().folder();
    let path = secured(&fixture, Security::require(server_tls(&folder)));
    let (mut worker, _) = through(
        tunnel(&path, &client_tls(&folder)).expect("all is well"),
        Wanted::everything("sda"),
    );
    let mut silent = connect(&path);
    ask_for_tls(&mut silent);
    let mut half = connect(&path);
    ask_for_tls(&mut half);
    // The beginning of a record of 512 bytes.
    half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).unwrap();
    fixture.wait_for_connections(3);
    worker.write(0, &[1; 512]).ok();
    for stream in [&mut silent, &mut half] {
        // The server takes its leave; the end may come as a reset.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 64, "{} bytes", rest.len());
    }
    worker.write(0, &[2; 512]).ok();
    assert_eq!(fixture.server().connections(), 1, "a session has no such limit");
    worker.disconnect();
    fixture.stop();
}

#[test]
fn what_is_no_tls_ends_its_connection_and_no_other() {
    let (fixture, folder) = fixture();
    let path = secured(&fixture, Security::on(server_tls(&folder)));
    let tls = client_tls(&folder);
    let (mut worker, _) = through(tunnel(&path, &tls).unwrap(), Wanted::everything("sda"));
    let mut go = Vec::new();
    put_option(&mut go, OptionCode::LIST, |_| ());
    // Options behind the grant, in place of TLS: never answered as options.
    let mut stream = connect(&path);
    ask_for_tls(&mut stream);
    stream.write_all(&go).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!rest.windows(3).any(|part| part == b"sda"), "{rest:?}");
    // The same in one segment with STARTTLS.
    let mut stream = connect(&path);
    stream.read_exact(&mut [0; 18]).unwrap();
    let mut out = vec![0, 0, 0, 3];
    put_option(&mut out, OptionCode::STARTTLS, |_| ());
    out.extend_from_slice(&go);
    stream.write_all(&out).unwrap();
    rest.clear();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, [0; 0], "no grant and no list");
    // A record that was changed on its way, in a session.
    let mut stream = connect(&path);
    ask_for_tls(&mut stream);
    let mut session = shake(&tls, &stream).unwrap();
    session.seal(&[std::io::IoSlice::new(&go)]).unwrap();
    let mut bytes = Vec::new();
    let put = |pieces: &[std::io::IoSlice<'_>]| {
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        Ok(pieces.iter().map(|piece| piece.len()).sum())
    };
    session.send(put).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    stream.write_all(&bytes).unwrap();
    rest.clear();
    let _ = stream.read_to_end(&mut rest);
    let alert = session.open(&rest, |_| Ok(())).map_err(|why: weir_tls::TlsError| why.to_string());
    assert!(alert.is_err_and(|why| why.contains("BadRecordMac")), "the client is told");
    fixture.wait_for_connections(1);
    worker.write(0, &[2; 512]).ok();
    worker.disconnect();
    fixture.stop();
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_a_record_leaves_nothing_behind() {
    let (fixture, folder) = fixture();
    let path = secured(&fixture, Security::require(server_tls(&folder)));
    let tls = client_tls(&folder);
    let (mut worker, _) = through(tunnel(&path, &tls).unwrap(), Wanted::everything("sda"));
    for keep in [1, 4, 5, 30, 1000] {
        let mut stream = connect(&path);
        ask_for_tls(&mut stream);
        let mut session = shake(&tls, &stream).unwrap();
        let mut options = Vec::new();
        put_option(&mut options, OptionCode(77), |out| out.resize(4000, 0));
        session.seal(&[std::io::IoSlice::new(&options)]).unwrap();
        let mut bytes = Vec::new();
        let put = |pieces: &[std::io::IoSlice<'_>]| {
            pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
            Ok(pieces.iter().map(|piece| piece.len()).sum())
        };
        session.send(put).unwrap();
        stream.write_all(&bytes[..keep]).unwrap();
        worker.write(0, &pattern(keep as u64, 8192)).ok();
        assert!(worker.read(0, 8192) == pattern(keep as u64, 8192));
    }
    fixture.wait_for_connections(1);
    worker.disconnect();
    fixture.stop();
}

#[test]
fn a_client_that_ends_its_side_of_tls_gets_its_answers() {
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    let folder = Authority::new().folder();
    let path = secured(&fixture, Security::require(server_tls(&folder)));
    let (mut client, end) = through(
        tunnel(&path, &client_tls(&folder)).expect("all is well"),
        Wanted::everything("sda"),
    );
    record.hold(true);
    let cookie = client.send(Request::new(Command::READ, 0, 0, 4096), &[]);
    // The tunnel says close_notify and leaves the socket open.
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    wait_until("the read", || record.ops() == [Op::Read]);
    record.hold(false);
    client.wait(cookie).ok();
    assert_eq!(end.join().unwrap(), Ok(true), "the server ends its side too");
    fixture.stop();
}

#[test]
fn a_client_that_never_reads_is_bounded_and_holds_up_nobody() {
    let (fixture, folder) = fixture();
    let path = secured(&fixture, Security::require(server_tls(&folder)));
    let tls = client_tls(&folder);
    let mut stream = connect(&path);
    ask_for_tls(&mut stream);
    let mut session = shake(&tls, &stream).unwrap();
    stream.set_nonblocking(true).unwrap();
    // Options without end whose answers are not read: the server stops to listen.
    let mut options = Vec::new();
    for _ in 0..900 {
        put_option(&mut options, OptionCode::LIST, |_| ());
    }
    session.seal(&[std::io::IoSlice::new(&options)]).unwrap();
    let _ = send(&mut session, &stream);
    let (mut worker, _) = through(tunnel(&path, &tls).unwrap(), Wanted::everything("sda"));
    for round in 0..20 {
        worker.write(round * 4096, &pattern(round, 4096)).ok();
        assert_eq!(worker.read(round * 4096, 4096), pattern(round, 4096));
    }
    let reads = worker.ask(Command::READ, F::EMPTY, 0, 4096);
    assert_eq!(reads.error, None);
    drop(stream);
    fixture.wait_for_connections(1);
    worker.disconnect();
    fixture.stop();
}

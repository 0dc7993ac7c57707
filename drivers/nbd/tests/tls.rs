//! The driver over TLS: against nbdkit and qemu-nbd, and against a server played by the test.

#[path = "../../../proto/tls/tests/authority/mod.rs"]
mod authority;
mod support;

use std::io::{IoSlice, Read, Write};
use std::os::unix::net::UnixStream;

use authority::{Authority, Folder};
use support::peer::{Peer, SIZE, settings};
use support::program::{Program, nbdkit, qemu_nbd};
use support::{HANDED_BACK, Lane, bytes, exercise, flush, hasty, read, write};
use weir_bio::{Flags, Status};
use weir_driver_nbd::{Address, ClientTls, Nbd, Options};
use weir_proto_nbd::server::{Decoded, Export, Handshake, Negotiated, Settings, Step, Tls, decode};
use weir_proto_nbd::wire::{Command, Mode, Request};
use weir_queue::Driver;
use weir_tls::{ServerTls, Session, TlsError};

fn tls(folder: &Folder) -> ClientTls {
    ClientTls::read(folder.path(), "localhost").expect("a good folder")
}

fn connect(address: &Address, folder: &Folder, options: Options) -> Result<Nbd, String> {
    let nbd = Nbd::connect_over(address.clone(), "", options, Some(tls(folder)));
    nbd.map_err(|why| why.to_string())
}

fn four() -> Options {
    Options { connections: 4, ..hasty() }
}

/// nbdkit with the server's side of this folder.
fn nbdkit_over(folder: &Folder, arguments: &[&str]) -> Option<Program> {
    let certificates = format!("--tls-certificates={}", folder.path().display());
    nbdkit(&[&["--tls=require", "--tls-verify-peer", &certificates], arguments].concat())
}

/// qemu-nbd with the server's side of this folder.
fn qemu_over(folder: &Folder, arguments: &[&str]) -> Option<Program> {
    let folder = folder.path().display();
    let object = format!("tls-creds-x509,id=tls,endpoint=server,verify-peer=on,dir={folder}");
    let over = ["--object", &object, "--tls-creds", "tls", "--shared=5"];
    qemu_nbd(8 << 20, &[&over[..], arguments].concat())
}

#[test]
fn random_requests_over_tls_to_nbdkit_and_qemu_match_the_model() {
    let folder = Authority::new().folder();
    if let Some(server) = nbdkit_over(&folder, &["memory", "8M"]) {
        exercise(&connect(&server.address, &folder, hasty()).expect("a device"), 11, 1500);
    }
    if let Some(server) = nbdkit_over(&folder, &["memory", "8M"]) {
        let nbd = connect(&server.address, &folder, four()).expect("a device");
        assert_eq!(nbd.queues().max, 4);
        exercise(&nbd, 12, 1500);
    }
    if let Some(server) = qemu_over(&folder, &[]) {
        let nbd = connect(&server.address, &folder, four()).expect("a device");
        exercise(&nbd, 13, 1000);
        let mut lane = Lane::open(&nbd, 0);
        assert_eq!(lane.status(write(100, 8, 0x77).with(Flags::FUA)), Status::Ok);
        let image = std::fs::read(server.image()).expect("the image");
        assert!(image[51200..55296].iter().all(|byte| *byte == 0x77));
    }
}

#[test]
fn the_allocation_is_asked_for_over_tls_too() {
    let folder = Authority::new().folder();
    let Some(server) = nbdkit_over(&folder, &["memory", "4M"]) else { return };
    let nbd = connect(&server.address, &folder, hasty()).expect("a device");
    let mut lane = Lane::open(&nbd, 0);
    assert_eq!(lane.status(write(4096, 64, 1)), Status::Ok);
    let extents = nbd.allocation(0, 8192).expect("an answer");
    let holes: Vec<_> = extents.iter().map(|extent| (extent.sectors, extent.hole)).collect();
    assert_eq!(holes, [(4096, true), (64, false), (4032, true)]);
    assert_eq!(nbd.notices(), Vec::<String>::new());
}

#[test]
fn a_server_that_is_not_the_one_that_is_meant_gets_no_request() {
    let authority = Authority::new();
    let folder = authority.folder();
    let refused = |server: &Program, folder: &Folder, words: &str| {
        let why = connect(&server.address, folder, hasty()).expect_err(words);
        assert!(why.starts_with("nbds+unix:") && why.contains(words), "{why}");
    };
    let Some(server) = nbdkit_over(&folder, &["memory", "1M"]) else { return };
    // A client of another authority trusts no server here.
    refused(&server, &Authority::new().folder(), "UnknownIssuer");
    // The server meant is another one.
    let elsewhere = ClientTls::read(folder.path(), "disks.example").expect("a good folder");
    let why = Nbd::connect_over(server.address.clone(), "", hasty(), Some(elsewhere));
    let why = why.expect_err("another name").to_string();
    assert!(why.contains("disks.example"), "{why}");
    // A client without a certificate, where one is asked for: nbdkit leaves, and may say why.
    refused(&server, &authority.trust(), "");
    let why = Nbd::connect(server.address.clone(), "", hasty()).expect_err("plaintext");
    assert!(why.to_string().contains("server requires TLS"), "{why}");
    let late = authority.folder();
    authority.sign_until(&late, "server", "localhost", &["localhost"], 2020);
    let Some(expired) = nbdkit_over(&late, &["memory", "1M"]) else { return };
    refused(&expired, &folder, "expired");
}

#[test]
fn a_server_without_tls_is_refused_at_the_start_and_when_it_comes_back() {
    let folder = Authority::new().folder();
    let Some(plain) = nbdkit(&["memory", "1M"]) else { return };
    let why = connect(&plain.address, &folder, hasty()).expect_err("a downgrade");
    assert!(why.contains("does not offer TLS, which is required here"), "{why}");
    let Some(mut server) = nbdkit_over(&folder, &["memory", "1M"]) else { return };
    let nbd = connect(&server.address, &folder, hasty()).expect("a device");
    let mut lane = Lane::open(&nbd, 0);
    assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
    server.kill();
    assert_eq!(lane.status(read(0, 8)), Status::Transport);
    let notices = nbd.notices().join("\n");
    assert!(notices.contains("without ending TLS"), "{notices}");
    server.restart(&["memory", "1M"]);
    lane.pass_time();
    lane.step_until(|| nbd.notices().last().is_some_and(|last| last.contains("does not offer")));
    assert_eq!(lane.status(read(0, 8)), Status::Transport, "nothing is read in the clear");
}

#[test]
fn a_killed_server_is_found_again_over_tls() {
    let folder = Authority::new().folder();
    let certificates = format!("--tls-certificates={}", folder.path().display());
    let secure = ["--tls=require", "--tls-verify-peer", &certificates];
    let Some(mut server) = nbdkit(&[&secure[..], &["memory", "1M"]].concat()) else { return };
    let nbd = connect(&server.address, &folder, hasty()).expect("a device");
    let mut lane = Lane::open(&nbd, 0);
    assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
    server.kill();
    assert_eq!(lane.status(read(0, 8)), Status::Transport);
    server.restart(&[&secure[..], &["memory", "1M"]].concat());
    lane.pass_time();
    lane.step_until(|| nbd.notices().last().is_some_and(|last| last.ends_with("is back")));
    assert_eq!(lane.status(flush()), Status::IoErr, "the write may be gone");
    assert_eq!(lane.status(write(0, 8, 3)), Status::Ok);
    let answer = lane.one(read(0, 8));
    assert!(bytes(&answer.data).iter().all(|byte| *byte == 3));
}

/// A server over TLS played by the test.
struct Sealed {
    stream: UnixStream,
    session: Session,
    held: Vec<u8>,
    agreed: Option<Negotiated>,
}

impl Sealed {
    /// The next client of `peer`, after both handshakes.
    fn accept(peer: &Peer, tls: &ServerTls) -> Sealed {
        let mut stream = peer.connection();
        let mut out = Vec::new();
        let settings = Settings { tls: Tls::Require, ..settings(Mode::Structured) };
        let mut handshake = Handshake::new(vec![Export::new("", SIZE)], settings, &mut out);
        let (mut held, mut piece) = (Vec::new(), [0; 512]);
        loop {
            stream.write_all(&out).expect("the client listens");
            out.clear();
            let input = handshake.input(&held, &mut out);
            held.drain(..input.consumed);
            match input.step {
                Step::StartTls => break,
                Step::NeedMore => {
                    let got = stream.read(&mut piece).expect("the client speaks");
                    held.extend_from_slice(&piece[..got]);
                }
                step => panic!("{step:?} before TLS"),
            }
        }
        stream.write_all(&out).expect("the client listens");
        out.clear();
        let session = tls.session().expect("a session");
        let mut sealed = Sealed { stream, session, held, agreed: None };
        while sealed.session.is_handshaking() {
            assert!(sealed.receive(), "the client left in the handshake");
            sealed.send(&[]);
        }
        handshake.secured();
        loop {
            let input = handshake.input(&sealed.held, &mut out);
            sealed.held.drain(..input.consumed);
            sealed.send(&out);
            out.clear();
            match input.step {
                Step::Transmission(agreed) => {
                    sealed.agreed = Some(agreed);
                    return sealed;
                }
                Step::NeedMore => assert!(sealed.receive(), "the client left"),
                Step::Answered => {}
                step => panic!("{step:?}"),
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.session.seal(&[IoSlice::new(bytes)]).expect("a sound session");
        // The client may have left already; what it makes of that is what is tested.
        let _ = self.session.send(|pieces| self.stream.write_vectored(pieces));
    }

    /// False when the client sends no more.
    fn receive(&mut self) -> bool {
        let mut piece = vec![0; 64 << 10];
        let got = self.stream.read(&mut piece).expect("the client speaks");
        let opened = self.session.open(&piece[..got], |plain| {
            self.held.extend_from_slice(plain);
            Ok::<(), TlsError>(())
        });
        opened.expect("good records");
        got > 0
    }

    /// The next request, with its payload dropped.
    fn request(&mut self) -> Option<Request> {
        loop {
            if let Decoded::Request(request) = decode(Mode::Structured, &self.held) {
                let length = request.payload_len(Mode::Structured) as usize;
                let whole = Mode::Structured.request_len() + length;
                while self.held.len() < whole {
                    assert!(self.receive(), "the client left in the middle of a payload");
                }
                self.held.drain(..whole);
                return Some(request);
            }
            if !self.receive() {
                return None;
            }
        }
    }

    fn done(&mut self, request: &Request) {
        let mut out = Vec::new();
        let replies = self.agreed.as_ref().expect("in transmission").replies();
        replies.done(request.reply_to(), &mut out);
        self.send(&out);
    }
}

#[test]
fn a_silent_server_is_asked_to_end_in_tls_and_keeps_its_writes_until_it_has() {
    let folder = Authority::new().folder();
    let server = ServerTls::read(folder.path(), true, &[]).expect("a good folder");
    let peer = Peer::new();
    std::thread::scope(|scope| {
        let played = scope.spawn(|| {
            let mut silent = Sealed::accept(&peer, &server);
            let first = silent.request().expect("a write");
            let mut next = Sealed::accept(&peer, &server);
            // The word of the old connection for what it answered before: there is nothing.
            assert_eq!(first.command, Command::WRITE);
            let mut asked = Vec::new();
            while let Some(request) = silent.request() {
                asked.push(request.command);
            }
            assert!(silent.session.has_ended(), "a close_notify before the end of the stream");
            // Only now has the server let go.
            drop(silent);
            let again = next.request().expect("a request");
            next.done(&again);
            while let Some(request) = next.request() {
                if request.command == Command::DISC {
                    break;
                }
                next.done(&request);
            }
            while next.receive() {}
            (asked, again.command, next.session.has_ended())
        });
        let nbd = connect(&peer.address(), &folder, Options::default()).expect("a device");
        let mut lane = Lane::open(&nbd, 0);
        lane.submit(vec![write(0, 8, 1).cookie(7)]);
        assert!(lane.reap().is_empty());
        lane.now = lane.now + 1_000;
        assert_eq!(lane.cancel(lane.now - 1), (0, 1), "the server may carry it out");
        lane.pass_until(|| nbd.notices().last().is_some_and(|last| last.ends_with("is back")));
        assert_eq!(lane.kept, 1, "and has not let go of it");
        // Silent for longer than its grace, while the next one works.
        for _ in 0..20 {
            if lane.kept == 0 {
                break;
            }
            lane.now = lane.now + 1_000_000_000;
            assert!(lane.reap().is_empty());
        }
        while lane.kept > 0 {
            lane.sleep();
            assert!(lane.reap().is_empty());
        }
        assert!(matches!(lane.status(flush()), Status::Ok | HANDED_BACK));
        drop(lane);
        drop(nbd);
        let (asked, again, ended) = played.join().expect("the server's part");
        assert!(asked.iter().all(|command| *command == Command::FLUSH), "{asked:?}");
        assert_eq!(again, Command::FLUSH);
        assert!(ended, "an idle queue ends TLS too");
    });
}

#[test]
fn a_record_that_was_changed_on_its_way_gives_the_connection_up() {
    let folder = Authority::new().folder();
    let server = ServerTls::read(folder.path(), true, &[]).expect("a good folder");
    let peer = Peer::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut first = Sealed::accept(&peer, &server);
            let request = first.request().expect("a read");
            let mut out = Vec::new();
            let replies = first.agreed.as_ref().expect("in transmission").replies();
            replies.read_header(request.reply_to(), 4096, &mut out);
            out.resize(out.len() + 4096, 0x5a);
            first.session.seal(&[IoSlice::new(&out)]).expect("a sound session");
            let mut bytes = Vec::new();
            let put = |pieces: &[IoSlice<'_>]| {
                pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
                Ok(pieces.iter().map(|piece| piece.len()).sum())
            };
            first.session.send(put).expect("room");
            bytes[100] ^= 1;
            first.stream.write_all(&bytes).expect("the client listens");
            let mut next = Sealed::accept(&peer, &server);
            let again = next.request().expect("the read, once more");
            next.done(&again);
            while next.request().is_some() {}
        });
        let nbd = connect(&peer.address(), &folder, Options::default()).expect("a device");
        let mut lane = Lane::open(&nbd, 0);
        assert_eq!(lane.status(read(0, 8)), HANDED_BACK, "no byte of it counts");
        lane.pass_until(|| nbd.notices().last().is_some_and(|last| last.ends_with("is back")));
        let notices = nbd.notices().join("\n");
        assert!(notices.contains("TLS: cannot decrypt"), "{notices}");
        assert_eq!(lane.status(flush()), Status::Ok);
    });
}

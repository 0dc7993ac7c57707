//! Misbehaviour of clients, kind by kind.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};

use super::authority::{self, Authority};
use super::daemon::client::{
    Client, FLUSH, OPTION_MAGIC, READ, TRIM, WRITE, WRITE_ZEROES, greeted, option, option_reply,
    request,
};
use super::daemon::outside::free_port;
use super::daemon::program::Noise;
use super::daemon::{Daemon, Folder, PATIENCE, weir};

pub const MIB: u64 = 1 << 20;
/// Bytes of the disk. Its upper half is a neighbour's.
pub const SIZE: u64 = 64 * MIB;

const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ERR_UNSUP: u32 = 0x8000_0001;
const ACK: u32 = 1;

/// Connections that one peer may have where there are [`Doors`].
pub const PER_PEER: usize = 64;

/// The ways into a daemon: a UNIX socket, one with TLS, and a port.
pub struct Doors {
    socket: PathBuf,
    tls: PathBuf,
    port: u16,
    /// Its certificates are read when a daemon starts.
    _certificates: authority::Folder,
}

impl AsRef<Path> for Doors {
    fn as_ref(&self) -> &Path {
        &self.socket
    }
}

impl std::ops::Deref for Doors {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.socket
    }
}

/// A daemon with a disk in a file, and the ways into it.
pub fn start(folder: &Folder, options: &str, more: &[&str]) -> (Daemon, Doors) {
    let doors = Doors {
        socket: folder.socket(),
        tls: folder.near("tls.sock"),
        port: free_port(),
        _certificates: Authority::new().folder(),
    };
    let certificates = doors._certificates.path().display();
    let mut command = weir(folder);
    command.args(["serve", "--disk", &folder.file_disk("sda", "64MiB", options)]);
    command.args(["--clients-per-peer", &PER_PEER.to_string()]).args(more);
    for address in [
        format!("unix:{}", doors.socket.display()),
        format!("127.0.0.1:{}", doors.port),
        format!("unix:{},tls=on,tls_certificates={certificates}", doors.tls.display()),
    ] {
        command.args(["--nbd", &address]);
    }
    (Daemon::spawn(command), doors)
}

/// Something a client should not do.
pub type Mischief = fn(&Doors);

pub const MISCHIEF: [(&str, Mischief); 24] = [
    ("vanishes before the greeting", vanish_at_once),
    ("vanishes in the handshake", vanish_in_the_handshake),
    ("vanishes in a header", vanish_in_a_header),
    ("vanishes in a payload", vanish_in_a_payload),
    ("vanishes in a reply", vanish_in_a_reply),
    ("vanishes with writes under way", vanish_with_writes_under_way),
    ("greets with garbage", greet_with_garbage),
    ("sends garbage for an option", garbage_for_an_option),
    ("sends garbage for a request", garbage_for_a_request),
    ("sends an endless option", endless_option),
    ("sends 10,000 options", ten_thousand_options),
    ("asks for 4 GiB", four_gibibytes),
    ("writes 4 GiB", write_four_gibibytes),
    ("reaches past the end", past_the_end),
    ("leaves in the middle of a handshake of TLS", half_a_tls_handshake),
    ("asks what is allocated and never reads", flood_of_questions),
    ("shuts its reading side and floods", half_shut_flood),
    ("has half the disk cleared and all of it prefetched", effects_of_the_whole_disk),
    ("sends byte by byte", byte_by_byte),
    ("connects and does nothing", connect_and_idle),
    ("resets its connection in a reply", reset_in_a_reply),
    ("takes all places of its address", all_places_of_an_address),
    ("asks for nonsense and never reads", flood_of_nonsense),
    ("asks for the most and never reads", flood_of_large_reads),
];

/// Expects the connection to be closed, after whatever is still said.
#[track_caller]
pub fn expect_closed(stream: &mut UnixStream) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            // The server closed with bytes of ours unread.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("neither closed nor answered: {error}"),
        }
    }
}

/// The stream is in step: a good request gets a good answer.
#[track_caller]
pub fn expect_in_step(client: &mut Client) {
    let data = client.read(0, 512).expect("an answer").expect("no error");
    assert_eq!(data.len(), 512);
}

fn vanish_at_once(socket: &Doors) {
    drop(UnixStream::connect(socket).expect("a connection"));
}

fn vanish_in_the_handshake(socket: &Doors) {
    for length in [1, 8, 15, 16, 17, 25] {
        let mut stream = greeted(socket).expect("a greeting");
        let bytes = option(7, b"\x00\x00\x00\x03sda\x00\x00");
        stream.write_all(&bytes[..length.min(bytes.len() - 1)]).expect("a socket");
    }
}

fn vanish_in_a_header(socket: &Doors) {
    for length in [1, 4, 27] {
        let mut client = Client::connect(socket, "sda");
        let bytes = request(0, READ, 1, 0, 4096);
        client.stream.write_all(&bytes[..length]).expect("a socket");
    }
}

fn vanish_in_a_payload(socket: &Doors) {
    for (length, sent) in [(4096, 1), (4096, 4095), (8 << 20, 100_000), (32 << 20, 3 << 20)] {
        let mut client = Client::connect(socket, "sda");
        let mut bytes = request(0, WRITE, 1, 0, length);
        bytes.resize(28 + sent, 0xee);
        client.stream.write_all(&bytes).expect("a socket");
    }
}

fn vanish_in_a_reply(socket: &Doors) {
    for (count, taken) in [(1, 5), (1, 100_000), (20, 16), (20, 3_000_000)] {
        let mut client = Client::connect(socket, "sda");
        for index in 0..count {
            client.send(0, READ, index * MIB, 1 << 20, &[]).expect("a socket");
        }
        let mut taken_bytes = vec![0; taken];
        client.stream.read_exact(&mut taken_bytes).expect("a part of the replies");
    }
}

pub fn vanish_with_writes_under_way(socket: &Doors) {
    let mut client = Client::connect(socket, "sda");
    let mut bytes = Vec::new();
    for index in 0..64 {
        bytes.extend(request(1, WRITE, index, index * 8192, 4096));
        bytes.extend([0xdd; 4096]);
    }
    bytes.extend(request(0, FLUSH, 99, 0, 0));
    client.stream.write_all(&bytes).expect("a socket");
}

fn greet_with_garbage(socket: &Doors) {
    for flags in [u32::MAX, 4, 1 << 31] {
        let mut stream = UnixStream::connect(socket).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.write_all(&flags.to_be_bytes()).expect("a socket");
        expect_closed(&mut stream);
    }
    let mut stream = UnixStream::connect(socket).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    // It may be closed before all of it is sent.
    let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    expect_closed(&mut stream);
}

fn garbage_for_an_option(socket: &Doors) {
    let mut stream = greeted(socket).expect("a greeting");
    let mut bytes = vec![0; 5000];
    Noise::new(5).fill(&mut bytes);
    let _ = stream.write_all(&bytes);
    expect_closed(&mut stream);
    // The magic is right, the rest is not: names that are longer than their option, or no text.
    for data in [&b"\xff\xff\xff\xff"[..], b"\x00\x00\x00\x09sda", b"\x00\x00\x00\x02\xff\xfe\0\0"]
    {
        let mut stream = greeted(socket).expect("a greeting");
        stream.write_all(&option(7, data)).expect("a socket");
        let (kind, _) = option_reply(&mut stream).expect("an answer");
        assert!(kind >= 1 << 31, "{data:x?} is accepted with {kind}");
    }
}

fn garbage_for_a_request(socket: &Doors) {
    let mut client = Client::connect(socket, "sda");
    let mut bytes = vec![0; 5000];
    Noise::new(6).fill(&mut bytes);
    let _ = client.stream.write_all(&bytes);
    expect_closed(&mut client.stream);
    // The magic is right, the command is none: an error, and the stream goes on.
    let mut client = Client::connect(socket, "sda");
    for (flags, command) in [(0, 77), (0, u16::MAX), (u16::MAX, READ), (1 << 5, FLUSH)] {
        assert_eq!(client.one(flags, command, 0, 512).expect("an answer"), EINVAL);
        expect_in_step(&mut client);
    }
}

fn endless_option(socket: &Doors) {
    let mut stream = greeted(socket).expect("a greeting");
    let mut header = OPTION_MAGIC.to_be_bytes().to_vec();
    header.extend(7_u32.to_be_bytes());
    header.extend(u32::MAX.to_be_bytes());
    stream.write_all(&header).expect("a socket");
    let piece = vec![0; 1 << 20];
    // The server does not take in 4 GiB of an option.
    let taken = (0..4096).take_while(|_| stream.write_all(&piece).is_ok()).count();
    assert!(taken < 64, "{taken} MiB of an option were taken in");
    expect_closed(&mut stream);
}

fn ten_thousand_options(socket: &Doors) {
    // One after the other, each answered until there were too many.
    let mut stream = greeted(socket).expect("a greeting");
    let mut answered = 0;
    for number in 0..10_000_u32 {
        let asked = stream.write_all(&option(1000 + number, b"whatever"));
        let Ok((kind, _)) = asked.and_then(|()| option_reply(&mut stream)) else { break };
        assert_eq!(kind, ERR_UNSUP);
        answered += 1;
    }
    assert!((100..10_000).contains(&answered), "{answered} options were answered");
    expect_closed(&mut stream);
    // All at once, and the answers are not read meanwhile.
    let mut stream = greeted(socket).expect("a greeting");
    let list = option(3, &[]).repeat(10_000);
    let _ = stream.write_all(&list);
    expect_closed(&mut stream);
}

fn four_gibibytes(socket: &Doors) {
    let mut client = Client::connect(socket, "sda");
    let most = u32::MAX - 511;
    for (command, length, errors) in [
        (READ, most, [EOVERFLOW, EINVAL]),
        (READ, u32::MAX, [EOVERFLOW, EINVAL]),
        (TRIM, most, [EINVAL, EINVAL]),
        (WRITE_ZEROES, most, [ENOSPC, ENOSPC]),
        (5, most, [EINVAL, EINVAL]),
    ] {
        let error = client.one(0, command, 0, length).expect("an answer");
        assert!(errors.contains(&error), "command {command} over {length} bytes: error {error}");
        expect_in_step(&mut client);
    }
}

fn write_four_gibibytes(socket: &Doors) {
    let mut client = Client::connect(socket, "sda");
    let cookie = client.send(0, WRITE, 0, u32::MAX - 511, &[]).expect("a socket");
    let (answered, error) = client.reply().expect("an answer");
    assert_eq!((answered, error), (cookie, EINVAL));
    // The bytes that would follow are no request, and the server does not wait for 4 GiB to pass
    // by.
    expect_closed(&mut client.stream);
}

fn past_the_end(socket: &Doors) {
    let mut client = Client::connect(socket, "sda");
    for (command, offset, length, expected) in [
        (READ, SIZE, 512, EINVAL),
        (READ, SIZE - 512, 1024, EINVAL),
        (READ, u64::MAX - 511, 512, EINVAL),
        (READ, u64::MAX - 511, 1024, EINVAL),
        (TRIM, SIZE, 4096, EINVAL),
        (WRITE_ZEROES, SIZE - 512, 4096, ENOSPC),
        (WRITE_ZEROES, u64::MAX - 511, 4096, ENOSPC),
    ] {
        let error = client.one(0, command, offset, length).expect("an answer");
        assert_eq!(error, expected, "command {command} of {length} bytes at {offset}");
        expect_in_step(&mut client);
    }
    for offset in [SIZE, SIZE - 512, u64::MAX - 511] {
        let error = client.write(0, offset, &[0xcc; 4096]).expect("an answer");
        assert_eq!(error, ENOSPC, "a write at {offset}");
        expect_in_step(&mut client);
    }
    client.disconnect().expect("an orderly end");
}

fn half_a_tls_handshake(socket: &Doors) {
    for sent in [0, 1, 5, 40, 200] {
        let mut stream = greeted(&socket.tls).expect("a greeting");
        stream.write_all(&option(5, &[])).expect("a socket");
        assert_eq!(option_reply(&mut stream).expect("an answer").0, ACK);
        // A handshake record of 512 bytes that begins a client's hello.
        let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        hello.resize(250, 7);
        stream.write_all(&hello[..sent]).expect("a socket");
    }
}

/// Sends until the server takes no more for now.
fn flood(stream: &mut UnixStream, bytes: &[u8]) {
    stream.set_nonblocking(true).expect("a socket");
    for _ in 0..64 {
        if stream.write_all(bytes).is_err() {
            break;
        }
    }
}

fn flood_of_questions(socket: &Doors) {
    let mut stream = greeted(socket).expect("a greeting");
    let mut name = 3_u32.to_be_bytes().to_vec();
    name.extend(b"sda");
    let mut context = name.clone();
    context.extend([0, 0, 0, 1, 0, 0, 0, 15]);
    context.extend(b"base:allocation");
    name.extend([0, 0]);
    for (number, data) in [(8, &[][..]), (10, &context), (7, &name)] {
        stream.write_all(&option(number, data)).expect("a socket");
        while option_reply(&mut stream).expect("an answer").0 != ACK {}
    }
    let questions: Vec<u8> =
        (0..500).flat_map(|cookie| request(0, 7, cookie, 0, SIZE as u32)).collect();
    flood(&mut stream, &questions);
}

fn half_shut_flood(socket: &Doors) {
    let mut client = Client::connect(socket, "sda");
    client.stream.shutdown(Shutdown::Read).expect("a socket");
    let reads: Vec<u8> = (0..500).flat_map(|cookie| request(0, READ, cookie, 0, 1 << 20)).collect();
    flood(&mut client.stream, &reads);
}

fn effects_of_the_whole_disk(socket: &Doors) {
    let mut client = Client::connect(socket, "sda");
    let half = (SIZE / 2) as u32;
    for (flags, command, length) in
        [(0, TRIM, half), (1, WRITE_ZEROES, half), (0, WRITE_ZEROES, half), (0, 5, SIZE as u32)]
    {
        client.send(flags, command, 0, length, &[]).expect("a socket");
    }
    let (_, error) = client.reply().expect("an answer");
    assert_eq!(error, 0);
}

fn byte_by_byte(socket: &Doors) {
    let mut stream = greeted(socket).expect("a greeting");
    for byte in option(7, b"\x00\x00\x00\x03sda\x00\x00") {
        stream.write_all(&[byte]).expect("a socket");
    }
    while option_reply(&mut stream).expect("an answer").0 != ACK {}
    for byte in request(0, READ, 1, 0, 512) {
        stream.write_all(&[byte]).expect("a socket");
    }
    stream.read_exact(&mut [0; 16 + 512]).expect("an answer");
}

fn connect_and_idle(socket: &Doors) {
    let silent: Vec<UnixStream> =
        (0..5).map(|_| UnixStream::connect(socket).expect("a connection")).collect();
    let idle: Vec<Client> = (0..3).map(|_| Client::connect(socket, "sda")).collect();
    drop((silent, idle));
}

/// A connection from an address of this machine, before the greeting.
fn from(last: u8, port: u16) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    let own = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0);
    rustix::net::bind(&socket, &own).expect("an address of this machine");
    let there = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    rustix::net::connect(&socket, &there).expect("a connection");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

fn reset_in_a_reply(socket: &Doors) {
    let mut stream = from(3, socket.port);
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend(option(1, b"sda"));
    (0..20).for_each(|cookie| bytes.extend(request(0, READ, cookie, 0, 1 << 20)));
    stream.write_all(&bytes).expect("a socket");
    stream.read_exact(&mut [0; 100_000]).expect("a part of the replies");
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
}

fn all_places_of_an_address(socket: &Doors) {
    let mut taken = Vec::new();
    loop {
        let mut stream = from(2, socket.port);
        match stream.read_exact(&mut [0; 18]) {
            Ok(()) => taken.push(stream),
            Err(_) => break,
        }
        assert!(taken.len() <= PER_PEER, "an address has more places than it may");
    }
}

fn flood_of_nonsense(socket: &Doors) {
    let mut client = Client::connect(socket, "sda");
    let bad: Vec<u8> = (0..500).flat_map(|cookie| request(0, READ, cookie, SIZE, 4096)).collect();
    flood(&mut client.stream, &bad);
}

fn flood_of_large_reads(socket: &Doors) {
    let mut client = Client::connect(socket, "sda");
    let reads: Vec<u8> =
        (0..100).flat_map(|cookie| request(0, READ, cookie, 0, 32 << 20)).collect();
    flood(&mut client.stream, &reads);
}

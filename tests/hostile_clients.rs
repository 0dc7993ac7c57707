//! Clients that mean harm, or are just broken: each gets a clear answer or a closed connection, no
//! other client notices, and the daemon is afterwards what it was before.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use daemon::client::{
    Client, FLUSH, OPTION_MAGIC, READ, TRIM, WRITE, WRITE_ZEROES, greeted, option, option_reply,
    request,
};
use daemon::program::{A_MOMENT, Noise, Running, program};
use daemon::{Daemon, Folder, PATIENCE};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;

const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ERR_UNSUP: u32 = 0x8000_0001;

/// What a daemon may keep of what it needed: memory comes in chunks.
const KEPT_KIB: u64 = 6 * 1024;

/// Something a client should not do.
type Mischief = fn(&Path);

const MISCHIEF: [(&str, Mischief); 14] = [
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
];

/// Expects the connection to be closed, after whatever is still said.
#[track_caller]
fn expect_closed(stream: &mut UnixStream) {
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
fn expect_in_step(client: &mut Client) {
    let data = client.read(0, 512).expect("an answer").expect("no error");
    assert_eq!(data.len(), 512);
}

fn vanish_at_once(socket: &Path) {
    drop(UnixStream::connect(socket).expect("a connection"));
}

fn vanish_in_the_handshake(socket: &Path) {
    for length in [1, 8, 15, 16, 17, 25] {
        let mut stream = greeted(socket).expect("a greeting");
        let bytes = option(7, b"\x00\x00\x00\x03sda\x00\x00");
        stream.write_all(&bytes[..length.min(bytes.len() - 1)]).expect("a socket");
    }
}

fn vanish_in_a_header(socket: &Path) {
    for length in [1, 4, 27] {
        let mut client = Client::connect(socket, "sda");
        let bytes = request(0, READ, 1, 0, 4096);
        client.stream.write_all(&bytes[..length]).expect("a socket");
    }
}

fn vanish_in_a_payload(socket: &Path) {
    for (length, sent) in [(4096, 1), (4096, 4095), (8 << 20, 100_000), (32 << 20, 3 << 20)] {
        let mut client = Client::connect(socket, "sda");
        let mut bytes = request(0, WRITE, 1, 0, length);
        bytes.resize(28 + sent, 0xee);
        client.stream.write_all(&bytes).expect("a socket");
    }
}

fn vanish_in_a_reply(socket: &Path) {
    for (count, taken) in [(1, 5), (1, 100_000), (20, 16), (20, 3_000_000)] {
        let mut client = Client::connect(socket, "sda");
        for index in 0..count {
            client.send(0, READ, index * MIB, 1 << 20, &[]).expect("a socket");
        }
        let mut taken_bytes = vec![0; taken];
        client.stream.read_exact(&mut taken_bytes).expect("a part of the replies");
    }
}

fn vanish_with_writes_under_way(socket: &Path) {
    let mut client = Client::connect(socket, "sda");
    let mut bytes = Vec::new();
    for index in 0..64 {
        bytes.extend(request(1, WRITE, index, index * 8192, 4096));
        bytes.extend([0xdd; 4096]);
    }
    bytes.extend(request(0, FLUSH, 99, 0, 0));
    client.stream.write_all(&bytes).expect("a socket");
}

fn greet_with_garbage(socket: &Path) {
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

fn garbage_for_an_option(socket: &Path) {
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

fn garbage_for_a_request(socket: &Path) {
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

fn endless_option(socket: &Path) {
    let mut stream = greeted(socket).expect("a greeting");
    let mut header = OPTION_MAGIC.to_be_bytes().to_vec();
    header.extend(7_u32.to_be_bytes());
    header.extend(u32::MAX.to_be_bytes());
    stream.write_all(&header).expect("a socket");
    let piece = vec![0; 1 << 20];
    // The daemon does not take in 4 GiB of an option.
    let taken = (0..4096).take_while(|_| stream.write_all(&piece).is_ok()).count();
    assert!(taken < 64, "{taken} MiB of an option were taken in");
    expect_closed(&mut stream);
}

fn ten_thousand_options(socket: &Path) {
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
    // All at once, and the client reads no answer meanwhile.
    let mut stream = greeted(socket).expect("a greeting");
    let list = option(3, &[]).repeat(10_000);
    let _ = stream.write_all(&list);
    expect_closed(&mut stream);
}

fn four_gibibytes(socket: &Path) {
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

fn write_four_gibibytes(socket: &Path) {
    let mut client = Client::connect(socket, "sda");
    let cookie = client.send(0, WRITE, 0, u32::MAX - 511, &[]).expect("a socket");
    let (answered, error) = client.reply().expect("an answer");
    assert_eq!((answered, error), (cookie, EINVAL));
    // What would follow is no request, and the daemon does not wait for 4 GiB to pass by.
    expect_closed(&mut client.stream);
}

fn past_the_end(socket: &Path) {
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

/// Clients that stay and never read: one in the handshake, one with data and one with errors.
fn clients_that_never_read(socket: &Path) -> Vec<UnixStream> {
    let mut handshake = greeted(socket).expect("a greeting");
    handshake.set_nonblocking(true).expect("a socket");
    let list = option(3, &[]).repeat(100);
    while handshake.write_all(&list).is_ok() {}
    let mut reader = Client::connect(socket, "sda");
    reader.stream.set_nonblocking(true).expect("a socket");
    while reader.send(0, READ, 0, 32 << 20, &[]).is_ok() {}
    let mut fool = Client::connect(socket, "sda");
    fool.stream.set_nonblocking(true).expect("a socket");
    while fool.send(0, READ, 1, 1, &[]).is_ok() {}
    vec![handshake, reader.stream, fool.stream]
}

/// A client that uses the upper half of the same disk all the while and checks every answer.
struct Neighbour {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    fn move_in(socket: PathBuf, seed: u64) -> Neighbour {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (is_over, count) = (Arc::clone(&stop), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let mut client = Client::connect(&socket, "sda");
            let mut noise = Noise::new(seed);
            let mut bytes = vec![0; 16 << 10];
            while !is_over.load(Ordering::Relaxed) {
                let offset = SIZE / 2 + noise.below(SIZE / 2 / (16 << 10)) * (16 << 10);
                noise.fill(&mut bytes);
                let flags = noise.below(2) as u16;
                assert_eq!(client.write(flags, offset, &bytes).expect("an answer"), 0);
                let read = client.read(offset, bytes.len() as u32).expect("an answer");
                assert!(read.expect("no error") == bytes, "the neighbour's data changed");
                count.fetch_add(1, Ordering::Relaxed);
            }
            client.disconnect().expect("an orderly end");
        });
        Neighbour { stop, done, thread: Some(thread) }
    }

    /// Waits until the neighbour has got something done since.
    #[track_caller]
    fn gets_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        let thread = self.thread.as_ref().expect("still there");
        eventually("the neighbour gets on", || {
            self.done.load(Ordering::Relaxed) > before || thread.is_finished()
        });
        assert!(!thread.is_finished(), "the neighbour noticed");
    }

    #[track_caller]
    fn move_out(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("still there");
        thread.join().expect("the neighbour noticed nothing");
    }
}

/// Looks again and again: the daemon does not report what happens inside it.
#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(A_MOMENT);
    }
}

/// Waits until the daemon holds no more than before.
#[track_caller]
fn expect_as_before(daemon: &Daemon, descriptors: usize, resident_kib: u64) {
    let until = Instant::now() + PATIENCE;
    loop {
        let (now, kib) = (daemon.descriptors(), daemon.resident_kib());
        if now == descriptors && kib <= resident_kib + KEPT_KIB {
            return;
        }
        assert!(
            Instant::now() < until,
            "{descriptors} descriptors and {resident_kib} KiB before, {now} and {kib} KiB after"
        );
        std::thread::sleep(A_MOMENT);
    }
}

fn start(folder: &Folder, options: &str) -> Daemon {
    Daemon::start(folder, &[&folder.file_disk("sda", "64MiB", options)])
}

#[test]
fn broken_clients_are_answered_or_closed_and_nobody_else_notices() {
    for options in ["", ",queue_mode=sq"] {
        let folder = Folder::new();
        let daemon = start(&folder, options);
        let socket = folder.socket();
        let neighbour = Neighbour::move_in(socket.clone(), 31);
        for (what, mischief) in MISCHIEF {
            println!("a client {what}");
            mischief(&socket);
            neighbour.gets_on();
        }
        neighbour.move_out();
        daemon.stop();
    }
}

#[test]
fn broken_clients_leave_no_memory_and_no_descriptors_behind() {
    for options in ["", ",queue_mode=sq", ",io=threads"] {
        let folder = Folder::new();
        let daemon = start(&folder, options);
        let socket = folder.socket();
        let idle = daemon.descriptors();
        let all = || {
            for (_, mischief) in MISCHIEF {
                mischief(&socket);
            }
            let many: Vec<_> = (0..100).map(|_| Client::connect(&socket, "sda")).collect();
            drop(many);
        };
        // The first time warms up what is kept for good.
        all();
        expect_as_before(&daemon, idle, u64::MAX - KEPT_KIB);
        let before = daemon.resident_kib();
        (0..3).for_each(|_| all());
        expect_as_before(&daemon, idle, before);
        daemon.stop();
    }
}

#[test]
fn clients_that_never_read_cost_little_while_they_stay_and_nothing_afterwards() {
    let folder = Folder::new();
    let daemon = start(&folder, "");
    let socket = folder.socket();
    let idle = daemon.descriptors();
    drop(clients_that_never_read(&socket));
    expect_as_before(&daemon, idle, u64::MAX - KEPT_KIB);
    let resident = daemon.resident_kib();
    let neighbour = Neighbour::move_in(socket.clone(), 32);
    neighbour.gets_on();
    let crowd: Vec<_> = (0..5).flat_map(|_| clients_that_never_read(&socket)).collect();
    neighbour.gets_on();
    let grown = daemon.resident_kib().saturating_sub(resident);
    // Each may be owed 32 MiB and one request above it.
    assert!(grown < 5 * 80 * 1024, "{grown} KiB for {} clients that never read", crowd.len());
    drop(crowd);
    neighbour.gets_on();
    // While a client is at work, memory is kept at hand for the next burst.
    neighbour.move_out();
    expect_as_before(&daemon, idle, resident);
    daemon.stop();
}

#[test]
fn a_handshake_that_goes_nowhere_is_ended() {
    let folder = Folder::new();
    let daemon = start(&folder, "");
    let socket = folder.socket();
    let descriptors = daemon.descriptors();
    let began = Instant::now();
    let mut silent = UnixStream::connect(&socket).expect("a connection");
    silent.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut half = greeted(&socket).expect("a greeting");
    half.write_all(&option(7, b"\x00\x00\x00\x03sda")[..20]).expect("a socket");
    // One who has finished it may be silent for as long as he likes.
    let mut patient = Client::connect(&socket, "sda");
    expect_closed(&mut silent);
    expect_closed(&mut half);
    let took = began.elapsed();
    assert!((9..30).contains(&took.as_secs()), "handshakes were ended after {took:?}");
    expect_in_step(&mut patient);
    patient.disconnect().expect("an orderly end");
    eventually("no descriptor is left", || daemon.descriptors() == descriptors);
    daemon.stop();
}

#[test]
fn a_write_that_came_whole_is_done_though_its_client_has_gone() {
    let folder = Folder::new();
    let daemon = start(&folder, "");
    let descriptors = daemon.descriptors();
    vanish_with_writes_under_way(&folder.socket());
    // What has not been received when the daemon is stopped is refused.
    daemon.wait_for(|line| line.contains("export=sda"));
    eventually("the client is forgotten", || daemon.descriptors() == descriptors);
    daemon.stop();
    let bytes = fs::read(folder.image("sda")).expect("the image");
    for index in 0..64 {
        let block = &bytes[index * 8192..][..8192];
        assert!(block[..4096].iter().all(|byte| *byte == 0xdd), "write {index} is missing");
        assert!(block[4096..].iter().all(|byte| *byte == 0), "write {index} is too long");
    }
}

#[test]
#[ignore = "needs fio"]
fn fio_verifies_everything_it_wrote_among_broken_clients() {
    for options in ["", ",queue_mode=sq"] {
        let folder = Folder::new();
        let daemon = start(&folder, options);
        let mut fio = program("fio");
        fio.args(["--name=load", "--ioengine=nbd", "--rw=randrw", "--bs=4k", "--iodepth=16"]);
        fio.args(["--offset=32m", "--size=32m", "--verify=crc32c", "--verify_fatal=1"]);
        fio.args(["--fsync=32", "--loops=4"]).arg(format!("--uri={}", folder.uri("sda")));
        let mut fio = Running::start(fio);
        daemon.wait_for(|line| line.contains("export=sda"));
        let mut rounds = 0;
        while fio.is_running() {
            let crowd = clients_that_never_read(&folder.socket());
            for (_, mischief) in MISCHIEF {
                mischief(&folder.socket());
            }
            drop(crowd);
            rounds += 1;
        }
        fio.succeed();
        assert!(rounds > 0);
        println!("{rounds} rounds of mischief, path {options:?}");
        daemon.stop();
    }
}

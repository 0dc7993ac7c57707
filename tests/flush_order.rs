//! When a flush is answered: only after the file was synchronised, as seen from outside the daemon
//! by the system calls that its pool of threads makes. `uring_order.rs` looks at io_uring.

#![forbid(unsafe_code)]

mod daemon;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::path::Path;

use daemon::client::{Client, FLUSH, FUA, WRITE, request};
use daemon::program::Noise;
use daemon::{Daemon, Folder, PATIENCE, WEIR};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

const SECTOR: u64 = 512;
const CLIENTS: u64 = 2;
const BATCHES: u64 = 25;

/// One system call: the lines of the trace where it began and where it had returned.
#[derive(Debug)]
struct Call {
    name: String,
    arguments: String,
    began: usize,
    ended: usize,
    returned: i64,
}

/// Puts the calls of a trace together, in the order they ended.
fn calls(trace: &str) -> Vec<Call> {
    let mut unfinished: HashMap<&str, (String, String, usize)> = HashMap::new();
    let mut calls = Vec::new();
    for (at, line) in trace.lines().enumerate() {
        let (thread, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim_start();
        if let Some(call) = rest.strip_suffix(" <unfinished ...>") {
            let (name, arguments) = call.split_once('(').expect("a call");
            unfinished.insert(thread, (name.to_owned(), arguments.to_owned(), at));
            continue;
        }
        // Columns are padded between the closing parenthesis and what the call returned.
        let Some((call, returned)) = rest.rsplit_once(" = ") else { continue };
        let call = call.trim_end().trim_end_matches(')');
        let number = returned.split(' ').next().and_then(|number| number.parse().ok());
        let (name, arguments, began) = match call.strip_prefix("<... ") {
            Some(resumed) => {
                let Some((name, mut first, began)) = unfinished.remove(thread) else { continue };
                first.push_str(resumed.split_once("resumed>").map_or("", |(_, rest)| rest));
                (name, first, began)
            }
            None => match call.split_once('(') {
                Some((name, arguments)) => (name.to_owned(), arguments.to_owned(), at),
                None => continue,
            },
        };
        calls.push(Call { name, arguments, began, ended: at, returned: number.unwrap_or(-1) });
    }
    calls
}

impl Call {
    fn descriptor(&self) -> &str {
        self.arguments.split(',').next().unwrap_or_default()
    }

    /// The bytes that went through it: strace writes them as `\xNN`.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for text in self.arguments.split('"').skip(1).step_by(2) {
            let digits = text.split("\\x").skip(1);
            bytes.extend(digits.map(|two| u8::from_str_radix(two, 16).expect("hexadecimal")));
        }
        bytes.truncate(self.returned.max(0) as usize);
        bytes
    }

    /// Where a write to the file begins, and whether it waits for the disk.
    fn place(&self) -> (u64, bool) {
        let behind = self.arguments.rsplit_once(']').expect("a list of pieces").1;
        let mut words = behind.split(", ").skip(2);
        let offset = words.next().and_then(|word| word.trim().parse().ok()).expect("an offset");
        (offset, words.any(|word| word.contains("RWF_DSYNC")))
    }
}

/// One request of one client: what it asked for, the line after which the daemon had all of it,
/// and the line at which it began to answer.
#[derive(Debug)]
struct Asked {
    command: u16,
    flags: u16,
    offset: u64,
    received: usize,
    answered: usize,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// One direction of one socket: every byte, with the line it belongs to.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    lines: Vec<usize>,
}

impl Stream {
    fn add(&mut self, bytes: Vec<u8>, line: usize) {
        self.lines.resize(self.lines.len() + bytes.len(), line);
        self.bytes.extend(bytes);
    }
}

/// Reads the conversations of all clients out of the calls.
fn conversations(calls: &[Call]) -> Vec<Vec<Asked>> {
    let mut sockets: BTreeMap<&str, (Stream, Stream)> = BTreeMap::new();
    for call in calls {
        match call.name.as_str() {
            "recvfrom" | "recvmsg" => {
                let (received, _) = sockets.entry(call.descriptor()).or_default();
                received.add(call.bytes(), call.ended);
            }
            "sendto" | "sendmsg" => {
                let (_, sent) = sockets.entry(call.descriptor()).or_default();
                sent.add(call.bytes(), call.began);
            }
            _ => {}
        }
    }
    // The daemon has other sockets; a client begins with its flags and an option.
    let is_client = |received: &Stream| received.bytes.starts_with(b"\0\0\0\x03IHAVEOPT");
    let clients = sockets.into_values().filter(|(received, _)| is_client(received));
    clients.map(|(received, sent)| conversation(&received, &sent)).collect()
}

fn conversation(received: &Stream, sent: &Stream) -> Vec<Asked> {
    // The greeting, then answers to options up to the one that ends the handshake.
    let mut at = 18;
    let answers = loop {
        let header = &sent.bytes[at..at + 20];
        at += 20 + number(&header[16..]) as usize;
        if number(&header[12..16]) == 1 {
            break at;
        }
    };
    let mut answered = HashMap::new();
    for at in (answers..sent.bytes.len()).step_by(16) {
        let reply = &sent.bytes[at..at + 16];
        assert_eq!(number(&reply[..8]), 0x6744_6698_0000_0000, "a reply without an error");
        answered.insert(number(&reply[8..]), sent.lines[at]);
    }
    let mut asked = Vec::new();
    // The client's flags and its one option, GO for a name of three letters.
    let mut at = 4 + 16 + 9;
    while at < received.bytes.len() {
        let header = &received.bytes[at..at + 28];
        let (flags, command) = (number(&header[4..6]) as u16, number(&header[6..8]) as u16);
        at += 28;
        if command == WRITE {
            at += number(&header[24..]) as usize;
        }
        let offset = number(&header[16..24]);
        let cookie = number(&header[8..16]);
        let line = received.lines[at - 1];
        if command <= FLUSH && command != 2 {
            let answered = answered[&cookie];
            asked.push(Asked { command, flags, offset, received: line, answered });
        }
    }
    asked
}

/// Waits until strace has written the last line of its trace.
#[track_caller]
fn whole_trace(path: &Path, pid: u32) -> String {
    let news = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    inotify::add_watch(&news, path, inotify::WatchFlags::MODIFY).expect("inotify");
    loop {
        let trace = fs::read_to_string(path).expect("a trace");
        let words = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        if trace.lines().any(|line| words(line) == format!("{pid} +++ exited")) {
            return trace;
        }
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let told = poll(&mut [PollFd::new(&news, PollFlags::IN)], Some(&patience));
        assert_eq!(told, Ok(1), "strace does not end");
        rustix::io::read(&news, &mut [0; 4096][..]).expect("news of the trace");
    }
}

/// Writes, writes through and flushes at random, many at once. Every sector is written once, and
/// none beside another, so that each request is one call.
fn load(mut connection: Client, client: u64, seed: u64) {
    let mut noise = Noise::new(seed << 8 | client);
    let (mut slot, mut cookie) = (client, 0);
    for _ in 0..BATCHES {
        let count = 1 + noise.below(12);
        let mut bytes = Vec::new();
        for _ in 0..count {
            cookie += 1;
            match noise.below(4) {
                0 => bytes.extend(request(0, FLUSH, cookie, 0, 0)),
                kind => {
                    let flags = if kind == 1 { FUA } else { 0 };
                    let offset = slot * 4 * SECTOR;
                    slot += CLIENTS;
                    bytes.extend(request(flags, WRITE, cookie, offset, SECTOR as u32));
                    bytes.extend([cookie as u8; SECTOR as usize]);
                }
            }
        }
        connection.stream.write_all(&bytes).expect("a socket");
        for _ in 0..count {
            assert_eq!(connection.reply().expect("an answer").1, 0);
        }
    }
    connection.disconnect().expect("an orderly end");
}

#[track_caller]
fn check(asked: &[Asked], calls: &[Call]) -> [usize; 3] {
    let mut counts = [0; 3];
    let ended_well = |call: &&Call| call.returned >= 0;
    let syncs: Vec<_> =
        calls.iter().filter(|call| call.name == "fdatasync" && call.returned == 0).collect();
    let is_write = |call: &&Call| call.name.starts_with("pwrite");
    let writes: HashMap<u64, &Call> = calls
        .iter()
        .filter(is_write)
        .filter(ended_well)
        .map(|call| (call.place().0, call))
        .collect();
    for asked in asked {
        let within = |call: &Call| asked.received < call.began && call.ended < asked.answered;
        if asked.command == FLUSH {
            counts[0] += 1;
            let sync = syncs.iter().find(|sync| within(sync));
            assert!(sync.is_some(), "answered without an fdatasync of its own: {asked:?}");
            continue;
        }
        let write = writes.get(&asked.offset);
        let write = write.unwrap_or_else(|| panic!("never written: {asked:?}"));
        assert!(within(write), "answered before {write:?} returned: {asked:?}");
        if asked.flags & FUA != 0 {
            counts[1] += 1;
            let behind = |sync: &&Call| sync.began > write.ended && within(sync);
            let waited = write.place().1 || syncs.iter().any(behind);
            assert!(waited, "{write:?} did not wait for the disk: {asked:?}");
        } else {
            counts[2] += 1;
        }
    }
    counts
}

#[test]
#[ignore = "needs strace"]
fn a_flush_is_answered_after_its_fdatasync_and_a_fua_after_its_synchronous_write() {
    for (seed, options) in [
        (61, ",io=threads"),
        (62, ",io=threads,queue_mode=sq"),
        (63, ",io=threads,cache=writeback"),
    ] {
        println!("seed {seed}, options {options:?}");
        let folder = Folder::new();
        let trace = folder.image("trace");
        let mut command = daemon::program::program("strace");
        // The daemon keeps the pid of what is started here; strace looks on from beside it.
        command.args(["-D", "-f", "-xx", "-s", "400000", "-o"]).arg(&trace);
        command.args(["-e", "trace=/^(recv|send|pwrite|fdatasync|fsync)", "--"]);
        command.arg(WEIR).args(["serve", "--quiet", "--nbd", "unix:nbd.sock"]);
        command.args(["--disk", &folder.file_disk("sda", "8MiB", options)]);
        command.current_dir(folder.path()).stdout(std::process::Stdio::null());
        let mut daemon = Daemon::spawn(command);
        let pid = daemon.child().id();
        // All are connected before one ends, so that each socket has a number of its own.
        let connect = |_| Client::connect(&folder.socket(), "sda");
        let connections: Vec<_> = (0..CLIENTS).map(connect).collect();
        let start =
            |(connection, client)| std::thread::spawn(move || load(connection, client, seed));
        let clients: Vec<_> = connections.into_iter().zip(0..).map(start).collect();
        clients.into_iter().for_each(|client| client.join().expect("a client"));
        daemon.stop();
        let trace = whole_trace(&trace, pid);
        let calls = calls(&trace);
        let conversations = conversations(&calls);
        assert_eq!(conversations.len() as u64, CLIENTS);
        let asked: Vec<_> = conversations.into_iter().flatten().collect();
        let [flushes, fuas, writes] = check(&asked, &calls);
        println!("{flushes} flushes, {fuas} writes with FUA, {writes} without");
        assert!(flushes > 20 && fuas > 20 && writes > 20, "{flushes}, {fuas}, {writes}");
    }
}

/// A write through at 4096 and a flush, both received in line 0 and answered in lines 3 and 6.
fn asked_twice() -> [Asked; 2] {
    let asked =
        |command, flags, offset, answered| Asked { command, flags, offset, received: 0, answered };
    [asked(WRITE, FUA, 4096, 3), asked(FLUSH, 0, 0, 6)]
}

const GOOD_TRACE: &str = "\
7  recvfrom(5, \"\", 0, 0, NULL, NULL) = 0
9  pwritev2(4, [{iov_base=\"\\x01\", iov_len=1}], 1, 4096, RWF_DSYNC <unfinished ...>
9  <... pwritev2 resumed>)            = 1
7  sendto(5, \"\", 0, 0, NULL, 0)       = 0
8  fdatasync(4 <unfinished ...>
8  <... fdatasync resumed>)           = 0
7  sendto(5, \"\", 0, 0, NULL, 0)       = 0
";

#[test]
fn a_trace_that_keeps_the_order_passes() {
    assert_eq!(check(&asked_twice(), &calls(GOOD_TRACE)), [1, 1, 0]);
}

#[test]
fn a_trace_that_does_not_keep_the_order_is_found() {
    let lines: Vec<_> = GOOD_TRACE.lines().collect();
    let swapped = |one: usize, other: usize| {
        let mut lines = lines.clone();
        lines.swap(one, other);
        lines.join("\n")
    };
    let wrong = [
        ("the flush was answered first", swapped(5, 6)),
        ("the write was answered first", swapped(2, 3)),
        ("the file was synchronised before the flush came", {
            let early = ["8  fdatasync(4)                       = 0", lines[0]];
            let late = &lines[1..4];
            [&early[..1], &early[1..], late].concat().join("\n")
        }),
        (
            "the synchronisation failed",
            GOOD_TRACE
                .replace("fdatasync resumed>)           = 0", "fdatasync resumed>) = -1 EIO (it)"),
        ),
        ("the write did not wait for the disk", GOOD_TRACE.replace("RWF_DSYNC", "0")),
    ];
    for (what, trace) in wrong {
        let found = std::panic::catch_unwind(|| check(&asked_twice(), &calls(&trace)));
        assert!(found.is_err(), "not found: {what}\n{trace}");
    }
}

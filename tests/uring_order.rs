//! When a flush is answered with io_uring below: only after the ring completed its fsync, and a
//! write through only after the kernel had done it as a synchronous one.
//!
//! The requests to a ring go through no system call of their own, so the kernel's trace points have
//! to show them: `io_uring` for the requests, `iomap` for direct writes and the flags they came
//! with, `syscalls` for the bytes that come from a client and go to it.

#![forbid(unsafe_code)]

mod daemon;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use daemon::client::{Client, FLUSH, FUA};
use daemon::outside::leave_out;
use daemon::program::Noise;
use daemon::{Daemon, Folder, has_uring};

const SECTOR: usize = 512;
const CLIENTS: u64 = 4;
const REQUESTS: u64 = 60;

const EVENTS: [&str; 7] = [
    "io_uring/io_uring_submit_req",
    "io_uring/io_uring_complete",
    "iomap/iomap_dio_rw_begin",
    "iomap/iomap_dio_complete",
    "syscalls/sys_enter_recvfrom",
    "syscalls/sys_exit_recvfrom",
    "syscalls/sys_enter_sendto",
];

/// A part of the kernel's tracing of our own; it goes away with the value.
struct Tracing(PathBuf);

impl Tracing {
    /// The missing part where the kernel or our rights do not allow it.
    fn begin() -> Result<Tracing, String> {
        let name = format!("weir-{}", std::process::id());
        let folder = Path::new("/sys/kernel/tracing/instances").join(name);
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let tracing = Tracing(folder);
        tracing.set("trace_clock", "mono")?;
        tracing.set("buffer_size_kb", "16384")?;
        for event in EVENTS {
            tracing.set(&format!("events/{event}/enable"), "1")?;
        }
        Ok(tracing)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.0.join(file);
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn end(&self) -> String {
        self.set("tracing_on", "0").expect("tracing");
        fs::read_to_string(self.0.join("trace")).expect("a trace")
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Something that took time: the lines of the trace where it began and where it was over.
#[derive(Clone, Copy, Debug)]
struct Span {
    began: usize,
    ended: usize,
    result: i64,
}

/// The kernel's trace of one daemon.
#[derive(Debug, Default)]
struct Heard {
    /// Requests of a ring to synchronise.
    fsyncs: Vec<Span>,
    /// Direct writes to the image by offset, and whether the kernel took them as synchronous.
    writes: HashMap<u64, (Span, bool)>,
    /// Per socket, in the order they were first answered: lines where bytes came, lines where an
    /// answer of 16 bytes was sent.
    sockets: Vec<(String, Vec<usize>, Vec<usize>)>,
}

/// The value behind `name` in an event's text.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let behind = text.split_once(name).map_or("", |(_, behind)| behind.trim_start());
    behind.split([',', ' ', ')']).next().unwrap_or_default()
}

fn hexadecimal(text: &str) -> u64 {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// Reads the trace: `threads` are the daemon's, `inode` is its image.
fn heard(trace: &str, threads: &[String], inode: u64) -> Heard {
    let mut heard = Heard::default();
    // Per thread, the socket it receives from; per request of a ring and per offset, its begin.
    let (mut receiving, mut asked, mut begun) = (HashMap::new(), HashMap::new(), HashMap::new());
    for (at, line) in trace.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let task = line.split(" [").next().unwrap_or_default().trim();
        let thread = task.rsplit('-').next().unwrap_or_default();
        let ours = threads.iter().any(|id| id == thread);
        let is = |event: &str| line.contains(event);
        let of_ring = || (field(line, "ring "), field(line, "req "));
        let of_image = is(": iomap_dio") && hexadecimal(field(line, " ino ")) == inode;
        if is("io_uring_submit_req:") && ours && field(line, "opcode ") == "FSYNC" {
            asked.insert(of_ring(), at);
        } else if is("io_uring_complete:") {
            // The event may come from the process that the disk interrupted, or from a worker of
            // the kernel.
            if let Some(began) = asked.remove(&of_ring()) {
                let result = field(line, "result ").parse().expect("a result");
                heard.fsyncs.push(Span { began, ended: at, result });
            }
        } else if is("iomap_dio_rw_begin:") && of_image {
            begun.insert(hexadecimal(field(line, " offset ")), at);
        } else if is("iomap_dio_complete:") && of_image && is("WRITE") {
            let result: i64 = field(line, " ret ").parse().expect("a result");
            // By then the kernel has moved on to the end of what was written.
            let offset = hexadecimal(field(line, " offset ")) - result.max(0) as u64;
            let span = Span { began: begun[&offset], ended: at, result };
            heard.writes.insert(offset, (span, is("DSYNC")));
        } else if is("sys_recvfrom(") && ours {
            receiving.insert(thread, field(line, "fd: "));
        } else if is("sys_recvfrom -> ") && ours {
            let nothing = matches!(field(line, "-> "), "0x0") || field(line, "-> ").len() > 9;
            if let Some(socket) = receiving.get(thread).filter(|_| !nothing) {
                heard.socket(socket).1.push(at);
            }
        } else if is("sys_sendto(") && ours && hexadecimal(field(line, "len: ")) == 16 {
            heard.socket(field(line, "fd: ")).2.push(at);
        }
    }
    heard
}

impl Heard {
    fn socket(&mut self, name: &str) -> &mut (String, Vec<usize>, Vec<usize>) {
        let known = self.sockets.iter().position(|(known, ..)| known == name);
        let place = known.unwrap_or_else(|| {
            self.sockets.push((name.to_owned(), Vec::new(), Vec::new()));
            self.sockets.len() - 1
        });
        &mut self.sockets[place]
    }
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Flush,
    Write { offset: u64, through: bool },
}

/// One client, one request at a time: what it asked for. Every sector is written once.
fn load(mut client: Client, index: u64, seed: u64) -> Vec<Asked> {
    let mut noise = Noise::new(seed << 8 | index);
    let mut asked = Vec::new();
    for request in 0..REQUESTS {
        let error = match noise.below(3) {
            0 => {
                asked.push(Asked::Flush);
                client.one(0, FLUSH, 0, 0)
            }
            kind => {
                let offset = (request * CLIENTS + index) * 4 * SECTOR as u64;
                let through = kind == 1;
                asked.push(Asked::Write { offset, through });
                client.write(if through { FUA } else { 0 }, offset, &[request as u8; SECTOR])
            }
        };
        assert_eq!(error.expect("an answer"), 0);
    }
    client.disconnect().expect("an orderly end");
    asked
}

/// Holds what one client asked for against what was heard; how many flushes, writes through and
/// other writes there were.
#[track_caller]
fn check(asked: &[Asked], came: &[usize], answered: &[usize], heard: &Heard) -> [usize; 3] {
    let mut counts = [0; 3];
    // The last answers are those of requests; the handshake may have had some of the same length.
    let answered = &answered[answered.len() - asked.len()..];
    for (asked, &answered) in asked.iter().zip(answered) {
        let came = *came.iter().rfind(|at| **at < answered).expect("it came before its answer");
        let within = |span: &Span| came < span.began && span.ended < answered;
        match asked {
            Asked::Flush => {
                counts[0] += 1;
                let fsync = heard.fsyncs.iter().find(|fsync| within(fsync) && fsync.result == 0);
                assert!(fsync.is_some(), "answered in line {answered}, which came in {came}");
            }
            Asked::Write { offset, through } => {
                counts[if *through { 1 } else { 2 }] += 1;
                let (write, synchronous) = heard.writes.get(offset).expect("a write");
                assert!(within(write), "{asked:?}, {came}..{answered}, was done in {write:?}");
                assert_eq!(write.result, SECTOR as i64, "{asked:?}");
                assert!(*synchronous || !through, "{asked:?} did not wait for the disk");
            }
        }
    }
    counts
}

#[test]
#[ignore = "looks at io_uring through the kernel's tracing, where root may"]
fn a_flush_is_answered_after_its_fsync_and_a_fua_after_its_synchronous_write() {
    if !has_uring() {
        return;
    }
    for (seed, options) in [(63, ",io=uring"), (64, ",io=uring,queue_mode=sq")] {
        println!("seed {seed}, options {options:?}");
        let tracing = match Tracing::begin() {
            Ok(tracing) => tracing,
            Err(missing) => return leave_out(&format!("no tracing of io_uring: {missing}")),
        };
        let folder = Folder::new();
        let disk = folder.file_disk("sda", "8MiB", options);
        let mut daemon = Daemon::start(&folder, &[&disk]);
        let inode = fs::metadata(folder.image("sda")).expect("the image").ino();
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.child().id())).expect("threads");
        let names = tasks.map(|task| task.expect("a thread").file_name().into_string());
        let threads: Vec<_> = names.collect::<Result<_, _>>().expect("numbers");
        // One after the other, so that their sockets are told apart by their first answers.
        let connect = |_| {
            let mut client = Client::connect(&folder.socket(), "sda");
            assert_eq!(client.one(0, FLUSH, 0, 0).expect("an answer"), 0);
            client
        };
        let clients: Vec<_> = (0..CLIENTS).map(connect).collect();
        let start = |(client, index)| std::thread::spawn(move || load(client, index, seed));
        let clients: Vec<_> = clients.into_iter().zip(0..).map(start).collect();
        let asked = clients.into_iter().map(|client| client.join().expect("a client"));
        let mut asked: Vec<_> = asked.collect();
        let trace = tracing.end();
        daemon.stop();
        let heard = heard(&trace, &threads, inode);
        assert_eq!(heard.sockets.len() as u64, CLIENTS);
        if heard.writes.is_empty() {
            leave_out("writes: this file system says nothing of direct ones, as ext4 and xfs do");
            asked.iter_mut().for_each(|asked| asked.retain(|asked| *asked == Asked::Flush));
        }
        let mut sums = [0; 3];
        for (asked, (_, came, answered)) in asked.iter().zip(&heard.sockets) {
            let counts = check(asked, came, answered, &heard);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        println!("{} flushes, {} writes with FUA, {} without", sums[0], sums[1], sums[2]);
        assert!(sums[0] > 20, "{sums:?}");
    }
}

/// A write through at 4096, then a flush.
const ASKED: [Asked; 2] = [Asked::Write { offset: 4096, through: true }, Asked::Flush];

/// As the kernel says it, without the fields that are not used.
const GOOD_TRACE: &str = "\
# tracer: nop
 weir-reactor-0-71 [000] 1.01: sys_recvfrom(fd: 9, ubuf: 7f, size: 40, flags: 40, addr: 0)
 weir-reactor-0-71 [000] 1.02: sys_recvfrom -> 0x21c
 weir-reactor-0-71 [000] 1.03: iomap_dio_rw_begin: dev 8:1 ino 0x64 offset 0x1000 flags DIRECT
 iou-wrk-71-72     [001] 1.04: iomap_dio_complete: ino 0x64 offset 0x1200 flags DSYNC|WRITE ret 512
 weir-reactor-0-71 [000] 1.05: sys_sendto(fd: 9, buff: 7f, len: 10, flags: 4000, addr: 0)
 weir-reactor-0-71 [000] 1.06: sys_recvfrom(fd: 9, ubuf: 7f, size: 40, flags: 40, addr: 0)
 weir-reactor-0-71 [000] 1.07: sys_recvfrom -> 0x1c
 weir-reactor-0-71 [000] 1.08: io_uring_submit_req: ring aa, req bb, opcode FSYNC, flags 0x0
 weir-reactor-0-71 [000] 1.09: sys_recvfrom(fd: 9, ubuf: 7f, size: 40, flags: 40, addr: 0)
 weir-reactor-0-71 [000] 1.10: sys_recvfrom -> 0xfffffffffffffff5
 iou-wrk-71-72     [001] 1.11: io_uring_complete: ring aa, req bb, user_data 0x1, result 0
 weir-reactor-0-71 [000] 1.12: sys_sendto(fd: 9, buff: 7f, len: 10, flags: 4000, addr: 0)
";

#[track_caller]
fn check_trace(trace: &str) -> [usize; 3] {
    let heard = heard(trace, &["71".to_owned()], 0x64);
    let (_, came, answered) = &heard.sockets[0];
    check(&ASKED, came, answered, &heard)
}

#[test]
fn a_trace_that_keeps_the_order_passes() {
    assert_eq!(check_trace(GOOD_TRACE), [1, 1, 0]);
}

#[test]
fn a_trace_that_does_not_keep_the_order_is_found() {
    let lines: Vec<_> = GOOD_TRACE.lines().collect();
    let moved = |from: usize, to: usize| {
        let mut lines = lines.clone();
        let line = lines.remove(from);
        lines.insert(to, line);
        lines.join("\n")
    };
    for (what, trace) in [
        ("the write was answered first", moved(5, 4)),
        ("the flush was answered first", moved(12, 11)),
        ("the fsync was asked for before the flush came", moved(8, 6)),
        ("the fsync failed", GOOD_TRACE.replace("result 0", "result -5")),
        ("the write failed", GOOD_TRACE.replace("0x1200", "0x1000").replace("ret 512", "ret -5")),
        ("the write did not wait for the disk", GOOD_TRACE.replace("DSYNC|", "")),
        ("the write was another file's", GOOD_TRACE.replace("ino 0x64", "ino 0x65")),
        ("the fsync was another ring's", GOOD_TRACE.replacen("ring aa", "ring cc", 1)),
    ] {
        let found = std::panic::catch_unwind(|| check_trace(&trace));
        assert!(found.is_err(), "not found: {what}\n{trace}");
    }
}

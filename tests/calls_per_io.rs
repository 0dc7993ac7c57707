//! The system calls that one request costs the reactor that serves it, as strace sees them: one
//! that receives, one that sends, one that waits, and what the disk needs. Requests that come in
//! one message share them. No wait has a time-out, which would arm a timer for each.

#![forbid(unsafe_code)]

mod daemon;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use daemon::client::{Client, READ, request};
use daemon::{Daemon, Folder, PATIENCE, WEIR, has_uring};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use serde_json::Value;

/// Messages of one run.
const MESSAGES: u64 = 500;

/// Calls in which the connection comes and goes, the reactor starts and ends, memory grows and a
/// second passes.
const BESIDE: u64 = 150;

/// Waits until strace has written the last line about this thread, which ends after all others.
#[track_caller]
fn wait_for_trace(path: &Path) {
    let news = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    inotify::add_watch(&news, path, inotify::WatchFlags::MODIFY).expect("inotify");
    while !fs::read_to_string(path).expect("a trace").contains("+++ exited") {
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let told = poll(&mut [PollFd::new(&news, PollFlags::IN)], Some(&patience));
        assert_eq!(told, Ok(1), "strace does not end");
        rustix::io::read(&news, &mut [0; 4096][..]).expect("news of the trace");
    }
}

/// The calls of the thread that received most often, one a line.
fn calls_of_reactor(traces: &Path) -> Vec<String> {
    let files = fs::read_dir(traces).expect("traces").map(|entry| entry.expect("an entry").path());
    let texts = files.map(|path| fs::read_to_string(path).expect("a trace"));
    let receives = |text: &String| text.lines().filter(|l| l.starts_with("recvfrom(")).count();
    let text = texts.max_by_key(receives).expect("a thread");
    text.lines().filter(|line| line.contains('(')).map(str::to_owned).collect()
}

/// Whether this call is a wait with a time-out, which is the argument behind the room for events.
fn has_timeout(call: &str) -> bool {
    let (name, arguments) = call.split_once('(').unwrap_or((call, ""));
    match name {
        "epoll_wait" | "epoll_pwait" => {
            let behind = arguments.rsplit_once("], 128, ").or(arguments.rsplit_once(", 128, "));
            let timeout = behind.and_then(|(_, behind)| behind.split([',', ')']).next());
            !matches!(timeout.expect("a time-out"), "-1" | "0")
        }
        "epoll_pwait2" => !arguments.contains(", 128, NULL,"),
        "poll" => true,
        "ppoll" => !arguments.contains("], 1, NULL,") && !arguments.contains("], 2, NULL,"),
        _ => false,
    }
}

/// Serves `disk` to a client that sends `depth` reads in a message, waits for the answers, and
/// sends the next: the number of calls by their names, and the waits with a time-out.
fn count(disk: &str, depth: u64) -> (BTreeMap<String, u64>, usize) {
    let folder = Folder::new();
    let traces = folder.image("traces");
    fs::create_dir(&traces).expect("a folder");
    let mut command = daemon::program::program("strace");
    // The daemon keeps the pid of what is started here; strace looks on from beside it.
    command.args(["-D", "-ff", "-o"]).arg(traces.join("of")).arg("--").arg(WEIR);
    command.args(["serve", "--quiet", "--nbd", "unix:nbd.sock", "--disk", disk]);
    command.current_dir(folder.path()).stdout(std::process::Stdio::null());
    let mut daemon = Daemon::spawn(command);
    let pid = daemon.child().id();
    let mut client = Client::connect(&folder.socket(), "sda");
    for message in 0..MESSAGES {
        let cookies = message * depth..(message + 1) * depth;
        let requests = cookies.flat_map(|cookie| request(0, READ, cookie, cookie * 4096, 4096));
        client.stream.write_all(&requests.collect::<Vec<_>>()).expect("a socket");
        for _ in 0..depth {
            assert_eq!(client.reply().expect("an answer").1, 0);
            client.stream.read_exact(&mut [0; 4096]).expect("its data");
        }
    }
    client.disconnect().expect("an orderly end");
    daemon.stop();
    wait_for_trace(&traces.join(format!("of.{pid}")));
    let calls = calls_of_reactor(&traces);
    let timed = calls.iter().filter(|call| has_timeout(call)).count();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for call in &calls {
        let name = call.split('(').next().unwrap_or(call);
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    println!("{disk}, depth {depth}: {counts:?}, {timed} waits with a time-out");
    (counts, timed)
}

#[test]
#[ignore = "needs strace"]
fn a_message_costs_one_call_that_receives_one_that_sends_and_one_that_waits() {
    for depth in [1, 8, 32] {
        let (counts, timed) = count("sda=null:1GiB", depth);
        for name in ["recvfrom", "sendto", "epoll_pwait"] {
            let calls = counts.get(name).copied().unwrap_or(0);
            assert!(calls >= MESSAGES, "depth {depth}: {calls} times {name}");
        }
        assert_eq!(timed, 0, "a wait with a time-out arms a timer");
        let all: u64 = counts.values().sum();
        let most = 3 * MESSAGES + BESIDE;
        assert!(all <= most, "depth {depth}: {all} calls for {MESSAGES} messages, most {most}");
    }
}

#[test]
#[ignore = "needs strace"]
fn the_event_of_a_ring_is_read_once_for_a_message() {
    if !has_uring() {
        return;
    }
    let folder = Folder::new();
    // Blocks that are there: holes are read without the disk.
    let mut image = fs::File::create(folder.image("sda")).expect("a file");
    image.write_all(&vec![0xa5; 4 << 20]).expect("room");
    image.sync_all().expect("a disk");
    let (counts, _) = count(&folder.file_disk("sda", "4MiB", ",io=uring"), 1);
    let reads = counts.get("read").copied().unwrap_or(0);
    let most = MESSAGES + MESSAGES / 2 + BESIDE;
    assert!((1..=most).contains(&reads), "{reads} reads for {MESSAGES} messages, most {most}");
}

/// Has `weir bench` read a disk of a server for a while, with these options: its document, and the
/// calls of its busiest thread.
fn calls_of_bench(options: &[&str]) -> (Value, Vec<String>) {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=null:1GiB"]);
    let traces = folder.image("traces");
    fs::create_dir(&traces).expect("a folder");
    let mut command = daemon::program::program("strace");
    command.args(["-ff", "-o"]).arg(traces.join("of")).arg("--").arg(WEIR);
    command.args(["bench", "--target", &format!("nbd+unix:{}?sda", folder.socket().display())]);
    command.args(["--rw", "randread", "--bs", "4k", "--runtime", "500ms", "--ramp-time", "0s"]);
    command.args(["--json"]).args(options).current_dir(folder.path());
    let ended = command.output().expect("strace");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    daemon.stop();
    (serde_json::from_slice(&ended.stdout).expect("JSON"), calls_of_reactor(&traces))
}

fn count_of(calls: &[String], name: &str) -> usize {
    calls.iter().filter(|call| call.starts_with(name)).count()
}

#[test]
#[ignore = "needs strace"]
fn a_client_waits_for_an_answer_without_a_time_out() {
    let (_, calls) = calls_of_bench(&["--iodepth", "1"]);
    let [sent, received, waited] =
        ["sendto(", "recvfrom(", "ppoll("].map(|name| count_of(&calls, name));
    let timed = calls.iter().filter(|call| has_timeout(call)).count();
    println!("{sent} sent, {received} receives, {waited} waits, {timed} of them with a time-out");
    let most = BESIDE as usize;
    assert!(sent > most && waited > most, "this is not the thread that sends and waits");
    assert!(timed <= most, "{timed} of {waited} waits have a time-out, most {most}");
    // A second one for each answer would find nothing.
    assert!(received <= sent + sent / 2 + most, "{received} receives for {sent} requests");
}

#[test]
#[ignore = "needs strace"]
fn a_client_that_polls_does_not_wait() {
    let (told, calls) = calls_of_bench(&["--poll"]);
    assert_eq!(told["job"]["poll"], true);
    let [sent, waited] = ["sendto(", "ppoll("].map(|name| count_of(&calls, name));
    println!("{sent} sent, {waited} waits");
    // Those in which it is idle, before the first request and behind the last.
    assert!(sent > BESIDE as usize && waited <= 8, "{sent} requests, {waited} waits");
}

#[test]
fn a_time_out_is_seen_where_there_is_one() {
    for (call, expected) in [
        ("epoll_pwait(8, [{events=EPOLLIN, data=0x80}], 128, -1, NULL, 8) = 1", false),
        ("epoll_pwait(8, [], 128, 0, NULL, 8)       = 0", false),
        ("epoll_pwait(8, [{events=EPOLLIN, data=0x80}], 128, 999, NULL, 8) = 1", true),
        ("epoll_pwait(8, 0x7f1234567890, 128, 1000, NULL, 8) = -1 EINTR", true),
        ("epoll_pwait2(8, [], 128, {tv_sec=1, tv_nsec=5}, NULL, 8) = 0", true),
        ("epoll_pwait2(8, [], 128, NULL, NULL, 8) = 0", false),
        ("ppoll([{fd=8, events=POLLIN}], 1, NULL, NULL, 8) = 1", false),
        ("ppoll([{fd=8, events=POLLIN}], 1, {tv_sec=0, tv_nsec=7}, NULL, 8) = 0", true),
        ("recvfrom(9, \"\", 262144, MSG_DONTWAIT, NULL, NULL) = 28", false),
    ] {
        assert_eq!(has_timeout(call), expected, "{call}");
    }
}

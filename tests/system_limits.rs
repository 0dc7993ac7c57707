//! Limits of the system that a daemon meets while it serves: each is an error of the request that
//! met it, or a fallback, and no end of the daemon.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use daemon::client::{Client, TRIM};
use daemon::outside::{leave_out, mortal};
use daemon::{Daemon, Folder, PATIENCE, WEIR};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use weir_control::ControlClient;

const MIB: u64 = 1 << 20;
/// The error of NBD for a full store.
const NO_SPACE: u32 = 28;

fn limit(pid: Pid, resource: Resource, current: Option<u64>) {
    let maximum = None;
    prlimit(Some(pid), resource, Rlimit { current, maximum }).expect("a limit of a child");
}

/// Bytes of address space it has.
fn address_space(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    let status = status.expect("a running daemon");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("VmSize");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of KiB") << 10
}

/// Writes a MiB at a time, each with a byte of its own, until there is an error: it and how many
/// were written.
fn fill(client: &mut Client, most: u64) -> (u64, u32) {
    for written in 0..most {
        let bytes = vec![(written % 250 + 1) as u8; MIB as usize];
        let error = client.write(0, written * MIB, &bytes).expect("an answer");
        if error != 0 {
            return (written, error);
        }
    }
    panic!("{most} MiB were written below a limit of fewer")
}

#[test]
fn a_ram_disk_that_finds_no_memory_is_full_and_every_disk_goes_on() {
    let folder = Folder::new();
    let (ram, file) = ("sda=ram:4GiB", folder.file_disk("sdb", "8MiB", ""));
    let daemon = Daemon::start(&folder, &[ram, &file]);
    let mut client = Client::connect(&folder.socket(), "sda");
    let before = address_space(daemon.pid());
    limit(daemon.pid(), Resource::As, Some(before + 384 * MIB));
    let (written, error) = fill(&mut client, 1024);
    assert_eq!(error, NO_SPACE, "after {written} MiB");
    assert!(written > 64, "only {written} MiB were written");
    // Again, and again: the disk is full and stays so, for zeros that are to be kept as well.
    for _ in 0..20 {
        let bytes = vec![1; MIB as usize];
        assert_eq!(client.write(0, 2048 * MIB, &bytes).expect("an answer"), NO_SPACE);
    }
    let first = client.read(0, 4096).expect("an answer").expect("what was written");
    assert_eq!(first, [1; 4096]);
    let last = (written - 1) * MIB;
    let found = client.read(last, 4096).expect("an answer").expect("what was written");
    assert_eq!(found, vec![((written - 1) % 250 + 1) as u8; 4096]);
    // The other disk, and new clients.
    for _ in 0..20 {
        let mut other = Client::connect(&folder.socket(), "sdb");
        assert_eq!(other.write(0, 0, &[7; 4096]).expect("an answer"), 0);
        assert_eq!(other.read(0, 4096).expect("an answer"), Ok(vec![7; 4096]));
        other.disconnect().expect("a parting");
    }
    // Space given back can be used again.
    assert_eq!(client.one(0, TRIM, 0, 32 << 20).expect("an answer"), 0);
    for piece in 0..16 {
        let bytes = vec![9; MIB as usize];
        assert_eq!(client.write(0, 2048 * MIB + piece * MIB, &bytes).expect("an answer"), 0);
    }
    limit(daemon.pid(), Resource::As, None);
    assert_eq!(client.write(0, 3072 * MIB, &[5; 4096]).expect("an answer"), 0);
    client.disconnect().expect("a parting");
    daemon.stop();
}

#[test]
fn a_write_beyond_the_limit_on_file_sizes_has_no_space_and_the_daemon_goes_on() {
    for io in ["auto", "threads"] {
        let folder = Folder::new();
        let disk = folder.file_disk("sda", "8MiB", &format!(",io={io}"));
        let daemon = Daemon::start(&folder, &[&disk]);
        let mut client = Client::connect(&folder.socket(), "sda");
        limit(daemon.pid(), Resource::Fsize, Some(MIB));
        assert_eq!(client.write(0, 4 * MIB, &[1; 4096]).expect("an answer"), NO_SPACE, "{io}");
        assert_eq!(client.write(0, 0, &[2; 4096]).expect("an answer"), 0, "{io}");
        assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![2; 4096]), "{io}");
        client.disconnect().expect("a parting");
        daemon.stop();
    }
}

/// A daemon without the right to lock memory as it likes, and a limit of so many bytes.
fn lockless(folder: &Folder, locked: u64) -> Command {
    let mut command = mortal("setpriv");
    command.args(["--inh-caps", "-ipc_lock", "--bounding-set", "-ipc_lock", "--", "prlimit"]);
    command.arg(format!("--memlock={locked}:{locked}")).arg("--").arg(WEIR);
    command.current_dir(folder.path());
    command
}

#[test]
fn a_disk_whose_rings_cannot_be_made_is_served_by_threads() {
    if !rustix::process::geteuid().is_root() {
        return leave_out("only root may give up the right to lock memory");
    }
    let mut threads = 0;
    // A small ring may be allowed and a real one not, or one and not two, as the kernel counts.
    for locked in (1..=12).map(|pages| pages * 4096) {
        let folder = Folder::new();
        let mut command = lockless(&folder, locked);
        command.args(["serve", "--reactors", "2", "--disk", &folder.file_disk("sda", "8MiB", "")]);
        command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let daemon = Daemon::spawn(command);
        for _ in 0..4 {
            let mut client = Client::connect(&folder.socket(), "sda");
            assert_eq!(client.write(0, 4096, &[3; 4096]).expect("an answer"), 0, "{locked}");
            assert_eq!(client.read(4096, 4096).expect("an answer"), Ok(vec![3; 4096]));
            client.disconnect().expect("a parting");
        }
        let said = daemon.stop();
        let fell_back = said.contains("io_uring cannot be used") || said.contains("instead");
        threads += usize::from(fell_back && said.contains("Cannot allocate memory"));
    }
    if threads == 0 {
        leave_out("the kernel does not count the memory of rings");
    }
}

/// A command of a user who may have so many tasks, threads among them.
fn of_few_tasks(tasks: u32, program: &str) -> Command {
    let mut command = mortal("setpriv");
    command.args(["--reuid", "64321", "--clear-groups", "--", "prlimit"]);
    command.arg(format!("--nproc={tasks}:{tasks}")).arg("--").arg(program);
    command
}

#[test]
fn a_bench_that_cannot_start_its_threads_says_which_and_ends() {
    if !rustix::process::geteuid().is_root() {
        return leave_out("only root may become a user whose tasks are counted");
    }
    let is_started = of_few_tasks(64, WEIR).arg("--version").output();
    if !is_started.is_ok_and(|output| output.status.success()) {
        return leave_out(&format!("another user cannot start {WEIR}"));
    }
    let why = (1..16).find_map(|tasks| {
        let mut command = of_few_tasks(tasks, WEIR);
        command.args(["bench", "--target", "null:1MiB", "--rw", "randread", "--numjobs", "2"]);
        let output = command.args(["--runtime", "20ms", "--ramp-time", "0"]).output();
        let output = output.expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // With fewer tasks it is another thread that cannot be started.
        said.contains("cannot be started: ").then_some((output.status.code(), said))
    });
    let (code, said) = why.expect("a number of tasks that lets some threads start and not all");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("thread 1 of ") || said.contains("thread 2 of "), "{said}");
}

#[test]
fn a_client_for_whom_no_descriptor_is_left_waits_and_the_others_go_on() {
    let folder = Folder::new();
    let (metrics, control) = (folder.near("m.sock"), folder.near("control.sock"));
    let mut command = daemon::weir(&folder);
    command.args(["serve", "--disk", "sda=ram:8MiB", "--control"]).arg(&control);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    command.arg("--metrics").arg(format!("unix:{}", metrics.display()));
    let daemon = Daemon::spawn(command);
    let mut there = Client::connect(&folder.socket(), "sda");
    let mut tree = ControlClient::connect(&control).expect("a daemon");
    assert_eq!(
        tree.read("weir/pid").expect("a file").trim(),
        daemon.pid().as_raw_nonzero().to_string()
    );
    // No descriptor beyond those there are: the limit is the lowest number that none has.
    let numbers = fs::read_dir(format!("/proc/{}/fd", daemon.pid().as_raw_nonzero()));
    let numbers: Vec<u64> = numbers
        .expect("a running daemon")
        .filter_map(|entry| entry.expect("an entry").file_name().to_str()?.parse().ok())
        .collect();
    let lowest = (0..).find(|number| !numbers.contains(number)).expect("a number");
    println!("{} descriptors, none with {lowest}", numbers.len());
    limit_descriptors(daemon.pid(), lowest);
    let sockets = [&folder.socket(), &metrics, &control];
    let [mut greeted, mut told, _asked] = sockets.map(|socket| connect(socket));
    // A number may become free that was in use a moment ago: more of each than there can be such.
    let _more: Vec<UnixStream> = (0..9).map(|number| connect(sockets[number % 3])).collect();
    told.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    for (kind, words) in [
        ("nbd", "accepting connections fails"),
        ("metrics", "metrics: a peer cannot be "),
        ("control", "control socket: a client cannot be accepted"),
    ] {
        let said = daemon.wait_for(|line| line.contains(words));
        assert!(said.contains("told once"), "{kind}: {said}");
    }
    // Those that are there are served, long enough for the others to be asked for again.
    let begun = Instant::now();
    while begun.elapsed() < AGAIN {
        assert_eq!(there.write(0, 0, &[7; 4096]).expect("an answer"), 0);
        assert_eq!(there.read(0, 4096).expect("an answer"), Ok(vec![7; 4096]));
        tree.read("weir/version").expect("a file");
    }
    let said = daemon.said();
    assert_eq!(said.matches("told once").count(), 3, "{said}");
    limit_descriptors(daemon.pid(), 1024);
    // They have waited, and come in.
    let mut word = [0; 8];
    greeted.read_exact(&mut word).expect("a greeting");
    assert_eq!(&word, b"NBDMAGIC");
    let mut text = String::new();
    told.read_to_string(&mut text).expect("an answer");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut late = Client::connect(&folder.socket(), "sda");
    assert_eq!(late.read(0, 4096).expect("an answer"), Ok(vec![7; 4096]));
    drop((there, late, tree));
    daemon.stop();
}

/// Longer than the pause after which accepting is tried again.
const AGAIN: Duration = Duration::from_millis(2500);

/// Descriptors below this number only; what is open stays.
fn limit_descriptors(pid: Pid, below: u64) {
    // The kernel takes no limit beyond its own bound.
    let limit = Rlimit { current: Some(below), maximum: Some(1024) };
    prlimit(Some(pid), Resource::Nofile, limit).expect("a limit of a child");
}

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("a listener");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream
}

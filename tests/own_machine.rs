//! A daemon whose disks its own machine mounts: what `--io-flusher` and `--lock-memory` set, and
//! what is said where the right to it is missing.

#![forbid(unsafe_code)]

mod daemon;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use daemon::client::Client;
use daemon::outside::{leave_out, mortal};
use daemon::program::{Ended, Running};
use daemon::{Daemon, Folder, WEIR};
use rustix::process::{Pid, configure_io_flusher_behavior};

const MIB: u64 = 1 << 20;

/// The rights of a daemon.
#[derive(Clone, Copy)]
struct Rights {
    /// All rights of the test; otherwise none that takes a capability.
    all: bool,
    /// The hard limit on locked memory.
    locked: &'static str,
}

fn serve(folder: &Folder, rights: Rights, options: &[&str]) -> Command {
    let mut command = mortal("prlimit");
    command.arg(format!("--memlock={}", rights.locked)).arg("--");
    // An ordinary user has none to give up.
    if !rights.all && is_root() {
        command.args(["setpriv", "--inh-caps", "-all", "--bounding-set", "-all", "--"]);
    }
    command.args([WEIR, "serve", "--reactors", "2", "--disk", "sda=ram:64MiB"]);
    command.arg("--disk").arg(folder.file_disk("sdb", "8MiB", ""));
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display())).args(options);
    command.current_dir(folder.path());
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn write(folder: &Folder, disk: &str, mib: u64) {
    let mut client = Client::connect(&folder.socket(), disk);
    for place in 0..mib {
        let bytes = vec![1; MIB as usize];
        assert_eq!(client.write(0, place * MIB, &bytes).expect("an answer"), 0);
    }
    client.disconnect().expect("a parting");
}

/// The kernel's flags of a thread: field 9 of proc_pid_stat(5).
fn flags(stat: &str) -> u64 {
    let behind_name = stat.rsplit_once(')').expect("a name in brackets").1;
    behind_name.split_whitespace().nth(6).expect("a field").parse().expect("a number")
}

/// The flags of all threads of a process, io_uring's in the kernel included, by name and number.
fn threads(pid: Pid) -> BTreeMap<String, u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).expect("threads");
    let mut found = BTreeMap::new();
    for task in tasks {
        let stat = fs::read_to_string(task.expect("a thread").path().join("stat"));
        // One that has ended meanwhile has nothing to say.
        let Ok(stat) = stat else { continue };
        let name = stat.split_once(')').expect("a name in brackets").0.to_owned();
        found.insert(name, flags(&stat));
    }
    found
}

/// The flags that being an I/O flusher sets, tried on a thread of its own; `None` without the
/// right to it.
fn flusher_flags() -> Option<u64> {
    let read = || flags(&fs::read_to_string("/proc/thread-self/stat").expect("this thread"));
    let tried = std::thread::spawn(move || {
        configure_io_flusher_behavior(true).ok()?;
        let set = read();
        configure_io_flusher_behavior(false).ok()?;
        // The use of a capability is a flag too, and stays.
        Some(set & !read())
    });
    tried.join().expect("a thread")
}

#[test]
fn every_thread_of_an_io_flusher_is_one_and_none_is_without_the_option() {
    let Some(bits) = flusher_flags() else { return leave_out("needs CAP_SYS_RESOURCE") };
    assert_ne!(bits, 0, "the kernel shows nothing of it");
    for (options, expected) in [(&[][..], 0), (&["--io-flusher"], bits)] {
        let folder = Folder::new();
        let daemon = Daemon::spawn(serve(&folder, Rights { all: true, locked: "65536" }, options));
        ["sda", "sdb"].into_iter().for_each(|disk| write(&folder, disk, 4));
        let threads = threads(daemon.pid());
        assert!(threads.len() >= 4, "{threads:?}");
        for (name, flags) in threads {
            assert_eq!(flags & bits, expected, "{options:?}: {name}) has {flags:#x}");
        }
        daemon.stop();
    }
}

/// KiB in a line of /proc/<pid>/smaps_rollup, or of one part of smaps.
fn kib(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}

/// KiB that are in memory and stay there.
fn locked_kib(pid: Pid) -> u64 {
    let sums = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero()));
    kib(&sums.expect("a running daemon"), "Locked:")
}

/// Of the program's own code: KiB that there are, and KiB that are in memory.
fn code_kib(pid: Pid) -> (u64, u64) {
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", pid.as_raw_nonzero()));
    let smaps = smaps.expect("a running daemon");
    let code = |line: &str| line.contains(" r-xp ") && line.ends_with("/weir");
    let at = smaps.lines().position(code).expect("code");
    let part: String = smaps.lines().skip(at).take(8).map(|line| format!("{line}\n")).collect();
    (kib(&part, "Size:"), kib(&part, "Rss:"))
}

#[test]
fn a_daemon_that_locks_its_memory_has_its_code_there_and_keeps_what_it_takes_later() {
    let root = is_root().then_some(Rights { all: true, locked: "65536" });
    let limitless = Command::new("prlimit").args(["--memlock=unlimited", "true"]).output();
    let limitless = limitless.is_ok_and(|ended| ended.status.success());
    let limitless = limitless.then_some(Rights { all: false, locked: "unlimited" });
    if root.or(limitless).is_none() {
        return leave_out("the limit on locked memory may not be raised");
    }
    for rights in [root, limitless].into_iter().flatten() {
        let folder = Folder::new();
        let command = serve(&folder, rights, &["--lock-memory"]);
        let daemon = Daemon::spawn(command);
        let (size, resident) = code_kib(daemon.pid());
        assert_eq!(resident, size, "KiB of code in memory");
        let before = locked_kib(daemon.pid());
        write(&folder, "sda", 32);
        let after = locked_kib(daemon.pid());
        assert!(after >= before + 32 * 1024, "{after} KiB are locked, {before} before 32 MiB");
        daemon.stop();
    }
}

#[test]
fn a_daemon_locks_nothing_that_it_was_not_asked_to() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:64MiB"]);
    assert_eq!(locked_kib(daemon.pid()), 0);
    daemon.stop();
}

#[test]
fn a_missing_right_is_named_and_nothing_is_served() {
    for (option, named) in [
        ("--io-flusher", &["CAP_SYS_RESOURCE"][..]),
        ("--lock-memory", &["RLIMIT_MEMLOCK=65536", "infinity", "CAP_IPC_LOCK"]),
    ] {
        let folder = Folder::new();
        let command = serve(&folder, Rights { all: false, locked: "65536" }, &[option]);
        let Ended { code, stderr, .. } = Running::start(command).end();
        assert_eq!(code, Some(2), "{option}: {stderr}");
        for part in named.iter().chain([&option]) {
            assert!(stderr.contains(part), "{option}: {stderr}");
        }
        assert!(!folder.socket().exists(), "{option}: a socket was opened");
    }
}

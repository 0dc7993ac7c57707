//! A disk whose scheduler, number of requests and number of hard queues are changed a thousand
//! times through the control socket, while fio writes, reads and checks it in four jobs over NBD.

#![forbid(unsafe_code)]

mod daemon;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use daemon::program::{Running, program};
use daemon::{Daemon, Folder, PATIENCE, ways_of_files, weir};
use weir_control::ControlClient;

/// Changes of each disk.
const CHANGES: usize = 1000;

/// I/Os that end between two changes, while fio runs.
const BETWEEN: u64 = 32;

/// Between two looks at how many there were.
const LOOK_AGAIN: Duration = Duration::from_micros(500);

/// One fio: each of its jobs writes and reads its part of the disk, then checks all it wrote.
fn fio(folder: &Folder) -> Running {
    let mut fio = program("fio");
    fio.args(["--name=switch", "--ioengine=nbd", "--rw=randrw", "--bsrange=512-64k"]);
    fio.args(["--iodepth=16", "--numjobs=4", "--size=8m", "--offset_increment=16m"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--fsync=64"]);
    fio.arg(format!("--uri={}", folder.uri("sda")));
    Running::start(fio)
}

/// The contents of a file of the disk in the tree.
#[track_caller]
fn read(client: &mut ControlClient, file: &str) -> String {
    let text = client.read(&format!("block/sda/{file}"));
    text.unwrap_or_else(|error| panic!("{file}: {error}")).trim().to_owned()
}

#[track_caller]
fn write(client: &mut ControlClient, file: &str, value: &str) {
    let written = client.write(&format!("block/sda/{file}"), value.as_bytes());
    written.unwrap_or_else(|error| panic!("{value} to {file}: {error}"));
}

/// Reads, writes and flushes that have ended.
fn ended(client: &mut ControlClient) -> u64 {
    let stat = read(client, "stat");
    let fields: Vec<u64> = stat.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    fields[0] + fields[4] + fields[15]
}

/// Writes `values` to `file` in turn while fio runs, again and again as long as it takes.
#[track_caller]
fn change_under_fio(
    options: &str,
    file: &str,
    values: impl FnOnce(&mut ControlClient) -> Vec<String>,
) {
    // One after the other: side by side they would only take each other's processors.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Folder::new();
    let mut command = weir(&folder);
    command.args(["serve", "--reactors", "4", "--disk"]).arg(format!("sda=ram:64MiB{options}"));
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    let daemon = Daemon::spawn(command);
    let mut client =
        ControlClient::connect(&folder.near("weir-data/control.sock")).expect("a daemon");
    let values = values(&mut client);
    assert!(values.len() > 1, "{values:?} for {file}");
    let (began, mut changes, mut runs) = (Instant::now(), 0, 0);
    let mut latest = began;
    while changes < CHANGES {
        let mut load = fio(&folder);
        runs += 1;
        let mut last = ended(&mut client);
        while changes < CHANGES && load.is_running() {
            let now = ended(&mut client);
            if now >= last + BETWEEN {
                write(&mut client, file, &values[changes % values.len()]);
                (last, changes, latest) = (now, changes + 1, Instant::now());
            } else {
                // Asking takes what fio and the daemon need.
                std::thread::sleep(LOOK_AGAIN);
            }
            let stuck = latest.elapsed() >= PATIENCE;
            assert!(!stuck, "{changes} changes of {file}, the last {PATIENCE:?} ago");
        }
        load.succeed();
    }
    let (ios, took) = (ended(&mut client), began.elapsed());
    println!(
        "{options}: {changes} changes of {file} ({values:?}) beside {ios} I/Os of {runs} runs"
    );
    println!("it took {took:?}");
    drop(client);
    daemon.stop();
}

/// The names a disk takes, as its file lists them.
fn names(client: &mut ControlClient) -> Vec<String> {
    let listed = read(client, "queue/scheduler");
    listed.split_whitespace().map(|name| name.trim_matches(['[', ']']).to_owned()).collect()
}

fn numbers(values: &[u32]) -> Vec<String> {
    values.iter().map(u32::to_string).collect()
}

#[test]
#[ignore = "needs fio"]
fn a_thousand_switches_among_all_schedulers_lose_nothing() {
    for options in [",queue_mode=sq", ",queues=1", ",queues=2"] {
        change_under_fio(options, "queue/scheduler", names);
    }
}

#[test]
#[ignore = "needs fio"]
fn a_thousand_changes_of_nr_requests_lose_nothing() {
    let values = [4, 128, 31, 64, 5];
    for options in [",queue_mode=sq", ",queues=2,scheduler=mq-deadline", ",queues=2,scheduler=none"]
    {
        change_under_fio(options, "queue/nr_requests", |_| numbers(&values));
    }
}

#[test]
#[ignore = "needs fio"]
fn a_thousand_changes_of_the_number_of_hard_queues_lose_nothing() {
    let values = [1, 4, 2, 3];
    for options in [
        ",scheduler=none",
        ",scheduler=kyber",
        ",scheduler=mq-deadline,queues=1",
        ",spread=round-robin",
    ] {
        change_under_fio(options, "weir/queues", |_| numbers(&values));
    }
}

#[test]
#[ignore = "needs fio"]
fn a_file_keeps_its_contents_while_its_hard_queues_come_and_go() {
    for io in ways_of_files() {
        let folder = Folder::new();
        let daemon = Daemon::start(
            &folder,
            &[&folder.file_disk("sda", "64MiB", &format!(",io={io},queues=2"))],
        );
        let mut client =
            ControlClient::connect(&folder.near("weir-data/control.sock")).expect("a daemon");
        let (mut load, mut changes) = (fio(&folder), 0);
        while load.is_running() {
            let count = if changes % 2 == 0 { "1" } else { "2" };
            let before = ended(&mut client);
            write(&mut client, "weir/queues", count);
            assert_eq!(read(&mut client, "weir/queues"), count);
            changes += 1;
            while load.is_running() && ended(&mut client) < before + BETWEEN {}
        }
        load.succeed();
        println!("io={io}: {changes} changes");
        assert!(changes > 1, "fio ended before anything changed");
        daemon.stop();
    }
}

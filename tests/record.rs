//! `weir record`: a live disk under load, recorded and replayed; what it refuses; and how a
//! recording ends.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use daemon::client::Client;
use daemon::outside::leave_out;
use daemon::program::{Ended, Running, program};
use daemon::words::{attempt, expect_refused, told};
use daemon::{Daemon, Folder, PATIENCE, weir};
use rustix::process::Signal;

/// Between two looks whether a file is there.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// `weir record sda` into a file, which has begun.
struct Recording {
    command: Running,
    file: PathBuf,
}

impl Recording {
    #[track_caller]
    fn begin(folder: &Folder, name: &str, words: &[&str]) -> Recording {
        let mut command = weir(folder);
        command.args(["record", "sda", "-o", name]).args(words);
        Recording::of(command, folder.near(name))
    }

    #[track_caller]
    fn of(command: std::process::Command, file: PathBuf) -> Recording {
        let mut command = Running::start(command);
        let began = Instant::now();
        while !file.exists() {
            let running = command.is_running() && began.elapsed() < PATIENCE;
            if !running {
                panic!("no recording: {:?}", command.end());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Recording { command, file }
    }

    #[track_caller]
    fn interrupt(self) -> Ended {
        self.command.signal(Signal::INT);
        self.command.end()
    }
}

/// Decisions of a recording that a replay makes as they were: all of them.
#[track_caller]
fn check(folder: &Folder, file: &Path) -> u64 {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).expect("a recording");
    assert!(text.ends_with('\n'), "a line that is cut: {:?}", text.lines().next_back());
    let followed = told(folder, &["replay", "--follow", &name]);
    assert_eq!(followed.lines().count(), 1, "{followed}");
    let words: Vec<&str> = followed.split_whitespace().collect();
    let ["replay:", matched, "of", all, "dispatches", "match", "(100.00", "%)"] = words[..] else {
        panic!("{followed}")
    };
    assert_eq!(matched, all);
    // The log of its decisions, byte for byte.
    let fields = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let picked = fields.filter(|fields| fields.get(1) == Some(&"D"));
    let live = picked.map(|fields| [fields[0], fields[2], fields[3], fields[4]].join(" ") + "\n");
    let live = live.collect::<String>() + &format!("replay: {all} dispatches\n");
    assert!(told(folder, &["replay", &name]) == live, "{name}: another order");
    all.parse().expect("a number")
}

/// How often this stands in a recording.
fn count(file: &Path, kind: &str) -> usize {
    let text = fs::read_to_string(file).expect("a recording");
    text.lines().filter(|line| line.split(' ').nth(1) == Some(kind)).count()
}

/// fio with these words against the disk, to its end.
#[track_caller]
fn fio(folder: &Folder, words: &[&str]) {
    let mut fio = program("fio");
    fio.args(["--name=record", "--ioengine=nbd", "--rw=randrw", "--size=8m"]).args(words);
    fio.args(["--randseed=7", "--bsrange=512-32k", "--offset_increment=8m"]);
    fio.arg(format!("--uri={}", folder.uri("sda")));
    Running::start(fio).succeed();
}

/// Records what fio does to a disk with these options.
#[track_caller]
fn record_fio(options: &str, words: &[&str]) -> (Folder, PathBuf, u64) {
    let folder = Folder::new();
    // A disk that takes its time, so that there is something to choose from.
    let disk = format!("sda=model:nvme-980pro,size=64MiB,{options}");
    let daemon = Daemon::start(&folder, &[&disk]);
    // What the scheduler learns before does not count.
    fio(&folder, &["--io_size=256k"]);
    let recording = Recording::begin(&folder, "out", &[]);
    fio(&folder, words);
    let file = recording.file.clone();
    let ended = recording.interrupt();
    assert_eq!(ended.code, Some(0), "{options}: {ended:?}");
    let text = fs::read_to_string(&file).expect("a recording");
    assert!(text.ends_with("\n# recorded until it was stopped\n"), "{options}");
    let dispatches = check(&folder, &file);
    let all = format!("{dispatches} dispatches in ");
    assert!(ended.stdout.contains(&all), "{options}: {}", ended.stdout);
    assert!(dispatches > 20, "{options}: {dispatches} dispatches");
    daemon.stop();
    (folder, file, dispatches)
}

#[test]
#[ignore = "needs fio"]
fn what_each_scheduler_did_under_fio_comes_out_of_the_replay() {
    for (options, depth) in [
        ("scheduler=mq-deadline,queues=1", "1"),
        ("scheduler=mq-deadline,queues=1,fifo_batch=4", "32"),
        ("scheduler=mq-deadline,queues=2,nr_requests=8", "32"),
        ("scheduler=bfq,queues=1", "16"),
        ("scheduler=bfq,queues=2,slice_idle_us=700", "16"),
        ("scheduler=kyber,queues=1", "32"),
        ("scheduler=kyber,queues=2,read_lat_nsec=100000", "32"),
        ("scheduler=noop,queue_mode=sq", "32"),
        ("scheduler=deadline,queue_mode=sq", "1"),
        ("scheduler=deadline,queue_mode=sq", "32"),
        ("scheduler=cfq,queue_mode=sq", "16"),
    ] {
        let depth = format!("--iodepth={depth}");
        record_fio(options, &["--numjobs=3", &depth, "--io_size=2m"]);
    }
}

#[test]
#[ignore = "needs fio"]
fn merges_flushes_and_discards_are_told_as_the_scheduler_sees_them() {
    let words = ["--numjobs=2", "--iodepth=32", "--io_size=2m", "--rw=rw", "--fsync=16"];
    let (_folder, file, dispatches) = record_fio("scheduler=mq-deadline,queues=1", &words);
    assert!(count(&file, "M") > 0, "no merge");
    assert!(count(&file, "I") as u64 >= dispatches);
    let text = fs::read_to_string(&file).expect("a recording");
    // A flush passes every scheduler by.
    assert!(!text.lines().any(|line| line.split(' ').nth(2) == Some("F")), "a flush");
    let words = ["--numjobs=2", "--iodepth=16", "--io_size=1m", "--rw=randtrim"];
    let (_folder, file, _) = record_fio("scheduler=bfq,queues=1", &words);
    let text = fs::read_to_string(&file).expect("a recording");
    assert!(text.lines().any(|line| line.split(' ').nth(2) == Some("D")), "no discard");
}

#[test]
fn what_cannot_be_recorded_is_refused_and_no_file_is_touched() {
    let folder = Folder::new();
    let nowhere = ["record", "sda", "-o", "out"];
    expect_refused(&folder, &nowhere, &["no daemon at control socket"]);
    let disks = ["sda=ram:16MiB,scheduler=mq-deadline", "sdb=ram:16MiB,scheduler=none"];
    let daemon = Daemon::start(&folder, &disks);
    let unknown = ["record", "sdc", "-o", "out"];
    expect_refused(&folder, &unknown, &["no disk \"sdc\"; there are sda, sdb"]);
    let none = ["record", "sdb", "-o", "out"];
    expect_refused(&folder, &none, &["disk sdb: scheduler none decides nothing"]);
    for seconds in ["0", "86401", "-1", "x"] {
        let words = ["record", "sda", "-o", "out", "--seconds", seconds];
        expect_refused(&folder, &words, &[seconds, "0.1..=86400"]);
    }
    assert!(!folder.near("out").exists());
    let notes = folder.near("notes");
    fs::write(&notes, "not to be lost\n").expect("a file");
    let words = ["record", "sda", "-o", "notes", "--seconds", "0.1"];
    expect_refused(&folder, &words, &["notes: it is there and is no recording; --force"]);
    assert_eq!(fs::read_to_string(&notes).expect("the file"), "not to be lost\n");
    fs::create_dir(folder.near("folder")).expect("a folder");
    expect_refused(&folder, &["record", "sda", "-o", "folder"], &["folder: "]);
    told(&folder, &[&words[..], &["--force"]].concat());
    check(&folder, &notes);
    // A recording is in no other's way, and neither is an empty file.
    told(&folder, &words);
    fs::write(&notes, "").expect("a file");
    told(&folder, &words);
    check(&folder, &notes);
    daemon.stop();
}

#[test]
fn a_disk_has_one_recording_at_a_time() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:16MiB,scheduler=mq-deadline"]);
    let first = Recording::begin(&folder, "first", &[]);
    let second = ["record", "sda", "-o", "second"];
    expect_refused(&folder, &second, &["disk sda is being recorded already"]);
    let file = first.file.clone();
    assert_eq!(first.interrupt().code, Some(0));
    check(&folder, &file);
    // One whose command is killed ends as well.
    let killed = Recording::begin(&folder, "killed", &[]);
    killed.command.signal(Signal::KILL);
    killed.command.end();
    let began = Instant::now();
    let words = ["record", "sda", "-o", "second", "--seconds", "0.1"];
    loop {
        let ended = attempt(&folder, &words);
        if ended.code == Some(0) {
            break;
        }
        assert!(ended.stderr.contains("recorded already"), "{ended:?}");
        assert!(began.elapsed() < PATIENCE, "a killed recording goes on");
    }
    daemon.stop();
}

#[test]
fn a_file_that_a_recording_is_written_to_is_no_other_s() {
    let folder = Folder::new();
    let disks = ["sda", "sdb"].map(|name| format!("{name}=ram:16MiB,scheduler=mq-deadline"));
    let daemon = Daemon::start(&folder, &disks.each_ref().map(String::as_str));
    let first = Recording::begin(&folder, "out", &[]);
    for words in [&["record", "sdb", "-o", "out"][..], &["record", "sdb", "-o", "out", "--force"]] {
        expect_refused(&folder, words, &["out: another command writes to it"]);
    }
    // Found out before the daemon is asked, which would say that the disk is being recorded.
    expect_refused(&folder, &["record", "sda", "-o", "no/out"], &["no/out: No such file"]);
    let file = first.file.clone();
    assert_eq!(first.interrupt().code, Some(0));
    check(&folder, &file);
    daemon.stop();
}

#[test]
#[ignore = "needs losetup"]
fn a_block_device_is_no_place_for_a_recording() {
    if !rustix::process::geteuid().is_root() {
        return leave_out("loop devices need root");
    }
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:16MiB,scheduler=mq-deadline"]);
    let image = folder.near("image");
    fs::write(&image, vec![7; 1 << 20]).expect("an image");
    let made = program("losetup").args(["--find", "--show"]).arg(&image).output();
    let made = made.expect("losetup starts");
    let device = String::from_utf8(made.stdout).expect("a name").trim().to_owned();
    let refused = ["-o", &device, "--seconds", "0.1", "--force"];
    let ended = attempt(&folder, &[&["record", "sda"][..], &refused].concat());
    let detached = program("losetup").args(["--detach", &device]).status();
    assert!(detached.is_ok_and(|status| status.success()), "{device}");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("a block device is no place"), "{ended:?}");
    assert!(fs::read(&image).expect("the image").iter().all(|byte| *byte == 7));
    daemon.stop();
}

#[test]
fn a_command_that_cannot_write_keeps_no_disk_and_ends_with_a_second_signal() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:16MiB,scheduler=mq-deadline"]);
    let made = program("mkfifo").arg(folder.near("pipe")).status();
    assert!(made.is_ok_and(|status| status.success()), "no pipe");
    // Opened for both, so that no reader has to come first, and never read.
    let pipe = fs::OpenOptions::new().read(true).write(true).open(folder.near("pipe"));
    let pipe = pipe.expect("the pipe");
    let mut command = weir(&folder);
    command.args(["record", "sda", "-o", "pipe"]);
    let mut stuck = Running::start(command);
    let mut client = Client::connect(&folder.socket(), "sda");
    let began = Instant::now();
    while rustix::io::ioctl_fionread(&pipe).expect("its bytes") == 0 {
        assert_eq!(client.write(0, 0, &[7; 512]).expect("a reply"), 0);
        assert!(stuck.is_running() && began.elapsed() < PATIENCE, "it writes nothing");
    }
    // What it cannot take is lost in the end, which ends its recording: the disk is free again.
    let next = ["record", "sda", "-o", "next", "--seconds", "0.1"];
    let is_free = (0..400).any(|_| {
        for _ in 0..500 {
            assert_eq!(client.write(0, 0, &[7; 512]).expect("a reply"), 0);
        }
        let ended = attempt(&folder, &next);
        let is_free = ended.code == Some(0);
        assert!(is_free || ended.stderr.contains("recorded already"), "{ended:?}");
        is_free
    });
    assert!(is_free, "a command that cannot write keeps the disk's recording");
    check(&folder, &folder.near("next"));
    assert!(stuck.is_running(), "the pipe is full by far");
    // Two, so that none can be taken for the other.
    stuck.signal(Signal::INT);
    stuck.signal(Signal::TERM);
    assert_eq!(stuck.end().code, None, "ended by a signal");
    drop(pipe);
    daemon.stop();
}

/// A recording of some writes, at whose end `change` is made.
#[track_caller]
fn ended_by(change: impl FnOnce(&Folder, &mut Option<Daemon>)) -> (Ended, String, u64) {
    let folder = Folder::new();
    let mut daemon =
        Some(Daemon::start(&folder, &["sda=ram:16MiB,scheduler=mq-deadline,queues=1"]));
    let recording = Recording::begin(&folder, "out", &[]);
    let mut client = Client::connect(&folder.socket(), "sda");
    for block in 0..20 {
        assert_eq!(client.write(0, block * 8192, &[7; 4096]).expect("a reply"), 0);
    }
    change(&folder, &mut daemon);
    let ended = recording.command.end();
    let text = fs::read_to_string(&recording.file).expect("a recording");
    let dispatches = check(&folder, &recording.file);
    drop(client);
    if let Some(daemon) = daemon {
        daemon.stop();
    }
    (ended, text, dispatches)
}

#[test]
fn a_recording_ends_in_front_of_what_it_cannot_state_and_says_so() {
    for (path, value, part) in [
        ("block/sda/queue/scheduler", "bfq", "the scheduler was replaced"),
        ("block/sda/queue/iosched/fifo_batch", "3", "a tunable of the scheduler was set"),
        ("block/sda/queue/nr_requests", "32", "nr_requests changed"),
        ("block/sda/queue/nomerges", "2", "a limit of the disk or its nomerges changed"),
    ] {
        let (ended, text, dispatches) =
            ended_by(|folder, _| _ = told(folder, &["set", path, value]));
        assert_eq!(ended.code, Some(1), "{path}: {ended:?}");
        assert!(ended.stderr.contains("out: the recording ends early, after "), "{ended:?}");
        assert!(ended.stderr.contains(part), "{path}: {ended:?}");
        let last = text.lines().next_back().expect("a line");
        assert!(last.starts_with("# recorded until ") && last.contains(part), "{path}: {last}");
        assert_eq!(dispatches, 20, "{path}");
    }
}

#[test]
fn a_daemon_that_stops_leaves_a_whole_file() {
    let (ended, text, _) = ended_by(|_, daemon| _ = daemon.take().expect("it runs").stop());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("the daemon"), "{ended:?}");
    assert!(text.contains("\n# recorded until the daemon went away\n"), "{text}");
    let (ended, _, _) = ended_by(|_, daemon| daemon.take().expect("it runs").kill());
    assert_eq!(ended.code, Some(1), "{ended:?}");
}

#[test]
fn a_file_that_takes_no_more_keeps_its_whole_lines() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:16MiB,scheduler=mq-deadline,queues=1"]);
    let mut command = daemon::outside::mortal("sh");
    command.current_dir(folder.path());
    // In units of 512 bytes.
    let script = format!("ulimit -f 4 && exec {} record sda -o out", daemon::WEIR);
    command.args(["-c", &script]);
    let mut recording = Recording::of(command, folder.near("out"));
    let mut client = Client::connect(&folder.socket(), "sda");
    let began = Instant::now();
    while recording.command.is_running() {
        assert_eq!(client.write(0, 0, &[7; 4096]).expect("a reply"), 0);
        assert!(began.elapsed() < PATIENCE, "it goes on");
    }
    let ended = recording.command.end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("out: File too large"), "{ended:?}");
    assert!(fs::metadata(&recording.file).expect("the file").len() <= 4096);
    check(&folder, &recording.file);
    // The disk goes on without it.
    told(&folder, &["record", "sda", "-o", "next", "--seconds", "0.1"]);
    daemon.stop();
}

//! fio with checksums in every block: four jobs at once, on every path, and once more after the
//! daemon was started anew.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;

use daemon::program::{Running, program};
use daemon::{Daemon, Folder};
use serde_json::Value;

const JOBS: u64 = 4;

/// Writes and reads at random, then reads everything that was written and checks it.
#[track_caller]
fn fio(folder: &Folder, further: &[&str]) -> Value {
    let figures = folder.near("figures.json");
    let mut fio = program("fio");
    fio.args(["--name=verify", "--ioengine=nbd", "--rw=randrw", "--bsrange=512-64k"]);
    fio.args(["--iodepth=16", "--numjobs=4", "--size=12m", "--offset_increment=16m"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--fsync=64"]);
    fio.args(["--group_reporting", "--output-format=json", "--randrepeat=1"]);
    fio.arg(format!("--output={}", figures.display()));
    fio.arg(format!("--uri={}", folder.uri("sda"))).args(further);
    Running::start(fio).succeed();
    let said = fs::read_to_string(figures).expect("figures");
    let told: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e} in {said}"));
    let job = told["jobs"][0].clone();
    assert_eq!(job["error"], 0, "{said}");
    job
}

#[track_caller]
fn verify(disk: impl Fn(&Folder) -> String, lasting: bool) {
    let folder = Folder::new();
    let disk = disk(&folder);
    let daemon = Daemon::start(&folder, &[&disk]);
    let job = fio(&folder, &[]);
    let figure = |direction: &str, name: &str| job[direction][name].as_u64().expect("a figure");
    let (read, written) = (figure("read", "io_bytes"), figure("write", "io_bytes"));
    // Half of 12 MiB of each job is written, and all of that is read back to be checked.
    assert!(written > JOBS * (4 << 20), "{written} bytes were written to {disk}");
    assert!(read > written, "{read} bytes were read from {disk}, {written} written");
    let said = daemon.stop();
    let served = said.lines().filter(|line| line.contains("client connected")).count() as u64;
    assert!(served >= JOBS, "{served} connections for {JOBS} jobs");
    if lasting {
        let daemon = Daemon::start(&folder, &[&disk]);
        fio(&folder, &["--verify_only"]);
        daemon.stop();
    }
}

#[test]
#[ignore = "needs fio"]
fn four_jobs_read_what_they_wrote_to_a_file_even_after_a_restart() {
    for options in ["", ",queue_mode=sq", ",spread=round-robin,queues=2", ",io=threads"] {
        println!("options {options:?}");
        verify(|folder| folder.file_disk("sda", "64MiB", options), true);
    }
}

#[test]
#[ignore = "needs fio"]
fn four_jobs_read_what_they_wrote_to_memory() {
    for options in ["", ",queue_mode=sq", ",spread=round-robin,queues=2", ",nr_requests=4"] {
        println!("options {options:?}");
        verify(|_| format!("sda=ram:64MiB{options}"), false);
    }
}

#[test]
#[ignore = "needs fio"]
fn a_block_that_changed_behind_fio_is_found() {
    // The check itself: without this a silent fio would pass for a good disk.
    let folder = Folder::new();
    let disk = folder.file_disk("sda", "64MiB", "");
    let daemon = Daemon::start(&folder, &[&disk]);
    fio(&folder, &[]);
    daemon.stop();
    let image = fs::OpenOptions::new().write(true).open(folder.image("sda")).expect("it");
    let spoilt = vec![0x5a; 4 << 20];
    std::os::unix::fs::FileExt::write_all_at(&image, &spoilt, 0).expect("room");
    drop(image);
    let daemon = Daemon::start(&folder, &[&disk]);
    let found = std::panic::catch_unwind(|| fio(&folder, &["--verify_only"]));
    assert!(found.is_err(), "fio did not see 4 MiB of another content");
    daemon.stop();
}

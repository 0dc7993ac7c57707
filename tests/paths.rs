//! A multipath disk over iSCSI while its paths come and go: under load that finds lost and stale
//! blocks, a portal goes, a target falls silent, all paths go, and targets are killed.

#![forbid(unsafe_code)]

mod daemon;
mod fabric;

use std::fs;
use std::time::{Duration, Instant};

use daemon::PATIENCE;
use daemon::client::FLUSH;
use daemon::program::Noise;
use fabric::{FENCED, Fabric, MIB, NOTICED, under_load};

/// The error number of an I/O error.
const EIO: u32 = 5;

/// What an operation may take beyond the times of the configuration, on a machine that is busy.
const GRACE: Duration = Duration::from_secs(10);

/// An operation meets one failure: it is noticed, and a write waits until it can no longer land.
const ONE_FAILURE: Duration = NOTICED.saturating_add(FENCED).saturating_add(GRACE);

/// The disk whose first path fails and comes back: what `fail` and `repair` do to path a.
#[track_caller]
fn loses_path_a(fail: impl FnOnce(&Fabric), repair: impl FnOnce(&Fabric)) {
    let Some(fabric) = Fabric::start(2, 1) else { return };
    let daemon = fabric.serve(&fabric.disks("sda", 1, ",failback=immediate"));
    let (_, left) = under_load(&fabric, ONE_FAILURE, |progress| {
        let before = fabric.listed("sda", 0);
        assert_eq!((&*before.state, before.fails), ("active", 0), "{before:?}");
        assert!(before.ios > 0 && fabric.listed("sda", 1).ios == 0, "b is for need");
        fail(&fabric);
        daemon.wait_for(|line| line.contains("path sdaa failed: "));
        let status = fabric.status("sda");
        assert!(status.contains(" sdaa F 1 ") && status.contains(" sdab A 0 "), "{status}");
        // The way over b does not wait for what is under way on a.
        let (mut client, used) = (fabric.client("sda"), fabric.listed("sda", 1).ios);
        assert_eq!(client.write(0, 60 * MIB, &[7; 4096]).expect("an answer"), 0);
        assert_eq!(client.read(60 * MIB, 4096).expect("an answer"), Ok(vec![7; 4096]));
        let (a, b) = (fabric.listed("sda", 0), fabric.listed("sda", 1));
        assert_eq!((&*a.state, a.fails), ("failed", 1), "{a:?}");
        assert!(b.state == "active" && b.ios >= used + 2, "{b:?}");
        repair(&fabric);
        daemon.wait_for(|line| line.contains("path sdaa is back: "));
        daemon.wait_for(|line| line.contains("failback to priority group 1"));
        let used = fabric.listed("sda", 0).ios;
        progress.wait_for(50, PATIENCE);
        let (a, b) = (fabric.listed("sda", 0), fabric.listed("sda", 1));
        assert!(a.state == "active" && a.ios >= used + 50, "{a:?} of {used}");
        assert!(a.errors > 0, "what was under way ended with an error of the path: {a:?}");
        assert_eq!((b.errors, b.fails), (0, 0), "{b:?}");
    });
    fabric.check_figures("sda", &left.felt);
    left.verify(&mut fabric.client("sda"));
    left.verify_below(&fabric, daemon);
}

#[test]
#[ignore = "needs tgtd, fio"]
fn a_portal_that_goes_and_comes_back_costs_no_error() {
    loses_path_a(|fabric| fabric.take_portal(0), |fabric| fabric.give_portal(0));
}

#[test]
#[ignore = "needs tgtd, fio"]
fn a_target_that_falls_silent_costs_no_error_and_no_time_on_the_other_path() {
    loses_path_a(|fabric| fabric.paths[0].stop(true), |fabric| fabric.paths[0].stop(false));
}

/// How long all paths are away.
const AWAY: Duration = Duration::from_secs(10);

#[test]
#[ignore = "needs tgtd, fio"]
fn without_any_path_io_waits_or_fails_as_the_disk_says() {
    let Some(fabric) = Fabric::start(2, 3) else { return };
    let mut disks = fabric.disks("sda", 1, ",no_path_retry=queue");
    disks.extend(fabric.disks("t", 2, ",no_path_retry=queue,queue_if_no_path_timeout_secs=5"));
    disks.extend(fabric.disks("f", 3, ",no_path_retry=fail"));
    let daemon = fabric.serve(&disks);
    let (mut patient, mut strict) = (fabric.client("t"), fabric.client("f"));
    let (began, left) = under_load(&fabric, AWAY + ONE_FAILURE, |_| {
        let began = Instant::now();
        [0, 1].iter().for_each(|path| fabric.take_portal(*path));
        // It has a path still, and waits for its session for the replacement_timeout of 1 s.
        assert_eq!(strict.read(0, 4096).expect("an answer"), Err(EIO));
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
        let said = daemon.wait_for(|line| line.contains("disk f: no path is left"));
        assert!(said.ends_with("no path is left: I/O fails"), "{said}");
        // From now on there is nothing to wait for.
        let asked = Instant::now();
        assert_eq!(strict.read(0, 4096).expect("an answer"), Err(EIO));
        assert_eq!(strict.write(0, 0, &[1; 4096]).expect("an answer"), EIO);
        assert!(asked.elapsed() < FENCED / 2, "{:?}", asked.elapsed());
        // Each of the two fails at the earliest after 1 s, and what waits 5 s later.
        assert_eq!(patient.read(0, 4096).expect("an answer"), Err(EIO));
        let took = began.elapsed();
        let bound = Duration::from_secs(1 + 5);
        assert!((bound..bound + GRACE).contains(&took), "an error after {took:?}");
        let reason = "disk t: no path has come back in the time of queue_if_no_path_timeout_secs";
        daemon.wait_for(|line| line.contains(reason));
        std::thread::sleep(AWAY.saturating_sub(began.elapsed()));
        [0, 1].iter().for_each(|path| fabric.give_portal(*path));
        for disk in ["sda", "t", "f"] {
            daemon.wait_for(|line| line.contains(&format!("disk {disk}: path {disk}a is back")));
        }
        for client in [&mut patient, &mut strict] {
            assert_eq!(client.write(0, 0, &[2; 4096]).expect("an answer"), 0);
            assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![2; 4096]));
        }
        began
    });
    println!("the paths were away for {AWAY:?} from {began:?} on");
    assert!(left.felt.longest >= AWAY * 9 / 10, "the outage was not felt: {:?}", left.felt);
    fabric.check_figures("sda", &left.felt);
    left.verify(&mut fabric.client("sda"));
    drop((patient, strict));
    left.verify_below(&fabric, daemon);
}

#[test]
#[ignore = "needs tgtd"]
fn a_flush_of_a_stripe_goes_down_one_path_of_each_leg_and_outlives_the_targets() {
    let Some(mut fabric) = Fabric::start(2, 2) else { return };
    let mut disks = vec![String::from("sda=striped:64KiB:m+n")];
    disks.extend(fabric.disks("m", 1, ",no_path_retry=queue"));
    let both = ",no_path_retry=queue,path_grouping_policy=multibus";
    disks.extend(fabric.disks("n", 2, both));
    let daemon = fabric.serve(&disks);
    let mut client = fabric.client("sda");
    let mut bytes = vec![0; MIB as usize];
    Noise::new(6).fill(&mut bytes);
    for at in 0..4 {
        assert_eq!(client.write(0, at * MIB, &bytes).expect("an answer"), 0);
    }
    let flushes = || ["ma", "mb", "na", "nb"].map(|path| fabric.ended(path).flushes);
    let before = flushes();
    for _ in 0..8 {
        assert_eq!(client.one(0, FLUSH, 0, 0).expect("an answer"), 0);
        assert_eq!(client.write(0, 4 * MIB, &bytes[..4096]).expect("an answer"), 0);
    }
    assert_eq!(client.one(0, FLUSH, 0, 0).expect("an answer"), 0);
    let [ma, mb, na, nb] = flushes();
    let [ma, mb, na, nb] = [ma - before[0], mb - before[1], na - before[2], nb - before[3]];
    assert_eq!((ma, mb), (9, 0), "one path of m is in use");
    assert_eq!(na + nb, 9, "both paths of n are in use: {na} and {nb}");
    assert!(na > 0 && nb > 0, "{na} and {nb}");
    // The targets are killed with nothing else flushed or closed.
    fabric.paths.iter_mut().for_each(|path| path.kill());
    let legs = [1, 2].map(|unit| fs::read(fabric.image(unit)).expect("an image"));
    for at in 0..4 * MIB as usize / (64 << 10) {
        let leg = &legs[at % 2][at / 2 * (64 << 10)..][..64 << 10];
        assert!(leg == &bytes[at % 16 * (64 << 10)..][..64 << 10], "chunk {at}");
    }
    fabric.restart_all();
    assert_eq!(client.one(0, FLUSH, 0, 0).expect("an answer"), 0);
    for at in 0..4 {
        let read = client.read(at * MIB, MIB as u32).expect("an answer");
        assert!(read.expect("no error") == bytes, "MiB {at}");
    }
    drop(client);
    daemon.stop();
}

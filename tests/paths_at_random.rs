//! Paths that fail and are repaired at random under load that finds lost and stale blocks.
//!
//! `WEIR_PATHS=200` is the run of `cargo xtask ci long`, of so many failures under each grouping of
//! the paths; the tests have fewer. `WEIR_PATHS_SEED` is the seed of a run to be made again.

#![forbid(unsafe_code)]

mod daemon;
mod fabric;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daemon::Daemon;
use daemon::program::Noise;
use fabric::{FENCED, Fabric, NOTICED, leg, under_load};

const PATHS: usize = 4;

/// Failures in the tests.
const SHORT: u64 = 30;

/// Words of the log about the session of a path.
const LOST: &str = "lost with";
const BACK: &str = "session 0: is back";

/// What an operation may take: the path it is on fails, which is noticed, and if it is a write it
/// waits until it can no longer land. On the next path it may meet the next failure.
const LIMIT: Duration = NOTICED.saturating_add(FENCED).saturating_mul(2);

/// How a path fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A message says so, and another one that it is back.
    Message,
    /// Its connections end; the portal takes new ones.
    Connections,
    /// Its portal goes, with its connections.
    Portal,
    /// Its target says nothing for a moment, or until the session is given up.
    Silence,
}

/// Of ten failures, so many of each kind.
const KINDS: [Kind; 10] = [
    Kind::Message,
    Kind::Message,
    Kind::Message,
    Kind::Message,
    Kind::Message,
    Kind::Connections,
    Kind::Connections,
    Kind::Portal,
    Kind::Silence,
    Kind::Silence,
];

struct Run<'a> {
    fabric: &'a Fabric,
    daemon: &'a Daemon,
    noise: Noise,
    /// Paths without a portal.
    shut: [bool; PATHS],
}

impl Run<'_> {
    /// Lines of the log about the session of a path.
    fn lines(&self, path: usize, words: &str) -> usize {
        let disk = format!("disk {}: ", leg("sda", path));
        let said = self.daemon.said();
        said.lines().filter(|line| line.contains(&disk) && line.contains(words)).count()
    }

    /// Paths that carry I/O: their session stands, and the disk takes them for valid.
    fn healthy(&self) -> Vec<usize> {
        let status = self.fabric.status("sda");
        let is_healthy = |path: &usize| {
            let stands = self.lines(*path, LOST) == self.lines(*path, BACK);
            stands && status.contains(&format!(" {} A ", leg("sda", *path)))
        };
        (0..PATHS).filter(is_healthy).collect()
    }

    fn fail(&mut self, path: usize, kind: Kind) {
        let (disk, tgtd) = (format!("disk {}: ", leg("sda", path)), &self.fabric.paths[path]);
        let lost = self.lines(path, LOST) + 1;
        let is_lost = |line: &str| line.contains(&disk) && line.contains(LOST);
        match kind {
            Kind::Message => self.fabric.message("sda", &["fail_path", &leg("sda", path)]),
            Kind::Connections => {
                assert!(tgtd.drop_connections(1) > 0, "path {path} has a session");
                self.daemon.wait_for_many(lost, is_lost);
            }
            Kind::Portal => {
                self.shut[path] = true;
                self.fabric.take_portal(path);
                self.daemon.wait_for_many(lost, is_lost);
            }
            Kind::Silence => {
                tgtd.stop(true);
                match self.noise.below(2) {
                    0 => _ = self.fabric.status("sda"),
                    _ => self.daemon.wait_for_many(lost, is_lost),
                }
                tgtd.stop(false);
            }
        }
    }

    /// Gives a path what it lacks.
    fn repair(&mut self, path: usize) {
        if std::mem::take(&mut self.shut[path]) {
            self.fabric.give_portal(path);
        }
        self.fabric.message("sda", &["reinstate_path", &leg("sda", path)]);
    }

    /// Waits until all paths carry I/O.
    fn recover(&mut self) {
        (0..PATHS).for_each(|path| self.repair(path));
        for path in 0..PATHS {
            let disk = format!("disk {}: ", leg("sda", path));
            let is_back = |line: &str| line.contains(&disk) && line.contains(BACK);
            self.daemon.wait_for_many(self.lines(path, LOST), is_back);
            // What was lost with the session may have failed the path once more.
            self.repair(path);
        }
    }
}

/// So many failures under load.
#[track_caller]
fn fail_at_random(failures: u64, grouping: &str, seed: u64) {
    println!("{failures} failures, {grouping}: WEIR_PATHS_SEED={seed}");
    let Some(fabric) = Fabric::start(PATHS, 1) else { return };
    let options = format!(",no_path_retry=queue,path_grouping_policy={grouping}");
    let daemon = fabric.serve(&fabric.disks("sda", 1, &options));
    let (counts, left) = under_load(&fabric, LIMIT, |progress| {
        let (noise, shut) = (Noise::new(seed), [false; PATHS]);
        let mut run = Run { fabric: &fabric, daemon: &daemon, noise, shut };
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for _ in 0..failures {
            let mut healthy = run.healthy();
            while healthy.len() < 2 {
                run.recover();
                healthy = run.healthy();
            }
            let path = healthy[run.noise.below(healthy.len() as u64) as usize];
            let kind = KINDS[run.noise.below(KINDS.len() as u64) as usize];
            run.fail(path, kind);
            *counts.entry(format!("{kind:?}")).or_default() += 1;
            progress.wait_for(1, LIMIT);
            if run.noise.below(2) == 0 {
                let repaired = run.noise.below(PATHS as u64);
                run.repair(repaired as usize);
            }
        }
        run.recover();
        counts
    });
    println!("{counts:?}");
    fabric.check_figures("sda", &left.felt);
    let said = daemon.said();
    for path in 0..PATHS {
        let failed = format!("disk sda: path {} failed: ", leg("sda", path));
        let listed = fabric.listed("sda", path);
        assert_eq!(listed.fails, said.lines().filter(|l| l.contains(&failed)).count() as u64);
        assert!(listed.ios > 0, "{path}: {listed:?}");
    }
    left.verify(&mut fabric.client("sda"));
    left.verify_below(&fabric, daemon);
}

fn seed() -> u64 {
    let named = std::env::var("WEIR_PATHS_SEED").ok();
    let time = || SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    named.map_or_else(time, |seed| seed.parse().expect("a seed"))
}

#[test]
#[ignore = "needs tgtd, fio"]
fn failures_and_repairs_at_random_lose_no_block_and_stall_none() {
    match std::env::var("WEIR_PATHS") {
        Err(_) => fail_at_random(SHORT, "multibus", seed()),
        Ok(failures) => {
            for grouping in ["multibus", "failover"] {
                fail_at_random(failures.parse().expect("a number"), grouping, seed());
            }
        }
    }
}

//! What the failure of a path costs those who do not use it: reads of a multipath disk while a path
//! of another one falls silent under load, is given up and comes back.

#![forbid(unsafe_code)]

mod daemon;
mod fabric;

use std::time::Instant;

use daemon::PATIENCE;
use daemon::blocks::{EndsLoad, Job, Progress};
use daemon::client::Client;
use daemon::program::Noise;
use fabric::{ABOVE, Fabric, UNIT};

/// Reads of a window without a failure.
const READS: usize = 3000;

/// The client whose latency is looked at.
struct Reader {
    client: Client,
    noise: Noise,
}

impl Reader {
    /// Reads blocks at random, one at a time, until `is_over` says so: how long each took, ns.
    fn read_until(&mut self, mut is_over: impl FnMut(usize) -> bool) -> Vec<u64> {
        let mut took = Vec::new();
        while !is_over(took.len()) {
            let offset = self.noise.below(UNIT / 4096) * 4096;
            let began = Instant::now();
            let read = self.client.read(offset, 4096).expect("an answer");
            read.expect("no error");
            took.push(began.elapsed().as_nanos() as u64);
        }
        took
    }
}

fn p99(mut took: Vec<u64>) -> f64 {
    took.sort_unstable();
    took[(took.len() - 1) * 99 / 100] as f64
}

/// For a release build, and a machine that does nothing else.
#[test]
#[ignore = "a measurement of minutes, run by stage long as WEIR_PATHS_WINDOWS=15; needs tgtd"]
fn a_path_that_fails_at_most_doubles_the_latency_of_other_disks() {
    let windows: usize = match std::env::var("WEIR_PATHS_WINDOWS") {
        Ok(count) => count.parse().expect("WEIR_PATHS_WINDOWS is a number"),
        Err(_) => return eprintln!("LEFT OUT: WEIR_PATHS_WINDOWS does not say how many windows"),
    };
    let Some(fabric) = Fabric::start(4, 2) else { return };
    let disks = [
        format!("sda=multipath:a+b,{ABOVE},failback=immediate"),
        fabric.path_disk("a", 1, 0),
        fabric.path_disk("b", 1, 1),
        format!("sdb=multipath:c+d,{ABOVE}"),
        fabric.path_disk("c", 2, 2),
        fabric.path_disk("d", 2, 3),
    ];
    let daemon = fabric.serve(&disks);
    let mut reader = Reader { client: fabric.client("sdb"), noise: Noise::new(5) };
    let progress = Progress::new(1);
    let mut ratios = Vec::new();
    std::thread::scope(|scope| {
        let ends = EndsLoad(&progress);
        let job = Job::new(0, &fabric.folder.socket(), PATIENCE, &progress);
        scope.spawn(|| job.run());
        let quiet = |reader: &mut Reader| p99(reader.read_until(|reads| reads == READS));
        let mut last = quiet(&mut reader);
        for window in 0..windows {
            let is_back = |line: &str| line.contains("failback to priority group 1");
            let backs = |said: &str| said.lines().filter(|line| is_back(line)).count();
            fabric.paths[0].stop(true);
            let failed = |said: &str| said.matches("path a failed: ").count();
            let mut is_silent = true;
            let took = reader.read_until(|reads| {
                // The log is long; it is looked at now and then.
                if reads % 200 != 199 {
                    return false;
                }
                let said = daemon.said();
                if is_silent && failed(&said) > window {
                    is_silent = false;
                    fabric.paths[0].stop(false);
                }
                backs(&said) > window
            });
            let (reads, failing) = (took.len(), p99(took));
            progress.wait_for(100, PATIENCE);
            let then = quiet(&mut reader);
            let ratio = failing / ((last + then) / 2.0);
            println!("window {window}: p99 {last} ns, {failing} ns of {reads}, ratio {ratio:.2}");
            last = then;
            ratios.push(ratio);
        }
        drop(ends);
    });
    ratios.sort_by(f64::total_cmp);
    let (first, median, worst) = (ratios[0], ratios[windows / 2], ratios[windows - 1]);
    println!("a failing path: p99 times {median:.2} in the median ({first:.2} to {worst:.2})");
    assert!(median <= 2.0, "p99 times {median:.2}");
    drop(reader);
    daemon.stop();
}

//! The control: work of a fixed size, and what the hypervisor keeps, around every run.
//!
//! The work is arithmetic and memory, on every CPU at once, and takes some 25 ms: long enough to
//! meet a build or a neighbour that goes on, short enough to cost a comparison nothing.

use std::time::{Duration, Instant};

use super::rounds::Reading;
use crate::cpu::pin;

/// Times the work is done; the shortest counts, so that an interrupt does not. On a virtual machine
/// whose neighbours come and go, five times would tell more of the moment than of the seconds.
const TIMES: u32 = 16;
/// Rounds of arithmetic, some 1 ms.
const SUMS: u64 = 200_000;
/// Memory walked through, bytes: more than the caches next to a core hold.
const MEMORY: usize = 4 << 20;
/// CPUs that work; more would tell nothing else.
const CPUS_MOST: usize = 8;
/// How much longer than usual it may take before a run is waited with, how long a run is
/// waited with, and how long between two looks.
const CALM: f64 = 1.05;
const WAIT: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(100);

/// The control of this machine.
#[derive(Debug)]
pub struct Host {
    memory: Vec<Vec<u64>>,
    /// How long runs may still be waited with, altogether.
    patience: Duration,
}

impl Host {
    /// With memory of its own; all waits together take `patience` at most.
    #[must_use]
    pub fn new(patience: Duration) -> Host {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let memory = (0..cpus.min(CPUS_MOST)).map(|n| vec![n as u64; MEMORY / 8]);
        Host { memory: memory.collect(), patience }
    }

    /// How the machine does. With `usual_ns`, waits a little until it does as well as that.
    #[must_use]
    pub fn read(&mut self, usual_ns: Option<f64>) -> Reading {
        let mut control_ns = self.work();
        let mut wait = self.patience.min(WAIT);
        while usual_ns.is_some_and(|usual| control_ns > usual * CALM) && !wait.is_zero() {
            let pause = wait.min(BETWEEN);
            std::thread::sleep(pause);
            (wait, self.patience) = (wait - pause, self.patience - pause);
            control_ns = self.work();
        }
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let (stolen, all) = ticks(&stat);
        Reading { control_ns, stolen, all }
    }

    /// How long the slowest CPU takes, nanoseconds.
    fn work(&self) -> f64 {
        let longest = std::thread::scope(|scope| {
            let memories = self.memory.iter().enumerate();
            let threads: Vec<_> =
                memories.map(|(cpu, memory)| scope.spawn(move || work_on(cpu, memory))).collect();
            let took = threads.into_iter().map(|thread| thread.join());
            took.map(|took| took.expect("the work does not panic")).max()
        });
        longest.unwrap_or_default().as_nanos() as f64
    }
}

fn work_on(cpu: usize, memory: &[u64]) -> Duration {
    // Where it cannot be pinned it still tells how busy the machine is.
    let _ = pin(cpu);
    let once = |_| {
        let began = Instant::now();
        let sums = (0..SUMS).fold(std::hint::black_box([1_u64; 8]), |sums, n| {
            sums.map(|sum| (sum ^ n).wrapping_add(sum.rotate_left(23)))
        });
        std::hint::black_box(sums);
        // One word of each line.
        let lines = memory.iter().step_by(8);
        std::hint::black_box(lines.fold(0_u64, |sum, word| sum.wrapping_add(*word)));
        began.elapsed()
    };
    (0..TIMES).map(once).min().unwrap_or_default()
}

/// CPU time stolen and altogether, from the first line of proc(5), `/proc/stat`; guests are part of
/// users there.
fn ticks(stat: &str) -> (u64, u64) {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> =
        line.split_whitespace().skip(1).take(8).map_while(|field| field.parse().ok()).collect();
    (fields.get(7).copied().unwrap_or_default(), fields.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_field_and_guests_do_not_count_twice() {
        assert_eq!(ticks("cpu  1 20 300 4000 5 6 7 80000 9 10\ncpu0 1 1 1"), (80000, 84339));
        assert_eq!(ticks(""), (0, 0));
    }

    #[test]
    fn the_control_works_and_counts() {
        let mut host = Host::new(Duration::ZERO);
        let reading = host.read(Some(0.0));
        assert!(reading.control_ns > 0.0 && reading.all > 0, "{reading:?}");
    }
}

//! Several submitters on one device with a scheduler, against one: what sharing costs.
//!
//! One I/O costs P outside the scheduler and S inside it, where only one thread can be at a time;
//! T is what it takes to carry requests and the scheduler's state from core to core. Two
//! submitters can reach (P + S) / (S + T) of what one does, and how far apart two CPUs are changes
//! by itself on a virtual machine: so each round says how far they were, before and after.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weir_queue::QueueMode;

use crate::core::{Options, Outcome, run};
use crate::cpu::pin;
use crate::rounds::Figure;

/// Round trips up to this count as near, ns: measured are some 115 and some 510.
const NEAR_NS: f64 = 250.0;
/// Round trips of one measurement.
const TRIPS: u64 = 20_000;

/// The outcome, round by round, by distance.
#[derive(Clone, Debug)]
pub struct Comparison {
    scheduler: String,
    threads: usize,
    near: Part,
    far: Part,
    /// Rounds in which the CPUs changed from near to far or back.
    changed: usize,
}

/// The rounds of one distance.
#[derive(Clone, Debug, Default)]
struct Part {
    rounds: usize,
    trip_ns: Figure,
    ratio: Figure,
    control: Figure,
    outside_ns: Figure,
    inside_ns: Figure,
    carried_ns: Figure,
}

/// Runs `none` and the scheduler of `options`, each with one submitter and with as many as
/// `options` say, in turn, in so many rounds.
///
/// # Errors
/// Fewer than two submitters, no rounds, the single-queue path, and what the device refuses.
pub fn compare(options: &Options, rounds: u16) -> Result<Comparison, String> {
    let Options { threads, mode, .. } = *options;
    if mode == QueueMode::Sq {
        return Err(String::from("queue_mode=sq has no path without a scheduler to compare with"));
    }
    if threads < 2 || rounds == 0 {
        return Err(format!("threads={threads} rounds={rounds}: at least 2 and 1 are compared"));
    }
    let scheduler = options.scheduler.clone().unwrap_or_default();
    let [near, far] = [Part::default(), Part::default()];
    let mut comparison = Comparison { scheduler, threads, near, far, changed: 0 };
    for _ in 0..rounds {
        let before = round_trip_ns();
        let of = |scheduler: &Option<String>, threads| {
            run(&Options { scheduler: scheduler.clone(), threads, ..options.clone() })
        };
        let none = Some(String::from("none"));
        let outcomes = [
            of(&none, 1)?,
            of(&none, threads)?,
            of(&options.scheduler, 1)?,
            of(&options.scheduler, threads)?,
        ];
        comparison.scheduler.clone_from(&outcomes[3].scheduler);
        comparison.add(&outcomes, before, round_trip_ns());
    }
    Ok(comparison)
}

impl Comparison {
    fn add(&mut self, outcomes: &[Outcome; 4], before: f64, after: f64) {
        if (before <= NEAR_NS) != (after <= NEAR_NS) {
            self.changed += 1;
            return;
        }
        let part = if before <= NEAR_NS { &mut self.near } else { &mut self.far };
        part.add(outcomes, before.max(after));
    }
}

impl Part {
    fn add(&mut self, outcomes: &[Outcome; 4], trip_ns: f64) {
        let [none, none_shared, one, shared] = outcomes;
        let (outside, inside) = (none.ns_per_io, one.ns_per_io - none.ns_per_io);
        self.rounds += 1;
        self.trip_ns.add(trip_ns);
        self.ratio.add(shared.iops / one.iops);
        self.control.add(none_shared.iops / none.iops);
        self.outside_ns.add(outside);
        self.inside_ns.add(inside);
        // Where the scheduler is what they wait for, an I/O takes S + T.
        self.carried_ns.add(1e9 / shared.iops - inside);
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { scheduler, threads, near, far, changed } = self;
        writeln!(f, "{scheduler}: {threads} submitters on one device against 1; median (spread)")?;
        for (name, part) in [("near", near), ("far", far)] {
            if part.rounds == 0 {
                writeln!(
                    f,
                    "cores {name}: no round; this machine was never so, or never both ways"
                )?;
                continue;
            }
            let (p, s) = (part.outside_ns.median(), part.inside_ns.median());
            let ceiling = (p + s) / (s + part.carried_ns.median().max(0.0));
            writeln!(f, "cores {name}, round trip {:.0} ns: {} rounds", part.trip_ns, part.rounds)?;
            writeln!(f, "  throughput {:.2} x that of 1", part.ratio)?;
            writeln!(f, "  none, which shares nothing: {:.2} x", part.control)?;
            writeln!(f, "  P {:.0} ns, S {:.0} ns", part.outside_ns, part.inside_ns)?;
            writeln!(f, "  T {:.0} ns; (P + S) / (S + T) = {ceiling:.2}", part.carried_ns)?;
        }
        if *changed > 0 {
            writeln!(f, "{changed} rounds in which that changed are left out")?;
        }
        if near.control.least_of(&far.control) < 1.5 {
            let why = "where none gains less than 1.5 x, the CPUs are hardware threads of one core \
                       or others have a part of them: no scheduler can gain more there";
            writeln!(f, "{why}")?;
        }
        Ok(())
    }
}

/// How long a cache line takes to CPU 1 and back to CPU 0, ns.
fn round_trip_ns() -> f64 {
    let line = AtomicU64::new(0);
    let wait_for = |value| {
        while line.load(Ordering::Acquire) != value {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = pin(1);
            for trip in 0..TRIPS {
                wait_for(2 * trip + 1);
                line.store(2 * trip + 2, Ordering::Release);
            }
        });
        let measuring = scope.spawn(|| {
            let _ = pin(0);
            let began = Instant::now();
            for trip in 0..TRIPS {
                line.store(2 * trip + 1, Ordering::Release);
                wait_for(2 * trip + 2);
            }
            began.elapsed().as_nanos() as f64 / TRIPS as f64
        });
        measuring.join().expect("counting does not panic")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn two_submitters_are_told_beside_one_with_what_the_cores_were() {
        let options = Options {
            scheduler: Some(String::from("mq-deadline")),
            threads: 2,
            duration: Duration::from_millis(1),
            ..Options::default()
        };
        let comparison = compare(&options, 1).expect("it runs");
        let Comparison { near, far, changed, .. } = &comparison;
        assert_eq!(near.rounds + far.rounds + changed, 1);
        let text = comparison.to_string();
        assert!(text.starts_with("mq-deadline: 2 submitters on one device"), "{text}");
        let error = compare(&Options { threads: 1, ..options }, 1).expect_err("one is no two");
        assert_eq!(error, "threads=1 rounds=1: at least 2 and 1 are compared");
    }
}

//! The latencies aimed at: kyber's tunables, and the buckets a latency falls into.

use crate::tunable::{Number, Tunable, Tunables, Unit};

use super::domain::WATCHED;

/// Buckets of a latency histogram.
pub(super) const BUCKETS: usize = 8;

const READ: &str = "read_lat_nsec";
const WRITE: &str = "write_lat_nsec";

/// The target of discards has no tunable (docs/behaviour/kyber.md, section 1).
const DISCARD_NS: u64 = 5_000_000_000;

/// Source: docs/behaviour/kyber.md, section 7.
pub static TUNABLES: &[Tunable] = &[
    latency(READ, 2_000_000, "The latency aimed at for reads."),
    latency(WRITE, 10_000_000, "The latency aimed at for writes (at level 4.12, SYNC ones)."),
];

const fn latency(name: &'static str, default: i128, meaning: &'static str) -> Tunable {
    Tunable {
        name,
        unit: Unit::Nanoseconds,
        default,
        least: 0,
        most: u64::MAX as i128,
        number: Number::Unsigned64,
        meaning,
    }
}

/// The targets in force.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    ns: [u64; WATCHED],
    /// The ends of all buckets but the last, ns.
    ends: [[u64; BUCKETS - 1]; WATCHED],
}

impl Targets {
    pub(super) fn new() -> Targets {
        let mut targets = Targets { ns: [0; WATCHED], ends: [[0; BUCKETS - 1]; WATCHED] };
        for (domain, row) in TUNABLES.iter().enumerate() {
            targets.aim(domain, row.default as u64);
        }
        targets.aim(2, DISCARD_NS);
        targets
    }

    fn aim(&mut self, domain: usize, ns: u64) {
        self.ns[domain] = ns;
        let quarter = (ns / 4).max(1);
        for (end, quarters) in self.ends[domain].iter_mut().zip(1..) {
            // Beyond the largest number there is no latency, so the bucket before has no end.
            *end = quarter.saturating_mul(quarters);
        }
    }

    pub(super) fn ns(&self, domain: usize) -> u64 {
        self.ns[domain]
    }

    /// Quarters of the target that this latency goes beyond: 0..=3 are good, 7 is "or more".
    #[inline]
    pub(super) fn bucket(&self, domain: usize, ns: u64) -> usize {
        let ends = &self.ends[domain];
        // The usual latency of a device that is not busy.
        if ns <= ends[0] {
            return 0;
        }
        // Counted without a branch: a division costs more than all seven comparisons.
        ends.iter().map(|end| usize::from(ns > *end)).sum()
    }

    fn domain(name: &str) -> usize {
        match name {
            READ => 0,
            WRITE => 1,
            other => unreachable!("{other} is not in kyber's table"),
        }
    }
}

impl Tunables for Targets {
    fn table(&self) -> &'static [Tunable] {
        TUNABLES
    }

    fn value(&self, name: &str) -> i128 {
        i128::from(self.ns[Targets::domain(name)])
    }

    fn put(&mut self, name: &str, value: i128) {
        self.aim(Targets::domain(name), value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    /// The rule of docs/behaviour/kyber.md, section 6, with a division.
    fn divided(target: u64, ns: u64) -> usize {
        if ns == 0 { 0 } else { ((ns - 1) / (target / 4).max(1)).min(7) as usize }
    }

    #[test]
    fn a_latency_falls_where_the_division_puts_it() {
        let seed = 0x6b79_6265;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut targets = Targets::new();
        for round in 0..20_000_u64 {
            let target = match round {
                0..9 => round,
                9 => u64::MAX,
                _ => prng.next() >> prng.below(64),
            };
            targets.aim(0, target);
            let quarter = target / 4;
            let near = quarter.saturating_mul(prng.below(9)).saturating_add(prng.below(3));
            for ns in [near.saturating_sub(1), prng.next() >> prng.below(64), 0, u64::MAX] {
                assert_eq!(targets.bucket(0, ns), divided(target, ns), "{ns} of {target}");
            }
        }
    }
}

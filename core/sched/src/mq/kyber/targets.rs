//! The latencies aimed at: kyber's tunables, and the buckets a latency falls into.

use crate::tunable::{Number, Row, Tunable, Tuned, Unit, When, tunables};

use super::domain::{DISCARD, READ, WATCHED, WRITE};

/// Buckets of a latency histogram.
pub(super) const BUCKETS: usize = 8;

/// The target of discards has no tunable (docs/behaviour/kyber.md, section 1).
const DISCARD_NS: u64 = 5_000_000_000;

/// Source: docs/behaviour/kyber.md, section 7.
pub const TUNABLES: &[Tunable] = &tunables(&ROWS);

const ROWS: [Row<Targets>; 2] = [
    Row::new(
        latency("read_lat_nsec", 2_000_000, "The latency aimed at for reads."),
        |targets| i128::from(targets.ns[READ]),
        |targets, ns| targets.aim(READ, ns as u64),
    ),
    Row::new(
        latency(
            "write_lat_nsec",
            10_000_000,
            "The latency aimed at for writes (at level 4.12, SYNC ones).",
        ),
        |targets| i128::from(targets.ns[WRITE]),
        |targets, ns| targets.aim(WRITE, ns as u64),
    ),
];

const fn latency(name: &'static str, default: i128, meaning: &'static str) -> Tunable {
    Tunable {
        name,
        unit: Unit::Nanoseconds,
        default,
        least: 0,
        most: u64::MAX as i128,
        number: Number::Unsigned64,
        when: When::AtOnce,
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
        Targets::with(&ROWS)
    }

    /// At the defaults of these rows.
    fn with(rows: &[Row<Targets>]) -> Targets {
        let mut targets = Targets { ns: [0; WATCHED], ends: [[0; BUCKETS - 1]; WATCHED] };
        targets.aim(DISCARD, DISCARD_NS);
        rows.iter().for_each(|row| (row.set)(&mut targets, row.tunable.default));
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
}

impl Tuned for Targets {
    const ROWS: &'static [Row<Targets>] = &ROWS;
    const TABLE: &'static [Tunable] = TUNABLES;
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
    fn a_tunable_aims_at_its_own_domain_wherever_its_row_stands() {
        let [read, write] = ROWS;
        let discard = Row::new(
            latency("discard_lat_nsec", 1_000_000_000, "The latency aimed at for discards."),
            |targets: &Targets| i128::from(targets.ns[DISCARD]),
            |targets, ns| targets.aim(DISCARD, ns as u64),
        );
        let rows = [discard, write, read];
        let mut targets = Targets::with(&rows);
        assert_eq!(targets.ns, [2_000_000, 10_000_000, 1_000_000_000]);
        for row in &rows {
            let others = rows.iter().filter(|other| other.tunable.name != row.tunable.name);
            let before: Vec<_> = others.clone().map(|other| (other.get)(&targets)).collect();
            (row.set)(&mut targets, 7);
            assert_eq!((row.get)(&targets), 7, "{}", row.tunable.name);
            let after: Vec<_> = others.map(|other| (other.get)(&targets)).collect();
            assert_eq!(before, after, "{} changed another", row.tunable.name);
        }
        assert_eq!(Targets::new().ns, [2_000_000, 10_000_000, DISCARD_NS]);
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

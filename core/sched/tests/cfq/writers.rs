//! The experiment of SUSE's tuning guide: 32 processes write 10 MiB each at once, with low_latency
//! and without. Disk, bands and the published figures: docs/behaviour/cfq.md, section 13.

use crate::bed::{Bed, Client, Disk, F, MS, SECOND, reader};
use weir_bio::{Flags, Op};

/// The disk that the published totals were modelled with: 110 MB/s, 12 ms for a switch.
const DISK: Disk = Disk { rate: 110_000_000, seek_ns: 12 * MS, ..F };
const WRITERS: u64 = 32;
const BYTES: u64 = 10 << 20;
const REQUEST: u64 = 128 << 10;

/// Times of the processes, from the start of each to its end, seconds.
struct Outcome {
    total: f64,
    times: Vec<f64>,
    first: f64,
}

impl Outcome {
    fn variation(&self) -> f64 {
        let count = self.times.len() as f64;
        let mean = self.times.iter().sum::<f64>() / count;
        let squares: f64 = self.times.iter().map(|time| (time - mean).powi(2)).sum();
        (squares / count).sqrt() / mean
    }

    fn most_to_least(&self) -> f64 {
        let most = self.times.iter().copied().fold(0.0, f64::max);
        most / self.times.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

fn experiment(tunables: &[(&str, &str)]) -> Outcome {
    let writer = |number| Client {
        op: Op::Write,
        // Direct or O_SYNC writers: sync, and each write is followed by the next.
        flags: Flags::SYNC | Flags::IDLE,
        depth: 4,
        think_ns: 0,
        starts_at: number * 2 * MS,
        requests: BYTES / REQUEST,
        ..reader(number)
    };
    let mut bed = Bed::new(DISK, (0..WRITERS).map(writer).collect()).with(tunables);
    bed.run(60 * SECOND);
    let seconds = |ns: u64| ns as f64 / SECOND as f64;
    let finished: Vec<u64> = bed.got.iter().map(|got| got.finished_at).collect();
    assert!(bed.got.iter().all(|got| got.requests == BYTES / REQUEST), "all were served");
    let starts = (0..WRITERS).map(|number| number * 2 * MS);
    let outcome = Outcome {
        total: seconds(*finished.iter().max().expect("there are writers")),
        times: finished.iter().zip(starts).map(|(end, start)| seconds(end - start)).collect(),
        first: seconds(*finished.iter().min().expect("there are writers")),
    };
    println!(
        "{tunables:?}: total {:.3} s, first {:.3} s, variation {:.3}, most to least {:.2}",
        outcome.total,
        outcome.first,
        outcome.variation(),
        outcome.most_to_least()
    );
    outcome
}

fn about(value: f64, expected: f64, part: f64, what: &str) {
    assert!((value / expected - 1.0).abs() <= part, "{what}: {value:.3}, expected {expected}");
}

#[test]
fn low_latency_lets_32_writers_end_together_and_costs_seeks() {
    let on = experiment(&[("low_latency", "1")]);
    let off = experiment(&[("low_latency", "0")]);
    about(on.total, 4.98, 0.10, "total with low_latency");
    about(off.total, 3.51, 0.10, "total without");
    let ratio = on.total / off.total;
    assert!((ratio - 1.42).abs() <= 0.10, "totals {ratio:.3} to 1");
    assert!(on.variation() <= 0.20 && off.variation() >= 0.40);
    assert!(on.most_to_least() <= 2.5 && off.most_to_least() >= 4.0);
    assert!(on.first > 1.5 && off.first < 0.9);
}

#[test]
fn a_target_latency_of_3200_does_as_no_low_latency() {
    let long = experiment(&[("low_latency", "1"), ("target_latency", "3200")]);
    about(long.total, 3.51, 0.10, "total");
    assert!(long.variation() >= 0.40 && long.most_to_least() >= 4.0 && long.first < 0.9);
}

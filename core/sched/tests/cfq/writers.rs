//! The experiment of SUSE's tuning guide: 32 processes write 10 MiB each at once, with low_latency
//! and without. Disk, bands and the published figures: docs/behaviour/cfq.md, section 13.

use crate::bed::{Bed, Client, Disk, F, HDD, MS, SECOND, reader};
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
    /// How often the device was given a request of another writer than the one before.
    turns: usize,
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
    let writer = |number| Client { depth: 4, ..writer(number) };
    run(DISK, (0..WRITERS).map(writer).collect(), tunables)
}

/// Direct or O_SYNC writers: sync, and each write is followed by the next.
fn writer(number: u64) -> Client {
    Client {
        op: Op::Write,
        flags: Flags::SYNC | Flags::IDLE,
        think_ns: 0,
        starts_at: number * 2 * MS,
        requests: BYTES / REQUEST,
        ..reader(number)
    }
}

fn run(disk: Disk, writers: Vec<Client>, tunables: &[(&str, &str)]) -> Outcome {
    let mut bed = Bed::new(disk, writers).with(tunables);
    bed.run(60 * SECOND);
    let seconds = |ns: u64| ns as f64 / SECOND as f64;
    let finished: Vec<u64> = bed.got.iter().map(|got| got.finished_at).collect();
    let bytes = |sectors: u64| sectors * 512;
    assert!(bed.got.iter().all(|got| bytes(got.sectors) == BYTES), "all were served");
    let starts = (0..WRITERS).map(|number| number * 2 * MS);
    let outcome = Outcome {
        total: seconds(*finished.iter().max().expect("there are writers")),
        times: finished.iter().zip(starts).map(|(end, start)| seconds(end - start)).collect(),
        first: seconds(*finished.iter().min().expect("there are writers")),
        turns: bed.sent.chunk_by(|one, next| one.client == next.client).count(),
    };
    println!(
        "{tunables:?}: {} turns, total {:.3} s, first {:.3} s, variation {:.3}, most/least {:.2}",
        outcome.turns,
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

/// The same by `dd`, one write of so many KiB at a time, in areas that begin so many MiB apart, on
/// the disk of `weir bench dd32`.
fn by_dd(kib: u32, apart_mib: u64, low_latency: &str) -> Outcome {
    let sectors = kib * 2;
    let writer = |number| Client {
        from: number * apart_mib * 2048,
        stride: u64::from(sectors),
        sectors,
        requests: BYTES / (u64::from(kib) << 10),
        think_ns: 250_000,
        ..writer(number)
    };
    let disk = Disk { depth: 2, ..HDD };
    run(disk, (0..WRITERS).map(writer).collect(), &[("low_latency", low_latency)])
}

#[test]
fn dd_in_areas_of_their_own_shows_what_the_guide_shows() {
    let [on, off] = ["1", "0"].map(|level| by_dd(1024, 16, level));
    assert!(off.turns <= 34 && on.turns >= 100, "{} and {} turns", on.turns, off.turns);
    let ratio = on.total / off.total;
    assert!((1.2..=1.6).contains(&ratio), "totals {ratio:.3} to 1");
    assert!(on.variation() <= 0.20 && off.variation() >= 0.40);
    // The first one has the disk to itself for some slots.
    assert!(on.most_to_least() <= 4.0 && off.most_to_least() >= 4.0 * on.most_to_least());
}

/// docs/behaviour/cfq.md, section 9: one that is 4 MiB from its neighbour's area shares its queue.
#[test]
fn dd_in_areas_that_adjoin_jumps_for_each_request_of_two_that_share_a_queue() {
    let [on, off] = ["1", "0"].map(|level| by_dd(128, 10, level));
    assert!(off.total > 1.2 * on.total && off.turns > 2 * on.turns, "the guide has the opposite");
    // A gap of more than 4 MiB, and there is none to share with.
    let [on, off] = ["1", "0"].map(|level| by_dd(128, 15, level));
    assert!(on.total > 1.2 * off.total && off.turns <= 2 * 32, "{} turns", off.turns);
}

//! The cost of a scheduler itself for an I/O: merge, insert, dispatch and finish of random 4 KiB
//! requests over 64 GiB, 70 % of them reads, with a fixed number staged.
//!
//! cargo bench -p weir-sched --bench deadline
//!
//! Wall time of interleaved rounds, each short enough to fit between two preemptions: the least,
//! a quarter of the way up, the median;
//! making the request up is measured alone and taken off.

#![forbid(unsafe_code)]

#[path = "../../../core/queue/benches/words/mod.rs"]
mod words;

use weir_bio::{Flags, GroupId, IoPrio, Limits, Nanos, Op, Prng, RqId};
use weir_sched::{Absorbed, Ended, Entry, Merge, Rq, SCHEDULERS, SchedTag, Scheduler, Setup};

const IOS: u64 = 20_000;
const ROUNDS: usize = 101;
const BATCH: usize = 32;
const SEED: u64 = 1;

const USAGE: &str = "cargo bench -p weir-sched --bench deadline";

#[derive(Clone, Copy)]
struct Pattern {
    name: &'static str,
    sector: fn(&mut Prng, u64) -> u64,
}

const PATTERNS: [Pattern; 3] = [
    Pattern { name: "uniform", sector: |prng, _| prng.below(1 << 24) * 8 },
    // A stride, so that nothing merges.
    Pattern { name: "ascending", sector: |_, n| n * 64 % (1 << 27) },
    Pattern {
        name: "two clusters",
        sector: |prng, _| (prng.below(2) << 26) + prng.below(1 << 12) * 16,
    },
];

#[expect(clippy::disallowed_methods, reason = "a bench measures time; the crate takes `now`")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

fn request(prng: &mut Prng, pattern: Pattern, n: u64) -> Rq {
    Rq {
        sector: (pattern.sector)(prng, n),
        sectors: 8,
        id: RqId(0),
        flags: Flags::SYNC,
        group: GroupId(0),
        ioprio: IoPrio::NONE,
        hint: 0,
        tag: SchedTag::NONE,
        op: if prng.percent(70) { Op::Read } else { Op::Write },
        segments: 1,
    }
}

/// Nanoseconds of `IOS` I/Os at this depth, and a checksum of what went in which order.
fn round(entry: Option<&Entry>, pattern: Pattern, depth: u16) -> (f64, u64) {
    let mut prng = Prng::new(SEED);
    let mut checksum = 0u64;
    let limits = Limits { capacity: 1 << 27, max_hw_sectors: 2560, ..Limits::default() };
    let nr_requests = depth + BATCH as u16;
    let setup = Setup { limits, nr_requests, hard_queues: 1, nomerges: 0, compat: "" };
    let mut scheduler = entry.map(|entry| (entry.make.expect("it is a scheduler"))(&setup));
    let mut free: Vec<_> = (0..nr_requests).map(SchedTag).collect();
    let (mut batch, mut absorbed) = (Vec::with_capacity(BATCH), Absorbed::new());
    let begun = clock();
    for n in 0..IOS {
        let rq = request(&mut prng, pattern, n);
        let Some(scheduler) = scheduler.as_deref_mut() else {
            checksum ^= rq.sector;
            continue;
        };
        stage(scheduler, rq, n, &mut free, &mut absorbed);
        if free.is_empty() {
            scheduler.dispatch_batch(0, BATCH, &mut batch, Nanos(n * 100));
            for rq in batch.drain(..) {
                checksum = checksum.rotate_left(1) ^ rq.sector;
                end(scheduler, rq.tag, n, &mut free);
            }
        }
    }
    let ns = begun.elapsed().as_nanos() as f64 / IOS as f64;
    (ns, std::hint::black_box(checksum))
}

fn stage(
    scheduler: &mut dyn Scheduler,
    rq: Rq,
    n: u64,
    free: &mut Vec<SchedTag>,
    absorbed: &mut Absorbed,
) {
    let now = Nanos(n * 100);
    match scheduler.merge(&rq, now) {
        Merge::No => {
            let tag = free.pop().expect("a tag is free");
            scheduler.insert(Rq { tag, ..rq }, now, absorbed);
            free.extend(absorbed.drain(..).map(|(_, gone)| gone));
        }
        Merge::BackJoined { gone, .. } | Merge::FrontJoined { gone, .. } => free.push(gone),
        Merge::Back(_) | Merge::Front(_) => {}
    }
}

fn end(scheduler: &mut dyn Scheduler, tag: SchedTag, n: u64, free: &mut Vec<SchedTag>) {
    scheduler.ended(&Ended::untimed(tag), Nanos(n * 100));
    free.push(tag);
}

fn main() {
    let words = words::words(USAGE);
    if !words.is_empty() {
        words::refuse(&words, USAGE);
    }
    println!("seed {SEED}, {IOS} I/Os a round, {ROUNDS} rounds, batches of {BATCH}");
    for pattern in PATTERNS {
        for depth in [128, 1024] {
            compare(pattern, depth);
        }
    }
}

fn compare(pattern: Pattern, depth: u16) {
    let mut ways: Vec<Option<&Entry>> = vec![None];
    let family = ["noop", "deadline", "mq-deadline"];
    ways.extend(SCHEDULERS.iter().filter(|entry| family.contains(&entry.name)).map(Some));
    let mut taken = vec![Vec::new(); ways.len()];
    let mut checksums = vec![0; ways.len()];
    for _ in 0..ROUNDS {
        for (way, entry) in ways.iter().enumerate() {
            let (ns, checksum) = round(*entry, pattern, depth);
            taken[way].push(ns);
            checksums[way] = checksum;
        }
    }
    for rounds in &mut taken {
        rounds.sort_by(f64::total_cmp);
    }
    let alone = taken[0][ROUNDS / 4];
    for (way, entry) in ways.iter().enumerate().skip(1) {
        let [least, quarter, median] = [0, ROUNDS / 4, ROUNDS / 2].map(|at| taken[way][at] - alone);
        println!(
            "{:12} {depth:4} staged, {:12} ns per I/O {least:.1} {quarter:.1} {median:.1}, {:016x}",
            pattern.name,
            entry.map_or("", |entry| entry.name),
            checksums[way]
        );
    }
}

//! The cost of `bfq` itself for an I/O: merge, limit, insert, dispatch, completion and finish of
//! random 4 KiB requests over 64 GiB, 70 % of them reads, with a fixed number staged.
//!
//! cargo bench -p weir-sched --bench bfq
//!
//! Wall time of rounds, each short enough to fit between two preemptions: the least, a quarter of
//! the way up, the median; making the request up is measured alone and taken off. With the argument
//! `once` a single round of each runs, for an instruction counter.
//!
//! Then the same beside many busy queues: 1,000 contexts with two requests each against 10, on a
//! flash disk and on one that rotates, where queues that are close are looked for. Contexts that
//! start together share no queue there. The figure is the ratio.

#![forbid(unsafe_code)]

use weir_bio::{
    Flags, GroupId, IoPrio, Limits, Nanos, Op, Prng, Rq, RqId, SchedTag, Status, SubmitterId,
};
use weir_sched::mq::bfq::{Bfq, Features};
use weir_sched::{Absorbed, Ended, Merge, Scheduler, Setup};

const IOS: u64 = 20_000;
const FEW: u64 = 10;
const MANY: u64 = 1_000;
const ROUNDS: usize = 101;
const BATCH: usize = 32;
const STAGED: u16 = 128;
const SEED: u64 = 1;

#[expect(clippy::disallowed_methods, reason = "a bench measures time; the crate takes `now`")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

fn request(prng: &mut Prng, way: Way, n: u64) -> Rq {
    // As threads hand over: some of one, then of another.
    let context = (n / way.row as u64 % way.contexts.max(1)) as u16;
    Rq {
        sector: prng.below(1 << 24) * 8,
        sectors: 8,
        id: RqId::new(SubmitterId(context), n as u16, 0),
        flags: Flags::SYNC,
        group: GroupId(0),
        ioprio: IoPrio::NONE,
        hint: 0,
        tag: SchedTag::NONE,
        op: if prng.percent(70) { Op::Read } else { Op::Write },
        segments: 1,
    }
}

/// One way to run.
#[derive(Clone, Copy)]
struct Way {
    contexts: u64,
    staged: u16,
    rotational: bool,
    /// Requests that a context sends in a row.
    row: usize,
}

impl Way {
    const fn of(contexts: u64) -> Way {
        Way { contexts, staged: STAGED, rotational: false, row: BATCH }
    }

    const fn beside(contexts: u64, rotational: bool) -> Way {
        Way { contexts, staged: 2 * contexts as u16, rotational, row: 2 }
    }
}

/// As the engine does it: asks for limits, gives each a tag, hands all over.
fn stage(bfq: &mut Bfq, batch: &mut [Rq], now: Nanos, free: &mut Vec<SchedTag>) {
    std::hint::black_box(bfq.depth_rule(batch, now));
    for rq in batch.iter_mut() {
        rq.tag = free.pop().expect("a tag is free");
    }
    let (mut rest, mut absorbed) = (&*batch, Absorbed::new());
    while !rest.is_empty() {
        let (taken, merge) = bfq.stage_batch(rest, now, &mut absorbed);
        if merge != Merge::No {
            free.push(rest[taken - 1].tag);
        }
        if let Merge::BackJoined { gone, .. } | Merge::FrontJoined { gone, .. } = merge {
            absorbed.push((gone, gone));
        }
        for (_, gone) in absorbed.drain(..) {
            free.push(gone);
        }
        rest = &rest[taken..];
    }
}

/// Nanoseconds an I/O of `IOS` ones by so many contexts, and a checksum of the order; of making
/// them up alone without contexts.
fn round(way: Way) -> (f64, u64) {
    let mut prng = Prng::new(SEED);
    let mut checksum = 0u64;
    let rotational = way.rotational;
    let limits =
        Limits { capacity: 1 << 27, max_hw_sectors: 2560, rotational, ..Limits::default() };
    let nr_requests = way.staged + BATCH as u16;
    let setup = Setup { limits, nr_requests, hard_queues: 1, nomerges: 0, compat: "" };
    let stable_merging = way.row == BATCH;
    let mut bfq = Bfq::with_features(&setup, Features { stable_merging, ..Features::ALL });
    let mut free: Vec<_> = (0..nr_requests).map(SchedTag).collect();
    let mut arrived = Vec::with_capacity(BATCH);
    let (mut batch, mut ended) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let (begun, mut now) = (clock(), Nanos::ZERO);
    for n in 0..IOS {
        let rq = request(&mut prng, way, n);
        if way.contexts == 0 {
            checksum ^= rq.sector;
            continue;
        }
        arrived.push(rq);
        if arrived.len() < BATCH {
            continue;
        }
        now = now.max(Nanos(n * 300));
        stage(&mut bfq, &mut arrived, now, &mut free);
        arrived.clear();
        while free.len() < BATCH {
            bfq.dispatch_batch(0, BATCH, &mut batch, now);
            if batch.is_empty() {
                // The disk is kept for a queue that asks no more in time.
                now = now.max(bfq.wake_at().expect("it gives nothing for no other reason"));
                bfq.on_timer(now);
            }
            for rq in batch.drain(..) {
                checksum = checksum.rotate_left(1) ^ rq.sector;
                let (tag, status) = (rq.tag, Status::Ok);
                let (accepted_at, issued_at, done_at) = (now, now, now);
                let handed_back = false;
                ended.push(Ended { tag, status, handed_back, accepted_at, issued_at, done_at });
                free.push(tag);
            }
            bfq.ended_batch(&ended, now);
            ended.clear();
        }
    }
    let ns = begun.elapsed().as_nanos() as f64 / IOS as f64;
    (ns, std::hint::black_box(checksum))
}

fn main() {
    if std::env::args().any(|arg| arg == "once") {
        for contexts in [1, 8] {
            println!("{:016x}", round(Way::of(contexts)).1);
        }
        return;
    }
    println!("seed {SEED}, {IOS} I/Os a round, {ROUNDS} rounds, batches of {BATCH}");
    let ways = [0, 1, 8];
    let mut taken = ways.map(|_| Vec::new());
    let mut checksums = [0; 3];
    for _ in 0..ROUNDS {
        for (way, contexts) in ways.into_iter().enumerate() {
            let (ns, checksum) = round(Way::of(contexts));
            taken[way].push(ns);
            checksums[way] = checksum;
        }
    }
    for rounds in &mut taken {
        rounds.sort_by(f64::total_cmp);
    }
    let alone = taken[0][ROUNDS / 4];
    for way in 1..3 {
        let [least, quarter, median] = [0, ROUNDS / 4, ROUNDS / 2].map(|at| taken[way][at] - alone);
        println!(
            "{} contexts, {STAGED} staged, ns per I/O {least:.1} {quarter:.1} {median:.1}, {:016x}",
            ways[way], checksums[way]
        );
    }
    beside_many();
}

/// What an I/O costs with many busy queues, against few.
fn beside_many() {
    for rotational in [false, true] {
        let mut ratios = Vec::new();
        let mut checksum = 0;
        for _ in 0..ROUNDS / 4 {
            let [few, many] = [FEW, MANY].map(|contexts| round(Way::beside(contexts, rotational)));
            ratios.push(many.0 / few.0);
            checksum = few.1 ^ many.1;
        }
        ratios.sort_by(f64::total_cmp);
        let [least, median, most] = [0, ratios.len() / 2, ratios.len() - 1].map(|at| ratios[at]);
        let disk = if rotational { "rotating" } else { "flash" };
        println!(
            "{disk} disk, {MANY} queues busy against {FEW}: {median:.2} ({least:.2}..{most:.2}) \
             times as long, {checksum:016x}"
        );
    }
}

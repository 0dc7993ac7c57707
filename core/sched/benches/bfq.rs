//! The cost of `bfq` itself for an I/O: merge, limit, insert, dispatch, completion and finish of
//! random 4 KiB requests over 64 GiB, 70 % of them reads, with a fixed number staged.
//!
//! cargo bench -p weir-sched --bench bfq
//!
//! Wall time of rounds, each short enough to fit between two preemptions: the least, a quarter of
//! the way up, the median; making the request up is measured alone and taken off. With the argument
//! `once` a single round of each runs, for an instruction counter.

#![forbid(unsafe_code)]

use weir_bio::{
    Flags, GroupId, IoPrio, Limits, Nanos, Op, Prng, Rq, RqId, SchedTag, Status, SubmitterId,
};
use weir_sched::mq::bfq::Bfq;
use weir_sched::{Absorbed, Ended, Merge, Scheduler, Setup};

const IOS: u64 = 20_000;
const ROUNDS: usize = 101;
const BATCH: usize = 32;
const STAGED: u16 = 128;
const SEED: u64 = 1;

#[expect(clippy::disallowed_methods, reason = "a bench measures time; the crate takes `now`")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

fn request(prng: &mut Prng, contexts: u64, n: u64) -> Rq {
    // As threads hand over: a batch of one, then of another.
    let context = (n / BATCH as u64 % contexts) as u16;
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
fn round(contexts: u64) -> (f64, u64) {
    let mut prng = Prng::new(SEED);
    let mut checksum = 0u64;
    let limits = Limits { capacity: 1 << 27, max_hw_sectors: 2560, ..Limits::default() };
    let nr_requests = STAGED + BATCH as u16;
    let setup = Setup { limits, nr_requests, hard_queues: 1, nomerges: 0, compat: "" };
    let mut bfq = Bfq::new(&setup);
    let mut free: Vec<_> = (0..nr_requests).map(SchedTag).collect();
    let mut arrived = Vec::with_capacity(BATCH);
    let (mut batch, mut ended) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    let begun = clock();
    for n in 0..IOS {
        let rq = request(&mut prng, contexts.max(1), n);
        if contexts == 0 {
            checksum ^= rq.sector;
            continue;
        }
        arrived.push(rq);
        if arrived.len() < BATCH {
            continue;
        }
        let now = Nanos(n * 300);
        stage(&mut bfq, &mut arrived, now, &mut free);
        arrived.clear();
        if free.len() < BATCH {
            bfq.dispatch_batch(0, BATCH, &mut batch, now);
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
            println!("{:016x}", round(contexts).1);
        }
        return;
    }
    println!("seed {SEED}, {IOS} I/Os a round, {ROUNDS} rounds, batches of {BATCH}");
    let ways = [0, 1, 8];
    let mut taken = ways.map(|_| Vec::new());
    let mut checksums = [0; 3];
    for _ in 0..ROUNDS {
        for (way, contexts) in ways.into_iter().enumerate() {
            let (ns, checksum) = round(contexts);
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
}

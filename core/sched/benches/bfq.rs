//! The cost of `bfq` itself for an I/O: merge, limit, insert, dispatch, completion and finish of
//! random 4 KiB requests over 64 GiB, 70 % of them reads, with a fixed number staged.
//!
//! cargo bench -p weir-sched --bench bfq
//!
//! Wall time of rounds, each short enough to fit between two preemptions: the least, a quarter of
//! the way up, the median; making the request up is measured alone and taken off. With the argument
//! `once` a single round of each runs, for an instruction counter; with `beside 1000 rotating` one
//! beside as many busy queues on such a disk.
//!
//! Then the same beside many busy queues: 1,000 contexts with two requests each against 10, on a
//! flash disk and on one that rotates, where each bio of a process whose requests are near each
//! other looks for close queues; and there with a stream for each process, so that all do. Contexts
//! that start together share no queue there. Measured is what comes once every queue is made.

#![forbid(unsafe_code)]

#[path = "../../../core/queue/benches/words/mod.rs"]
mod words;

use weir_bio::{
    Flags, GroupId, IoPrio, Limits, Nanos, Op, Prng, Rq, RqId, SchedTag, Status, SubmitterId,
};
use weir_sched::mq::bfq::{Bfq, Features};
use weir_sched::{Absorbed, Ended, Merge, Scheduler, Setup};

const IOS: u64 = 20_000;
const FEW: u64 = 10;
const MANY: u64 = 1_000;
/// From then on each of the many has its queue.
const ALL_MADE: u64 = 2_016;
const ROUNDS: usize = 101;
const BATCH: usize = 32;
const STAGED: u16 = 128;
const SEED: u64 = 1;

const USAGE: &str = "cargo bench -p weir-sched --bench bfq [-- once | -- beside QUEUES DISK]\n\n  \
    once                a single round of each number of contexts, for an instruction counter\n  \
    beside QUEUES DISK  a single round beside so many busy queues on flash, rotating or streams";

#[expect(clippy::disallowed_methods, reason = "a bench measures time; the crate takes `now`")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

fn request(prng: &mut Prng, way: Way, n: u64) -> Rq {
    // As threads hand over: some of one, then of another.
    let context = (n / way.row as u64 % way.contexts.max(1)) as u16;
    let (random, row) = (prng.below(1 << 24) * 8, way.row as u64);
    // A process's stream goes on by 32 KiB a request, in a region of its own.
    let nth = n / (row * way.contexts.max(1)) * row + n % row;
    let stream = (u64::from(context) << 17) + (nth * 64) % (1 << 17);
    Rq {
        sector: if way.streams { stream } else { random },
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

/// What many queues are busy on, and with what.
#[derive(Clone, Copy)]
struct Disk {
    name: &'static str,
    rotational: bool,
    streams: bool,
}

const DISKS: [Disk; 3] = [
    Disk { name: "flash", rotational: false, streams: false },
    Disk { name: "rotating", rotational: true, streams: false },
    Disk { name: "streams", rotational: true, streams: true },
];

/// One way to run.
#[derive(Clone, Copy)]
struct Way {
    contexts: u64,
    staged: u16,
    rotational: bool,
    /// Processes read a stream each, so that every bio looks for queues that are close.
    streams: bool,
    /// Requests that a context sends in a row.
    row: usize,
}

impl Way {
    const fn of(contexts: u64) -> Way {
        Way { contexts, staged: STAGED, rotational: false, streams: false, row: BATCH }
    }

    const fn beside(contexts: u64, disk: Disk) -> Way {
        let Disk { rotational, streams, .. } = disk;
        Way { contexts, staged: 2 * contexts as u16, rotational, streams, row: 2 }
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
    let (mut begun, mut now) = (clock(), Nanos::ZERO);
    let first = if way.row == BATCH { 0 } else { ALL_MADE };
    for n in 0..first + IOS {
        if n == first {
            begun = clock();
        }
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
    let words = words::words(USAGE);
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {}
        ["once"] => {
            return [1, 8].iter().for_each(|contexts| {
                println!("{:016x}", round(Way::of(*contexts)).1);
            });
        }
        ["beside", contexts, disk] => {
            let disk = DISKS.into_iter().find(|known| known.name == disk);
            let (Ok(contexts), Some(disk)) = (contexts.parse(), disk) else {
                words::refuse(&words, USAGE)
            };
            return println!("{:016x}", round(Way::beside(contexts, disk)).1);
        }
        _ => words::refuse(&words, USAGE),
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
    for disk in DISKS {
        let mut taken = [Vec::new(), Vec::new()];
        let mut checksum = 0;
        for _ in 0..ROUNDS {
            let rounds = [FEW, MANY].map(|contexts| round(Way::beside(contexts, disk)));
            checksum = rounds[0].1 ^ rounds[1].1;
            taken.iter_mut().zip(rounds).for_each(|(taken, round)| taken.push(round.0));
        }
        taken.iter_mut().for_each(|rounds| rounds.sort_by(f64::total_cmp));
        let [least, quarter] = [0, ROUNDS / 4].map(|at| [taken[0][at], taken[1][at]]);
        println!(
            "{}, {FEW} queues busy and {MANY}, ns per I/O: least {:.1} {:.1} ({:.2}), \
             quarter {:.1} {:.1} ({:.2}), {checksum:016x}",
            disk.name,
            least[0],
            least[1],
            least[1] / least[0],
            quarter[0],
            quarter[1],
            quarter[1] / quarter[0],
        );
    }
}

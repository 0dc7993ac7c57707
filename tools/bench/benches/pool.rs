//! What a pool costs an I/O: CPU time per 4 KiB read of a disk that is a partition of a pool,
//! beside that of a disk of its own, on null devices. One thread turns all of them. Of two
//! partitions in use it is set beside two disks of their own, and beside one disk that two clients
//! use: there the scheduler has as much to choose from as in the pool.
//!
//! cargo bench -p weir-bench --bench pool [-- --rounds 200 --ios 20000 --scheduler none --depth 1]

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Instant;

use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::cpu::{pin, thread_time};
use weir_bench::rounds::{Figure, machine};
use weir_bio::{Bio, Buf, Nanos};
use weir_local::{Null, Pool};
use weir_queue::{Bell, Config, Device, Driver, Lane, Submitter};
use weir_ring::NoWake;

/// Most that an I/O of a partition may cost more than one of a disk that as many clients use, ns,
/// in batches as large as those that `bench core` has.
const GOAL_NS: f64 = 5.0;

const GOAL_BATCH: usize = 32;

const SCHEDULERS: [&str; 3] = ["none", "mq-deadline", "bfq"];

const BYTES: u64 = 1 << 30;
const BLOCK: usize = 4096;

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "The cost of a pool for an I/O.",
    parameters: &[
        Parameter::number("--rounds", (200, 2), "rounds in which each is measured"),
        Parameter::number("--ios", (20_000, 100), "I/Os of a round"),
        Parameter::one_of("--scheduler", &SCHEDULERS, "only with this one"),
        Parameter::number("--depth", (0, 0), "only with this one of 1, 32 and 128; 0: with all"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let rounds = arguments.number("--rounds");
    let ios = arguments.number("--ios");
    println!("{}", machine());
    // A bench that cannot be pinned still measures, only less steadily.
    let _ = pin(0);
    let mut missed = Vec::new();
    let only = arguments.word("--scheduler");
    let only_depth = arguments.number("--depth");
    if ![0, 1, 32, 128].contains(&only_depth) {
        arguments.refuse(&format!("--depth {only_depth} is none of 0, 1, 32 and 128"));
    }
    for scheduler in SCHEDULERS {
        for (depth, batch) in [(1, 1), (32, 4), (128, 32)] {
            let is_asked = only.is_none_or(|only| only == scheduler)
                && (only_depth == 0 || only_depth as usize == depth);
            if !is_asked {
                continue;
            }
            let work = Work { depth, batch, ios };
            // Of disks of their own and of partitions: one that is used, and two.
            for used in [1, 2] {
                let more = compare(scheduler, used, work, rounds);
                if batch == GOAL_BATCH && more > GOAL_NS {
                    missed.push(format!("{scheduler}, depth {depth}, {used} used: {more:.1} ns"));
                }
            }
        }
    }
    // A small run shows that it runs; of so few I/Os it says nothing.
    assert!(
        missed.is_empty() || rounds < 20,
        "in batches of {GOAL_BATCH} above {GOAL_NS} ns: {missed:?}"
    );
}

/// What each disk does in a round.
#[derive(Clone, Copy)]
struct Work {
    depth: usize,
    batch: usize,
    ios: u32,
}

/// All of them, round by round: how much more an I/O of a partition costs than one of a disk that
/// as many clients use, ns, in the middle.
fn compare(scheduler: &str, used: usize, work: Work, rounds: u32) -> f64 {
    let own: Vec<Bench> = (0..used).map(|_| Bench::of_disk(scheduler, 1, work)).collect();
    let alike = vec![Bench::of_disk(scheduler, used, work)];
    let pooled = vec![Bench::of_pool(scheduler, used, work)];
    let mut kinds = [own, alike, pooled];
    let mut figures = [Figure::default(), Figure::default(), Figure::default()];
    let (mut than_own, mut than_alike) = (Figure::default(), Figure::default());
    for round in 0..=rounds as usize {
        let mut took = [0.0; 3];
        // Each goes first as often.
        for place in 0..kinds.len() {
            let kind = (round + place) % kinds.len();
            took[kind] = run(&mut kinds[kind], work);
        }
        // The first round warms up.
        if round > 0 {
            figures.iter_mut().zip(took).for_each(|(figure, took)| figure.add(took));
            let [own, alike, pooled] = took;
            than_own.add(pooled - own);
            than_alike.add(pooled - alike);
        }
    }
    kinds.iter_mut().flatten().for_each(Bench::finish);
    let [own, alike, pooled] = figures;
    println!(
        "{scheduler}, depth {}, {} at once, {used} in use: own {own:.1} ns of CPU per I/O, \
         one disk with as many clients {alike:.1} ns, pool {pooled:.1} ns; \
         more than own {than_own:.1} ns, than the one disk {than_alike:.1} ns",
        work.depth, work.batch
    );
    than_alike.median()
}

/// CPU time for each read, ns, while the disks take turns by batches.
fn run(benches: &mut [Bench], work: Work) -> f64 {
    let began = thread_time();
    let (mut ended, wanted) = (0, work.ios as usize);
    while ended < wanted {
        for bench in &mut *benches {
            ended += bench.pass(work.batch);
        }
    }
    (thread_time() - began).as_nanos() as f64 / ended as f64
}

/// A queue with its lane, and a client for each disk that is used.
struct Bench {
    epoch: Instant,
    lane: Lane,
    clients: Vec<Client>,
}

struct Client {
    submitter: Submitter,
    /// Its buffers; less spare, these are under way.
    depth: usize,
    spare: Vec<Buf>,
    next: u64,
}

impl Bench {
    /// A disk that is no partition, and that so many clients use.
    fn of_disk(scheduler: &str, clients: usize, work: Work) -> Bench {
        let disk = Device::new(config(scheduler), null()).expect("a disk");
        let bell = Bell::new(Box::new(NoWake), clients);
        let lane = disk.open_lane(0, &bell).expect("its lane");
        let clients = (0..clients).map(|seat| Client::of(&disk, &bell, seat, work)).collect();
        Bench { epoch: Instant::now(), lane, clients }
    }

    /// A pool of two disks, of which so many are used.
    fn of_pool(scheduler: &str, used: usize, work: Work) -> Bench {
        let drivers = [null(), null()];
        let driver = Arc::new(Pool::for_drivers(&drivers));
        let pool = Device::new(config(scheduler), driver).expect("a pool");
        let bell = Bell::new(Box::new(NoWake), 2);
        let mut names = ["one", "other"].into_iter();
        let partitions = drivers.map(|driver| {
            let name = String::from(names.next().expect("one for each"));
            let config = Config { name, ..Config::default() };
            pool.open_partition(config, driver).expect("a partition")
        });
        let lane = pool.open_lane(0, &bell).expect("its lane");
        let of = |(seat, disk)| Client::of(disk, &bell, seat, work);
        let clients = partitions.iter().take(used).enumerate().map(of).collect();
        Bench { epoch: Instant::now(), lane, clients }
    }

    /// A batch in and what is answered out, of each client; how many ended.
    fn pass(&mut self, batch: usize) -> usize {
        let now = Nanos(self.epoch.elapsed().as_nanos() as u64);
        for client in &mut self.clients {
            client.submit(batch, now);
        }
        self.lane.run(now);
        self.clients.iter_mut().map(|client| client.complete(now)).sum()
    }

    /// Waits for what is under way: a lane that is dropped has none.
    fn finish(&mut self) {
        while self.clients.iter().any(|client| client.spare.len() < client.depth) {
            self.pass(0);
        }
    }
}

impl Client {
    fn of(disk: &Device, bell: &Arc<Bell>, seat: usize, work: Work) -> Client {
        let submitter = disk.submitter(bell, seat, 0).expect("a submitter");
        let spare = (0..work.depth).map(|_| Buf::zeroed(BLOCK)).collect();
        Client { submitter, depth: work.depth, spare, next: 1 }
    }

    fn submit(&mut self, batch: usize, now: Nanos) {
        for _ in 0..batch {
            let Some(buf) = self.spare.pop() else { break };
            // Far apart, so that none is merged.
            self.next = self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let sector = (self.next >> 33) % (BYTES / 512 / 16) * 16;
            let refused = self.submitter.submit(Bio::read(sector, buf), now);
            assert!(refused.is_ok(), "a slot for each");
        }
        self.submitter.flush_plug(now);
    }

    fn complete(&mut self, now: Nanos) -> usize {
        let spare = &mut self.spare;
        self.submitter.complete(now, |done| spare.extend(done.data.into_spare()))
    }
}

fn null() -> Arc<dyn Driver> {
    Arc::new(Null::new(BYTES).expect("whole sectors").depth(256))
}

fn config(scheduler: &str) -> Config {
    Config {
        name: String::from("bench"),
        scheduler: Some(scheduler.into()),
        nr_requests: (scheduler != "none").then_some(512),
        depth: Some(256),
        timeout_ns: 0,
        ..Config::default()
    }
}

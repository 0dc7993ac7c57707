//! A disk whose power goes at a chosen moment: [`CrashRam`] behind queues that answer late, in
//! another order, with errors, or refuse.
//!
//! `CrashRam` answers everything at the next reap, in order. Here each queue is several of its
//! queues, each reaped at a time of its own: what is late is then late for `CrashRam`'s promises
//! too, which begin with the answer.

use std::sync::{Arc, Mutex};

use weir_bio::{Limits, Nanos, Op, Prng, SECTOR, Status};
pub use weir_local::ram::{Cache, Crash, CrashRam, Store};
use weir_queue::{Affinity, Batch, Done, Driver, DriverError, DriverQueue, Queues, Tag};

/// Queues of `CrashRam` behind one of ours.
const WAYS: usize = 3;

/// The faults before the power fails; percent of requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mishaps {
    /// Given back with a reason.
    pub refused: u32,
    /// Answered with an error; half of them are carried out first.
    pub failed: u32,
    /// Longest answer, ns.
    pub slow_ns: u64,
}

/// The power, and the medium that is left without it.
pub struct Supply {
    ram: CrashRam,
    cut_at: u64,
    seed: u64,
    events: Mutex<Events>,
}

#[derive(Default)]
struct Events {
    count: u64,
    flushes: u64,
    fua: u64,
    crash: Option<Crash>,
}

impl Supply {
    /// A disk of zeros that loses its power after event `cut_at`; `seed` decides what is left of
    /// what was not promised.
    pub fn new(sectors: u64, cache: Cache, cut_at: u64, seed: u64) -> Arc<Supply> {
        let ram = CrashRam::new(sectors * SECTOR, cache).expect("whole sectors");
        Arc::new(Supply { ram, cut_at, seed, events: Mutex::default() })
    }

    /// Something happened, after which the power may go.
    pub fn tick(&self) {
        let mut events = self.events.lock().expect("the events' lock");
        events.count += 1;
        if events.count == self.cut_at {
            events.crash = Some(self.ram.crash(self.seed));
        }
    }

    /// Whether the power is gone. The disk goes on, but its answers count no more.
    pub fn is_cut(&self) -> bool {
        self.events() >= self.cut_at
    }

    /// The number of events so far: bios and answers as their writers see them, and requests and
    /// answers as the disk sees them.
    pub fn events(&self) -> u64 {
        self.events.lock().expect("the events' lock").count
    }

    /// Flushes and FUA writes the disk took.
    pub fn barriers(&self) -> (u64, u64) {
        let events = self.events.lock().expect("the events' lock");
        (events.flushes, events.fua)
    }

    /// The images found afterwards. A power that has not gone yet goes now.
    pub fn crash(&self) -> Crash {
        let crash = self.events.lock().expect("the events' lock").crash.take();
        crash.unwrap_or_else(|| self.ram.crash(self.seed))
    }
}

/// The driver of a [`Supply`]'s disk.
pub struct Disk {
    /// Its power.
    pub supply: Arc<Supply>,
    /// Its queues.
    pub queues: Queues,
    /// Most sectors of a request.
    pub max_sectors: u32,
    /// The faults before the power fails.
    pub mishaps: Mishaps,
    /// The seed of its choices.
    pub seed: u64,
}

impl Disk {
    /// Tags and threads as a path wants them.
    pub fn queues(depth: u16, shared_tags: bool, home: Affinity) -> Queues {
        Queues { max: 64, depth, reserved: 0, shared_tags, home }
    }
}

impl Driver for Disk {
    fn limits(&self) -> Limits {
        Limits { max_hw_sectors: self.max_sectors, ..self.supply.ram.limits() }
    }

    fn queues(&self) -> Queues {
        self.queues
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let open = |_| Ok(Way { queue: self.supply.ram.open(index, depth)?, due: None });
        Ok(Box::new(DiskQueue {
            supply: Arc::clone(&self.supply),
            ways: (0..WAYS).map(open).collect::<Result<_, DriverError>>()?,
            spoilt: vec![false; usize::from(depth)],
            undone: Vec::new(),
            below: Done::default(),
            mishaps: self.mishaps,
            prng: Prng::new(self.seed ^ u64::from(index)),
        }))
    }
}

/// A queue of `CrashRam`, and when it is reaped next.
struct Way {
    queue: Box<dyn DriverQueue>,
    due: Option<Nanos>,
}

struct DiskQueue {
    supply: Arc<Supply>,
    ways: Vec<Way>,
    /// By tag: carried out, and answered with an error all the same.
    spoilt: Vec<bool>,
    /// Never carried out, answered with an error at this time.
    undone: Vec<(Nanos, Tag)>,
    below: Done,
    mishaps: Mishaps,
    prng: Prng,
}

impl DiskQueue {
    fn later(&mut self, now: Nanos) -> Nanos {
        now + self.prng.below(self.mishaps.slow_ns + 1)
    }

    fn refusal(&mut self) -> Option<Status> {
        if !self.prng.percent(self.mishaps.refused) {
            return None;
        }
        let promised = self.in_flight() > 0 && self.prng.percent(50);
        Some(if promised { Status::DevResource } else { Status::Resource })
    }

    fn reap_way(&mut self, index: usize, done: &mut Done) {
        let way = &mut self.ways[index];
        way.due = None;
        way.queue.reap(Nanos::ZERO, &mut self.below);
        for (tag, status, _) in self.below.drain() {
            let spoilt = self.spoilt[usize::from(tag.0)];
            done.push(tag, if spoilt { Status::IoErr } else { status });
        }
        self.supply.tick();
    }
}

impl DriverQueue for DiskQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            let (op, fua) = (request.op(), request.flags().has(weir_bio::Flags::FUA));
            if let Some(reason) = self.refusal() {
                return batch.refuse(reason);
            }
            let due = self.later(now);
            let fails = self.prng.percent(self.mishaps.failed);
            if fails && self.prng.percent(50) {
                self.undone.push((due, tag));
                batch.take();
            } else {
                self.spoilt[usize::from(tag.0)] = fails;
                let way = &mut self.ways[self.prng.below(WAYS as u64) as usize];
                way.due.get_or_insert(due);
                batch.offer(1, |one| way.queue.submit(one, now));
                let mut events = self.supply.events.lock().expect("the events' lock");
                events.flushes += u64::from(op == Op::Flush);
                events.fua += u64::from(fua);
            }
            self.supply.tick();
        }
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        let first = self.prng.below(WAYS as u64) as usize;
        for index in (first..WAYS).chain(0..first) {
            if self.ways[index].due.is_some_and(|due| due <= now) {
                self.reap_way(index, done);
            }
        }
        for (_, tag) in self.undone.extract_if(.., |(due, _)| *due <= now) {
            done.push(tag, Status::IoErr);
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        let ways = self.ways.iter().filter_map(|way| way.due);
        ways.chain(self.undone.iter().map(|(due, _)| *due)).min()
    }

    fn in_flight(&self) -> usize {
        self.ways.iter().map(|way| way.queue.in_flight()).sum::<usize>() + self.undone.len()
    }
}

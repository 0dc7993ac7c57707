//! A simulated device that holds whatever reaches it against the limits and the contract, and
//! misbehaves as its plan says: refuses, fails, answers late, in another order or never, lends.
//!
//! It panics on a violation. All of its time is virtual.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use weir_bio::{Data, Flags, Limits, Nanos, Op, Prng, RqId, Size, Status};
use weir_queue::{Affinity, Batch, Cancel, Done, Driver, DriverError, DriverQueue, Queues, Tag};

mod world;

/// The faults; percent of requests unless it says otherwise.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Given back with a reason.
    pub refused: u32,
    /// Refusals in all: failures are finite.
    pub refusals_max: u32,
    /// Answered with an error; half of them are carried out all the same.
    pub failed: u32,
    /// The errors, each as likely.
    pub errors: Vec<Status>,
    /// Longest ordinary answer, ns.
    pub slow_ns: u64,
    /// Answered only after very long.
    pub late: u32,
    /// How long that is at most, ns.
    pub late_ns: u64,
    /// Never answered, unless cancelled. Half of what they change they change all the same, at any
    /// time.
    pub lost: u32,
    /// So long after it came a request changes nothing any more, and is answered with TRANSPORT if
    /// at all: the bound of a transport, ns; 0: there is none.
    pub bound_ns: u64,
    /// Of the cancelled ones whose memory is not lent: forgotten at once.
    pub cancel_done: u32,
    /// Of the lost ones whose cancel is pending: answered after all.
    pub found: u32,
    /// Of the cancelled ones that are answered, or were forgotten: answered once more.
    pub twice: u32,
    /// Lanes that answer nothing for some time: lane, from when, until when.
    pub silences: Vec<(usize, Nanos, Nanos)>,
    /// When lanes say that their device cannot be reached, in the same form.
    pub outages: Vec<(usize, Nanos, Nanos)>,
    /// Keeps the memory until it answers.
    pub lent: u32,
    /// Answers in any order.
    pub reordered: bool,
    /// Handed back unfinished, to be sent again at once or later.
    pub requeued: u32,
    /// Requeues in all: failures are finite.
    pub requeues_max: u32,
}

impl Plan {
    /// Whether everything well-formed has to succeed.
    pub fn is_kind(&self) -> bool {
        self.failed + self.lost + self.late == 0 && self.silences.is_empty()
    }
}

/// Counts of the requests that arrived.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests taken that carry out bios (no device flush), and the bios in them.
    pub requests: u64,
    /// Bios in them.
    pub bios: u64,
    /// Sectors taken, by op number.
    pub sectors: BTreeMap<Op, u64>,
    /// Device flushes taken.
    pub flushes: u64,
    /// Requests with FUA taken.
    pub fua: u64,
    /// Flags that requests had, any of them.
    pub flags: Flags,
    /// Requests refused.
    pub refusals: u32,
    /// Requests handed back.
    pub requeues: u32,
    /// Requests answered.
    pub answers: u64,
    /// Most in flight at once: on one lane, and in all.
    pub lane_peak: usize,
    /// In all lanes.
    pub peak: usize,
    /// How often each written value arrived.
    pub delivered: BTreeMap<u64, u32>,
    /// Submitters of taken requests, in order, by lane.
    pub order: Vec<Vec<u16>>,
}

/// The sector of a larger device by the sector of this one.
pub type Places = Box<dyn Fn(u64) -> u64 + Send>;

/// The rules in force, and the state of the disk.
pub struct World {
    /// The limits that requests keep.
    pub limits: Limits,
    /// Flushes and FUA may come.
    pub barriers: bool,
    /// The merges that the queue may make, as its setting says.
    pub nomerges: u8,
    /// The faults.
    pub plan: Plan,
    /// The source of choices.
    pub prng: Prng,
    /// Dispatch is stopped: nothing may arrive.
    pub quiesced: bool,
    /// What came and went.
    pub tally: Tally,
    /// Answers are held back whatever is due.
    pub stalled: bool,
    depth: usize,
    disk: Vec<u64>,
    /// Where a sector lies in a larger device, by whose places values are written.
    pub places: Option<Places>,
    lanes: Vec<Line>,
    /// The latest time brought here.
    now: Nanos,
    /// When a request was last answered or handed back.
    pub answered_at: Nanos,
}

/// One queue's side.
#[derive(Default)]
struct Line {
    flying: Vec<Flight>,
    /// The head of what was refused last: it has to come back first.
    refused: Option<RqId>,
    /// Handed back, and not arrived again: these go before what was refused.
    returned: Vec<RqId>,
    /// Answers beyond the first, and when they come.
    ghosts: Vec<(Nanos, Tag)>,
}

struct Flight {
    id: RqId,
    tag: Tag,
    op: Op,
    sector: u64,
    due: Option<Nanos>,
    status: Status,
    lent: Vec<Data>,
    /// Values a write puts down when it is answered.
    effect: Option<Vec<u64>>,
    committed: bool,
    /// Not answered when it is due, but handed back.
    returns: bool,
    /// When the effect of one that is never answered takes place all the same.
    lands_at: Option<Nanos>,
    /// From when on it changes nothing.
    bound: Nanos,
    cancelled: bool,
}

/// The driver.
pub struct Sim {
    world: Arc<Mutex<World>>,
    queues: Queues,
    announced: bool,
}

/// How a simulated device is made.
pub struct Shape {
    /// Its limits, validated by the device.
    pub limits: Limits,
    /// Tags of a queue.
    pub depth: u16,
    /// The queues share one set of tags.
    pub shared_tags: bool,
    /// The threads that may turn a queue.
    pub home: Affinity,
    /// Answers are announced by an event, not by a time.
    pub announced: bool,
    /// The faults.
    pub plan: Plan,
    /// The seed of its choices.
    pub seed: u64,
}

/// Limits that hold together, of a device of so many sectors.
pub fn any_limits(prng: &mut Prng, capacity: u64) -> Limits {
    let mut pick = |of: &[u32]| of[prng.below(of.len() as u64) as usize];
    let block = pick(&[512, 512, 512, 4096]);
    let virt_boundary_mask = u64::from(pick(&[0, 0, 4095]));
    let physical_block_size = pick(&[block, 4096]);
    let max_hw_sectors = pick(&[8, 16, 33, 64]);
    Limits {
        capacity,
        logical_block_size: block,
        physical_block_size,
        max_hw_sectors,
        takes_segments: max_hw_sectors != 16,
        max_segments: pick(&[1, 2, 4, 6]) as u16,
        max_segment_size: pick(&[4096, 8192, 65536]),
        chunk_sectors: pick(&[0, 0, 16, 64]),
        virt_boundary_mask,
        max_hw_discard_sectors: pick(&[0, 16, 40]),
        discard_granularity: pick(&[512, 4096]),
        max_secure_erase_sectors: pick(&[0, 8, 24]),
        max_write_zeroes_sectors: pick(&[0, 8, 32]),
        volatile_cache: pick(&[0, 1]) == 1,
        fua: pick(&[0, 1]) == 1,
        ..Limits::default()
    }
}

impl Sim {
    /// A device of zeros.
    pub fn new(shape: Shape) -> Arc<Sim> {
        let Shape { limits, depth, shared_tags, home, announced, plan, seed } = shape;
        let disk = vec![0; limits.capacity as usize];
        let world = World {
            limits: limits.validate().expect("limits that hold together"),
            barriers: true,
            nomerges: 0,
            plan,
            prng: Prng::new(seed),
            quiesced: false,
            tally: Tally::default(),
            stalled: false,
            depth: usize::from(depth),
            disk,
            places: None,
            lanes: Vec::new(),
            now: Nanos::ZERO,
            answered_at: Nanos::ZERO,
        };
        let queues = Queues { max: 64, depth, reserved: 0, shared_tags, home };
        Arc::new(Sim { world: Arc::new(Mutex::new(world)), queues, announced })
    }

    /// Its state, until the guard is dropped.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("the device's lock")
    }

    /// When lane `index` has an event: in the past means now.
    pub fn event_at(&self, index: usize) -> Option<Nanos> {
        let world = self.world();
        if self.announced && !world.stalled { world.lanes.get(index)?.due() } else { None }
    }

    /// Requests the device holds and will answer by itself.
    pub fn coming(&self) -> usize {
        let world = self.world();
        world.lanes.iter().flat_map(|lane| &lane.flying).filter(|f| f.due.is_some()).count()
    }

    /// Changes with everything that arrives, is refused or is answered.
    pub fn progress(&self) -> u64 {
        let tally = &self.world().tally;
        tally.requests
            + tally.flushes
            + tally.answers
            + u64::from(tally.refusals)
            + u64::from(tally.requeues)
    }

    /// Answers everything that was lost, from `now` on.
    pub fn find_lost(&self, now: Nanos) -> usize {
        let mut world = self.world();
        let lost = world.lanes.iter_mut().flat_map(|lane| &mut lane.flying);
        let lost = lost.filter(|flight| flight.due.is_none());
        lost.map(|flight| flight.due = Some(now)).count()
    }
}

impl Driver for Sim {
    fn limits(&self) -> Limits {
        self.world().limits.clone()
    }

    fn queues(&self) -> Queues {
        self.queues
    }

    /// From now on larger requests may come, and not before.
    fn enlarge(&self, sectors: u64) -> Result<Size, DriverError> {
        let mut world = self.world();
        let capacity = world.limits.capacity.max(sectors);
        world.limits.capacity = capacity;
        world.disk.resize(capacity as usize, 0);
        Ok(world.limits.size())
    }

    fn open(&self, index: u16, _depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let mut world = self.world();
        let index = usize::from(index);
        if world.lanes.len() <= index {
            world.lanes.resize_with(index + 1, Line::default);
            world.tally.order.resize(index + 1, Vec::new());
        }
        // What a queue that was closed would have answered once more, the next one does not.
        world.lanes[index].ghosts.clear();
        let event = self.announced.then(|| std::fs::File::open("/dev/null").unwrap().into());
        Ok(Box::new(SimQueue { world: Arc::clone(&self.world), index, event }))
    }
}

struct SimQueue {
    world: Arc<Mutex<World>>,
    index: usize,
    event: Option<OwnedFd>,
}

impl Line {
    fn due(&self) -> Option<Nanos> {
        let ghosts = self.ghosts.iter().map(|(at, _)| *at);
        self.flying.iter().filter_map(|flight| flight.due).chain(ghosts).min()
    }
}

impl SimQueue {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("the device's lock")
    }
}

impl DriverQueue for SimQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        let mut world = self.world.lock().expect("the device's lock");
        let lane = self.index;
        world.land(now);
        while let Some((tag, request)) = batch.peek() {
            let rq = *request.rq();
            world.check(lane, tag, request);
            let line = &mut world.lanes[lane];
            if let Some(place) = line.returned.iter().position(|id| *id == rq.id) {
                line.returned.remove(place);
            } else if rq.op != Op::Flush
                && let Some(first) = line.refused.take()
            {
                // Unless its time is up, or its lane dies.
                let comes = rq.id == first || !world.plan.is_kind();
                assert!(comes, "{:?} comes before what was refused, {first:?}", rq.id);
            }
            if let Some(reason) = world.refuses(lane) {
                if rq.op != Op::Flush {
                    world.lanes[lane].refused = Some(rq.id);
                }
                return batch.refuse(reason);
            }
            world.take(lane, tag, request, now);
            batch.take();
        }
    }

    fn commit(&mut self, _now: Nanos) {
        let mut world = self.world();
        world.lanes[self.index].flying.iter_mut().for_each(|flight| flight.committed = true);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        let mut world = self.world();
        if world.stalled {
            return;
        }
        world.land(now);
        let ghosts = world.lanes[self.index].ghosts.extract_if(.., |(at, _)| *at <= now);
        ghosts.for_each(|(_, tag)| done.push(tag, Status::Ok));
        let due = |flight: &mut Flight| {
            let is = flight.due.is_some_and(|due| due <= now);
            assert!(!is || flight.committed, "a burst without a doorbell");
            is
        };
        let mut ready: Vec<Flight> = world.lanes[self.index].flying.extract_if(.., due).collect();
        while !ready.is_empty() {
            let next = match world.plan.reordered {
                true => world.prng.below(ready.len() as u64) as usize,
                false => 0,
            };
            let flight = ready.remove(next);
            world.answer(self.index, flight, done);
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        let mut world = self.world();
        let (done, found) = (world.plan.cancel_done, world.plan.found);
        let forgets = world.prng.percent(done);
        let finds = world.prng.percent(found);
        let after = world.now + world.prng.below(3_000_000_000);
        let flying = &mut world.lanes[self.index].flying;
        let index = flying.iter().position(|flight| flight.tag == tag).expect("a tag that is out");
        if forgets && flying[index].lent.is_empty() {
            flying.remove(index);
            world.haunt(self.index, tag);
            return Cancel::Done;
        }
        flying[index].cancelled = true;
        if finds && flying[index].due.is_none() {
            flying[index].due = Some(after);
        }
        Cancel::Pending
    }

    fn wake_at(&self) -> Option<Nanos> {
        // Never "at the next reap": a lane that waits for nothing must be seen to sleep.
        let world = self.world();
        match &self.event {
            Some(_) => None,
            None if world.stalled => Some(Nanos(u64::MAX)),
            None => world.lanes[self.index].due().or(Some(Nanos(u64::MAX))),
        }
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }

    fn outage_until(&self) -> Option<Nanos> {
        let world = self.world();
        let is_on = |(lane, from, to): &&(usize, Nanos, Nanos)| {
            *lane == self.index && *from <= world.now && world.now < *to
        };
        world.plan.outages.iter().find(is_on).map(|(_, _, to)| *to)
    }

    fn in_flight(&self) -> usize {
        self.world().lanes[self.index].flying.len()
    }
}

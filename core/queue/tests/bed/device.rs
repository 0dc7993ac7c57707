//! A simulated device that holds whatever reaches it against the limits and the contract, and
//! misbehaves as its plan says: refuses, fails, answers late, in another order or never, lends.
//!
//! It panics on a violation. All of its time is virtual.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use weir_bio::{Data, Flags, Limits, Nanos, Op, Prng, Rq, RqId, SECTOR, Size, Status};
use weir_queue::{
    Affinity, Batch, Cancel, Done, Driver, DriverError, DriverQueue, Queues, Request, Tag,
};

use super::put;

/// The faults; percent of requests unless it says otherwise.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub refused: u32,
    /// Refusals in all: failures are finite.
    pub refusals_max: u32,
    pub failed: u32,
    pub errors: Vec<Status>,
    /// Longest ordinary answer, ns.
    pub slow_ns: u64,
    /// Answered only after very long.
    pub late: u32,
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
    pub lent: u32,
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
    pub bios: u64,
    /// Sectors taken, by op number.
    pub sectors: BTreeMap<Op, u64>,
    pub flushes: u64,
    pub fua: u64,
    /// Flags that requests had, any of them.
    pub flags: Flags,
    pub refusals: u32,
    pub requeues: u32,
    pub answers: u64,
    /// Most in flight at once: on one lane, and in all.
    pub lane_peak: usize,
    pub peak: usize,
    /// How often each written value arrived.
    pub delivered: BTreeMap<u64, u32>,
    /// Submitters of taken requests, in order, by lane.
    pub order: Vec<Vec<u16>>,
}

/// The rules in force, and the state of the disk.
pub struct World {
    pub limits: Limits,
    pub barriers: bool,
    pub nomerges: u8,
    pub plan: Plan,
    pub prng: Prng,
    /// Dispatch is stopped: nothing may arrive.
    pub quiesced: bool,
    pub tally: Tally,
    /// Answers are held back whatever is due.
    pub stalled: bool,
    depth: usize,
    disk: Vec<u64>,
    /// Where the device begins in a larger one that is written to by values of places.
    pub base: u64,
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
    sectors: u32,
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
    pub limits: Limits,
    pub depth: u16,
    pub shared_tags: bool,
    pub home: Affinity,
    /// Answers are announced by an event, not by a time.
    pub announced: bool,
    pub plan: Plan,
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
            base: 0,
            lanes: Vec::new(),
            now: Nanos::ZERO,
            answered_at: Nanos::ZERO,
        };
        let queues = Queues { max: 64, depth, reserved: 0, shared_tags, home };
        Arc::new(Sim { world: Arc::new(Mutex::new(world)), queues, announced })
    }

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

impl World {
    /// From now on nothing goes wrong.
    pub fn calm_down(&mut self) {
        self.plan = Plan::default();
        self.lanes.iter_mut().for_each(|lane| lane.refused = None);
    }

    fn in_flight(&self) -> usize {
        self.lanes.iter().map(|lane| lane.flying.len()).sum()
    }

    fn refuses(&mut self, lane: usize) -> Option<Status> {
        if self.tally.refusals >= self.plan.refusals_max || !self.prng.percent(self.plan.refused) {
            return None;
        }
        self.tally.refusals += 1;
        let coming = self.lanes[lane].due().is_some();
        let promised = coming && self.prng.percent(50);
        Some(if promised { Status::DevResource } else { Status::Resource })
    }

    /// Everything a request has to be, whatever was submitted.
    fn check(&self, lane: usize, tag: Tag, request: &mut Request) {
        let rq = *request.rq();
        let limits = &self.limits;
        assert!(!self.quiesced, "{rq:?} arrives while the device is quiesced");
        let tags = &self.lanes[lane].flying;
        assert!(tags.iter().all(|flight| flight.tag != tag), "tag {} is out already", tag.0);
        assert!(usize::from(tag.0) < self.depth, "tag {} of {}", tag.0, self.depth);
        assert!(!rq.flags.has(Flags::PREFLUSH), "a preflush is the flush machine's, not ours");
        if rq.op == Op::Flush {
            assert!(limits.volatile_cache && self.barriers, "a flush that nobody needs");
            assert_eq!(rq.sectors, 0);
            return;
        }
        assert!(rq.sectors > 0, "an empty request");
        assert!(rq.end() <= limits.capacity, "{rq:?} ends beyond the device");
        let block = u64::from(limits.block_sectors());
        assert_eq!((rq.sector % block, u64::from(rq.sectors) % block), (0, 0), "{rq:?}");
        if rq.flags.has(Flags::FUA) {
            assert!(limits.fua && self.barriers, "FUA to a device without it");
        }
        let most = match rq.op {
            Op::Read | Op::Write => limits.max_sectors(),
            Op::Discard => limits.max_discard_sectors(),
            Op::SecureErase => limits.max_secure_erase_sectors,
            Op::WriteZeroes => limits.max_write_zeroes_sectors,
            Op::Prefetch => u32::MAX,
            Op::Flush | Op::DrvIn | Op::DrvOut => 0,
        };
        assert!(rq.sectors <= most, "{rq:?} is above {most} sectors");
        let whole = self.nomerges == 2 || rq.flags.has(Flags::FUA);
        assert!(!whole || request.bios() == 1, "{rq:?} is merged");
        if rq.op.has_data() {
            self.check_memory(request);
        }
    }

    fn check_memory(&self, request: &mut Request) {
        let (rq, limits) = (*request.rq(), &self.limits);
        if limits.chunk_sectors != 0 {
            let chunk = u64::from(limits.chunk_sectors);
            assert_eq!(rq.sector / chunk, (rq.end() - 1) / chunk, "{rq:?} crosses a chunk");
        }
        let (mut bytes, mut segments, mut end) = (0, 0, None::<u64>);
        let mut piece = |start: u64, len: u64| {
            let gap = end.is_some_and(|end: u64| (end | start) & limits.virt_boundary_mask != 0);
            assert!(!gap, "a gap inside {rq:?}");
            end = Some(start + len);
            bytes += len;
            segments += len.div_ceil(u64::from(limits.max_segment_size));
        };
        request.for_each_data(|data| {
            let taken = limits.takes_segments || data.bufs().is_some();
            assert!(taken, "{data:?} in {rq:?} for a driver that takes none");
            let each = data.segments();
            each.for_each(|each| piece(each.start.as_ptr() as u64, u64::from(each.len)));
        });
        assert_eq!(bytes, u64::from(rq.sectors) * SECTOR, "memory of {rq:?}");
        let most = u64::from(limits.max_segments);
        assert!(segments <= most, "{rq:?} has {segments} segments of {most}");
    }

    fn count(&mut self, lane: usize, request: &Request) {
        let rq = request.rq();
        if rq.op == Op::Flush {
            self.tally.flushes += 1;
        } else {
            self.tally.requests += 1;
            self.tally.bios += request.bios() as u64;
            *self.tally.sectors.entry(rq.op).or_default() += u64::from(rq.sectors);
            self.tally.order[lane].push(rq.id.submitter().0);
        }
        self.tally.flags |= rq.flags;
        self.tally.fua += u64::from(rq.flags.has(Flags::FUA));
    }

    fn due(&mut self, lane: usize, now: Nanos) -> Option<Nanos> {
        let is_on = |(which, from, to): &&(usize, Nanos, Nanos)| {
            *which == lane && *from <= now && now < *to
        };
        if let Some((_, _, to)) = self.plan.silences.iter().find(is_on) {
            let after = self.prng.below(self.plan.slow_ns + 1);
            return (*to < Nanos(u64::MAX)).then(|| *to + after);
        }
        if self.prng.percent(self.plan.lost) {
            return None;
        }
        let most = match self.prng.percent(self.plan.late) {
            true => self.plan.late_ns,
            false => self.plan.slow_ns,
        };
        Some(now + self.prng.below(most + 1))
    }

    /// Takes a request over. A read into memory that is not lent is carried out now.
    fn take(&mut self, lane: usize, tag: Tag, request: &mut Request, now: Nanos) {
        let rq = *request.rq();
        if self.tally.requeues < self.plan.requeues_max && self.prng.percent(self.plan.requeued) {
            return self.take_to_return(lane, tag, request, now);
        }
        self.count(lane, request);
        let mut status = Status::Ok;
        if self.prng.percent(self.plan.failed) {
            status = self.plan.errors[self.prng.below(self.plan.errors.len() as u64) as usize];
        }
        let due = self.due(lane, now);
        let lands = due.is_none() && self.prng.percent(50);
        let bound_ns = self.plan.bound_ns;
        let within = if bound_ns == 0 { 8_000_000_000 } else { bound_ns };
        let lands_at = lands.then(|| now + self.prng.below(within));
        let mut effect = self.effect(request).filter(|_| status.is_ok() || self.prng.percent(50));
        if self.prng.percent(50)
            && let Some(values) = effect.take()
        {
            self.put_down(rq.sector, &values);
        }
        let mut lent = Vec::new();
        if self.prng.percent(self.plan.lent) {
            request.lend(&mut lent);
        } else if rq.op == Op::Read {
            let mut at = rq.sector;
            request.for_each_data(|data| at = self.read_into(data, at));
        }
        let Rq { id, sector, sectors, op, .. } = rq;
        let (committed, returns, cancelled) = (false, false, false);
        self.fly(
            lane,
            Flight {
                id,
                tag,
                op,
                sector,
                sectors,
                due,
                status,
                lent,
                effect,
                committed,
                returns,
                lands_at,
                bound: if bound_ns == 0 { Nanos(u64::MAX) } else { now + bound_ns },
                cancelled,
            },
        );
    }

    /// Takes a request of which nothing will be done, to hand it back later.
    fn take_to_return(&mut self, lane: usize, tag: Tag, request: &mut Request, now: Nanos) {
        self.tally.requeues += 1;
        let mut lent = Vec::new();
        if self.prng.percent(self.plan.lent) {
            request.lend(&mut lent);
        }
        let Rq { id, sector, sectors, op, .. } = *request.rq();
        let due = Some(now + self.prng.below(self.plan.slow_ns + 1));
        self.fly(
            lane,
            Flight {
                id,
                tag,
                op,
                sector,
                sectors,
                due,
                status: Status::Ok,
                lent,
                effect: None,
                committed: false,
                returns: true,
                lands_at: None,
                bound: Nanos(u64::MAX),
                cancelled: false,
            },
        );
    }

    fn fly(&mut self, lane: usize, flight: Flight) {
        self.lanes[lane].flying.push(flight);
        let here = self.lanes[lane].flying.len();
        assert!(here <= self.depth && self.in_flight() <= self.depth * self.lanes.len());
        self.tally.lane_peak = self.tally.lane_peak.max(here);
        self.tally.peak = self.tally.peak.max(self.in_flight());
    }

    /// The values a request writes, by sector.
    fn effect(&mut self, request: &mut Request) -> Option<Vec<u64>> {
        match request.op() {
            Op::Write => {
                let mut values = Vec::new();
                request.for_each_data(|data| values.extend(super::values(data)));
                for (at, value) in (self.base + request.rq().sector..).zip(&values) {
                    assert_eq!(value & 0xff_ffff, at + 1, "bytes of another place at {at}");
                    *self.tally.delivered.entry(*value).or_default() += 1;
                }
                Some(values)
            }
            Op::Discard | Op::SecureErase | Op::WriteZeroes => {
                Some(vec![0; request.rq().sectors as usize])
            }
            _ => None,
        }
    }

    fn put_down(&mut self, sector: u64, values: &[u64]) {
        self.disk[sector as usize..][..values.len()].copy_from_slice(values);
    }

    fn read_into(&self, data: &mut Data, mut at: u64) -> u64 {
        let mut sector = [0; 512];
        for place in (0..data.len()).step_by(512) {
            data.copy_to_at(place, &mut sector);
            put(&mut sector, self.disk[at as usize]);
            data.copy_from_at(place, &sector);
            at += 1;
        }
        at
    }

    /// Time goes on; requests that are never answered take effect all the same.
    fn land(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let World { lanes, disk, .. } = self;
        for flight in lanes.iter_mut().flat_map(|lane| &mut lane.flying) {
            if flight.lands_at.is_some_and(|at| at <= now)
                && let Some(values) = flight.effect.take()
            {
                disk[flight.sector as usize..][..values.len()].copy_from_slice(&values);
            }
            if flight.bound <= now {
                (flight.effect, flight.status) = (None, Status::Transport);
            }
        }
    }

    fn answer(&mut self, lane: usize, mut flight: Flight, done: &mut Done) {
        self.tally.answers += 1;
        self.answered_at = self.now;
        if flight.cancelled {
            self.haunt(lane, flight.tag);
        }
        if flight.returns {
            self.lanes[lane].returned.push(flight.id);
            let after = [0, 0, 1, 1_000_000][self.prng.below(4) as usize];
            return done.push_requeue(flight.tag, after, flight.lent);
        }
        if let Some(values) = flight.effect.take() {
            self.put_down(flight.sector, &values);
        }
        if flight.op == Op::Read {
            let mut at = flight.sector;
            flight.lent.iter_mut().for_each(|data| at = self.read_into(data, at));
        }
        if flight.lent.is_empty() {
            done.push(flight.tag, flight.status);
        } else {
            done.push_lent(flight.tag, flight.status, &mut flight.lent);
        }
    }
}

impl World {
    /// A cancelled request may be answered once more.
    fn haunt(&mut self, lane: usize, tag: Tag) {
        if self.prng.percent(self.plan.twice) {
            let at = self.now + self.prng.below(3_000_000_000);
            self.lanes[lane].ghosts.push((at, tag));
        }
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

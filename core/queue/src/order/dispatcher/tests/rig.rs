//! Lanes turned by hand, in front of a device that answers when it is let, below a scheduler that
//! can be stopped and that has other lanes take turns while it is asked.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};

use weir_bio::{Bio, Buf, Limits, Nanos, Op, Status};
use weir_laws::watched::{self, Watched};
pub(super) use weir_laws::watched::{ended_at, shut};
use weir_ring::{Changing, NoWake};
use weir_sched::mq::bfq::Bfq;
use weir_sched::mq::deadline::MqDeadline;
use weir_sched::mq::kyber::Kyber;
use weir_sched::{Make, Scheduler, Setup};

use super::super::Dispatcher;
use crate::budget::Budget;
use crate::driver::{
    Affinity, Batch, Done, Driver, DriverError, DriverQueue, Queues, Tag, UNTIL_KICKED,
};
use crate::lanes::ELEVATOR;
use crate::mq::Mq;
use crate::shared::Path;
use crate::{Bell, Config, Device, Lane, Submitter};

/// Sectors from one read to the next: no two merge.
const STEP: u64 = 16;

/// The sector under which a flush is noted.
pub(super) const FLUSH: u64 = u64::MAX;

/// Passes in which lanes have to come to rest while time stands still.
const PASSES_MAX: usize = 200;

/// The state that the queues of the device share.
#[derive(Default)]
pub(super) struct Flow {
    /// Queues that answer nothing, a bit each.
    pub(super) stalled: u64,
    /// By queue: requests it holds, and ever took.
    holds: Vec<usize>,
    pub(super) took: Vec<usize>,
    /// The sectors of all that they took, in that order.
    pub(super) sectors: Vec<u64>,
    /// Of a queue that answers, those that get no answer.
    pub(super) keeps: Option<fn(u64) -> bool>,
    /// Those that are given back once instead, until the driver kicks, which it does at once.
    pub(super) gives_back: Vec<u64>,
    /// Queues that are opened from now on have an event of their own.
    pub(super) announces: bool,
}

type Hook = Box<dyn FnMut(usize)>;

thread_local! {
    /// Called with its number when a queue is asked for its answers.
    static REAPED: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// While `work` runs, `reaped` is called whenever a driver queue is asked for its answers.
pub(super) fn while_reaped(reaped: impl FnMut(usize) + 'static, work: impl FnOnce()) {
    REAPED.set(Some(Box::new(reaped)));
    work();
    REAPED.set(None);
}

struct Sluice {
    flow: Arc<Mutex<Flow>>,
    lanes: u16,
    depth: u16,
    budget: Option<Arc<Places>>,
}

/// The places of a device, and the lanes that wait for some. The test has these turned.
#[derive(Default)]
pub(super) struct Places {
    pub(super) free: Mutex<usize>,
    pub(super) waits: Mutex<Vec<u16>>,
}

impl Budget for Places {
    fn get(&self, _lane: u16, wanted: usize) -> usize {
        let mut free = self.free.lock().unwrap();
        let got = wanted.min(*free);
        *free -= got;
        got
    }

    fn put(&self, unused: usize) {
        *self.free.lock().unwrap() += unused;
    }

    fn wait(&self, lane: u16) {
        self.waits.lock().unwrap().push(lane);
    }
}

impl Driver for Sluice {
    fn limits(&self) -> Limits {
        Limits { capacity: 1 << 30, volatile_cache: true, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        let &Sluice { lanes, depth, .. } = self;
        Queues { max: lanes, depth, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn budget(&self) -> Option<Arc<dyn Budget>> {
        self.budget.clone().map(|places| places as Arc<dyn Budget>)
    }

    fn open(&self, index: u16, _depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let (flow, index) = (Arc::clone(&self.flow), usize::from(index));
        let (announces, budget) = (self.flow.lock().unwrap().announces, self.budget.clone());
        Ok(Box::new(Gated { flow, index, held: Vec::new(), budget, announces }))
    }
}

struct Gated {
    flow: Arc<Mutex<Flow>>,
    index: usize,
    /// With the sector of each.
    held: Vec<(Tag, u64)>,
    budget: Option<Arc<Places>>,
    announces: bool,
}

impl DriverQueue for Gated {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        let mut flow = self.flow.lock().unwrap();
        batch.take_all(|tag, request| {
            let sector = if request.op() == Op::Flush { FLUSH } else { request.rq().sector };
            flow.sectors.push(sector);
            self.held.push((tag, sector));
        });
        flow.took[self.index] += self.held.len() - flow.holds[self.index];
        flow.holds[self.index] = self.held.len();
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        if let Some(mut reaped) = REAPED.take() {
            reaped(self.index);
            REAPED.set(Some(reaped));
        }
        let mut flow = self.flow.lock().unwrap();
        if flow.stalled & 1 << self.index != 0 {
            return;
        }
        let (before, keeps) = (self.held.len(), flow.keeps);
        self.held.retain(|&(tag, sector)| {
            if let Some(at) = flow.gives_back.iter().position(|back| *back == sector) {
                flow.gives_back.remove(at);
                done.push_requeue(tag, UNTIL_KICKED, Vec::new());
                done.kick();
            } else if keeps.is_some_and(|keeps| keeps(sector)) {
                return true;
            } else {
                done.push(tag, Status::Ok);
            }
            false
        });
        flow.holds[self.index] = self.held.len();
        if let Some(places) = &self.budget {
            places.put(before - self.held.len());
        }
    }

    fn announces(&self) -> bool {
        self.announces
    }

    /// Never by itself: the test that turns the lane knows when it answers.
    fn wake_at(&self) -> Option<Nanos> {
        Some(Nanos(u64::MAX))
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }
}

pub(super) fn kyber(setup: &Setup) -> Box<dyn Scheduler> {
    Box::new(Watched::new(Kyber::new(setup)))
}

pub(super) fn deadline(setup: &Setup) -> Box<dyn Scheduler> {
    Box::new(Watched::new(MqDeadline::new(setup)))
}

pub(super) fn bfq(setup: &Setup) -> Box<dyn Scheduler> {
    Box::new(Watched::new(Bfq::new(setup)))
}

/// While `work` runs, `asked` is called whenever a hard queue is picked for.
pub(super) fn while_asked(asked: impl FnMut(u16) + 'static, work: impl FnOnce()) {
    watched::on_asked(asked);
    work();
    watched::on_asked_nothing();
}

pub(super) fn bell() -> Arc<Bell> {
    Bell::new(Box::new(NoWake), 64)
}

/// The path that every device here has.
pub(super) fn mq(device: &Device) -> &Mq {
    let Path::Mq(mq) = &device.shared.path else { panic!("it is multi-queue") };
    mq
}

/// The right, held without any work; to be dropped in silence.
pub(super) fn hold(device: &Device) -> Changing<'_, Dispatcher> {
    mq(device).dispatcher.try_take().expect("nobody has the right")
}

/// A lane and its submitter.
pub(super) struct Seat {
    pub(super) lane: Option<Lane>,
    pub(super) submitter: Submitter,
    pub(super) sent: usize,
    pub(super) ended: usize,
}

/// Lanes with a submitter each, all turned by this thread.
pub(super) struct Rig {
    pub(super) device: Device,
    flow: Arc<Mutex<Flow>>,
    pub(super) bells: Vec<Arc<Bell>>,
    pub(super) seats: Vec<Rc<RefCell<Seat>>>,
    pub(super) now: Nanos,
}

impl Rig {
    /// Lanes on homes of their own.
    pub(super) fn new(make: Make, lanes: usize, depth: u16, nr_requests: u16) -> Rig {
        let bells = (0..lanes).map(|_| bell()).collect();
        Rig::with_bells(make, bells, depth, nr_requests)
    }

    /// The same in front of a device with so many places.
    pub(super) fn with_places(make: Make, lanes: usize, free: usize) -> (Rig, Arc<Places>) {
        let places = Arc::new(Places { free: Mutex::new(free), ..Places::default() });
        let bells = (0..lanes).map(|_| bell()).collect();
        (Rig::build(make, bells, (64, 512), Some(Arc::clone(&places))), places)
    }

    /// A lane for each bell, all open and at rest.
    pub(super) fn with_bells(
        make: Make,
        bells: Vec<Arc<Bell>>,
        depth: u16,
        nr_requests: u16,
    ) -> Rig {
        Rig::build(make, bells, (depth, nr_requests), None)
    }

    fn build(
        make: Make,
        bells: Vec<Arc<Bell>>,
        (depth, nr_requests): (u16, u16),
        budget: Option<Arc<Places>>,
    ) -> Rig {
        shut(false);
        let lanes = bells.len();
        let (holds, took) = (vec![0; lanes], vec![0; lanes]);
        let flow = Arc::new(Mutex::new(Flow { holds, took, ..Flow::default() }));
        let driver = Sluice { flow: Arc::clone(&flow), lanes: lanes as u16, depth, budget };
        let config = Config {
            queues: lanes as u16,
            nr_requests: Some(nr_requests),
            timeout_ns: 0,
            ..Config::default()
        };
        let device = Device::with_scheduler(config, Arc::new(driver), make).unwrap();
        let seat = |(index, bell): (usize, &Arc<Bell>)| {
            let lane = Some(device.open_lane(index, bell).unwrap());
            let submitter = device.submitter(bell, index, index).unwrap();
            Rc::new(RefCell::new(Seat { lane, submitter, sent: 0, ended: 0 }))
        };
        let seats = bells.iter().enumerate().map(seat).collect();
        let mut rig = Rig { device, flow, bells, seats, now: Nanos::from_ms(1) };
        rig.run();
        rig
    }

    pub(super) fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap()
    }

    /// Reads that go to this lane's submitter's ring; the lane is not turned.
    pub(super) fn read(&self, lane: usize, count: usize) {
        read(&self.seats[lane], lane, count, self.now);
    }

    pub(super) fn step(&self, lane: usize) {
        step(&self.seats[lane], self.now);
    }

    /// This lane is told to go to the elevator, and does.
    pub(super) fn step_told(&self, lane: usize) {
        mq(&self.device).lanes.kick(lane, ELEVATOR);
        self.step(lane);
    }

    pub(super) fn wake_at(&self, lane: usize) -> Option<Nanos> {
        let seat = self.seats[lane].borrow();
        let at = seat.lane.as_ref().and_then(Lane::wake_at);
        at.filter(|at| *at != Nanos(u64::MAX))
    }

    pub(super) fn has_work(&self, lane: usize) -> bool {
        self.seats[lane].borrow().lane.as_ref().is_some_and(Lane::has_work)
    }

    /// Whether the lane's home would turn it now.
    pub(super) fn is_due(&self, lane: usize) -> bool {
        let answers = {
            let flow = self.flow();
            flow.stalled & 1 << lane == 0 && flow.holds[lane] > 0
        };
        answers || self.has_work(lane) || self.wake_at(lane).is_some_and(|at| at <= self.now)
    }

    /// Turns each lane and submitter that has a reason, until none has. Time stands still.
    pub(super) fn run(&mut self) {
        for _ in 0..PASSES_MAX {
            let due: Vec<usize> = (0..self.seats.len()).filter(|lane| self.is_due(*lane)).collect();
            if due.is_empty() {
                return;
            }
            due.into_iter().for_each(|lane| self.step(lane));
        }
        panic!("lanes turn without end at {:?}", self.now);
    }

    /// Turns who has a reason, up to and at this time.
    pub(super) fn run_until(&mut self, end: Nanos) {
        loop {
            self.run();
            let next = (0..self.seats.len()).filter_map(|lane| self.wake_at(lane)).min();
            match next.filter(|at| *at <= end) {
                Some(at) => self.now = at,
                None => break,
            }
        }
        self.now = end;
        self.run();
    }

    /// Reads of this lane's submitter that have ended.
    pub(super) fn ended(&self, lane: usize) -> usize {
        let mut seat = self.seats[lane].borrow_mut();
        take_ended(&mut seat, self.now);
        seat.ended
    }

    /// Requests in the scheduler.
    pub(super) fn staged(&self) -> usize {
        self.device.shared.path.with_elevator(|elevator| elevator.len()).expect("there is one")
    }
}

fn take_ended(seat: &mut Seat, now: Nanos) {
    let Seat { submitter, ended, .. } = seat;
    submitter.complete(now, |completion| {
        assert_eq!(completion.status, Status::Ok);
        *ended += 1;
    });
}

pub(super) fn read(seat: &RefCell<Seat>, lane: usize, count: usize, now: Nanos) {
    let mut seat = seat.borrow_mut();
    take_ended(&mut seat, now);
    for _ in 0..count {
        let sector = ((lane as u64) << 24) + seat.sent as u64 * STEP;
        let bio = Bio::read(sector, Buf::zeroed(4096));
        seat.submitter.submit(bio, now).expect("room for a read");
        seat.sent += 1;
    }
    seat.submitter.flush_plug(now);
}

pub(super) fn step(seat: &RefCell<Seat>, now: Nanos) {
    let mut seat = seat.borrow_mut();
    seat.lane.as_mut().expect("it is open").run(now);
}

//! Drivers whose answers come from elsewhere: from a device below, or through the queue of another
//! lane. They have their lane turned through the [`Wake`] they got at home, and no home turns a
//! lane without a reason.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Data, Limits, Nanos, Status};
use weir_laws::device::{Plan, Shape, Sim};
use weir_queue::driver::Affinity;
use weir_queue::{
    Batch, Bell, Config, Device, Done, Driver, DriverError, DriverQueue, Home, QueueMode, Queues,
    Submitter, Tag, UNTIL_KICKED,
};
use weir_ring::{NoWake, Wake};

/// The call that has a queue's lane turned, once the queue is at home.
type LaneOf = Option<Arc<dyn Wake>>;

fn strict() -> Home {
    Home::strict(Bell::with_lanes(Box::new(NoWake), 64))
}

fn limits() -> Limits {
    Limits { capacity: 4096, ..Limits::default() }
}

/// Makes rounds of those homes that have a reason, until none has.
fn run(homes: &mut [&mut Home], now: Nanos, event_at: &dyn Fn(usize, usize) -> bool) {
    for _ in 0..1000 {
        let mut rested = true;
        for (number, home) in homes.iter_mut().enumerate() {
            let heard: Vec<usize> =
                home.lanes().filter(|l| event_at(number, l.index())).map(|l| l.place()).collect();
            heard.iter().for_each(|place| home.hear(*place));
            // Tokens are for the test to look at.
            home.bell().ready().take(|_| {});
            if !heard.is_empty() || home.wants_turn(now) {
                home.turn(now);
                rested = false;
            }
        }
        if rested {
            return;
        }
    }
    panic!("homes do not come to rest");
}

/// A device whose queues send everything on to a device below.
struct Stacked {
    below: Device,
    affinity: Affinity,
}

impl Driver for Stacked {
    fn limits(&self) -> Limits {
        limits()
    }

    fn queues(&self) -> Queues {
        Queues { max: 4, depth: 8, reserved: 0, shared_tags: false, home: self.affinity }
    }

    fn open(&self, index: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let below = self.below.clone();
        Ok(Box::new(StackedQueue { below, index, port: None, tags: VecDeque::new() }))
    }
}

struct StackedQueue {
    below: Device,
    index: u16,
    port: Option<(Arc<Bell>, Submitter)>,
    tags: VecDeque<Tag>,
}

/// Rings for the lane above when something has ended below.
struct Above(Arc<dyn Wake>);

impl Wake for Above {
    fn wake(&self) {
        self.0.wake();
    }
}

impl DriverQueue for StackedQueue {
    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        let bell = Bell::new(Box::new(Above(lane)), 1);
        let submitter = self.below.submitter(&bell, 0, usize::from(self.index)).unwrap();
        // Between two reaps it sleeps, so that a completion wakes the lane.
        bell.doorbell().prepare_sleep();
        self.port = Some((bell, submitter));
    }

    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        let (_, below) = self.port.as_mut().expect("it is at home");
        let tags = &mut self.tags;
        batch.take_all(|tag, request| {
            let rq = *request.rq();
            let mut data = Vec::new();
            request.lend(&mut data);
            let data = data.into_iter().next().unwrap_or(Data::None);
            let bio = Bio::new(rq.op, rq.sector, rq.sectors, data).cookie(u64::from(tag.0));
            below.submit(bio, now).expect("room below");
            tags.push_back(tag);
        });
    }

    fn commit(&mut self, now: Nanos) {
        self.port.as_mut().expect("it is at home").1.flush_plug(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        let Some((bell, below)) = &mut self.port else { return };
        bell.doorbell().awake();
        loop {
            let tags = &mut self.tags;
            below.complete(now, |ended| {
                let place = tags.iter().position(|tag| u64::from(tag.0) == ended.cookie);
                let tag = tags.remove(place.expect("a tag that is out")).expect("counted");
                done.push_lent(tag, ended.status, &mut vec![ended.data]);
            });
            // Announced before it looks again: what ends from now on rings.
            bell.doorbell().prepare_sleep();
            if !below.has_completions() {
                return;
            }
        }
    }

    fn announces(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        self.tags.len()
    }
}

#[test]
fn a_completion_below_has_the_lane_above_turned() {
    for (mode, affinity) in [
        (QueueMode::Mq, Affinity::Any),
        (QueueMode::Mq, Affinity::Fixed),
        (QueueMode::Sq, Affinity::Fixed),
    ] {
        let (depth, shared_tags, announced, seed) = (8, false, true, 1);
        let plan = Plan { slow_ns: 1_000, ..Plan::default() };
        let home = Affinity::Any;
        let shape = Shape { limits: limits(), depth, shared_tags, home, announced, plan, seed };
        let sim = Sim::new(shape);
        let below = Device::new(Config::default(), Arc::clone(&sim) as Arc<_>).unwrap();
        let (mut lower, mut upper) = (strict(), strict());
        lower.open(&below, 0).unwrap();
        let scheduler = Some(String::from(if mode == QueueMode::Sq { "noop" } else { "none" }));
        let config = Config { mode, scheduler, timeout_ns: 0, ..Config::default() };
        let above = Device::new(config, Arc::new(Stacked { below, affinity })).unwrap();
        upper.open(&above, 0).unwrap();
        let mut submitter = above.submitter(upper.bell(), 0, 0).unwrap();
        let mut now = Nanos(1);
        for round in 0..20 {
            for n in 0..4 {
                let read = Bio::read((round * 4 + n) * 16, Buf::zeroed(4096));
                submitter.submit(read, now).expect("room for a read");
            }
            submitter.flush_plug(now);
            run(&mut [&mut upper, &mut lower], now, &|_, _| false);
            assert_eq!(submitter.complete(now, drop), 0, "the disk below takes its time");
            now = now + 1_000_000;
            run(&mut [&mut upper, &mut lower], now, &|home, lane| {
                home == 1 && sim.event_at(lane).is_some_and(|at| at <= now)
            });
            let ok = |ended: weir_queue::Completion| assert_eq!(ended.status, Status::Ok);
            assert_eq!(submitter.complete(now, ok), 4, "{mode:?} {affinity:?} round {round}");
        }
    }
}

/// Queues that share a connection: the answers of all come to whichever reaps first.
struct Shared(Arc<Mutex<Connection>>);

#[derive(Default)]
struct Connection {
    /// By queue: who has it turned, and what was answered to it and not reaped.
    ends: Vec<(LaneOf, Vec<Tag>)>,
    under_way: Vec<(usize, Tag)>,
}

struct SharedQueue(Arc<Mutex<Connection>>, usize, usize);

impl Driver for Shared {
    fn limits(&self) -> Limits {
        limits()
    }

    fn queues(&self) -> Queues {
        let home = Affinity::Any;
        Queues { max: 2, depth: 8, reserved: 0, shared_tags: false, home }
    }

    fn open(&self, index: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.0.lock().unwrap().ends.resize_with(2, Default::default);
        Ok(Box::new(SharedQueue(Arc::clone(&self.0), usize::from(index), 0)))
    }
}

impl DriverQueue for SharedQueue {
    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.0.lock().unwrap().ends[self.1].0 = Some(lane);
    }

    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        let mut connection = self.0.lock().unwrap();
        batch.take_all(|tag, _| connection.under_way.push((self.1, tag)));
        self.2 = connection.under_way.iter().filter(|(queue, _)| *queue == self.1).count();
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        let connection = &mut *self.0.lock().unwrap();
        for (queue, tag) in connection.under_way.drain(..) {
            let (lane, answered) = &mut connection.ends[queue];
            answered.push(tag);
            if queue != self.1 {
                lane.as_ref().expect("it is at home").wake();
            }
        }
        connection.ends[self.1].1.drain(..).for_each(|tag| done.push(tag, Status::Ok));
        self.2 = 0;
    }

    fn announces(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        self.2
    }
}

#[test]
fn a_queue_that_finds_answers_of_another_lane_has_that_turned() {
    for one_home in [true, false] {
        let config = Config { queues: 2, timeout_ns: 0, ..Config::default() };
        let device = Device::new(config, Arc::new(Shared(Arc::default()))).unwrap();
        let (mut one, mut other) = (strict(), strict());
        one.open(&device, 0).unwrap();
        if one_home { &mut one } else { &mut other }.open(&device, 1).unwrap();
        let now = Nanos(1);
        run(&mut [&mut one, &mut other], now, &|_, _| false);
        let mut second = device.submitter(one.bell(), 1, 1).unwrap();
        second.submit(Bio::read(0, Buf::zeroed(4096)), now).expect("room for a read");
        second.flush_plug(now);
        run(&mut [&mut one, &mut other], now, &|_, _| false);
        assert_eq!(second.complete(now, drop), 0, "no home looks for it");
        // The event of lane 0.
        one.hear(device_place(&one));
        one.turn(now);
        run(&mut [&mut one, &mut other], now, &|_, _| false);
        assert_eq!(second.complete(now, drop), 1, "one home: {one_home}");
    }
}

/// A device that hands everything back until its path is there: the flag.
struct Pathless(Arc<Mutex<(bool, LaneOf)>>);

struct PathlessQueue(Arc<Mutex<(bool, LaneOf)>>, Vec<(Tag, Vec<Data>)>);

impl Driver for Pathless {
    fn limits(&self) -> Limits {
        limits()
    }

    fn queues(&self) -> Queues {
        let home = Affinity::Any;
        Queues { max: 1, depth: 4, reserved: 0, shared_tags: false, home }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(PathlessQueue(Arc::clone(&self.0), Vec::new())))
    }
}

impl DriverQueue for PathlessQueue {
    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.0.lock().unwrap().1 = Some(lane);
    }

    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        batch.take_all(|tag, request| {
            let mut lent = Vec::new();
            request.lend(&mut lent);
            self.1.push((tag, lent));
        });
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        let has_path = self.0.lock().unwrap().0;
        for (tag, mut lent) in self.1.drain(..) {
            match has_path {
                true => done.push_lent(tag, Status::Ok, &mut lent),
                false => done.push_requeue(tag, UNTIL_KICKED, lent),
            }
        }
        if has_path {
            done.kick();
        }
    }

    fn in_flight(&self) -> usize {
        self.1.len()
    }
}

#[test]
fn what_waits_until_it_is_kicked_costs_no_turn_and_comes_when_the_path_is_there() {
    for (mode, scheduler) in
        [(QueueMode::Mq, "none"), (QueueMode::Mq, "mq-deadline"), (QueueMode::Sq, "noop")]
    {
        let state = Arc::new(Mutex::new((false, None)));
        let scheduler = Some(String::from(scheduler));
        let config = Config { mode, scheduler, timeout_ns: 0, ..Config::default() };
        let device = Device::new(config, Arc::new(Pathless(Arc::clone(&state)))).unwrap();
        let mut home = strict();
        home.open(&device, 0).unwrap();
        let mut submitter = device.submitter(home.bell(), 0, 0).unwrap();
        let mut now = Nanos(1);
        for n in 0..6 {
            submitter.submit(Bio::read(n * 64, Buf::zeroed(4096)), now).expect("room for a read");
        }
        submitter.flush_plug(now);
        run(&mut [&mut home], now, &|_, _| false);
        assert_eq!(submitter.complete(now, drop), 0, "{mode:?}");
        assert_eq!(home.wake_at(), None, "it waits for no time");
        now = now + 3_600_000_000_000;
        run(&mut [&mut home], now, &|_, _| false);
        assert_eq!((submitter.complete(now, drop), submitter.in_flight()), (0, 6));
        let lane = {
            let mut state = state.lock().unwrap();
            state.0 = true;
            state.1.clone().expect("it is at home")
        };
        lane.wake();
        run(&mut [&mut home], now, &|_, _| false);
        assert_eq!(submitter.complete(now, drop), 6, "{mode:?}");
    }
}

/// The place of lane 0.
/// A driver that has its lane turned in its first reaps, as one does whose answer comes from
/// another thread just after it has looked.
struct LateAnswer {
    lane: LaneOf,
    reaps: Arc<Mutex<u32>>,
}

struct LateAnswers(Arc<Mutex<u32>>, Affinity);

impl Driver for LateAnswers {
    fn limits(&self) -> Limits {
        limits()
    }

    fn queues(&self) -> Queues {
        Queues { max: 1, depth: 8, reserved: 0, shared_tags: false, home: self.1 }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(LateAnswer { lane: None, reaps: Arc::clone(&self.0) }))
    }
}

impl DriverQueue for LateAnswer {
    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.lane = Some(lane);
    }

    fn submit(&mut self, _: &mut Batch<'_>, _: Nanos) {}

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, _: &mut Done) {
        let mut reaps = self.reaps.lock().unwrap();
        *reaps += 1;
        if *reaps < 10 {
            self.lane.as_ref().expect("at home").wake();
        }
    }

    fn announces(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        0
    }
}

#[test]
fn a_lane_that_is_told_while_its_driver_is_reaped_is_turned_once_more() {
    let ways = [
        (QueueMode::Mq, Affinity::Any),
        (QueueMode::Sq, Affinity::Any),
        (QueueMode::Sq, Affinity::Fixed),
    ];
    for (mode, affinity) in ways {
        let reaps = Arc::default();
        let driver = LateAnswers(Arc::clone(&reaps), affinity);
        let device = Device::new(Config { mode, ..Config::default() }, Arc::new(driver)).unwrap();
        let mut home = strict();
        home.open(&device, 0).unwrap();
        run(&mut [&mut home], Nanos(1), &|_, _| false);
        assert_eq!(*reaps.lock().unwrap(), 10, "{mode:?} {affinity:?}");
    }
}

fn device_place(home: &Home) -> usize {
    home.lanes().find(|lane| lane.index() == 0).expect("lane 0 is here").place()
}

//! A pass of a thread that has a submitter and its lane, under a scheduler: the short way of a lone
//! request comes to what the long one comes to, request by request.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Class, Flags, IoPrio, Limits, Nanos, Op, Prng, Rq, Status};
use weir_local::Null;
use weir_queue::driver::{Affinity, Batch, Done, DriverQueue, Queues, Tag};
use weir_queue::{
    Bell, Completion, Config, Device, Driver, DriverError, Lane, Progress, Refused, Step,
    Submitter, Watch,
};
use weir_sched::{Absorbed, Merge, Scheduler, Setup};

const SCHEDULERS: [&str; 3] = ["mq-deadline", "kyber", "bfq"];

struct Woken(Arc<AtomicUsize>);

impl weir_ring::Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What reached the device, and when.
type Came = Arc<Mutex<Vec<(Op, u64, u32, Nanos)>>>;

/// A device with a volatile cache, which refuses what it has no place for, and answers what came
/// at another time: so many at a time.
#[derive(Clone)]
struct Noting {
    depth: u16,
    places: usize,
    /// Sectors of a request at most.
    sectors_max: u32,
    answers: Arc<AtomicUsize>,
    came: Came,
    /// A sector that gets no answer, while there is one.
    never: Arc<Mutex<Option<u64>>>,
}

impl Noting {
    fn new(depth: u16, places: usize, answers: usize) -> Noting {
        let (answers, sectors_max) = (Arc::new(AtomicUsize::new(answers)), 2_048);
        Noting { depth, places, sectors_max, answers, came: Arc::default(), never: Arc::default() }
    }
}

impl Driver for Noting {
    fn limits(&self) -> Limits {
        let max_hw_sectors = self.sectors_max;
        Limits { volatile_cache: true, max_hw_sectors, ..Limits::of_memory(1 << 20) }
    }

    fn queues(&self) -> Queues {
        let (depth, home) = (self.depth, Affinity::Any);
        Queues { max: 1, depth, reserved: 0, shared_tags: false, home }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(NotingQueue(self.clone(), Vec::new(), (Nanos::ZERO, 0))))
    }
}

/// With what it has, and when it was asked last, with so many answers left for then.
struct NotingQueue(Noting, Vec<(Tag, u64, Nanos)>, (Nanos, usize));

impl DriverQueue for NotingQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        let NotingQueue(noting, held, _) = self;
        while held.len() < noting.places
            && let Some((_, request)) = batch.peek()
        {
            let (op, rq) = (request.op(), *request.rq());
            noting.came.lock().unwrap().push((op, rq.sector, rq.sectors, now));
            let sector = if op == Op::Flush { u64::MAX } else { rq.sector };
            held.push((batch.take(), sector, now));
        }
        if !batch.is_empty() {
            batch.refuse(Status::DevResource);
        }
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        let NotingQueue(noting, held, (asked_at, left)) = self;
        let never = *noting.never.lock().unwrap();
        if now > *asked_at {
            (*asked_at, *left) = (now, noting.answers.load(Ordering::Relaxed));
        }
        held.retain(|(tag, sector, came)| {
            let answers = *left > 0 && *came < now && Some(*sector) != never;
            if answers {
                *left -= 1;
                done.push(*tag, Status::Ok);
            }
            !answers
        });
    }

    fn in_flight(&self) -> usize {
        self.1.len()
    }
}

/// One lane and its submitter, on one thread.
struct Scene {
    device: Device,
    lane: Lane,
    submitter: Submitter,
    bell: Arc<Bell>,
    woken: Arc<AtomicUsize>,
    now: Nanos,
    /// By the short way where that is open.
    short: bool,
    ended: Vec<(u64, Status)>,
}

impl Scene {
    fn new(scheduler: &str, nr_requests: u16, driver: impl Driver + 'static) -> Scene {
        let config = Config {
            name: "sda".into(),
            scheduler: Some(scheduler.into()),
            nr_requests: Some(nr_requests),
            timeout_ns: 0,
            ..Config::default()
        };
        Scene::of(Device::new(config, Arc::new(driver)).unwrap())
    }

    fn of(device: Device) -> Scene {
        let woken = Arc::new(AtomicUsize::new(0));
        let bell = Bell::new(Box::new(Woken(Arc::clone(&woken))), 8);
        let mut lane = device.open_lane(0, &bell).unwrap();
        let submitter = device.submitter(&bell, 0, 0).unwrap();
        lane.run(Nanos::ZERO);
        let now = Nanos(1_000);
        Scene { device, lane, submitter, bell, woken, now, short: true, ended: Vec::new() }
    }

    fn submit(&mut self, bio: Bio) {
        match self.submitter.submit(bio, self.now) {
            Ok(_) | Err(Refused::Full(_)) => {}
            Err(_) => panic!("it is neither frozen nor capped"),
        }
    }

    fn read(&mut self, sector: u64) {
        self.submit(Bio::read(sector, Buf::zeroed(512)).cookie(sector));
    }

    fn pass(&mut self) {
        let Scene { lane, submitter, now, ended, .. } = self;
        let each = |completion: Completion| ended.push((completion.cookie, completion.status));
        if self.short {
            submitter.pass(Some(lane), *now, || *now, each);
        } else {
            submitter.flush_plug(*now);
            lane.run(*now);
            submitter.complete(*now, each);
        }
    }

    fn drain(&mut self) {
        for _ in 0..1_000 {
            if self.submitter.in_flight() == 0 {
                return;
            }
            self.now = self.now + 1_000_000;
            self.pass();
        }
        panic!("{} requests never end", self.submitter.in_flight());
    }
}

#[test]
fn a_lone_request_goes_through_the_scheduler_in_one_pass_and_rings_for_nothing() {
    for name in SCHEDULERS {
        let mut scene = Scene::new(name, 64, Null::new(1 << 20).unwrap());
        // The first visit of a context, and a time that the scheduler wants to be asked at.
        scene.read(1_000);
        scene.pass();
        scene.bell.ready().take(|_| {});
        scene.bell.doorbell().prepare_sleep();
        for sector in 0..40 {
            scene.ended.clear();
            scene.read(sector);
            scene.pass();
            assert_eq!(scene.ended, [(sector, Status::Ok)], "{name}");
            assert!(!scene.bell.ready().any() && !scene.lane.has_work(), "{name}");
            assert_eq!(scene.submitter.in_flight(), 0);
        }
        assert_eq!(scene.woken.load(Ordering::Relaxed), 0, "{name}");
        assert_eq!(scene.device.stats().directions[0].ios, 41);
        // With a request that it had not heard the end of, it would not go.
        let mut switching = scene.device.begin_switch(&Watch::new(&scene.bell, 3), "none");
        let mut rounds = 0;
        while let Progress::Waits = switching.poll(scene.now) {
            rounds += 1;
            assert!(rounds < 100, "{name} stays");
            scene.pass();
        }
        assert_eq!(scene.device.scheduler(), "none");
    }
}

/// A bio of a workload in which requests touch, differ in class and kind, and may not wait.
fn bio(prng: &mut Prng, cookie: u64) -> Bio {
    if prng.percent(2) {
        return Bio::flush().cookie(cookie);
    }
    let (sector, buf) = (prng.below(64) * 8, Buf::zeroed(4096));
    let mut bio = if prng.percent(60) { Bio::read(sector, buf) } else { Bio::write(sector, buf) };
    bio.ioprio = match prng.below(10) {
        0 => IoPrio::new(Class::RealTime, 4),
        1 => IoPrio::new(Class::Idle, 0),
        _ => IoPrio::NONE,
    };
    for (percent, flag) in [(3, Flags::FUA), (10, Flags::NOWAIT), (30, Flags::SYNC)] {
        if prng.percent(percent) && (flag != Flags::FUA || bio.op == Op::Write) {
            bio = bio.with(flag);
        }
    }
    bio.cookie(cookie)
}

/// One submitter's life by the short way or by the long one: what came, what ended, the figures.
fn life(name: &str, seed: u64, short: bool) -> (Vec<(Op, u64, u32, Nanos)>, String) {
    let mut prng = Prng::new(seed);
    let depth = 1 + prng.below(12) as u16;
    let places = 1 + prng.below(14) as usize;
    let mut noting = Noting::new(depth, places, 1 + prng.below(2) as usize);
    // So that one is full at times, and a bio behind it joins another.
    noting.sectors_max = 16 << prng.below(4);
    let came = Arc::clone(&noting.came);
    let mut scene = Scene::new(name, 4 + prng.below(28) as u16, noting);
    scene.short = short;
    for turn in 0..400 {
        // Mostly near, at times beyond a window, a slice or a deadline.
        let ns = [200, 5_000, 900_000, 12_000_000, 600_000_000, 6_000_000_000];
        let kind = [0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 5][prng.below(11) as usize];
        scene.now = scene.now + 1 + prng.below(ns[kind]);
        for part in 0..[0, 1, 1, 1, 1, 2][prng.below(6) as usize] {
            let bio = bio(&mut prng, turn * 4 + part);
            scene.submit(bio);
        }
        scene.pass();
    }
    scene.drain();
    let came = came.lock().unwrap().clone();
    (came, format!("{:?}\n{:?}", scene.ended, scene.device.stats()))
}

#[test]
fn every_scheduler_decides_as_on_the_long_way() {
    for name in SCHEDULERS {
        for seed in 0..300 {
            let (short, long) = (life(name, seed, true), life(name, seed, false));
            let differs = short.0.iter().zip(&long.0).position(|(short, long)| short != long);
            assert_eq!(differs, None, "{name}, seed {seed}: the place in the order of the device");
            assert_eq!(short.0.len(), long.0.len(), "{name}, seed {seed}");
            assert_eq!(short.1, long.1, "{name}, seed {seed}");
        }
    }
}

#[test]
fn what_a_flush_has_made_room_for_is_asked_for_in_the_same_pass() {
    let noting = Noting::new(2, 8, 8);
    let (came, never) = (Arc::clone(&noting.came), Arc::clone(&noting.never));
    let mut scene = Scene::new("mq-deadline", 8, noting);
    *never.lock().unwrap() = Some(40);
    scene.read(40);
    scene.pass();
    scene.submit(Bio::flush().cookie(1));
    scene.pass();
    // Both tags are out.
    scene.read(80);
    scene.pass();
    let sectors = || came.lock().unwrap().iter().map(|one| one.1).collect::<Vec<_>>();
    assert_eq!(sectors().len(), 2);
    scene.now = scene.now + 1_000;
    scene.pass();
    assert_eq!(sectors().last(), Some(&80), "nothing of the scheduler's has ended");
    *never.lock().unwrap() = None;
    scene.drain();
}

#[test]
fn what_the_scheduler_joins_when_it_takes_a_lone_request_is_one_for_the_device() {
    let noting = Noting { sectors_max: 16, ..Noting::new(8, 8, 8) };
    let (came, never) = (Arc::clone(&noting.came), Arc::clone(&noting.never));
    let mut scene = Scene::new("mq-deadline", 16, noting);
    *never.lock().unwrap() = Some(4_000);
    let mut urgent = Bio::read(4_000, Buf::zeroed(4096)).cookie(4_000);
    urgent.ioprio = IoPrio::new(Class::RealTime, 0);
    scene.submit(urgent);
    scene.pass();
    // They wait for that one. The last has no room in front of the two at 16.
    for sector in [0, 16, 24, 8] {
        scene.submit(Bio::read(sector, Buf::zeroed(4096)).cookie(sector));
        scene.pass();
    }
    *never.lock().unwrap() = None;
    scene.drain();
    let came: Vec<_> = came.lock().unwrap().iter().map(|one| (one.1, one.2)).collect();
    assert_eq!(came, [(4_000, 8), (0, 16), (16, 16)]);
    assert_eq!(scene.ended.len(), 5);
}

/// First in, first out. With its first request it finds a reason to wait that has just gone.
#[derive(Default)]
struct Hesitant {
    staged: VecDeque<Rq>,
    was_asked: bool,
    kicked: u64,
}

impl Scheduler for Hesitant {
    fn name(&self) -> &'static str {
        "hesitant"
    }

    fn merge(&mut self, _: &Rq, _: Nanos) -> Merge {
        Merge::No
    }

    fn insert(&mut self, rq: Rq, _: Nanos, _: &mut Absorbed) {
        self.staged.push_back(rq);
    }

    fn dispatch(&mut self, hard_queue: u16, _: Nanos) -> Option<Rq> {
        if self.staged.is_empty() || std::mem::replace(&mut self.was_asked, true) {
            return self.staged.pop_front();
        }
        self.kicked = 1 << hard_queue;
        None
    }

    fn staged(&self) -> usize {
        self.staged.len()
    }

    fn take_kicked(&mut self) -> u64 {
        std::mem::take(&mut self.kicked)
    }
}

#[test]
fn a_lane_that_the_scheduler_names_while_it_is_asked_asks_again() {
    let driver = Arc::new(Null::new(1 << 20).unwrap());
    let make = |_: &Setup| Box::new(Hesitant::default()) as Box<dyn Scheduler>;
    let mut scene = Scene::of(Device::with_scheduler(Config::default(), driver, make).unwrap());
    scene.read(8);
    scene.pass();
    assert!(scene.lane.has_work(), "it sleeps, and may go on");
    scene.pass();
    scene.pass();
    assert_eq!(scene.ended, [(8, Status::Ok)]);
}

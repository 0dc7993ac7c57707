//! A pass of a thread that has a submitter and its lane: the short way of a lone request keeps to
//! everything that the long one keeps to.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Flags, Limits, Nanos, Op, Status};
use weir_local::Null;
use weir_queue::driver::{Affinity, Batch, Done, DriverQueue, Queues, Tag};
use weir_queue::{
    Bell, Config, Device, Driver, DriverError, Home, Lane, Progress, Refused, Step, Submitter,
    Watch,
};

/// Counts how often the thread is woken.
struct Woken(Arc<AtomicUsize>);

impl weir_ring::Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// How a flush is noted.
const FLUSH: u64 = u64::MAX;

/// A device with a volatile cache that notes in which order requests reach it, and answers so many
/// at each reap.
#[derive(Clone)]
struct Noting {
    queues: u16,
    depth: u16,
    answers: Arc<AtomicUsize>,
    came: Arc<Mutex<Vec<u64>>>,
    /// The first request of this sector gets no answer.
    never: Option<u64>,
    silent: Arc<AtomicBool>,
}

impl Driver for Noting {
    fn limits(&self) -> Limits {
        Limits { volatile_cache: true, ..Limits::of_memory(1 << 20) }
    }

    fn queues(&self) -> Queues {
        let (depth, home) = (self.depth, Affinity::Any);
        Queues { max: self.queues, depth, reserved: 0, shared_tags: false, home }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(NotingQueue(self.clone(), Vec::new(), None)))
    }
}

/// With what it has, and what it does not answer.
struct NotingQueue(Noting, Vec<Tag>, Option<Tag>);

impl DriverQueue for NotingQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        batch.take_all(|tag, request| {
            let sector = if request.op() == Op::Flush { FLUSH } else { request.rq().sector };
            self.0.came.lock().unwrap().push(sector);
            if self.0.never.take_if(|never| *never == sector).is_some() {
                self.2 = Some(tag);
            } else {
                self.1.push(tag);
            }
        });
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        if !self.0.silent.load(Ordering::Relaxed) {
            self.1.extend(self.2.take());
        }
        let answered = self.0.answers.load(Ordering::Relaxed).min(self.1.len());
        self.1.drain(..answered).for_each(|tag| done.push(tag, Status::Ok));
    }

    fn in_flight(&self) -> usize {
        self.1.len() + usize::from(self.2.is_some())
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
    /// Of a device that notes.
    answers: Arc<AtomicUsize>,
    silent: Arc<AtomicBool>,
    /// Cookies of what timed out.
    late: Vec<u64>,
}

impl Scene {
    fn new(driver: impl Driver + 'static) -> Scene {
        Scene::timed(driver, 1, 0)
    }

    fn timed(driver: impl Driver + 'static, queues: u16, timeout_ns: u64) -> Scene {
        let (name, scheduler) = ("sda".into(), Some("none".into()));
        let config = Config { name, queues, scheduler, timeout_ns, ..Config::default() };
        let device = Device::new(config, Arc::new(driver)).unwrap();
        let woken = Arc::new(AtomicUsize::new(0));
        let bell = Bell::new(Box::new(Woken(Arc::clone(&woken))), 8);
        let mut lane = device.open_lane(0, &bell).unwrap();
        let submitter = device.submitter(&bell, 0, 0).unwrap();
        lane.run(Nanos::ZERO);
        let (answers, silent, late) = Default::default();
        let now = Nanos(1_000);
        Scene { device, lane, submitter, bell, woken, now, answers, silent, late }
    }

    /// One that answers each request some time later.
    fn slow() -> Scene {
        Scene::new(Null::new(1 << 20).unwrap().latency_ns(500))
    }

    fn noting(depth: u16, answers: usize) -> (Scene, Arc<Mutex<Vec<u64>>>) {
        Scene::silent(depth, answers, None, 0)
    }

    /// One that does not answer the first request of a sector.
    fn silent(
        depth: u16,
        answers: usize,
        never: Option<u64>,
        timeout_ns: u64,
    ) -> (Scene, Arc<Mutex<Vec<u64>>>) {
        Scene::several(1, depth, answers, (never, timeout_ns))
    }

    /// The same with so many queues, of which the scene has the first.
    fn several(
        queues: u16,
        depth: u16,
        answers: usize,
        (never, timeout_ns): (Option<u64>, u64),
    ) -> (Scene, Arc<Mutex<Vec<u64>>>) {
        let answers = Arc::new(AtomicUsize::new(answers));
        let silent = Arc::new(AtomicBool::new(true));
        let came = Arc::default();
        let noting = Noting { queues, depth, answers, came, never, silent };
        let (answers, silent) = (Arc::clone(&noting.answers), Arc::clone(&noting.silent));
        let came = Arc::clone(&noting.came);
        let mut scene = Scene::timed(noting, queues, timeout_ns);
        (scene.answers, scene.silent) = (answers, silent);
        (scene, came)
    }

    fn submit(&mut self, sector: u64) {
        let bio = Bio::read(sector, Buf::zeroed(512)).cookie(sector);
        self.submitter.submit(bio, self.now).unwrap();
    }

    /// The cookies of what ended in a pass.
    fn pass(&mut self) -> Vec<u64> {
        let (mut ended, mut late, later) = (Vec::new(), Vec::new(), self.now + 7);
        let each = |completion: weir_queue::Completion| match completion.status {
            Status::Timeout => late.push(completion.cookie),
            status => {
                assert_eq!(status, Status::Ok);
                ended.push(completion.cookie);
            }
        };
        let count = self.submitter.pass(Some(&mut self.lane), self.now, || later, each);
        assert_eq!(count, ended.len() + late.len());
        self.late.append(&mut late);
        ended
    }

    fn watch(&self) -> Watch {
        Watch::new(&self.bell, 3)
    }

    /// Carries a step out, with passes in between, and says in how many.
    fn carry_out<S: Step>(&mut self, mut step: S) -> S::Out {
        for _ in 0..100 {
            if let Progress::Ended(out) = step.poll(self.now) {
                return out;
            }
            self.now = self.now + 1_000;
            self.pass();
        }
        panic!("it never ends");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.answers.store(8, Ordering::Relaxed);
        self.silent.store(false, Ordering::Relaxed);
        // A request that is given up panics.
        for _ in 0..1_000 {
            if self.submitter.in_flight() == 0 || std::thread::panicking() {
                return;
            }
            self.now = self.now + 1_000;
            self.pass();
        }
        panic!("a request never ends");
    }
}

#[test]
fn a_lone_request_goes_out_and_comes_back_in_one_pass_and_rings_for_nothing() {
    let mut scene = Scene::new(Null::new(1 << 20).unwrap());
    scene.bell.ready().take(|_| {});
    scene.bell.doorbell().prepare_sleep();
    for sector in 0..40 {
        scene.submit(sector);
        assert_eq!(scene.pass(), [sector]);
        assert!(!scene.bell.ready().any() && !scene.lane.has_work(), "there is nothing to look at");
        assert_eq!((scene.submitter.in_flight(), scene.lane.wake_at()), (0, None));
    }
    assert_eq!(scene.woken.load(Ordering::Relaxed), 0);
    let stats = scene.device.stats();
    let reads = &stats.directions[0];
    assert_eq!((reads.ios, reads.sectors, stats.in_flight), (40, 40, 0));
    // From the pass to the time that the driver was asked again.
    assert_eq!((reads.wait.max_ns(), reads.device.max_ns(), reads.ns), (0, 7, 40 * 7));
}

#[test]
fn what_is_in_the_ring_is_not_overtaken() {
    let (mut scene, came) = Scene::noting(8, 8);
    // From the second time on the lane looks at the ring anyway, and no mark tells of it.
    for _ in 0..3 {
        scene.submit(10);
        scene.submitter.flush_plug(scene.now);
        scene.submit(20);
        scene.pass();
        scene.pass();
    }
    assert_eq!(*came.lock().unwrap(), [10, 20, 10, 20, 10, 20]);
}

#[test]
fn what_another_submitter_hands_over_is_sent_in_a_pass() {
    let (mut scene, came) = Scene::noting(8, 8);
    let mut other = scene.device.submitter(&scene.bell, 1, 0).unwrap();
    for round in 1..=2 {
        other.submit(Bio::read(80, Buf::zeroed(512)), scene.now).unwrap();
        other.flush_plug(scene.now);
        scene.submit(10);
        scene.pass();
        scene.pass();
        assert_eq!(came.lock().unwrap().len(), 2 * round, "one is not looked for");
        other.complete(scene.now, drop);
        // The lane looks at the other's ring no more.
        (0..8).for_each(|_| scene.lane.run(scene.now));
    }
}

#[test]
fn what_has_ended_before_is_told_before() {
    let (mut scene, _) = Scene::noting(8, 8);
    scene.submit(10);
    scene.submitter.flush_plug(scene.now);
    (0..2).for_each(|_| scene.lane.run(scene.now));
    scene.submit(20);
    assert_eq!(scene.pass(), [10, 20]);
}

#[test]
fn the_lane_of_another_device_gets_nothing() {
    let ((mut scene, came), (mut other, others)) = (Scene::noting(8, 8), Scene::noting(8, 8));
    scene.submit(10);
    let now = scene.now;
    let ended = scene.submitter.pass(Some(&mut other.lane), now, || now, drop);
    assert_eq!((ended, others.lock().unwrap().len()), (0, 0));
    assert_eq!((scene.pass(), scene.pass()), (vec![], vec![10]));
    assert_eq!(*came.lock().unwrap(), [10]);
}

#[test]
fn what_waits_for_a_tag_is_not_overtaken_and_neither_is_what_has_ended() {
    let (mut scene, came) = Scene::noting(2, 1);
    let mut ended = Vec::new();
    for sector in 1..=9 {
        scene.submit(sector * 10);
        if sector % 4 == 0 {
            // The long way, whose ends wait in the inbox.
            scene.submitter.flush_plug(scene.now);
            scene.lane.run(scene.now);
        } else {
            ended.extend(scene.pass());
        }
    }
    while ended.len() < 9 {
        ended.extend(scene.pass());
    }
    let order: Vec<u64> = (1..=9).map(|sector| sector * 10).collect();
    assert_eq!((came.lock().unwrap().clone(), ended), (order.clone(), order));
}

#[test]
fn with_every_tag_taken_a_lone_request_waits() {
    let (mut scene, came) = Scene::noting(2, 0);
    for sector in 1..=4 {
        scene.submit(sector * 10);
        assert_eq!(scene.pass(), []);
    }
    assert_eq!(*came.lock().unwrap(), [10, 20]);
}

#[test]
fn a_request_without_an_answer_times_out_beside_lone_ones_and_holds_back_a_newer_write() {
    const SECOND: u64 = 1_000_000_000;
    let (mut scene, came) = Scene::silent(8, 8, Some(40), SECOND);
    let write = |scene: &mut Scene, sector| {
        let bio = Bio::write(sector, Buf::zeroed(512)).cookie(sector);
        scene.submitter.submit(bio, scene.now).unwrap();
        scene.pass()
    };
    assert_eq!(write(&mut scene, 40), []);
    let mut rounds = 0;
    while scene.late.is_empty() {
        rounds += 1;
        assert!(rounds < 100, "it is never found overdue");
        scene.now = scene.now + SECOND / 10;
        // Something that goes the short way, each time.
        write(&mut scene, rounds * 100);
    }
    assert_eq!(scene.late, [40]);
    // The device may still write the older one.
    assert!(!write(&mut scene, 40).contains(&40));
    let times = || came.lock().unwrap().iter().filter(|sector| **sector == 40).count();
    for _ in 0..5 {
        scene.now = scene.now + 1_000;
        write(&mut scene, 8);
        assert_eq!(times(), 1, "the newer write has overtaken the older one");
    }
    scene.silent.store(false, Ordering::Relaxed);
    let mut ended = Vec::new();
    while times() < 2 {
        scene.now = scene.now + 1_000;
        ended.extend(scene.pass());
    }
    ended.extend(scene.pass());
    assert!(ended.contains(&40), "{ended:?}");
}

#[test]
fn a_lane_that_waits_for_a_late_answer_is_told_of_it_in_a_pass() {
    const SECOND: u64 = 1_000_000_000;
    let (mut scene, came) = Scene::several(2, 8, 8, (Some(40), SECOND));
    let bell = Bell::new(Box::new(Woken(Arc::default())), 8);
    let mut lane = scene.device.open_lane(1, &bell).unwrap();
    let mut submitter = scene.device.submitter(&bell, 0, 1).unwrap();
    scene.submitter.submit(Bio::write(40, Buf::zeroed(512)).cookie(40), scene.now).unwrap();
    while scene.late.is_empty() {
        scene.pass();
        scene.submit(8);
        scene.now = scene.now + SECOND / 10;
    }
    scene.pass();
    submitter.submit(Bio::write(40, Buf::zeroed(512)), scene.now).unwrap();
    submitter.flush_plug(scene.now);
    (0..2).for_each(|_| lane.run(scene.now));
    let times = || came.lock().unwrap().iter().filter(|sector| **sector == 40).count();
    assert_eq!((times(), lane.has_work()), (1, false), "the older one may still be written");
    scene.silent.store(false, Ordering::Relaxed);
    scene.pass();
    assert!(lane.has_work(), "its write waits for nothing, and is not sent");
    (0..2).for_each(|_| lane.run(scene.now));
    assert_eq!((times(), submitter.complete(scene.now, drop)), (2, 1));
}

#[test]
fn a_flush_that_waits_for_data_begins_in_its_time_beside_lone_requests() {
    const SECOND: u64 = 1_000_000_000;
    // A flush waits 5 s at most for a durable write that is on its way.
    let (mut scene, came) = Scene::silent(8, 8, Some(40), 0);
    let durable = Bio::write(40, Buf::zeroed(512)).with(Flags::FUA).cookie(40);
    scene.submitter.submit(durable, scene.now).unwrap();
    assert_eq!(scene.pass(), []);
    scene.submitter.submit(Bio::flush().cookie(1), scene.now).unwrap();
    assert_eq!(scene.pass(), []);
    let flushes = || came.lock().unwrap().iter().filter(|what| **what == FLUSH).count();
    assert_eq!(flushes(), 0);
    let begun = scene.now;
    while flushes() == 0 {
        assert!(scene.now.since(begun) < 10 * SECOND, "it waits for ever");
        scene.now = scene.now + SECOND / 2;
        scene.submit(8);
        scene.pass();
    }
    assert!(scene.now.since(begun) >= 5 * SECOND, "the data had its time");
}

#[test]
fn what_ends_of_another_submitter_in_a_pass_reaches_it() {
    let mut scene = Scene::slow();
    let mut other = scene.device.submitter(&scene.bell, 1, 0).unwrap();
    other.submit(Bio::read(8, Buf::zeroed(512)).cookie(8), scene.now).unwrap();
    other.flush_plug(scene.now);
    scene.lane.run(scene.now);
    scene.now = scene.now + 500;
    scene.submit(16);
    assert_eq!(scene.pass(), []);
    let mut ended = Vec::new();
    other.complete(scene.now, |completion| ended.push(completion.cookie));
    assert_eq!(ended, [8]);
}

#[test]
fn a_driver_that_has_something_is_asked_once_in_a_pass() {
    let (mut scene, _) = Scene::noting(8, 1);
    (0..3).for_each(|sector| scene.submit(sector * 10));
    assert_eq!(scene.pass(), [], "they go the long way, and it has just got them");
    scene.submit(40);
    assert_eq!(scene.pass(), [0]);
    assert_eq!(scene.pass(), [10]);
    assert_eq!((scene.pass(), scene.pass()), (vec![20], vec![40]));
}

#[test]
fn a_freeze_waits_for_a_request_on_the_short_way_and_its_caller_is_told() {
    let mut scene = Scene::slow();
    scene.submit(8);
    assert_eq!(scene.pass(), []);
    let mut freezing = scene.device.begin_freeze(&scene.watch());
    assert!(matches!(freezing.poll(scene.now), Progress::Waits));
    let refused = scene.submitter.submit(Bio::read(0, Buf::zeroed(512)), scene.now);
    assert!(matches!(refused, Err(Refused::Frozen(_))));
    scene.bell.ready().take(|_| {});
    scene.now = scene.now + 500;
    assert_eq!(scene.pass(), [8]);
    assert!(scene.bell.ready().has(3), "the last has left");
    let Progress::Ended(frozen) = freezing.poll(scene.now) else { panic!("it is at rest") };
    drop(frozen);
    scene.submit(16);
    assert_eq!(scene.pass(), []);
}

#[test]
fn nothing_is_sent_while_dispatch_is_paused() {
    let (mut scene, came) = Scene::noting(8, 8);
    scene.submit(1);
    assert_eq!(scene.pass(), [1]);
    let quiescing = scene.device.begin_quiesce(&scene.watch());
    let quiesced = scene.carry_out(quiescing);
    scene.submit(2);
    assert_eq!((scene.pass(), scene.pass()), (vec![], vec![]));
    assert_eq!(*came.lock().unwrap(), [1]);
    drop(quiesced);
    scene.submit(3);
    let mut ended = scene.pass();
    ended.extend(scene.pass());
    assert_eq!((ended, came.lock().unwrap().clone()), (vec![2, 3], vec![1, 2, 3]));
}

#[test]
fn the_scheduler_is_switched_while_requests_go_the_short_way() {
    let mut scene = Scene::slow();
    for (turn, name) in ["mq-deadline", "none", "kyber", "none"].into_iter().enumerate() {
        let turn = turn as u64;
        scene.submit(turn * 8);
        assert_eq!(scene.pass(), []);
        let switching = scene.device.begin_switch(&scene.watch(), name);
        scene.carry_out(switching).unwrap();
        scene.submit(turn * 8);
        scene.pass();
        scene.now = scene.now + 500;
        assert_eq!((scene.pass(), scene.device.scheduler()), (vec![turn * 8], name));
    }
    assert_eq!(scene.device.stats().directions[0].ios, 8);
}

thread_local! {
    /// The submitter and the lane that `PassesAtOnce` has.
    static SEAT: RefCell<Option<(Submitter, Lane)>> = const { RefCell::new(None) };
}

/// Has a read in a pass as soon as it is woken and the device takes one.
struct PassesAtOnce;

impl weir_ring::Wake for PassesAtOnce {
    fn wake(&self) {
        SEAT.with_borrow_mut(|seat| {
            let Some((submitter, lane)) = seat else { return };
            let now = Nanos(2_000);
            if submitter.submit(Bio::read(16, Buf::zeroed(512)), now).is_ok() {
                submitter.pass(Some(lane), now, || now, drop);
            }
        });
    }
}

#[test]
fn a_request_of_the_moment_in_which_the_scheduler_was_switched_goes_by_the_new_one() {
    let config = Config { scheduler: Some("mq-deadline".into()), ..Config::default() };
    let null = Null::new(1 << 20).unwrap().latency_ns(500);
    let device = Device::new(config, Arc::new(null)).unwrap();
    let bell = |wake: Box<dyn weir_ring::Wake>| Bell::new(wake, 8);
    let (home, first) = (bell(Box::new(Woken(Arc::default()))), bell(Box::new(PassesAtOnce)));
    let mut lane = device.open_lane(0, &home).unwrap();
    let mut submitter = device.submitter(&home, 0, 0).unwrap();
    lane.run(Nanos(1_000));
    submitter.submit(Bio::read(8, Buf::zeroed(512)), Nanos(1_000)).unwrap();
    submitter.pass(Some(&mut lane), Nanos(1_000), || Nanos(1_000), drop);
    let mut switching = device.begin_switch(&Watch::new(&home, 3), "none");
    assert!(switching.poll(Nanos(1_000)).is_waiting(), "a request is under way");
    // It is told that the gate is open before the lane is.
    let next = device.begin_switch(&Watch::new(&first, 0), "none");
    for _ in 0..2 {
        submitter.pass(Some(&mut lane), Nanos(2_000), || Nanos(2_000), drop);
    }
    SEAT.set(Some((submitter, lane)));
    first.doorbell().prepare_sleep();
    assert!(!switching.poll(Nanos(2_000)).is_waiting());
    drop(next);
    let (mut submitter, mut lane) = SEAT.take().expect("it stays there");
    assert_eq!((submitter.in_flight(), device.scheduler()), (1, "none"), "it was woken");
    let later = Nanos(2_500);
    assert_eq!(submitter.pass(Some(&mut lane), later, || later, drop), 1);
}

#[test]
fn the_statistics_are_those_of_the_long_way() {
    let run = |short: bool| {
        let mut scene = Scene::slow();
        let mut ended = 0;
        for turn in 0..200_u64 {
            scene.now = scene.now + 130 * (1 + turn % 7) * (1 + turn % 3);
            // One, none, or two that merge.
            for part in 0..[1, 0, 1, 2][turn as usize % 4] {
                let sector = turn * 8 % 1000 + part;
                let buf = Buf::zeroed(512);
                let bio =
                    if turn % 5 < 3 { Bio::read(sector, buf) } else { Bio::write(sector, buf) };
                scene.submitter.submit(bio, scene.now).unwrap();
            }
            if short {
                ended += scene.pass().len();
            } else {
                scene.submitter.flush_plug(scene.now);
                scene.lane.run(scene.now);
                ended += scene.submitter.complete(scene.now, drop);
            }
        }
        (ended, format!("{:?}", scene.device.stats()))
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_home_takes_a_round_with_the_lane_of_the_submitter_and_with_any_other() {
    let bell = || Bell::new(Box::new(Woken(Arc::default())), 8);
    let scheduler = Some("none".into());
    let config = Config { name: "sda".into(), queues: 2, scheduler, ..Config::default() };
    let device = Device::new(config, Arc::new(Null::new(1 << 20).unwrap())).unwrap();
    let (here, there) = (bell(), bell());
    let (mut own, mut other) = (Home::new(Arc::clone(&here)), Home::new(there));
    own.open(&device, 0).unwrap();
    other.open(&device, 1).unwrap();
    let mut round = |lane: usize, turns_other: bool| {
        let mut submitter = device.submitter(&here, 0, lane).unwrap();
        let (mut ended, now) = (0, Nanos(5));
        submitter.submit(Bio::read(0, Buf::zeroed(512)), now).unwrap();
        for _ in 0..4 {
            ended += own.pass(&mut submitter, now, || now, drop);
            if turns_other {
                other.turn(now);
            }
        }
        ended
    };
    assert_eq!((round(0, false), round(1, true)), (1, 1));
}

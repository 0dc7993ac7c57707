//! Control steps in virtual time, on one thread: polled, given up, and beside one another.

use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Limits, Nanos, Status};
use weir_local::{Null, Ram};
use weir_map::{FaultPlan, Faulty};
use weir_queue::{
    Bell, Config, Device, Driver, Error, Lane, LaneAnswer, LaneChange, LaneHomes, NoWake, Progress,
    QueueMode, Refused, SUBMITTERS_MAX, Step, Submitter, Then, Wait, Watch,
};

fn bell() -> Arc<Bell> {
    Bell::new(Box::new(NoWake), 64)
}

/// How long an I/O takes.
const LATENCY_NS: u64 = 1_000_000;

/// One lane, one submitter and one caller of steps, turned by hand.
struct Scene {
    device: Device,
    lane: Lane,
    submitter: Submitter,
    /// The submitter's.
    bell: Arc<Bell>,
    /// That of the caller of steps.
    caller: Arc<Bell>,
    now: Nanos,
}

impl Scene {
    fn new(mode: QueueMode, driver: impl Driver + 'static) -> Scene {
        let config = Config { name: "sda".into(), mode, ..Config::default() };
        let device = Device::new(config, Arc::new(driver)).unwrap();
        let (bell, caller) = (bell(), bell());
        let lane = device.open_lane(0, &bell).unwrap();
        let submitter = device.submitter(&bell, 0, 0).unwrap();
        Scene { device, lane, submitter, bell, caller, now: Nanos::ZERO }
    }

    fn slow(mode: QueueMode) -> Scene {
        Scene::new(mode, Null::new(1 << 20).unwrap().latency_ns(LATENCY_NS))
    }

    fn watch(&self) -> Watch {
        Watch::new(&self.caller, 3)
    }

    fn write(&mut self) -> Result<(), Refused> {
        let taken = self.submitter.submit(Bio::write(0, Buf::zeroed(4096)), self.now);
        self.submitter.flush_plug(self.now);
        taken
    }

    fn step(&mut self) {
        (0..4).for_each(|_| self.lane.run(self.now));
    }

    /// Everything under way ends.
    fn finish(&mut self) -> Vec<Status> {
        self.step();
        self.now = self.now + 2 * LATENCY_NS;
        self.step();
        let mut ended = Vec::new();
        self.submitter.complete(self.now, |completion| ended.push(completion.status));
        ended
    }

    /// Whether the caller of steps was told to look.
    fn told(&self) -> bool {
        let mut told = false;
        self.caller.ready().take(|token| told |= token == 3);
        told
    }

    /// Whether the submitter was told to look.
    fn submitter_told(&self) -> bool {
        let mut told = false;
        self.bell.ready().take(|token| told |= token == 0);
        told
    }
}

const MODES: [QueueMode; 2] = [QueueMode::Mq, QueueMode::Sq];

#[test]
fn a_freeze_is_polled_until_what_is_inside_has_ended_and_its_caller_is_told() {
    for mode in MODES {
        let mut scene = Scene::slow(mode);
        scene.write().unwrap();
        let mut freezing = scene.device.begin_freeze(&scene.watch());
        assert!(matches!(freezing.poll(scene.now), Progress::Waits));
        assert_eq!(freezing.waits_for(), Wait::Requests(1));
        scene.told();
        assert_eq!(scene.finish(), [Status::Ok]);
        assert!(scene.told(), "{mode:?}: the last has left");
        let Progress::Ended(frozen) = freezing.poll(scene.now) else { panic!("{mode:?}") };
        drop(freezing);
        assert!(matches!(scene.write(), Err(Refused::Frozen(_))), "{mode:?}: it is let go of");
        drop(frozen);
        scene.write().unwrap();
        assert_eq!(scene.finish(), [Status::Ok]);
    }
}

#[test]
fn a_freeze_that_is_given_up_tells_the_submitters_it_turned_away() {
    for mode in MODES {
        let mut scene = Scene::slow(mode);
        scene.write().unwrap();
        let mut freezing = scene.device.begin_freeze(&scene.watch());
        assert!(matches!(freezing.poll(scene.now), Progress::Waits));
        let Err(Refused::Frozen(_)) = scene.write() else { panic!("the gate is open") };
        scene.submitter_told();
        drop(freezing);
        assert!(scene.submitter_told(), "{mode:?}: it sleeps at a gate that is open");
        scene.told();
        scene.write().unwrap();
        assert_eq!(scene.finish(), [Status::Ok; 2]);
        assert!(!scene.told(), "the caller has gone");
    }
}

#[test]
fn a_freeze_given_up_beside_another_leaves_the_gate_to_that_one() {
    for first_goes in [true, false] {
        let mut scene = Scene::slow(QueueMode::Mq);
        scene.write().unwrap();
        let watch = scene.watch();
        let mut freezes = [(); 2].map(|()| Some(scene.device.begin_freeze(&watch)));
        for freezing in freezes.iter_mut().flatten() {
            assert!(matches!(freezing.poll(scene.now), Progress::Waits));
        }
        freezes[usize::from(!first_goes)] = None;
        assert!(matches!(scene.write(), Err(Refused::Frozen(_))));
        scene.finish();
        let mut left = freezes.into_iter().flatten().next().unwrap();
        let Progress::Ended(frozen) = left.poll(scene.now) else { panic!("nothing is inside") };
        // Two at a time hold it, too.
        let Progress::Ended(second) = scene.device.begin_freeze(&watch).poll(scene.now) else {
            panic!("nothing is inside")
        };
        drop(frozen);
        assert!(matches!(scene.write(), Err(Refused::Frozen(_))));
        scene.submitter_told();
        drop(second);
        assert!(scene.submitter_told());
        scene.write().unwrap();
        scene.finish();
    }
}

#[test]
fn a_quiesce_given_up_before_its_lanes_have_answered_leaves_them_running() {
    for mode in MODES {
        let mut scene = Scene::slow(mode);
        let mut quiescing = scene.device.begin_quiesce(&scene.watch());
        let single = mode == QueueMode::Sq;
        // The single queue is stopped under its lock; a lane answers in its turn.
        assert_eq!(matches!(quiescing.poll(scene.now), Progress::Waits), !single);
        drop(quiescing);
        scene.write().unwrap();
        assert_eq!(scene.finish(), [Status::Ok], "{mode:?}");
    }
}

#[test]
fn changes_take_turns_and_one_given_up_lets_the_next_go_on() {
    let mut scene = Scene::slow(QueueMode::Mq);
    scene.write().unwrap();
    let (device, watch) = (scene.device.clone(), scene.watch());
    let mut first = device.begin_switch(&watch, "kyber");
    let mut second = device.begin_reconfigure(&watch, |parts| parts.nomerges = 2);
    let mut third = device.begin_reconfigure(&watch, |parts| parts.nomerges += 1);
    assert!(matches!(first.poll(scene.now), Progress::Waits));
    assert!(matches!(second.poll(scene.now), Progress::Waits));
    assert_eq!((first.waits_for(), second.waits_for()), (Wait::Requests(1), Wait::Change));
    scene.told();
    drop(second);
    assert!(scene.told(), "the order has changed");
    assert!(matches!(third.poll(scene.now), Progress::Waits), "the first is at it");
    drop(first);
    assert!(scene.told());
    assert!(matches!(third.poll(scene.now), Progress::Waits));
    assert_eq!(third.waits_for(), Wait::Requests(1));
    scene.finish();
    assert!(matches!(third.poll(scene.now), Progress::Ended(Ok(()))));
    assert_eq!((device.settings().nomerges, device.scheduler()), (1, "mq-deadline"));
    assert!(!device.begin_switch(&watch, "kyber").poll(scene.now).is_waiting());
    assert_eq!(device.scheduler(), "kyber");
}

#[test]
fn the_last_flush_goes_through_the_closed_gate_and_everything_later_ends_offline() {
    for mode in MODES {
        for then in [Then::Rests, Then::Ends] {
            let driver = Null::new(1 << 20).unwrap().latency_ns(LATENCY_NS);
            let mut scene = Scene::new(mode, Cached(driver));
            scene.write().unwrap();
            let mut closing = scene.device.begin_close(&scene.watch(), then);
            assert!(matches!(closing.poll(scene.now), Progress::Waits));
            assert_eq!(closing.waits_for(), Wait::Requests(1));
            scene.finish();
            assert!(matches!(closing.poll(scene.now), Progress::Waits));
            assert_eq!(closing.waits_for(), Wait::Flush);
            assert!(matches!(scene.write(), Err(Refused::Frozen(_))), "the gate is closed");
            scene.told();
            scene.finish();
            assert!(scene.told(), "the flush has ended");
            let Progress::Ended(Ok(frozen)) = closing.poll(scene.now) else { panic!("{mode:?}") };
            assert_eq!(scene.device.stats().flushes, 1);
            drop((frozen, closing));
            scene.write().unwrap();
            let expected = if then == Then::Ends { Status::Offline } else { Status::Ok };
            assert_eq!(scene.finish(), [expected]);
        }
    }
}

#[test]
fn a_close_waits_for_another_freeze_before_it_flushes() {
    let driver = Null::new(1 << 20).unwrap().latency_ns(LATENCY_NS);
    let mut scene = Scene::new(QueueMode::Mq, Cached(driver));
    let Progress::Ended(frozen) = scene.device.begin_freeze(&scene.watch()).poll(scene.now) else {
        panic!("nothing is inside")
    };
    let mut closing = scene.device.begin_close(&scene.watch(), Then::Ends);
    assert!(matches!(closing.poll(scene.now), Progress::Waits));
    assert_eq!(closing.waits_for(), Wait::Freeze);
    assert_eq!(scene.device.stats().in_flight, 0, "a frozen device holds nothing");
    scene.told();
    drop(frozen);
    assert!(scene.told());
    assert!(matches!(closing.poll(scene.now), Progress::Waits));
    assert_eq!(closing.waits_for(), Wait::Flush);
    scene.finish();
    assert!(matches!(closing.poll(scene.now), Progress::Ended(Ok(_))));
}

#[test]
fn a_close_given_up_in_its_flush_leaves_the_device_in_use() {
    let plan = FaultPlan { lost: 100, ..FaultPlan::default() };
    let cached = Cached(Ram::new(1 << 20).unwrap());
    let mut scene = Scene::new(QueueMode::Mq, Faulty::new(Arc::new(cached), plan, 1));
    let mut closing = scene.device.begin_close(&scene.watch(), Then::Ends);
    assert!(matches!(closing.poll(scene.now), Progress::Waits));
    scene.step();
    assert!(matches!(closing.poll(scene.now), Progress::Waits));
    assert_eq!(closing.waits_for(), Wait::Flush);
    drop(closing);
    assert!(!scene.device.is_offline());
    scene.write().unwrap();
    // The flush and the write are lost, and given up when their time is over.
    for _ in 0..3 {
        scene.now = scene.now + 31_000_000_000;
        scene.step();
    }
    let mut ended = Vec::new();
    scene.submitter.complete(scene.now, |completion| ended.push(completion.status));
    assert_eq!((ended, scene.device.stats().in_flight), (vec![Status::Timeout], 0));
}

#[test]
fn a_device_with_all_the_submitters_it_may_have_is_flushed_at_its_end() {
    let mut scene = Scene::new(QueueMode::Mq, Cached(Null::new(1 << 20).unwrap()));
    let homes: Vec<_> = (1..SUBMITTERS_MAX).map(|_| bell()).collect();
    let others: Vec<_> =
        homes.iter().map(|bell| scene.device.submitter(bell, 0, 0).unwrap()).collect();
    let error = scene.device.submitter(&bell(), 0, 0).err().unwrap().to_string();
    assert!(error.contains(&format!("is above {SUBMITTERS_MAX}")), "{error}");
    let mut closing = scene.device.begin_close(&scene.watch(), Then::Ends);
    assert!(matches!(closing.poll(scene.now), Progress::Waits));
    scene.finish();
    assert!(matches!(closing.poll(scene.now), Progress::Ended(Ok(_))));
    assert_eq!(scene.device.stats().flushes, 1);
    drop(others);
}

/// A driver with a volatile cache.
struct Cached<D>(D);

impl<D: Driver> Driver for Cached<D> {
    fn limits(&self) -> Limits {
        Limits { volatile_cache: true, ..self.0.limits() }
    }

    fn queues(&self) -> weir_queue::Queues {
        self.0.queues()
    }

    fn open(
        &self,
        index: u16,
        depth: u16,
    ) -> Result<Box<dyn weir_queue::DriverQueue>, weir_queue::DriverError> {
        self.0.open(index, depth)
    }
}

/// A home that does what it is asked when it is told to.
#[derive(Default)]
struct Home {
    orders: Mutex<Vec<(bool, usize, LaneAnswer)>>,
}

impl LaneHomes for Home {
    fn open(&self, _: &Device, index: usize, answer: LaneAnswer) {
        self.orders.lock().unwrap().push((true, index, answer));
    }

    fn close(&self, _: &Device, index: usize, answer: LaneAnswer) {
        self.orders.lock().unwrap().push((false, index, answer));
    }
}

/// Does what was asked for.
fn obey(home: &Home, device: &Device, bell: &Arc<Bell>, lanes: &mut Vec<Lane>) {
    for (opens, index, answer) in std::mem::take(&mut *home.orders.lock().unwrap()) {
        if opens {
            answer.give(device.open_lane(index, bell).map(|lane| lanes.push(lane)));
        } else {
            lanes.retain(|lane| lane.index() != index);
            answer.give(Ok(()));
        }
    }
}

#[test]
fn another_number_of_queues_given_up_at_any_step_leaves_the_old_or_the_new_one_whole() {
    for (before, after) in [(1, 3), (3, 1)] {
        for polls in 0..12 {
            let config = Config { queues: before, ..Config::default() };
            let device = Device::new(config, Arc::new(Ram::new(1 << 20).unwrap())).unwrap();
            let (bell, caller) = (bell(), bell());
            let home = Arc::new(Home::default());
            let homes: Arc<dyn LaneHomes> = Arc::clone(&home) as _;
            device.attach_homes(Arc::downgrade(&homes));
            let mut lanes: Vec<Lane> = (0..usize::from(before))
                .map(|index| device.open_lane(index, &bell).unwrap())
                .collect();
            let mut submitter = device.submitter(&bell, 0, 2).unwrap();
            let mut io = |lanes: &mut Vec<Lane>| {
                submitter.submit(Bio::write(0, Buf::zeroed(4096)), Nanos::ZERO).unwrap();
                submitter.flush_plug(Nanos::ZERO);
                (0..3).for_each(|_| lanes.iter_mut().for_each(|lane| lane.run(Nanos::ZERO)));
                assert_eq!(submitter.complete(Nanos::ZERO, drop), 1, "{before} {after} {polls}");
            };
            io(&mut lanes);
            let prepared = device.prepare_lanes(after).unwrap();
            let mut change = device.begin_queues(&Watch::new(&caller, 0), prepared);
            let mut ended = false;
            for poll in 0..polls {
                if let Progress::Ended(out) = change.poll(Nanos::ZERO) {
                    assert_eq!(out.unwrap(), LaneChange::InForce);
                    ended = true;
                    break;
                }
                match poll % 2 {
                    0 => lanes.iter_mut().for_each(|lane| lane.run(Nanos::ZERO)),
                    _ => obey(&home, &device, &bell, &mut lanes),
                }
            }
            let in_force = ended || change.give_up().is_some();
            assert_eq!(device.queues(), if in_force { after } else { before });
            obey(&home, &device, &bell, &mut lanes);
            assert_eq!(lanes.len(), usize::from(device.queues()), "{before} {after} {polls}");
            io(&mut lanes);
            // And the same again, to its end.
            let prepared = device.prepare_lanes(after).unwrap();
            let mut change = device.begin_queues(&Watch::new(&caller, 0), prepared);
            while change.poll(Nanos::ZERO).is_waiting() {
                lanes.iter_mut().for_each(|lane| lane.run(Nanos::ZERO));
                obey(&home, &device, &bell, &mut lanes);
            }
            assert_eq!((device.queues(), lanes.len()), (after, usize::from(after)));
            io(&mut lanes);
        }
    }
}

#[test]
fn a_home_that_goes_without_an_answer_ends_the_change_and_all_is_as_before() {
    let config = Config { name: "sda".into(), ..Config::default() };
    let device = Device::new(config, Arc::new(Ram::new(1 << 20).unwrap())).unwrap();
    let (bell, caller) = (bell(), bell());
    let home = Arc::new(Home::default());
    let homes: Arc<dyn LaneHomes> = Arc::clone(&home) as _;
    device.attach_homes(Arc::downgrade(&homes));
    let mut lane = device.open_lane(0, &bell).unwrap();
    let prepared = device.prepare_lanes(2).unwrap();
    let mut change = device.begin_queues(&Watch::new(&caller, 0), prepared);
    assert!(change.poll(Nanos::ZERO).is_waiting());
    lane.run(Nanos::ZERO);
    assert!(change.poll(Nanos::ZERO).is_waiting());
    assert_eq!(change.waits_for(), Wait::Opening(1));
    caller.ready().take(|_| ());
    home.orders.lock().unwrap().clear();
    assert!(caller.ready().any(), "nobody is told");
    let Progress::Ended(Err(Error::Dying(name))) = change.poll(Nanos::ZERO) else {
        panic!("there is no home")
    };
    assert_eq!((name.as_str(), device.queues()), ("sda", 1));
}

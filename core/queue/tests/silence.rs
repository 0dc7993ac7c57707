//! Scenes of drivers that fall silent, made by hand: what a submitter is told, what waits for what,
//! and what the disk holds afterwards.

use std::sync::Arc;

use weir_bio::{Bio, Buf, Flags, Limits, Nanos, Op, Status};
use weir_laws::device::{Plan, Shape, Sim};
use weir_laws::{filled, value, values};
use weir_queue::driver::Affinity;
use weir_queue::{
    Bell, Completion, Config, Device, Lane, NoWake, Progress, QueueMode, Step, Submitter, Watch,
};

const TIMEOUT_NS: u64 = 2_000_000_000;

const SECOND: u64 = 1_000_000_000;

/// Lanes and a submitter on each, turned by hand.
struct Scene {
    sim: Arc<Sim>,
    device: Device,
    lanes: Vec<Lane>,
    submitters: Vec<Submitter>,
    now: Nanos,
}

impl Scene {
    fn new(scheduler: &str, lanes: usize, depth: u16) -> Scene {
        Scene::of(QueueMode::Mq, TIMEOUT_NS, scheduler, lanes, depth)
    }

    /// The same with another `io_timeout`.
    fn within(timeout_ns: u64, scheduler: &str, lanes: usize, depth: u16) -> Scene {
        Scene::of(QueueMode::Mq, timeout_ns, scheduler, lanes, depth)
    }

    fn of(mode: QueueMode, timeout_ns: u64, scheduler: &str, lanes: usize, depth: u16) -> Scene {
        let (capacity, max_hw_sectors, volatile_cache) = (512, 16, true);
        let limits = Limits { capacity, max_hw_sectors, volatile_cache, ..Limits::default() };
        let plan = Plan { lent: 100, ..Plan::default() };
        let (shared_tags, home, announced) = (false, Affinity::Any, false);
        let sim = Sim::new(Shape { limits, depth, shared_tags, home, announced, plan, seed: 1 });
        let config = Config {
            mode,
            queues: lanes as u16,
            scheduler: Some(scheduler.to_owned()),
            timeout_ns,
            ..Config::default()
        };
        let device = Device::new(config, Arc::clone(&sim) as Arc<_>).unwrap();
        let bell = Bell::new(Box::new(NoWake), 64);
        let submitters = (0..lanes).map(|lane| device.submitter(&bell, lane, lane).unwrap());
        let submitters = submitters.collect();
        let lanes = (0..lanes).map(|lane| device.open_lane(lane, &bell).unwrap()).collect();
        Scene { sim, device, lanes, submitters, now: Nanos::ZERO }
    }

    /// The device answers nothing on these lanes from now on.
    fn silence(&self, lanes: &[usize]) {
        let end = Nanos(u64::MAX);
        self.sim.world().plan.silences = lanes.iter().map(|l| (*l, Nanos::ZERO, end)).collect();
    }

    fn submit(&mut self, lane: usize, bio: Bio) {
        self.submitters[lane].submit(bio, self.now).expect("room for a bio");
        self.submitters[lane].flush_plug(self.now);
        self.step();
    }

    fn step(&mut self) {
        for _ in 0..4 {
            self.lanes.iter_mut().for_each(|lane| lane.run(self.now));
        }
    }

    /// Turns only what has a reason to be turned, as its home would.
    fn step_those_told(&mut self) {
        let now = self.now;
        let has_reason =
            |lane: &Lane| lane.has_work() || lane.wake_at().is_some_and(|at| at <= now);
        while let Some(lane) = self.lanes.iter_mut().find(|lane| has_reason(lane)) {
            lane.run(now);
        }
    }

    fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        while self.now < until {
            self.now = self.now + SECOND / 4;
            self.step();
        }
    }

    fn ended(&mut self, lane: usize) -> Vec<Completion> {
        let mut ended = Vec::new();
        self.submitters[lane].complete(self.now, |completion| ended.push(completion));
        ended
    }

    /// Lets time pass until something of this lane has ended: when that was, and how.
    fn next_end(&mut self, lane: usize, most_ns: u64) -> (Nanos, Status) {
        let until = self.now + most_ns;
        while self.now < until {
            self.pass(SECOND / 4);
            if let Some(ended) = self.ended(lane).first() {
                return (self.now, ended.status);
            }
        }
        panic!("nothing has ended at {}", self.now.0);
    }

    /// The device cannot be reached for these seconds, and says so.
    fn outages(&self, seconds: &[(u64, u64)]) {
        let outage = |(from, to): &(u64, u64)| (0, Nanos(from * SECOND), Nanos(to * SECOND));
        self.sim.world().plan.outages = seconds.iter().map(outage).collect();
    }

    fn statuses(&mut self, lane: usize) -> Vec<Status> {
        self.ended(lane).iter().map(|completion| completion.status).collect()
    }

    /// The device answers all it has, and goes on answering.
    fn come_back(&mut self) {
        self.sim.world().plan.silences.clear();
        self.sim.find_lost(self.now);
        self.step();
    }
}

fn write(cookie: u64, sector: u64, sectors: u32) -> Bio {
    let data = filled(cookie, sector, &[sectors]);
    Bio::new(Op::Write, sector, sectors, data).with(Flags::SYNC).cookie(cookie)
}

fn read(sector: u64, sectors: u32) -> Bio {
    Bio::read(sector, Buf::zeroed(sectors as usize * 512))
}

#[test]
fn a_newer_write_waits_for_one_that_ran_out_of_time_and_lands_behind_it() {
    for newer_lane in [0, 1] {
        let mut scene = Scene::new("none", 2, 8);
        scene.silence(&[0]);
        scene.submit(0, write(1, 8, 8));
        scene.pass(TIMEOUT_NS + SECOND);
        assert_eq!(scene.statuses(0), [Status::Timeout]);
        let may_land = |scene: &Scene| {
            [0..8, 0..9, 15..17, 16..24].map(|sectors| scene.device.may_change_late(sectors))
        };
        assert_eq!(may_land(&scene), [false, true, true, false]);
        scene.sim.world().plan.silences.clear();
        scene.submit(newer_lane, write(2, 12, 2));
        scene.submit(newer_lane, write(3, 16, 8));
        assert_eq!(scene.statuses(newer_lane), [Status::Ok], "the one beside the fence alone");
        scene.come_back();
        assert_eq!(scene.statuses(newer_lane), [Status::Ok], "the older one has landed");
        assert_eq!(may_land(&scene), [false; 4]);
        scene.submit(0, read(12, 2));
        assert_eq!(values(&scene.ended(0)[0].data), [value(2, 12), value(2, 13)]);
        assert_eq!(scene.device.stats().quarantined, 0);
    }
}

#[test]
fn what_overlaps_a_fence_ends_in_its_own_time() {
    for op in [Op::Read, Op::Write] {
        let mut scene = Scene::new("none", 1, 8);
        scene.silence(&[0]);
        scene.submit(0, write(1, 8, 8));
        scene.pass(TIMEOUT_NS + SECOND);
        assert_eq!(scene.statuses(0), [Status::Timeout]);
        scene.sim.world().plan.silences.clear();
        scene.submit(0, if op == Op::Read { read(15, 1) } else { write(2, 15, 1) });
        scene.pass(TIMEOUT_NS - SECOND / 2);
        assert!(scene.ended(0).is_empty(), "{op:?} ended before its time");
        scene.pass(2 * SECOND);
        assert_eq!(scene.statuses(0), [Status::Timeout]);
        let taken: u64 = scene.sim.world().tally.requests;
        assert_eq!(taken, 1, "the device never saw it");
    }
}

#[test]
fn a_read_that_ran_out_of_time_fences_nothing() {
    let mut scene = Scene::new("none", 1, 8);
    scene.silence(&[0]);
    scene.submit(0, read(8, 8));
    scene.pass(TIMEOUT_NS + SECOND);
    assert_eq!(scene.statuses(0), [Status::Timeout]);
    scene.sim.world().plan.silences.clear();
    scene.submit(0, write(1, 8, 8));
    assert_eq!(scene.statuses(0), [Status::Ok]);
}

#[test]
fn what_a_dead_lane_holds_goes_to_one_that_is_well() {
    for scheduler in ["none", "mq-deadline", "kyber", "bfq"] {
        let mut scene = Scene::new(scheduler, 2, 2);
        scene.silence(&[0]);
        for n in 0..8 {
            scene.submit(0, read(n * 16, 8).cookie(n));
        }
        scene.pass(TIMEOUT_NS + 2 * SECOND);
        let ended = scene.ended(0);
        let lost = ended.iter().filter(|completion| completion.status == Status::Timeout).count();
        assert_eq!((ended.len(), lost), (8, 2), "{scheduler}: two tags are lost, no more");
        scene.submit(0, read(300, 8));
        scene.pass(SECOND);
        assert_eq!(scene.statuses(0), [Status::Ok], "{scheduler}: the other lane serves it");
        scene.come_back();
        scene.submit(0, read(400, 8));
        scene.pass(SECOND);
        assert_eq!(scene.statuses(0), [Status::Ok], "{scheduler}");
        assert_eq!(scene.device.stats().quarantined, 0, "{scheduler}");
    }
}

#[test]
fn without_a_lane_that_is_well_each_ends_in_its_time_and_none_after_the_device_is_back() {
    for scheduler in ["none", "mq-deadline", "kyber", "bfq"] {
        let mut scene = Scene::new(scheduler, 1, 2);
        scene.silence(&[0]);
        for n in 0..8 {
            scene.submit(0, read(n * 16, 8));
        }
        scene.pass(TIMEOUT_NS + 2 * SECOND);
        assert_eq!(scene.statuses(0), [Status::Timeout; 8], "{scheduler}");
        scene.submit(0, read(300, 8));
        scene.pass(SECOND);
        assert!(scene.ended(0).is_empty(), "{scheduler}: it has time");
        scene.come_back();
        scene.pass(SECOND);
        assert_eq!(scene.statuses(0), [Status::Ok], "{scheduler}");
    }
}

#[test]
fn a_second_answer_after_a_cancel_ends_no_other_request() {
    let mut scene = Scene::new("none", 1, 1);
    (scene.sim.world().plan.twice, scene.sim.world().plan.found) = (100, 100);
    scene.silence(&[0]);
    scene.submit(0, read(0, 8));
    scene.pass(TIMEOUT_NS + SECOND);
    assert_eq!(scene.statuses(0), [Status::Timeout]);
    // The first answer gives the tag back, and another request gets it.
    scene.pass(3 * SECOND + SECOND / 2);
    assert_eq!(scene.device.stats().quarantined, 0);
    scene.submit(0, read(64, 8));
    scene.pass(3 * SECOND);
    assert_eq!(scene.device.stats().strays, 1, "the second answer was dropped");
    assert_eq!(scene.statuses(0), [Status::Timeout], "the request under the same tag had its time");
}

#[test]
fn answers_that_wait_while_the_process_is_stopped_are_taken_before_anything_is_overdue() {
    let mut scene = Scene::new("none", 1, 8);
    scene.sim.world().stalled = true;
    scene.submit(0, write(1, 0, 8));
    scene.pass(SECOND);
    // The process is stopped for a minute. Then a reap brings nothing yet, and the next one all.
    scene.now = scene.now + 60 * SECOND;
    scene.step();
    assert!(scene.ended(0).is_empty(), "not overdue at the first look");
    scene.sim.world().stalled = false;
    scene.step();
    assert_eq!(scene.statuses(0), [Status::Ok]);
}

#[test]
fn the_time_of_what_waits_stands_still_while_dispatch_is_paused() {
    for (mode, scheduler) in [(QueueMode::Mq, "none"), (QueueMode::Sq, "noop")] {
        for submitted_before in [true, false] {
            let mut scene = Scene::of(mode, TIMEOUT_NS, scheduler, 1, 1);
            scene.silence(&[0]);
            scene.submit(0, write(1, 0, 8));
            scene.pass(TIMEOUT_NS + SECOND);
            assert_eq!(scene.statuses(0), [Status::Timeout]);
            if submitted_before {
                scene.submit(0, read(64, 8));
            }
            let caller = Bell::new(Box::new(NoWake), 1);
            let mut quiescing = scene.device.begin_quiesce(&Watch::new(&caller, 0));
            scene.step();
            let Progress::Ended(quiesced) = quiescing.poll(scene.now) else { panic!("{mode:?}") };
            if !submitted_before {
                scene.submit(0, read(64, 8));
            }
            scene.pass(10 * SECOND);
            assert!(scene.ended(0).is_empty(), "{mode:?}: it waits on purpose");
            drop(quiesced);
            scene.pass(TIMEOUT_NS - SECOND);
            assert!(scene.ended(0).is_empty(), "{mode:?} {submitted_before}: it has all its time");
            scene.pass(3 * SECOND);
            assert_eq!(scene.statuses(0), [Status::Timeout], "{mode:?} {submitted_before}");
        }
    }
}

#[test]
fn a_lane_that_waits_for_a_fence_of_another_is_told_when_it_is_lifted() {
    let mut scene = Scene::new("none", 2, 8);
    scene.silence(&[0]);
    scene.submit(0, write(1, 8, 8));
    scene.pass(TIMEOUT_NS + SECOND);
    assert_eq!(scene.statuses(0), [Status::Timeout]);
    scene.sim.world().plan.silences.clear();
    scene.submit(1, write(2, 8, 8));
    assert!(!scene.lanes[1].has_work(), "it sleeps");
    scene.sim.find_lost(scene.now);
    scene.lanes[0].run(scene.now);
    assert!(scene.lanes[1].has_work(), "the older write has landed");
    scene.lanes[1].run(scene.now);
    scene.step();
    assert_eq!(scene.statuses(1), [Status::Ok]);
}

#[test]
fn what_is_left_of_a_bio_is_not_sent_when_a_part_of_it_has_run_out_of_time() {
    let mut scene = Scene::new("none", 1, 8);
    scene.silence(&[0]);
    // There are slots for 8 of its 20 parts at a time.
    scene.submit(0, write(1, 0, 320));
    scene.pass(TIMEOUT_NS + SECOND);
    assert_eq!(scene.statuses(0), [Status::Timeout], "all of it, in the time of its first parts");
    let sent = scene.sim.world().tally.requests;
    assert!(sent < 20, "{sent} parts were sent");
    scene.come_back();
    scene.sim.world().plan.silences = vec![(0, scene.now, Nanos(u64::MAX))];
    assert_eq!(scene.sim.world().tally.requests, sent, "and none later");
    assert_eq!((scene.device.stats().in_flight, scene.device.stats().quarantined), (0, 0));
}

#[test]
fn the_parts_of_a_bio_that_were_given_up_stay_fenced() {
    let mut scene = Scene::new("none", 2, 8);
    scene.silence(&[0]);
    scene.submit(0, write(1, 0, 320));
    scene.pass(TIMEOUT_NS + SECOND);
    assert_eq!(scene.statuses(0), [Status::Timeout]);
    scene.submit(1, read(300, 8).cookie(1));
    assert_eq!(scene.statuses(1), [Status::Ok], "what was not sent is as it was");
    scene.submit(1, write(2, 4, 2));
    assert!(scene.ended(1).is_empty(), "what was sent may change yet");
    scene.come_back();
    assert_eq!(scene.statuses(1), [Status::Ok]);
    scene.submit(0, read(0, 8));
    let older = [0, 1, 2, 3, 6, 7].map(|at| (at, 1));
    let held = values(&scene.ended(0)[0].data);
    for (at, cookie) in older.into_iter().chain([(4, 2), (5, 2)]) {
        assert_eq!(held[at as usize], value(cookie, at), "sector {at}");
    }
}

/// The ways to a driver: mode, scheduler, lanes.
const WAYS: [(QueueMode, &str, usize); 5] = [
    (QueueMode::Mq, "none", 2),
    (QueueMode::Mq, "mq-deadline", 2),
    (QueueMode::Mq, "kyber", 2),
    (QueueMode::Mq, "bfq", 2),
    (QueueMode::Sq, "noop", 1),
];

#[test]
fn a_bio_that_will_not_wait_ends_again_at_a_fence() {
    for (mode, scheduler, lanes) in WAYS {
        let mut scene = Scene::of(mode, TIMEOUT_NS, scheduler, lanes, 8);
        scene.silence(&[0]);
        scene.submit(0, write(1, 8, 8));
        scene.pass(TIMEOUT_NS + SECOND);
        assert_eq!(scene.statuses(0), [Status::Timeout]);
        scene.sim.world().plan.silences.clear();
        let lane = lanes - 1;
        for sector in [9, 1] {
            scene.submit(lane, read(sector, 8).with(Flags::NOWAIT));
            assert_eq!(scene.statuses(lane), [Status::Again], "{scheduler}: not at {sector}");
        }
        scene.submit(lane, read(16, 8).with(Flags::NOWAIT));
        scene.pass(SECOND);
        assert_eq!(scene.statuses(lane), [Status::Ok], "{scheduler}: beside the fence");
        // Neither does it wait as a part of one that may.
        let now = scene.now;
        scene.submitters[lane].submit(read(16, 8).cookie(1), now).unwrap();
        scene.submitters[lane].submit(read(8, 8).with(Flags::NOWAIT).cookie(2), now).unwrap();
        scene.submitters[lane].flush_plug(now);
        scene.pass(SECOND);
        let mut ended = scene.ended(lane);
        ended.sort_by_key(|completion| completion.cookie);
        let statuses: Vec<Status> = ended.iter().map(|completion| completion.status).collect();
        assert_eq!(statuses, [Status::Ok, Status::Again], "{scheduler}");
    }
}

#[test]
fn a_bio_that_will_not_wait_ends_again_at_a_fence_that_came_after_it() {
    for (mode, scheduler, lanes) in WAYS {
        let mut scene = Scene::of(mode, TIMEOUT_NS, scheduler, lanes, lanes as u16 % 2 + 1);
        let lane = lanes - 1;
        let until = Nanos(3 * SECOND + SECOND / 2);
        scene.silence(&[0]);
        scene.submit(0, write(1, 8, 8));
        scene.pass(TIMEOUT_NS - SECOND / 4);
        // The lane is busy until the fence is there, and its requests wait for tags.
        scene.sim.world().plan.silences = vec![(lane, Nanos::ZERO, until)];
        scene.submit(lane, read(100, 8).cookie(1));
        scene.submit(lane, read(8, 8).with(Flags::NOWAIT).cookie(2));
        // For a scheduler's tag, where there is one.
        scene.submit(lane, read(200, 8).cookie(3));
        assert_eq!(scene.sim.world().tally.requests, 2, "{scheduler}");
        scene.pass(2 * SECOND);
        let mut ended = scene.ended(lane);
        ended.retain(|completion| completion.op == Op::Read);
        ended.sort_by_key(|completion| completion.cookie);
        let statuses: Vec<Status> = ended.iter().map(|completion| completion.status).collect();
        assert_eq!(statuses, [Status::Ok, Status::Again, Status::Ok], "{scheduler}");
        assert_eq!(scene.device.stats().directions[0].ios, 2, "{scheduler}: it never was one");
        scene.come_back();
        assert_eq!(scene.device.stats().in_flight, scene.ended(0).len() as u64, "{scheduler}");
    }
}

/// From this many seconds on, and not 2 s later, a request that began at 0 has had 8 s.
#[track_caller]
fn assert_in_time((at, status): (Nanos, Status), seconds: u64) {
    assert_eq!(status, Status::Timeout);
    let seconds_later = at.0.saturating_sub(seconds * SECOND) / SECOND;
    assert!(at.0 >= seconds * SECOND && seconds_later < 2, "at {} ns, not {seconds} s", at.0);
}

#[test]
fn time_stands_still_in_an_outage_and_does_not_begin_anew_for_what_the_driver_has() {
    for (outages, end) in
        [(&[(7, 17)][..], 18), (&[(3, 5), (7, 17), (18, 30)], 8 + 24), (&[(9, 20)], 8)]
    {
        let mut scene = Scene::within(8 * SECOND, "none", 1, 8);
        scene.silence(&[0]);
        scene.outages(outages);
        scene.submit(0, read(0, 8));
        assert_in_time(scene.next_end(0, 100 * SECOND), end);
    }
}

#[test]
fn time_stands_still_in_an_outage_and_does_not_begin_anew_for_what_waits_at_a_fence() {
    let mut scene = Scene::within(8 * SECOND, "none", 1, 8);
    scene.silence(&[0]);
    scene.submit(0, write(1, 8, 8));
    scene.pass(9 * SECOND);
    assert_eq!(scene.statuses(0), [Status::Timeout]);
    scene.now = Nanos(100 * SECOND);
    scene.outages(&[(106, 116)]);
    scene.submit(0, write(2, 8, 8));
    assert_in_time(scene.next_end(0, 100 * SECOND), 118);
}

#[test]
fn a_queue_that_is_refused_everything_after_an_outage_is_not_looked_over_in_every_turn() {
    let mut scene = Scene::within(8 * SECOND, "none", 1, 8);
    scene.sim.world().plan = Plan { refused: 100, refusals_max: u32::MAX, ..Plan::default() };
    scene.outages(&[(2, 5)]);
    scene.submit(0, read(0, 8));
    // Refused for a time-out by the wall's clock at 12 s, by the one that stood still at 13 s.
    let end = loop {
        scene.pass(SECOND / 4);
        if let Some(ended) = scene.ended(0).first() {
            break (scene.now, ended.status);
        }
        let at = scene.lanes[0].wake_at().expect("it tries again");
        assert!(at > scene.now, "at {} ns it wants a turn at once, and again", scene.now.0);
    };
    assert_in_time(end, 13);
}

#[test]
fn what_the_driver_hands_back_has_no_new_time_each_time_it_is_sent() {
    for lanes in [1, 2] {
        let mut scene = Scene::within(8 * SECOND, "none", lanes, 8);
        let hands_back = Plan { requeued: 100, requeues_max: u32::MAX, ..Plan::default() };
        scene.sim.world().plan = Plan { slow_ns: 5 * SECOND, lent: 100, ..hands_back };
        scene.submit(0, read(0, 8));
        assert_in_time(scene.next_end(0, 100 * SECOND), 8);
        assert!(scene.sim.world().tally.requeues > 1);
    }
}

#[test]
fn what_a_bio_at_a_fence_had_of_the_scheduler_goes_to_those_that_wait_for_it() {
    for scheduler in ["mq-deadline", "kyber", "bfq"] {
        let mut scene = Scene::new(scheduler, 1, 2);
        scene.device.reconfigure(|parts| parts.nr_requests = 4).unwrap();
        scene.silence(&[0]);
        // Past the scheduler: it has none of its tags to give back.
        scene.submit(0, write(1, 104, 8).with(Flags::FUA));
        // The driver is not silent.
        scene.sim.world().plan.silences = vec![(0, Nanos::ZERO, Nanos(SECOND + SECOND / 2))];
        scene.submit(0, read(0, 8));
        let caller = Bell::new(Box::new(NoWake), 1);
        let mut quiescing = scene.device.begin_quiesce(&Watch::new(&caller, 0));
        scene.step();
        let Progress::Ended(quiesced) = quiescing.poll(scene.now) else { panic!("{scheduler}") };
        scene.pass(TIMEOUT_NS - SECOND / 4);
        assert_eq!(scene.statuses(0), [Status::Ok]);
        // These have all the tags, and the fence comes after them.
        for _ in 0..4 {
            scene.submit(0, read(104, 8).with(Flags::NOWAIT | Flags::NOMERGE));
        }
        scene.submit(0, read(200, 8));
        scene.pass(SECOND + SECOND / 4);
        assert_eq!(scene.statuses(0), [Status::Timeout]);
        drop(quiesced);
        scene.step_those_told();
        // Some schedulers wait for more of the same.
        scene.now = scene.now + SECOND / 100;
        scene.step_those_told();
        let ended = scene.statuses(0);
        let count = |of| ended.iter().filter(|status| **status == of).count();
        assert_eq!((count(Status::Ok), count(Status::Again)), (1, 4), "{scheduler}: {ended:?}");
    }
}

#[test]
fn the_scheduler_has_heard_of_what_ended_at_a_fence_before_it_can_be_exchanged() {
    for lanes in [1, 2] {
        for scheduler in ["mq-deadline", "kyber", "bfq"] {
            let mut scene = Scene::new(scheduler, lanes, 2);
            scene.device.reconfigure(|parts| parts.nr_requests = 4).unwrap();
            scene.silence(&[0]);
            scene.submit(0, write(1, 104, 8).with(Flags::FUA));
            let caller = Bell::new(Box::new(NoWake), 1);
            let watch = Watch::new(&caller, 0);
            let mut quiescing = scene.device.begin_quiesce(&watch);
            scene.step();
            let Progress::Ended(quiesced) = quiescing.poll(scene.now) else {
                panic!("{scheduler}")
            };
            scene.pass(TIMEOUT_NS - SECOND / 4);
            // The fence comes after this one.
            scene.submit(0, read(104, 8).with(Flags::NOWAIT));
            scene.pass(SECOND + SECOND / 4);
            assert_eq!(scene.statuses(0), [Status::Timeout]);
            drop(quiesced);
            let mut turns = 0;
            let status = loop {
                scene.lanes[0].run(scene.now);
                if let Some(ended) = scene.ended(0).first() {
                    break ended.status;
                }
                turns += 1;
                assert!(turns < 100, "{scheduler}: it never ends");
                scene.now = scene.now + SECOND / 1000;
            };
            assert_eq!(status, Status::Again, "{scheduler}");
            // Not one turn later: the device has no request.
            let mut switching = scene.device.begin_switch(&watch, "none");
            let Progress::Ended(switched) = switching.poll(scene.now) else {
                panic!("{scheduler}: it waits")
            };
            assert!(switched.is_ok(), "{scheduler}");
            assert_eq!(scene.device.scheduler(), "none");
        }
    }
}

#[test]
fn what_a_bio_at_a_fence_had_of_the_pool_goes_to_those_that_wait_for_it() {
    let mut scene = Scene::of(QueueMode::Sq, TIMEOUT_NS, "noop", 1, 2);
    scene.device.reconfigure(|parts| parts.nr_requests = 4).unwrap();
    scene.silence(&[0]);
    // Past the pool.
    scene.submit(0, write(1, 104, 8).with(Flags::FUA));
    let caller = Bell::new(Box::new(NoWake), 1);
    let mut quiescing = scene.device.begin_quiesce(&Watch::new(&caller, 0));
    let Progress::Ended(quiesced) = quiescing.poll(scene.now) else { panic!("it is at once") };
    for _ in 0..4 {
        scene.submit(0, read(104, 8).with(Flags::NOWAIT | Flags::NOMERGE));
    }
    scene.pass(TIMEOUT_NS + SECOND);
    assert_eq!(scene.statuses(0), [Status::Timeout]);
    drop(quiesced);
    scene.lanes[0].run(scene.now);
    assert_eq!(scene.statuses(0), [Status::Again; 4]);
    let now = scene.now;
    scene.submitters[0].submit(read(200, 8), now).expect("a place in the pool");
    scene.submitters[0].flush_plug(now);
    scene.sim.world().plan.silences.clear();
    scene.come_back();
    assert_eq!(scene.statuses(0), [Status::Ok]);
}

#[test]
fn a_lane_in_need_is_told_when_no_lane_is_well_any_more() {
    let mut scene = Scene::new("none", 2, 2);
    scene.silence(&[0, 1]);
    scene.submit(0, read(0, 8));
    scene.pass(SECOND + SECOND / 2);
    scene.submit(1, read(64, 8));
    let mut told = false;
    while !scene.submitters[1].has_completions() {
        scene.now = scene.now + SECOND / 4;
        (0..3).for_each(|_| scene.lanes[0].run(scene.now));
        assert!(!scene.lanes[0].has_work());
        scene.lanes[1].run(scene.now);
        told |= scene.lanes[0].has_work();
    }
    assert_eq!(scene.statuses(0), [Status::Timeout]);
    assert!(told, "what it has is for no other lane to send");
}

#[test]
fn what_a_lane_took_over_ends_in_its_time_however_busy_the_lane() {
    let mut scene = Scene::new("none", 2, 1);
    let slow = |n: u64| (1, Nanos(n * 3 * SECOND / 2), Nanos((n + 1) * 3 * SECOND / 2));
    let dead = (0, Nanos::ZERO, Nanos(u64::MAX));
    scene.sim.world().plan.silences = (0..10).map(slow).chain([dead]).collect();
    for n in 0..6 {
        scene.submit(0, read(n * 16, 8));
    }
    scene.pass(TIMEOUT_NS + 2 * SECOND);
    let ended = scene.ended(0);
    assert_eq!(ended.len(), 6);
    let served = ended.iter().filter(|completion| completion.status == Status::Ok).count();
    assert!((1..5).contains(&served), "the other lane served {served}");
}

#[test]
fn a_bio_of_which_the_device_may_have_memory_says_so_whatever_else_failed() {
    let mut scene = Scene::new("none", 1, 1);
    let (second, end) = (Nanos(SECOND), Nanos(u64::MAX));
    {
        // The first part fails, the second is lost.
        let mut world = scene.sim.world();
        (world.plan.failed, world.plan.errors) = (100, vec![Status::Medium]);
        world.plan.silences = vec![(0, Nanos::ZERO, second), (0, second, end)];
    }
    scene.submit(0, write(1, 0, 32));
    scene.pass(SECOND + TIMEOUT_NS + SECOND);
    let ended = scene.ended(0);
    assert_eq!(ended[0].status, Status::Timeout);
    assert!(ended[0].data.len() < 32 * 512, "and that is what is missing");
}

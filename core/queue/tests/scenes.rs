//! Scenes made by hand: each is one thing that once went wrong, or nearly did.

use std::sync::Arc;

use weir_bio::{Bio, Buf, Data, Flags, Limits, Nanos, Op, Status};
use weir_laws::device::{Plan, Shape, Sim};
use weir_laws::filled;
use weir_queue::driver::Affinity;
use weir_queue::{
    Bell, Completion, Config, Device, Lane, NoWake, QueueMode, Refused, Settings, Spread, Submitter,
};

fn bell() -> Arc<Bell> {
    Bell::new(Box::new(NoWake), 64)
}

fn limits() -> Limits {
    Limits { capacity: 512, max_hw_sectors: 64, ..Limits::default() }
}

fn shape(limits: Limits, depth: u16) -> Shape {
    let (shared_tags, home, announced) = (false, Affinity::Any, false);
    Shape { limits, depth, shared_tags, home, announced, plan: Plan::default(), seed: 1 }
}

fn write(cookie: u64, sector: u64, sectors: u32) -> Bio {
    Bio::new(Op::Write, sector, sectors, filled(cookie, sector, &[sectors]))
        .with(Flags::SYNC)
        .cookie(cookie)
}

/// One lane and one submitter, turned by hand.
struct Scene {
    sim: Arc<Sim>,
    device: Device,
    lane: Lane,
    submitter: Submitter,
    bell: Arc<Bell>,
    now: Nanos,
}

impl Scene {
    fn new(shape: Shape, config: Config) -> Scene {
        // The plain paths, unless a scene is about a scheduler.
        let plain = if config.mode == QueueMode::Sq { "noop" } else { "none" };
        let scheduler = config.scheduler.or_else(|| Some(String::from(plain)));
        // These scenes are about other reasons to wait.
        let wbt_lat_us = config.wbt_lat_us.or(Some(0));
        let config = Config { scheduler, wbt_lat_us, ..config };
        let sim = Sim::new(shape);
        let device = Device::new(config, Arc::clone(&sim) as Arc<_>).unwrap();
        let bell = bell();
        let lane = device.open_lane(0, &bell).unwrap();
        let submitter = device.submitter(&bell, 0, 0).unwrap();
        Scene { sim, device, lane, submitter, bell, now: Nanos::ZERO }
    }

    fn submit(&mut self, bio: Bio) {
        self.submitter.submit(bio, self.now).expect("room for a bio");
    }

    fn step(&mut self) {
        self.submitter.flush_plug(self.now);
        self.lane.run(self.now);
    }

    fn ended(&mut self) -> Vec<Completion> {
        let mut ended = Vec::new();
        self.submitter.complete(self.now, |completion| ended.push(completion));
        ended
    }
}

#[test]
fn a_flush_waits_for_the_data_after_a_preflush_and_not_any_longer() {
    let cached = Limits { volatile_cache: true, ..limits() };
    let mut scene = Scene::new(shape(cached, 8), Config::default());
    scene.submit(write(1, 0, 8).with(Flags::PREFLUSH));
    (0..4).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 1);
    assert!(scene.lane.is_idle(), "nothing is under way");
    scene.submit(Bio::flush());
    (0..2).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 1, "a flush with nothing before it is sent at once");
}

fn single(home: Affinity) -> (Shape, Config) {
    let config = Config { mode: QueueMode::Sq, ..Config::default() };
    (Shape { home, ..shape(limits(), 8) }, config)
}

#[test]
fn the_single_queues_home_sees_before_it_sleeps_that_others_have_submitted() {
    for home in [Affinity::Any, Affinity::Fixed] {
        let (shape, config) = single(home);
        let mut scene = Scene::new(shape, config);
        // Another thread's submitter; the home is awake, so that it does not hear its bell.
        let mut other = scene.device.submitter(&bell(), 0, 0).unwrap();
        scene.lane.run(scene.now);
        other.submit(write(1, 0, 8), scene.now).unwrap();
        other.flush_plug(scene.now);
        assert!(scene.lane.has_work(), "{home:?}");
        scene.lane.run(scene.now);
        scene.lane.run(scene.now);
        assert_eq!(other.complete(scene.now, drop), 1, "{home:?}");
    }
}

#[test]
fn a_single_queue_that_is_let_go_looks_at_what_came_meanwhile() {
    let (shape, config) = single(Affinity::Any);
    let mut scene = Scene::new(shape, config);
    let quiesced = scene.device.quiesce();
    scene.submitter.submit(write(1, 0, 8), scene.now).unwrap();
    scene.submitter.flush_plug(scene.now);
    scene.lane.run(scene.now);
    assert!(!scene.lane.has_work());
    drop(quiesced);
    assert!(scene.lane.has_work());
}

#[test]
fn lanes_that_find_no_tag_do_not_keep_waking_each_other() {
    let plan = Plan { slow_ns: 1_000_000, ..Plan::default() };
    let shape = Shape { shared_tags: true, plan, ..shape(limits(), 1) };
    let mut scene = Scene::new(shape, Config { queues: 3, ..Config::default() });
    let bells = [bell(), bell()];
    let open = |lane| scene.device.open_lane(lane, &bells[lane - 1]).unwrap();
    let mut others = [open(1), open(2)];
    let submitter = |lane| scene.device.submitter(&bells[lane - 1], 0, lane).unwrap();
    let mut waiting = [submitter(1), submitter(2)];
    scene.submit(write(1, 0, 8));
    scene.step();
    let now = scene.now;
    for (index, submitter) in waiting.iter_mut().enumerate() {
        let cookie = index as u64 + 2;
        submitter.submit(write(cookie, cookie * 8, 8), now).unwrap();
        submitter.flush_plug(now);
    }
    let mut turns = 0;
    while others.iter().any(Lane::has_work) || scene.lane.has_work() {
        others.iter_mut().for_each(|lane| lane.run(now));
        scene.lane.run(now);
        turns += 1;
        assert!(turns < 10, "the only tag is with the device, and everybody is busy");
    }
    let mut ended = 0;
    for _ in 0..100 {
        scene.now = scene.now + 1_000_000;
        scene.lane.run(scene.now);
        for (lane, submitter) in others.iter_mut().zip(&mut waiting) {
            // Only for a reason.
            if lane.has_work() || lane.wake_at().is_some_and(|at| at <= scene.now) {
                lane.run(scene.now);
            }
            ended += submitter.complete(scene.now, drop);
        }
    }
    assert_eq!(ended, 2, "they were told when the tag came back");
}

#[test]
fn a_merged_discard_reports_its_own_length() {
    let limits = Limits { max_hw_discard_sectors: 64, ..limits() };
    let mut scene = Scene::new(shape(limits, 8), Config::default());
    for (cookie, sector, sectors) in [(1, 16, 8), (2, 24, 4), (3, 12, 4), (4, 28, 2)] {
        scene.submit(Bio::new(Op::Discard, sector, sectors, Data::None).cookie(cookie));
    }
    (0..2).for_each(|_| scene.step());
    assert_eq!(scene.sim.world().tally.requests, 1, "all are merged");
    let mut ended: Vec<_> = scene.ended().iter().map(|c| (c.cookie, c.sectors)).collect();
    ended.sort_unstable();
    assert_eq!(ended, [(1, 8), (2, 4), (3, 4), (4, 2)]);
    let stats = scene.device.stats();
    assert_eq!((stats.directions[2].ios, stats.directions[2].merges), (1, 3));
    assert_eq!(stats.directions[2].sectors, 18);
}

#[test]
fn a_bio_that_failed_in_several_parts_is_one_error() {
    let plan = Plan { failed: 100, errors: vec![Status::Medium], ..Plan::default() };
    let mut scene = Scene::new(Shape { plan, ..shape(limits(), 8) }, Config::default());
    scene.submit(write(1, 0, 200));
    (0..2).for_each(|_| scene.step());
    let ended = scene.ended();
    assert_eq!((ended.len(), ended[0].status), (1, Status::Medium));
    assert_eq!((scene.sim.world().tally.requests, scene.device.stats().errors), (4, 1));
}

#[test]
fn merging_counts_the_segments_a_long_buffer_is_cut_into() {
    let limits = Limits { max_segments: 4, max_segment_size: 4096, ..limits() };
    let mut scene = Scene::new(shape(limits, 8), Config::default());
    // 3 segments each: the device checks that the two are not put together.
    scene.submit(write(1, 0, 24));
    scene.submit(write(2, 24, 24));
    (0..2).for_each(|_| scene.step());
    assert_eq!((scene.ended().len(), scene.sim.world().tally.requests), (2, 2));
}

#[test]
fn no_gap_comes_from_a_cut_off_the_boundary() {
    let limits = Limits { max_hw_sectors: 9, virt_boundary_mask: 4095, ..limits() };
    let mut scene = Scene::new(shape(limits, 8), Config::default());
    // The second part starts in the middle of a page, and then there is more memory behind it.
    let data = filled(1, 0, &[17, 8]);
    scene.submit(Bio::new(Op::Write, 0, 25, data).cookie(1));
    scene.submit(write(2, 25, 1));
    (0..2).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 2);
}

#[test]
fn a_retry_that_finds_no_tag_waits_for_one_and_not_for_its_time() {
    let plan = Plan { refused: 100, refusals_max: 1, ..Plan::default() };
    let shape = Shape { shared_tags: true, plan, ..shape(limits(), 1) };
    let mut scene = Scene::new(shape, Config { queues: 2, ..Config::default() });
    let mut other = scene.device.open_lane(1, &bell()).unwrap();
    let mut faster = scene.device.submitter(&bell(), 0, 1).unwrap();
    scene.submit(write(1, 0, 8));
    scene.step();
    assert!(scene.lane.wake_at().is_some(), "refused by a driver that has nothing");
    scene.sim.world().stalled = true;
    faster.submit(write(2, 8, 8), scene.now).unwrap();
    faster.flush_plug(scene.now);
    other.run(scene.now);
    scene.now = scene.now + 10_000_000;
    scene.step();
    assert!(scene.lane.wake_at().is_none_or(|at| at > scene.now), "the other lane has the tag");
    scene.sim.world().stalled = false;
    other.run(scene.now);
    assert!(scene.lane.has_work(), "it came back");
    (0..2).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 1);
}

#[test]
fn a_quiesced_device_still_takes_the_answers_to_what_it_sent() {
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        let plan = Plan { slow_ns: 1_000, ..Plan::default() };
        let config = Config { mode, ..Config::default() };
        let mut scene = Scene::new(Shape { plan, ..shape(limits(), 8) }, config);
        scene.submit(write(1, 0, 8));
        scene.step();
        let device = scene.device.clone();
        // The lane has to answer a quiesce, so another thread asks for it.
        let (say, held) = std::sync::mpsc::channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        #[expect(clippy::disallowed_methods, reason = "a test may own a thread; core may not")]
        let asking = std::thread::spawn(move || {
            let quiesced = device.quiesce();
            say.send(()).unwrap();
            wait.recv().unwrap();
            drop(quiesced);
        });
        while held.try_recv().is_err() {
            scene.lane.run(scene.now);
        }
        scene.now = scene.lane.wake_at().expect("a time for the answer").max(scene.now);
        scene.lane.run(scene.now);
        assert_eq!(scene.ended().len(), 1, "{mode:?}");
        go.send(()).unwrap();
        asking.join().unwrap();
        scene.step();
    }
}

#[test]
fn nothing_is_overdue_before_its_time_on_a_clock_that_began_at_zero() {
    let plan = Plan { lost: 100, ..Plan::default() };
    let mut scene = Scene::new(Shape { plan, ..shape(limits(), 8) }, Config::default());
    scene.submit(write(1, 0, 8));
    scene.step();
    for second in 1..=30 {
        assert!(scene.ended().is_empty(), "given up before second {second}");
        scene.now = Nanos(second * 1_000_000_000);
        scene.step();
    }
    assert_eq!(scene.ended()[0].status, Status::Timeout);
    assert_eq!(scene.device.stats().quarantined, 1);
    scene.sim.find_lost(scene.now);
    scene.step();
    assert_eq!(scene.device.stats().quarantined, 0);
}

#[test]
fn who_will_not_wait_is_told_again_at_a_closed_gate() {
    let mut scene = Scene::new(shape(limits(), 8), Config::default());
    let device = scene.device.clone();
    let frozen = device.freeze();
    let refused = scene.submitter.submit(write(1, 0, 8), scene.now).unwrap_err();
    assert!(matches!(refused, Refused::Frozen(_)));
    scene.submit(write(2, 0, 8).with(Flags::NOWAIT));
    assert_eq!((device.stats().in_flight, scene.submitter.in_flight()), (0, 0));
    let ended = scene.ended();
    assert_eq!((ended.len(), ended[0].status, ended[0].cookie), (1, Status::Again, 2));
    // A second freezer is not kept out by either.
    drop(device.freeze());
    drop(frozen);
    scene.submit(refused.into_bio());
    (0..2).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 1);
}

#[test]
fn a_refused_bio_comes_back_with_the_flags_it_had() {
    let (shape, config) = single(Affinity::Any);
    let mut scene = Scene::new(shape, Config { nr_requests: Some(4), ..config });
    // Half as many again, for who fills it.
    (0..6).for_each(|n| scene.submit(write(n, n * 32, 8)));
    let fua = write(9, 300, 8).with(Flags::FUA);
    let flags = fua.flags;
    // There is no cache, so FUA is struck off what is sent; but this is not sent.
    let refused = scene.submitter.submit(fua, scene.now).unwrap_err();
    assert_eq!(refused.into_bio().flags, flags);
    (0..2).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 6);
}

#[test]
fn two_reconfigurations_at_once_both_come_into_force() {
    for round in 0..50 {
        let scene = Scene::new(shape(limits(), 64), Config::default());
        let device = &scene.device;
        let start = std::sync::Barrier::new(2);
        let change = |change: fn(&mut Settings)| {
            start.wait();
            let slowly = |parts: &mut Settings| {
                (0..100).for_each(|_| std::thread::yield_now());
                change(parts);
            };
            device.reconfigure(slowly).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| change(|parts| parts.limits.max_user_sectors = 32));
            scope.spawn(|| change(|parts| parts.nr_requests = 7));
        });
        let now = (device.limits().max_user_sectors, device.nr_requests());
        assert_eq!(now, (32, 7), "round {round}");
    }
}

#[test]
fn a_secure_erase_is_cut_to_its_own_limit() {
    let limits = Limits { max_secure_erase_sectors: 8, ..limits() };
    let mut scene = Scene::new(shape(limits, 8), Config::default());
    scene.submit(Bio::new(Op::SecureErase, 0, 32, Data::None));
    (0..2).for_each(|_| scene.step());
    assert_eq!((scene.ended().len(), scene.sim.world().tally.requests), (1, 4));
}

#[test]
fn in_turn_the_first_window_that_fails_is_the_last_one() {
    let plan = Plan { failed: 100, errors: vec![Status::Medium], ..Plan::default() };
    let config = Config { spread: Spread::RoundRobin, ..Config::default() };
    let mut scene = Scene::new(Shape { plan, ..shape(limits(), 8) }, config);
    scene.submit(write(1, 0, 200));
    let ended = loop {
        scene.step();
        if let Some(ended) = scene.ended().pop() {
            break ended;
        }
    };
    assert_eq!((ended.status, ended.data.len()), (Status::Medium, 200 * 512));
    assert_eq!(scene.sim.world().tally.requests, 1);
}

#[test]
fn submitters_that_wait_for_tags_are_served_in_turn() {
    let mut scene = Scene::new(shape(limits(), 2), Config::default());
    let more = [0, 0].map(|_| scene.device.submitter(&scene.bell, 0, 0).unwrap());
    let mut submitters: Vec<Submitter> = more.into();
    submitters.insert(0, scene.submitter);
    for (index, submitter) in submitters.iter_mut().enumerate() {
        for n in 0..4 {
            let at = (index as u64 * 4 + n) * 32;
            submitter.submit(write(at + 1, at, 8), scene.now).unwrap();
        }
        submitter.flush_plug(scene.now);
    }
    (0..8).for_each(|_| scene.lane.run(scene.now));
    let order = scene.sim.world().tally.order[0].clone();
    assert_eq!(order.len(), 12);
    // The first pass does not know yet that there is too little for all.
    for round in order[2..].windows(3).take(6) {
        let mut seen = round.to_vec();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2], "{order:?}");
    }
    submitters.iter_mut().for_each(|s| assert_eq!(s.complete(scene.now, drop), 4));
}

#[test]
fn a_lane_that_looked_whether_it_may_rest_still_takes_what_comes_afterwards() {
    let mut scene = Scene::new(shape(limits(), 8), Config::default());
    scene.step();
    scene.submit(write(1, 0, 8));
    scene.submitter.flush_plug(scene.now);
    assert!(!scene.lane.is_idle());
    scene.submit(write(2, 64, 8));
    (0..2).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 2);
}

#[test]
fn a_lane_opened_again_serves_the_submitters_that_were_there_before() {
    for (mode, home) in [
        (QueueMode::Mq, Affinity::Any),
        (QueueMode::Sq, Affinity::Any),
        (QueueMode::Sq, Affinity::Fixed),
    ] {
        for announced in [false, true] {
            let config = Config { mode, ..Config::default() };
            let mut scene = Scene::new(Shape { home, announced, ..shape(limits(), 8) }, config);
            scene.submit(write(1, 0, 8));
            (0..2).for_each(|_| scene.step());
            assert_eq!(scene.ended().len(), 1);
            let Scene { sim: _sim, device, lane, mut submitter, bell, now } = scene;
            drop(lane);
            let mut lane = device.open_lane(0, &bell).expect("it was closed");
            assert_eq!(lane.event().unwrap().is_some(), announced, "{mode:?} {home:?}");
            submitter.submit(write(2, 8, 8), now).unwrap();
            submitter.flush_plug(now);
            (0..2).for_each(|_| lane.run(now));
            assert_eq!(submitter.complete(now, drop), 1, "{mode:?} {home:?}");
        }
    }
}

#[test]
fn a_lane_that_closes_answers_whoever_waits_for_it_to_pause() {
    let config = Config { queues: 2, ..Config::default() };
    let scene = Scene::new(shape(limits(), 8), config);
    let Scene { device, lane, .. } = scene;
    let (say, paused) = std::sync::mpsc::channel();
    #[expect(clippy::disallowed_methods, reason = "a test may own a thread; core may not")]
    let asking = std::thread::spawn(move || {
        let quiesced = device.quiesce();
        say.send(()).unwrap();
        drop(quiesced);
    });
    // Asked or not yet: a closed lane is waited for in neither case.
    drop(lane);
    paused.recv().unwrap();
    asking.join().unwrap();
}

#[test]
fn memory_that_an_operation_does_not_take_is_an_answer_and_no_panic() {
    let limits = Limits { max_write_zeroes_sectors: 8, max_hw_discard_sectors: 8, ..limits() };
    let mut scene = Scene::new(shape(limits, 8), Config::default());
    for op in [Op::WriteZeroes, Op::Discard] {
        scene.submit(Bio::new(op, 0, 64, filled(1, 0, &[8])));
        scene.step();
        let ended = scene.ended();
        assert_eq!((ended.len(), ended[0].status), (1, Status::Inval), "{op:?}");
        assert_eq!(ended[0].data.len(), 8 * 512, "its memory comes back");
    }
}

#[test]
fn a_device_flush_counts_among_what_goes_towards_the_device() {
    let plan = Plan { slow_ns: 1_000, ..Plan::default() };
    let cached = Limits { volatile_cache: true, ..limits() };
    let mut scene = Scene::new(Shape { plan, ..shape(cached, 8) }, Config::default());
    scene.submit(Bio::flush());
    scene.step();
    assert_eq!(scene.device.stats().in_driver, [0, 1]);
    scene.now = scene.now + 1_000;
    scene.step();
    assert_eq!(scene.device.stats().in_driver, [0, 0]);
    assert_eq!(scene.ended().len(), 1);
}

#[test]
fn without_a_scheduler_the_driver_holds_no_more_than_nr_requests() {
    let mut scene = Scene::new(shape(limits(), 16), Config::default());
    let mut most = |nr_requests: u16| {
        scene.device.reconfigure(|parts| parts.nr_requests = nr_requests).unwrap();
        (0..12).for_each(|n| scene.submit(write(n, n * 16, 8)));
        let (mut most, mut ended) = (0, 0);
        while ended < 12 {
            scene.step();
            most = most.max(scene.device.stats().in_driver[1]);
            ended += scene.ended().len();
        }
        most
    };
    assert_eq!([12, 4, 5, 16].map(&mut most), [12, 4, 5, 12]);
    let none = Config { nr_requests: Some(4), ..Config::default() };
    let mut scene = Scene::new(shape(limits(), 16), none);
    (0..6).for_each(|n| scene.submit(write(n, n * 16, 8)));
    scene.step();
    assert_eq!(scene.device.stats().in_driver, [0, 4]);
    (0..2).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 6);
}

#[test]
fn the_round_robin_spread_merges_nothing_when_it_runs_short() {
    let config = Config { spread: Spread::RoundRobin, ..Config::default() };
    let mut scene = Scene::new(shape(limits(), 1), config);
    for cookie in 0..4 {
        scene.submit(write(cookie, cookie * 8, 8));
        scene.step();
    }
    (0..8).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 4);
    assert_eq!(scene.device.stats().directions[1].merges, 0);
}

#[test]
fn a_token_the_bell_has_no_room_for_is_refused() {
    let scene = Scene::new(shape(limits(), 8), Config::default());
    let error = scene.device.submitter(&scene.bell, 64, 0).err().expect("a bell for 64");
    assert!(error.to_string().contains("token=64") && error.to_string().contains("0..64"));
}

#[test]
fn a_lane_whose_share_is_lost_uses_the_free_tags_of_the_set() {
    let plan = Plan { lost: 100, ..Plan::default() };
    let sim = Sim::new(Shape { shared_tags: true, plan, ..shape(limits(), 17) });
    let config = Config { queues: 3, timeout_ns: 2_000_000_000, ..Config::default() };
    let device = Device::new(config, Arc::clone(&sim) as Arc<_>).unwrap();
    let bell = bell();
    let mut lanes: Vec<Lane> = (0..3).map(|i| device.open_lane(i, &bell).unwrap()).collect();
    let mut submitters: Vec<Submitter> =
        (0..3).map(|i| device.submitter(&bell, i, i).unwrap()).collect();
    // Of 17 tags three lanes may have 6 each: the first loses 6, the others one.
    for (lane, count) in [(0, 6), (1, 1), (2, 1)] {
        for index in 0..count {
            submitters[lane].submit(write(index + 1, index * 16, 8), Nanos(0)).unwrap();
        }
        submitters[lane].flush_plug(Nanos(0));
        lanes[lane].run(Nanos(0));
    }
    let mut now = Nanos(0);
    for _ in 0..5 {
        now = now + 1_000_000_000;
        lanes.iter_mut().for_each(|lane| lane.run(now));
    }
    let ended: usize = submitters.iter_mut().map(|s| s.complete(now, drop)).sum();
    assert_eq!((ended, device.stats().quarantined), (8, 8), "told TIMEOUT, tags lost");
    sim.world().plan.lost = 0;
    submitters[0].submit(write(100, 400, 8), now).unwrap();
    submitters[0].flush_plug(now);
    for _ in 0..100 {
        now = now + 1_000_000_000;
        lanes.iter_mut().for_each(|lane| lane.run(now));
    }
    assert_eq!(submitters[0].complete(now, drop), 1, "9 of 17 tags are free");
}

#[test]
fn nothing_is_counted_while_iostats_is_off_and_everything_again_afterwards() {
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        let cached = Limits { volatile_cache: true, ..limits() };
        let config = Config { mode, iostats: false, ..Config::default() };
        let mut scene = Scene::new(shape(cached, 8), config);
        // In the first it is as the device was made.
        for (round, iostats) in [false, true, false, true].into_iter().enumerate() {
            if round > 0 {
                scene.device.reconfigure(|parts| parts.iostats = iostats).unwrap();
            }
            scene.submit(write(round as u64, 0, 8));
            (0..2).for_each(|_| scene.step());
            scene.submit(Bio::flush());
            (0..2).for_each(|_| scene.step());
            assert_eq!(scene.ended().len(), 2, "{mode:?}, round {round}");
            scene.now = scene.now + 1_000_000_000;
            let stats = scene.device.stats();
            let counted = [0, 1, 1, 2][round];
            assert_eq!(stats.directions[1].sectors, counted * 8, "{mode:?}, round {round}");
            assert_eq!((stats.flushes, stats.in_flight), (counted, 0), "{mode:?}, round {round}");
        }
    }
}

#[test]
fn a_device_that_gives_no_answer_is_busy_for_a_reader_of_its_statistics() {
    const MS: u64 = 1_000_000;
    for (mode, iostats) in [(QueueMode::Mq, true), (QueueMode::Sq, true), (QueueMode::Mq, false)] {
        let plan = Plan { slow_ns: 1_000 * MS, ..Plan::default() };
        let config = Config { mode, iostats, ..Config::default() };
        let mut scene = Scene::new(Shape { plan, ..shape(limits(), 8) }, config);
        // Time in which nothing is under way is no busy time, whenever it is read.
        let begin = Nanos(10_000 * MS);
        assert_eq!(scene.device.stats_at(begin).busy_ticks, 0);
        scene.now = begin;
        scene.submit(write(1, 0, 8));
        scene.step();
        let read = |scene: &Scene, ms: u64| {
            let busy = scene.device.stats_at(begin + ms * MS).busy_ticks;
            assert_eq!(scene.device.stats().busy_ticks, busy, "what was read stays");
            busy * 4
        };
        let counted = |ms: u64| if iostats { ms } else { 0 };
        for ms in [0, 400, 400, 800, 600] {
            let latest = if ms == 600 { 800 } else { ms };
            assert_eq!(read(&scene, ms), counted(latest), "{mode:?}, at {ms} ms");
        }
        scene.now = begin + 1_000 * MS;
        scene.step();
        assert_eq!(scene.ended().len(), 1);
        for ms in [1_000, 9_000] {
            assert_eq!(read(&scene, ms), counted(1_000), "{mode:?}, at {ms} ms");
        }
    }
}

#[test]
fn a_new_timeout_holds_for_what_is_submitted_from_then_on() {
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        let config = Config { mode, timeout_ns: 30_000_000_000, ..Config::default() };
        let mut scene = Scene::new(shape(limits(), 8), config);
        scene.now = Nanos(100_000_000_000);
        scene.step();
        scene.device.reconfigure(|parts| parts.timeout_ns = 2_000_000_000).unwrap();
        scene.sim.world().stalled = true;
        scene.submit(write(1, 0, 8));
        scene.step();
        scene.now = scene.now + 1_500_000_000;
        scene.step();
        assert!(scene.ended().is_empty(), "{mode:?}: its time is not up");
        scene.now = scene.now + 1_500_000_000;
        scene.step();
        let ended = scene.ended();
        assert_eq!(ended.len(), 1, "{mode:?}");
        assert_eq!(ended[0].status, Status::Timeout, "{mode:?}");
        assert_eq!(scene.device.settings().timeout_ns, 2_000_000_000);
    }
}

#[test]
fn a_scheduler_that_is_gone_wakes_nobody() {
    let config = Config { scheduler: Some("kyber".into()), timeout_ns: 0, ..Config::default() };
    let mut scene = Scene::new(shape(limits(), 8), config);
    scene.submit(write(1, 0, 8));
    (0..4).for_each(|_| scene.step());
    assert_eq!(scene.ended().len(), 1);
    let soon = |lane: &Lane| lane.wake_at().is_some_and(|at| at <= Nanos::from_ms(100));
    assert!(soon(&scene.lane), "kyber looks at its latencies some time");
    scene.device.set_scheduler("none", &|| Nanos::ZERO).unwrap();
    scene.step();
    assert!(!soon(&scene.lane));
}

#[test]
fn a_write_under_a_depth_limit_gets_its_turn_beside_reads_that_never_end() {
    let config = Config {
        scheduler: Some("mq-deadline".into()),
        tunables: vec![("async_depth".into(), "1".into())],
        nr_requests: Some(4),
        timeout_ns: 0,
        ..Config::default()
    };
    let mut scene = Scene::new(shape(limits(), 1), config);
    let mut sector = 0;
    let mut fill = |scene: &mut Scene| {
        let read = |sector| Bio::read(sector, Buf::zeroed(4096));
        while scene.submitter.submit(read(sector % 256), scene.now).is_ok() {
            sector += 24;
        }
    };
    (0..2).for_each(|n| scene.submit(write(n, 8 + 32 * n, 8)));
    fill(&mut scene);
    let mut written = 0;
    for _ in 0..200 {
        scene.step();
        written += scene.ended().iter().filter(|ended| ended.op == Op::Write).count();
        fill(&mut scene);
    }
    assert_eq!(written, 2, "both writes, though the second had to wait for the first");
    for _ in 0..20 {
        scene.step();
        scene.ended();
    }
}

#[test]
fn a_background_write_gets_its_turn_beside_writes_that_somebody_waits_for() {
    let config = Config {
        scheduler: Some("bfq".into()),
        nr_requests: Some(16),
        timeout_ns: 0,
        ..Config::default()
    };
    let mut scene = Scene::new(shape(limits(), 1), config);
    let mut cookie = 0;
    let mut fill = |scene: &mut Scene| loop {
        cookie += 1;
        if scene.submitter.submit(write(cookie, cookie * 24 % 480, 8), scene.now).is_err() {
            return scene.submitter.flush_plug(scene.now);
        }
    };
    // So many that twelve hold all the tags writes may have, and others wait for them.
    (1_000_000..1_000_020).for_each(|n| scene.submit(write(n, n * 24 % 480, 8)));
    let mut background = write(0, 496, 8);
    background.flags = Flags::NONE;
    scene.submit(background);
    let mut turns = 0;
    loop {
        fill(&mut scene);
        scene.now = scene.now + 1_000_000;
        scene.step();
        turns += 1;
        if scene.ended().iter().any(|ended| ended.cookie == 0) {
            break;
        }
        assert!(turns < 2_000, "it waits while {turns} turns go to others");
    }
    while scene.submitter.in_flight() > 0 {
        scene.now = scene.now + 1_000_000;
        scene.step();
        scene.ended();
    }
}

#[test]
fn what_may_not_wait_is_refused_when_the_scheduler_has_no_tag_for_it() {
    let scheduler = Some("mq-deadline".into());
    let config = Config { scheduler, nr_requests: Some(4), ..Config::default() };
    let mut scene = Scene::new(shape(limits(), 1), config);
    let nowait = |cookie| write(cookie, cookie * 16, 8).with(Flags::NOWAIT);
    (0..3).for_each(|n| scene.submit(write(n, n * 16, 8)));
    // There is a tag for the one, and none for the other.
    scene.submit(nowait(3));
    scene.submit(nowait(4));
    scene.submitter.flush_plug(scene.now);
    scene.step();
    let ended = scene.ended();
    assert_eq!((ended.len(), ended[0].status, ended[0].cookie), (1, Status::Again, 4));
    assert_eq!(ended[0].data.len(), 4096, "its memory comes back");
    scene.submit(write(5, 80, 8));
    (0..20).for_each(|_| scene.step());
    let ended = scene.ended();
    assert_eq!(ended.iter().filter(|ended| ended.status == Status::Ok).count(), 5);
    assert_eq!((scene.device.stats().in_flight, scene.device.stats().errors), (0, 1));
}

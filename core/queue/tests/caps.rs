//! Caps act where a bio is submitted, whatever way it came.

use std::num::NonZeroU64;
use std::sync::Arc;

use weir_bio::{Bio, Buf, Flags, GroupId, Limits, Nanos, Status};
use weir_laws::device::{Plan, Shape, Sim};
use weir_queue::driver::Affinity;
use weir_queue::{
    Bell, Caps, Completion, Config, Device, Groups, Lane, NoWake, Progress, QueueMode, Refused,
    Step, Submitter, Used, Watch,
};

const SECOND: u64 = 1_000_000_000;

/// A device whose groups are a root and `a`, which is capped.
struct Scene {
    groups: Arc<Groups>,
    a: GroupId,
    device: Device,
    lane: Lane,
    submitter: Submitter,
    now: Nanos,
}

const MODES: [QueueMode; 2] = [QueueMode::Mq, QueueMode::Sq];

impl Scene {
    fn new(mode: QueueMode, riops: u64) -> Scene {
        let scheduler = if mode == QueueMode::Sq { "noop" } else { "none" };
        Scene::of(mode, scheduler, None, riops)
    }

    fn of(mode: QueueMode, scheduler: &str, nr_requests: Option<u16>, riops: u64) -> Scene {
        let limits = Limits { capacity: 4096, max_hw_sectors: 64, ..Limits::default() };
        let shape = Shape {
            limits,
            depth: 64,
            shared_tags: false,
            home: Affinity::Any,
            announced: false,
            plan: Plan::default(),
            seed: 1,
        };
        let (name, scheduler) = (String::from("sda"), Some(String::from(scheduler)));
        let config = Config { name, mode, scheduler, nr_requests, ..Config::default() };
        let device = Device::new(config, Sim::new(shape) as Arc<_>).unwrap();
        let groups = Arc::new(Groups::default());
        let a = groups.create("a").unwrap();
        let caps = Caps { riops: NonZeroU64::new(riops), ..Caps::default() };
        groups.set_caps(a, caps).unwrap();
        device.attach_groups(&groups);
        let bell = Bell::new(Box::new(NoWake), 64);
        let lane = device.open_lane(0, &bell).unwrap();
        let submitter = device.submitter(&bell, 0, 0).unwrap();
        Scene { groups, a, device, lane, submitter, now: Nanos(SECOND) }
    }

    fn read(&self, group: GroupId, sector: u64) -> Bio {
        Bio { group, ..Bio::read(sector, Buf::filled(512, |_| ())) }
    }

    fn step(&mut self) -> Vec<Completion> {
        let mut ended = Vec::new();
        self.submitter.flush_plug(self.now);
        self.lane.run(self.now);
        self.submitter.complete(self.now, |completion| ended.push(completion));
        ended
    }

    /// Ends all I/O.
    fn settle(&mut self) -> Vec<Completion> {
        let mut ended = self.step();
        while self.submitter.in_flight() > 0 {
            self.now = self.lane.wake_at().expect("I/O under way has a time").max(self.now + 1);
            ended.append(&mut self.step());
        }
        ended
    }

    fn used(&self, group: GroupId) -> Used {
        self.groups.used_on(group, "sda")
    }
}

/// Reads of `group` that are accepted in a second by a holder that asks when it was told.
fn accepted(scene: &mut Scene, group: GroupId) -> u64 {
    let (end, mut count, mut asked) = (scene.now + SECOND, 0, scene.now);
    while asked < end && count < 2000 {
        let bio = scene.read(group, 8 * (count % 500));
        match scene.submitter.submit(bio, asked) {
            Ok(()) => count += 1,
            Err(Refused::Full(_)) => drop(scene.settle()),
            Err(Refused::Capped { until, .. }) => {
                assert!(until > asked, "{until:?} is not after {asked:?}");
                drop(scene.settle());
                asked = until;
            }
            Err(refused) => panic!("{refused:?}"),
        }
    }
    drop(scene.settle());
    scene.now = scene.now.max(asked);
    count
}

#[test]
fn a_cap_holds_where_a_bio_is_submitted() {
    for mode in MODES {
        let mut scene = Scene::new(mode, 100);
        let (root, a) = (GroupId(0), scene.a);
        let count = accepted(&mut scene, a);
        assert!((100..=103).contains(&count), "{mode:?}: {count} reads at 100 a second");
        assert_eq!(scene.used(a).ios, [count, 0], "{mode:?}: all are counted once");
        assert_eq!(accepted(&mut scene, root), 2000, "{mode:?}: no cap binds the root");
        assert_eq!(scene.used(root).ios, [2000, 0], "{mode:?}");
    }
}

/// The one that is refused now, and until when.
fn refused(scene: &mut Scene, bio: Bio) -> (Bio, Nanos) {
    match scene.submitter.submit(bio, scene.now) {
        Err(Refused::Capped { bio, until }) => (bio, until),
        other => panic!("{other:?}"),
    }
}

/// Uses up what `a` is allowed at once, and ends that.
fn spend(scene: &mut Scene) {
    let mut sector = 0;
    while scene.submitter.submit(scene.read(scene.a, sector), scene.now).is_ok() {
        sector += 8;
    }
    scene.settle();
}

#[test]
fn a_bio_that_will_not_wait_ends_again_at_a_cap() {
    for mode in MODES {
        let mut scene = Scene::new(mode, 1);
        spend(&mut scene);
        let used = scene.used(scene.a);
        let bio = scene.read(scene.a, 8).with(Flags::NOWAIT).cookie(7);
        scene.submitter.submit(bio, scene.now).unwrap();
        let ended = scene.settle();
        assert_eq!((ended[0].cookie, ended[0].status), (7, Status::Again), "{mode:?}");
        assert_eq!(scene.used(scene.a), used, "{mode:?}: it used nothing");
        assert_eq!(scene.submitter.in_flight(), 0, "{mode:?}");
    }
}

#[test]
fn a_bio_that_a_cap_holds_back_holds_up_no_freeze() {
    for mode in MODES {
        let mut scene = Scene::new(mode, 1);
        spend(&mut scene);
        let bio = scene.read(scene.a, 8).cookie(9);
        let (bio, until) = refused(&mut scene, bio);
        assert_eq!((bio.cookie, scene.submitter.in_flight()), (9, 0), "{mode:?}");
        let bell = Bell::new(Box::new(NoWake), 64);
        let mut freezing = scene.device.begin_freeze(&Watch::new(&bell, 0));
        let Progress::Ended(frozen) = freezing.poll(scene.now) else {
            panic!("{mode:?}: nothing is inside")
        };
        // At its time it is refused for the gate, and has paid nothing for that.
        scene.now = until;
        let Err(Refused::Frozen(bio)) = scene.submitter.submit(bio, until) else {
            panic!("{mode:?}: the gate is closed")
        };
        drop(frozen);
        scene.submitter.submit(bio, until).unwrap();
        assert_eq!(scene.settle().len(), 1, "{mode:?}");
    }
}

#[test]
fn a_bio_that_finds_no_room_pays_once() {
    let mut scene = Scene::new(QueueMode::Sq, 1000);
    let (mut sector, mut full, mut count) = (0, 0, 0);
    // More than the pool of the single queue holds, all within the burst.
    let burst = Caps { burst_ns: 10 * SECOND, riops: NonZeroU64::new(1000), ..Caps::default() };
    scene.groups.set_caps(scene.a, burst).unwrap();
    while full < 50 {
        match scene.submitter.submit(scene.read(scene.a, sector), scene.now) {
            Ok(()) => count += 1,
            Err(Refused::Full(_)) => full += 1,
            Err(refused) => panic!("{refused:?}"),
        }
        sector = (sector + 8) % 4096;
    }
    assert_eq!(scene.used(scene.a).ios, [count, 0]);
    scene.settle();
    let at = scene.now;
    while scene.submitter.submit(scene.read(scene.a, sector), at).is_ok_and(|()| {
        count += 1;
        true
    }) {
        scene.submitter.flush_plug(at);
        while scene.submitter.in_flight() > 0 {
            scene.now = scene.lane.wake_at().map_or(scene.now, |wake| wake.max(scene.now + 1));
            scene.lane.run(scene.now);
            scene.submitter.complete(scene.now, drop);
        }
    }
    assert!((10_000..=10_100).contains(&count), "{count} of ten seconds' worth at 1000 a second");
}

#[test]
fn a_bio_that_is_paid_for_is_not_charged_again_and_a_flush_is_free() {
    let mut scene = Scene::new(QueueMode::Mq, 1);
    spend(&mut scene);
    let used = scene.used(scene.a);
    let paid = scene.read(scene.a, 8);
    scene.submitter.submit_paid(paid, scene.now).unwrap();
    let flush = Bio { group: scene.a, ..Bio::flush() };
    scene.submitter.submit(flush, scene.now).unwrap();
    assert_eq!(scene.settle().len(), 2);
    assert_eq!(scene.used(scene.a), used);
}

#[test]
fn a_cap_that_is_set_or_lifted_holds_for_the_next_bio() {
    let mut scene = Scene::new(QueueMode::Mq, 0);
    for sector in 0..40 {
        scene.submitter.submit(scene.read(scene.a, 8 * sector), scene.now).unwrap();
    }
    let one = Caps { riops: NonZeroU64::new(1), ..Caps::default() };
    scene.groups.set_caps(scene.a, one).unwrap();
    scene.submitter.submit(scene.read(scene.a, 800), scene.now).expect("the first is allowed");
    // With I/O of its own inside, so that the short way is open.
    let bio = scene.read(scene.a, 808);
    let (bio, _) = refused(&mut scene, bio);
    scene.groups.set_caps(scene.a, Caps::default()).unwrap();
    scene.submitter.submit(bio, scene.now).unwrap();
    assert_eq!(scene.settle().len(), 42);
    assert_eq!(scene.used(scene.a).ios, [42, 0]);
}

#[test]
fn each_group_of_one_submitter_pays_for_its_own() {
    let mut scene = Scene::new(QueueMode::Mq, 0);
    let b = scene.groups.create("b").unwrap();
    // There are slots then, so that the short way is open.
    for sector in 0..30 {
        scene.submitter.submit_paid(scene.read(GroupId(0), 8 * sector), scene.now).unwrap();
    }
    scene.settle();
    for sector in 0..30 {
        let group = [scene.a, b, GroupId(77)][sector as usize % 3];
        scene.submitter.submit(scene.read(group, 8 * sector), scene.now).unwrap();
    }
    scene.settle();
    drop(scene.submitter);
    for group in [scene.a, b, GroupId(0)] {
        assert_eq!(scene.groups.used_on(group, "sda").ios, [10, 0], "{group:?}");
    }
}

#[test]
fn a_bio_that_will_not_wait_and_finds_no_room_uses_nothing() {
    // Of 7 there is room for 4, and on the single queue for half as many again.
    for (mode, scheduler, room) in [(QueueMode::Sq, "noop", 6), (QueueMode::Mq, "mq-deadline", 4)] {
        for paid in [false, true] {
            let mut scene = Scene::of(mode, scheduler, Some(4), 1000);
            let a = scene.a;
            for n in 1..=7 {
                let bio = scene.read(a, 16 * n).with(Flags::NOWAIT).cookie(n);
                let taken = match paid {
                    true => scene.submitter.submit_paid(bio, scene.now),
                    false => scene.submitter.submit(bio, scene.now),
                };
                taken.unwrap();
            }
            let large = Bio { group: a, ..Bio::read(0, Buf::zeroed(128 * 512)) };
            let large = large.with(Flags::NOWAIT).cookie(8);
            if !paid {
                scene.submitter.submit(large, scene.now).unwrap();
            }
            // The group that was named last is another when they end.
            _ = scene.submitter.submit(scene.read(GroupId(0), 4000), scene.now);
            let ended = scene.settle();
            let again = ended.iter().filter(|completion| completion.status == Status::Again);
            assert_eq!(again.count(), 7 - room + usize::from(!paid), "{scheduler}");
            let served = if paid { 0 } else { room as u64 };
            let used = scene.used(a);
            assert_eq!((used.ios, used.bytes), ([served, 0], [served * 512, 0]), "{scheduler}");
        }
    }
}

//! One thread, the same events: a scene on any path, with a freeze, a switch of the scheduler,
//! other numbers of requests and of hard queues, growth and a close in the middle of I/O, is the
//! same list of events whenever it is played with the same seed, and another with another seed.
//!
//! `EVENTS_SEED=n` plays one seed, `EVENTS_SEEDS=n` so many.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::Arc;

use weir_bio::{Bio, Buf, Limits, Nanos, Prng, Status};
use weir_laws::device::{Plan, Shape, Sim};
use weir_laws::log::{Log, check};
use weir_laws::path::{Order, Path};
use weir_laws::sender::{Change, Orders, Sender, held};
use weir_laws::sleepers::{House, Step as Went};
use weir_laws::{Tell, seeds};
use weir_queue::driver::Affinity;
use weir_queue::{
    Bell, Config, Device, Event, LaneHomes, NoWake, QueueMode, Spread, Then, Watch, What,
};

/// Seeds of each path.
const SEEDS: u64 = 6;

/// Bios of each of the submitters.
const BIOS: u32 = 300;

/// Sectors of the device at first, and how many more it gets each time.
const SECTORS: u64 = 2048;
const GROWTH: u64 = 256;

/// Steps of a scene: well above what any takes.
const STEPS_MAX: u64 = 1_000_000;

struct Scene {
    sim: Arc<Sim>,
    device: Device,
    house: House<Sender>,
    orders: Arc<Orders>,
    /// Where the homes are: lane `i` has its home at `i` modulo their number.
    lane_homes: usize,
    caller: Arc<Bell>,
    /// Changes begun.
    changes: u64,
}

impl Scene {
    fn new(path: Path, seed: u64) -> Scene {
        let mut prng = Prng::new(seed);
        let limits = Limits {
            capacity: SECTORS,
            max_hw_sectors: 32,
            volatile_cache: true,
            max_hw_discard_sectors: 64,
            discard_granularity: 512,
            ..Limits::default()
        };
        let plan = Plan {
            refused: 10,
            refusals_max: 100,
            slow_ns: 100_000,
            lent: 50,
            reordered: true,
            requeued: 10,
            requeues_max: 60,
            ..Plan::default()
        };
        let (depth, shared_tags, home) = (8, path.shared_tags, path.home);
        let (announced, own) = (prng.percent(50), prng.next());
        let sim = Sim::new(Shape { limits, depth, shared_tags, home, announced, plan, seed: own });
        let nr_requests = Some(if path.scheduled { 24 } else { 8 });
        let config = Config { nr_requests, timeout_ns: 0, ..Config::default() };
        let device = path.device(config, Arc::clone(&sim) as Arc<_>);
        let (events, steps) = (Arc::clone(&sim), Arc::clone(&sim));
        let lane_homes = 2;
        let mut house = House::new(
            lane_homes + 1,
            prng.next(),
            move |lane| events.event_at(lane),
            move || steps.progress(),
        );
        house.log = Log::kept();
        for lane in 0..usize::from(path.lanes) {
            house.open_lane(&device, lane, lane % lane_homes);
        }
        if path.mode == QueueMode::Sq && path.home == Affinity::Any {
            house.open_lane(&device, 0, 1);
        }
        for home in [0, 1, 2, 2] {
            let (bell, token) = (house.homes[home].home.bell(), house.next_token(home));
            let submitter = device.submitter(bell, token, home).unwrap();
            let (log, window) = (house.log.clone(), 1 + 8 * home as u64);
            house.add_app(home, Sender::new(submitter, log, prng.next(), BIOS, window));
        }
        let orders = Arc::new(Orders::default());
        let weak = Arc::downgrade(&(Arc::clone(&orders) as Arc<dyn LaneHomes>));
        device.attach_homes(weak);
        let caller = Bell::new(Box::new(NoWake), 1);
        Scene { sim, device, house, orders, lane_homes, caller, changes: 0 }
    }

    /// Begins the next change: each of them in turn, the close when the senders have half of their
    /// bios left.
    fn next_change(&mut self) -> Change {
        self.changes += 1;
        let watch = Watch::new(&self.caller, 0);
        let half = self.house.apps.iter().all(|sender| sender.left < BIOS / 2);
        if half {
            let closing = self.device.begin_close(&watch, Then::Ends);
            return held(closing, 1, |out| {
                assert!(out.is_ok(), "its flush: {:?}", out.as_ref().err())
            });
        }
        let device = &self.device;
        match self.changes % 5 {
            // Bios beyond the end were submitted all along, and are up to the end of the freeze.
            4 => {
                let grown = device.enlarge(device.limits().capacity + GROWTH).unwrap();
                let grow = move |parts: &mut weir_queue::Settings| parts.limits.grow_to(grown);
                held(device.begin_reconfigure(&watch, grow), 1, |out| assert!(out.is_ok()))
            }
            0 => held(device.begin_freeze(&watch), 3, |_| ()),
            1 => {
                let names = device.schedulers();
                let name = names[self.changes as usize / 5 % names.len()];
                held(device.begin_switch(&watch, name), 1, |out| assert!(out.is_ok()))
            }
            2 => {
                let most = if device.scheduler() == "none" { 8 } else { 24 };
                let requests = 4 + self.house.prng.below(most - 3) as u16;
                let change = move |parts: &mut weir_queue::Settings| parts.nr_requests = requests;
                held(device.begin_reconfigure(&watch, change), 1, |out| assert!(out.is_ok()))
            }
            _ if device.queues_max() == 1 => held(device.begin_quiesce(&watch), 3, |_| ()),
            _ => {
                let queues = 1 + (device.queues() % 4);
                let prepared = device.prepare_lanes(queues).unwrap();
                held(device.begin_queues(&watch, prepared), 1, |out| assert!(out.is_ok()))
            }
        }
    }

    fn play(mut self) -> Vec<Event> {
        let mut change: Option<Change> = None;
        for _ in 0..STEPS_MAX {
            self.orders.obey(&mut self.house, 0..self.lane_homes);
            let busy = self.house.step() == Went::Went;
            if let Some(under_way) = &mut change {
                if !busy || self.house.prng.percent(20) {
                    let over = under_way(self.house.now);
                    change = change.filter(|_| !over);
                }
                continue;
            }
            if self.device.is_offline() {
                if !busy {
                    return self.end();
                }
            } else if !busy || self.house.prng.percent(1) {
                change = Some(self.next_change());
            }
        }
        panic!("it has no end: {}", self.house.state());
    }

    fn end(self) -> Vec<Event> {
        let Scene { sim, device, house, .. } = self;
        assert!(house.apps.iter().all(Sender::is_done), "a wake-up was lost: {}", house.state());
        assert!(house.apps.iter().all(|sender| sender.ended == u64::from(BIOS)));
        assert_eq!(device.stats().in_flight, 0);
        assert_eq!(sim.coming(), 0);
        let events = house.log.take();
        // The flush of the close.
        check(&events, 1);
        events
    }
}

/// Kinds of events of a list, and how many of each.
fn kinds(events: &[Event]) -> usize {
    let mut kinds = BTreeMap::new();
    for event in events {
        // The first word of how it is shown.
        let shown = format!("{:?}", event.what);
        let name = shown.split([' ', '{']).next().unwrap_or_default().to_owned();
        *kinds.entry(name).or_insert(0) += 1;
    }
    println!("{kinds:?}");
    kinds.len()
}

fn the_same_seed_gives_the_same_events(path: Path) {
    let mut lists: Vec<Vec<Event>> = Vec::new();
    for seed in seeds("EVENTS", SEEDS) {
        let _tell = Tell(format!("path {path:?}\nEVENTS_SEED={seed}"));
        let (first, again) = (Scene::new(path, seed).play(), Scene::new(path, seed).play());
        for (index, (one, other)) in first.iter().zip(&again).enumerate() {
            assert_eq!(one, other, "event {index} of {}", first.len());
        }
        assert_eq!(first.len(), again.len());
        let has = |what: What| first.iter().any(|e| discriminant(&e.what) == discriminant(&what));
        let shared = path.spread == Spread::Submitter;
        assert!(has(What::Unplugged { requests: 0 }) && has(What::RightTaken) == shared);
        assert!(kinds(&first) >= 10, "a scene in which little happens");
        assert!(lists.iter().all(|other| *other != first), "another seed, the same events");
        lists.push(first);
    }
}

macro_rules! paths {
    ($($name:ident: $path:expr;)*) => {
        $(#[test]
        fn $name() {
            the_same_seed_gives_the_same_events($path);
        })*
    };
}

paths! {
    none: Path::mq(1);
    none_2_lanes: Path::mq(2);
    none_2_lanes_sharing_tags: Path::mq(2).sharing();
    mq_deadline: Path::mq(1).by(Order::Deadline);
    mq_deadline_3_lanes: Path::mq(3).by(Order::Deadline);
    kyber: Path::mq(2).by(Order::Kyber);
    bfq: Path::mq(2).by(Order::Bfq);
    sq_noop: Path::sq(Affinity::Any);
    sq_noop_one_home: Path::sq(Affinity::Fixed);
    sq_deadline: Path::sq(Affinity::Any).by(Order::Deadline);
    sq_cfq: Path::sq(Affinity::Any).by(Order::Cfq);
    round_robin: Path::mq(3).in_turn();
}

#[test]
fn a_bio_that_ends_is_told_of_from_its_acceptance_to_its_end() {
    let log = Log::kept();
    let limits = Limits { capacity: 4096, ..Limits::default() };
    let plan = Plan::default();
    let (shared_tags, home, announced) = (false, Affinity::Any, false);
    let sim = Sim::new(Shape { limits, depth: 4, shared_tags, home, announced, plan, seed: 1 });
    let path = Path::mq(1).by(Order::Deadline);
    let device = path.device(Config::default(), Arc::clone(&sim) as Arc<_>);
    let bell = Bell::new(Box::new(NoWake), 1);
    let mut lane = device.open_lane(0, &bell).unwrap();
    let mut submitter = device.submitter(&bell, 0, 0).unwrap();
    for sector in [0, 8, 64] {
        let read = Bio::read(sector, Buf::zeroed(4096));
        submitter.submit_telling(read, Nanos(1), log.ear()).expect("room for a read");
    }
    submitter.flush_plug_telling(Nanos(2), log.ear());
    (3..6).for_each(|now| lane.run_telling(Nanos(now), log.ear()));
    let mut statuses = Vec::new();
    submitter.complete_telling(Nanos(6), |ended| statuses.push(ended.status), log.ear());
    assert_eq!(statuses, [Status::Ok; 3]);
    let events = log.take();
    check(&events, 0);
    let shown: Vec<String> = events.iter().map(show).collect();
    let expected = [
        "1 submitter 0 accepted 0+8",
        "1 submitter 0 plugged 0+8",
        "1 submitter 0 accepted 8+8",
        "1 submitter 0 merged 8+8",
        "1 submitter 0 accepted 64+8",
        "1 submitter 0 plugged 64+8",
        "2 submitter 0 unplugged 2",
        "2 submitter 0 rings lane 0",
        "3 lane 0 takes the right",
        "3 lane 0 inserted 0+16",
        "3 lane 0 inserted 64+8",
        "3 lane 0 picked 0+16",
        "3 lane 0 picked 64+8",
        "3 lane 0 lets go",
        "3 lane 0 issued 0+16",
        "3 lane 0 issued 64+8",
    ];
    assert_eq!(shown[..expected.len()], expected);
    let ends = shown[expected.len()..].iter().filter(|text| text.contains("ended"));
    assert_eq!(ends.count(), 2, "{shown:?}");
}

/// An event as people read it.
fn show(event: &Event) -> String {
    use weir_queue::Place;
    let place = |place: Place| match place {
        Place::Submitter(id) => format!("submitter {}", id.0),
        Place::Lane(lane) => format!("lane {lane}"),
    };
    let (what, rq) = match event.what {
        What::Unplugged { requests } => {
            return format!("{} {} unplugged {requests}", event.at.0, place(event.by));
        }
        What::Doorbell { to, .. } => {
            return format!("{} {} rings {}", event.at.0, place(event.by), place(to));
        }
        What::RightTaken => return format!("{} {} takes the right", event.at.0, place(event.by)),
        What::RightLetGo => return format!("{} {} lets go", event.at.0, place(event.by)),
        What::Accepted { rq } => ("accepted", rq),
        What::Plugged { rq } => ("plugged", rq),
        What::Merged { rq, .. } => ("merged", rq),
        What::Inserted { rq, .. } => ("inserted", rq),
        What::Picked { rq, .. } => ("picked", rq),
        What::Issued { rq, .. } => ("issued", rq),
        What::Answered { rq, .. } => ("answered", rq),
        What::Ended { rq, .. } => ("ended", rq),
        other => panic!("{other:?} in a scene without it"),
    };
    format!("{} {} {what} {}+{}", event.at.0, place(event.by), rq.sector, rq.sectors)
}

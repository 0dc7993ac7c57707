//! Wake-ups between the lanes of one scheduler that answers each lane differently. A lane is turned
//! only for a reason its home would see: it was told, a time it named has come, its driver has an
//! event.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_bio::{Bio, Buf, Data, Limits, Nanos, Op, Status};
use weir_laws::device::{Plan, Shape, Sim};
use weir_laws::tokens::{REST_NS, one, two_that_rest};
use weir_queue::driver::Affinity;
use weir_queue::{Bell, Config, Device, Home, Lane, NoWake, QueueMode, Submitter};
use weir_sched::Make;

/// Counts how often a thread is woken.
#[derive(Clone, Default)]
struct Woken(Arc<AtomicUsize>);

impl weir_ring::Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lanes on homes of their own, with a submitter each.
struct Lanes {
    sim: Arc<Sim>,
    device: Device,
    homes: Vec<Home>,
    submitters: Vec<Submitter>,
    now: Nanos,
}

impl Lanes {
    fn new(lanes: usize, make: Make, nr_requests: u16) -> Lanes {
        let limits = Limits {
            capacity: 1 << 20,
            max_hw_discard_sectors: 64,
            discard_granularity: 512,
            ..Limits::default()
        };
        let (shared_tags, home, announced) = (false, Affinity::Any, true);
        let plan = Plan::default();
        let sim = Sim::new(Shape { limits, depth: 8, shared_tags, home, announced, plan, seed: 1 });
        let config = Config {
            queues: lanes as u16,
            nr_requests: Some(nr_requests),
            timeout_ns: 0,
            ..Config::default()
        };
        let device = Device::with_scheduler(config, Arc::clone(&sim) as Arc<_>, make).unwrap();
        let home = |_| Home::strict(Bell::with_lanes(Box::new(NoWake), 64));
        let homes = (0..lanes).map(home).collect();
        let mut rig = Lanes { sim, device, homes, submitters: Vec::new(), now: Nanos::from_ms(1) };
        for lane in 0..lanes {
            rig.open(lane);
            let submitter = rig.device.submitter(rig.homes[lane].bell(), 0, lane).unwrap();
            rig.submitters.push(submitter);
        }
        rig.run();
        rig
    }

    fn open(&mut self, lane: usize) {
        self.homes[lane].open(&self.device, lane).unwrap();
    }

    fn close(&mut self, lane: usize) {
        self.homes[lane].extract(|_| true, |_, lane| drop(lane));
    }

    /// The device answers nothing.
    fn stall(&mut self, stalled: bool) {
        self.sim.world().stalled = stalled;
    }

    fn read(&mut self, lane: usize) {
        // No two are neighbours.
        let sector = self.sim.progress() * 64 + self.submitters[lane].in_flight() * 16;
        let bio = Bio::read(sector, Buf::zeroed(4096));
        self.submitters[lane].submit(bio, self.now).expect("room for a read");
        self.submitters[lane].flush_plug(self.now);
    }

    /// A discard that the device does not answer until it is found again.
    fn lose_a_discard(&mut self, lane: usize) {
        {
            let mut world = self.sim.world();
            world.plan.lost = 100;
        }
        let discard = Bio::new(Op::Discard, 1 << 19, 64, Data::None);
        self.submitters[lane].submit(discard, self.now).expect("room for a discard");
        self.submitters[lane].flush_plug(self.now);
        self.run();
        self.sim.world().plan.lost = 0;
    }

    /// A home makes a round if its lane has a reason; whether it had.
    fn round(&mut self, lane: usize) -> bool {
        let event = self.sim.event_at(lane).is_some_and(|at| at <= self.now);
        let home = &mut self.homes[lane];
        let heard = home.lanes().next().filter(|_| event).map(Lane::place);
        heard.into_iter().for_each(|place| home.hear(place));
        // Its submitter takes what has ended when the test asks.
        home.bell().ready().take(|_| {});
        if heard.is_some() || home.wants_turn(self.now) {
            home.turn(self.now);
            return true;
        }
        false
    }

    /// Turns each lane and submitter that has a reason, until none has. Time stands still.
    fn run(&mut self) {
        for _ in 0..100 {
            let rounds = (0..self.homes.len()).filter(|lane| self.round(*lane)).count();
            if rounds == 0 {
                return;
            }
        }
        panic!("lanes keep waking each other");
    }

    /// Goes to the next time a lane has named.
    fn pass_time(&mut self) -> bool {
        let Some(next) = self.homes.iter().filter_map(Home::wake_at).min() else { return false };
        assert!(next > self.now);
        self.now = next;
        true
    }

    fn ended(&mut self, lane: usize) -> usize {
        self.submitters[lane].complete(self.now, |ended| assert_eq!(ended.status, Status::Ok))
    }

    fn issued(&self) -> usize {
        self.sim.world().tally.requests as usize
    }
}

#[test]
fn a_token_that_one_lane_frees_lets_the_other_go_on_at_once() {
    let mut rig = Lanes::new(2, one, 16);
    rig.stall(true);
    rig.read(0);
    rig.run();
    rig.read(1);
    rig.run();
    assert_eq!(rig.issued(), 1, "there is one token");
    assert!(!rig.pass_time(), "who waits for another's end does not look at the clock");
    rig.stall(false);
    rig.run();
    assert_eq!((rig.ended(0), rig.ended(1)), (1, 1));
}

#[test]
fn a_request_that_was_handed_back_has_no_token_while_it_waits() {
    let mut rig = Lanes::new(2, one, 16);
    {
        let mut world = rig.sim.world();
        (world.plan.requeued, world.plan.requeues_max) = (100, u32::MAX);
    }
    rig.read(0);
    // Handed back until it is to be sent again later, and time stands still.
    rig.run();
    rig.sim.world().plan.requeued = 0;
    rig.read(1);
    rig.run();
    assert_eq!((rig.ended(0), rig.ended(1)), (0, 1), "the token was free");
    assert!(rig.pass_time(), "it is sent again");
    rig.run();
    assert_eq!(rig.ended(0), 1);
    rig.read(1);
    rig.run();
    assert_eq!(rig.ended(1), 1, "and the token was given back once");
}

#[test]
fn a_lane_with_something_slow_in_flight_hears_of_the_token_all_the_same() {
    let mut rig = Lanes::new(2, one, 16);
    rig.lose_a_discard(1);
    rig.stall(true);
    rig.read(0);
    rig.run();
    rig.read(1);
    rig.run();
    assert_eq!(rig.issued(), 2);
    rig.stall(false);
    rig.run();
    assert_eq!((rig.ended(0), rig.ended(1)), (1, 1), "the discard is still out");
    rig.sim.find_lost(rig.now);
    rig.run();
    assert_eq!(rig.ended(1), 1);
}

#[test]
fn a_request_that_anothers_end_lets_in_is_known_to_its_own_lane() {
    let mut rig = Lanes::new(2, one, 4);
    rig.stall(true);
    (0..4).for_each(|_| rig.read(0));
    rig.read(1);
    rig.run();
    assert_eq!(rig.issued(), 1);
    rig.stall(false);
    // The fifth gets its scheduler tag from lane 0.
    rig.run();
    assert_eq!((rig.ended(0), rig.ended(1)), (4, 1));
}

#[test]
fn the_schedulers_time_comes_although_who_set_it_has_nothing_to_do() {
    let mut rig = Lanes::new(2, two_that_rest, 16);
    rig.stall(true);
    (0..2).for_each(|_| rig.read(0));
    rig.run();
    (0..3).for_each(|_| rig.read(1));
    rig.run();
    assert_eq!(rig.issued(), 2);
    let start = rig.now;
    rig.stall(false);
    rig.run();
    assert_eq!(rig.ended(0), 2);
    for ended in [2, 1] {
        assert_eq!(rig.ended(1), 0, "tokens rest");
        assert!(rig.pass_time(), "somebody comes back for them");
        rig.run();
        assert_eq!(rig.ended(1), ended);
    }
    assert_eq!(rig.now, start + 2 * REST_NS);
    assert!(rig.pass_time(), "the time is kept although nothing is staged");
    rig.run();
    assert!(!rig.pass_time(), "nobody comes back for nothing");
}

#[test]
fn a_lane_that_closes_leaves_the_schedulers_time_to_another() {
    let mut rig = Lanes::new(2, two_that_rest, 16);
    rig.stall(true);
    (0..2).for_each(|_| rig.read(0));
    rig.run();
    rig.read(1);
    rig.run();
    rig.stall(false);
    rig.run();
    assert_eq!(rig.ended(0), 2);
    assert!(rig.homes[0].is_idle());
    assert_eq!(rig.homes[1].wake_at(), None, "lane 0 comes back for both");
    rig.close(0);
    rig.run();
    assert!(rig.pass_time(), "lane 1 comes back");
    rig.run();
    assert_eq!(rig.ended(1), 1);
}

#[test]
fn a_token_offered_to_a_closed_lane_goes_to_another() {
    let mut rig = Lanes::new(3, one, 16);
    // Lane 1 is never idle, so that no lane is told for that reason.
    rig.lose_a_discard(1);
    rig.stall(true);
    rig.read(1);
    rig.run();
    // Lane 0 waits before lane 2 does, and closes.
    rig.read(0);
    rig.run();
    rig.read(2);
    rig.run();
    rig.close(0);
    rig.run();
    assert_eq!(rig.issued(), 2);
    rig.stall(false);
    rig.run();
    assert_eq!((rig.ended(1), rig.ended(2)), (1, 1));
    rig.open(0);
    rig.run();
    assert_eq!(rig.ended(0), 1, "what was staged for it is there when it opens again");
    rig.sim.find_lost(rig.now);
    rig.run();
    assert_eq!(rig.ended(1), 1, "the discard");
}

#[test]
fn a_lane_that_opens_again_asks_for_what_it_was_not_given_while_paused() {
    let mut rig = Lanes::new(2, one, 16);
    let device = rig.device.clone();
    let (say, held) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    #[expect(clippy::disallowed_methods, reason = "a test may own a thread; core may not")]
    let asking = std::thread::spawn(move || {
        let quiesced = device.quiesce();
        say.send(()).unwrap();
        wait.recv().unwrap();
        drop(quiesced);
    });
    // Lanes have to answer a quiesce.
    while held.try_recv().is_err() {
        rig.run();
    }
    rig.read(0);
    rig.run();
    rig.close(0);
    go.send(()).unwrap();
    asking.join().unwrap();
    assert_eq!(rig.issued(), 0);
    rig.open(0);
    rig.run();
    assert_eq!(rig.ended(0), 1);
}

#[test]
fn a_lane_that_another_home_opens_wakes_that_one_and_no_other() {
    for (mode, scheduler) in
        [(QueueMode::Mq, "none"), (QueueMode::Mq, "mq-deadline"), (QueueMode::Sq, "noop")]
    {
        let limits = Limits { capacity: 1 << 20, ..Limits::default() };
        let (shared_tags, home, announced, seed) = (false, Affinity::Any, true, 1);
        let plan = Plan::default();
        let sim = Sim::new(Shape { limits, depth: 8, shared_tags, home, announced, plan, seed });
        let scheduler = Some(String::from(scheduler));
        let queues = if mode == QueueMode::Mq { 2 } else { 1 };
        let config = Config { queues, mode, scheduler, timeout_ns: 0, ..Config::default() };
        let device = Device::new(config, Arc::clone(&sim) as Arc<_>).expect("a device");
        let now = Nanos::from_ms(1);
        // A thread that goes to sleep with the lane at home, is told of a read, and goes.
        let told = |bell: &Arc<Bell>| {
            let mut home = Home::new(Arc::clone(bell));
            home.open(&device, 0).expect("a lane");
            home.turn(now);
            assert!(home.before_sleep(now, || false));
            let elsewhere = Bell::new(Box::new(NoWake), 1);
            let mut submitter = device.submitter(&elsewhere, 0, 0).expect("a submitter");
            submitter.submit(Bio::read(0, Buf::zeroed(4096)), now).expect("room");
            submitter.flush_plug(now);
            home.awake();
            let mut now = now;
            while submitter.complete(now, |_| {}) == 0 {
                home.turn(now);
                now = sim.event_at(0).map_or(now, |at| at.max(now));
            }
        };
        let threads: [Woken; 3] = Default::default();
        let bells = threads.each_ref().map(|woken| Bell::new(Box::new(woken.clone()), 1));
        bells.iter().for_each(told);
        // One that comes back.
        told(&bells[1]);
        let woken = threads.map(|thread| thread.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 2, 1], "{mode:?}");
    }
}

//! Wake-ups between the lanes of one scheduler that answers each lane differently. A lane is turned
//! only for a reason its home would see: it was told, a time it named has come, its driver has an
//! event.

mod bed;

use std::sync::Arc;

use bed::device::{Plan, Shape, Sim};
use bed::tokens::{REST_NS, one, two_that_rest};
use weir_bio::{Bio, Buf, Limits, Nanos, Op, Status};
use weir_queue::driver::Home;
use weir_queue::{Bell, Config, Device, Lane, Submitter};
use weir_sched::Make;

struct NoWake;

impl weir_ring::Wake for NoWake {
    fn wake(&self) {}
}

/// Two lanes on homes of their own, with a submitter each.
struct Pair {
    sim: Arc<Sim>,
    device: Device,
    lanes: Vec<Lane>,
    bells: [Arc<Bell>; 2],
    submitters: Vec<Submitter>,
    now: Nanos,
}

impl Pair {
    fn new(make: Make, nr_requests: u16) -> Pair {
        let limits = Limits {
            capacity: 1 << 20,
            max_hw_discard_sectors: 64,
            discard_granularity: 512,
            ..Limits::default()
        };
        let (shared_tags, home, announced) = (false, Home::Any, true);
        let plan = Plan::default();
        let sim = Sim::new(Shape { limits, depth: 8, shared_tags, home, announced, plan, seed: 1 });
        let config = Config {
            queues: 2,
            nr_requests: Some(nr_requests),
            timeout_ns: 0,
            ..Config::default()
        };
        let device = Device::with_scheduler(config, Arc::clone(&sim) as Arc<_>, make).unwrap();
        let bells = std::array::from_fn(|_| Bell::new(Box::new(NoWake), 64));
        let mut pair = Pair {
            sim,
            device,
            lanes: Vec::new(),
            bells,
            submitters: Vec::new(),
            now: Nanos::from_ms(1),
        };
        for lane in 0..2 {
            pair.open(lane);
            let submitter = pair.device.submitter(&pair.bells[lane], 0, lane).unwrap();
            pair.submitters.push(submitter);
        }
        pair.run();
        pair
    }

    fn open(&mut self, lane: usize) {
        let opened = self.device.open_lane(lane, &self.bells[lane]).unwrap();
        self.lanes.push(opened);
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

    fn is_due(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        let event = self.sim.event_at(lane.index());
        lane.has_work() || lane.wake_at().into_iter().chain(event).any(|at| at <= self.now)
    }

    /// Turns who has a reason, until nobody has. Time stands still.
    fn run(&mut self) {
        for _ in 0..100 {
            let due: Vec<usize> = (0..self.lanes.len()).filter(|lane| self.is_due(*lane)).collect();
            if due.is_empty() {
                return;
            }
            due.into_iter().for_each(|lane| self.lanes[lane].turn(self.now));
        }
        panic!("lanes keep waking each other");
    }

    /// Goes to the next time a lane has named.
    fn pass_time(&mut self) -> bool {
        let Some(next) = self.lanes.iter().filter_map(Lane::wake_at).min() else { return false };
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
    let mut pair = Pair::new(one, 16);
    pair.stall(true);
    pair.read(0);
    pair.run();
    pair.read(1);
    pair.run();
    assert_eq!(pair.issued(), 1, "there is one token");
    assert!(!pair.pass_time(), "who waits for another's end does not look at the clock");
    pair.stall(false);
    pair.run();
    assert_eq!((pair.ended(0), pair.ended(1)), (1, 1));
}

#[test]
fn a_lane_with_something_slow_in_flight_hears_of_the_token_all_the_same() {
    let mut pair = Pair::new(one, 16);
    {
        let mut world = pair.sim.world();
        (world.plan.lost, world.plan.lost_max) = (100, 1);
    }
    let discard = Bio::new(Op::Discard, 1 << 19, 64, weir_bio::Data::None);
    pair.submitters[1].submit(discard, pair.now).unwrap();
    pair.submitters[1].flush_plug(pair.now);
    pair.run();
    pair.sim.world().plan.lost = 0;
    pair.stall(true);
    pair.read(0);
    pair.run();
    pair.read(1);
    pair.run();
    assert_eq!(pair.issued(), 2);
    pair.stall(false);
    pair.run();
    assert_eq!((pair.ended(0), pair.ended(1)), (1, 1), "the discard is still out");
    pair.sim.find_lost(pair.now);
    pair.run();
    assert_eq!(pair.ended(1), 1);
}

#[test]
fn a_request_that_anothers_end_lets_in_is_known_to_its_own_lane() {
    let mut pair = Pair::new(one, 4);
    pair.stall(true);
    (0..4).for_each(|_| pair.read(0));
    pair.read(1);
    pair.run();
    assert_eq!(pair.issued(), 1);
    pair.stall(false);
    // The fifth gets its scheduler tag from lane 0.
    pair.run();
    assert_eq!((pair.ended(0), pair.ended(1)), (4, 1));
}

#[test]
fn the_schedulers_time_comes_although_who_set_it_has_nothing_to_do() {
    let mut pair = Pair::new(two_that_rest, 16);
    pair.stall(true);
    (0..2).for_each(|_| pair.read(0));
    pair.run();
    (0..3).for_each(|_| pair.read(1));
    pair.run();
    assert_eq!(pair.issued(), 2);
    let start = pair.now;
    pair.stall(false);
    pair.run();
    assert_eq!(pair.ended(0), 2);
    for ended in [2, 1] {
        assert_eq!(pair.ended(1), 0, "tokens rest");
        assert!(pair.pass_time(), "somebody comes back for them");
        pair.run();
        assert_eq!(pair.ended(1), ended);
    }
    assert_eq!(pair.now, start + 2 * REST_NS);
    assert!(pair.pass_time(), "the time is kept although nothing is staged");
    pair.run();
    assert!(!pair.pass_time(), "nobody comes back for nothing");
}

#[test]
fn a_lane_that_closes_leaves_the_schedulers_time_to_another() {
    let mut pair = Pair::new(two_that_rest, 16);
    pair.stall(true);
    (0..2).for_each(|_| pair.read(0));
    pair.run();
    pair.read(1);
    pair.run();
    pair.stall(false);
    pair.lanes[0].turn(pair.now);
    assert_eq!(pair.ended(0), 2);
    assert!(pair.lanes[0].is_idle());
    drop(pair.lanes.remove(0));
    pair.run();
    assert!(pair.pass_time(), "lane 1 comes back");
    pair.run();
    assert_eq!(pair.ended(1), 1);
}

#[test]
fn a_token_offered_to_a_closed_lane_goes_to_another() {
    let mut pair = Pair::new(one, 16);
    pair.stall(true);
    pair.read(1);
    pair.run();
    // Lane 0 waits before its lane closes, lane 1 after it.
    pair.read(0);
    pair.run();
    drop(pair.lanes.remove(0));
    pair.read(1);
    pair.run();
    assert_eq!(pair.issued(), 1);
    pair.stall(false);
    pair.run();
    assert_eq!(pair.ended(1), 2);
    pair.open(0);
    pair.run();
    assert_eq!(pair.ended(0), 1, "what was staged for it is there when it opens again");
}

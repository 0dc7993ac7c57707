//! A device over two others, as `weir_queue::Legs` describes it: requests across the border, legs
//! that are frozen, full, silent, given up or gone, and the order of closing.
//!
//! Homes are virtual, and a lane is turned for a reason only: a wake-up that is lost is a scene
//! that does not go on. `STACKED_SEED=n` plays one seed, `STACKED_SEEDS=n` so many.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::Thread;
use std::time::Duration;

use crate::linear;
use weir_bio::{Bio, Data, Flags, Limits, Nanos, Op, Prng, Status};
use weir_laws::device::{Plan, Shape, Sim};
use weir_laws::log::Log;
use weir_laws::path::{Order, Path};
use weir_laws::sender::{Change, Orders, Sender, held};
use weir_laws::sleepers::{House, Step as Went};
use weir_laws::{Tell, filled, seeds, value, values};
use weir_queue::driver::Affinity;
use weir_queue::{
    Bell, Completion, Config, Device, Event, Frozen, Home, LaneHomes, NoWake, Progress, Step,
    Submitter, Then, Watch,
};
use weir_ring::Wake;

/// Sectors of a leg in the scenes.
const LEG: u64 = 64;

/// Ticks of the longest answer of a leg.
const SLOW_NS: u64 = 1_000;

fn leg_limits(capacity: u64) -> Limits {
    Limits {
        capacity,
        max_hw_sectors: 32,
        volatile_cache: true,
        fua: true,
        max_hw_discard_sectors: 64,
        discard_granularity: 512,
        ..Limits::default()
    }
}

fn sim(capacity: u64, plan: Plan, seed: u64, home: Affinity) -> Arc<Sim> {
    let (shared_tags, announced, depth) = (false, false, 8);
    let limits = leg_limits(capacity);
    Sim::new(Shape { limits, depth, shared_tags, home, announced, plan, seed })
}

/// Writes are not throttled: the windows of a throttle never end while a leg answers nothing.
const WBT_LAT_US: Option<u64> = Some(0);

/// How the devices of a scene are built.
#[derive(Clone, Copy, Debug)]
struct Stack {
    /// The legs have a home of their own.
    apart: bool,
    above: Path,
    below: Path,
    timeout_above_ns: u64,
    timeout_below_ns: u64,
    nr_requests_below: u16,
}

const STACK: Stack = Stack {
    apart: false,
    above: Path::mq(1),
    below: Path::mq(1),
    timeout_above_ns: 0,
    timeout_below_ns: 0,
    nr_requests_below: 8,
};

/// Every way in which the two levels can be built.
fn each_stack() -> Vec<Stack> {
    let paths = [
        Path::mq(1),
        Path::mq(1).by(Order::Deadline),
        Path::sq(Affinity::Any),
        Path::sq(Affinity::Fixed),
    ];
    let mut stacks = Vec::new();
    for above in paths {
        for below in paths {
            stacks.push(Stack { above, below, ..STACK });
            stacks.push(Stack { above, below, apart: true, ..STACK });
        }
    }
    stacks
}

/// A device over two, in one thread.
struct Rig {
    sims: [Arc<Sim>; 2],
    legs: [Device; 2],
    above: Device,
    /// The upper lane's, and the legs' if that is another.
    homes: Vec<Home>,
    submitter: Submitter,
    now: Nanos,
    ended: Vec<Completion>,
}

impl Rig {
    fn new(stack: Stack) -> Rig {
        let plan = Plan { slow_ns: SLOW_NS, lent: 50, ..Plan::default() };
        let sims =
            [sim(LEG, plan.clone(), 1, stack.below.home), sim(LEG, plan, 2, stack.below.home)];
        sims[1].world().places = Some(Box::new(|at| at + LEG));
        let config = Config {
            timeout_ns: stack.timeout_below_ns,
            nr_requests: Some(stack.nr_requests_below),
            wbt_lat_us: WBT_LAT_US,
            ..Config::default()
        };
        let leg = |sim: &Arc<Sim>| stack.below.device(config.clone(), Arc::clone(sim) as Arc<_>);
        let legs = [leg(&sims[0]), leg(&sims[1])];
        let timeout_ns = stack.timeout_above_ns;
        let config = Config { timeout_ns, wbt_lat_us: WBT_LAT_US, ..Config::default() };
        let driver = linear(&legs, 16, stack.above.home);
        let above = stack.above.device(config, driver);
        let home = || Home::strict(Bell::with_lanes(Box::new(NoWake), 8));
        let mut homes = vec![home()];
        if stack.apart {
            homes.push(home());
        }
        let last = homes.len() - 1;
        legs.iter().for_each(|leg| _ = homes[last].open(leg, 0).unwrap());
        homes[0].open(&above, 0).unwrap();
        let submitter = above.submitter(homes[0].bell(), 0, 0).unwrap();
        let (now, ended) = (Nanos(1), Vec::new());
        Rig { sims, legs, above, homes, submitter, now, ended }
    }

    /// Makes rounds of the homes that have a reason, until none has; time stands still.
    fn run(&mut self) -> usize {
        for rounds in 0..1_000 {
            let mut rested = true;
            for home in &mut self.homes {
                home.bell().ready().take(|_| {});
                if home.wants_turn(self.now) {
                    home.turn(self.now);
                    rested = false;
                }
            }
            let ended = &mut self.ended;
            let taken = self.submitter.complete(self.now, |end| ended.push(end));
            if rested && taken == 0 {
                return rounds;
            }
        }
        panic!("homes do not come to rest");
    }

    /// Lets time pass until nothing more happens by itself.
    fn settle(&mut self) {
        self.run();
        while let Some(next) = self.homes.iter().filter_map(Home::wake_at).min() {
            if next == Nanos(u64::MAX) {
                return;
            }
            assert!(next > self.now, "a time that has come is no reason to run");
            self.now = next;
            self.run();
        }
    }

    fn submit(&mut self, bio: Bio) {
        self.submitter.submit(bio, self.now).expect("room above");
        self.submitter.flush_plug(self.now);
    }

    fn write(&mut self, name: u64, sector: u64, sectors: u32) -> Bio {
        Bio::new(Op::Write, sector, sectors, filled(name, sector, &[sectors])).cookie(name)
    }

    /// A write across the border.
    fn straddling(&mut self, name: u64) -> Bio {
        self.write(name, LEG - 8, 16)
    }

    /// The ends so far: cookie and status, in their order. Memory that came back is whole.
    fn ends(&mut self) -> Vec<(u64, Status)> {
        let ended = std::mem::take(&mut self.ended);
        for end in ended.iter().filter(|end| end.op.has_data() && end.status != Status::Timeout) {
            assert_eq!(end.data.len(), end.sectors as usize * 512, "memory of {}", end.cookie);
        }
        ended.iter().map(|end| (end.cookie, end.status)).collect()
    }

    /// The values of sectors, read through the upper device.
    fn read(&mut self, sector: u64, sectors: u32) -> Vec<u64> {
        self.submit(Bio::new(Op::Read, sector, sectors, filled(0, sector, &[sectors])));
        self.settle();
        let end = self.ended.pop().expect("a read ends");
        assert_eq!(end.status, Status::Ok);
        values(&end.data)
    }

    /// A leg answers nothing; or does again, and has an interrupt.
    fn stall(&mut self, leg: usize, stalled: bool) {
        self.sims[leg].world().stalled = stalled;
        let places = |home: &Home| home.lanes().map(weir_queue::Lane::place).collect::<Vec<_>>();
        for home in self.homes.iter_mut().filter(|_| !stalled) {
            places(home).into_iter().for_each(|place| home.hear(place));
        }
    }

    /// Polls a step until it ends.
    fn carry_out<S: Step>(&mut self, mut step: S) -> S::Out {
        loop {
            if let Progress::Ended(out) = step.poll(self.now) {
                return out;
            }
            if self.run() > 0 {
                continue;
            }
            match self.homes.iter().filter_map(Home::wake_at).min() {
                Some(next) if next > self.now && next != Nanos(u64::MAX) => self.now = next,
                _ => panic!("a step that does not end: {:?}", step.waits_for()),
            }
        }
    }

    fn freeze(&mut self, leg: usize) -> Frozen {
        let step = self.legs[leg].begin_freeze(&watch());
        self.carry_out(step)
    }

    /// Nothing is left anywhere.
    fn assert_rest(&mut self) {
        for device in [&self.above, &self.legs[0], &self.legs[1]] {
            assert_eq!(device.stats().in_flight, 0, "in {}", device.config().name);
        }
        assert!(self.homes.iter_mut().all(Home::is_idle));
        assert_eq!(self.submitter.in_flight(), 0);
    }
}

fn watch() -> Watch {
    Watch::new(&Bell::new(Box::new(NoWake), 1), 0)
}

fn written(name: u64, sectors: std::ops::Range<u64>) -> Vec<u64> {
    sectors.map(|at| value(name, at)).collect()
}

#[test]
fn a_write_across_the_border_is_two_parts_and_one_answer() {
    for stack in each_stack() {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        for round in 0..20 {
            let name = 1 + round;
            let bio = rig.straddling(name);
            rig.submit(bio);
            rig.settle();
            assert_eq!(rig.ends(), [(name, Status::Ok)]);
            assert_eq!(rig.read(LEG - 8, 16), written(name, LEG - 8..LEG + 8));
        }
        let each = rig.sims.each_ref().map(|sim| sim.world().tally.requests);
        assert_eq!(each, [40, 40]);
        rig.assert_rest();
    }
}

#[test]
fn many_requests_at_once_are_answered_once_each_with_their_own_memory() {
    for stack in each_stack() {
        let _tell = Tell(format!("{stack:?}"));
        // Fewer requests below than above, so that bios wait for a leg.
        let mut rig = Rig::new(Stack { nr_requests_below: 4, ..stack });
        for name in 1..=40 {
            let at = (name * 7) % (2 * LEG - 16);
            let bio = rig.write(name, at, 16);
            if let Err(refused) = rig.submitter.submit(bio, rig.now) {
                rig.submitter.flush_plug(rig.now);
                rig.settle();
                rig.submitter.submit(refused.into_bio(), rig.now).expect("room after a pause");
            }
        }
        rig.submitter.flush_plug(rig.now);
        rig.settle();
        let mut ends = rig.ends();
        ends.sort_unstable_by_key(|(name, _)| *name);
        assert_eq!(ends, (1..=40).map(|name| (name, Status::Ok)).collect::<Vec<_>>());
        rig.assert_rest();
    }
}

#[test]
fn the_first_error_of_the_parts_is_the_requests() {
    let mut rig = Rig::new(STACK);
    let fails = |rig: &Rig, leg: usize, status| {
        let mut world = rig.sims[leg].world();
        (world.plan.failed, world.plan.errors) = (100, vec![status]);
    };
    fails(&rig, 1, Status::Medium);
    let bio = rig.straddling(1);
    rig.submit(bio);
    rig.settle();
    assert_eq!(rig.ends(), [(1, Status::Medium)]);
    fails(&rig, 0, Status::NoSpc);
    rig.stall(0, true);
    let bio = rig.straddling(2);
    rig.submit(bio);
    rig.settle();
    assert_eq!(rig.ends(), [], "one part is under way");
    rig.stall(0, false);
    rig.settle();
    assert_eq!(rig.ends(), [(2, Status::Medium)], "the other leg failed first");
    rig.assert_rest();
}

#[test]
fn a_flush_reaches_both_legs_and_ends_with_the_last() {
    for stack in each_stack() {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        let bio = rig.straddling(1);
        rig.submit(bio);
        rig.settle();
        assert_eq!(rig.ends(), [(1, Status::Ok)]);
        rig.stall(1, true);
        rig.submit(Bio::flush().cookie(2));
        rig.settle();
        let flushes = |rig: &Rig| rig.sims.each_ref().map(|sim| sim.world().tally.flushes);
        assert_eq!((rig.ends(), flushes(&rig)), (vec![], [1, 1]));
        rig.stall(1, false);
        rig.settle();
        assert_eq!(rig.ends(), [(2, Status::Ok)]);
        let bio = rig.straddling(3).with(Flags::FUA);
        rig.submit(bio);
        rig.settle();
        assert_eq!(rig.ends(), [(3, Status::Ok)]);
        assert_eq!(rig.sims.each_ref().map(|sim| sim.world().tally.fua), [1, 1]);
        assert_eq!(flushes(&rig), [1, 1]);
        rig.assert_rest();
    }
}

#[test]
fn a_flush_that_no_leg_needs_ends_all_the_same() {
    // A leg without barriers ends its flush inside `submit`, and no lane below is ever turned.
    for apart in [false, true] {
        let mut rig = Rig::new(Stack { apart, ..STACK });
        for leg in 0..2 {
            rig.sims[leg].world().barriers = false;
            let step = rig.legs[leg].begin_reconfigure(&watch(), |parts| parts.barriers = false);
            rig.carry_out(step).unwrap();
        }
        rig.submit(Bio::flush().cookie(1));
        rig.settle();
        assert_eq!(rig.ends(), [(1, Status::Ok)]);
    }
}

#[test]
fn a_discard_across_the_border_reaches_both_legs() {
    let mut rig = Rig::new(STACK);
    let bio = rig.write(1, 48, 32);
    rig.submit(bio);
    rig.settle();
    rig.submit(Bio::new(Op::Discard, LEG - 4, 8, Data::None).cookie(2));
    rig.settle();
    assert_eq!(rig.ends(), [(1, Status::Ok), (2, Status::Ok)]);
    let mut left = written(1, LEG - 8..LEG + 8);
    left[4..12].fill(0);
    assert_eq!(rig.read(LEG - 8, 16), left);
    let discarded = |sim: &Arc<Sim>| sim.world().tally.sectors[&Op::Discard];
    assert_eq!(rig.sims.each_ref().map(discarded), [4, 4]);
}

#[test]
fn while_a_leg_is_frozen_the_request_above_waits_and_then_goes_on() {
    for stack in each_stack() {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        let frozen = rig.freeze(1);
        for name in 1..=3 {
            let bio = rig.straddling(name);
            rig.submit(bio);
            rig.settle();
        }
        assert_eq!(rig.ends(), [], "one part of each cannot be sent");
        assert!(rig.run() <= 1, "waiting is no work");
        assert_eq!(rig.sims[1].world().tally.requests, 0);
        drop(frozen);
        rig.settle();
        let mut ends = rig.ends();
        ends.sort_unstable_by_key(|(name, _)| *name);
        assert_eq!(ends, [1, 2, 3].map(|name| (name, Status::Ok)));
        rig.assert_rest();
    }
}

#[test]
fn a_leg_that_goes_offline_ends_what_comes_later_and_loses_nothing_that_it_had() {
    for stack in each_stack() {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        rig.stall(1, true);
        let bio = rig.straddling(1);
        rig.submit(bio);
        rig.settle();
        let mut closing = rig.legs[1].begin_close(&watch(), Then::Ends);
        assert!(closing.poll(rig.now).is_waiting(), "a request is under way");
        // Behind the closed gate.
        let bio = rig.straddling(2);
        rig.submit(bio);
        rig.settle();
        assert_eq!(rig.ends(), []);
        rig.stall(1, false);
        drop(rig.carry_out(closing).expect("its flush"));
        rig.settle();
        assert_eq!(rig.ends(), [(1, Status::Ok), (2, Status::Offline)]);
        // Its lane ends as well, with its driver.
        let gone = rig.legs[1].clone();
        let last = rig.homes.len() - 1;
        rig.homes[last].extract(|lane| gone.owns(lane), |_, lane| drop(lane));
        let bio = rig.straddling(3);
        rig.submit(bio);
        rig.submit(Bio::flush().cookie(4));
        let bio = rig.write(5, 0, 8);
        rig.submit(bio);
        rig.settle();
        let mut ends = rig.ends();
        ends.sort_unstable_by_key(|(name, _)| *name);
        assert_eq!(ends, [(3, Status::Offline), (4, Status::Offline), (5, Status::Ok)]);
        rig.assert_rest();
    }
}

#[test]
fn a_leg_that_is_silent_is_given_up_by_its_own_time_out() {
    for stack in each_stack() {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(Stack { timeout_below_ns: 1_000_000_000, ..stack });
        (rig.sims[1].world().plan.lost, rig.sims[1].world().plan.lent) = (100, 100);
        let bio = rig.straddling(1);
        rig.submit(bio);
        rig.settle();
        let end = &rig.ended[0];
        assert_eq!((end.cookie, end.status, end.data.len()), (1, Status::Timeout, 0));
        assert!(rig.now >= Nanos(1_000_000_000));
        assert_eq!(rig.ends().len(), 1);
        // The sectors that the write may change yet are fenced below: only a request there waits.
        rig.sims[1].world().plan.lost = 0;
        let bio = rig.write(2, LEG + 16, 8);
        rig.submit(bio);
        rig.settle();
        assert_eq!(rig.ends(), [(2, Status::Ok)]);
        rig.sims[1].find_lost(rig.now);
        rig.settle();
        assert_eq!(rig.ends(), [], "its submitter was told");
        let bio = rig.straddling(3);
        rig.submit(bio);
        rig.settle();
        assert_eq!(rig.ends(), [(3, Status::Ok)]);
        rig.assert_rest();
    }
}

#[test]
fn a_time_out_above_keeps_the_tag_until_the_leg_answers() {
    for stack in each_stack() {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(Stack { timeout_above_ns: 1_000_000_000, ..stack });
        rig.stall(0, true);
        let bio = rig.straddling(1);
        rig.submit(bio);
        rig.settle();
        assert_eq!(rig.ends(), [(1, Status::Timeout)]);
        let quarantined = |rig: &Rig| rig.above.stats().quarantined;
        assert_eq!(quarantined(&rig), 1);
        // It overlaps what the first may change yet.
        let bio = rig.straddling(2);
        rig.submit(bio);
        rig.run();
        assert_eq!(rig.ends(), []);
        rig.stall(0, false);
        rig.settle();
        assert_eq!((rig.ends(), quarantined(&rig)), (vec![(2, Status::Ok)], 0));
        assert_eq!(rig.read(LEG - 8, 16), written(2, LEG - 8..LEG + 8));
        rig.assert_rest();
    }
}

#[test]
fn a_request_that_was_given_up_while_a_leg_was_frozen_is_not_sent_there_any_more() {
    let mut rig = Rig::new(Stack { timeout_above_ns: 1_000_000_000, ..STACK });
    let frozen = rig.freeze(1);
    let bio = rig.write(1, LEG + 8, 8);
    rig.submit(bio);
    rig.settle();
    assert_eq!(rig.ends(), [(1, Status::Timeout)]);
    assert_eq!(rig.above.stats().quarantined, 0, "nothing of it is under way");
    drop(frozen);
    rig.settle();
    assert_eq!(rig.sims[1].world().tally.requests, 0);
    rig.assert_rest();
}

#[test]
fn flags_go_down_with_every_part() {
    let mut rig = Rig::new(STACK);
    let all = Flags::FAILFAST | Flags::SYNC | Flags::META;
    let bio = rig.straddling(1).with(all);
    rig.submit(bio);
    rig.settle();
    assert_eq!(rig.ends(), [(1, Status::Ok)]);
    for sim in &rig.sims {
        assert!(sim.world().tally.flags.has(all), "{:?}", sim.world().tally.flags);
    }
    // A request is read-ahead only if each of its bios is.
    let bio = Bio::new(Op::Read, LEG - 8, 16, filled(0, LEG - 8, &[16])).with(Flags::RAHEAD);
    rig.submit(bio);
    rig.settle();
    assert!(rig.sims.iter().all(|sim| sim.world().tally.flags.has(Flags::RAHEAD)));
}

#[test]
fn a_request_that_may_not_wait_ends_again_where_a_leg_is_frozen_or_full() {
    for stack in each_stack() {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(Stack { nr_requests_below: 4, ..stack });
        let frozen = rig.freeze(1);
        let bio = rig.write(1, LEG, 8).with(Flags::NOWAIT);
        rig.submit(bio);
        rig.settle();
        assert_eq!(rig.ends(), [(1, Status::Again)]);
        drop(frozen);
        // No neighbours, which would be merged. Twice the requests of a leg are its slots.
        rig.stall(0, true);
        for name in 2..2 + 13 {
            let bio = rig.write(name, (name - 2) * 4, 2);
            rig.submit(bio);
        }
        rig.settle();
        let bio = rig.write(20, 62, 1).with(Flags::NOWAIT);
        rig.submit(bio);
        rig.settle();
        assert_eq!(rig.ends(), [(20, Status::Again)]);
        let bio = rig.write(21, LEG, 8).with(Flags::NOWAIT);
        rig.submit(bio);
        rig.settle();
        assert_eq!(rig.ends(), [(21, Status::Ok)], "the other leg has room");
        rig.stall(0, false);
        rig.settle();
        assert_eq!(rig.ends().len(), 13);
        rig.assert_rest();
    }
}

#[test]
fn the_upper_device_closes_first_and_waits_for_what_is_under_way_below() {
    for stack in each_stack() {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        rig.stall(0, true);
        let bio = rig.straddling(1);
        rig.submit(bio);
        rig.settle();
        let mut closing = rig.above.begin_close(&watch(), Then::Ends);
        assert!(closing.poll(rig.now).is_waiting());
        rig.settle();
        assert!(closing.poll(rig.now).is_waiting(), "a part is under way");
        rig.stall(0, false);
        drop(rig.carry_out(closing).expect("its flush"));
        assert_eq!(rig.ends(), [(1, Status::Ok)]);
        assert_eq!(rig.sims.each_ref().map(|sim| sim.world().tally.flushes), [1, 1]);
        let above = rig.above.clone();
        rig.homes[0].extract(|lane| above.owns(lane), |_, lane| drop(lane));
        for leg in 0..2 {
            let closing = rig.legs[leg].begin_close(&watch(), Then::Ends);
            drop(rig.carry_out(closing).expect("its flush"));
        }
        let bio = rig.straddling(2);
        rig.submit(bio);
        rig.run();
        assert_eq!(rig.ends(), [(2, Status::Offline)]);
        rig.assert_rest();
    }
}

#[test]
fn what_a_lane_leaves_below_is_finished_there() {
    // Its request was given up above, and the lane is dropped before the leg answers.
    let mut rig = Rig::new(Stack { timeout_above_ns: 1_000_000_000, ..STACK });
    rig.stall(0, true);
    let bio = rig.straddling(1);
    rig.submit(bio);
    rig.settle();
    assert_eq!(rig.ends(), [(1, Status::Timeout)]);
    let above = rig.above.clone();
    rig.homes[0].extract(|lane| above.owns(lane), |_, lane| drop(lane));
    assert_eq!(rig.legs[0].stats().in_flight, 1);
    rig.stall(0, false);
    rig.settle();
    assert_eq!(rig.legs[0].stats().in_flight, 0);
    let step = rig.legs[0].begin_freeze(&watch());
    drop(rig.carry_out(step));
}

/// Devices on top of one another, each the only leg of the next.
fn tower(levels: usize, path: Path) {
    let plan = Plan { slow_ns: SLOW_NS, ..Plan::default() };
    let sim = sim(LEG, plan, 1, path.home);
    let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 8));
    let config = Config { timeout_ns: 0, wbt_lat_us: WBT_LAT_US, ..Config::default() };
    let mut tower = vec![path.device(config.clone(), sim as Arc<_>)];
    home.open(&tower[0], 0).unwrap();
    for level in 0..levels {
        let driver = linear(&tower[level..], 8, path.home);
        tower.push(path.device(config.clone(), driver));
        home.open(&tower[level + 1], 0).unwrap();
    }
    let mut submitter = tower[levels].submitter(home.bell(), 0, 0).unwrap();
    let mut now = Nanos(1);
    for burst in 0..3 {
        for name in burst * 8..burst * 8 + 8 {
            let bio = Bio::new(Op::Write, name, 8, filled(name, name, &[8])).cookie(name);
            submitter.submit(bio, now).expect("room above");
        }
        submitter.flush_plug(now);
        loop {
            while home.wants_turn(now) {
                home.bell().ready().take(|_| {});
                home.turn(now);
            }
            match home.wake_at() {
                Some(at) if at != Nanos(u64::MAX) => now = at,
                _ => break,
            }
        }
        let ok = |end: Completion| assert_eq!(end.status, Status::Ok);
        assert_eq!(submitter.complete(now, ok), 8, "{levels} levels");
    }
    drop(submitter);
    home.extract(|_| true, |_, lane| drop(lane));
    // From above: a device holds those below it.
    while tower.pop().is_some() {}
}

#[test]
fn a_tall_stack_needs_no_deep_stack() {
    for path in [Path::mq(1), Path::sq(Affinity::Any), Path::sq(Affinity::Fixed)] {
        // Calls as deep as the devices do not fit into it.
        let small = std::thread::Builder::new().stack_size(256 * 1024);
        small.spawn(move || tower(400, path)).unwrap().join().expect("it fits");
    }
}

/// Bios of each sender of a law.
const BIOS: u32 = 200;

/// Steps of a law: well above what any takes.
const STEPS_MAX: u64 = 2_000_000;

/// Senders over a stack whose parts are changed in the middle.
struct Scene {
    sims: [Arc<Sim>; 2],
    /// The upper device, then its legs.
    devices: Vec<Device>,
    house: House<Sender>,
    /// Of the upper device and of the legs, each with the homes of its lanes.
    orders: [(Arc<Orders>, std::ops::Range<usize>); 2],
    caller: Arc<Bell>,
    changes: usize,
    closed: usize,
}

impl Scene {
    fn new(stack: Stack, seed: u64) -> Scene {
        const HALF: u64 = 2080;
        let mut prng = Prng::new(seed);
        let plan = Plan {
            refused: 10,
            refusals_max: 60,
            failed: 2,
            errors: vec![Status::Medium, Status::NoSpc],
            slow_ns: 100_000,
            lent: 50,
            reordered: true,
            requeued: 10,
            requeues_max: 40,
            ..Plan::default()
        };
        let sims = [(); 2].map(|()| sim(HALF, plan.clone(), prng.next(), stack.below.home));
        sims[1].world().places = Some(Box::new(|at| at + HALF));
        let nr_requests = |path: Path| Some(if path.scheduled { 24 } else { 8 });
        let config =
            |path| Config { nr_requests: nr_requests(path), timeout_ns: 0, ..Config::default() };
        let leg = |sim: &Arc<Sim>| stack.below.device(config(stack.below), Arc::clone(sim) as _);
        let legs = [leg(&sims[0]), leg(&sims[1])];
        let driver = linear(&legs, 8, stack.above.home);
        let above = stack.above.device(config(stack.above), driver);
        let (homes, first) = if stack.apart { (4, 2) } else { (2, 0) };
        let steps = sims.clone();
        let progress = move || steps.iter().map(|sim| sim.progress()).sum();
        let mut house = House::new(homes, prng.next(), |_| None, progress);
        house.log = Log::kept();
        let orders = [(Arc::default(), 0..2), (Arc::default(), first..homes)];
        let [a, b] = legs;
        let devices = vec![above, a, b];
        for (number, device) in devices.iter().enumerate() {
            let (path, of) = if number == 0 { (stack.above, 0) } else { (stack.below, 1) };
            let (orders, homes): &(Arc<Orders>, _) = &orders[of];
            for lane in 0..usize::from(path.lanes) {
                house.open_lane(device, lane, homes.start + lane % homes.len());
            }
            let weak = Arc::downgrade(&(Arc::clone(orders) as Arc<dyn LaneHomes>));
            device.attach_homes(weak);
        }
        for home in [0, 1, 1] {
            let (bell, token) = (house.homes[home].home.bell(), house.next_token(home));
            let submitter = devices[0].submitter(bell, token, home).unwrap();
            let (log, window) = (house.log.clone(), 4 + 12 * home as u64);
            house.add_app(home, Sender::new(submitter, log, prng.next(), BIOS, window));
        }
        let caller = Bell::new(Box::new(NoWake), 1);
        Scene { sims, devices, house, orders, caller, changes: 0, closed: 0 }
    }

    /// Begins the next change: each kind in turn at one device after another; the close, from
    /// above, when the senders have half of their bios left.
    fn next_change(&mut self) -> Change {
        self.changes += 1;
        let watch = Watch::new(&self.caller, 0);
        if self.closed > 0 || self.house.apps.iter().all(|sender| sender.left < BIOS / 2) {
            self.closed += 1;
            let closing = self.devices[self.closed - 1].begin_close(&watch, Then::Ends);
            // A flush that fails leaves the device above as it is, and its legs go all the same.
            return held(closing, 1, |_| ());
        }
        let device = &self.devices[self.changes % 3];
        match self.changes / 3 % 4 {
            0 => held(device.begin_freeze(&watch), 3, |_| ()),
            1 => {
                let names = device.schedulers();
                let name = names[self.changes / 12 % names.len()];
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
                let prepared = device.prepare_lanes(1 + device.queues() % 4).unwrap();
                held(device.begin_queues(&watch, prepared), 1, |out| assert!(out.is_ok()))
            }
        }
    }

    fn play(mut self) -> Vec<Event> {
        let mut change: Option<Change> = None;
        for _ in 0..STEPS_MAX {
            for (orders, homes) in &self.orders {
                orders.obey(&mut self.house, homes.clone());
            }
            let busy = self.house.step() == Went::Went;
            if let Some(under_way) = &mut change {
                if !busy || self.house.prng.percent(20) {
                    let over = under_way(self.house.now);
                    change = change.filter(|_| !over);
                }
            } else if self.closed == self.devices.len() {
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
        let Scene { sims, devices, house, .. } = self;
        assert!(house.apps.iter().all(Sender::is_done), "a wake-up was lost: {}", house.state());
        assert!(house.apps.iter().all(|sender| sender.ended == u64::from(BIOS)));
        assert!(devices.iter().all(|device| device.stats().in_flight == 0));
        assert!(sims.iter().all(|sim| sim.coming() == 0 && sim.world().tally.requests > 100));
        house.log.take()
    }
}

#[test]
fn the_same_seed_gives_the_same_events_whatever_is_changed_above_and_below() {
    for stack in each_stack() {
        for seed in seeds("STACKED", 2) {
            let _tell = Tell(format!("{stack:?}\nSTACKED_SEED={seed}"));
            let (first, again) = (Scene::new(stack, seed).play(), Scene::new(stack, seed).play());
            for (index, (one, other)) in first.iter().zip(&again).enumerate() {
                assert_eq!(one, other, "event {index} of {}", first.len());
            }
            assert_eq!(first.len(), again.len());
        }
    }
}

/// Wakes a thread and counts how often.
struct Unpark(Thread, Arc<AtomicU64>);

impl Wake for Unpark {
    fn wake(&self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// A home on the calling thread, how often it announced its sleep, and how often it was woken.
struct Here {
    home: Home,
    woken: Arc<AtomicU64>,
    announced: u64,
    start: std::time::Instant,
}

impl Here {
    fn new(start: std::time::Instant) -> Here {
        let woken = Arc::new(AtomicU64::new(0));
        let wake = Unpark(std::thread::current(), Arc::clone(&woken));
        let home = Home::new(Bell::with_lanes(Box::new(wake), 8));
        Here { home, woken, announced: 0, start }
    }

    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64 + 1)
    }

    /// One round; without a reason for another one it sleeps until it is woken, however long.
    fn round(&mut self, others: impl Fn() -> bool) {
        let now = self.now();
        self.home.turn(now);
        if !self.home.wants_turn(now) {
            self.announced += 1;
            if self.home.before_sleep(now, others) {
                std::thread::park();
                self.home.awake();
            }
        }
        self.home.bell().ready().take(|_| {});
    }
}

const ROUNDS: u64 = 2_000;

/// One write at a time across the border, the legs at home on another thread.
#[expect(clippy::disallowed_methods, reason = "the legs have a thread of their own, and a clock")]
fn write_over_threads() -> (u64, u64, u64, u64) {
    let start = std::time::Instant::now();
    let sims = [(); 2].map(|()| sim(LEG, Plan::default(), 1, Affinity::Any));
    sims[1].world().places = Some(Box::new(|at| at + LEG));
    let config = Config { timeout_ns: 0, ..Config::default() };
    let leg = |sim: &Arc<Sim>| Path::mq(1).device(config.clone(), Arc::clone(sim) as _);
    let legs = [leg(&sims[0]), leg(&sims[1])];
    let above = Path::mq(1).device(config.clone(), linear(&legs, 8, Affinity::Any));
    let stop = Arc::new(AtomicU64::new(0));
    let (said, ready) = mpsc::channel();
    let theirs = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut here = Here::new(start);
            legs.iter().for_each(|leg| _ = here.home.open(leg, 0).unwrap());
            said.send(()).unwrap();
            let is_over = || stop.load(Ordering::SeqCst) != 0;
            while !is_over() {
                here.round(is_over);
            }
            (here.announced, here.woken.load(Ordering::SeqCst))
        })
    };
    ready.recv().unwrap();
    let mut here = Here::new(start);
    here.home.open(&above, 0).unwrap();
    let mut submitter = above.submitter(here.home.bell(), 0, 0).unwrap();
    for name in 1..=ROUNDS {
        let data = filled(name, LEG - 8, &[16]);
        let now = here.now();
        submitter.submit(Bio::new(Op::Write, LEG - 8, 16, data), now).expect("room above");
        submitter.flush_plug(now);
        let mut ended = 0;
        while ended == 0 {
            let now = here.now();
            ended += submitter.complete(now, |end| assert_eq!(end.status, Status::Ok));
            if ended == 0 {
                let submitter = &submitter;
                here.round(|| submitter.has_completions());
            }
        }
        assert_eq!(ended, 1);
    }
    stop.store(1, Ordering::SeqCst);
    theirs.thread().unpark();
    let (slept, woken) = theirs.join().expect("the other thread");
    (here.announced, here.woken.load(Ordering::SeqCst), slept, woken)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a wake-up that is lost is to end in a failure")]
fn legs_on_another_thread_wake_the_lane_above_once_for_each_sleep_at_most() {
    let (said, outcome) = mpsc::channel();
    std::thread::spawn(move || said.send(write_over_threads()));
    // No thread has a limit on its sleep, so a wake-up that is lost is the end of this wait.
    let limit = Duration::from_secs(600);
    let (slept, woken, below_slept, below_woken) = outcome.recv_timeout(limit).expect("an end");
    println!(
        "above: slept {slept}, woken {woken}; below: slept {below_slept}, woken {below_woken}"
    );
    assert!(woken > 0 && below_woken > 0, "threads that never slept show nothing");
    assert!(woken <= slept && below_woken <= below_slept, "woken more often than asleep");
}

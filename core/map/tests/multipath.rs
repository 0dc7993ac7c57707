//! A multipath device over several ways to one simulated disk: paths that fail, fall silent, come
//! back, or are frozen; requests that wait for one; and writes that may still land.
//!
//! Homes are virtual, and a lane is turned for a reason only: a wake-up that is lost is a scene
//! that does not go on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_bio::{Bio, Data, Flags, Limits, Nanos, Op, Status};
use weir_laws::device::Plan;
use weir_laws::fabric::{Build, Fabric, Narrow};
use weir_laws::path::{Order, Path};
use weir_laws::{Tell, filled, values};
use weir_queue::driver::Affinity;
use weir_queue::{
    Activation, Bell, Completion, Config, Detail, Device, Frozen, Home, NoWake, PortAccess,
    PortState, Progress, Step, Submitter, Then, Unflushed, Watch,
};

const SECOND: u64 = 1_000_000_000;
const SECTORS: u64 = 128;

/// Two paths, and one for need.
const TABLE: &str = "0 0 2 1 round-robin 0 2 1 a 1 b 1 round-robin 0 1 1 c 1";
const QUEUEING: &str = "1 queue_if_no_path 0 2 1 round-robin 0 2 1 a 1 b 1 round-robin 0 1 1 c 1";
const TWO: &str = "0 0 1 1 round-robin 0 2 1 a 1 b 1";
const ONE_QUEUEING: &str = "1 queue_if_no_path 0 1 1 round-robin 0 1 1 a 1";

/// No checks, so that a scene is over when nothing happens any more.
const NO_CHECKS: &[(&str, &str)] = &[("path_checker", "none")];

/// How the devices of a scene are built.
#[derive(Clone, Debug)]
struct Stack<'a> {
    table: &'a str,
    options: &'a [(&'a str, &'a str)],
    apart: bool,
    above: Path,
    below: Path,
    timeout_above_ns: u64,
    timeout_below_ns: u64,
    plan: Plan,
    takes_commands: bool,
    ports: &'a [Option<PortState>],
    depth: u16,
}

fn stack<'a>(table: &'a str) -> Stack<'a> {
    Stack {
        table,
        options: NO_CHECKS,
        apart: false,
        above: Path::mq(1),
        below: Path::mq(1),
        timeout_above_ns: 0,
        timeout_below_ns: 0,
        plan: Plan { slow_ns: 1_000, lent: 50, ..Plan::default() },
        takes_commands: false,
        ports: &[],
        depth: 16,
    }
}

/// Every way in which the two levels can be built.
fn each_stack<'a>(one: &Stack<'a>) -> Vec<Stack<'a>> {
    let paths = [
        Path::mq(1),
        Path::mq(1).by(Order::Deadline),
        Path::sq(Affinity::Any),
        Path::sq(Affinity::Fixed),
    ];
    let mut stacks = Vec::new();
    for above in paths {
        for below in paths {
            stacks.push(Stack { above, below, ..one.clone() });
            stacks.push(Stack { above, below, apart: true, ..one.clone() });
        }
    }
    stacks
}

struct Rig {
    fabric: Fabric,
    driver: Arc<Narrow>,
    above: Device,
    homes: Vec<Home>,
    submitter: Submitter,
    now: Nanos,
    ended: Vec<Completion>,
}

impl Rig {
    fn new(stack: Stack<'_>) -> Rig {
        let limits = Limits {
            capacity: SECTORS,
            max_hw_sectors: 32,
            volatile_cache: true,
            fua: true,
            max_hw_discard_sectors: 64,
            discard_granularity: 512,
            ..Limits::default()
        };
        // A write that waits for a path keeps the throttle's windows open, and the rig settles when
        // nothing is to come any more.
        let unthrottled = Config { wbt_lat_us: Some(0), ..Config::default() };
        let config = Config { timeout_ns: stack.timeout_below_ns, ..unthrottled.clone() };
        let ways = stack.table.split_ascii_whitespace().filter(|word| {
            word.len() == 1 && word.chars().all(|letter| letter.is_ascii_lowercase())
        });
        let fabric = Fabric::new(Build {
            ways: ways.count(),
            path: stack.below,
            limits,
            plan: stack.plan.clone(),
            config,
            depth: 16,
            seed: 1,
            takes_commands: stack.takes_commands,
            ports: stack.ports.to_vec(),
        });
        let shape = (stack.depth, stack.above.home);
        let driver = fabric.multipath(stack.table, stack.options, shape);
        let config = Config { timeout_ns: stack.timeout_above_ns, ..unthrottled };
        let above = stack.above.device(config, Arc::clone(&driver) as Arc<_>);
        let home = || Home::strict(Bell::with_lanes(Box::new(NoWake), 8));
        let mut homes = vec![home()];
        if stack.apart {
            homes.push(home());
        }
        let last = homes.len() - 1;
        fabric.legs.iter().for_each(|leg| _ = homes[last].open(leg, 0).unwrap());
        homes[0].open(&above, 0).unwrap();
        let submitter = above.submitter(homes[0].bell(), 0, 0).unwrap();
        let (now, ended) = (Nanos(1), Vec::new());
        let mut rig = Rig { fabric, driver, above, homes, submitter, now, ended };
        rig.run();
        rig
    }

    /// Makes rounds of the homes that have a reason, until none has; time stands still.
    fn run(&mut self) {
        for _ in 0..1_000 {
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
                return;
            }
        }
        panic!("homes do not come to rest");
    }

    fn next_time(&self) -> Option<Nanos> {
        let next = self.homes.iter().filter_map(Home::wake_at).min();
        next.filter(|at| *at != Nanos(u64::MAX))
    }

    /// Lets time pass until nothing more happens by itself.
    fn settle(&mut self) {
        self.run();
        while let Some(next) = self.next_time() {
            assert!(next > self.now, "a time that has come is no reason to run");
            self.now = next;
            self.run();
        }
    }

    /// Lets so many ns pass.
    fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        self.run();
        while let Some(next) = self.next_time().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.run();
        }
        self.now = until;
        self.run();
    }

    fn submit(&mut self, bio: Bio) {
        self.submitter.submit(bio, self.now).expect("room above");
        self.submitter.flush_plug(self.now);
    }

    fn write(&mut self, name: u64, sector: u64) {
        let bio = Bio::new(Op::Write, sector, 8, filled(name, sector, &[8])).cookie(name);
        self.submit(bio);
    }

    /// The ends so far: cookie and status, by cookie. Memory that came back is whole.
    fn ends(&mut self) -> Vec<(u64, Status)> {
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_unstable_by_key(|end| end.cookie);
        for end in ended.iter().filter(|end| end.op.has_data() && end.status != Status::Timeout) {
            assert_eq!(end.data.len(), end.sectors as usize * 512, "memory of {}", end.cookie);
        }
        ended.iter().map(|end| (end.cookie, end.status)).collect()
    }

    /// The writer of a sector, as a read through the device finds it.
    fn read(&mut self, sector: u64) -> u64 {
        self.submit(Bio::new(Op::Read, sector, 1, filled(0, sector, &[1])));
        self.pass(SECOND);
        let end = self.ended.pop().expect("a read ends");
        assert_eq!(end.status, Status::Ok);
        values(&end.data)[0] >> 24
    }

    /// The activation of a way's port has ended.
    fn activated(&self, way: usize, how: Activation) {
        self.fabric.ways[way].port.activated(how, self.now);
    }

    /// Activations that each way was asked for.
    fn activations(&self) -> Vec<u32> {
        let ways = self.fabric.ways.iter();
        ways.map(|way| way.port.activations.load(Ordering::SeqCst)).collect()
    }

    fn breaks(&self, way: usize, status: Status) {
        self.fabric.ways[way].fail_with(Some(status));
    }

    fn mends(&self, way: usize) {
        self.fabric.ways[way].fail_with(None);
    }

    /// Requests that each way has had since last asked.
    fn requests(&self) -> Vec<u32> {
        self.fabric.ways.iter().map(|way| way.requests.swap(0, Ordering::SeqCst)).collect()
    }

    fn say(&mut self, message: &str) {
        self.driver.map.message(message, self.now).unwrap();
        self.run();
    }

    fn status(&self) -> String {
        let status = self.driver.map.status();
        status.strip_prefix("0 128 multipath ").expect("its range and type").to_owned()
    }

    /// What it told, of which there is this.
    fn has_told(&self, text: &str) -> bool {
        self.driver.multipath.notices().iter().any(|notice| notice.contains(text))
    }

    fn freeze(&mut self, leg: usize) -> Frozen {
        let mut step = self.fabric.legs[leg].begin_freeze(&watch());
        loop {
            if let Progress::Ended(frozen) = step.poll(self.now) {
                return frozen;
            }
            self.run();
        }
    }

    fn close(&mut self) -> Result<(), Status> {
        let mut closing = self.above.begin_close(&watch(), Then::Ends);
        for _ in 0..100 {
            if let Progress::Ended(end) = closing.poll(self.now) {
                return end.map(drop::<Frozen>);
            }
            self.pass(SECOND / 1000);
        }
        panic!("it does not close");
    }

    fn assert_rest(&mut self) {
        assert_eq!(self.above.stats().in_flight, 0);
        assert!(self.fabric.legs.iter().all(|leg| leg.stats().in_flight == 0));
        assert_eq!(self.submitter.in_flight(), 0);
    }
}

fn watch() -> Watch {
    Watch::new(&Bell::new(Box::new(NoWake), 1), 0)
}

fn ok(names: std::ops::RangeInclusive<u64>) -> Vec<(u64, Status)> {
    names.map(|name| (name, Status::Ok)).collect()
}

#[test]
fn requests_go_round_the_paths_of_the_group_in_use() {
    for stack in each_stack(&stack(TABLE)) {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        for name in 1..=8 {
            rig.write(name, name * 10);
            rig.settle();
        }
        assert_eq!(rig.ends(), ok(1..=8));
        assert_eq!(rig.requests(), [4, 4, 0]);
        let hasty = rig.fabric.ways.iter().all(|way| way.patient.load(Ordering::SeqCst) == 0);
        assert!(hasty, "FAILFAST_TRANSPORT goes down");
        assert_eq!(rig.read(80), 8);
        assert_eq!(rig.status(), "2 0 0 0 2 1 A 0 2 0 a A 0 b A 0 E 0 1 0 c A 0");
        rig.assert_rest();
    }
}

#[test]
fn a_flush_goes_down_one_path_and_fua_with_its_data() {
    for stack in each_stack(&stack(TABLE)) {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        rig.write(1, 0);
        rig.settle();
        rig.submit(Bio::flush().cookie(2));
        rig.settle();
        let data = filled(3, 8, &[8]);
        rig.submit(Bio::new(Op::Write, 8, 8, data).with(Flags::FUA).cookie(3));
        rig.settle();
        assert_eq!(rig.ends(), ok(1..=3));
        let flushes: u32 =
            rig.fabric.ways.iter().map(|way| way.flushes.load(Ordering::SeqCst)).sum();
        assert_eq!((flushes, rig.fabric.sim.world().tally.fua), (1, 1));
        rig.submit(Bio::new(Op::Discard, 0, 8, Data::None).cookie(4));
        rig.settle();
        assert_eq!((rig.ends(), rig.read(0)), (ok(4..=4), 0));
        // A path that fails under a flush: another one has it.
        rig.breaks(0, Status::Transport);
        rig.breaks(1, Status::Transport);
        rig.submit(Bio::flush().cookie(5));
        rig.settle();
        assert_eq!(rig.ends(), ok(5..=5));
    }
}

#[test]
fn a_flush_down_another_path_hides_no_write_that_a_path_has_lost() {
    use Unflushed::{Doubtful, Gone, Kept, Renewed};
    // Of the first path and of all others, the answer of the first path to flushes, and the end of
    // each flush, whichever path it goes down.
    let (well, failed) = (Status::Ok, Status::IoErr);
    let cases = [
        (Kept, Kept, well, Status::Ok),
        (Renewed, Renewed, well, Status::Ok),
        (Doubtful, Renewed, well, Status::IoErr),
        (Doubtful, Renewed, failed, Status::IoErr),
        (Doubtful, Doubtful, failed, Status::IoErr),
        // The others were there when the first was lost, and have what it was told.
        (Doubtful, Kept, failed, Status::Ok),
        (Gone, Kept, well, Status::IoErr),
        (Gone, Kept, failed, Status::IoErr),
    ];
    for stack in each_stack(&stack(TABLE)) {
        for (first, others, answer, end) in cases {
            let _tell = Tell(format!("{first:?}, {others:?}, {answer:?}: {stack:?}"));
            let mut rig = Rig::new(stack.clone());
            rig.write(1, 0);
            rig.settle();
            for (number, way) in rig.fabric.ways.iter().enumerate() {
                *way.unflushed.lock().unwrap() = if number == 0 { first } else { others };
            }
            if !answer.is_ok() {
                rig.breaks(0, answer);
            }
            for name in 2..=5 {
                rig.submit(Bio::flush().cookie(name));
                rig.settle();
            }
            let mut ends = ok(1..=1);
            ends.extend((2..=5).map(|name| (name, end)));
            assert_eq!(rig.ends(), ends);
        }
    }
}

#[test]
fn a_path_error_moves_the_write_and_a_medium_error_does_not() {
    for stack in each_stack(&stack(TABLE)) {
        let _tell = Tell(format!("{stack:?}"));
        for status in Status::ALL.into_iter().filter(|status| {
            let refusal = matches!(status, Status::Resource | Status::DevResource);
            !status.is_ok() && !refusal && *status != Status::Again
        }) {
            let mut rig = Rig::new(stack.clone());
            rig.breaks(0, status);
            rig.write(1, 0);
            rig.settle();
            let (expected, requests) = match status.is_path_error() {
                true => (Status::Ok, vec![1, 1, 0]),
                false => (status, vec![1, 0, 0]),
            };
            assert_eq!((rig.ends(), rig.requests()), (vec![(1, expected)], requests), "{status:?}");
            let fails = u32::from(status.is_path_error());
            let letter = if fails == 1 { 'F' } else { 'A' };
            assert!(rig.status().contains(&format!(" a {letter} {fails} b A 0")), "{status:?}");
            assert_eq!(rig.has_told(&format!("path a failed: {status}; 2 paths")), fails == 1);
            if fails == 1 {
                assert_eq!(rig.read(0), 1);
            }
            rig.assert_rest();
        }
    }
}

#[test]
fn a_failed_path_has_no_more_requests_and_the_next_group_is_used_when_all_have_failed() {
    let mut rig = Rig::new(stack(TABLE));
    rig.breaks(0, Status::Transport);
    for name in 1..=6 {
        rig.write(name, name * 10);
        rig.settle();
    }
    assert_eq!((rig.ends(), rig.requests()), (ok(1..=6), vec![1, 6, 0]));
    rig.breaks(1, Status::Offline);
    for name in 1..=3 {
        rig.write(name, name * 10);
        rig.settle();
    }
    assert_eq!((rig.ends(), rig.requests()), (ok(1..=3), vec![0, 1, 3]));
    rig.mends(0);
    rig.say("reinstate_path a");
    rig.write(1, 0);
    rig.settle();
    assert_eq!((rig.ends(), rig.requests()), (ok(1..=1), vec![0, 0, 1]), "manual failback");
    rig.say("switch_group 1");
    rig.write(1, 0);
    rig.settle();
    assert_eq!((rig.ends(), rig.requests()), (ok(1..=1), vec![1, 0, 0]));
}

#[test]
fn without_a_path_a_request_fails_with_what_the_last_one_said() {
    for stack in each_stack(&stack(TABLE)) {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        (0..2).for_each(|way| rig.breaks(way, Status::Transport));
        rig.breaks(2, Status::Offline);
        rig.write(1, 0);
        rig.settle();
        assert_eq!((rig.ends(), rig.requests()), (vec![(1, Status::Offline)], vec![1, 1, 1]));
        rig.write(2, 0);
        rig.submit(Bio::flush().cookie(3));
        rig.settle();
        assert_eq!(rig.ends(), [(2, Status::IoErr), (3, Status::IoErr)]);
        assert_eq!(rig.requests(), [0, 0, 0]);
        rig.assert_rest();
    }
}

#[test]
fn requests_that_are_queued_go_on_when_a_path_is_back_and_cost_nothing_until_then() {
    for stack in each_stack(&stack(QUEUEING)) {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        (0..3).for_each(|way| rig.breaks(way, Status::Transport));
        rig.write(1, 0);
        rig.settle();
        // One that had a path, ones that never had.
        for name in 2..=20 {
            rig.write(name, (name % 12) * 8);
            rig.settle();
        }
        rig.submit(Bio::flush().cookie(21));
        rig.settle();
        assert_eq!(rig.ends(), []);
        assert_eq!(rig.next_time(), None, "it sleeps");
        rig.mends(2);
        rig.say("reinstate_path c");
        rig.settle();
        assert_eq!(rig.ends(), ok(1..=21));
        assert_eq!(rig.read(0), 12, "the order of writes to one place is kept");
        rig.assert_rest();
    }
}

#[test]
fn a_message_ends_what_waits_for_a_path() {
    let mut rig = Rig::new(stack(QUEUEING));
    (0..3).for_each(|way| rig.breaks(way, Status::Transport));
    rig.write(1, 0);
    rig.settle();
    rig.write(2, 8);
    rig.settle();
    assert_eq!(rig.ends(), []);
    rig.say("fail_if_no_path");
    rig.settle();
    assert_eq!(rig.ends(), [(1, Status::Transport), (2, Status::IoErr)]);
    rig.assert_rest();
}

#[test]
fn a_device_without_a_path_can_be_closed_and_goes_on_queueing_if_it_is_not() {
    for stack in each_stack(&stack(QUEUEING)) {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        (0..3).for_each(|way| rig.breaks(way, Status::Transport));
        rig.write(1, 0);
        rig.settle();
        rig.write(2, 8);
        rig.settle();
        let end = rig.close();
        assert_eq!(rig.ends(), [(1, Status::Transport), (2, Status::IoErr)]);
        // Nothing can be flushed, so the device goes on.
        assert_eq!(end, Err(Status::IoErr));
        rig.write(3, 8);
        rig.settle();
        assert_eq!(rig.ends(), []);
        rig.mends(1);
        rig.say("reinstate_path b");
        rig.settle();
        assert_eq!(rig.ends(), ok(3..=3));
        assert_eq!(rig.close(), Ok(()));
    }
}

#[test]
fn queueing_has_an_end_after_the_time_that_was_set() {
    let options = [("path_checker", "none"), ("queue_if_no_path_timeout_secs", "5")];
    let mut rig = Rig::new(Stack { options: &options, ..stack(QUEUEING) });
    (0..3).for_each(|way| rig.breaks(way, Status::Transport));
    rig.write(1, 0);
    rig.pass(SECOND);
    rig.write(2, 8);
    rig.pass(4 * SECOND - 10_000_000);
    assert_eq!(rig.ends(), []);
    rig.pass(10_000_000);
    assert_eq!(rig.ends(), [(1, Status::Transport), (2, Status::IoErr)]);
    assert!(rig.has_told("no path has come back in the time of queue_if_no_path_timeout_secs"));
}

#[test]
fn a_request_that_may_not_wait_does_not_wait_for_a_path() {
    let mut rig = Rig::new(stack(ONE_QUEUEING));
    rig.breaks(0, Status::Transport);
    let bio = Bio::new(Op::Write, 0, 8, filled(1, 0, &[8])).with(Flags::NOWAIT).cookie(1);
    rig.submit(bio);
    rig.settle();
    let bio = Bio::new(Op::Write, 0, 8, filled(2, 0, &[8])).with(Flags::NOWAIT).cookie(2);
    rig.submit(bio);
    rig.settle();
    assert_eq!(rig.ends(), [(1, Status::Again), (2, Status::Again)]);
    // AGAIN of a leg is no error of its path.
    let mut rig = Rig::new(stack(TWO));
    let frozen = [rig.freeze(0), rig.freeze(1)];
    let bio = Bio::new(Op::Write, 0, 8, filled(1, 0, &[8])).with(Flags::NOWAIT).cookie(1);
    rig.submit(bio);
    rig.settle();
    assert_eq!(rig.ends(), [(1, Status::Again)]);
    assert!(rig.status().ends_with("a A 0 b A 0"));
    drop(frozen);
}

#[test]
fn a_time_out_above_ends_what_waits_for_a_path() {
    for stack in each_stack(&stack(ONE_QUEUEING)) {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(Stack { timeout_above_ns: 2 * SECOND, ..stack });
        rig.breaks(0, Status::Transport);
        rig.write(1, 0);
        rig.pass(SECOND / 10);
        rig.write(2, 8);
        rig.pass(5 * SECOND);
        assert_eq!(rig.ends(), [(1, Status::Timeout), (2, Status::Timeout)]);
        rig.mends(0);
        rig.say("reinstate_path a");
        rig.pass(SECOND);
        assert_eq!(rig.requests(), [1], "what was given up is sent no more");
        rig.write(3, 0);
        rig.pass(SECOND);
        assert_eq!(rig.ends(), ok(3..=3));
        rig.assert_rest();
    }
}

#[test]
fn requests_that_wait_for_a_frozen_leg_go_elsewhere_when_its_path_fails() {
    for stack in each_stack(&stack(TWO)) {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        let frozen = rig.freeze(0);
        for name in 1..=4 {
            rig.write(name, name * 16);
            rig.settle();
        }
        assert_eq!(rig.ends().len(), 2, "a frozen leg does not disturb the other");
        rig.say("fail_path a");
        rig.settle();
        assert_eq!((rig.ends().len(), rig.requests()), (2, vec![0, 4]));
        drop(frozen);
        rig.settle();
        rig.assert_rest();
    }
}

#[test]
fn a_path_is_checked_by_a_read_and_comes_back_when_that_succeeds() {
    for stack in each_stack(&stack(TWO)) {
        let _tell = Tell(format!("{stack:?}"));
        let options = [("path_checker", "directio")];
        let mut rig = Rig::new(Stack { options: &options, ..stack });
        rig.breaks(0, Status::Transport);
        rig.write(1, 0);
        rig.pass(4 * SECOND);
        assert_eq!((rig.ends(), rig.requests()), (ok(1..=1), vec![1, 1]));
        rig.pass(20 * SECOND);
        assert!(rig.requests()[0] >= 4, "every 5 s");
        rig.mends(0);
        rig.pass(5 * SECOND);
        assert!(rig.has_told("path a is back: its check succeeded; 2 paths"));
        rig.requests();
        rig.write(2, 0);
        rig.write(3, 16);
        rig.pass(SECOND / 100);
        assert_eq!((rig.ends(), rig.requests()), (ok(2..=3), vec![1, 1]));
        // One that breaks while nothing is asked of it is found by its check.
        rig.breaks(1, Status::Transport);
        rig.pass(25 * SECOND);
        assert!(rig.has_told("path b failed: its check failed; 1 paths left"));
    }
}

#[test]
fn a_path_that_is_silent_is_down_after_the_checkers_time_and_disturbs_no_other() {
    for stack in each_stack(&stack(TWO)) {
        let _tell = Tell(format!("{stack:?}"));
        let options = [("path_checker", "readsector0"), ("checker_timeout", "3")];
        let timeout_below_ns = 20 * SECOND;
        let mut rig = Rig::new(Stack { options: &options, timeout_below_ns, ..stack });
        rig.fabric.silence(0, Nanos::ZERO, Nanos(100 * SECOND));
        rig.pass(8 * SECOND - 10_000_000);
        assert!(rig.status().ends_with("a A 0 b A 0"));
        rig.pass(20_000_000);
        assert!(rig.status().ends_with("a F 1 b A 0"), "{}", rig.status());
        for name in 1..=4 {
            rig.write(name, name * 10);
        }
        rig.pass(SECOND / 100);
        assert_eq!(rig.ends(), ok(1..=4));
        rig.pass(200 * SECOND);
        assert!(rig.status().ends_with("a A 1 b A 0"), "{}", rig.status());
    }
}

fn sense(key: u8, code: u8, qualifier: u8) -> Detail {
    let mut sense = vec![0; 18];
    (sense[0], sense[2], sense[12], sense[13]) = (0x70, key, code, qualifier);
    Detail { driver_status: 2, sense: Some(sense.into()), ..Detail::default() }
}

#[test]
fn a_path_that_takes_commands_is_checked_by_test_unit_ready() {
    // How the command ends; whether a valid and a failed path is valid then; commands in all.
    let reservation = Detail { driver_status: 0x18, ..Detail::default() };
    let scenes = [
        (Status::Ok, Detail::default(), true, true, 1),
        (Status::ResvConflict, reservation, true, true, 1),
        (Status::Offline, Detail::default(), false, false, 1),
        (Status::Transport, Detail::default(), false, false, 6),
        (Status::IoErr, sense(2, 0x04, 0x0b), true, true, 1),
        (Status::IoErr, sense(5, 0x25, 0x00), false, false, 1),
        (Status::IoErr, sense(2, 0x04, 0x03), false, false, 1),
        (Status::IoErr, sense(6, 0x29, 0x00), false, false, 6),
    ];
    for (status, detail, of_valid, of_failed, asked) in scenes {
        for fails in [false, true] {
            let options = [("path_checker", "tur")];
            let one = stack("0 0 1 1 round-robin 0 1 1 a 1");
            let mut rig = Rig::new(Stack { options: &options, takes_commands: true, ..one });
            *rig.fabric.ways[0].commands.lock().unwrap() = Some((status, detail.clone()));
            if fails {
                rig.say("fail_path a");
            }
            rig.pass(5 * SECOND + SECOND / 2);
            let expected = if fails { of_failed } else { of_valid };
            let is_valid = rig.status().contains("a A");
            assert_eq!(is_valid, expected, "{status:?} {detail:?}, failed before: {fails}");
            assert_eq!(rig.fabric.ways[0].asked.load(Ordering::SeqCst), asked, "{detail:?}");
            assert_eq!(rig.requests(), [0], "no read");
        }
    }
    // What is pending is asked again after a second, and changes nothing.
    let options = [("path_checker", "tur")];
    let one = stack("0 0 1 1 round-robin 0 1 1 a 1");
    let mut rig = Rig::new(Stack { options: &options, takes_commands: true, ..one.clone() });
    *rig.fabric.ways[0].commands.lock().unwrap() = Some((Status::IoErr, sense(2, 0x04, 0x0a)));
    rig.pass(7 * SECOND + SECOND / 2);
    assert_eq!(rig.fabric.ways[0].asked.load(Ordering::SeqCst), 3);
    assert!(rig.status().contains("a A 0"));
    // One that takes none is read from.
    let mut rig = Rig::new(Stack { options: &options, ..one });
    rig.pass(5 * SECOND + SECOND / 2);
    assert_eq!(rig.requests(), [1], "{:?}", rig.driver.map.listing());
    assert!(rig.status().contains("a A 0"));
}

/// A write on a path that falls silent: its leg gives it up after 2 s, and the driver may still
/// carry it out. Nothing is lent, so that its memory is there.
fn in_doubt(options: &[(&str, &str)]) -> Rig {
    let plan = Plan { slow_ns: 1_000, ..Plan::default() };
    let one = stack(TWO);
    let mut rig = Rig::new(Stack { options, plan, timeout_below_ns: 2 * SECOND, ..one });
    rig.fabric.silence(0, Nanos::ZERO, Nanos(60 * SECOND));
    rig.write(1, 0);
    rig.pass(5 * SECOND);
    rig
}

#[test]
fn a_write_that_may_still_land_goes_down_no_other_path() {
    let mut rig = in_doubt(NO_CHECKS);
    assert!(rig.status().ends_with("a F 1 b A 0"), "its path has failed");
    rig.pass(30 * SECOND);
    assert_eq!((rig.ends(), rig.requests()), (vec![], vec![1, 0]));
    // Others have a path.
    rig.write(2, 64);
    rig.pass(SECOND);
    assert_eq!((rig.ends(), rig.requests()), (ok(2..=2), vec![0, 1]));
    // The driver answers: it has landed, or never will.
    rig.pass(30 * SECOND);
    assert_eq!((rig.ends(), rig.requests()), (ok(1..=1), vec![0, 1]));
    assert_eq!(rig.read(0), 1);
    rig.assert_rest();
}

#[test]
fn the_transports_bound_ends_the_doubt_and_is_told() {
    let mut rig = in_doubt(&[("path_checker", "none"), ("replacement_timeout", "10")]);
    rig.pass(16 * SECOND);
    assert_eq!(rig.ends(), []);
    rig.pass(3 * SECOND);
    assert_eq!((rig.ends(), rig.requests()), (ok(1..=1), vec![1, 1]));
    assert!(rig.has_told("path a has not given back a write within twice its"));
}

#[test]
fn with_immediate_retry_it_goes_down_another_at_once_and_the_risk_is_told() {
    let mut rig = in_doubt(&[("path_checker", "none"), ("retry", "immediate")]);
    assert_eq!((rig.ends(), rig.requests()), (ok(1..=1), vec![1, 1]));
    assert!(rig.has_told("retry=immediate: the write of sectors 0..8 goes down another path"));
    rig.write(2, 0);
    rig.pass(SECOND);
    assert_eq!((rig.ends(), rig.read(0)), (ok(2..=2), 2));
    // That is the risk: the older write lands over the newer one.
    rig.pass(60 * SECOND);
    assert_eq!(rig.read(0), 1);
}

#[test]
fn a_read_that_ran_out_of_time_goes_down_another_path_at_once() {
    let plan = Plan { slow_ns: 1_000, ..Plan::default() };
    let mut rig = Rig::new(Stack { plan, timeout_below_ns: 2 * SECOND, ..stack(TWO) });
    rig.write(1, 0);
    rig.pass(SECOND);
    rig.write(2, 8);
    rig.pass(SECOND);
    rig.fabric.silence(0, Nanos::ZERO, Nanos(60 * SECOND));
    rig.submit(Bio::new(Op::Read, 0, 1, filled(0, 0, &[1])).cookie(3));
    rig.pass(5 * SECOND);
    assert_eq!(rig.ends(), ok(1..=3));
}

#[test]
fn memory_that_is_with_a_silent_driver_cannot_be_sent_again_so_the_request_timed_out() {
    let plan = Plan { slow_ns: 1_000, lent: 100, ..Plan::default() };
    let mut rig = Rig::new(Stack { plan, timeout_below_ns: 2 * SECOND, ..stack(TWO) });
    rig.fabric.silence(0, Nanos::ZERO, Nanos(60 * SECOND));
    rig.write(1, 0);
    rig.pass(50 * SECOND);
    assert_eq!(rig.ends(), [], "before its fence is lifted a newer write could be overwritten");
    rig.pass(20 * SECOND);
    assert_eq!(rig.ends(), [(1, Status::Timeout)]);
    rig.assert_rest();
}

#[test]
fn a_time_out_above_fences_what_is_in_doubt_until_it_is_settled() {
    let plan = Plan { slow_ns: 1_000, ..Plan::default() };
    let times = Stack { timeout_above_ns: 8 * SECOND, timeout_below_ns: 2 * SECOND, ..stack(TWO) };
    let mut rig = Rig::new(Stack { plan, ..times });
    rig.fabric.silence(0, Nanos::ZERO, Nanos(30 * SECOND));
    rig.write(1, 0);
    rig.pass(12 * SECOND);
    assert_eq!((rig.ends(), rig.requests()), (vec![(1, Status::Timeout)], vec![1, 0]));
    rig.pass(13 * SECOND);
    rig.write(2, 4);
    rig.pass(SECOND);
    assert_eq!((rig.ends(), rig.requests()), (vec![], vec![0, 0]), "it overlaps");
    rig.pass(10 * SECOND);
    assert_eq!((rig.ends(), rig.requests()), (ok(2..=2), vec![0, 1]), "the first is not sent");
    assert_eq!((rig.read(0), rig.read(4)), (1, 2));
    assert_eq!(rig.above.stats().quarantined, 0);
}

#[test]
fn a_path_that_answers_nothing_leaves_tags_for_the_others() {
    for policy in ["round-robin", "queue-length", "service-time"] {
        let table = format!("0 0 1 1 {policy} 0 4 0 a b c d");
        let mut rig = Rig::new(Stack { depth: 16, ..stack(&table) });
        (0..3).for_each(|way| rig.fabric.silence(way, Nanos::ZERO, Nanos(100 * SECOND)));
        let mut submitted = 0;
        for _ in 0..20 {
            for _ in 0..4 {
                let sector = submitted % 16 * 8;
                let data = filled(submitted, sector, &[2]);
                let bio = Bio::new(Op::Write, sector, 2, data).cookie(submitted);
                if rig.submitter.submit(bio, rig.now).is_ok() {
                    submitted += 1;
                }
            }
            rig.submitter.flush_plug(rig.now);
            rig.pass(SECOND / 100);
        }
        let ended = rig.ends().len() as u64;
        assert_eq!(ended, submitted - 12, "{policy}: 4 tags of each silent path are held");
        rig.pass(101 * SECOND);
        rig.assert_rest();
    }
}

#[test]
fn requests_wait_for_the_activation_of_their_group() {
    let table = "0 1 alua 2 1 round-robin 0 1 1 a 1 round-robin 0 1 1 b 1";
    let with_ports = |table| Stack { ports: &[None, None], ..stack(table) };
    for stack in each_stack(&with_ports(table)) {
        let _tell = Tell(format!("{stack:?}"));
        let mut rig = Rig::new(stack);
        rig.write(1, 0);
        rig.write(2, 16);
        rig.settle();
        assert_eq!((rig.ends(), rig.activations()), (vec![], vec![1, 0]));
        assert!(rig.status().starts_with("2 1 0 0 2 1 A"));
        rig.activated(0, Activation::Done);
        rig.settle();
        assert_eq!((rig.ends(), rig.requests()), (ok(1..=2), vec![2, 0]));
        // The other group is activated before anything goes there.
        rig.breaks(0, Status::Transport);
        rig.write(3, 32);
        rig.settle();
        let activations = rig.activations();
        assert_eq!((rig.ends(), activations, rig.requests()), (vec![], vec![1, 1], vec![1, 0]));
        rig.activated(1, Activation::Done);
        rig.settle();
        assert_eq!((rig.ends(), rig.requests()), (ok(3..=3), vec![0, 1]));
        rig.assert_rest();
    }
    // An activation that is to be repeated, said from another thread, is repeated after its delay.
    let again = table.replace("0 1 alua", "4 pg_init_retries 3 pg_init_delay_msecs 700 1 alua");
    let mut rig = Rig::new(with_ports(&again));
    rig.write(1, 0);
    rig.settle();
    rig.activated(0, Activation::Retry);
    rig.pass(SECOND);
    assert_eq!(rig.activations(), [2, 0]);
    rig.activated(0, Activation::Done);
    rig.settle();
    assert_eq!(rig.ends(), ok(1..=1));
    // Without target ports there is nothing to wait for.
    let mut rig = Rig::new(stack(table));
    rig.write(1, 0);
    rig.settle();
    assert_eq!(rig.ends(), ok(1..=1));
}

#[test]
fn the_states_of_target_ports_make_the_priorities_and_failback_follows() {
    let table = "0 0 2 1 round-robin 0 1 1 a 1 round-robin 0 1 1 b 1";
    let options = [("prio", "alua"), ("failback", "immediate"), ("path_checker", "directio")];
    let port = |access| PortState { access, preferred: false };
    let ports = [Some(port(PortAccess::Optimized)), Some(port(PortAccess::NonOptimized))];
    let mut rig = Rig::new(Stack { options: &options, ports: &ports, ..stack(table) });
    rig.write(1, 0);
    rig.pass(SECOND);
    assert_eq!(rig.requests(), [1, 0]);
    // The target tells it in the middle of everything, and the next request goes elsewhere.
    let ways: Vec<_> = rig.fabric.ways.iter().map(|way| Arc::clone(&way.port)).collect();
    ways[0].becomes(port(PortAccess::NonOptimized), rig.now);
    rig.write(2, 0);
    rig.pass(SECOND / 10);
    assert_eq!(rig.requests(), [1, 0], "they are alike, so nothing is gained");
    ways[1].becomes(port(PortAccess::Optimized), rig.now);
    rig.write(3, 0);
    rig.pass(SECOND / 10);
    assert_eq!(rig.requests(), [0, 1]);
    assert!(rig.has_told("failback to priority group 2"));
    let listing = rig.driver.map.listing().join("\n");
    assert!(listing.contains("prio=50 status=active"), "{listing}");
    assert!(listing.contains("a active prio=10 port=N"), "{listing}");
    // Each check has the target asked, which may have told nothing.
    assert_eq!(ways[0].refreshes.load(Ordering::SeqCst), 0);
    rig.pass(5 * SECOND);
    assert_eq!(ways[0].refreshes.load(Ordering::SeqCst), 1);
}

#[test]
fn of_a_group_by_priority_the_best_paths_carry_io_and_the_others_when_they_have_failed() {
    let table = "0 0 1 1 round-robin 0 3 0 a b c";
    let options = [("path_grouping_policy", "group_by_prio"), ("path_checker", "none")];
    let port = |access| PortState { access, preferred: false };
    let ports = [PortAccess::Optimized, PortAccess::NonOptimized, PortAccess::Optimized];
    let ports = ports.map(|access| Some(port(access)));
    let mut rig = Rig::new(Stack { options: &options, ports: &ports, ..stack(table) });
    let mut name = 0;
    let mut four = |rig: &mut Rig| {
        (0..4).for_each(|_| {
            name += 1;
            rig.write(name, name % 16 * 8);
            rig.settle();
        });
        rig.ends();
        rig.requests()
    };
    assert_eq!(four(&mut rig), [2, 0, 2]);
    let way = |rig: &Rig, way: usize| Arc::clone(&rig.fabric.ways[way].port);
    way(&rig, 0).becomes(port(PortAccess::NonOptimized), rig.now);
    assert_eq!(four(&mut rig), [0, 0, 4]);
    rig.say("fail_path c");
    assert_eq!(four(&mut rig), [2, 2, 0], "they are alike");
    rig.say("reinstate_path c");
    assert_eq!(four(&mut rig), [0, 0, 4]);
    way(&rig, 1).becomes(PortState { access: PortAccess::Standby, preferred: true }, rig.now);
    assert_eq!(four(&mut rig), [0, 0, 4], "81 is above 50, and the port takes no I/O");
    way(&rig, 1).becomes(PortState { access: PortAccess::NonOptimized, preferred: true }, rig.now);
    assert_eq!(four(&mut rig), [0, 4, 0], "90 is above 50");
    rig.say("fail_path b");
    way(&rig, 0).becomes(port(PortAccess::Standby), rig.now);
    way(&rig, 2).becomes(port(PortAccess::Unavailable), rig.now);
    assert_eq!(four(&mut rig), [4, 0, 0], "without one that does, they are tried");
    // With any other policy all paths of the group in use carry I/O.
    let mut rig = Rig::new(Stack { ports: &ports, ..stack(table) });
    (1..=6).for_each(|name| {
        rig.write(name, name * 8);
        rig.settle();
    });
    assert_eq!(rig.requests(), [2, 2, 2]);
}

#[test]
fn a_device_grows_with_the_paths_that_take_io_and_the_others_have_its_size() {
    let port = |access| Some(PortState { access, preferred: false });
    let ports = [PortAccess::Optimized, PortAccess::Standby, PortAccess::BlockDependent].map(port);
    let table = "0 0 1 1 round-robin 0 3 0 a b c";
    let rig = Rig::new(Stack { ports: &ports, ..stack(table) });
    let grows = |way: usize, sectors| *rig.fabric.ways[way].grown.lock().unwrap() = Some(sectors);
    let legs = || rig.fabric.legs.iter().map(|leg| leg.limits().capacity).collect::<Vec<_>>();
    grows(0, SECTORS + 64);
    assert_eq!(rig.above.enlarge(0).unwrap().sectors, SECTORS, "the least of those that tell");
    assert_eq!(legs(), [SECTORS; 3]);
    grows(2, SECTORS + 32);
    assert_eq!(rig.above.enlarge(0).unwrap().sectors, SECTORS + 32);
    assert_eq!(legs(), [SECTORS, SECTORS + 32, SECTORS], "it cannot say so itself");
    // One that tells no size at all is asked in vain, whatever its port.
    grows(2, 0);
    assert_eq!(rig.above.enlarge(0).unwrap().sectors, SECTORS + 64);
    assert_eq!(legs(), [SECTORS, SECTORS + 64, SECTORS + 64]);
    grows(0, 0);
    assert_eq!(rig.above.enlarge(0).unwrap().sectors, 0);
}

#[test]
fn every_path_is_asked_for_its_size_and_those_that_do_not_tell_it_are_named() {
    let rig = Rig::new(stack("0 0 1 1 round-robin 0 4 0 a b c d"));
    let ways = &rig.fabric.ways;
    ways.iter().for_each(|way| *way.grown.lock().unwrap() = Some(SECTORS + 64));
    let refuses = |way: usize, why| *ways[way].size_refused.lock().unwrap() = why;
    refuses(0, Some("READ CAPACITY: the cable is out"));
    refuses(2, Some("READ CAPACITY: not ready"));
    let why = rig.above.enlarge(0).expect_err("two of four tell it").to_string();
    let (first, second) = ("READ CAPACITY: the cable is out", "READ CAPACITY: not ready");
    assert_eq!(why, format!("path a: {first}; path c: {second}"));
    let asked = || ways.iter().map(|way| way.size_asked.load(Ordering::SeqCst)).collect::<Vec<_>>();
    assert_eq!(asked(), [1; 4]);
    assert_eq!(rig.above.limits().capacity, SECTORS);
    [0, 2].iter().for_each(|way| refuses(*way, None));
    assert_eq!(rig.above.enlarge(0).expect("all tell it").sectors, SECTORS + 64);
    assert_eq!(asked(), [2; 4]);
}

#[test]
fn what_a_port_becomes_before_it_is_listened_to_is_known() {
    let port = |access| PortState { access, preferred: false };
    let ports = [Some(port(PortAccess::Optimized)); 2];
    let table = "0 0 2 1 round-robin 0 1 0 a round-robin 0 1 0 b";
    let rig = Rig::new(Stack { ports: &ports, ..stack(table) });
    *rig.fabric.ways[0].port.state_before.lock().unwrap() = Some(port(PortAccess::Standby));
    let again = rig.fabric.multipath(table, NO_CHECKS, (16, Affinity::Any));
    let listing = again.map.listing().join("\n");
    assert!(listing.contains("a active prio=1 port=S"), "{listing}");
}

#[test]
fn a_slow_path_carries_one_request_a_second_until_its_answers_are_good() {
    let options = [("path_checker", "none"), ("slow_path", "on")];
    let plan = Plan { slow_ns: 100_000, ..Plan::default() };
    let mut rig = Rig::new(Stack { options: &options, plan, ..stack(TWO) });
    let slow = Arc::new(std::sync::atomic::AtomicU64::new(0));
    rig.fabric.delay(0, Arc::clone(&slow));
    let mut name = 0;
    let mut seconds = |rig: &mut Rig, count: u64| {
        for _ in 0..count * 10 {
            name += 1;
            rig.write(name, name % 16 * 8);
            rig.pass(SECOND / 10);
        }
        rig.ends();
        let requests = rig.requests();
        (requests[0], requests[1])
    };
    assert_eq!(seconds(&mut rig, 20), (100, 100));
    slow.store(20_000_000, Ordering::SeqCst);
    seconds(&mut rig, 25);
    assert!(rig.has_told("path a is on probation: p99 of"), "{:?}", rig.driver.multipath.notices());
    let (a, b) = seconds(&mut rig, 10);
    assert!((9..=11).contains(&a) && b >= 89, "{a} {b}");
    assert!(rig.driver.map.listing().join("\n").contains("a active slow"));
    // It is used for all if no other is left.
    rig.say("fail_path b");
    assert_eq!(seconds(&mut rig, 1), (10, 0));
    rig.say("reinstate_path b");
    seconds(&mut rig, 10);
    slow.store(0, Ordering::SeqCst);
    seconds(&mut rig, 45);
    assert!(rig.has_told("path a is trusted again"), "{:?}", rig.driver.multipath.notices());
    assert_eq!(seconds(&mut rig, 10), (50, 50));
}

#[test]
fn the_listing_has_the_figures_of_each_path() {
    let mut rig = Rig::new(stack(TABLE));
    for name in 1..=5 {
        rig.write(name, name * 8);
        rig.settle();
    }
    rig.breaks(1, Status::Transport);
    rig.write(6, 0);
    rig.settle();
    let mut lines = rig.driver.map.listing();
    for line in &mut lines {
        // How long it took is the device's business.
        line.truncate(line.find(" p99_us").unwrap_or(line.len()));
    }
    assert_eq!(
        lines,
        [
            "features='0' hwhandler='0' queue_mode=rq paths=2/3",
            "|-+- policy='round-robin 0' prio=1 status=active",
            "| |- a active prio=1 in_flight=0 ios=4 errors=0 fails=0",
            "| `- b failed prio=1 in_flight=0 ios=3 errors=1 fails=1",
            "`-+- policy='round-robin 0' prio=1 status=enabled",
            "  `- c active prio=1 in_flight=0 ios=0 errors=0 fails=0",
        ]
    );
}

#[test]
fn a_lane_that_closes_leaves_its_counters_and_nothing_under_way() {
    let mut rig = Rig::new(Stack { apart: true, ..stack(TWO) });
    rig.fabric.silence(0, Nanos::ZERO, Nanos(10 * SECOND));
    rig.write(1, 0);
    rig.run();
    assert!(rig.driver.map.listing()[2].contains("in_flight=1"));
    let mut closing = rig.above.begin_close(&watch(), Then::Ends);
    assert!(closing.poll(rig.now).is_waiting());
    rig.pass(11 * SECOND);
    let mut polls = 0;
    while closing.poll(rig.now).is_waiting() {
        rig.pass(SECOND);
        polls += 1;
        assert!(polls < 10, "it does not close");
    }
    assert_eq!(rig.ends(), ok(1..=1));
    let above = rig.above.clone();
    rig.homes[0].extract(|lane| above.owns(lane), |_, lane| drop(lane));
    let listing = rig.driver.map.listing().join("\n");
    assert!(listing.contains("a active prio=1 in_flight=0 ios=1"), "{listing}");
}

#[test]
fn what_a_lane_leaves_below_is_under_way_no_more() {
    let mut rig = Rig::new(Stack { timeout_above_ns: SECOND, ..stack(TWO) });
    rig.fabric.silence(0, Nanos::ZERO, Nanos(10 * SECOND));
    rig.write(1, 0);
    rig.pass(3 * SECOND);
    assert_eq!(rig.ends(), [(1, Status::Timeout)]);
    let listed = |rig: &Rig| rig.driver.map.listing()[2].clone();
    assert!(listed(&rig).contains("a active prio=1 in_flight=1"), "{}", listed(&rig));
    let above = rig.above.clone();
    rig.homes[0].extract(|lane| above.owns(lane), |_, lane| drop(lane));
    assert!(listed(&rig).contains("a active prio=1 in_flight=0"), "{}", listed(&rig));
    rig.pass(10 * SECOND);
    rig.assert_rest();
}

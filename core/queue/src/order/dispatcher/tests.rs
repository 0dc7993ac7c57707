//! The hand-over between lanes, on one thread: a lane that finds the right taken, because it is
//! held by hand or by the lane in whose turn it takes its own, leaves what it has.

mod alone;
mod meanwhile;
mod rig;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use weir_bio::Nanos;
use weir_ring::combiner::TENURE;
use weir_ring::{Asked, Asking, Work};
use weir_sched::Make;

use super::{AHEAD, Dispatcher, Outcome, Turn};
use crate::event::Silent;
use crate::lanes::ELEVATOR;
use crate::mq::port::Control;
use crate::order::arrivals::Arrivals;
use crate::step::{Acks, Watch};
use rig::{Rig, bell, bfq, deadline, hold, kyber, mq, shut, while_asked};

/// How long a lane counts on others, ns.
const PATIENCE_NS: u64 = 20_000;

/// When a lane asks again that was refused while nothing is under way, ns.
const ASK_AGAIN_NS: u64 = 3_000_000;

/// Lane 1 finds the right taken, and lane 0 takes it next.
fn leave_to_lane_0(rig: &Rig) {
    let held = hold(&rig.device);
    rig.step(1);
    drop(held);
    assert!(mq(&rig.device).dispatcher.has_asked(1), "it has left nothing");
    rig.step_told(0);
}

/// In a turn of lane 0, lane 1 leaves 32 reads whenever it has been picked for. Says how often.
fn leave_in_a_turn(rig: &Rig, rounds: usize) -> usize {
    let (seat, now) = (Rc::clone(&rig.seats[1]), rig.now);
    let left = Rc::new(Cell::new(0));
    let counted = Rc::clone(&left);
    let asked = move |lane| {
        if lane == 1 && counted.get() < rounds {
            rig::read(&seat, 1, 32, now);
            rig::step(&seat, now);
            counted.set(counted.get() + 1);
        }
    };
    rig.read(1, 32);
    let held = hold(&rig.device);
    rig.step(1);
    drop(held);
    while_asked(asked, || rig.step_told(0));
    left.get()
}

/// More than a tenure's worth is left by a lane that has nothing under way, so that it is not
/// turned for another reason afterwards.
fn all_that_is_left_comes_out(make: Make) {
    let rounds = 2 * TENURE / 32;
    let mut rig = Rig::new(make, 2, 1024, 2048);
    // Nothing is picked meanwhile, so that nothing ends either.
    shut(true);
    let left = leave_in_a_turn(&rig, rounds);
    shut(false);
    assert!(
        (8..rounds).contains(&left),
        "a turn in which others have left {left} times has an end"
    );
    rig.run_until(rig.now + 10 * PATIENCE_NS);
    assert_eq!(rig.ended(1), 32 * (left + 1));
}

#[test]
fn all_comes_out_that_a_lane_leaves_during_a_tenure_of_kyber() {
    all_that_is_left_comes_out(kyber);
}

#[test]
fn all_comes_out_that_a_lane_leaves_during_a_tenure_of_mq_deadline() {
    all_that_is_left_comes_out(deadline);
}

fn a_full_lane_is_sent_no_more(make: Make) {
    let mut rig = Rig::new(make, 2, 8, 256);
    rig.flow().stalled = 0b11;
    // Lane 0 is full, so that it takes nothing of lane 1's for itself.
    rig.read(0, 8);
    rig.run();
    rig.read(1, 64);
    leave_to_lane_0(&rig);
    let most = 8 + usize::from(AHEAD.min(8));
    for asked in 0..20 {
        let out = 64 + asked - rig.staged();
        assert!(out <= most, "{out} requests are out for a lane of 8 that has asked {asked} times");
        rig.read(1, 1);
        rig.step(1);
        rig.step_told(0);
        rig.now = rig.now + 1_000;
    }
    assert_eq!(rig.flow().took, [8, 8]);
    rig.flow().stalled = 0;
    rig.run_until(rig.now + 10 * PATIENCE_NS);
    assert_eq!((rig.ended(0), rig.ended(1)), (8, 84));
}

#[test]
fn a_full_lane_is_sent_what_goes_ahead_and_no_more_by_kyber() {
    a_full_lane_is_sent_no_more(kyber);
}

#[test]
fn a_full_lane_is_sent_what_goes_ahead_and_no_more_by_mq_deadline() {
    a_full_lane_is_sent_no_more(deadline);
}

/// A rig whose lane 1 has left its last end, which is not taken yet.
fn with_an_end_left() -> Rig {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.flow().stalled = 0b10;
    rig.read(1, 1);
    rig.run();
    rig.flow().stalled = 0;
    let held = hold(&rig.device);
    rig.step(1);
    drop(held);
    assert_eq!(rig.ended(1), 1);
    assert!(rig.wake_at(1).is_some(), "it looks whether somebody has taken it");
    rig
}

#[test]
fn a_lane_that_has_left_something_comes_to_rest_when_the_scheduler_goes() {
    let mut rig = with_an_end_left();
    rig.device.set_scheduler("none", &|| Nanos::ZERO).unwrap();
    rig.now = rig.now + 100 * PATIENCE_NS;
    rig.step(1);
    assert_eq!(rig.wake_at(1), None, "at {:?}", rig.now);
    rig.run();
    rig.read(1, 3);
    rig.run();
    assert_eq!(rig.ended(1), 4);
}

#[test]
fn a_lane_that_has_left_something_goes_on_under_another_scheduler() {
    for name in ["mq-deadline", "bfq", "kyber"] {
        let mut rig = with_an_end_left();
        rig.device.set_scheduler(name, &|| Nanos::ZERO).unwrap();
        rig.read(1, 3);
        rig.run_until(rig.now + 100 * PATIENCE_NS);
        assert_eq!(rig.ended(1), 4, "{name}");
        rig.device.set_scheduler("none", &|| Nanos::ZERO).unwrap();
    }
}

/// A lane whose work was taken before it asks.
struct LeftBefore;

impl Work<Dispatcher> for LeftBefore {
    fn leave(&mut self) -> bool {
        true
    }

    fn combine(&mut self, _: &mut Dispatcher, _: &mut Asking<'_>) {}
    fn combined(&mut self) {}
}

/// Lane 0 at the elevator, without anything of its own.
struct Serves<'a> {
    rig: &'a Rig,
    outcome: Outcome,
}

impl Work<Dispatcher> for Serves<'_> {
    fn leave(&mut self) -> bool {
        false
    }

    fn combine(&mut self, dispatcher: &mut Dispatcher, asking: &mut Asking<'_>) {
        let mut turn = Turn {
            lane: 0,
            arrivals: &mut Arrivals::default(),
            ended: &mut Vec::new(),
            room: Some(8),
            excess: 0,
            due: false,
            now: self.rig.now,
            dispatch: &mut Default::default(),
            refused: &mut Vec::new(),
        };
        self.outcome = dispatcher.serve(&mq(&self.rig.device).lanes, asking, &mut turn, Silent);
    }

    fn combined(&mut self) {}
}

/// No lane stands any more.
fn dismiss(rig: &Rig) {
    let mut held = hold(&rig.device);
    mq(&rig.device).dispatcher.dismiss(&mut held);
}

#[test]
fn who_serves_when_the_scheduler_has_gone_takes_the_asks() {
    let mut rig = with_an_end_left();
    rig.device.set_scheduler("none", &|| Nanos::ZERO).unwrap();
    // The switch has told the lane to ask; it comes to that with the snapshot of before.
    let dispatcher = &mq(&rig.device).dispatcher;
    assert_eq!(dispatcher.ask(1, Some(0), &mut LeftBefore), Asked::Delegated(0));
    let mut serves = Serves { rig: &rig, outcome: Outcome::default() };
    let asked = dispatcher.ask(0, None, &mut serves);
    assert_eq!(asked, Asked::Done, "the next look finds the same ask again, without end");
    assert!(!dispatcher.has_asked(1) && serves.outcome.wake_at.is_none());
    rig.run();
}

#[test]
fn a_lane_that_is_turned_away_again_and_again_does_not_spin() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.read(1, 1);
    let device = rig.device.clone();
    let held = hold(&device);
    for _ in 0..5 {
        rig.step(1);
        let at = rig.wake_at(1).expect("it looks again");
        assert!(at > rig.now, "it wants a turn at {at:?}, and now is {:?}", rig.now);
        rig.now = at;
    }
    drop(held);
    rig.run();
    assert_eq!(rig.ended(1), 1);
}

#[test]
fn a_lane_delegates_nothing_to_one_on_its_own_thread() {
    let one = bell();
    let mut rig = Rig::with_bells(kyber, vec![Arc::clone(&one), one], 8, 64);
    rig.read(1, 1);
    leave_to_lane_0(&rig);
    assert_eq!(mq(&rig.device).dispatcher.standing(), Some(0));
    rig.run();
    rig.flow().stalled = 0b10;
    let before = rig.flow().took[1];
    rig.read(1, 1);
    rig.step(1);
    assert_eq!(rig.flow().took[1], before + 1, "the right was free");
    rig.flow().stalled = 0;
    rig.run();
    assert_eq!(rig.ended(1), 2);
}

#[test]
fn a_lane_delegates_to_the_one_that_stands_on_another_thread_which_is_told() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.read(1, 1);
    leave_to_lane_0(&rig);
    assert_eq!(mq(&rig.device).dispatcher.standing(), Some(0));
    rig.run();
    rig.read(1, 1);
    rig.step(1);
    assert!(mq(&rig.device).dispatcher.has_asked(1), "the right was free, and it took it");
    assert!(rig.has_work(0), "the one that stands sleeps without having looked");
    rig.run();
    assert_eq!(rig.ended(1), 2);
}

#[test]
fn a_lane_takes_the_right_itself_if_the_one_that_stands_does_not_come_round() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.read(1, 1);
    leave_to_lane_0(&rig);
    rig.run();
    rig.read(1, 1);
    rig.step(1);
    rig.now = rig.wake_at(1).expect("its patience has an end");
    rig.step(1);
    assert_eq!(mq(&rig.device).dispatcher.standing(), None);
    rig.step(1);
    assert_eq!(rig.ended(1), 2);
}

/// Lane 1 is refused a read by a scheduler that holds everything back, and lane 0 comes back.
fn refused_by_a_shut_scheduler(lanes: usize) -> Rig {
    let mut rig = Rig::new(kyber, lanes, 8, 64);
    shut(true);
    rig.read(1, 1);
    leave_to_lane_0(&rig);
    rig.run_until(rig.now + 2 * PATIENCE_NS);
    rig
}

#[test]
fn who_passes_for_a_lane_that_is_refused_comes_back_for_it() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    shut(true);
    rig.read(1, 1);
    leave_to_lane_0(&rig);
    let at = rig.now + ASK_AGAIN_NS;
    assert_eq!(rig.wake_at(0), Some(at), "nothing is under way whose end could tell anybody");
    shut(false);
    rig.run_until(at);
    assert_eq!(rig.ended(1), 1);
}

/// Lane 0 comes for a time and finds the right taken; then another lane, told to, goes to the
/// elevator, and knows nothing of the time.
fn a_time_comes_while_the_right_is_taken(before: impl FnOnce(&Rig), after: impl FnOnce(&Rig)) {
    let mut rig = refused_by_a_shut_scheduler(3);
    let at = rig.wake_at(0).expect("it comes back for lane 1");
    rig.run_until(Nanos(at.0 - 1));
    shut(false);
    rig.now = at;
    let held = hold(&rig.device);
    rig.step(0);
    drop(held);
    assert!(mq(&rig.device).dispatcher.has_asked(0), "it found the right taken");
    before(&rig);
    rig.step_told(2);
    after(&rig);
    rig.run_until(at + 5 * PATIENCE_NS);
    assert_eq!(rig.ended(1), 1, "nobody has told lane 1 that the time has come");
}

#[test]
fn a_time_that_has_come_while_the_right_was_taken_is_not_forgotten() {
    let asleep = |rig: &Rig| rig.bells[2].doorbell().prepare_sleep();
    a_time_comes_while_the_right_is_taken(dismiss, asleep);
}

#[test]
fn the_one_that_stands_remembers_that_a_time_has_come() {
    a_time_comes_while_the_right_is_taken(|_| {}, |_| {});
}

#[test]
fn a_lane_that_comes_for_a_time_delegates_to_none_that_does_not_know_it() {
    a_time_comes_while_the_right_is_taken(dismiss, |_| {});
}

#[test]
fn a_lane_that_was_turned_away_while_another_was_let_go_is_told() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.read(1, 1);
    let (seat, now) = (Rc::clone(&rig.seats[1]), rig.now);
    mq(&rig.device).with_right(|_| rig::step(&seat, now));
    assert!(rig.has_work(1));
    rig.run();
    assert_eq!(rig.ended(1), 1);
}

#[test]
fn a_lane_that_opens_tells_those_it_has_turned_away() {
    let mut rig = Rig::new(kyber, 3, 8, 64);
    drop(rig.seats[2].borrow_mut().lane.take());
    rig.run();
    rig.read(1, 1);
    let held = hold(&rig.device);
    rig.step(1);
    drop(held);
    assert!(!rig.has_work(1));
    let opened = rig.device.open_lane(2, &rig.bells[2]).unwrap();
    rig.seats[2].borrow_mut().lane = Some(opened);
    assert!(rig.has_work(1));
    rig.run();
    assert_eq!(rig.ended(1), 1);
}

#[test]
fn a_lane_that_closes_tells_those_it_has_turned_away() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    // Lane 1 opens anew, so that the scheduler does not know it yet and it is heir to no lane.
    drop(rig.seats[1].borrow_mut().lane.take());
    rig.run();
    let opened = rig.device.open_lane(1, &rig.bells[1]).unwrap();
    rig.seats[1].borrow_mut().lane = Some(opened);
    rig.read(1, 1);
    let held = hold(&rig.device);
    rig.step(1);
    drop(held);
    assert!(!rig.has_work(1));
    drop(rig.seats[0].borrow_mut().lane.take());
    assert!(rig.has_work(1));
    rig.run();
    assert_eq!(rig.ended(1), 1);
}

#[test]
fn a_lane_without_room_is_sent_what_goes_ahead() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.read(1, 16);
    let device = rig.device.clone();
    let held = hold(&device);
    rig.step(1);
    // As it would have said that has received nothing yet, and whose driver is full.
    mq(&device).lanes[1].credit.set(0);
    drop(held);
    rig.step_told(0);
    assert_eq!(rig.staged(), 8, "eight go ahead");
    rig.run_until(rig.now + 10 * PATIENCE_NS);
    assert_eq!(rig.ended(1), 16);
}

#[test]
fn what_belongs_to_a_full_lane_goes_ahead_to_it_and_to_no_other() {
    let mut rig = Rig::new(deadline, 2, 8, 64);
    rig.flow().stalled = 0b01;
    rig.read(0, 16);
    rig.run();
    // Lane 1 was told of what lane 0 has no room for, and sent it there.
    assert_eq!(rig.flow().took, [8, 0]);
    assert_eq!(rig.staged(), 0);
    rig.read(1, 4);
    rig.run();
    assert_eq!(rig.flow().took, [8, 4]);
    assert_eq!(rig.staged(), 0);
    rig.flow().stalled = 0;
    rig.run();
    assert_eq!(rig.flow().took, [16, 4]);
    assert_eq!((rig.ended(0), rig.ended(1)), (16, 4));
}

/// Lane 0 never answers; lane 1, which has nothing of its own, serves what lane 0 cannot take.
fn a_lane_that_does_not_answer_keeps_what_it_has_and_no_more(make: Make) {
    let mut rig = Rig::new(make, 2, 64, 512);
    rig.flow().stalled = 0b01;
    rig.read(0, 200);
    rig.run();
    let kept = 64 + usize::from(AHEAD);
    assert_eq!(rig.flow().took, [64, 200 - kept]);
    for round in 1..=5 {
        rig.read(0, 100);
        rig.run_until(rig.now + 10 * PATIENCE_NS);
        let sent = 200 + 100 * round;
        assert_eq!(rig.ended(0), sent - kept, "in round {round}");
        assert_eq!((rig.staged(), rig.flow().took[0]), (0, 64), "in round {round}");
    }
    rig.flow().stalled = 0;
    rig.run_until(rig.now + 10 * PATIENCE_NS);
    assert_eq!((rig.ended(0), rig.staged()), (700, 0));
}

#[test]
fn a_lane_that_does_not_answer_keeps_what_it_has_of_mq_deadline_and_no_more() {
    a_lane_that_does_not_answer_keeps_what_it_has_and_no_more(deadline);
}

#[test]
fn a_lane_that_does_not_answer_keeps_what_it_has_of_bfq_and_no_more() {
    a_lane_that_does_not_answer_keeps_what_it_has_and_no_more(bfq);
}

/// Lane 1 picks for lane 0, whose home does not come to it any more and drops it.
fn what_a_lane_has_not_received_when_it_closes_goes_to_another(make: Make, sent: usize) {
    let mut rig = Rig::new(make, 2, 64, 512);
    rig.read(0, sent);
    let held = hold(&rig.device);
    rig.step(0);
    drop(held);
    rig.step_told(1);
    let kept = 64 + usize::from(AHEAD);
    let others = (sent - kept).min(64);
    assert_eq!(rig.flow().took, [0, others]);
    assert_eq!(rig.staged(), sent - kept - others);
    drop(rig.seats[0].borrow_mut().lane.take());
    rig.run_until(rig.now + 10 * PATIENCE_NS);
    assert_eq!(rig.flow().took, [0, sent]);
    assert_eq!((rig.ended(0), rig.staged()), (sent, 0));
}

#[test]
fn what_a_lane_has_not_received_when_it_closes_goes_to_one_that_is_busy() {
    for make in [deadline, bfq] {
        what_a_lane_has_not_received_when_it_closes_goes_to_another(make, 200);
    }
}

#[test]
fn what_a_lane_has_not_received_when_it_closes_goes_to_one_that_is_idle() {
    for make in [deadline, bfq] {
        let all = 64 + usize::from(AHEAD);
        what_a_lane_has_not_received_when_it_closes_goes_to_another(make, all);
    }
}

#[test]
fn a_paused_lane_is_sent_nothing() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    let acks = Acks::new(&Watch::new(&bell(), 0));
    acks.expect();
    mq(&rig.device).post(1, Control::Pause(Arc::clone(&acks)));
    rig.step(1);
    assert!(acks.are_complete());
    rig.read(1, 8);
    leave_to_lane_0(&rig);
    assert_eq!(rig.staged(), 8);
    mq(&rig.device).post(1, Control::Resume);
    mq(&rig.device).lanes.kick(1, ELEVATOR);
    rig.run_until(rig.now + 10 * PATIENCE_NS);
    assert_eq!(rig.ended(1), 8);
}

#[test]
fn an_end_that_was_left_keeps_the_time_at_which_it_was() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.flow().stalled = 0b10;
    rig.read(1, 1);
    rig.run();
    rig.flow().stalled = 0;
    rig.now = rig.now + 1_000;
    let done_at = rig.now;
    let held = hold(&rig.device);
    rig.step(1);
    drop(held);
    rig.now = rig.now + 5_000;
    rig.step_told(0);
    assert_eq!(rig::ended_at(), done_at);
}

#[test]
fn a_delegating_lane_that_the_budget_refuses_is_the_one_that_waits_and_is_woken() {
    for make in [deadline, kyber, bfq] {
        let (mut rig, places) = Rig::with_places(make, 2, 0);
        rig.read(1, 1);
        leave_to_lane_0(&rig);
        let waits = std::mem::take(&mut *places.waits.lock().unwrap());
        assert!(waits.contains(&1), "{waits:?}: the combiner may wait as well, if it may take it");
        assert_eq!(rig.flow().took, [0, 0]);
        // The budget has places again, and has the lane turned.
        *places.free.lock().unwrap() = 1;
        mq(&rig.device).lanes.nudge(1);
        rig.run();
        assert_eq!((rig.flow().took.clone(), rig.ended(1)), (vec![0, 1], 1));
        assert_eq!((*places.free.lock().unwrap(), rig.staged()), (1, 0));
    }
}

#[test]
fn the_places_of_what_a_lane_has_not_received_when_it_closes_are_given_back() {
    for make in [deadline, bfq] {
        let (mut rig, places) = Rig::with_places(make, 2, 8);
        rig.read(0, 4);
        let held = hold(&rig.device);
        rig.step(0);
        drop(held);
        rig.step_told(1);
        assert_eq!((*places.free.lock().unwrap(), rig.flow().took.clone()), (4, vec![0, 0]));
        drop(rig.seats[0].borrow_mut().lane.take());
        assert_eq!(*places.free.lock().unwrap(), 8, "no request has one");
        rig.run_until(rig.now + 10 * PATIENCE_NS);
        assert_eq!((rig.flow().took.clone(), rig.ended(0)), (vec![0, 4], 4));
        assert_eq!(*places.free.lock().unwrap(), 8);
    }
}

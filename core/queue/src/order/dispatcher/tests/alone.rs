//! The short way of a lone request through the elevator, where the device has other lanes: it is
//! taken where none of them is at the elevator, and leaves them as the long way does.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Flags, Op, Rq, RqId, Status, SubmitterId};

use super::rig::{self, Rig, Seat, bell, deadline, hold, kyber, mq, shut, while_asked};
use super::{PATIENCE_NS, leave_to_lane_0};
use crate::driver::Tag;
use crate::lanes::ELEVATOR;
use crate::mq::port::Control;
use crate::request::Request;
use crate::step::{Acks, Step, Watch};
use crate::{Device, LaneAnswer, LaneHomes};

/// The lane and its submitter, in one pass; `later` is called if the driver is asked again.
pub(super) fn pass_and(rig: &Rig, lane: usize, later: impl FnOnce()) {
    let Seat { lane, submitter, ended, .. } = &mut *rig.seats[lane].borrow_mut();
    let later = || {
        later();
        rig.now
    };
    submitter.pass(lane.as_mut(), rig.now, later, |completion| {
        assert_eq!(completion.status, Status::Ok);
        *ended += 1;
    });
}

pub(super) fn pass(rig: &Rig, lane: usize) {
    pass_and(rig, lane, || {});
}

/// A read that is in the plug.
pub(super) fn plug(rig: &Rig, lane: usize) {
    let mut seat = rig.seats[lane].borrow_mut();
    let sector = ((lane as u64) << 24) + seat.sent as u64 * 16;
    let bio = Bio::read(sector, Buf::zeroed(4096));
    seat.submitter.submit(bio, rig.now).expect("room for a read");
    seat.sent += 1;
}

pub(super) fn plug_and_pass(rig: &Rig, lane: usize) {
    plug(rig, lane);
    pass(rig, lane);
}

#[test]
fn a_lone_request_is_read_and_answered_in_one_pass_and_leaves_no_mark() {
    let rig = Rig::new(kyber, 2, 8, 64);
    for count in 1..=20 {
        plug_and_pass(&rig, 1);
        assert_eq!(rig.seats[1].borrow().ended, count);
        assert!(!rig.has_work(1) && !rig.has_work(0));
        assert!(!rig.bells[1].ready().any(), "it was told through its inbox");
    }
}

#[test]
fn a_lane_that_asks_is_served_before_the_pass_is_over() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.read(1, 3);
    let device = rig.device.clone();
    let held = hold(&device);
    rig.step(1);
    drop(held);
    plug_and_pass(&rig, 0);
    assert!(!mq(&rig.device).dispatcher.has_asked(1), "it waits for another turn");
    rig.run();
    assert_eq!((rig.ended(0), rig.ended(1)), (1, 3));
}

#[test]
fn a_lone_request_is_left_to_the_lane_that_stands() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.read(1, 1);
    leave_to_lane_0(&rig);
    assert_eq!(mq(&rig.device).dispatcher.standing(), Some(0));
    rig.run();
    // It sees that what it left was taken, and has nothing to see to.
    rig.step(1);
    assert_eq!((rig.wake_at(1), rig.has_work(1)), (None, false));
    plug_and_pass(&rig, 1);
    assert!(mq(&rig.device).dispatcher.has_asked(1), "the right was free, and it took it");
    // The one that stands comes to it in a pass that brings nothing.
    pass(&rig, 0);
    assert!(!mq(&rig.device).dispatcher.has_asked(1), "it counts on one that does not look");
    rig.run();
    assert_eq!(rig.ended(1), 2);
}

#[test]
fn a_lone_request_is_left_where_the_right_is_taken() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    let device = rig.device.clone();
    let held = hold(&device);
    plug_and_pass(&rig, 1);
    drop(held);
    assert!(mq(&rig.device).dispatcher.has_asked(1));
    rig.step_told(0);
    rig.run();
    assert_eq!(rig.ended(1), 1);
}

#[test]
fn what_a_lane_was_sent_is_not_overtaken() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    rig.flow().stalled = 0b10;
    rig.read(1, 3);
    leave_to_lane_0(&rig);
    mq(&rig.device).dispatcher.dismiss(&mut hold(&rig.device));
    plug_and_pass(&rig, 1);
    assert_eq!(rig.flow().took[1], 4, "three had been sent to it");
    let sectors = rig.flow().sectors.clone();
    assert!(sectors.is_sorted(), "the lone one is behind them: {sectors:?}");
    rig.flow().stalled = 0;
    rig.run();
    assert_eq!(rig.ended(1), 4);
}

#[test]
fn a_lane_comes_to_rest_when_what_it_left_was_taken() {
    for brings in [false, true] {
        let mut rig = super::with_an_end_left();
        rig.step_told(0);
        mq(&rig.device).dispatcher.dismiss(&mut hold(&rig.device));
        if brings {
            plug(&rig, 1);
        }
        pass(&rig, 1);
        assert_eq!(rig.wake_at(1), None, "it looks on, whether it brings something: {brings}");
        rig.run();
    }
}

#[test]
fn a_time_that_has_come_is_seen_to_with_a_lone_request_and_without_one() {
    for brings in [false, true] {
        let mut rig = super::refused_by_a_shut_scheduler(2);
        mq(&rig.device).dispatcher.dismiss(&mut hold(&rig.device));
        rig.now = rig.wake_at(0).expect("it comes back for lane 1");
        shut(false);
        // Without an end, which would be another reason to tell.
        rig.flow().stalled = 0b01;
        if brings {
            plug(&rig, 0);
        }
        pass(&rig, 0);
        assert!(rig.has_work(1), "lane 1 was not told, whether lane 0 brings something: {brings}");
        rig.flow().stalled = 0;
        rig.run();
        assert_eq!(rig.ended(1), 1);
    }
}

#[test]
fn a_lane_says_how_much_it_takes_after_each_lone_request() {
    let mut rig = Rig::new(deadline, 2, 8, 256);
    rig.flow().stalled = 0b11;
    (0..4).for_each(|_| plug_and_pass(&rig, 1));
    shut(true);
    (0..40).for_each(|_| plug_and_pass(&rig, 1));
    shut(false);
    rig.step_told(0);
    // Four and eight ahead are for lane 1, and lane 0 takes eight.
    assert_eq!((rig.staged(), rig.flow().took.clone()), (20, vec![8, 4]));
    rig.flow().stalled = 0;
    rig.run_until(rig.now + 10 * PATIENCE_NS);
    assert_eq!(rig.ended(1), 44);
}

#[test]
fn a_lane_that_was_turned_away_during_the_pass_is_served() {
    for make in [kyber, deadline] {
        let mut rig = Rig::new(make, 2, 8, 64);
        let (seat, now, left) = (Rc::clone(&rig.seats[1]), rig.now, Rc::new(Cell::new(false)));
        let asked = move |lane| {
            if lane == 0 && !left.replace(true) {
                rig::read(&seat, 1, 3, now);
                rig::step(&seat, now);
            }
        };
        // Without an end, so that it comes to the elevator once.
        rig.flow().stalled = 0b01;
        plug(&rig, 0);
        while_asked(asked, || pass(&rig, 0));
        assert!(rig.has_work(0), "the lane that took the right sees to those that it turned away");
        rig.flow().stalled = 0;
        rig.run();
        assert_eq!(rig.ended(1), 3);
    }
}

#[test]
fn what_a_pass_picks_of_another_lane_is_sent_there() {
    let mut rig = Rig::new(deadline, 2, 8, 64);
    rig.flow().stalled = 0b10;
    shut(true);
    plug_and_pass(&rig, 1);
    shut(false);
    plug_and_pass(&rig, 0);
    assert!(rig.has_work(1), "its request is with neither lane");
    rig.step(1);
    assert_eq!(rig.flow().took, [1, 1]);
    rig.flow().stalled = 0;
    rig.run();
    assert_eq!((rig.ended(0), rig.ended(1)), (1, 1));
}

#[test]
fn a_lane_with_room_is_told_of_what_a_pass_leaves_for_want_of_room() {
    let mut rig = Rig::new(deadline, 2, 8, 64);
    rig.flow().stalled = 0b01;
    (0..7).for_each(|_| plug_and_pass(&rig, 0));
    shut(true);
    (0..3).for_each(|_| plug_and_pass(&rig, 0));
    // Lane 1 had room left when it came last.
    rig.step_told(1);
    assert!(!rig.has_work(1));
    shut(false);
    plug_and_pass(&rig, 0);
    assert!(rig.has_work(1), "three requests wait for lane 0");
    rig.flow().stalled = 0;
    rig.run();
    assert_eq!(rig.ended(0), 11);
}

/// Puts a fence around the first read of lane 1's submitter when that lane is picked for.
pub(super) fn fence_around_lane_1(rig: &Rig) -> impl FnMut(u16) + 'static {
    let shared = Arc::clone(&rig.device.shared);
    move |lane| {
        if lane == 1 {
            let around = Request::free(RqId::new(SubmitterId(0), 0, 0)).rq;
            let rq = Rq { op: Op::Write, sector: 1 << 24, sectors: 8, ..around };
            shared.fences.put(0, Tag::first(3), &rq);
        }
    }
}

/// Whether the scheduler has heard of the end of all there was.
pub(super) fn is_idle(rig: &Rig) -> bool {
    mq(&rig.device).with_dispatcher(|elevator| elevator.as_ref().unwrap().is_idle())
}

#[test]
fn a_fence_that_is_put_while_the_scheduler_picks_holds_the_pick() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    let asked = fence_around_lane_1(&rig);
    plug(&rig, 1);
    while_asked(asked, || pass(&rig, 1));
    assert_eq!(rig.flow().took, [0, 0], "it has passed the fence");
    assert!(rig.device.shared.fences.lift(0, Tag::first(3)));
    mq(&rig.device).lanes.nudge(1);
    rig.run();
    assert_eq!(rig.ended(1), 1);
}

#[test]
fn an_end_is_left_where_the_right_is_taken_meanwhile_and_is_heard_of() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    let (device, held) = (rig.device.clone(), Cell::new(None));
    plug(&rig, 1);
    pass_and(&rig, 1, || held.set(Some(hold(&device))));
    assert_eq!(rig.seats[1].borrow().ended, 1);
    drop(held.take().expect("the driver was asked again"));
    assert!(is_idle(&rig), "a device without a request whose scheduler counts one");
    rig.run();
}

#[test]
fn a_fence_that_is_put_meanwhile_ends_a_pick_that_may_not_wait_for_the_scheduler_too() {
    let rig = Rig::new(kyber, 2, 8, 64);
    let asked = fence_around_lane_1(&rig);
    let mut status = None;
    while_asked(asked, || {
        let Seat { lane, submitter, .. } = &mut *rig.seats[1].borrow_mut();
        let bio = Bio::read(1 << 24, Buf::zeroed(4096)).with(Flags::NOWAIT);
        submitter.submit(bio, rig.now).expect("room for a read");
        submitter.pass(lane.as_mut(), rig.now, || rig.now, |ended| status = Some(ended.status));
    });
    assert_eq!(status, Some(Status::Again));
    assert!(is_idle(&rig), "a device without a request whose scheduler counts one");
}

#[test]
fn a_lane_that_is_told_to_pause_in_a_lone_pass_sends_nothing_more() {
    let mut rig = Rig::new(deadline, 2, 8, 4);
    // All tags of the scheduler are out, so that one that may not wait is refused.
    shut(true);
    (0..4).for_each(|_| plug_and_pass(&rig, 1));
    shut(false);
    let acks = Acks::new(&Watch::new(&bell(), 0));
    acks.expect();
    let (device, told) = (rig.device.clone(), Arc::clone(&acks));
    let mut pause = Some(Control::Pause(told));
    let asked = move |_| {
        if let Some(pause) = pause.take() {
            mq(&device).post(1, pause);
        }
    };
    let mut statuses = Vec::new();
    while_asked(asked, || {
        let Seat { lane, submitter, .. } = &mut *rig.seats[1].borrow_mut();
        let bio = Bio::read(1 << 26, Buf::zeroed(4096)).with(Flags::NOWAIT);
        submitter.submit(bio, rig.now).expect("room for a read");
        submitter.pass(lane.as_mut(), rig.now, || rig.now, |ended| statuses.push(ended.status));
    });
    assert_eq!(statuses, [Status::Again]);
    assert!(acks.are_complete(), "it has not said that it pauses");
    assert_eq!(rig.flow().took, [0, 0], "it has said that it pauses, and sends");
    mq(&rig.device).post(1, Control::Resume);
    mq(&rig.device).lanes.kick(1, ELEVATOR);
    rig.run();
    assert_eq!(rig.ended(1), 4);
}

#[test]
fn a_lane_comes_back_for_what_it_was_refused() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    shut(true);
    plug_and_pass(&rig, 1);
    assert_eq!(rig.wake_at(1), Some(rig.now + super::ASK_AGAIN_NS));
    shut(false);
    rig.run_until(rig.now + super::ASK_AGAIN_NS);
    assert_eq!(rig.ended(1), 1);
}

/// How often a lane is picked for in a pass that brings nothing.
pub(super) fn picks_of_a_pass(rig: &Rig, lane: usize) -> usize {
    let picks = Rc::new(Cell::new(0));
    let counted = Rc::clone(&picks);
    while_asked(move |_| counted.set(counted.get() + 1), || pass(rig, lane));
    picks.get()
}

#[test]
fn a_lane_that_got_all_there_was_asks_no_more() {
    let mut rig = Rig::new(deadline, 2, 8, 64);
    rig.flow().stalled = 0b01;
    (0..8).for_each(|_| plug_and_pass(&rig, 0));
    shut(true);
    plug_and_pass(&rig, 0);
    shut(false);
    rig.flow().stalled = 0;
    assert!(picks_of_a_pass(&rig, 0) > 0, "eight have ended, and one waits");
    rig.flow().stalled = 0b01;
    assert_eq!(picks_of_a_pass(&rig, 0), 0, "there is nothing more");
    rig.flow().stalled = 0;
    rig.run();
    assert_eq!(rig.ended(0), 9);
}

#[test]
fn a_driver_that_has_something_is_asked_once() {
    let rig = Rig::new(deadline, 2, 8, 64);
    rig.flow().stalled = 0b01;
    plug_and_pass(&rig, 0);
    plug(&rig, 0);
    pass_and(&rig, 0, || panic!("its answers come in the next pass"));
    assert_eq!(rig.flow().took, [2, 0]);
    rig.flow().stalled = 0;
    pass(&rig, 0);
    assert_eq!(rig.seats[0].borrow().ended, 2);
}

#[test]
fn what_an_end_in_the_pass_makes_room_for_is_sent_in_it() {
    let mut rig = Rig::new(deadline, 2, 1, 64);
    shut(true);
    plug_and_pass(&rig, 0);
    shut(false);
    plug_and_pass(&rig, 0);
    assert_eq!((rig.flow().took[0], rig.staged()), (2, 0), "it waits for another pass");
    rig.run();
    assert_eq!(rig.ended(0), 2);
}

/// Has it opened and closed by the caller.
#[derive(Default)]
struct Asked(Mutex<Vec<(bool, usize, LaneAnswer)>>);

impl LaneHomes for Asked {
    fn open(&self, _: &Device, index: usize, answer: LaneAnswer) {
        self.0.lock().unwrap().push((true, index, answer));
    }

    fn close(&self, _: &Device, index: usize, answer: LaneAnswer) {
        self.0.lock().unwrap().push((false, index, answer));
    }
}

fn set_queues(rig: &Rig, queues: u16) {
    let asked = Arc::new(Asked::default());
    let homes: Arc<dyn LaneHomes> = Arc::clone(&asked) as _;
    rig.device.attach_homes(Arc::downgrade(&homes));
    let prepared = rig.device.prepare_lanes(queues).unwrap();
    let mut change = rig.device.begin_queues(&Watch::new(&bell(), 0), prepared);
    while change.poll(rig.now).is_waiting() {
        for (index, seat) in rig.seats.iter().enumerate() {
            if seat.borrow().lane.is_some() {
                rig.step(index);
            }
        }
        for (opens, index, answer) in std::mem::take(&mut *asked.0.lock().unwrap()) {
            let opened = opens.then(|| rig.device.open_lane(index, &rig.bells[index]).unwrap());
            rig.seats[index].borrow_mut().lane = opened;
            answer.give(Ok(()));
        }
    }
}

#[test]
fn a_lane_that_was_the_only_one_gets_a_line_with_a_lone_request() {
    let rig = Rig::new(deadline, 2, 8, 64);
    set_queues(&rig, 1);
    // Opened as the only one, it has no line.
    drop(rig.seats[0].borrow_mut().lane.take());
    rig.seats[0].borrow_mut().lane = Some(rig.device.open_lane(0, &rig.bells[0]).unwrap());
    (0..2).for_each(|_| rig.step(0));
    set_queues(&rig, 2);
    (0..2).for_each(|lane| rig.step(lane));
    rig.flow().stalled = 0b11;
    shut(true);
    plug_and_pass(&rig, 0);
    shut(false);
    plug_and_pass(&rig, 1);
    rig.step(0);
    assert_eq!(rig.flow().took, [1, 1], "each has its own");
    rig.flow().stalled = 0;
    (0..2).for_each(|lane| pass(&rig, lane));
    assert_eq!((rig.ended(0), rig.ended(1)), (1, 1));
}

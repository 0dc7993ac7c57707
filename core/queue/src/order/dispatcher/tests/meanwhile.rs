//! The short way of a lone request through the elevator, and what other lanes, fences and the
//! driver do in the middle of a pass, or have done a moment before.

use std::rc::Rc;
use std::sync::Arc;

use weir_bio::{Bio, Buf, Flags, Status};

use super::alone::{fence_around_lane_1, is_idle, pass, picks_of_a_pass, plug, plug_and_pass};
use super::rig::{
    self, FLUSH, Rig, Seat, bell, bfq, deadline, kyber, mq, shut, while_asked, while_reaped,
};
use super::{dismiss, leave_to_lane_0};
use crate::driver::Tag;
use crate::lanes::ELEVATOR;
use crate::mq::port::Control;
use crate::step::{Acks, Watch};

#[test]
fn what_a_lane_was_sent_is_received_in_a_pass_that_brings_nothing() {
    let mut rig = Rig::new(deadline, 2, 8, 64);
    shut(true);
    plug_and_pass(&rig, 1);
    shut(false);
    rig.step_told(0);
    assert_eq!(rig.flow().took, [0, 0], "it is on its way to lane 1");
    pass(&rig, 1);
    assert_eq!(rig.flow().took, [0, 1], "it lies there, and its home comes again and again");
    rig.run();
    assert_eq!(rig.ended(1), 1);
}

#[test]
fn what_a_lane_is_sent_while_its_driver_answers_is_not_overtaken() {
    let mut rig = Rig::new(deadline, 2, 8, 64);
    rig.flow().stalled = 0b10;
    shut(true);
    plug_and_pass(&rig, 1);
    let (device, seat, now) = (rig.device.clone(), Rc::clone(&rig.seats[0]), rig.now);
    let mut sent = false;
    let reaped = move |lane| {
        if lane == 1 && !std::mem::replace(&mut sent, true) {
            shut(false);
            mq(&device).lanes.kick(0, ELEVATOR);
            rig::step(&seat, now);
        }
    };
    plug(&rig, 1);
    while_reaped(reaped, || pass(&rig, 1));
    pass(&rig, 1);
    let sectors = rig.flow().sectors.clone();
    assert!(sectors.len() == 2 && sectors.is_sorted(), "lane 0 had sent it the first: {sectors:?}");
    rig.flow().stalled = 0;
    rig.run();
    assert_eq!(rig.ended(1), 2);
}

#[test]
fn what_is_given_back_in_the_pass_and_may_go_at_once_is_not_overtaken() {
    let mut rig = Rig::new(deadline, 2, 2, 64);
    shut(true);
    (0..2).for_each(|_| plug_and_pass(&rig, 0));
    shut(false);
    rig.flow().gives_back.push(16);
    plug_and_pass(&rig, 0);
    rig.run();
    assert_eq!(rig.flow().sectors, [0, 16, 16, 32]);
    assert_eq!(rig.ended(0), 3);
}

/// A read of lane 1's submitter that may not wait, at the first sector of that lane.
fn plug_impatient(rig: &Rig) {
    let Seat { submitter, sent, .. } = &mut *rig.seats[1].borrow_mut();
    let bio = Bio::read(1 << 24, Buf::zeroed(4096)).with(Flags::NOWAIT);
    submitter.submit(bio, rig.now).expect("room for a read");
    *sent += 1;
}

/// A pass of lane 1: the statuses of what ended.
fn statuses(rig: &Rig, later: impl FnOnce()) -> Vec<Status> {
    let mut statuses = Vec::new();
    let Seat { lane, submitter, .. } = &mut *rig.seats[1].borrow_mut();
    let later = || {
        later();
        rig.now
    };
    submitter.pass(lane.as_mut(), rig.now, later, |ended| statuses.push(ended.status));
    statuses
}

#[test]
fn an_end_at_a_fence_is_heard_of_before_its_submitter_is_told_where_the_driver_has_an_event() {
    let rig = Rig::new(kyber, 2, 8, 64);
    rig.flow().announces = true;
    drop(rig.seats[1].borrow_mut().lane.take());
    rig.seats[1].borrow_mut().lane = Some(rig.device.open_lane(1, &rig.bells[1]).unwrap());
    (0..2).for_each(|_| rig.step(1));
    plug_impatient(&rig);
    while_asked(fence_around_lane_1(&rig), || {
        let asked_again = || panic!("it says when it has something");
        assert_eq!(statuses(&rig, asked_again), [Status::Again]);
    });
    assert!(is_idle(&rig), "a device without a request whose scheduler counts one");
}

#[test]
fn what_a_lane_has_left_in_the_pass_makes_room_in_it() {
    let mut rig = Rig::new(deadline, 2, 16, 4);
    // Four have all tags of the scheduler, the first of them one that may not wait.
    shut(true);
    plug_impatient(&rig);
    pass(&rig, 1);
    (0..6).for_each(|_| plug_and_pass(&rig, 1));
    shut(false);
    plug(&rig, 1);
    let shared = Arc::clone(&rig.device.shared);
    while_asked(fence_around_lane_1(&rig), || {
        let lifts = move || assert!(shared.fences.lift(0, Tag::first(3)));
        let statuses = statuses(&rig, lifts);
        assert_eq!(statuses, [Status::Again, Status::Ok, Status::Ok, Status::Ok]);
    });
    assert_eq!(rig.flow().took, [0, 3 + 4], "four tags were free when it came again");
    rig.run();
    assert_eq!(rig.ended(1), 4);
}

#[test]
fn a_scheduler_is_told_no_time_before_the_one_another_lane_has_told_it() {
    let mut rig = Rig::new(deadline, 2, 8, 64);
    let now = rig.now;
    rig.now = now + 1_000;
    plug_and_pass(&rig, 0);
    rig.now = now;
    plug_and_pass(&rig, 1);
    assert_eq!((rig.ended(0), rig.ended(1)), (1, 1));
}

/// Lane 1's submitter has a flush under way, which gets no answer as long as `keeps` says so.
fn with_a_flush(rig: &Rig, keeps: fn(u64) -> bool) {
    rig.flow().keeps = Some(keeps);
    rig.seats[1].borrow_mut().submitter.submit(Bio::flush(), rig.now).expect("room for a flush");
    pass(rig, 1);
    assert_eq!(rig.flow().sectors.last(), Some(&FLUSH));
}

#[test]
fn a_lane_that_left_something_and_has_more_room_asks_although_it_brings_nothing() {
    let mut rig = Rig::new(deadline, 2, 512, 2048);
    rig.flow().stalled = 0b01;
    rig.read(0, 512);
    rig.run();
    with_a_flush(&rig, |_| true);
    shut(true);
    for _ in 0..2 {
        rig.read(1, 200);
        leave_to_lane_0(&rig);
        dismiss(&rig);
        rig.step(1);
    }
    shut(false);
    // Of 401 as many are sent as its line holds.
    rig.read(1, 1);
    leave_to_lane_0(&rig);
    dismiss(&rig);
    pass(&rig, 1);
    assert_eq!((rig.flow().took[1], rig.staged()), (1 + 256, 145));
    // Nothing of the scheduler's has ended.
    rig.flow().keeps = Some(|sector| sector != FLUSH);
    pass(&rig, 1);
    assert_eq!(rig.staged(), 0, "it has room, and nothing would tell it");
    rig.flow().keeps = None;
    rig.flow().stalled = 0;
    rig.run();
    assert_eq!((rig.ended(0), rig.ended(1)), (512, 402));
}

#[test]
fn a_lane_that_left_something_and_then_got_all_there_was_asks_no_more() {
    let mut rig = Rig::new(deadline, 2, 8, 64);
    with_a_flush(&rig, |sector| sector == FLUSH);
    rig.read(1, 1);
    leave_to_lane_0(&rig);
    dismiss(&rig);
    pass(&rig, 1);
    // Its end is brought, and there is nothing more.
    pass(&rig, 1);
    assert!(is_idle(&rig));
    rig.flow().keeps = None;
    assert_eq!(picks_of_a_pass(&rig, 1), 0, "the flush was none of the scheduler's");
    rig.run();
    assert_eq!(rig.ended(1), 2);
}

#[test]
fn a_paused_lane_takes_nothing_that_another_could_send() {
    let mut rig = Rig::new(deadline, 2, 8, 4);
    // All tags of the scheduler are out, so that one that may not wait is refused; to say so, the
    // lane takes its messages.
    shut(true);
    (0..4).for_each(|_| plug_and_pass(&rig, 1));
    let acks = Acks::new(&Watch::new(&bell(), 0));
    acks.expect();
    let (device, mut pause) = (rig.device.clone(), Some(Control::Pause(Arc::clone(&acks))));
    let posts = move |_| {
        if let Some(pause) = pause.take() {
            mq(&device).post(1, pause);
        }
    };
    plug_impatient(&rig);
    while_asked(posts, || assert_eq!(statuses(&rig, || {}), [Status::Again]));
    assert!(acks.are_complete(), "it has not said that it pauses");
    shut(false);
    plug_and_pass(&rig, 1);
    assert_eq!(rig.staged(), 5);
    rig.step_told(0);
    assert_eq!(rig.flow().took, [4, 0]);
    mq(&rig.device).post(1, Control::Resume);
    mq(&rig.device).lanes.kick(1, ELEVATOR);
    rig.run();
    assert_eq!(rig.ended(1), 5);
}

#[test]
fn a_lane_stands_in_for_one_in_need_beside_a_lone_request() {
    let mut rig = Rig::new(kyber, 2, 8, 64);
    shut(true);
    plug_and_pass(&rig, 0);
    shut(false);
    // As if its driver had been found silent since.
    let device = rig.device.clone();
    let lanes = &mq(&device).lanes;
    lanes[0].needs.set(1);
    lanes.in_need.next();
    plug_and_pass(&rig, 1);
    assert_eq!(rig.flow().took, [0, 2]);
    lanes[0].needs.set(0);
    lanes.in_need.down();
    rig.run();
    assert_eq!((rig.ended(0), rig.ended(1)), (1, 1));
}

#[test]
fn what_a_fence_has_held_back_is_not_overtaken_when_it_is_gone() {
    let mut rig = Rig::new(deadline, 2, 8, 64);
    plug(&rig, 1);
    while_asked(fence_around_lane_1(&rig), || pass(&rig, 1));
    assert_eq!(rig.flow().took, [0, 0], "it has passed the fence");
    // The lane is about to be told.
    assert!(rig.device.shared.fences.lift(0, Tag::first(3)));
    plug_and_pass(&rig, 1);
    assert_eq!(rig.flow().sectors, [1 << 24, (1 << 24) + 16]);
    rig.run();
    assert_eq!(rig.ended(1), 2);
}

#[test]
fn a_lone_request_waits_for_a_place_of_the_budget() {
    for make in [deadline, kyber, bfq] {
        let (mut rig, places) = Rig::with_places(make, 2, 0);
        plug_and_pass(&rig, 1);
        assert_eq!(rig.flow().took, [0, 0]);
        *places.free.lock().unwrap() = 1;
        mq(&rig.device).lanes.nudge(1);
        rig.run();
        assert_eq!((rig.flow().took.clone(), rig.ended(1)), (vec![0, 1], 1));
        assert_eq!(*places.free.lock().unwrap(), 1);
    }
}

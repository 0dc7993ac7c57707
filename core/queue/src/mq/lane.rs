//! A lane of the multi-queue path at work: it takes what its submitters hand over, goes to the
//! elevator if there is one, and turns its hard queue.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_bio::{Nanos, Status};

use super::Mq;
use super::port::{Control, LaneState, Ways};
use crate::config::Spread;
use crate::driver::Waiter;
use crate::event::{Silent, Sink};
use crate::hard::fence::Fences;
use crate::hard::reply::Replies;
use crate::hard::settle::Onward;
use crate::hard::{HardQueue, Source};
use crate::lanes::{ELEVATOR, TAKES_NONE};
use crate::order::arrivals::Arrivals;
use crate::order::link::Link;
use crate::request::RequestClaim;
use crate::snapshot::{Current, Snapshot};
use crate::wbt::Wbt;

mod ask;
mod lone;
mod need;
mod scheduled;

pub(crate) use lone::Feed;

/// How long a lane counts on the one that stands: what it takes to sleep and be woken.
const PATIENCE_NS: u64 = 20_000;

/// The parts of its device that a lane reaches.
#[derive(Clone, Copy)]
pub(crate) struct Reach<'a> {
    pub(crate) mq: &'a Mq,
    pub(crate) current: &'a Current,
    pub(crate) wbt: &'a Wbt,
    pub(crate) fences: &'a Fences,
    /// The lane's own number.
    pub(crate) index: usize,
}

/// A hard queue of the multi-queue path.
pub(crate) struct Multi {
    hard: HardQueue,
    ways: Ways,
    snapshot: Arc<Snapshot>,
    ask_elevator: bool,
    elevator_wake: Option<Nanos>,
    /// A time has come that it was told, and it has not been at the elevator since.
    due: bool,
    link: Link,
    arrivals: Arrivals,
    refused: Vec<RequestClaim>,
    /// Since when something of it is left for others to take over.
    left_at: Option<Nanos>,
    /// It could not take all there may be, or does not know.
    again: bool,
    paused: u32,
    /// The driver keeps every tag, answers nothing or refuses everything for long.
    needs: bool,
    /// A lane that is well is to be told of what the scheduler has staged for this one.
    tells: bool,
    /// Nothing is sent from here for long, and no other lane could: all requests come here, so that
    /// each ends in its time.
    hoards: bool,
}

/// With a scheduler nothing comes to the driver past it. The short way of a lone request has a copy
/// of its own of what takes this, so that the copy of a turn stays a part of its loop.
struct Nothing<const LONE: bool = false>;

impl<const LONE: bool> Source for Nothing<LONE> {
    const GIVES_ALL: bool = true;

    fn holds(&self, _: usize) -> usize {
        0
    }

    fn give(&mut self, _: bool, _: usize, _: &mut impl FnMut(RequestClaim)) -> usize {
        0
    }
}

/// Ends what would have had to wait for a scheduler's tag, and may not.
#[cold]
fn refuse(
    refused: &mut Vec<RequestClaim>,
    replies: &mut Replies,
    lane: u16,
    now: Nanos,
    sink: impl Sink,
) {
    for mut claim in refused.drain(..) {
        (claim.status, claim.refused) = (Status::Again, true);
        (claim.issued_at, claim.done_at) = (claim.accepted_at, claim.accepted_at);
        replies.push(claim, lane, now, sink);
    }
}

impl Multi {
    /// A lane that is being opened.
    pub(crate) fn open(reach: Reach<'_>, hard: HardQueue, state: &mut LaneState) -> Multi {
        let Reach { mq, index, .. } = reach;
        let snapshot = reach.current.get();
        let marks = &mq.lanes[index];
        // The credit there is that of the lane's time before it was closed.
        marks.credit.set(TAKES_NONE);
        if snapshot.scheduled {
            // Something may have been staged for it while it was closed.
            marks.pending.mark(ELEVATOR);
        }
        let mut multi = Multi {
            hard,
            ways: state.kept.take().unwrap_or_default(),
            snapshot,
            ask_elevator: false,
            elevator_wake: None,
            due: false,
            link: Link::default(),
            arrivals: Arrivals::default(),
            refused: Vec::new(),
            left_at: None,
            again: false,
            paused: state.quiesced,
            needs: false,
            tells: false,
            hoards: false,
        };
        multi.follow(reach);
        multi
    }

    /// The lane closes. Requests that are picked for it, or were sent to it, go to others.
    pub(crate) fn close(mut self, reach: Reach<'_>) {
        let Reach { mq, index, .. } = reach;
        let mut state = mq.ports[index].state();
        // A caller that waits for an acknowledgement gets it, and submitters that came or left are
        // noted for the next opening of the lane.
        let left = self.take_last_control(reach);
        self.leave_need(reach);
        let Onward { settled, taken } = self.hard.settle_all();
        let queues = self.snapshot.queues;
        state.open = false;
        let Multi { link, mut ways, mut refused, .. } = self;
        // A panic elsewhere may have poisoned it, and this may be what unwinds.
        let heirs = mq.dispatcher.take_whole().map_or(0, |mut changing| {
            mq.dispatcher.retire(index, &mut changing);
            let heirs = changing.close(index as u16, link, &mut refused);
            mq.let_go(changing);
            heirs
        });
        let lane = index as u16;
        refuse(&mut refused, &mut ways.replies, lane, Nanos::ZERO, Silent);
        // The locks of lanes are taken in ascending order.
        let ahead = settled.into_iter().filter_map(|hold| mq.settle(hold, index + 1, queues));
        ahead.for_each(|hold| ways.replies.push(hold, lane, Nanos::ZERO, Silent));
        if let Some(ends) = ways.replies.take_throttled() {
            reach.wbt.end(ends, Nanos::ZERO, || mq.touched());
        }
        ways.replies.post(lane, Nanos::ZERO, Silent);
        state.kept = Some(ways);
        // The driver goes outside the lock.
        drop(state);
        taken.into_iter().for_each(|hold| mq.begin_to_settle(hold, queues));
        if !left.is_empty() {
            mq.send(left, index, queues);
        }
        mq.lanes.kick_each(heirs, |_, _| {});
    }

    pub(crate) fn hard(&self) -> &HardQueue {
        &self.hard
    }

    pub(crate) fn waiter(&mut self, beside: BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        self.hard.waiter(beside)
    }

    pub(crate) fn may_block(&mut self) -> bool {
        self.hard.may_block()
    }

    /// Whether something was published for it since its last turn.
    pub(crate) fn has_work(&self, reach: Reach<'_>) -> bool {
        let marks = &reach.mq.lanes[reach.index];
        self.is_waited_for(reach)
            || marks.pending.any()
            || marks.feeders.any()
            || self.ways.soft.has_news()
            || reach.mq.ports[reach.index].control.is_waiting()
    }

    /// Whether no request is with the driver or waits for it.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.hard.len() == 0 && self.ways.soft.is_empty() && !self.link.is_waiting()
    }
}

impl Multi {
    #[inline]
    pub(crate) fn run(&mut self, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        let Reach { mq, index, .. } = reach;
        if mq.ports[index].control.is_waiting() {
            self.take_control(reach, now, sink);
        }
        if mq.lanes.in_need.read() != 0 {
            self.hard.stand_beside();
        }
        // Before the driver is asked: one that has its lane turned meanwhile is asked once more.
        mq.lanes[index].pending.take(|source| self.ask_elevator |= source == ELEVATOR);
        if self.hard.is_busy() {
            // What they tell of comes from other CPUs, while this one deals with what has ended.
            self.ways.soft.fetch_rings();
        }
        if self.snapshot.throttled {
            self.hard.observe(reach.wbt.window());
        }
        self.hard.reap(now, sink);
        while self.hard.end_one(now, &mut self.ways.replies, sink) {}
        self.look_at_rings(reach);
        self.hard.scan(now, self.paused > 0, &mut self.ways.replies, sink);
        self.refresh(reach);
        if self.needs || self.hard.is_in_need(now) {
            self.see_to_need(reach, now, sink);
        }
        if self.snapshot.scheduled {
            self.gather(reach, now, sink);
        }
        if self.snapshot.scheduled {
            self.visit_elevator(reach, now, sink);
            if self.needs && std::mem::take(&mut self.tells) {
                self.tell_heirs(reach);
            }
            if self.paused == 0 {
                self.hard.issue(now, &mut self.ways.replies, &mut Nothing::<false>, sink);
                if !self.hard.ended.is_empty() {
                    self.leave_ends(reach, now, sink);
                }
            }
        } else if self.paused == 0 {
            let short = self.hard.issue(now, &mut self.ways.replies, &mut self.ways.soft, sink);
            if short {
                self.stage(reach, now, sink);
            }
        }
        if let Some(ends) = self.ways.replies.take_throttled() {
            // Before their submitters hear of it: a frozen device has none under way.
            reach.wbt.end(ends, now, || mq.touched());
        }
        self.ways.replies.post(index as u16, now, sink);
        if self.snapshot.throttled {
            self.hard.note_pass(now);
        }
        self.hard.end_pass();
        self.tell_of_fences(reach);
    }

    /// Looks which submitters have handed something over; while the lane is busy, it asks for the
    /// requests before it comes to them.
    #[inline]
    fn look_at_rings(&mut self, reach: Reach<'_>) {
        let (soft, feeders) = (&mut self.ways.soft, &reach.mq.lanes[reach.index].feeders);
        feeders.take(|submitter| {
            if !soft.list(submitter) {
                feeders.strike(submitter);
            }
        });
        soft.look(|submitter| feeders.strike(submitter));
        if self.hard.is_busy() {
            soft.fetch();
        }
    }

    /// Tags or the driver ran short: what waits is merged where it can be, and taken in turn.
    #[inline(never)]
    fn stage(&mut self, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        // A ring may hold what was submitted since this turn began, under newer limits.
        self.refresh(reach);
        let spread = reach.mq.spread;
        let nomerges = if spread == Spread::RoundRobin { 2 } else { self.snapshot.nomerges };
        if self.ways.soft.stage(&self.snapshot.limits, nomerges, reach.index as u16, now, sink) {
            self.hard.count_shortage();
            self.hard.keeps_waiting(reach.mq.lanes.in_need.read() != 0, now);
        }
    }

    #[inline]
    fn refresh(&mut self, reach: Reach<'_>) {
        if self.snapshot.version != reach.current.version() {
            self.snapshot = reach.current.get();
            self.follow(reach);
        }
    }

    #[cold]
    fn follow(&mut self, reach: Reach<'_>) {
        self.hard.follow(&self.snapshot);
        if self.snapshot.queues > 1 && !self.link.is_open() {
            // It opens, or was the only lane.
            self.link = reach.mq.with_right(|dispatcher| dispatcher.open(reach.index));
        }
        if self.snapshot.scheduled {
            self.hard.bound_tags(u16::MAX);
            // A pass under an older snapshot may have been this scheduler's already, and the time
            // it named forgotten.
            self.ask_elevator = true;
        } else {
            // Without a scheduler what the queue holds is what has a tag of the driver.
            self.hard.bound_tags(self.snapshot.nr_requests);
            self.forget_elevator();
        }
    }

    /// There is nothing to ask for, and nothing to come back for.
    fn forget_elevator(&mut self) {
        (self.ask_elevator, self.again, self.due) = (false, false, false);
        (self.elevator_wake, self.left_at) = (None, None);
    }

    /// Takes what its submitters have handed over: to the elevator, or past it what is for the
    /// flush machine.
    fn gather(&mut self, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        let Multi { hard, ways: Ways { soft, replies }, arrivals, .. } = self;
        soft.give(false, usize::MAX, &mut |claim| {
            if claim.flush_step.is_sequenced() {
                hard.take_in(claim, now, replies, sink);
            } else {
                arrivals.collect(claim);
            }
        });
        arrivals.look();
        if self.arrivals.is_empty() {
            return;
        }
        // Some may have been handed over since this turn began. With them inside, there is no
        // switch until they have ended.
        self.refresh(reach);
        if !self.snapshot.scheduled {
            let Multi { hard, ways, arrivals, .. } = self;
            arrivals.claims().for_each(|claim| hard.take_in(claim, now, &mut ways.replies, sink));
        }
    }

    #[inline(never)]
    fn visit_elevator(&mut self, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        let (mq, index) = (reach.mq, reach.index);
        if index >= usize::from(self.snapshot.queues) {
            // Its home drops it when it comes to it; the scheduler does not know it any more.
            return self.forget_elevator();
        }
        if self.left_at.is_some() && !mq.dispatcher.has_asked(index) {
            self.left_at = None;
        }
        self.due |= self.paused == 0 && self.elevator_wake.is_some_and(|at| at <= now);
        let waited = self.left_at.is_some_and(|at| now >= at + PATIENCE_NS);
        let has = !self.arrivals.is_empty() || !self.hard.ended.is_empty();
        if has || self.ask_elevator || self.due || waited || mq.dispatcher.is_awaited(index) {
            self.ask(reach, now, sink);
        } else if self.again && self.paused == 0 {
            // It may have room again although nothing of the scheduler's has ended.
            let said = mq.lanes[index].credit.read();
            if said == TAKES_NONE || self.credit() > said || self.hard.is_budgeted() {
                self.ask(reach, now, sink);
            }
        }
        self.receive(now, sink);
    }

    /// Whether something was sent to this lane, or others count on it.
    fn is_waited_for(&self, reach: Reach<'_>) -> bool {
        self.link.is_waiting() || reach.mq.dispatcher.is_awaited(reach.index)
    }

    /// Receives what was picked for this lane by others.
    #[inline]
    fn receive(&mut self, now: Nanos, sink: impl Sink) {
        let Multi { hard, ways, link, .. } = self;
        link.receive(|claim| hard.take_in(claim, now, &mut ways.replies, sink));
    }

    #[cold]
    fn take_control(&mut self, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        while let Some(message) = reach.mq.ports[reach.index].control.take() {
            self.obey(message, reach, now, sink);
        }
    }

    /// The same for a lane that closes. Requests that were sent to it are left over.
    fn take_last_control(&mut self, reach: Reach<'_>) -> Vec<RequestClaim> {
        let mut left = Vec::new();
        while let Some(message) = reach.mq.ports[reach.index].control.take() {
            match message {
                Control::Take(claims) | Control::Send(claims) => left.extend(claims),
                message => self.obey(message, reach, Nanos::ZERO, Silent),
            }
        }
        left
    }

    #[cold]
    fn obey(&mut self, message: Control, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        match message {
            Control::Introduce(introduction) => self.ways.hear(introduction),
            Control::Pause(acks) => {
                self.paused += 1;
                self.say_credit(reach);
                acks.acknowledge();
            }
            Control::Resume => self.paused = self.paused.saturating_sub(1),
            Control::Take(claims) => self.take_over(claims, now, sink),
            Control::Settle(hold) => self.hard.settle(hold),
            Control::Send(claims) => claims.into_iter().for_each(|claim| {
                self.hard.take_in(claim, now, &mut self.ways.replies, sink);
            }),
        }
    }

    pub(crate) fn wake_at(&self, now: Nanos) -> Option<Nanos> {
        let paused = self.paused > 0;
        let hard = self.hard.wake_at(now, paused);
        if !self.snapshot.scheduled {
            // It has been forgotten what a scheduler had said.
            return hard;
        }
        let elevator = self.elevator_wake.filter(|_| !paused);
        let left = self.left_at.map(|at| at + PATIENCE_NS);
        Nanos::first_of(Nanos::first_of(hard, elevator), left)
    }
}

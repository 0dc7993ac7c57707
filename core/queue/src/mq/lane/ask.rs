//! How a lane comes to the elevator: as a member of the [combiner](weir_ring::combiner) that the
//! dispatcher stands behind (`order/dispatcher.rs`).

use std::sync::Arc;

use weir_bio::Nanos;
use weir_ring::{Asked, Asking, Work};

use super::{Multi, PATIENCE_NS, Reach, refuse};
use crate::event::{Place, Sink, What, lane_tells};
use crate::lanes::{ELEVATOR, TAKES_NONE};
use crate::order::dispatcher::{Dispatcher, Outcome, Turn};
use crate::request::ALL;

/// One visit of a lane to the elevator: what it brings, and the time.
struct Visit<'a, S> {
    lane: &'a mut Multi,
    reach: Reach<'a>,
    now: Nanos,
    outcome: Outcome,
    sink: S,
}

impl<S: Sink> Visit<'_, S> {
    #[inline(always)]
    fn tell(&self, what: What) {
        lane_tells(self.sink, self.reach.index as u16, self.now, || what);
    }
}

impl<S: Sink> Work<Dispatcher> for Visit<'_, S> {
    #[inline]
    fn leave(&mut self) -> bool {
        let left = self.lane.leave(self.reach, self.now);
        if left {
            self.tell(What::Delegated);
        }
        left
    }

    #[inline]
    fn combine(&mut self, dispatcher: &mut Dispatcher, asking: &mut Asking<'_>) {
        self.tell(What::RightTaken);
        self.outcome = self.lane.serve(dispatcher, asking, self.reach, self.now, self.sink);
    }

    #[inline]
    fn combined(&mut self) {
        self.tell(What::RightLetGo);
        let outcome = std::mem::take(&mut self.outcome);
        self.lane.follow_up(self.reach, outcome, self.now, self.sink);
    }
}

/// A lane has rung for another, or for itself.
#[inline(always)]
fn rung(sink: impl Sink, (lane, now): (usize, Nanos), to: usize, woke: bool) {
    let to = Place::Lane(to as u16);
    lane_tells(sink, lane as u16, now, || What::Doorbell { to, woke });
}

impl Multi {
    /// The lane to which this one leaves what it has, the right being free or not: the one that
    /// stands, unless that does not come round, or would have to be woken: that takes longer than
    /// to carry the scheduler's state here.
    fn standing(&self, reach: Reach<'_>, now: Nanos) -> Option<usize> {
        let Reach { mq, index, .. } = reach;
        let other = mq.dispatcher.standing()?;
        let waits = self.left_at.is_none_or(|at| now < at + PATIENCE_NS);
        let (bell, own) = (mq.lanes.get(other)?.bell.get()?, mq.lanes[index].bell.get()?);
        // To one on its own thread it need not hand anything over.
        let (bell, own) = (&bell.bell, &own.bell);
        let counts = waits && !Arc::ptr_eq(bell, own) && !bell.doorbell().is_asleep();
        counts.then_some(other)
    }

    /// How many requests it can have been sent before the driver has no place.
    pub(super) fn credit(&self) -> u64 {
        self.link.credit(self.hard.tags().free(), self.hard.waiting())
    }

    /// Requests it takes from the scheduler.
    #[inline]
    fn room(&self) -> usize {
        match self.needs {
            false => self.hard.room(),
            true if self.hoards => ALL,
            true => self.hard.room().min(self.hard.probes()),
        }
    }

    /// Says how much it can be sent; none while it is paused or in need.
    #[inline]
    pub(super) fn say_credit(&self, reach: Reach<'_>) {
        let takes = self.paused == 0 && !self.needs;
        let credit = if takes { self.credit() } else { TAKES_NONE };
        reach.mq.lanes[reach.index].credit.set(credit);
    }

    /// Leaves what it has for a combiner, if there is room for it.
    fn leave(&mut self, reach: Reach<'_>, now: Nanos) -> bool {
        let timed = self.snapshot.timed;
        if !self.link.leave(&mut self.arrivals, &mut self.hard.ended, timed) {
            return false;
        }
        self.say_credit(reach);
        // The combiner that serves this lane sees to the scheduler's time, but does not know that
        // it has come.
        self.elevator_wake = self.due.then_some(now + PATIENCE_NS);
        (self.ask_elevator, self.again) = (false, true);
        let since = self.left_at.filter(|at| now < *at + PATIENCE_NS);
        self.left_at = since.or(Some(now));
        true
    }

    /// Requests have ended since it was at the elevator: refused by the driver, or at a fence. What
    /// they had of the scheduler's is left before their submitters hear of it, or else a device
    /// with no request is changed while the scheduler still counts them.
    #[cold]
    pub(super) fn leave_ends(&mut self, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        self.link.leave_ends(&mut self.hard.ended, self.snapshot.timed);
        if !self.hard.ended.is_empty() {
            // The only lane of a device leaves nothing to others.
            self.ask(reach, now, sink);
        }
        // A lane that waits for it is served in the next turn.
        self.ask_elevator = true;
        reach.mq.lanes.nudge(reach.index);
    }

    /// Goes to the elevator, or leaves what it has for the lane that is there.
    pub(super) fn ask(&mut self, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        let Reach { mq, index, .. } = reach;
        // The one that stands would not know that a time has come.
        let to = if self.due { None } else { self.standing(reach, now) };
        let mut visit = Visit { lane: self, reach, now, outcome: Outcome::default(), sink };
        match mq.dispatcher.ask(index, to, &mut visit) {
            Asked::Done => {}
            // Marked: its home sees it before it sleeps, or is woken.
            Asked::Delegated(to) => {
                let woke = mq.lanes[to].ring_ordered();
                rung(sink, (index, now), to, woke);
            }
            Asked::Again => {
                let woke = mq.lanes.kick(index, ELEVATOR);
                rung(sink, (index, now), index, woke);
            }
        }
    }

    /// One turn at the elevator, for this lane and for those that ask.
    #[inline]
    fn serve(
        &mut self,
        dispatcher: &mut Dispatcher,
        asking: &mut Asking<'_>,
        reach: Reach<'_>,
        now: Nanos,
        sink: impl Sink,
    ) -> Outcome {
        // This lane holds the right, so no other lane sends to it now.
        self.receive(now, sink);
        if self.left_at.take().is_some_and(|at| now >= at + PATIENCE_NS) {
            // The one that stands does not come round.
            asking.dismiss();
        }
        let room = (self.paused == 0).then(|| self.room());
        let excess = self.hard.waiting().saturating_sub(self.hard.tags().free());
        let mut turn = Turn {
            lane: reach.index as u16,
            arrivals: &mut self.arrivals,
            ended: &mut self.hard.ended,
            room,
            excess,
            due: std::mem::take(&mut self.due),
            now,
            dispatch: &mut self.hard.dispatch,
            refused: &mut self.refused,
        };
        let outcome = dispatcher.serve(&reach.mq.lanes, asking, &mut turn, sink);
        self.say_credit(reach);
        outcome
    }

    /// Acts on the outcome of a turn at the elevator.
    pub(super) fn follow_up(
        &mut self,
        reach: Reach<'_>,
        outcome: Outcome,
        now: Nanos,
        sink: impl Sink,
    ) {
        let lanes = &reach.mq.lanes;
        (self.ask_elevator, self.again) = (outcome.again, false);
        // Requests staged for a lane in need are picked by other lanes, also those that the
        // scheduler withheld before.
        self.tells |= outcome.again;
        if outcome.again {
            self.hard.keeps_waiting(lanes.in_need.read() != 0, now);
        } else if outcome.withheld {
            self.hard.is_withheld_from(now);
        }
        if self.paused == 0 {
            self.elevator_wake = outcome.wake_at;
        }
        if outcome.short {
            self.hard.want_places();
        }
        // Without the right: the lanes that are kicked will want it. Letting go of it
        // has ordered what was sent.
        let by = (reach.index, now);
        lanes.kick_each(outcome.kicked, |lane, woke| rung(sink, by, lane, woke));
        lanes.ring_each_ordered(outcome.sent, |lane, woke| rung(sink, by, lane, woke));
        if !self.refused.is_empty() {
            // They may be of submitters that have come since this turn began.
            self.take_control(reach, now, sink);
            let lane = reach.index as u16;
            refuse(&mut self.refused, &mut self.ways.replies, lane, now, sink);
        }
    }
}

//! How a lane comes to the elevator: it takes the right and serves, or leaves what it has to the
//! lane that has the right (`order/dispatcher.rs`).

use std::sync::Arc;

use weir_bio::Nanos;
use weir_ring::Right;

use super::{Multi, PATIENCE_NS, Reach, refuse};
use crate::lanes::{ELEVATOR, NO_HOST, TAKES_NONE};
use crate::order::dispatcher::{Outcome, Turn};
use crate::request::ALL;

impl Multi {
    /// The lane to which this one leaves what it has, the right being free or not: the host,
    /// unless that does not come round, or would have to be woken: that takes longer than to carry
    /// the scheduler's state here.
    fn host(&self, reach: Reach<'_>, now: Nanos) -> Option<usize> {
        let lanes = &reach.mq.lanes;
        let host = usize::try_from(lanes.host.read()).ok()?;
        let waits = self.left_at.is_none_or(|at| now < at + PATIENCE_NS);
        let (bell, own) = (lanes.get(host)?.bell.get()?, lanes[reach.index].bell.get()?);
        // With a host on its own thread it need not hand anything over.
        let (bell, own) = (&bell.bell, &own.bell);
        let counts = waits && !Arc::ptr_eq(bell, own) && !bell.doorbell().is_asleep();
        counts.then_some(host)
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

    /// Leaves what it has to whoever is at the elevator, if there is room for it.
    fn leave(&mut self, reach: Reach<'_>, now: Nanos) -> bool {
        let timed = self.snapshot.timed;
        if !self.link.leave(&mut self.arrivals, &mut self.hard.ended, timed) {
            return false;
        }
        self.say_credit(reach);
        // Whoever serves it sees to the scheduler's time, but does not know that it has come.
        self.elevator_wake = self.due.then_some(now + PATIENCE_NS);
        (self.ask_elevator, self.again) = (false, true);
        let since = self.left_at.filter(|at| now < *at + PATIENCE_NS);
        self.left_at = since.or(Some(now));
        reach.mq.lanes.asks.mark(reach.index);
        true
    }

    /// Goes to the elevator, or leaves what it has to whoever is there.
    pub(super) fn ask(&mut self, reach: Reach<'_>, now: Nanos) {
        let Reach { mq, index, .. } = reach;
        // The host would not know that a time has come.
        if !self.due
            && let Some(host) = self.host(reach, now)
            && self.leave(reach, now)
        {
            // Marked: its home sees it before it sleeps, or is woken.
            mq.lanes[host].ring_fenced();
            return;
        }
        let mut next = mq.dispatcher.try_take();
        if next.is_none() {
            next = match self.leave(reach, now) {
                true => mq.dispatcher.try_take(),
                false => Some(mq.dispatcher.take()),
            };
        }
        let mut turns = 0;
        while let Some(mut held) = next {
            turns += 1;
            // Nobody else sends anything now.
            self.receive(now);
            if !self.link.is_open() && self.snapshot.queues > 1 {
                // It was the only lane.
                self.link = held.open(index);
            }
            if self.left_at.take().is_some_and(|at| now >= at + PATIENCE_NS) {
                // The host does not come round.
                mq.lanes.host.set(NO_HOST);
            }
            let room = (self.paused == 0).then(|| self.room());
            let excess = self.hard.waiting().saturating_sub(self.hard.tags().free());
            let mut turn = Turn {
                lane: index as u16,
                arrivals: &mut self.arrivals,
                ended: &mut self.hard.ended,
                room,
                excess,
                due: std::mem::take(&mut self.due),
                now,
                dispatch: &mut self.hard.dispatch,
                refused: &mut self.refused,
            };
            let outcome = held.serve(&mq.lanes, &mut turn);
            self.say_credit(reach);
            Right::let_go(held);
            let more = outcome.more || turns > 1;
            self.follow_up(reach, outcome, now);
            // Who was turned away meanwhile counts on this lane; if it has been here for long, it
            // comes back for them.
            next = None;
            if mq.lanes.asks.any() {
                match more {
                    true => mq.lanes.kick(index, ELEVATOR),
                    false => next = mq.dispatcher.try_take(),
                }
            }
        }
    }

    /// What a turn at the elevator came to.
    fn follow_up(&mut self, reach: Reach<'_>, outcome: Outcome, now: Nanos) {
        let lanes = &reach.mq.lanes;
        (self.ask_elevator, self.again) = (outcome.again, false);
        // What is staged for a lane in need is for others to pick, also when the scheduler withheld
        // it before.
        self.tells |= outcome.again;
        if outcome.again {
            self.hard.keeps_waiting(lanes.in_need.read() != 0, now);
        }
        if self.paused == 0 {
            self.elevator_wake = outcome.wake_at;
        }
        // Without the right: whoever is told will want it. To let go of it was the fence.
        lanes.kick_each(outcome.kicked);
        lanes.ring_each_fenced(outcome.sent);
        if !self.refused.is_empty() {
            // They may be of submitters that have come since this turn began.
            self.take_control(reach, now);
            refuse(&mut self.refused, &mut self.ways.replies);
        }
    }
}

//! A lane in need: its driver keeps every tag, answers nothing or refuses everything, for as long
//! as a request may take.
//!
//! It keeps nothing: what its submitters hand over, and what was picked for it, goes to a lane that
//! is well; what a scheduler has staged for it is picked by the lanes that are well
//! (`order/dispatcher.rs`). One request at a time stays and shows when the driver is back. Without
//! a lane that is well it hoards: all requests come to its dispatch list, where each ends in its
//! time, because a request that stays with its submitter or its scheduler is watched by no clock.

use weir_bio::Nanos;

use super::{Control, Multi, Reach};
use crate::event::{Silent, Sink};
use crate::hard::settle::Onward;
use crate::lanes::ELEVATOR;
use crate::request::RequestClaim;

impl Multi {
    /// The lane is in need, or was until a moment ago.
    #[cold]
    pub(super) fn see_to_need(&mut self, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        let lanes = &reach.mq.lanes;
        let needs = self.hard.is_in_need(now);
        if needs != self.needs {
            self.needs = needs;
            lanes[reach.index].needs.set(u64::from(needs));
            if needs {
                lanes.in_need.next()
            } else {
                lanes.in_need.down()
            };
            self.say_credit(reach);
            self.ask_elevator = self.snapshot.scheduled;
            self.tells = true;
            // The hoards of others are to be handed over if this one is well, and are all there is
            // if it is not. What waits with the others for tags is watched from now on.
            reach.nudge_others();
        }
        self.hoards = needs;
        if needs && self.paused == 0 && reach.well().is_some() {
            self.hoards = false;
            self.pass_on(reach, now, sink);
        }
        self.ask_elevator |= self.hoards && self.snapshot.scheduled;
    }

    /// Hands what would wait here to a lane that is well. Requests for the scheduler go to the
    /// scheduler.
    fn pass_on(&mut self, reach: Reach<'_>, now: Nanos, sink: impl Sink) {
        self.receive(now, sink);
        let (mut own, mut rest) = (Vec::new(), Vec::new());
        let (scheduled, arrivals) = (self.snapshot.scheduled, &mut self.arrivals);
        self.ways.soft.take_all(&mut |claim| match claim.flush_step.is_sequenced() {
            true => rest.push(claim),
            false if scheduled => arrivals.collect(claim),
            false => own.push(claim),
        });
        arrivals.look();
        self.tells |= !arrivals.is_empty();
        own.into_iter()
            .for_each(|claim| self.hard.take_in(claim, now, &mut self.ways.replies, sink));
        self.hard.end_overdue(now, &mut self.ways.replies, sink);
        self.hard.hand_over(now, &mut rest);
        if let Some(rest) = reach.hand_on(rest) {
            // The last lane that was well closes just now, or is in need as well.
            self.take_over(rest, now, sink);
            self.hoards = true;
        }
    }

    /// Makes the lanes that are well pick what the scheduler has staged for this one: all of them,
    /// because one of them may be about to fall silent, and would be found out only then.
    #[cold]
    pub(super) fn tell_heirs(&mut self, reach: Reach<'_>) {
        reach.each_well().for_each(|heir| _ = reach.mq.lanes.kick(heir, ELEVATOR));
    }

    /// Takes requests of another lane.
    #[cold]
    pub(super) fn take_over(&mut self, claims: Vec<RequestClaim>, now: Nanos, sink: impl Sink) {
        self.hard.take_from_others(claims, now, &mut self.ways.replies, sink);
    }

    /// Lanes that wait for fences of this one look again when some were lifted, and this one goes
    /// to the scheduler with what requests refused at a fence had of it.
    #[inline]
    pub(super) fn tell_of_fences(&mut self, reach: Reach<'_>) {
        if self.hard.take_lifted() {
            reach.fences.tell(|lane| reach.mq.lanes.nudge(lane));
        }
        if self.hard.take_refused() {
            reach.mq.lanes.nudge(reach.index);
        }
        if let Some(onward) = self.hard.take_onward() {
            self.send_on(reach, onward);
        }
    }

    /// Sends holds on: to the next lane, or from the last one to their owners.
    #[cold]
    fn send_on(&mut self, reach: Reach<'_>, onward: Onward) {
        let (mq, queues, lane) = (reach.mq, reach.current.get().queues, reach.index as u16);
        for hold in onward.settled {
            if let Some(hold) = mq.settle(hold, reach.index + 1, queues) {
                // A hold is no request: no sink hears of it.
                self.ways.replies.push(hold, lane, Nanos::ZERO, Silent);
            }
        }
        self.ways.replies.post(lane, Nanos::ZERO, Silent);
        onward.taken.into_iter().for_each(|hold| mq.begin_to_settle(hold, queues));
    }

    /// The lane closes: it is not among those in need any more.
    pub(super) fn leave_need(&mut self, reach: Reach<'_>) {
        if std::mem::take(&mut self.needs) {
            let lanes = &reach.mq.lanes;
            lanes[reach.index].needs.set(0);
            lanes.in_need.down();
        }
    }
}

impl<'a> Reach<'a> {
    /// The lanes other than this one whose drivers answer.
    fn each_well(self) -> impl Iterator<Item = usize> + use<'a> {
        let is_well = move |lane: &usize| *lane != self.index && !self.mq.lanes[*lane].is_in_need();
        let lanes = (0..usize::from(self.current.get().queues)).filter(is_well);
        lanes.filter(move |lane| self.mq.ports[*lane].state().open)
    }

    /// The first of them.
    fn well(self) -> Option<usize> {
        self.each_well().next()
    }

    /// Gives requests to a lane that is well; gives them back if there is none.
    fn hand_on(self, claims: Vec<RequestClaim>) -> Option<Vec<RequestClaim>> {
        if claims.is_empty() {
            return None;
        }
        let Some(heir) = self.well() else { return Some(claims) };
        // Under the lock: a lane that closes takes its messages first.
        let state = self.mq.ports[heir].state();
        if !state.open {
            return Some(claims);
        }
        self.mq.post(heir, Control::Take(claims));
        None
    }

    /// Makes every lane but this one take a turn.
    fn nudge_others(self) {
        let lanes = 0..usize::from(self.current.get().queues);
        let others = lanes.filter(|lane| *lane != self.index);
        others.for_each(|lane| self.mq.lanes.nudge(lane));
    }
}

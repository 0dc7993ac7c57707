//! The short way of a lone request through the scheduler. The lane goes to the elevator as it would
//! in a turn, with the same questions at the same times, where it is the only one there: the right
//! is free, no other lane asks, none stands, and nothing was sent or left that comes first.

use weir_bio::Nanos;
use weir_ring::Changing;

use super::lone::Feed;
use super::{Multi, Nothing, Reach};
use crate::event::Silent;
use crate::lanes::ELEVATOR;
use crate::order::dispatcher::{Dispatcher, Turn};
use crate::request::RequestClaim;

impl Multi {
    /// Has the scheduler hear of what has ended and take the request that is in the plug, sends
    /// what it picks, and asks a driver that had nothing for its answer. When that was. `None`: the
    /// lane is to be turned, and the request is in the plug.
    #[inline(never)]
    pub(super) fn send_by_elevator(
        &mut self,
        feed: &mut Feed<'_>,
        reach: Reach<'_>,
        now: Nanos,
        later: impl FnOnce() -> Nanos,
    ) -> Option<Nanos> {
        if self.left_at.is_some() {
            return None;
        }
        if feed.ring.unpublished() == 0 && self.hard.ended.is_empty() {
            return (!self.asks_without(reach, now)).then_some(now);
        }
        let right = self.take_alone(reach)?;
        let again = self.hard.answers_unasked();
        self.visit_alone(right, feed.ring.take_newest(), reach, now);
        if !self.send_picked(reach, now) || !again {
            return Some(now);
        }
        let ended_at = later();
        self.hard.end_answered(ended_at, &mut self.ways.replies);
        if !self.hard.ended.is_empty() {
            // One that the driver gave back waits before what would be picked.
            let is_calm = self.hard.is_calm(ended_at);
            match is_calm.then(|| self.take_alone(reach)).flatten() {
                Some(right) => {
                    self.visit_alone(right, None, reach, ended_at);
                    self.send_picked(reach, ended_at);
                }
                None => self.leave_ends(reach, ended_at, Silent),
            }
        }
        Some(ended_at)
    }

    /// Whether a turn would go to the elevator, or be sent something, although it brings nothing.
    #[inline]
    fn asks_without(&self, reach: Reach<'_>, now: Nanos) -> bool {
        self.ask_elevator
            || self.again
            || self.elevator_wake.is_some_and(|at| at <= now)
            || self.is_waited_for(reach)
    }

    /// The right for this lane alone. What others, who send with the right, have sent since this
    /// lane was found calm comes first.
    #[inline]
    fn take_alone<'a>(&self, reach: Reach<'a>) -> Option<Changing<'a, Dispatcher>> {
        let right = reach.mq.dispatcher.try_take_alone()?;
        if self.link.is_waiting() {
            self.let_go_alone(right, reach);
            return None;
        }
        Some(right)
    }

    #[inline]
    fn let_go_alone(&self, right: Changing<'_, Dispatcher>, reach: Reach<'_>) {
        if reach.mq.dispatcher.let_go_alone(right, self.snapshot.queues == 1) {
            reach.mq.lanes.kick(reach.index, ELEVATOR);
        }
    }

    /// A turn at the elevator that is this lane's alone, with one request or none.
    #[inline]
    fn visit_alone(
        &mut self,
        mut right: Changing<'_, Dispatcher>,
        claim: Option<RequestClaim>,
        reach: Reach<'_>,
        now: Nanos,
    ) {
        let Reach { mq, index, .. } = reach;
        // A time that came earlier was left for others, or is no more.
        debug_assert!(!self.due);
        let due = self.elevator_wake.is_some_and(|at| at <= now);
        let room = self.hard.room();
        let mut turn = Turn {
            lane: index as u16,
            arrivals: &mut self.arrivals,
            ended: &mut self.hard.ended,
            room: Some(room),
            excess: 0,
            due,
            now,
            dispatch: &mut self.hard.dispatch,
            refused: &mut self.refused,
        };
        let outcome = right.serve_lone(&mq.lanes, claim, &mut turn);
        if self.snapshot.queues > 1 {
            self.say_credit(reach);
        }
        self.let_go_alone(right, reach);
        if outcome.is_plain() && self.refused.is_empty() {
            (self.ask_elevator, self.again) = (false, false);
            self.elevator_wake = outcome.wake_at;
        } else {
            self.follow_up(reach, outcome, now, Silent);
        }
    }

    /// Sends what was picked; whether there was something.
    #[inline]
    fn send_picked(&mut self, reach: Reach<'_>, now: Nanos) -> bool {
        let picked = self.hard.dispatch.len();
        // To end what is refused, messages are taken, which may have told it to pause.
        if picked == 0 || self.paused > 0 {
            return false;
        }
        if picked == 1 && !self.hard.has_fences() {
            let claim = self.hard.dispatch.pop_front().expect("it was counted");
            self.hard.issue_lone(claim, now);
        } else {
            self.hard.issue(now, &mut self.ways.replies, &mut Nothing::<true>, Silent);
        }
        if !self.hard.ended.is_empty() {
            self.leave_ends(reach, now, Silent);
        }
        true
    }
}

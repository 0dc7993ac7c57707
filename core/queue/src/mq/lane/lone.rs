//! The short way of a lone request, for a submitter of the lane's own thread: straight to the
//! driver, and back past the inbox. No other thread can come between submitter and lane, which the
//! caller's borrow of both shows: so nothing that passes from one to the other is published,
//! ordered, marked or rung for. It is open while a turn would find nothing else to see to. So no
//! request is overtaken that was handed over before: a turn would find it.

use weir_bio::{Nanos, SubmitterId};
use weir_ring::{Incoming, Producer};

use super::{Multi, Reach};
use crate::event::Silent;
use crate::request::{Request, RequestClaim};

/// The submitter's end of the way into the lane.
pub(crate) struct Feed<'a> {
    pub(crate) submitter: SubmitterId,
    /// The part that is not published is the plug.
    pub(crate) ring: &'a mut Producer<RequestClaim>,
}

impl Feed<'_> {
    /// Whether the plug is empty or holds one request that is for the driver alone.
    #[inline]
    fn is_lone(&mut self) -> bool {
        match self.ring.unpublished() {
            0 => true,
            1 => self.ring.with_newest(is_for_driver).unwrap_or(false),
            _ => false,
        }
    }
}

/// Whether it needs neither the flush machine nor a reserved tag.
#[inline]
fn is_for_driver(claim: &mut RequestClaim) -> bool {
    !claim.flush_step.is_sequenced() && !claim.rq.op.is_passthrough()
}

impl Multi {
    /// A turn by the short way, if that is open: takes answers, sends the one request that is in
    /// the plug, and asks a driver that had nothing for its answer at once. What has ended of the
    /// submitter's, unless that comes through its inbox, and when that was: `now`, or `later` if
    /// the driver was asked a second time. `None`: the lane is to be turned.
    #[inline(always)]
    pub(crate) fn run_lone(
        &mut self,
        feed: &mut Feed<'_>,
        reach: Reach<'_>,
        now: Nanos,
        later: impl FnOnce() -> Nanos,
    ) -> Option<(Incoming<Request>, Nanos)> {
        if !feed.is_lone() || !self.is_calm(reach) {
            return None;
        }
        if self.snapshot.throttled {
            self.hard.observe(reach.wbt.window());
        }
        let Multi { hard, ways, .. } = self;
        hard.end_answered(now, &mut ways.replies);
        // Answers may have made something of the flush machine.
        if !self.hard.is_calm(now) || !self.hard.tags().has_own() {
            return None;
        }
        let ended_at = if self.snapshot.scheduled {
            self.send_by_elevator(feed, reach, now, later)?
        } else {
            self.send_lone(feed, now, later)
        };
        let own = self.ways.replies.take_own(feed.submitter);
        if self.ways.replies.has_more() || self.hard.has_news_of_fences() {
            self.tell_others(reach, ended_at);
        }
        if self.snapshot.throttled {
            self.hard.note_pass(ended_at);
        }
        Some((own, ended_at))
    }

    /// Sends the request that is in the plug, and asks a driver that had nothing for its answer.
    /// When that was.
    #[inline(always)]
    fn send_lone(
        &mut self,
        feed: &mut Feed<'_>,
        now: Nanos,
        later: impl FnOnce() -> Nanos,
    ) -> Nanos {
        let Some(claim) = feed.ring.take_newest() else { return now };
        let again = self.hard.answers_unasked();
        self.hard.issue_lone(claim, now);
        if !again {
            return now;
        }
        let ended_at = later();
        self.hard.end_answered(ended_at, &mut self.ways.replies);
        ended_at
    }

    /// Whether a turn would find nothing for the lane but what its driver has answered.
    #[inline]
    fn is_calm(&mut self, reach: Reach<'_>) -> bool {
        let Reach { mq, index, .. } = reach;
        let marks = &mq.lanes[index];
        // Before the driver is asked, as in a turn.
        !mq.ports[index].control.is_waiting()
            && !marks.pending.any()
            && !marks.feeders.any()
            && mq.lanes.in_need.read() == 0
            && self.snapshot.version == reach.current.version()
            && self.paused == 0
            && !self.needs
            && self.ways.soft.is_drained()
    }

    /// Tells others what the answers have changed for them, as at the end of a turn.
    #[cold]
    #[inline(never)]
    fn tell_others(&mut self, reach: Reach<'_>, now: Nanos) {
        if let Some(ends) = self.ways.replies.take_throttled() {
            // Before their submitters hear of it: a frozen device has none under way.
            reach.wbt.end(ends, now, || reach.mq.touched());
        }
        self.ways.replies.post(reach.index as u16, now, Silent);
        self.tell_of_fences(reach);
    }

    /// Shows the lane what is in the plug, where it is about to be turned: no mark is needed.
    #[inline]
    pub(crate) fn publish(&mut self, feed: Feed<'_>) {
        if feed.ring.publish() {
            // One that the lane does not know yet is looked at when the lane gets to know it.
            let _ = self.ways.soft.list(usize::from(feed.submitter.0));
        }
    }
}

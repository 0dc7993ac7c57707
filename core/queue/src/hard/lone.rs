//! The short way of a lone request: from its submitter, which is the thread that turns the queue,
//! straight to the driver. It is open while there is nothing else to see to; then a turn would come
//! to the same steps, after it had looked for all that there is not.

use weir_bio::Nanos;

use super::HardQueue;
use super::reply::Replies;
use crate::event::Silent;
use crate::request::RequestClaim;

impl HardQueue {
    /// Whether a turn would do nothing but send what comes: nothing waits in front of the driver,
    /// nothing was refused of late, no time has come, and no fence stands.
    #[inline]
    pub(crate) fn is_calm(&self, now: Nanos) -> bool {
        let watch = &self.watch;
        self.dispatch.is_empty()
            && self.delayed.is_empty()
            && self.commands.is_empty()
            && self.places.is_none()
            && self.busy == 0
            && self.retry_at.is_none()
            && self.flush.wake_at().is_none()
            && !watch.trouble
            && !watch.paused
            && watch.scan_at.is_none_or(|at| now < at)
            && !self.fences.any()
            && !self.is_in_need(now)
    }

    /// Takes answers, and ends the requests that they are of.
    #[inline(never)]
    pub(crate) fn end_answered(&mut self, now: Nanos, replies: &mut Replies) {
        self.reap(now, Silent);
        while self.end_one(now, replies, Silent) {}
    }

    /// Whether a request may have to wait for another that ran out of time.
    #[inline]
    pub(crate) fn has_fences(&self) -> bool {
        self.fences.any()
    }

    /// Whether other lanes are to be told of fences or holds.
    #[inline]
    pub(crate) fn has_news_of_fences(&self) -> bool {
        self.watch.lifted | self.watch.refused | self.watch.onward
    }

    /// Whether the driver has nothing, and says of no answer that it is there: it is asked again at
    /// once.
    #[inline]
    pub(crate) fn answers_unasked(&self) -> bool {
        !self.announced && self.tags.are_own_and_free()
    }

    /// Sends one request, for which there is a tag.
    #[inline(never)] // Else the call it makes for the burst is one more.
    pub(crate) fn issue_lone(&mut self, claim: RequestClaim, now: Nanos) {
        self.burst.clear();
        self.start(claim, now, Silent);
        let (taken, _) = self.offer(now, Silent);
        if taken > 0 {
            self.driver.commit(now);
        }
        if taken > 0 || self.watch.trouble && self.unsent() > 0 {
            self.watch.begin(self.timeout_ns, now);
        }
    }
}

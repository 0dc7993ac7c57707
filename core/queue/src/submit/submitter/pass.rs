//! A pass of a thread that has a submitter and its lane.

use weir_bio::Nanos;
use weir_ring::Incoming;

use super::plug::Way;
use super::{Core, Submitter};
use crate::completion::Completion;
use crate::event::Silent;
use crate::lane::Lane;
use crate::mq::lane::Feed;
use crate::request::Request;

impl Submitter {
    /// [Flushes the plug](Submitter::flush_plug), [runs](Lane::run) a lane of the same thread, and
    /// [takes what has ended](Submitter::complete), which `each` is called with; says how many
    /// there were. The borrow of both shows that they are of one thread: if it is the lane that
    /// this submitter feeds, nothing on the way is fenced, marked or rung for, and a request that
    /// is alone goes to the driver past the ring.
    ///
    /// A driver with nothing to do that is to be asked for its answers is asked once more after it
    /// was given something, at the time that `later` says: `now` again, or what the clock says.
    ///
    /// As after [`complete`](Submitter::complete), the token of the submitter may be among those
    /// that its bell tells.
    #[inline(always)] // As `complete`: a call for each end is a fifth of a batch's cost.
    pub fn pass(
        &mut self,
        lane: Option<&mut Lane>,
        now: Nanos,
        later: impl FnOnce() -> Nanos,
        each: impl FnMut(Completion),
    ) -> usize {
        let core = self.core();
        let (arrived, now) = core.run(lane, now, later);
        core.complete_arrived(arrived, now, each, Silent)
    }

    /// Whether it is the lane to which this submitter hands its requests.
    pub(crate) fn feeds(&self, lane: &Lane) -> bool {
        self.core.as_ref().is_some_and(|core| core.feeds(lane))
    }
}

impl Core {
    #[inline]
    fn feeds(&self, lane: &Lane) -> bool {
        self.way == Way::Ring && self.lane == lane.index() && lane.is_open_of(&self.shared)
    }

    /// Flushes the plug and runs the lane. What has ended, and when that was.
    // Inlined, it would double what is done for each end, which would be called then.
    #[inline(never)]
    fn run(
        &mut self,
        lane: Option<&mut Lane>,
        now: Nanos,
        later: impl FnOnce() -> Nanos,
    ) -> (Incoming<Request>, Nanos) {
        let (own, now) = match lane {
            Some(lane) if self.feeds(lane) => {
                if std::mem::take(&mut self.touched) != 0 {
                    self.account_unplugged(now);
                }
                let feed = Feed { submitter: self.id, ring: &mut self.rings[0] };
                lane.run_for(feed, now, later)
            }
            lane => {
                self.flush_plug(now, Silent);
                lane.into_iter().for_each(|lane| lane.run(now));
                (Incoming::empty(), now)
            }
        };
        let ended = if own.is_empty() { self.port.inbox.take() } else { own };
        (ended, now)
    }
}

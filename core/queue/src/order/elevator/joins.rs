//! The effect of merges on the claims: the scheduler works on copies, and says which requests
//! became part of which.

use weir_bio::{Nanos, SchedTag};
use weir_sched::Merge;
use weir_sched::merge::Side;

use super::Elevator;
use crate::event::{Sink, What, lane_tells};
use crate::request::RequestClaim;

impl Elevator {
    /// Tries to merge a bio into a staged request; gives it back if nothing fits.
    pub(crate) fn merge(
        &mut self,
        bio: RequestClaim,
        now: Nanos,
        lane: u16,
        sink: impl Sink,
    ) -> Option<RequestClaim> {
        let now = self.clamp(now);
        let merge = self.scheduler.merge(&bio.rq, now);
        self.merged(merge, bio, now, lane, sink)
    }

    /// Does to the claims what a merge has done to the requests.
    pub(super) fn merged(
        &mut self,
        merge: Merge,
        bio: RequestClaim,
        now: Nanos,
        lane: u16,
        sink: impl Sink,
    ) -> Option<RequestClaim> {
        match merge {
            Merge::No => return Some(bio),
            Merge::Back(tag) => self.take_in(tag, bio, Side::Back, now, lane, sink),
            Merge::Front(tag) => self.take_in(tag, bio, Side::Front, now, lane, sink),
            Merge::BackJoined { kept, gone } => {
                self.take_in(kept, bio, Side::Back, now, lane, sink);
                self.join(kept, gone, now, lane, sink);
            }
            Merge::FrontJoined { kept, gone } => {
                self.take_in(gone, bio, Side::Front, now, lane, sink);
                self.join(kept, gone, now, lane, sink);
            }
        }
        None
    }

    /// The request under this tag, which has its place already, has merged into another.
    pub(super) fn merge_staged(
        &mut self,
        tag: SchedTag,
        merge: Merge,
        lane: u16,
        now: Nanos,
        sink: impl Sink,
    ) {
        let bio = self.take_claim(tag);
        self.free_tag(tag, lane);
        let left = self.merged(merge, bio, now, lane, sink);
        debug_assert!(left.is_none(), "it merged");
    }

    /// `gone` becomes the tail of `kept`; its tag is free at once.
    pub(super) fn join(
        &mut self,
        kept: SchedTag,
        gone: SchedTag,
        now: Nanos,
        lane: u16,
        sink: impl Sink,
    ) {
        let claim = self.take_claim(gone);
        let home = self.home_of(claim.rq.id.submitter());
        self.take_in(kept, claim, Side::Back, now, lane, sink);
        self.free_tag(gone, home);
    }

    /// A request becomes part of the one under this tag.
    pub(super) fn take_in(
        &mut self,
        tag: SchedTag,
        gone: RequestClaim,
        side: Side,
        now: Nanos,
        lane: u16,
        sink: impl Sink,
    ) {
        let kept = self.claim(tag);
        let (rq, into) = (gone.rq, kept.rq.id);
        lane_tells(sink, lane, now, || What::Merged { rq, into, side });
        kept.absorb(gone, side);
    }

    /// Does to the claims what an insert has done to the requests.
    #[inline]
    pub(super) fn join_absorbed(&mut self, now: Nanos, lane: u16, sink: impl Sink) {
        if self.absorbed.is_empty() {
            return;
        }
        let mut absorbed = std::mem::take(&mut self.absorbed);
        for (kept, gone) in absorbed.drain(..) {
            self.join(kept, gone, now, lane, sink);
        }
        self.absorbed = absorbed;
    }
}

//! Requests that wait for a scheduler tag, and get one.

use weir_bio::{Nanos, SubmitterId};

use super::Elevator;
use crate::event::Sink;
use crate::request::RequestClaim;

/// Lines of parked requests that are asked in vain, one after the other, before the next end of a
/// request. With nothing held the first one asked gets in, so none is forgotten.
const ASKED_IN_VAIN: usize = 16;

impl Elevator {
    /// Gives free tags to those that wait: first to those that a depth limit held back in their
    /// turn, then kind by kind in turn. One that a limit holds back holds up no other.
    pub(super) fn let_in(&mut self, now: Nanos, lane: u16, sink: impl Sink) {
        let mut place = 0;
        while self.free.len() > 0
            && place < ASKED_IN_VAIN
            && let Some(claim) = self.parked.next_held_back(place)
        {
            if let Some(claim) = self.let_one_in(claim, now, lane, sink) {
                self.parked.hold_back(claim, Some(place));
                place += 1;
            }
        }
        let mut in_vain = 0;
        while self.free.len() > 0
            && in_vain < ASKED_IN_VAIN
            && let Some(claim) = self.parked.next()
        {
            match self.let_one_in(claim, now, lane, sink) {
                None => in_vain = 0,
                Some(claim) => {
                    self.parked.hold_back(claim, None);
                    in_vain += 1;
                }
            }
        }
    }

    /// Merges a request that waited, or gives it a tag; gives back one that a limit holds back.
    fn let_one_in(
        &mut self,
        claim: RequestClaim,
        now: Nanos,
        lane: u16,
        sink: impl Sink,
    ) -> Option<RequestClaim> {
        let claim = self.merge(claim, now, lane, sink)?;
        let context = claim.rq.id.submitter();
        let held_back = self.admit(self.home_of(context), claim, now, sink);
        if held_back.is_none() {
            self.kick_home(context);
        }
        held_back
    }

    /// Something of this context is staged, and its submitter was told long ago.
    fn kick_home(&mut self, context: SubmitterId) {
        // The single queue has no lanes to tell apart, and it settles no contexts.
        if let Some(home) = self.homes.get(usize::from(context.0)) {
            self.lanes.kicked |= 1 << home;
        }
    }
}

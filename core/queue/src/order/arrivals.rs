//! Requests on their way into the elevator, and out of it.

use weir_bio::{Flags, Rq, SchedTag};
use weir_ring::Producer;

use crate::request::{HAS_PLACE, RequestClaim};

/// A request on its way into the elevator: the copy for the scheduler, and the claim.
pub(crate) struct Arrival {
    pub(crate) rq: Rq,
    pub(crate) claim: RequestClaim,
}

impl Arrival {
    #[inline]
    pub(crate) fn of(claim: RequestClaim) -> Arrival {
        Arrival { rq: claim.rq, claim }
    }
}

/// Several arrivals, in order; the copies for the scheduler are in one piece.
#[derive(Default)]
pub(crate) struct Arrivals {
    pub(crate) rqs: Vec<Rq>,
    pub(crate) claims: Vec<RequestClaim>,
}

impl Arrivals {
    #[inline]
    pub(crate) fn push(&mut self, arrival: Arrival) {
        self.rqs.push(arrival.rq);
        self.claims.push(arrival.claim);
    }

    /// Takes one in, of which nothing is seen before [`look`](Arrivals::look).
    #[inline]
    pub(crate) fn collect(&mut self, claim: RequestClaim) {
        self.claims.push(claim);
    }

    /// Looks at those that were collected, all at once: that is quicker than one by one.
    #[inline]
    pub(crate) fn look(&mut self) {
        let seen = self.rqs.len();
        self.rqs.extend(self.claims[seen..].iter().map(|claim| claim.rq));
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.rqs.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rqs.is_empty()
    }

    #[inline]
    pub(crate) fn rqs(&self) -> &[Rq] {
        &self.rqs
    }

    /// Moves all into the ring, which has room for them.
    #[inline]
    pub(crate) fn leave(&mut self, ring: &mut Producer<Arrival>) {
        debug_assert_eq!(self.rqs.len(), self.claims.len(), "all are looked at");
        // Copied from where they are, for the reason that `Picked` gives.
        let all = self.rqs.iter().zip(self.claims.drain(..));
        ring.push_each(all.map(|(rq, claim)| Arrival { rq: *rq, claim }));
        self.rqs.clear();
    }

    /// Takes the claims of all.
    #[inline]
    pub(crate) fn claims(&mut self) -> impl Iterator<Item = RequestClaim> {
        self.rqs.clear();
        self.claims.drain(..)
    }
}

/// A request on its way out of the elevator, with the facts not yet in its slot. Two words, so that
/// it travels in registers: a value written to memory in pieces and read there whole makes a CPU
/// wait until the pieces have arrived.
pub(crate) struct Picked {
    claim: RequestClaim,
    /// Flags, scheduler tag and the hard queue of its context, from the lowest bit.
    rest: u64,
}

impl Picked {
    #[inline]
    pub(crate) fn new(claim: RequestClaim, flags: Flags, tag: SchedTag, home: u16) -> Picked {
        let rest = u64::from(flags.0) | u64::from(tag.0) << 32 | u64::from(home) << 48;
        Picked { claim, rest }
    }

    /// The hard queue of its context.
    #[inline]
    pub(crate) fn home(&self) -> u16 {
        (self.rest >> 48) as u16
    }

    /// The same, with a place of its device's budget.
    pub(crate) fn with_place(self) -> Picked {
        Picked { rest: self.rest | u64::from(HAS_PLACE.0), ..self }
    }

    /// The same without; whether it had one.
    pub(crate) fn take_place(&mut self) -> bool {
        let had = Flags(self.rest as u32).has(HAS_PLACE);
        self.rest &= !u64::from(HAS_PLACE.0);
        had
    }

    /// The copy for a listener.
    pub(crate) fn rq(&self) -> Rq {
        let tag = SchedTag((self.rest >> 32) as u16);
        Rq { tag, flags: Flags(self.rest as u32), ..self.claim.rq }
    }

    /// The request, with all it has to know.
    #[inline]
    pub(crate) fn into_claim(self) -> RequestClaim {
        let Picked { mut claim, rest } = self;
        (claim.rq.flags, claim.rq.tag) = (Flags(rest as u32), SchedTag((rest >> 32) as u16));
        claim
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{RqId, SubmitterId};
    use weir_ring::Claim;

    use crate::request::Request;

    #[test]
    fn what_a_slot_does_not_know_gets_there_unchanged() {
        for (flags, tag, home) in [(0, 0, 0), (u32::MAX, 0, 1), (1, u16::MAX, 0), (0, 1, u16::MAX)]
        {
            let claim = Claim::new(Request::free(RqId::new(SubmitterId(0), 0, 0)));
            let picked = Picked::new(claim, Flags(flags), SchedTag(tag), home);
            assert_eq!(picked.home(), home);
            let claim = picked.into_claim();
            assert_eq!((claim.rq.flags, claim.rq.tag), (Flags(flags), SchedTag(tag)));
        }
    }
}

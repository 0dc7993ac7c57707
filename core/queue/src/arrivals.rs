//! Requests on their way into the elevator, and out of it.

use weir_bio::{Flags, Rq, SchedTag};

use crate::request::RequestClaim;

/// A request on its way in: what the scheduler is to see of it, and the claim.
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

/// Several of them, in order: what the scheduler is to see in one piece.
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

    /// Takes all.
    #[inline]
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Arrival> {
        self.rqs.drain(..).zip(self.claims.drain(..)).map(|(rq, claim)| Arrival { rq, claim })
    }

    /// Takes the claims of all.
    #[inline]
    pub(crate) fn claims(&mut self) -> impl Iterator<Item = RequestClaim> {
        self.rqs.clear();
        self.claims.drain(..)
    }
}

/// A request on its way out, and what its slot does not know yet.
pub(crate) struct Picked {
    pub(crate) claim: RequestClaim,
    pub(crate) flags: Flags,
    pub(crate) tag: SchedTag,
    /// The hard queue of its context.
    pub(crate) home: u16,
}

impl Picked {
    /// The request, with all it has to know.
    #[inline]
    pub(crate) fn into_claim(self) -> RequestClaim {
        let Picked { mut claim, flags, tag, .. } = self;
        (claim.rq.flags, claim.rq.tag) = (flags, tag);
        claim
    }
}

//! The way into the elevator of a request that comes alone: the same questions to the scheduler as
//! of several that come together, without the lists for those.

use weir_bio::{Nanos, Rq};
use weir_sched::{DepthRule, Merge};

use super::{Elevator, put};
use crate::event::Silent;
use crate::request::RequestClaim;

impl Elevator {
    /// Takes in one request of a hard queue, as [`insert_all`](Elevator::insert_all) does; gives it
    /// back if there is no tag for it and it may not wait.
    #[inline]
    pub(crate) fn insert_lone(
        &mut self,
        lane: u16,
        claim: RequestClaim,
        now: Nanos,
    ) -> Option<RequestClaim> {
        let now = self.clamp(now);
        let rq = claim.rq;
        match self.rule_of(std::slice::from_ref(&rq), now) {
            Some(rule) => {
                self.stage_lone(lane, (rq, claim), rule, now);
                None
            }
            None => self.insert(lane, claim, now, Silent),
        }
    }

    /// Gives it a tag, which there is, and to the scheduler.
    #[inline]
    fn stage_lone(
        &mut self,
        lane: u16,
        (mut rq, claim): (Rq, RequestClaim),
        rule: DepthRule,
        now: Nanos,
    ) {
        rq.tag = self.free.take(lane).expect("there is one");
        put(&mut self.claims, rq.tag, claim);
        if rule != DepthRule::Free {
            let places = self.held.places(rule.limits());
            self.hold(rq.tag, places[DepthRule::kind(&rq)]);
        }
        let batch = std::slice::from_ref(&rq);
        let (_, merge) = self.scheduler.stage_batch(batch, now, &mut self.absorbed);
        if merge != Merge::No {
            self.merge_staged(rq.tag, merge, lane, now, Silent);
        }
        self.join_absorbed(now, lane, Silent);
    }
}

//! Requests that wait for a scheduler tag, and get one.

use weir_bio::{Nanos, SubmitterId};

use super::Elevator;
use crate::event::Sink;
use crate::request::RequestClaim;

/// Lines of parked requests that are asked in vain, one after the other, before the next end of a
/// request. With nothing held the first one asked gets in, so none is forgotten.
const ASKED_IN_VAIN: usize = 16;

/// Lines that were held back which are looked at before the next end of a request: each by its
/// limit alone. Behind those that one limit holds back may be some that another did.
const HELD_BACK_SEEN: usize = 256;

impl Elevator {
    /// Gives free tags to those that wait: first to those that a depth limit held back in their
    /// turn, then kind by kind in turn. One that a limit holds back holds up no other.
    pub(super) fn let_in(&mut self, now: Nanos, lane: u16, sink: impl Sink) {
        let mut place = 0;
        while self.free.len() > 0
            && place < HELD_BACK_SEEN
            && let Some(rq) = self.parked.held_back(place)
        {
            if self.depth_limit(rq).is_some_and(|limit| !self.held.admits(limit)) {
                place += 1;
                continue;
            }
            let claim = self.parked.next_held_back(place).expect("it was looked at");
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    use weir_bio::{Bio, Buf, Op, Rq, RqId, SchedTag, Status};
    use weir_ring::Claim;
    use weir_sched::{Absorbed, DepthRule, Ended, Merge, Scheduler};

    use crate::event::Silent;
    use crate::order::arrivals::{Arrival, Arrivals};
    use crate::request::{FlushStep, Request, State};

    /// First in, first out; contexts below 20 may hold one tag together, those below 40 three.
    #[derive(Debug, Default)]
    struct Limited(VecDeque<Rq>);

    impl Scheduler for Limited {
        fn name(&self) -> &'static str {
            "limited"
        }

        fn merge(&mut self, _: &Rq, _: Nanos) -> Merge {
            Merge::No
        }

        fn insert(&mut self, rq: Rq, _: Nanos, _: &mut Absorbed) {
            self.0.push_back(rq);
        }

        fn dispatch(&mut self, _: u16, _: Nanos) -> Option<Rq> {
            self.0.pop_front()
        }

        fn staged(&self) -> usize {
            self.0.len()
        }

        fn depth_limit(&self, _: Op, _: bool, context: SubmitterId) -> Option<u16> {
            match context.0 {
                ..20 => Some(1),
                20..40 => Some(3),
                _ => None,
            }
        }

        fn depth_rule(&self, _: &[Rq], _: Nanos) -> DepthRule {
            DepthRule::Each
        }
    }

    fn send(elevator: &mut Elevator, context: u16, serial: u16) {
        elevator.bind(SubmitterId(context), 0);
        let mut claim = Claim::new(Request::free(RqId::new(SubmitterId(context), serial, 0)));
        let mut bio =
            Bio::read(u64::from(context) * 640 + u64::from(serial) * 64, Buf::zeroed(4096));
        claim.fill(&mut bio, FlushStep::DATA, Nanos::ZERO);
        let mut arrivals = Arrivals::default();
        arrivals.push(Arrival::of(claim));
        elevator.insert_all(0, &mut arrivals, Nanos::ZERO, Silent);
    }

    #[test]
    fn behind_many_that_one_limit_holds_back_stands_one_that_another_did() {
        let now = Nanos::ZERO;
        let mut elevator = Elevator::new(Box::new(Limited::default()), 6);
        for (serial, context) in [0, 30, 30, 50, 50, 50].into_iter().enumerate() {
            send(&mut elevator, context, serial as u16);
        }
        let mut out = Vec::new();
        elevator.pull(0, 6, now, &mut out, Silent);
        let mut flying: Vec<RequestClaim> = out.drain(..).map(|one| one.into_claim()).collect();
        assert_eq!(flying.len(), 6, "all have a tag");
        (0..20).chain([30]).for_each(|context| send(&mut elevator, context, 9));
        let mut end = |elevator: &mut Elevator, context: u16| {
            let at = flying.iter().position(|one| one.rq.id.submitter().0 == context);
            let mut claim = flying.remove(at.expect("one of it is under way"));
            let tag: SchedTag = claim.rq.tag;
            claim.state = State::Free;
            let (status, handed_back) = (Status::Ok, false);
            let [accepted_at, issued_at, done_at] = [now; 3];
            let end = Ended { tag, status, handed_back, accepted_at, issued_at, done_at };
            elevator.ended(0, &[end], now, Silent);
            elevator.pull(0, 6, now, &mut out, Silent);
            let entered = out.drain(..).map(|one| one.into_claim());
            let entered: Vec<RequestClaim> = entered.collect();
            let contexts: Vec<u16> = entered.iter().map(|one| one.rq.id.submitter().0).collect();
            flying.extend(entered);
            contexts
        };
        // Twice a tag is free, and all of both limits are used up.
        assert_eq!(end(&mut elevator, 50), [0; 0]);
        assert_eq!(end(&mut elevator, 50), [0; 0]);
        assert_eq!(end(&mut elevator, 30), [30], "its limit has room, and twenty stand before it");
        assert_eq!(end(&mut elevator, 0), [0], "and theirs keep their turn");
        flying.iter_mut().for_each(|claim| claim.state = State::Free);
        std::mem::forget(elevator);
    }
}

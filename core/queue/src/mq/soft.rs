//! The soft queues of one lane: what its submitters have handed over and the lane has not taken.
//!
//! Each submitter has a ring of its own. While the lane has tags, requests go straight from ring
//! to driver; when it runs short they are staged in a list per submitter, where they can be merged
//! (the last 8 are looked at, newest first, as Linux' software queues do).

use std::collections::VecDeque;

use weir_bio::{Limits, Nanos};
use weir_ring::Consumer;
use weir_sched::merge::{Fit, fit};

use crate::event::{Sink, What, lane_tells};
use crate::hard::Source;
use crate::request::RequestClaim;

/// How many of the newest staged requests a merge looks at.
const LOOK_BACK: usize = 8;

/// The soft queues of a lane, by submitter.
#[derive(Default)]
pub(crate) struct Soft {
    contexts: Vec<Option<Context>>,
    /// A bit for each context that may hold something, and how many are set.
    active: Vec<u64>,
    active_count: usize,
    cursor: usize,
}

struct Context {
    ring: Consumer<RequestClaim>,
    staged: VecDeque<Waiting>,
    /// Those that came from the ring and are not staged yet; kept for its memory.
    arrived: Vec<RequestClaim>,
}

/// A request without a tag, and where it lies: its slot, which says so too, is in the cache of its
/// submitter's CPU.
struct Waiting {
    claim: RequestClaim,
    start: u64,
    end: u64,
}

impl Waiting {
    #[inline]
    fn of(claim: RequestClaim) -> Waiting {
        let (start, end) = (claim.rq.sector, claim.rq.end());
        Waiting { claim, start, end }
    }
}

impl Soft {
    pub(crate) fn attach(&mut self, context: usize, ring: Consumer<RequestClaim>) {
        if self.contexts.len() <= context {
            self.contexts.resize_with(context + 1, || None);
            self.active.resize(context / 64 + 1, 0);
        }
        let (staged, arrived) = (VecDeque::new(), Vec::new());
        self.contexts[context] = Some(Context { ring, staged, arrived });
        self.mark(context);
    }

    pub(crate) fn detach(&mut self, context: usize) {
        let Some(mut gone) = self.contexts.get_mut(context).and_then(Option::take) else { return };
        assert!(gone.staged.is_empty() && gone.ring.is_empty(), "a submitter left requests behind");
    }

    /// Detaches every submitter. Everything that was handed over has to be taken.
    pub(crate) fn detach_all(&mut self) {
        assert!(self.is_empty(), "a submitter left requests behind");
        self.contexts.clear();
        self.active.clear();
        (self.active_count, self.cursor) = (0, 0);
    }

    /// Something of this context was published.
    #[inline]
    pub(crate) fn mark(&mut self, context: usize) {
        // A mark may overtake the message that attaches its context; attaching marks it as well.
        if matches!(self.contexts.get(context), Some(Some(_))) {
            let (word, bit) = (&mut self.active[context / 64], 1 << (context % 64));
            self.active_count += usize::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// This context has nothing more.
    #[inline]
    fn unmark(&mut self, context: usize) {
        self.active[context / 64] &= !(1 << (context % 64));
        self.active_count -= 1;
    }

    /// One of each active context until there are `max`, apart from the way of one submitter alone.
    #[inline(never)]
    fn give_in_turn(&mut self, max: usize, sink: &mut impl FnMut(RequestClaim)) -> usize {
        let mut left = max;
        while left > 0 {
            let Some(context) = self.next_active(self.cursor) else { break };
            self.cursor = context + 1;
            match self.contexts[context].as_mut().and_then(Context::next) {
                Some(claim) => {
                    left -= 1;
                    sink(claim);
                }
                None => self.unmark(context),
            }
        }
        max - left
    }

    /// The first active context from `from` on, going round.
    #[inline]
    fn next_active(&self, from: usize) -> Option<usize> {
        if self.active_count == 0 {
            return None;
        }
        // No remainder is taken: a division costs more than the rest of a short look.
        let mut index = if from / 64 < self.active.len() { from / 64 } else { 0 };
        let mut bits = self.active[index] & (u64::MAX << (from % 64));
        while bits == 0 {
            index = if index + 1 < self.active.len() { index + 1 } else { 0 };
            bits = self.active[index];
        }
        Some(index * 64 + bits.trailing_zeros() as usize)
    }

    /// Empties the rings into the staged lists, merging on the way, because the lane cannot take
    /// more now. True when anything waits.
    pub(crate) fn stage(
        &mut self,
        limits: &Limits,
        nomerges: u8,
        lane: u16,
        now: Nanos,
        sink: impl Sink,
    ) -> bool {
        let mut waits = false;
        for word in 0..self.active.len() {
            let mut bits = self.active[word];
            while bits != 0 {
                let context = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(context) = &mut self.contexts[context] {
                    context.stage(limits, nomerges, lane, now, sink);
                    waits |= !context.staged.is_empty();
                }
            }
        }
        waits
    }

    /// Takes everything.
    #[cold]
    pub(crate) fn take_all(&mut self, sink: &mut impl FnMut(RequestClaim)) {
        self.give(false, usize::MAX, sink);
    }

    /// Whether nothing is staged or published.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.contexts.iter_mut().flatten().all(|c| c.staged.is_empty() && c.ring.is_empty())
    }
}

impl Source for Soft {
    const GIVES_ALL: bool = true;

    fn holds(&self, most: usize) -> usize {
        let mut held = 0;
        for (word, bits) in self.active.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 && held < most {
                let context = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                held += self.contexts[context].as_ref().map_or(0, Context::count);
            }
        }
        held.min(most)
    }

    /// Ascending by context, or in turn, one of each, while the lane is busy.
    #[inline]
    fn give(&mut self, busy: bool, max: usize, sink: &mut impl FnMut(RequestClaim)) -> usize {
        let mut left = max;
        while left > 0 {
            let Some(context) = self.next_active(if busy { self.cursor } else { 0 }) else { break };
            if busy && self.active_count > 1 {
                left -= self.give_in_turn(left, sink);
                break;
            }
            let wanted = left;
            let given = match &mut self.contexts[context] {
                Some(context) => context.give(wanted, sink),
                None => 0,
            };
            left -= given;
            self.cursor = context + 1;
            if given < wanted {
                self.unmark(context);
            }
        }
        max - left
    }
}

impl Context {
    fn count(&self) -> usize {
        self.staged.len() + self.ring.count()
    }

    /// The oldest that waits.
    #[inline]
    fn next(&mut self) -> Option<RequestClaim> {
        match self.staged.pop_front() {
            Some(waiting) => Some(waiting.claim),
            None => {
                let claim = self.ring.pop();
                self.ring.release();
                claim
            }
        }
    }

    #[inline]
    fn give(&mut self, max: usize, sink: &mut impl FnMut(RequestClaim)) -> usize {
        let staged = if self.staged.is_empty() { 0 } else { self.give_staged(max, sink) };
        #[expect(clippy::redundant_closure, reason = "a reference is not inlined: 4 % of an I/O")]
        let given = self.ring.pop_each(max - staged, |claim| sink(claim));
        staged + given
    }

    #[inline(never)]
    fn give_staged(&mut self, max: usize, sink: &mut impl FnMut(RequestClaim)) -> usize {
        let count = max.min(self.staged.len());
        for _ in 0..count {
            let waiting = self.staged.pop_front().expect("counted");
            sink(waiting.claim);
        }
        count
    }

    fn stage(&mut self, limits: &Limits, nomerges: u8, lane: u16, now: Nanos, sink: impl Sink) {
        // All are asked for before anything is done with one, so that the slots are on their way
        // from the other CPU together.
        let Context { ring, arrived, .. } = self;
        let mut arrive = |claim: RequestClaim| {
            claim.fetch();
            arrived.push(claim);
        };
        while ring.pop_each(usize::MAX, &mut arrive) > 0 {}
        let mut arrived = std::mem::take(arrived);
        for claim in arrived.drain(..) {
            self.stage_one(Waiting::of(claim), limits, nomerges, lane, now, sink);
        }
        self.arrived = arrived;
    }

    fn stage_one(
        &mut self,
        waiting: Waiting,
        limits: &Limits,
        nomerges: u8,
        lane: u16,
        now: Nanos,
        sink: impl Sink,
    ) {
        let Waiting { start, end, .. } = waiting;
        let claim = &waiting.claim;
        let sequenced = claim.flush_step.is_sequenced();
        if nomerges < 2 && !sequenced && claim.rq.is_mergeable() {
            for staged in self.staged.iter_mut().rev().take(LOOK_BACK) {
                if staged.end != start && staged.start != end {
                    continue;
                }
                let other = &mut staged.claim;
                match fit(&other.rq, &claim.rq, limits) {
                    Fit::Apart => {}
                    Fit::Joins(side) => {
                        let (rq, into) = (claim.rq, other.rq.id);
                        lane_tells(sink, lane, now, || What::Merged { rq, into, side });
                        other.absorb(waiting.claim, side);
                        (staged.start, staged.end) = (other.rq.sector, other.rq.end());
                        return;
                    }
                    Fit::TooLarge => {
                        other.rq.flags |= weir_bio::Flags::NOMERGE;
                        break;
                    }
                }
            }
        }
        lane_tells(sink, lane, now, || What::Staged { rq: claim.rq });
        self.staged.push_back(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Bio, Buf, RqId, SubmitterId};
    use weir_ring::Claim;

    use crate::event::Silent;
    use crate::request::{FlushStep, Request};

    /// Reads of 8 sectors at these places, handed over and staged, by context.
    fn staged(contexts: &[&[u64]]) -> Soft {
        let mut soft = Soft::default();
        for (context, sectors) in contexts.iter().enumerate() {
            let (mut handed_over, ring) = weir_ring::ring(8);
            soft.attach(context, ring);
            for (n, sector) in sectors.iter().enumerate() {
                let id = RqId::new(SubmitterId(context as u16), n as u16, 0);
                let mut claim = Claim::new(Request::free(id));
                claim.fill(
                    &mut Bio::read(*sector, Buf::zeroed(4096)),
                    FlushStep::DATA,
                    Nanos::ZERO,
                );
                assert!(handed_over.push(claim).is_ok(), "there is room");
            }
            handed_over.publish();
        }
        let limits = Limits { max_hw_sectors: 4096, ..Limits::default() };
        assert!(soft.stage(&limits, 0, 0, Nanos::ZERO, Silent), "something waits");
        soft
    }

    /// Sector and length of up to `max` in the order in which a busy lane gets them.
    fn given(soft: &mut Soft, max: usize) -> Vec<(u64, u32)> {
        let mut given = Vec::new();
        soft.give(true, max, &mut |claim| {
            given.push((claim.rq.sector, claim.rq.sectors));
            // It is never ended.
            std::mem::forget(claim);
        });
        given
    }

    #[test]
    fn a_staged_request_that_has_grown_is_found_by_where_it_begins_and_ends_now() {
        let mut soft = staged(&[&[64, 72, 56, 48, 80, 200, 208]]);
        assert_eq!(given(&mut soft, 8), [(48, 40), (200, 16)]);
        assert!(soft.is_empty());
    }

    #[test]
    fn contexts_take_turns_and_one_alone_gives_all_it_has() {
        let mut soft = staged(&[&[0, 100, 200, 300, 400], &[1000, 1100]]);
        let sectors = |soft: &mut Soft, max| given(soft, max).into_iter().map(|(at, _)| at);
        assert!(sectors(&mut soft, 3).eq([0, 1000, 100]));
        assert!(sectors(&mut soft, 3).eq([1100, 200, 300]));
        assert!(sectors(&mut soft, 3).eq([400]));
        assert!(soft.is_empty());
    }

    #[test]
    fn contexts_far_apart_take_turns_as_well_and_the_last_is_followed_by_the_first() {
        let mut contexts = vec![&[][..]; 129];
        (contexts[1], contexts[63], contexts[128]) = (&[10, 100], &[20, 200], &[30, 300]);
        let mut soft = staged(&contexts);
        for expected in [10, 20, 30, 100, 200, 300] {
            // One a time, so that each look begins behind the one before.
            assert_eq!(given(&mut soft, 1), [(expected, 8)]);
        }
        assert!(soft.is_empty());
        assert_eq!(given(&mut soft, 1), []);
    }

    #[test]
    fn a_mark_that_comes_before_its_context_is_ignored() {
        let mut soft = Soft::default();
        soft.attach(0, weir_ring::ring(4).1);
        soft.mark(5);
        soft.mark(70);
        let given = soft.give(true, 1, &mut |claim| panic!("{claim:?} was never sent"));
        soft.stage(&Limits::default(), 0, 0, weir_bio::Nanos::ZERO, crate::event::Silent);
        assert_eq!(given, 0);
    }
}

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
    /// A bit for each context that may hold something.
    active: Vec<u64>,
    cursor: usize,
}

struct Context {
    ring: Consumer<RequestClaim>,
    staged: VecDeque<RequestClaim>,
}

impl Soft {
    pub(crate) fn attach(&mut self, context: usize, ring: Consumer<RequestClaim>) {
        if self.contexts.len() <= context {
            self.contexts.resize_with(context + 1, || None);
            self.active.resize(context / 64 + 1, 0);
        }
        self.contexts[context] = Some(Context { ring, staged: VecDeque::new() });
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
        self.cursor = 0;
    }

    /// Something of this context was published.
    #[inline]
    pub(crate) fn mark(&mut self, context: usize) {
        // A mark may overtake the message that attaches its context; attaching marks it as well.
        if matches!(self.contexts.get(context), Some(Some(_))) {
            self.active[context / 64] |= 1 << (context % 64);
        }
    }

    /// The first active context from `from` on, going round.
    #[inline]
    fn next_active(&self, from: usize) -> Option<usize> {
        let words = self.active.len();
        if words == 0 {
            return None;
        }
        let (first, bit) = (from / 64 % words, from % 64);
        let head = self.active[first] & (u64::MAX << bit);
        if head != 0 {
            return Some(first * 64 + head.trailing_zeros() as usize);
        }
        for step in 1..=words {
            let index = (first + step) % words;
            if self.active[index] != 0 {
                return Some(index * 64 + self.active[index].trailing_zeros() as usize);
            }
        }
        None
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
            let wanted = if busy { 1 } else { left };
            let given = match &mut self.contexts[context] {
                Some(context) => context.give(wanted, sink),
                None => 0,
            };
            left -= given;
            self.cursor = context + 1;
            if given < wanted {
                self.active[context / 64] &= !(1 << (context % 64));
            }
        }
        max - left
    }
}

impl Context {
    fn count(&self) -> usize {
        self.staged.len() + self.ring.count()
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
        self.staged.drain(..count).for_each(sink);
        count
    }

    fn stage(&mut self, limits: &Limits, nomerges: u8, lane: u16, now: Nanos, sink: impl Sink) {
        while let Some(claim) = self.ring.pop() {
            self.stage_one(claim, limits, nomerges, lane, now, sink);
        }
        self.ring.release();
    }

    fn stage_one(
        &mut self,
        claim: RequestClaim,
        limits: &Limits,
        nomerges: u8,
        lane: u16,
        now: Nanos,
        sink: impl Sink,
    ) {
        let sequenced = claim.flush_step.is_sequenced();
        if nomerges < 2 && !sequenced && claim.rq.is_mergeable() {
            for staged in self.staged.iter_mut().rev().take(LOOK_BACK) {
                match fit(&staged.rq, &claim.rq, limits) {
                    Fit::Apart => {}
                    Fit::Joins(side) => {
                        let (rq, into) = (claim.rq, staged.rq.id);
                        lane_tells(sink, lane, now, || What::Merged { rq, into, side });
                        return staged.absorb(claim, side);
                    }
                    Fit::TooLarge => {
                        staged.rq.flags |= weir_bio::Flags::NOMERGE;
                        break;
                    }
                }
            }
        }
        lane_tells(sink, lane, now, || What::Staged { rq: claim.rq });
        self.staged.push_back(claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

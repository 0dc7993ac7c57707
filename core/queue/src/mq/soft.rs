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

/// Turns in which a submitter may hand over nothing before it is struck from the list of those
/// whose rings are looked at in every turn. To be listed again takes exchanges on lines that its
/// CPU has to fetch.
const QUIET: u8 = 4;

/// The soft queues of a lane, by submitter.
#[derive(Default)]
pub(crate) struct Soft {
    contexts: Vec<Option<Context>>,
    /// A bit for each context that may hold something, and how many are set.
    active: Vec<u64>,
    active_count: usize,
    cursor: usize,
    /// Those whose rings are looked at in every turn.
    listed: Vec<u16>,
}

struct Context {
    ring: Consumer<RequestClaim>,
    /// Those that wait, once some of them have merged; the ring holds what came later. While none
    /// has, all wait in the ring.
    staged: VecDeque<Waiting>,
    /// The position in the ring up to which the lane knows that there are requests.
    seen: usize,
    /// The position up to which requests are staged; they stay in the ring meanwhile.
    staged_to: usize,
    /// The position up to which slots were prefetched.
    fetched_to: usize,
    newest: Newest,
    listed: bool,
    /// Turns in which nothing came, one after the other.
    quiet: u8,
}

/// The low 32 bits of the sectors where the newest waiting requests begin and end. Nearly always
/// none of these touches the next request, and comparing eight at once finds that without a branch
/// for each.
#[derive(Default)]
struct Newest {
    starts: [u32; LOOK_BACK],
    ends: [u32; LOOK_BACK],
    next: usize,
}

impl Newest {
    /// Whether one of them may begin at `end` or end at `start`.
    #[inline]
    fn may_touch(&self, start: u64, end: u64) -> bool {
        let (start, end) = (start as u32, end as u32);
        let mut touches = 0;
        for place in 0..LOOK_BACK {
            touches |= u32::from(self.ends[place] == start);
            touches |= u32::from(self.starts[place] == end);
        }
        touches != 0
    }

    #[inline]
    fn add(&mut self, start: u64, end: u64) {
        let place = self.next % LOOK_BACK;
        (self.starts[place], self.ends[place]) = (start as u32, end as u32);
        self.next = place + 1;
    }
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
        self.listed.retain(|listed| usize::from(*listed) != context);
        self.contexts[context] = Some(Context::of(ring));
        self.list(context);
    }

    pub(crate) fn detach(&mut self, context: usize) {
        let Some(mut gone) = self.contexts.get_mut(context).and_then(Option::take) else { return };
        assert!(gone.staged.is_empty() && gone.ring.is_empty(), "a submitter left requests behind");
        self.listed.retain(|listed| usize::from(*listed) != context);
    }

    /// Detaches every submitter. Everything that was handed over has to be taken.
    pub(crate) fn detach_all(&mut self) {
        assert!(self.is_empty(), "a submitter left requests behind");
        self.contexts.clear();
        self.active.clear();
        self.listed.clear();
        (self.active_count, self.cursor) = (0, 0);
    }

    /// The ring of this context is looked at in every turn from now on; false if there is no such
    /// context.
    pub(crate) fn list(&mut self, context: usize) -> bool {
        // A mark may overtake the message that attaches its context; attaching lists it as well.
        let Some(Some(known)) = self.contexts.get_mut(context) else { return false };
        if !known.listed {
            (known.listed, known.quiet) = (true, 0);
            self.listed.push(context as u16);
        }
        true
    }

    /// Whether a ring that is looked at in every turn has something new.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.listed.iter().any(|listed| {
            let context = self.contexts[usize::from(*listed)].as_ref();
            context.is_some_and(|context| context.ring.end() != context.seen)
        })
    }

    /// Whether all that was handed over has been taken.
    #[inline(always)]
    pub(crate) fn is_drained(&mut self) -> bool {
        (self.active_count == 0 || self.unmark_drained()) && !self.has_news()
    }

    /// Unmarks contexts that have given all without having been asked for more; whether none is
    /// left.
    #[cold]
    fn unmark_drained(&mut self) -> bool {
        for context in 0..self.contexts.len() {
            let drained = self.contexts[context].as_ref().is_none_or(|known| known.count() == 0);
            if drained && self.active[context / 64] & 1 << (context % 64) != 0 {
                self.unmark(context);
            }
        }
        self.active_count == 0
    }

    /// Looks which rings have something; `strike` is told of those that are looked at no more,
    /// after which the ring is looked at once again.
    #[inline]
    pub(crate) fn look(&mut self, mut strike: impl FnMut(usize)) {
        let Soft { contexts, active, active_count, listed, .. } = self;
        listed.retain(|listed| {
            let index = usize::from(*listed);
            let context = contexts[index].as_mut().expect("a listed context is attached");
            let mut end = context.ring.see();
            if end == context.seen {
                context.quiet += 1;
                if context.quiet <= QUIET {
                    return true;
                }
                context.listed = false;
                strike(index);
                end = context.ring.see();
                if end == context.seen {
                    return false;
                }
                // It came a moment ago, and its mark was found set.
                context.listed = true;
            }
            context.seen = end;
            context.quiet = 0;
            let (word, bit) = (&mut active[index / 64], 1 << (index % 64));
            *active_count += usize::from(*word & bit == 0);
            *word |= bit;
            true
        });
    }

    /// Prefetches the end of each listed ring, and the places behind what was seen.
    #[inline]
    pub(crate) fn fetch_rings(&self) {
        for listed in &self.listed {
            let context = self.contexts[usize::from(*listed)].as_ref();
            context.into_iter().for_each(|context| context.ring.fetch_behind(context.seen, 32));
        }
    }

    /// Prefetches the slots of the requests in the rings from the CPUs of their submitters.
    #[inline(never)]
    pub(crate) fn fetch(&mut self) {
        for word in 0..self.active.len() {
            let mut bits = self.active[word];
            while bits != 0 {
                let context = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                self.contexts[context].as_mut().into_iter().for_each(Context::fetch);
            }
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
            let Some(first) = self.next_active(self.cursor) else { break };
            // All of a word in one go, and again where no other has any.
            let (word, mut bits) = (first / 64, self.active[first / 64]);
            let is_only = bits.count_ones() as usize == self.active_count;
            bits &= u64::MAX << (first % 64);
            while bits != 0 && left > 0 {
                let context = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                self.cursor = context + 1;
                match self.contexts[context].as_mut().and_then(Context::next) {
                    Some(claim) => {
                        left -= 1;
                        sink(claim);
                    }
                    None => self.unmark(context),
                }
                if bits == 0 && is_only {
                    bits = self.active[word];
                }
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

    /// Stages what the rings hold, merging on the way, because the lane cannot take more now. True
    /// when anything waits.
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
                    waits |= context.waits();
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

    fn of(ring: Consumer<RequestClaim>) -> Context {
        let (staged, newest) = (VecDeque::new(), Newest::default());
        let (seen, staged_to, fetched_to) = (0, 0, 0);
        Context { ring, staged, seen, staged_to, fetched_to, newest, listed: false, quiet: 0 }
    }

    fn waits(&self) -> bool {
        !self.staged.is_empty() || self.ring.left_before(self.staged_to) > 0
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

    /// Prefetches all new slots before any is read, so that they come from the submitter's CPU
    /// together.
    fn fetch(&mut self) {
        self.fetched_to = self.ring.look(self.fetched_to, |claim| {
            claim.fetch();
            true
        });
    }

    fn stage(&mut self, limits: &Limits, nomerges: u8, lane: u16, now: Nanos, sink: impl Sink) {
        self.fetch();
        if self.staged.is_empty() && !self.stage_in_ring(nomerges, lane, now, sink) {
            return;
        }
        self.stage_apart(limits, nomerges, lane, now, sink);
    }

    /// Stages requests in the ring, as long as they touch none of the newest: to move each to the
    /// list and out of it is a third of what an I/O costs. True if the next may touch one, and has
    /// to be looked at in the list.
    fn stage_in_ring(&mut self, nomerges: u8, lane: u16, now: Nanos, sink: impl Sink) -> bool {
        let (newest, mut touches) = (&mut self.newest, false);
        self.staged_to = self.ring.look(self.staged_to, |claim| {
            let (start, end) = (claim.rq.sector, claim.rq.end());
            touches = nomerges < 2 && newest.may_touch(start, end);
            if !touches {
                newest.add(start, end);
                lane_tells(sink, lane, now, || What::Staged { rq: claim.rq });
            }
            !touches
        });
        touches
    }

    /// Stages the rest of the ring in the list.
    #[inline(never)]
    fn stage_apart(
        &mut self,
        limits: &Limits,
        nomerges: u8,
        lane: u16,
        now: Nanos,
        sink: impl Sink,
    ) {
        let Context { ring, staged, staged_to, .. } = self;
        let count = ring.left_before(*staged_to);
        ring.pop_each(count, |claim| staged.push_back(Waiting::of(claim)));
        while let Some(claim) = self.ring.pop() {
            self.stage_one(Waiting::of(claim), limits, nomerges, lane, now, sink);
        }
        self.ring.release();
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
        let mergeable = nomerges < 2 && !sequenced && claim.rq.is_mergeable();
        if mergeable && self.newest.may_touch(start, end) {
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
                        self.note_newest();
                        return;
                    }
                    Fit::TooLarge => {
                        other.rq.flags |= weir_bio::Flags::NOMERGE;
                        break;
                    }
                }
            }
        }
        self.newest.add(start, end);
        lane_tells(sink, lane, now, || What::Staged { rq: claim.rq });
        self.staged.push_back(waiting);
    }

    /// One of the newest has grown.
    fn note_newest(&mut self) {
        let newest = self.staged.iter().rev().take(LOOK_BACK).rev();
        newest.for_each(|waiting| self.newest.add(waiting.start, waiting.end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Bio, Buf, RqId, SubmitterId};
    use weir_ring::{Claim, Producer};

    use crate::event::Silent;
    use crate::request::{FlushStep, Request};

    /// Hands over reads of 8 sectors at these places.
    fn hand_over(ring: &mut Producer<RequestClaim>, context: usize, sectors: &[u64]) {
        for (n, sector) in sectors.iter().enumerate() {
            let id = RqId::new(SubmitterId(context as u16), n as u16, 0);
            let mut claim = Claim::new(Request::free(id));
            let mut bio = Bio::read(*sector, Buf::zeroed(4096));
            claim.fill(&mut bio, FlushStep::DATA, Nanos::ZERO);
            assert!(ring.push(claim).is_ok(), "there is room");
        }
        ring.publish();
    }

    /// A turn of a lane that is short of tags; whether anything waits.
    fn stage(soft: &mut Soft) -> bool {
        let limits = Limits { max_hw_sectors: 4096, ..Limits::default() };
        soft.look(|context| panic!("{context} is struck off"));
        soft.stage(&limits, 0, 0, Nanos::ZERO, Silent)
    }

    /// Reads of 8 sectors at these places, handed over and staged, by context.
    fn staged(contexts: &[&[u64]]) -> Soft {
        let mut soft = Soft::default();
        for (context, sectors) in contexts.iter().enumerate() {
            let (mut handed_over, ring) = weir_ring::ring(8);
            soft.attach(context, ring);
            hand_over(&mut handed_over, context, sectors);
        }
        assert!(stage(&mut soft), "something waits");
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
    fn what_is_staged_later_merges_with_the_eight_before_it_wherever_they_wait() {
        // Apart from one another; each round one more is staged between 0 and what would join it.
        for between in 0..12_u64 {
            let mut soft = Soft::default();
            let (mut handed_over, ring) = weir_ring::ring(32);
            soft.attach(0, ring);
            hand_over(&mut handed_over, 0, &[0]);
            assert!(stage(&mut soft));
            let others: Vec<u64> = (1..=between).map(|n| n * 100).collect();
            hand_over(&mut handed_over, 0, &others);
            assert!(stage(&mut soft));
            // The same place but for the 33rd bit touches nothing.
            hand_over(&mut handed_over, 0, &[8 + (1 << 32), 8]);
            assert!(stage(&mut soft));
            let merges = between + 1 < LOOK_BACK as u64;
            let first = if merges { (0, 16) } else { (0, 8) };
            let mut expected: Vec<_> = others.iter().map(|at| (*at, 8)).collect();
            expected.insert(0, first);
            expected.push((8 + (1 << 32), 8));
            expected.extend((!merges).then_some((8, 8)));
            assert_eq!(given(&mut soft, 32), expected, "{between} between");
            assert!(soft.is_empty());
        }
    }

    #[test]
    fn nothing_merges_with_what_has_left() {
        let mut soft = Soft::default();
        let (mut handed_over, ring) = weir_ring::ring(8);
        soft.attach(0, ring);
        hand_over(&mut handed_over, 0, &[0, 100]);
        assert!(stage(&mut soft));
        assert_eq!(given(&mut soft, 1), [(0, 8)]);
        hand_over(&mut handed_over, 0, &[8, 108]);
        assert!(stage(&mut soft));
        assert_eq!(given(&mut soft, 8), [(100, 16), (8, 8)]);
        assert!(!stage(&mut soft), "nothing waits any more");
    }

    #[test]
    fn a_quiet_submitter_is_struck_off_and_what_came_meanwhile_is_seen() {
        let mut soft = Soft::default();
        let (mut handed_over, ring) = weir_ring::ring(8);
        soft.attach(0, ring);
        assert!(!soft.has_news());
        (0..QUIET).for_each(|_| soft.look(|_| panic!("it is listed yet")));
        let mut struck = 0;
        soft.look(|context| {
            assert_eq!(context, 0);
            struck += 1;
            hand_over(&mut handed_over, 0, &[0]);
        });
        assert_eq!((struck, soft.has_news(), given(&mut soft, 8)), (1, false, vec![(0, 8)]));
        (0..QUIET).for_each(|_| soft.look(|_| panic!("it is listed yet")));
        soft.look(|_| struck += 1);
        hand_over(&mut handed_over, 0, &[8]);
        soft.look(|_| panic!("it is not listed"));
        assert_eq!((struck, soft.has_news(), given(&mut soft, 8)), (2, false, vec![]));
        assert!(soft.list(0) && soft.has_news());
        soft.look(|_| {});
        assert_eq!((soft.has_news(), given(&mut soft, 8)), (false, vec![(8, 8)]));
    }

    #[test]
    fn what_waits_in_its_ring_and_was_seen_is_no_news() {
        let mut soft = Soft::default();
        let (mut handed_over, ring) = weir_ring::ring(8);
        soft.attach(0, ring);
        hand_over(&mut handed_over, 0, &[0, 100]);
        assert!(soft.has_news());
        soft.look(|_| {});
        assert!(!soft.has_news() && !soft.is_empty());
        assert_eq!(given(&mut soft, 1), [(0, 8)]);
        assert!(!soft.has_news());
        hand_over(&mut handed_over, 0, &[200]);
        assert!(soft.has_news());
        assert_eq!(given(&mut soft, 8), [(100, 8), (200, 8)]);
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
    fn contexts_of_two_words_take_turns_in_one_go() {
        let mut contexts = vec![&[][..]; 66];
        (contexts[1], contexts[2], contexts[65]) = (&[10, 110], &[20, 120], &[30, 130]);
        let mut soft = staged(&contexts);
        let sectors: Vec<u64> = given(&mut soft, 6).into_iter().map(|(at, _)| at).collect();
        assert_eq!(sectors, [10, 20, 30, 110, 120, 130]);
    }

    #[test]
    fn a_mark_of_another_keeps_no_quiet_submitter_listed() {
        let mut soft = Soft::default();
        let rings = [0, 1].map(|context| {
            let (handed_over, ring) = weir_ring::ring(8);
            soft.attach(context, ring);
            handed_over
        });
        let mut struck = Vec::new();
        for _ in 0..=QUIET {
            // A roster shows all that are marked in a word when one is marked.
            assert!(soft.list(0) && soft.list(1));
            soft.look(|context| struck.push(context));
        }
        assert_eq!(struck, [0, 1]);
        drop(rings);
    }

    #[test]
    fn a_mark_that_comes_before_its_context_is_ignored() {
        let mut soft = Soft::default();
        soft.attach(0, weir_ring::ring(4).1);
        assert!(!soft.list(5) && !soft.list(70));
        soft.look(|_| {});
        let given = soft.give(true, 1, &mut |claim| panic!("{claim:?} was never sent"));
        soft.stage(&Limits::default(), 0, 0, weir_bio::Nanos::ZERO, crate::event::Silent);
        assert_eq!(given, 0);
    }
}

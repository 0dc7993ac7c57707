//! Requests that found no scheduler tag, and how many tags those under a depth limit hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use weir_bio::{Rq, SubmitterId};

use crate::request::RequestClaim;

/// Requests for which a scheduler's depth limit is the same: context, operation, sync or async.
type Kind = (SubmitterId, u8, bool);

/// Requests without a tag: a line for each kind, served in turn.
///
/// So a limit that holds back one kind holds up no other, and a context that sends much waits
/// behind its own requests, as a thread of Linux does that sleeps for a tag. A line that a depth
/// limit holds back keeps its turn and is asked first next time. Otherwise, of two lines under one
/// limit, one could be asked only while the limit is used up, and the other only while it has room.
#[derive(Default)]
pub(crate) struct Parked {
    lines: BTreeMap<Kind, VecDeque<RequestClaim>>,
    /// Lines that take turns.
    turns: BTreeSet<Kind>,
    /// Whose turn it was.
    last: Option<Kind>,
    /// Lines that a limit held back in their turn, the longest first.
    held_back: VecDeque<Kind>,
    len: usize,
    /// Lines that came to an end; kept for their memory.
    spare: Vec<VecDeque<RequestClaim>>,
}

fn kind_of(rq: &Rq) -> Kind {
    (rq.id.submitter(), rq.op as u8, rq.is_sync())
}

impl Parked {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether some of this kind wait already: then this one has to as well.
    pub(crate) fn has_like(&self, rq: &Rq) -> bool {
        self.len > 0 && self.lines.contains_key(&kind_of(rq))
    }

    /// Puts a request at the end of its line.
    pub(crate) fn push(&mut self, claim: RequestClaim) {
        let (kind, spare) = (kind_of(&claim.rq), &mut self.spare);
        let line = self.lines.entry(kind).or_insert_with(|| spare.pop().unwrap_or_default());
        if line.is_empty() {
            self.turns.insert(kind);
        }
        line.push_back(claim);
        self.len += 1;
    }

    /// The first request of the next line, whose turn it is now.
    pub(crate) fn next(&mut self) -> Option<RequestClaim> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.turns.range((after, Bound::Unbounded)).next();
        let kind = *behind.or_else(|| self.turns.first())?;
        self.last = Some(kind);
        let (claim, is_last) = self.take_first(kind);
        if is_last {
            self.turns.remove(&kind);
        }
        Some(claim)
    }

    /// The first request of a line that was held back, at this place of their list; it stays.
    pub(crate) fn held_back(&self, place: usize) -> Option<&Rq> {
        let line = self.lines.get(self.held_back.get(place)?)?;
        line.front().map(|claim| &claim.rq)
    }

    /// The first request of a line that was held back, at this place of their list.
    pub(crate) fn next_held_back(&mut self, place: usize) -> Option<RequestClaim> {
        let kind = self.held_back.remove(place)?;
        let (claim, is_last) = self.take_first(kind);
        if !is_last {
            self.turns.insert(kind);
        }
        Some(claim)
    }

    fn take_first(&mut self, kind: Kind) -> (RequestClaim, bool) {
        let line = self.lines.get_mut(&kind).expect("a line of each that waits");
        let claim = line.pop_front().expect("no line is empty");
        let is_last = line.is_empty();
        if is_last {
            self.spare.extend(self.lines.remove(&kind));
        }
        self.len -= 1;
        (claim, is_last)
    }

    /// Puts back a request that a limit holds back, and its line at this place of the list of
    /// these, or at the end.
    pub(crate) fn hold_back(&mut self, claim: RequestClaim, place: Option<usize>) {
        let (kind, spare) = (kind_of(&claim.rq), &mut self.spare);
        let line = self.lines.entry(kind).or_insert_with(|| spare.pop().unwrap_or_default());
        line.push_front(claim);
        self.len += 1;
        self.turns.remove(&kind);
        self.held_back.insert(place.unwrap_or(self.held_back.len()), kind);
    }
}

/// Tags held under depth limits: for each limit so many, at the place of the limit.
pub(crate) struct DepthUse(Vec<(u32, u16)>);

/// The place of a depth limit in a [`DepthUse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitPlace(u16);

impl LimitPlace {
    /// The place of what no limit holds for; the tags there are not counted.
    pub(crate) const FREE: LimitPlace = LimitPlace(0);
}

/// What stands at [`LimitPlace::FREE`]: above all limits there are.
const NO_LIMIT: u32 = u32::MAX;

impl Default for DepthUse {
    fn default() -> DepthUse {
        DepthUse(vec![(NO_LIMIT, 0)])
    }
}

impl DepthUse {
    /// Whether a request under this limit may have a tag: those that are as limited as it, or more,
    /// hold fewer.
    #[inline]
    pub(crate) fn admits(&self, limit: u16) -> bool {
        self.left(limit) > 0
    }

    /// How many of them may have one.
    #[inline]
    pub(crate) fn left(&self, limit: u16) -> u16 {
        let alike = self.0.iter().filter(|(other, _)| *other <= u32::from(limit));
        limit.saturating_sub(alike.map(|(_, held)| held).sum())
    }

    /// Whether requests under these limits, which are some of `kinds`, may all have one if they ask
    /// one after the other.
    #[inline]
    pub(crate) fn admits_each(
        &self,
        kinds: [u16; 2],
        mut limits: impl Iterator<Item = u16>,
    ) -> bool {
        let mut left = kinds.map(|kind| self.left(kind));
        limits.all(|limit| {
            let own = usize::from(limit != kinds[0]);
            let admitted = left[own] > 0;
            for (left, kind) in left.iter_mut().zip(kinds) {
                // It counts against every limit that is not below its own.
                *left = left.saturating_sub(u16::from(limit <= kind));
            }
            admitted
        })
    }

    /// Whether any is held.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.0[1..].iter().any(|(_, held)| *held > 0)
    }

    /// The places of these limits. Each stays its own until this is asked again.
    #[inline]
    pub(crate) fn places<const N: usize>(&mut self, limits: [Option<u16>; N]) -> [LimitPlace; N] {
        let limits = limits.map(|limit| limit.map_or(NO_LIMIT, u32::from));
        limits.map(|limit| {
            let known = self.0.iter().position(|(known, _)| *known == limit);
            LimitPlace(known.unwrap_or_else(|| self.new_place(limit, &limits)) as u16)
        })
    }

    /// A place for a limit that has none: of one of no use any more that is not `wanted` as well.
    #[cold]
    fn new_place(&mut self, limit: u32, wanted: &[u32]) -> usize {
        let of_no_use = |(other, held): &(u32, u16)| *held == 0 && !wanted.contains(other);
        match (1..self.0.len()).find(|place| of_no_use(&self.0[*place])) {
            Some(place) => {
                self.0[place].0 = limit;
                place
            }
            None => {
                self.0.push((limit, 0));
                self.0.len() - 1
            }
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, place: LimitPlace) {
        let held = &mut self.0[usize::from(place.0)].1;
        *held = held.wrapping_add(1);
    }

    #[inline]
    pub(crate) fn remove(&mut self, place: LimitPlace) {
        let held = &mut self.0[usize::from(place.0)].1;
        debug_assert!(place == LimitPlace::FREE || *held > 0, "a tag is given back once");
        *held = held.wrapping_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::RqId;
    use weir_ring::Claim;

    use crate::request::{Request, State};

    fn of(submitter: u16) -> RequestClaim {
        Claim::new(Request::free(RqId::new(SubmitterId(submitter), 0, 0)))
    }

    fn submitter_of(mut claim: RequestClaim) -> u16 {
        claim.state = State::Free;
        claim.rq.id.submitter().0
    }

    #[test]
    fn a_line_that_is_held_back_keeps_its_turn_before_those_that_have_had_theirs() {
        let mut parked = Parked::default();
        [1, 1, 2, 2, 3, 3].into_iter().for_each(|submitter| parked.push(of(submitter)));
        // A limit holds for 2 and 3, and 1 goes on whenever it does.
        let first = parked.next().map(submitter_of);
        for _ in 0..2 {
            let claim = parked.next().unwrap();
            parked.hold_back(claim, None);
        }
        assert_eq!((first, parked.next().map(submitter_of)), (Some(1), Some(1)));
        assert!(parked.next().is_none(), "the others wait for the limit");
        let claim = parked.next_held_back(0).unwrap();
        parked.hold_back(claim, Some(0));
        assert_eq!(parked.next_held_back(0).map(submitter_of), Some(2));
        assert_eq!(parked.next().map(submitter_of), Some(2), "it takes turns again");
        assert_eq!(parked.next_held_back(0).map(submitter_of), Some(3));
        assert_eq!(parked.next().map(submitter_of), Some(3));
        assert!(parked.is_empty() && parked.next_held_back(0).is_none());
    }

    #[test]
    fn a_batch_of_several_kinds_is_judged_as_if_they_came_one_by_one() {
        let (mut admitted, mut refused) = (0, 0);
        for seed in 0..2_000 {
            let mut prng = weir_bio::Prng::new(seed);
            let mut any = |most| prng.below(most) as u16;
            let kinds = [1 + any(12), 1 + any(12)];
            let mut held = DepthUse::default();
            for _ in 0..any(14) {
                hold(&mut held, [kinds[0], kinds[1], 1 + any(14)][usize::from(any(3))]);
            }
            let batch: Vec<u16> = (0..any(10)).map(|_| kinds[usize::from(any(2))]).collect();
            let all = held.admits_each(kinds, batch.iter().copied());
            let one_by_one = batch.iter().all(|limit| {
                let admits = held.admits(*limit);
                hold(&mut held, *limit);
                admits
            });
            assert_eq!(all, one_by_one, "seed {seed}: {batch:?} of {kinds:?}");
            if all { admitted += 1 } else { refused += 1 }
        }
        assert!(admitted > 100 && refused > 100, "{admitted} and {refused}");
    }

    #[test]
    fn a_limit_counts_those_as_limited_or_more() {
        let mut held = DepthUse::default();
        (0..5).for_each(|_| hold(&mut held, 12));
        (0..2).for_each(|_| hold(&mut held, 4));
        assert_eq!((held.left(4), held.left(12), held.left(1)), (2, 5, 1));
        hold(&mut held, 1);
        assert_eq!((held.left(4), held.left(12), held.admits(1)), (1, 4, false));
        give_back(&mut held, 1);
        (0..2).for_each(|_| give_back(&mut held, 4));
        assert_eq!((held.left(4), held.left(12)), (4, 7));
        for limit in 20..100 {
            hold(&mut held, limit);
            give_back(&mut held, limit);
        }
        assert_eq!(held.left(12), 7);
        assert!(held.0.len() <= 4, "limits of no use are forgotten: {:?}", held.0);
    }

    #[test]
    fn limits_asked_for_together_have_a_place_each_and_what_has_none_is_not_counted() {
        let mut held = DepthUse::default();
        for limit in 1..20 {
            let limits = [None, Some(limit), Some(limit + 1), Some(limit)];
            let [free, lower, higher, again] = held.places(limits);
            assert_eq!((free, lower), (LimitPlace::FREE, again));
            assert!(lower != higher && lower != free && higher != free, "{limit}");
            held.add(free);
            assert!(!held.is_any());
            held.add(lower);
            held.add(higher);
            assert_eq!((held.left(limit), held.left(limit + 1)), (limit - 1, limit - 1));
            [free, lower, higher].into_iter().for_each(|place| held.remove(place));
        }
    }

    fn hold(held: &mut DepthUse, limit: u16) {
        let [place] = held.places([Some(limit)]);
        held.add(place);
    }

    fn give_back(held: &mut DepthUse, limit: u16) {
        let [place] = held.places([Some(limit)]);
        held.remove(place);
    }
}

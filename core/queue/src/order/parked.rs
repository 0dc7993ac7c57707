//! Requests that found no scheduler tag, and how many tags those under a depth limit hold.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use weir_bio::{Rq, SubmitterId};

use crate::request::RequestClaim;

/// Requests for which a scheduler's depth limit is the same: context, operation, sync or async.
type Kind = (SubmitterId, u8, bool);

/// Requests without a tag: a line for each kind, served in turn.
///
/// A limit that holds back one kind so holds up no other, and a context that sends much waits
/// behind itself, as a thread of Linux does that sleeps for a tag.
#[derive(Default)]
pub(crate) struct Parked {
    lines: BTreeMap<Kind, VecDeque<RequestClaim>>,
    /// Whose turn it was.
    last: Option<Kind>,
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

    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Whether some of this kind wait already: then this one has to as well.
    pub(crate) fn has_like(&self, rq: &Rq) -> bool {
        self.len > 0 && self.lines.contains_key(&kind_of(rq))
    }

    /// Puts a request at the end of its line.
    pub(crate) fn push(&mut self, claim: RequestClaim) {
        let spare = &mut self.spare;
        let line = self.lines.entry(kind_of(&claim.rq));
        line.or_insert_with(|| spare.pop().unwrap_or_default()).push_back(claim);
        self.len += 1;
    }

    /// The first request of the next line, whose turn it is now.
    pub(crate) fn next(&mut self) -> Option<RequestClaim> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.lines.range((after, Bound::Unbounded)).next();
        let kind = *behind.or_else(|| self.lines.first_key_value())?.0;
        self.last = Some(kind);
        let line = self.lines.get_mut(&kind)?;
        let claim = line.pop_front()?;
        if line.is_empty() {
            self.spare.extend(self.lines.remove(&kind));
        }
        self.len -= 1;
        Some(claim)
    }

    /// Puts back what [`next`](Parked::next) gave; its line has had its turn.
    pub(crate) fn put_back(&mut self, claim: RequestClaim) {
        let spare = &mut self.spare;
        let line = self.lines.entry(kind_of(&claim.rq));
        line.or_insert_with(|| spare.pop().unwrap_or_default()).push_front(claim);
        self.len += 1;
    }
}

/// Tags held under depth limits.
#[derive(Default)]
pub(crate) struct DepthUse(Vec<(u16, u16)>);

/// Limits that are remembered although nothing is held under them.
const LIMITS_KEPT: usize = 8;

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
        let alike = self.0.iter().filter(|(other, _)| *other <= limit);
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
        self.0.iter().any(|(_, held)| *held > 0)
    }

    #[inline]
    pub(crate) fn add(&mut self, limit: u16) {
        match self.0.iter_mut().find(|(known, _)| *known == limit) {
            Some((_, held)) => *held += 1,
            None => self.add_new(limit),
        }
    }

    #[cold]
    fn add_new(&mut self, limit: u16) {
        if self.0.len() >= LIMITS_KEPT {
            self.0.retain(|(_, held)| *held > 0);
        }
        self.0.push((limit, 1));
    }

    #[inline]
    pub(crate) fn remove(&mut self, limit: u16) {
        let known = self.0.iter_mut().find(|(known, _)| *known == limit);
        known.expect("a tag is given back under the limit it was taken under").1 -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_several_kinds_is_judged_as_if_they_came_one_by_one() {
        let (mut admitted, mut refused) = (0, 0);
        for seed in 0..2_000 {
            let mut prng = weir_bio::Prng::new(seed);
            let mut any = |most| prng.below(most) as u16;
            let kinds = [1 + any(12), 1 + any(12)];
            let mut held = DepthUse::default();
            for _ in 0..any(14) {
                held.add([kinds[0], kinds[1], 1 + any(14)][usize::from(any(3))]);
            }
            let batch: Vec<u16> = (0..any(10)).map(|_| kinds[usize::from(any(2))]).collect();
            let all = held.admits_each(kinds, batch.iter().copied());
            let one_by_one = batch.iter().all(|limit| {
                let admits = held.admits(*limit);
                held.add(*limit);
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
        (0..5).for_each(|_| held.add(12));
        (0..2).for_each(|_| held.add(4));
        assert_eq!((held.left(4), held.left(12), held.left(1)), (2, 5, 1));
        held.add(1);
        assert_eq!((held.left(4), held.left(12), held.admits(1)), (1, 4, false));
        held.remove(1);
        (0..2).for_each(|_| held.remove(4));
        assert_eq!((held.left(4), held.left(12)), (4, 7));
        for limit in 20..100 {
            held.add(limit);
            held.remove(limit);
        }
        assert_eq!(held.left(12), 7);
        assert!(held.0.len() <= LIMITS_KEPT + 1);
    }
}

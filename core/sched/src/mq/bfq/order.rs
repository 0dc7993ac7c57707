//! A queue's requests in sector order.
//!
//! A sorted array with a gap where the last request left. A scheduler mostly takes the next one
//! upwards, which stands right behind the gap: that moves nothing, and an insert moves a quarter
//! of the array on average. Measured against trees in the design of the core, section C.

use weir_bio::SchedTag;

/// Room at first, in requests; it doubles when it is used up.
const FIRST_ROOM: usize = 16;

/// Tags by start sector; equal starts in the order they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    starts: Vec<u64>,
    tags: Vec<SchedTag>,
    /// The gap is `gap..gap_end`.
    gap: usize,
    gap_end: usize,
}

impl Order {
    pub(super) fn len(&self) -> usize {
        self.starts.len() - (self.gap_end - self.gap)
    }

    /// The tag at `rank` in sector order.
    pub(super) fn at(&self, rank: usize) -> Option<SchedTag> {
        let at = if rank < self.gap { rank } else { rank + (self.gap_end - self.gap) };
        self.tags.get(at).copied()
    }

    pub(super) fn insert(&mut self, start: u64, tag: SchedTag) {
        if self.gap == self.gap_end {
            self.widen();
        }
        let behind = &self.starts[self.gap_end..];
        if behind.first().is_some_and(|first| *first <= start) {
            let moved = behind.partition_point(|s| *s <= start);
            self.starts.copy_within(self.gap_end..self.gap_end + moved, self.gap_end - 1);
            self.tags.copy_within(self.gap_end..self.gap_end + moved, self.gap_end - 1);
            self.gap_end -= 1;
            self.starts[self.gap_end + moved] = start;
            self.tags[self.gap_end + moved] = tag;
        } else {
            let at = self.starts[..self.gap].partition_point(|s| *s <= start);
            self.starts.copy_within(at..self.gap, at + 1);
            self.tags.copy_within(at..self.gap, at + 1);
            self.gap += 1;
            self.starts[at] = start;
            self.tags[at] = tag;
        }
    }

    /// Takes out `tag`, which starts at `start`; says the rank it had.
    pub(super) fn remove(&mut self, start: u64, tag: SchedTag) -> usize {
        let behind = &self.starts[self.gap_end..];
        let mut at = if behind.first().is_some_and(|first| *first <= start)
            && self.starts[..self.gap].last().is_none_or(|last| *last < start)
        {
            self.gap + behind.partition_point(|s| *s < start)
        } else {
            self.starts[..self.gap].partition_point(|s| *s < start)
        };
        while self.at(at) != Some(tag) {
            at += 1;
        }
        self.move_gap(at);
        self.gap_end += 1;
        at
    }

    /// The first of those that start at `start`.
    pub(super) fn find(&self, start: u64) -> Option<SchedTag> {
        let before = &self.starts[..self.gap];
        if before.last().is_some_and(|last| *last >= start) {
            let at = before.partition_point(|s| *s < start);
            return (before[at] == start).then(|| self.tags[at]);
        }
        let behind = &self.starts[self.gap_end..];
        let at = behind.partition_point(|s| *s < start);
        (behind.get(at) == Some(&start)).then(|| self.tags[self.gap_end + at])
    }

    /// The rank of `tag`, which starts at `start`.
    pub(super) fn rank(&self, start: u64, tag: SchedTag) -> usize {
        let below = self.starts[..self.gap].partition_point(|s| *s < start);
        let mut at = below;
        if at == self.gap {
            at += self.starts[self.gap_end..].partition_point(|s| *s < start);
        }
        while self.at(at) != Some(tag) {
            at += 1;
        }
        at
    }

    fn move_gap(&mut self, rank: usize) {
        let width = self.gap_end - self.gap;
        if rank < self.gap {
            self.starts.copy_within(rank..self.gap, rank + width);
            self.tags.copy_within(rank..self.gap, rank + width);
        } else {
            self.starts.copy_within(self.gap_end..rank + width, self.gap);
            self.tags.copy_within(self.gap_end..rank + width, self.gap);
        }
        self.gap = rank;
        self.gap_end = rank + width;
    }

    fn widen(&mut self) {
        let used = self.starts.len();
        let more = used.max(FIRST_ROOM);
        let behind = used - self.gap;
        self.starts.resize(used + more, 0);
        self.tags.resize(used + more, SchedTag::NONE);
        self.starts.copy_within(self.gap..self.gap + behind, self.gap + more);
        self.tags.copy_within(self.gap..self.gap + behind, self.gap + more);
        self.gap_end = self.gap + more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    #[test]
    fn it_does_what_a_sorted_vector_does() {
        for seed in 0..50 {
            let mut prng = Prng::new(seed);
            let (mut order, mut model) = (Order::default(), Vec::<(u64, SchedTag)>::new());
            for step in 0..2000_u16 {
                if model.is_empty() || prng.percent(52) {
                    let start = prng.below(200);
                    let at = model.partition_point(|(s, _)| *s <= start);
                    model.insert(at, (start, SchedTag(step)));
                    order.insert(start, SchedTag(step));
                } else {
                    let at = prng.below(model.len() as u64) as usize;
                    let (start, tag) = model[at];
                    assert_eq!(order.rank(start, tag), at, "seed {seed}");
                    model.remove(at);
                    assert_eq!(order.remove(start, tag), at, "seed {seed}");
                }
                let sought = prng.below(200);
                let first = model.iter().find(|(s, _)| *s == sought).map(|(_, tag)| *tag);
                assert_eq!(order.find(sought), first, "seed {seed}");
            }
            let all: Vec<_> = (0..order.len()).map(|rank| order.at(rank).unwrap()).collect();
            assert_eq!(all, model.iter().map(|(_, tag)| *tag).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

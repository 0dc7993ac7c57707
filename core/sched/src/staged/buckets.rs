//! Buckets of equal width over the range of an order, with a bitmap of those in use.
//!
//! A few wide gaps between requests are left out of the range: a journal and its data lie far
//! apart, and partitions of a pool farther, so that all of each would share a bucket.

use weir_bio::SchedTag;

use super::node::Node;

const BUCKETS: usize = 256;

/// Gaps that are left out at most.
const GAPS_MAX: usize = 8;

/// One gap is left out for so many requests at most.
const REQUESTS_PER_GAP: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Buckets {
    /// First sector of bucket 0; lower ones go there as well.
    base: u64,
    /// A bucket is 2^shift sectors wide; what lies beyond the last goes there.
    shift: u32,
    /// Room between sectors that is taken out.
    gaps: Gaps,
    used: [u64; BUCKETS / 64],
    ends: [Ends; BUCKETS],
}

/// The first and the last of some in a row: of a bucket in use, or between two neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) first: SchedTag,
    pub(super) last: SchedTag,
}

impl Buckets {
    /// Over the range of the list with these ends, with all that is there.
    pub(super) fn with(nodes: &[Node], list: Ends) -> Buckets {
        let [base, most] = [list.first, list.last].map(|tag| nodes[tag.index()].rq.sector);
        let gaps = Gaps::between(nodes, list.first);
        let span = gaps.close(most - base);
        let bits = u64::BITS - span.leading_zeros();
        let none = Ends { first: SchedTag::NONE, last: SchedTag::NONE };
        let mut buckets = Buckets {
            base,
            shift: bits.saturating_sub(BUCKETS.trailing_zeros()),
            gaps,
            used: [0; BUCKETS / 64],
            ends: [none; BUCKETS],
        };
        let mut at = list.first;
        while at != SchedTag::NONE {
            let bucket = buckets.of(nodes[at.index()].rq.sector);
            if !buckets.is_used(bucket) {
                buckets.set_used(bucket, true);
                buckets.ends[bucket].first = at;
            }
            buckets.ends[bucket].last = at;
            at = nodes[at.index()].after;
        }
        buckets
    }

    /// Whether more than `most` of the list from `at` on are in one bucket.
    pub(super) fn is_crowded(&self, nodes: &[Node], mut at: SchedTag, most: u32) -> bool {
        let (mut bucket, mut count) = (0, 0);
        while at != SchedTag::NONE && count <= most {
            let of = self.of(nodes[at.index()].rq.sector);
            count = if of == bucket { count + 1 } else { 1 };
            (bucket, at) = (of, nodes[at.index()].after);
        }
        count > most
    }

    /// None is in use.
    pub(super) fn clear(&mut self) {
        self.used = [0; BUCKETS / 64];
    }

    /// The first and the last of a bucket in use.
    #[inline]
    pub(super) fn ends_of(&self, bucket: usize) -> Ends {
        self.ends[bucket]
    }

    /// `tag` is in this bucket from now on, between these two.
    #[inline(always)]
    pub(super) fn enter(
        &mut self,
        bucket: usize,
        tag: SchedTag,
        before: SchedTag,
        after: SchedTag,
    ) {
        // A bucket in use begins at this spot, ends, or does neither: that is chance, so no branch.
        let used = self.is_used(bucket);
        self.set_used(bucket, true);
        let ends = &mut self.ends[bucket];
        let (begins, ends_here) = (ends.first == after, ends.last == before);
        ends.first = if !used | begins { tag } else { ends.first };
        ends.last = if !used | ends_here { tag } else { ends.last };
    }

    /// `tag` is in its bucket no more; these are its neighbours.
    #[inline(always)]
    pub(super) fn leave(&mut self, sector: u64, tag: SchedTag, before: SchedTag, after: SchedTag) {
        let bucket = self.of(sector);
        let ends = &mut self.ends[bucket];
        // What it leaves behind is chance, and so no branch.
        let (first, last) = (ends.first == tag, ends.last == tag);
        ends.first = if first { after } else { ends.first };
        ends.last = if last { before } else { ends.last };
        self.set_used(bucket, !(first & last));
    }

    #[inline]
    pub(super) fn of(&self, sector: u64) -> usize {
        let mut place = sector.saturating_sub(self.base);
        if self.gaps.count > 0 {
            place = self.gaps.close(place);
        }
        (place >> self.shift).min(BUCKETS as u64 - 1) as usize
    }

    #[inline]
    pub(super) fn is_used(&self, bucket: usize) -> bool {
        self.used[bucket / 64] >> (bucket % 64) & 1 == 1
    }

    #[inline]
    fn set_used(&mut self, bucket: usize, used: bool) {
        let word = &mut self.used[bucket / 64];
        *word = *word & !(1 << (bucket % 64)) | u64::from(used) << (bucket % 64);
    }

    /// The first request of the buckets from this one on.
    #[inline]
    pub(super) fn first_from(&self, bucket: usize) -> SchedTag {
        self.first_of(bucket / 64, self.used[bucket / 64] & (u64::MAX << (bucket % 64)))
    }

    /// The first request of the buckets behind this one.
    #[inline]
    pub(super) fn first_behind(&self, bucket: usize) -> SchedTag {
        self.first_of(bucket / 64, self.used[bucket / 64] & (u64::MAX << 1 << (bucket % 64)))
    }

    /// The first request of the buckets of these bits of a word and of the words behind.
    #[inline]
    fn first_of(&self, mut word: usize, mut bits: u64) -> SchedTag {
        while bits == 0 {
            word += 1;
            if word == self.used.len() {
                return SchedTag::NONE;
            }
            bits = self.used[word];
        }
        self.ends[word * 64 + bits.trailing_zeros() as usize].first
    }
}

/// The gaps that are left out.
#[derive(Clone, Debug, Default)]
struct Gaps {
    count: usize,
    /// Ascending; what is not in use has no length.
    gaps: [Gap; GAPS_MAX],
}

/// Sectors that count as one, from `start` on behind the base of the buckets.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    start: u64,
    sectors: u64,
}

impl Gaps {
    /// The widest gaps of a list, if most of its range is in them.
    fn between(nodes: &[Node], first: SchedTag) -> Gaps {
        let sector_of = |tag: SchedTag| nodes[tag.index()].rq.sector;
        let base = sector_of(first);
        let mut widest: Vec<Gap> = Vec::with_capacity(GAPS_MAX + 1);
        let (mut at, mut requests) = (first, 1);
        let mut last = base;
        while let Some(after) = Some(nodes[at.index()].after).filter(|tag| *tag != SchedTag::NONE) {
            last = sector_of(after);
            let start = sector_of(at) - base;
            let gap = Gap { start, sectors: last - base - start };
            let place = widest.partition_point(|wide| wide.sectors >= gap.sectors);
            if place < GAPS_MAX {
                widest.insert(place, gap);
                widest.truncate(GAPS_MAX);
            }
            (at, requests) = (after, requests + 1);
        }
        widest.truncate(requests / REQUESTS_PER_GAP);
        // What is left out is wider than all that stays, so that ordinary gaps stay.
        while let Some(least) = widest.last().copied() {
            let out: u64 = widest.iter().map(|gap| gap.sectors).sum();
            if least.sectors > last - base - out {
                break;
            }
            widest.pop();
        }
        widest.sort_unstable_by_key(|gap| gap.start);
        let mut gaps = Gaps { count: widest.len(), ..Gaps::default() };
        gaps.gaps[..widest.len()].copy_from_slice(&widest);
        gaps
    }

    /// How far behind the base a sector is without the gaps.
    #[inline(never)]
    fn close(&self, place: u64) -> u64 {
        // Each without a branch: which lie before it is chance.
        let out = self.gaps[..self.count]
            .iter()
            .map(|gap| place.saturating_sub(gap.start).min(gap.sectors));
        place - out.sum::<u64>()
    }
}

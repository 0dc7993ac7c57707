//! Staged requests found by the sector where they end: the back-merge look-up.
//!
//! Among equal ends the most recently added is met first, and only that one is considered
//! (docs/behaviour/deadline.md, section 1).

use weir_bio::SchedTag;

/// So many buckets that a chain practically never has two entries. Whether a look-up finds one can
/// then be predicted; with longer chains the branch would be a matter of luck.
const BUCKETS_FOR_A_TAG: usize = 4;

/// Chains of scheduler tags, keyed by end sector. Room for one entry per tag, made once.
#[derive(Clone, Debug)]
pub struct MergeHash {
    buckets: Vec<SchedTag>,
    /// Bits of a hash that are no part of the bucket's number.
    shift: u32,
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    end: u64,
    next: SchedTag,
    held: bool,
}

impl MergeHash {
    /// For tags 0..`tags`.
    #[must_use]
    pub fn new(tags: u16) -> MergeHash {
        let unheld = Link { end: 0, next: SchedTag::NONE, held: false };
        let buckets = BUCKETS_FOR_A_TAG * usize::from(tags).next_power_of_two().max(64);
        MergeHash {
            buckets: vec![SchedTag::NONE; buckets],
            shift: u64::BITS - buckets.trailing_zeros(),
            links: vec![unheld; usize::from(tags)],
        }
    }

    #[inline]
    fn bucket(&self, end: u64) -> usize {
        // Fibonacci hashing: ends are multiples of a block, so the low bits alone say little.
        (end.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// Adds `tag`, which ends at `end`, before all others of that end.
    #[inline]
    pub fn add(&mut self, tag: SchedTag, end: u64) {
        let bucket = self.bucket(end);
        let link = &mut self.links[usize::from(tag.0)];
        assert!(!link.held, "tag {} is in the merge hash already", tag.0);
        *link = Link { end, next: self.buckets[bucket], held: true };
        self.buckets[bucket] = tag;
    }

    /// Removes `tag` if it is there.
    #[inline]
    pub fn remove(&mut self, tag: SchedTag) {
        let link = self.links[usize::from(tag.0)];
        if !link.held {
            return;
        }
        self.links[usize::from(tag.0)].held = false;
        let bucket = self.bucket(link.end);
        if self.buckets[bucket] == tag {
            self.buckets[bucket] = link.next;
            return;
        }
        self.remove_behind(self.buckets[bucket], tag);
    }

    /// Removes `tag` from the chain from `at` on, where it is not the first.
    #[inline(never)]
    fn remove_behind(&mut self, mut at: SchedTag, tag: SchedTag) {
        while self.links[usize::from(at.0)].next != tag {
            at = self.links[usize::from(at.0)].next;
        }
        self.links[usize::from(at.0)].next = self.links[usize::from(tag.0)].next;
    }

    /// The most recently added tag that ends at `end`.
    #[must_use]
    #[inline]
    pub fn find(&self, end: u64) -> Option<SchedTag> {
        let mut at = self.buckets[self.bucket(end)];
        while at != SchedTag::NONE {
            let link = &self.links[usize::from(at.0)];
            if link.end == end {
                return Some(at);
            }
            at = link.next;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_equal_ends_is_found_and_the_older_one_after_it_left() {
        let mut hash = MergeHash::new(4);
        for tag in 0..3 {
            hash.add(SchedTag(tag), 64);
        }
        hash.add(SchedTag(3), 128);
        assert_eq!(hash.find(64), Some(SchedTag(2)));
        hash.remove(SchedTag(1));
        hash.remove(SchedTag(2));
        assert_eq!(hash.find(64), Some(SchedTag(0)));
        hash.remove(SchedTag(0));
        hash.remove(SchedTag(0));
        assert_eq!((hash.find(64), hash.find(128)), (None, Some(SchedTag(3))));
    }
}

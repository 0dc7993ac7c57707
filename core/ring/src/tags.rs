//! Tag words: a set of tags several lanes share, a bit each, spread over cache lines.
//!
//! Freeing sets a bit in a second, "cleared" word; an allocator that finds a word full takes the
//! cleared bits in with one exchange (docs/behaviour/block-layer.md, section 7.2). A free thus
//! never touches the line that allocators fight over.
//!
//! # Waiting for a tag
//! `TagWords` wakes no lane; lanes that share it share [`PendingBits`](crate::PendingBits) as well,
//! a bit for each lane that waits. A waiting lane says that it sleeps
//! ([`prepare_sleep`](crate::Doorbell::prepare_sleep)), marks itself, tries again, and only then
//! sleeps. In this order: a mark made while awake may be spent on a ring that does not wake. (Or
//! the ringer marks the lane in its home's own pending bits, at which the home looks between
//! `prepare_sleep` and sleep: then a lane may mark itself at any time, and tries again.) The lane
//! that frees a tag fences, takes the marks and rings those lanes. A lane that takes a tag looks at
//! the marks as well, without a fence: while it takes cleared bits in, they are in neither word, so
//! a lane may go to sleep beside tags that came back and were not all taken.

use std::ops::Range;

use crate::sync::{Alone, AtomicU64, Ordering, fence};

/// Tags 0..`depth`, in words of at most 64.
#[derive(Debug)]
pub struct TagWords {
    words: Box<[Word]>,
    bits_per_word: u32,
    depth: u16,
}

#[derive(Debug)]
struct Word {
    /// A set bit is a tag that is out.
    out: Alone<AtomicU64>,
    /// A set bit is a tag given back and not taken in yet; always also set in `out`.
    cleared: Alone<AtomicU64>,
    /// Bits that stand for tags.
    mask: u64,
}

impl TagWords {
    /// Every tag free. Bits per word: 64, halved while four words would exceed the depth.
    ///
    /// # Panics
    /// When `depth` is 0.
    #[must_use]
    pub fn new(depth: u16) -> TagWords {
        assert_ne!(depth, 0, "a tag set of depth 0");
        let mut bits_per_word = 64;
        while depth >= 4 && bits_per_word > 1 && bits_per_word * 4 > u32::from(depth) {
            bits_per_word /= 2;
        }
        let words = (0..u32::from(depth).div_ceil(bits_per_word))
            .map(|index| {
                let bits = (u32::from(depth) - index * bits_per_word).min(bits_per_word);
                let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
                Word { out: Alone(AtomicU64::new(0)), cleared: Alone(AtomicU64::new(0)), mask }
            })
            .collect();
        TagWords { words, bits_per_word, depth }
    }

    /// Tags in all.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Words the tags are spread over.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words.len()
    }

    /// Takes up to `max` tags, from the word `hint` on, in one step where one word has enough;
    /// appends them to `out` and returns how many there were. Tags outside `within` are left alone.
    /// It may be fewer than there are, as a word with any tag left does not take its cleared ones
    /// in; 0 is a shortage.
    pub fn take(&self, hint: usize, max: usize, within: &Range<u16>, out: &mut Vec<u16>) -> usize {
        let (mut taken, start) = (0, hint % self.words.len());
        for step in 0..self.words.len() {
            if taken == max {
                break;
            }
            let index = (start + step) % self.words.len();
            let first = index as u32 * self.bits_per_word;
            let allowed = below(within.end, first) & !below(within.start, first);
            let mut bits = self.words[index].take(max - taken, allowed);
            while bits != 0 {
                out.push((first + bits.trailing_zeros()) as u16);
                bits &= bits - 1;
                taken += 1;
            }
        }
        taken
    }

    /// Takes one of the reserved tags 0..`reserved`.
    #[must_use]
    pub fn take_reserved(&self, reserved: u16) -> Option<u16> {
        for (index, word) in self.words.iter().enumerate() {
            let first = index as u32 * self.bits_per_word;
            let bits = word.take(1, below(reserved, first));
            if bits != 0 {
                return Some((first + bits.trailing_zeros()) as u16);
            }
        }
        None
    }

    /// Gives a tag back.
    ///
    /// # Panics
    /// When it was given back before and not taken in since. Debug builds look at the allocators'
    /// line too and panic whenever it was not out.
    #[inline]
    pub fn free(&self, tag: u16) {
        let word = &self.words[usize::from(tag) / self.bits_per_word as usize];
        let bit = 1 << (u32::from(tag) % self.bits_per_word);
        debug_assert_ne!(word.out.load(Ordering::Relaxed) & bit, 0, "tag {tag} was not out");
        let before = word.cleared.fetch_or(bit, Ordering::AcqRel);
        assert_eq!(before & bit, 0, "tag {tag} was freed twice");
    }

    /// Tags that are out, now.
    #[must_use]
    pub fn out(&self) -> u32 {
        self.words.iter().map(|word| word.out().count_ones()).sum()
    }

    /// Tags `within` a range that could be taken now.
    #[must_use]
    pub fn free_within(&self, within: &Range<u16>) -> u32 {
        let words = self.words.iter().enumerate().map(|(index, word)| {
            let first = index as u32 * self.bits_per_word;
            let asked = below(within.end, first) & !below(within.start, first);
            (word.mask & asked & !word.out()).count_ones()
        });
        words.sum()
    }
}

/// The bits of a word that starts with tag `first` which stand for tags below `end`.
fn below(end: u16, first: u32) -> u64 {
    match u32::from(end).saturating_sub(first) {
        bits if bits >= 64 => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

impl Word {
    fn out(&self) -> u64 {
        // `cleared` first: a bit moves out of both at once, and never back in between.
        let cleared = self.cleared.load(Ordering::Acquire);
        self.out.load(Ordering::Acquire) & !cleared
    }

    /// Takes up to `max` of the `allowed` bits; returns them.
    fn take(&self, max: usize, allowed: u64) -> u64 {
        let allowed = self.mask & allowed;
        if allowed == 0 {
            return 0;
        }
        let mut seen = self.out.load(Ordering::Relaxed);
        loop {
            let free = allowed & !seen;
            if free == 0 {
                if !self.take_in_cleared() {
                    return 0;
                }
                seen = self.out.load(Ordering::Relaxed);
                if allowed & !seen == 0 {
                    // The tags that came back are outside the allowed range, or another lane was
                    // faster.
                    return 0;
                }
                continue;
            }
            let wanted = lowest(free, max);
            match self.out.compare_exchange_weak(
                seen,
                seen | wanted,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return wanted,
                Err(now) => seen = now,
            }
        }
    }

    fn take_in_cleared(&self) -> bool {
        if self.cleared.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let cleared = self.cleared.swap(0, Ordering::AcqRel);
        self.out.fetch_and(!cleared, Ordering::AcqRel);
        // Pairs with the fence of a lane that marks itself as waiting: it sees these bits when it
        // tries again, or the caller of this sees its mark.
        fence(Ordering::SeqCst);
        cleared != 0
    }
}

/// The lowest `max` set bits.
fn lowest(bits: u64, max: usize) -> u64 {
    if bits.count_ones() as usize <= max {
        return bits;
    }
    let mut rest = bits;
    for _ in 0..max {
        rest &= rest - 1;
    }
    bits & !rest
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_are_laid_out_as_linux_does() {
        for (depth, words) in [(128, 4), (256, 4), (64, 4), (4, 4), (3, 1), (1, 1), (1024, 16)] {
            assert_eq!(TagWords::new(depth).words(), words, "depth {depth}");
        }
    }

    #[test]
    fn every_tag_is_handed_out_once_and_again_after_it_came_back() {
        for depth in [1, 2, 3, 4, 5, 31, 64, 100, 1024] {
            let words = TagWords::new(depth);
            let mut out = Vec::new();
            for round in 0..3 {
                out.clear();
                while words.take(round, 7, &(0..depth), &mut out) > 0 {}
                out.sort_unstable();
                assert_eq!(out, (0..depth).collect::<Vec<_>>());
                assert_eq!(words.out(), u32::from(depth));
                out.iter().for_each(|tag| words.free(*tag));
                assert_eq!(words.out(), 0);
            }
        }
    }

    #[test]
    fn reserved_tags_go_to_reserved_requests_only() {
        let words = TagWords::new(8);
        let mut out = Vec::new();
        while words.take(0, 8, &(3..8), &mut out) > 0 {}
        out.sort_unstable();
        assert_eq!(out, [3, 4, 5, 6, 7]);
        let reserved: Vec<_> = std::iter::from_fn(|| words.take_reserved(3)).collect();
        assert_eq!(reserved, [0, 1, 2]);
    }

    #[test]
    fn tags_outside_the_range_stay_where_they_are() {
        let words = TagWords::new(256);
        let mut out = Vec::new();
        while words.take(2, 50, &(60..130), &mut out) > 0 {}
        out.sort_unstable();
        assert_eq!(out, (60..130).collect::<Vec<_>>());
        words.free(129);
        assert_eq!((words.free_within(&(60..130)), words.free_within(&(0..129))), (1, 60));
        assert_eq!(words.take(0, 1, &(0..129), &mut out), 1);
        assert_eq!(out.last(), Some(&0), "the one that came back is outside");
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_noticed() {
        let words = TagWords::new(4);
        words.take(0, 1, &(0..u16::MAX), &mut Vec::new());
        words.free(0);
        words.free(0);
    }

    #[test]
    #[should_panic(expected = "tag 3 was not out")]
    #[cfg(debug_assertions)]
    fn freeing_what_was_never_taken_is_noticed() {
        TagWords::new(4).free(3);
    }

    #[test]
    fn any_hint_will_do() {
        let mut out = Vec::new();
        assert_eq!(TagWords::new(256).take(usize::MAX, 1, &(0..256), &mut out), 1);
        assert_eq!(out, [192], "2^64 - 1 is word 3 of 4");
    }
}

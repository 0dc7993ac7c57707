//! Pending bits: which of up to 4,096 sources have something for one owner.
//!
//! A bit is written only on its way from 0 to 1, so a busy source costs its owner's line nothing.

use crate::sync::{Alone, AtomicU64, Ordering, fence, fetch_to_write};

/// The pending bits of one owner: a bit for each source, with a summary word on top if there is
/// more than one word of sources.
#[derive(Debug)]
pub struct PendingBits {
    /// A bit for each of the words; without any, one for each source.
    summary: Alone<AtomicU64>,
    words: Box<[AtomicU64]>,
}

impl PendingBits {
    /// Most sources.
    pub const SOURCES_MAX: usize = 4096;

    /// For sources 0..`sources`.
    ///
    /// # Panics
    /// Above [`PendingBits::SOURCES_MAX`].
    #[must_use]
    pub fn new(sources: usize) -> PendingBits {
        assert!(sources <= Self::SOURCES_MAX, "{sources} sources, at most {}", Self::SOURCES_MAX);
        let words = if sources > 64 { sources.div_ceil(64) } else { 0 };
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        PendingBits { summary: Alone(AtomicU64::new(0)), words }
    }

    /// How many sources there is room for: what was asked for, rounded up to whole words.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.words.len().max(1) * 64
    }

    /// Marks `source` after something of it was published. It fences in between, so a doorbell may
    /// follow with [`ring_ordered`](crate::Doorbell::ring_ordered).
    #[inline]
    pub fn mark(&self, source: usize) {
        // Either the owner's clearing sees what was published, or this sees the bit clear.
        fence(Ordering::SeqCst);
        let bit = 1 << (source % 64);
        let word = self.word(source);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
            if !self.words.is_empty() {
                self.summary.fetch_or(1 << (source / 64), Ordering::AcqRel);
            }
            // For the doorbell: the bits must be seen by an owner about to sleep.
            fence(Ordering::SeqCst);
        }
    }

    /// The word with this source's bit.
    #[inline]
    fn word(&self, source: usize) -> &AtomicU64 {
        if self.words.is_empty() {
            assert!(source < 64, "source {source} of 64");
            return &self.summary;
        }
        &self.words[source / 64]
    }

    /// Brings what [`take`](PendingBits::take) changes nearer: another's CPU may have it.
    #[inline]
    pub fn fetch(&self) {
        fetch_to_write(&raw const *self.summary);
    }

    /// Whether any bit is set.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.summary.load(Ordering::Relaxed) != 0
    }

    /// Whether this source is marked and not taken since.
    #[inline]
    #[must_use]
    pub fn has(&self, source: usize) -> bool {
        self.word(source).load(Ordering::Relaxed) & 1 << (source % 64) != 0
    }

    /// Clears up to `max` bits, from source `from` on and round again, and calls `visit` for each;
    /// one for which that answers false does not count. How many counted. Sources that share an
    /// owner are so told in turn, each once in a round.
    ///
    /// The summary may be clear for a moment while a bit below it is set: a caller that found
    /// nothing in that moment relies on this one, which is to fence and look again at what it tells
    /// of.
    pub fn take_some(
        &self,
        from: usize,
        max: usize,
        mut visit: impl FnMut(usize) -> bool,
    ) -> usize {
        let words = self.words.len().max(1);
        let (first, mut taken) = (from / 64 % words, 0);
        for step in 0..=words {
            let index = (first + step) % words;
            let head = u64::MAX << (from % 64);
            let within = match step {
                0 => head,
                _ if step == words => !head,
                _ => u64::MAX,
            };
            while taken < max
                && let Some(bit) = self.take_bit(index, within)
            {
                taken += usize::from(visit(index * 64 + bit));
            }
        }
        taken
    }

    /// Clears the lowest bit of a word that is `within` and set.
    fn take_bit(&self, index: usize, within: u64) -> Option<usize> {
        let word = self.word(index * 64);
        loop {
            let bits = word.load(Ordering::Relaxed) & within;
            if bits == 0 {
                return None;
            }
            let bit = bits & bits.wrapping_neg();
            if self.clear_bits(index, bit) {
                // As in `Rest::visit`: look at the source only after its bit is clear.
                fence(Ordering::SeqCst);
                return Some(bit.trailing_zeros() as usize);
            }
        }
    }

    /// Clears one source's mark; whether it was set.
    pub fn clear(&self, source: usize) -> bool {
        self.clear_bits(source / 64, 1 << (source % 64))
    }

    fn clear_bits(&self, index: usize, bit: u64) -> bool {
        let word = self.word(index * 64);
        let before = word.fetch_and(!bit, Ordering::AcqRel);
        if before == bit && !self.words.is_empty() {
            self.summary.fetch_and(!(1 << index), Ordering::AcqRel);
            // A source that marked itself in between found the summary set.
            if word.load(Ordering::Acquire) != 0 {
                self.summary.fetch_or(1 << index, Ordering::AcqRel);
            }
        }
        before & bit != 0
    }

    /// Clears all bits and calls `visit` for each that was set, ascending. Data published before a
    /// mark is visible inside `visit`. After a panic in `visit` those not yet visited are marked
    /// again.
    #[inline]
    pub fn take(&self, mut visit: impl FnMut(usize)) {
        if !self.any() {
            return;
        }
        let taken = self.summary.swap(0, Ordering::AcqRel);
        let (summary, bits) = if self.words.is_empty() { (0, taken) } else { (taken, 0) };
        let mut rest = Rest { pending: self, summary, index: 0, bits };
        if bits != 0 {
            rest.visit(&mut visit);
        }
        while rest.summary != 0 {
            rest.index = rest.summary.trailing_zeros() as usize;
            rest.summary &= rest.summary - 1;
            // Acquire for what was published, release for the thread that finds the bit clear and
            // sets the summary again: that comes after its clearing above.
            rest.bits = self.words[rest.index].swap(0, Ordering::AcqRel);
            rest.visit(&mut visit);
        }
    }
}

/// The marks that are taken and not visited yet. A bit that stays set below a clear summary would
/// never be seen again, because a source that is marked is not marked again: so it goes back if a
/// visit panics.
struct Rest<'a> {
    pending: &'a PendingBits,
    summary: u64,
    index: usize,
    bits: u64,
}

impl Rest<'_> {
    /// Visits those of one word.
    #[inline]
    fn visit(&mut self, visit: &mut impl FnMut(usize)) {
        // Pairs with the fence in `mark`: look at the sources only after their bits are clear.
        fence(Ordering::SeqCst);
        while self.bits != 0 {
            let bit = self.bits.trailing_zeros() as usize;
            self.bits &= self.bits - 1;
            visit(self.index * 64 + bit);
        }
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if self.bits != 0 {
            self.pending.word(self.index * 64).fetch_or(self.bits, Ordering::AcqRel);
            // Without words below they are where they belong.
            if !self.pending.words.is_empty() {
                self.summary |= 1 << self.index;
            }
        }
        if self.summary != 0 {
            self.pending.summary.fetch_or(self.summary, Ordering::AcqRel);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn marked_sources_are_visited_once_in_order() {
        let pending = PendingBits::new(4096);
        for source in [4095, 3, 64, 3] {
            pending.mark(source);
        }
        let mut seen = Vec::new();
        pending.take(|source| seen.push(source));
        assert_eq!(seen, [3, 64, 4095]);
        pending.take(|source| panic!("source {source} visited again"));
    }

    #[test]
    fn some_are_taken_in_turn_and_the_rest_stays_marked() {
        let pending = PendingBits::new(4096);
        [4095, 3, 64, 70].into_iter().for_each(|source| pending.mark(source));
        let take = |from, max| {
            let mut seen = Vec::new();
            let taken = pending.take_some(from, max, |source| {
                seen.push(source);
                source != 70
            });
            (taken, seen)
        };
        assert_eq!(take(65, 1), (1, vec![70, 4095]), "70 does not count");
        assert!(pending.any() && !pending.has(4095));
        pending.mark(2);
        assert_eq!(take(3, 9), (3, vec![3, 64, 2]), "round again, and 2 is the last of all");
        assert!(!pending.any());
        pending.mark(64);
        assert!(pending.clear(64) && !pending.clear(64) && !pending.any());
    }

    #[test]
    fn a_visit_that_panics_leaves_the_rest_marked() {
        let pending = PendingBits::new(4096);
        a_panic_at_the_first_leaves_the_rest(&pending, &[3, 5, 64, 4095]);
    }

    #[test]
    fn a_visit_that_panics_leaves_the_rest_of_a_single_word_marked() {
        let pending = PendingBits::new(64);
        a_panic_at_the_first_leaves_the_rest(&pending, &[3, 5, 63]);
    }

    fn a_panic_at_the_first_leaves_the_rest(pending: &PendingBits, sources: &[usize]) {
        sources.iter().for_each(|source| pending.mark(*source));
        assert!(sources.iter().all(|source| pending.has(*source)));
        let visit = |source| assert_ne!(source, sources[0], "as arranged");
        let visits = std::panic::AssertUnwindSafe(|| pending.take(visit));
        assert!(std::panic::catch_unwind(visits).is_err());
        let mut seen = Vec::new();
        pending.take(|source| seen.push(source));
        assert_eq!(seen, sources[1..]);
        assert!(!pending.any() && sources.iter().all(|source| !pending.has(*source)));
    }
}

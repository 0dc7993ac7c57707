//! Pending bits: which of up to 4,096 sources have something for one owner.
//!
//! A bit is written only on its way from 0 to 1, so a busy source costs its owner's line nothing.

use crate::sync::{Alone, AtomicU64, Ordering, fence};

/// One bit a source, with a summary word on top.
#[derive(Debug)]
pub struct Pending {
    summary: Alone<AtomicU64>,
    words: Box<[AtomicU64]>,
}

impl Pending {
    /// Most sources.
    pub const SOURCES_MAX: usize = 4096;

    /// For sources 0..`sources`.
    ///
    /// # Panics
    /// Above [`Pending::SOURCES_MAX`].
    #[must_use]
    pub fn new(sources: usize) -> Pending {
        assert!(sources <= Self::SOURCES_MAX, "{sources} sources, at most {}", Self::SOURCES_MAX);
        let words = (0..sources.div_ceil(64).max(1)).map(|_| AtomicU64::new(0)).collect();
        Pending { summary: Alone(AtomicU64::new(0)), words }
    }

    /// How many sources there is room for: what was asked for, rounded up to whole words.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.words.len() * 64
    }

    /// Marks `source` after something of it was published. It fences in between, so a doorbell may
    /// follow with [`ring_fenced`](crate::Doorbell::ring_fenced).
    #[inline]
    pub fn mark(&self, source: usize) {
        // Either the owner's clearing sees what was published, or this sees the bit clear.
        fence(Ordering::SeqCst);
        let bit = 1 << (source % 64);
        let word = &self.words[source / 64];
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
            self.summary.fetch_or(1 << (source / 64), Ordering::AcqRel);
            // For the doorbell: the bits must be seen by an owner about to sleep.
            fence(Ordering::SeqCst);
        }
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
        self.words[source / 64].load(Ordering::Relaxed) & 1 << (source % 64) != 0
    }

    /// Clears all bits and calls `visit` for each that was set, ascending. What was published
    /// before a mark is visible inside `visit`. After a panic in `visit` those not yet visited are
    /// marked again.
    #[inline]
    pub fn take(&self, mut visit: impl FnMut(usize)) {
        if !self.any() {
            return;
        }
        let summary = self.summary.swap(0, Ordering::AcqRel);
        let mut rest = Rest { pending: self, summary, index: 0, bits: 0 };
        while rest.summary != 0 {
            rest.index = rest.summary.trailing_zeros() as usize;
            rest.summary &= rest.summary - 1;
            // Acquire for what was published, release for whoever finds the bit clear and sets the
            // summary again: that comes after its clearing above.
            rest.bits = self.words[rest.index].swap(0, Ordering::AcqRel);
            // Pairs with the fence in `mark`: look at the sources only after their bits are clear.
            fence(Ordering::SeqCst);
            while rest.bits != 0 {
                let bit = rest.bits.trailing_zeros() as usize;
                rest.bits &= rest.bits - 1;
                visit(rest.index * 64 + bit);
            }
        }
    }
}

/// What is taken and not visited yet. A bit that stays set below a clear summary would never be
/// seen again, as nobody marks what is marked: so it goes back if a visit panics.
struct Rest<'a> {
    pending: &'a Pending,
    summary: u64,
    index: usize,
    bits: u64,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if self.bits != 0 {
            self.pending.words[self.index].fetch_or(self.bits, Ordering::AcqRel);
            self.summary |= 1 << self.index;
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
        let pending = Pending::new(4096);
        for source in [4095, 3, 64, 3] {
            pending.mark(source);
        }
        let mut seen = Vec::new();
        pending.take(|source| seen.push(source));
        assert_eq!(seen, [3, 64, 4095]);
        pending.take(|source| panic!("source {source} visited again"));
    }

    #[test]
    fn a_visit_that_panics_leaves_the_rest_marked() {
        let pending = Pending::new(4096);
        for source in [3, 5, 64, 4095] {
            pending.mark(source);
        }
        let visit = |source| assert_ne!(source, 3, "as arranged");
        let visits = std::panic::AssertUnwindSafe(|| pending.take(visit));
        assert!(std::panic::catch_unwind(visits).is_err());
        let mut seen = Vec::new();
        pending.take(|source| seen.push(source));
        assert_eq!(seen, [5, 64, 4095]);
    }
}

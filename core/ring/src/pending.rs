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

    /// Clears all bits and calls `visit` for each that was set, ascending. What was published
    /// before a mark is visible inside `visit`.
    #[inline]
    pub fn take(&self, mut visit: impl FnMut(usize)) {
        if !self.any() {
            return;
        }
        let mut summary = self.summary.swap(0, Ordering::AcqRel);
        while summary != 0 {
            let index = summary.trailing_zeros() as usize;
            summary &= summary - 1;
            let mut bits = self.words[index].swap(0, Ordering::AcqRel);
            // Pairs with the fence in `mark`: look at the sources only after their bits are clear.
            fence(Ordering::SeqCst);
            while bits != 0 {
                visit(index * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
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
}

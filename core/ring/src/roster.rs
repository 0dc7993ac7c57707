//! A roster: which of an owner's many things are to be looked at in each of its rounds.
//!
//! A bit stays set for as long as the owner goes on looking. So marking a thing in use costs one
//! load of a line that is not written; a thing at rest costs its owner nothing.
//!
//! The wake-up rule with it: *publish, fence, mark, ring*. The owner takes the marks and looks at
//! what is marked, round after round. To stop it *strikes* the bit, which fences, and looks once
//! more; if it finds something it marks the thing itself.

use crate::sync::{Alone, AtomicU64, AtomicUsize, Ordering, fence};

/// The marks of one owner's things: a bit for each place, and above them a bit for each word in
/// which one was set.
#[derive(Debug)]
pub struct Roster {
    /// A bit for every 64th word, and so for all if there are no more.
    news: Alone<AtomicU64>,
    /// The last word in which one was ever set: an owner with few things looks at few words.
    last: AtomicUsize,
    words: Box<[AtomicU64]>,
}

impl Roster {
    /// For places 0..`places`. None is marked.
    #[must_use]
    pub fn new(places: usize) -> Roster {
        let words = (0..places.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Roster { news: Alone(AtomicU64::new(0)), last: AtomicUsize::new(0), words }
    }

    /// Marks `place` after something of it was published, and a fence. A doorbell may follow with
    /// [`ring_ordered`](crate::Doorbell::ring_ordered). A load where it is marked already.
    ///
    /// # Panics
    /// Beyond the last place.
    #[inline]
    pub fn mark_ordered(&self, place: usize) {
        let (word, bit) = (&self.words[place / 64], 1 << (place % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            self.set(place, bit);
        }
    }

    #[cold]
    fn set(&self, place: usize, bit: u64) {
        // Release: the owner that takes the mark finds what was published.
        self.words[place / 64].fetch_or(bit, Ordering::AcqRel);
        // Before the news, so that the owner that takes them finds this. It never falls, so one
        // that is far enough is left alone: writing it takes its line, in which all threads look
        // up the words, away from them.
        if self.last.load(Ordering::Relaxed) < place / 64 {
            self.last.fetch_max(place / 64, Ordering::Relaxed);
        }
        self.news.fetch_or(1 << (place / 64 % 64), Ordering::AcqRel);
        // For the doorbell: the marks must be seen by an owner about to sleep.
        fence(Ordering::SeqCst);
    }

    /// Whether something may have been marked since the last [`take`](Roster::take).
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.news.load(Ordering::Relaxed) != 0
    }

    /// The owner's: calls `visit` with all that has been marked since it last took, and with some
    /// that it knows. All of them stay marked.
    #[inline]
    pub fn take(&self, visit: impl FnMut(usize)) {
        if self.any() {
            self.take_news(visit);
        }
    }

    #[cold]
    fn take_news(&self, mut visit: impl FnMut(usize)) {
        let mut news = self.news.swap(0, Ordering::AcqRel);
        let end = self.last.load(Ordering::Relaxed) + 1;
        while news != 0 {
            let first = news.trailing_zeros() as usize;
            news &= news - 1;
            for index in (first..end).step_by(64) {
                let mut bits = self.words[index].load(Ordering::Acquire);
                while bits != 0 {
                    visit(index * 64 + bits.trailing_zeros() as usize);
                    bits &= bits - 1;
                }
            }
        }
    }

    /// The owner's: `place` is not looked at any more unless it is marked again. Whatever was
    /// published before a mark that found the bit set is visible afterwards, so the owner has to
    /// look once more.
    pub fn strike(&self, place: usize) {
        self.words[place / 64].fetch_and(!(1 << (place % 64)), Ordering::AcqRel);
        // Pairs with the fence before `mark_ordered`: what was published is seen, or the bit is
        // found clear.
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn taken(roster: &Roster) -> Vec<usize> {
        let mut taken = Vec::new();
        roster.take(|place| taken.push(place));
        taken
    }

    #[test]
    fn what_is_marked_is_taken_once_and_again_after_it_was_struck() {
        let roster = Roster::new(65_536);
        assert!(!roster.any());
        let places = [65_535, 0, 63, 64, 4095, 4096];
        places.iter().for_each(|place| roster.mark_ordered(*place));
        let mut all = taken(&roster);
        all.sort_unstable();
        assert_eq!(all, [0, 63, 64, 4095, 4096, 65_535]);
        places.iter().for_each(|place| roster.mark_ordered(*place));
        assert!(!roster.any() && taken(&roster).is_empty(), "what is known is no news");
        roster.strike(4096);
        assert!(!roster.any());
        roster.mark_ordered(4096);
        assert!(taken(&roster).contains(&4096));
    }
}

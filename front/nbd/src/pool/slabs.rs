//! Long pieces, side by side in slabs of a huge page each, so that the disk finds the memory of a
//! piece in one run of the machine's. A slab goes back to the system whole.
//!
//! A piece is taken from the first slab that has one free, so that the last slabs become free. No
//! slab is added while another has a place: so there never are more than were once needed at the
//! same time, whatever a client keeps.

use weir_bio::{Buf, BufPool};

use super::PIECE;

/// Bytes of a slab: a huge page.
pub(super) const SLAB: usize = 2 << 20;

const PLACES: usize = SLAB / PIECE;

/// The slabs of one reactor. Pieces come back on any thread, and without a word.
#[derive(Default)]
pub(super) struct Slabs {
    slabs: Vec<BufPool>,
}

impl Slabs {
    /// A piece that is free.
    pub(super) fn take(&mut self) -> Option<Buf> {
        self.slabs.iter().find_map(BufPool::take)
    }

    /// A piece of a new slab; `None`: there is no memory for a slab.
    pub(super) fn grow(&mut self) -> Option<Buf> {
        let slab = BufPool::try_new(PIECE, PLACES)?;
        let piece = slab.take();
        self.slabs.push(slab);
        piece
    }

    pub(super) fn has_free(&self) -> bool {
        self.slabs.iter().any(|slab| slab.free() > 0)
    }

    /// Whether there is no slab, free or in use.
    pub(super) fn is_empty(&self) -> bool {
        self.slabs.is_empty()
    }

    /// Gives a slab without a piece in use back to the system, while more than `kept` bytes are
    /// free in all. Whether there is another to give back.
    pub(super) fn give_back(&mut self, kept: usize) -> bool {
        // All of it may be free.
        if self.slabs.len() * SLAB <= kept {
            return false;
        }
        let free: usize = self.slabs.iter().map(BufPool::free).sum();
        let surplus = (free * PIECE).saturating_sub(kept).div_ceil(SLAB);
        let idle: Vec<usize> = (0..self.slabs.len()).filter(|at| self.is_idle(*at)).collect();
        match idle.last() {
            Some(last) if surplus > 0 => {
                self.slabs.remove(*last);
                surplus.min(idle.len()) > 1
            }
            _ => false,
        }
    }

    fn is_idle(&self, at: usize) -> bool {
        self.slabs[at].free() == PLACES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_slab_is_added_while_another_has_a_place() {
        let mut slabs = Slabs::default();
        let mut taken = Vec::new();
        let take = |slabs: &mut Slabs| slabs.take().or_else(|| slabs.grow()).expect("memory");
        for count in 1..=3 * PLACES {
            taken.push(take(&mut slabs));
            assert_eq!(slabs.slabs.len(), count.div_ceil(PLACES));
        }
        assert!(!slabs.has_free());
        // Every other piece comes back, and all of them are found again.
        let mut at = 0;
        taken.retain(|_| {
            at += 1;
            at % 2 == 0
        });
        assert!(slabs.has_free());
        while taken.len() < 3 * PLACES {
            taken.push(take(&mut slabs));
        }
        assert_eq!(slabs.slabs.len(), 3);
    }

    #[test]
    fn slabs_are_given_back_one_by_one_and_none_with_a_piece_in_use() {
        let mut slabs = Slabs::default();
        let mut taken: Vec<Buf> = (0..5).filter_map(|_| slabs.grow()).collect();
        assert!(!slabs.give_back(0), "each has one in use");
        assert_eq!(slabs.slabs.len(), 5);
        let kept = taken.remove(1);
        drop(taken);
        assert!(slabs.give_back(2 * SLAB));
        assert!(slabs.give_back(2 * SLAB));
        assert!(!slabs.give_back(2 * SLAB), "no more than was to be kept");
        assert_eq!(slabs.slabs.len(), 2);
        assert!(!slabs.give_back(0));
        assert_eq!(slabs.slabs.len(), 1, "the one whose piece is in use");
        drop(kept);
        assert!(!slabs.give_back(0));
        assert!(slabs.is_empty());
    }

    #[test]
    fn the_first_slab_with_a_free_place_is_used_first() {
        let mut slabs = Slabs::default();
        let first = slabs.grow().expect("memory");
        let place = first.as_ptr();
        let _second = slabs.grow();
        drop(first);
        assert_eq!(slabs.take().map(|buf| buf.as_ptr()), Some(place));
    }
}

//! Long pieces, side by side in slabs of a huge page each, so that the disk finds the memory of a
//! piece in one run of the machine's. A slab goes back to the system whole, but for one in which a
//! client keeps a piece: the memory of its free places does, when it is more than is in use, and in
//! a pause.
//!
//! A piece is taken from the first slab, by address, that has one free, so that others become free.
//! No slab is added while another is known to have a place. A piece that is given back is known;
//! one that is dropped (a read that was cut, and on whatever thread I/O that outlives its client)
//! is found when all slabs are looked through: in a pause, and before a slab is added if so many
//! pieces were taken since the last time that the look is a small part of what they cost. So a
//! reactor has hardly more slabs than it once needed at the same time, whatever a client keeps.

use std::collections::{BTreeMap, BTreeSet};

use weir_bio::{Buf, BufPool};

use super::PIECE;

/// Bytes of a slab: a huge page.
pub(super) const SLAB: usize = 2 << 20;

const PLACES: usize = SLAB / PIECE;

/// Slabs that are looked through for each piece that was taken. One costs some 20 ns, to fill a
/// piece some 50 us.
const LOOKS: usize = 4;

/// The slabs of one reactor.
#[derive(Default)]
pub(super) struct Slabs {
    /// By the address of their first place.
    slabs: BTreeMap<usize, Slab>,
    /// Those with a place that is known to be free, and those without a piece in use.
    open: BTreeSet<usize>,
    idle: BTreeSet<usize>,
    /// Those with a place that is known to be free and has its memory.
    backed: BTreeSet<usize>,
    /// Places that are known to be free.
    free: usize,
    /// Of them those that have their memory.
    free_backed: usize,
    /// Pieces taken since all slabs were looked through.
    taken: usize,
}

struct Slab {
    places: BufPool,
    /// Those that are known to be free, and of them those that have their memory.
    free: usize,
    backed: usize,
}

impl Slabs {
    /// A piece that is known to be free and has its memory.
    pub(super) fn take(&mut self) -> Option<Buf> {
        self.taken += 1;
        let at = *self.backed.first()?;
        self.take_of(at)
    }

    /// One that is known to be free and has no memory yet.
    pub(super) fn take_empty(&mut self) -> Option<Buf> {
        let at = *self.open.first()?;
        self.take_of(at)
    }

    fn take_of(&mut self, at: usize) -> Option<Buf> {
        let piece = self.slabs.get(&at)?.places.take();
        self.look_at_one(at);
        piece
    }

    /// A piece that was not known to be free, or one of a new slab; `None`: there is no memory for
    /// a slab.
    pub(super) fn grow(&mut self) -> Option<Buf> {
        if self.slabs.len() <= self.taken * LOOKS {
            self.look();
            if let Some(piece) = self.take() {
                return Some(piece);
            }
        }
        let places = BufPool::try_new(PIECE, PLACES)?;
        // In their order: the first one begins where the slab does.
        let piece = places.take()?;
        let at = piece.as_ptr() as usize;
        self.slabs.insert(at, Slab { places, free: 0, backed: 0 });
        self.look_at_one(at);
        Some(piece)
    }

    /// Takes a piece back, or another buffer of that length.
    pub(super) fn give(&mut self, piece: Buf) {
        let start = piece.as_ptr() as usize;
        drop(piece);
        let slab = self.slabs.range(..=start).next_back().map(|(at, _)| *at);
        if let Some(at) = slab.filter(|at| start - at < SLAB) {
            self.look_at_one(at);
        }
    }

    /// Whether there is a piece to [take](Slabs::take).
    pub(super) fn has_free(&self) -> bool {
        !self.backed.is_empty()
    }

    /// Places that are known to be free and have their memory.
    #[cfg(test)]
    pub(super) fn free_backed(&self) -> usize {
        self.free_backed
    }

    /// Bytes of pieces that are in use, as far as is known.
    pub(super) fn in_use(&self) -> usize {
        (self.slabs.len() * PLACES - self.free) * PIECE
    }

    /// Whether there is no slab, free or in use.
    pub(super) fn is_empty(&self) -> bool {
        self.slabs.is_empty()
    }

    /// Gives a slab without a piece in use back to the system, while more than `kept` bytes of
    /// memory are known to be free in all. Whether there is another to give back.
    pub(super) fn give_back(&mut self, kept: usize) -> bool {
        if self.free_backed * PIECE <= kept {
            return false;
        }
        if let Some(at) = self.idle.pop_last() {
            self.note(at, 0, 0);
            self.slabs.remove(&at);
        }
        self.free_backed * PIECE > kept && !self.idle.is_empty()
    }

    /// The same with the memory of what is free in a slab of which a piece is in use, where no slab
    /// can be given back.
    pub(super) fn empty(&mut self, kept: usize) -> bool {
        if self.free_backed * PIECE <= kept || !self.idle.is_empty() {
            return false;
        }
        // Pieces are taken from the first.
        if let Some(&at) = self.backed.last()
            && let Some(slab) = self.slabs.get(&at)
        {
            slab.places.empty_free();
            self.look_at_one(at);
        }
        self.free_backed * PIECE > kept
    }

    /// Finds the pieces that came back without a word.
    pub(super) fn look(&mut self) {
        let all: Vec<usize> = self.slabs.keys().copied().collect();
        all.into_iter().for_each(|at| self.look_at_one(at));
        self.taken = 0;
    }

    fn look_at_one(&mut self, at: usize) {
        if let Some(slab) = self.slabs.get(&at) {
            // In this order: others may put a piece back meanwhile.
            let backed = slab.places.backed();
            self.note(at, slab.places.free(), backed);
        }
    }

    /// So many places of a slab are free, and so many of them have their memory.
    fn note(&mut self, at: usize, free: usize, backed: usize) {
        let Some(slab) = self.slabs.get_mut(&at) else { return };
        self.free = self.free - slab.free + free;
        self.free_backed = self.free_backed - slab.backed + backed;
        (slab.free, slab.backed) = (free, backed);
        let sets = [&mut self.open, &mut self.idle, &mut self.backed];
        for (set, is_member) in sets.into_iter().zip([free > 0, free == PLACES, backed > 0]) {
            match is_member {
                true => set.insert(at),
                false => set.remove(&at),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slabs: &mut Slabs) -> Buf {
        slabs.take().or_else(|| slabs.grow()).expect("memory")
    }

    #[test]
    fn no_slab_is_added_while_another_is_known_to_have_a_place() {
        let mut slabs = Slabs::default();
        let mut taken = Vec::new();
        for count in 1..=3 * PLACES {
            taken.push(take(&mut slabs));
            assert_eq!(slabs.slabs.len(), count.div_ceil(PLACES));
        }
        assert!(!slabs.has_free());
        // Every other piece comes back, and all of them are found again.
        for at in (0..taken.len()).rev().step_by(2) {
            slabs.give(taken.swap_remove(at));
        }
        assert!(slabs.has_free());
        while taken.len() < 3 * PLACES {
            taken.push(take(&mut slabs));
        }
        assert_eq!((slabs.slabs.len(), slabs.free), (3, 0));
    }

    #[test]
    fn pieces_that_come_back_without_a_word_are_found_before_there_are_many_more_slabs() {
        let mut slabs = Slabs::default();
        let first: Vec<Buf> = (0..40 * PLACES).map(|_| take(&mut slabs)).collect();
        assert_eq!(slabs.slabs.len(), 40);
        drop(first);
        assert!(!slabs.has_free());
        let second: Vec<Buf> = (0..40 * PLACES).map(|_| take(&mut slabs)).collect();
        assert!(slabs.slabs.len() <= 42, "{}", slabs.slabs.len());
        drop(second);
        slabs.look();
        assert_eq!(slabs.free, slabs.slabs.len() * PLACES);
        while slabs.give_back(0) {}
        assert!(slabs.is_empty() && slabs.free == 0 && !slabs.has_free());
    }

    #[test]
    fn pieces_that_always_come_back_without_a_word_take_no_more_slabs_in_the_long_run() {
        let mut slabs = Slabs::default();
        for round in 0..1000 {
            let pieces: Vec<Buf> = (0..16 * PLACES).map(|_| take(&mut slabs)).collect();
            drop(pieces);
            slabs.give_back(16 << 20);
            assert!(slabs.slabs.len() <= 20, "{} in round {round}", slabs.slabs.len());
        }
        // Nor are there more because there once were many.
        let many: Vec<Buf> = (0..200 * PLACES).map(|_| take(&mut slabs)).collect();
        many.into_iter().for_each(|piece| slabs.give(piece));
        while slabs.give_back(0) {}
        for _ in 0..200 * PLACES {
            drop(take(&mut slabs));
        }
        assert!(slabs.slabs.len() <= 2, "{} for one piece at a time", slabs.slabs.len());
    }

    #[test]
    fn slabs_are_given_back_one_by_one_and_none_with_a_piece_in_use() {
        let mut slabs = Slabs::default();
        let mut taken: Vec<Buf> = (0..5 * PLACES).map(|_| take(&mut slabs)).collect();
        assert!(!slabs.give_back(0), "each has one in use");
        let kept = taken.remove(PLACES + 3);
        taken.into_iter().for_each(|piece| slabs.give(piece));
        assert!(slabs.give_back(2 * SLAB));
        assert!(slabs.give_back(2 * SLAB));
        assert!(!slabs.give_back(2 * SLAB), "no more than was to be kept");
        assert_eq!(slabs.slabs.len(), 2);
        assert!(!slabs.give_back(0));
        assert_eq!(slabs.slabs.len(), 1, "the one whose piece is in use");
        slabs.give(kept);
        assert!(!slabs.give_back(0));
        assert!(slabs.is_empty());
    }

    #[test]
    fn free_places_beside_pieces_in_use_give_their_memory_back_and_are_used_again() {
        let mut slabs = Slabs::default();
        let taken: Vec<Buf> = (0..5 * PLACES).map(|_| take(&mut slabs)).collect();
        // One of each stays, and all of the first that was made.
        let mut kept = Vec::new();
        for (at, piece) in taken.into_iter().enumerate() {
            match at < PLACES || at % PLACES == 3 {
                true => kept.push(piece),
                false => slabs.give(piece),
            }
        }
        assert_eq!((slabs.in_use(), slabs.free_backed), (12 * PIECE, 4 * (PLACES - 1)));
        assert!(!slabs.give_back(0) && !slabs.empty(28 * PIECE), "so much may be kept");
        assert!(slabs.empty(14 * PIECE) && !slabs.empty(14 * PIECE));
        assert_eq!((slabs.free, slabs.free_backed), (28, 14));
        assert!(slabs.empty(0) && !slabs.empty(0) && !slabs.has_free());
        assert_eq!((slabs.free, slabs.free_backed, slabs.slabs.len()), (28, 0, 5));
        // A piece of a slab comes back: it has memory, and is taken before those that have none.
        let back = kept.pop().expect("the last");
        let start = back.as_ptr();
        slabs.give(back);
        assert!(slabs.has_free());
        // Nothing is in use in its slab, which goes whole.
        assert!(!slabs.empty(0));
        assert_eq!(slabs.take().expect("it has memory").as_ptr(), start);
        assert!(slabs.take().is_none());
        let again: Vec<Buf> = std::iter::from_fn(|| slabs.take_empty()).collect();
        assert_eq!((again.len(), slabs.slabs.len(), slabs.free), (29, 5, 0));
    }

    #[test]
    fn pieces_lie_in_the_first_slabs_and_those_that_go_back_are_the_last() {
        let mut slabs = Slabs::default();
        let taken: Vec<Buf> = (0..4 * PLACES).map(|_| take(&mut slabs)).collect();
        let at: Vec<usize> = slabs.slabs.keys().copied().collect();
        let in_slab = |slabs: &Slabs, number: usize| slabs.slabs.contains_key(&at[number]);
        let (mut kept, free): (Vec<Buf>, Vec<Buf>) = taken
            .into_iter()
            .partition(|piece| (piece.as_ptr() as usize - at[0]).is_multiple_of(SLAB));
        free.into_iter().for_each(|piece| slabs.give(piece));
        assert_eq!(slabs.free_backed, 4 * (PLACES - 1));
        assert!(slabs.empty(3 * (PLACES - 1) * PIECE - 1));
        assert_eq!(slabs.free_backed, 3 * (PLACES - 1));
        let piece = slabs.take().expect("it has memory");
        assert!(piece.as_ptr() as usize - at[0] < SLAB, "it is of the first");
        slabs.give(piece);
        // All but the third are idle.
        kept.sort_by_key(|piece| piece.as_ptr());
        let third = kept.remove(2);
        kept.into_iter().for_each(|piece| slabs.give(piece));
        let all = slabs.free_backed * PIECE;
        assert!(!slabs.give_back(all) && in_slab(&slabs, 3), "so much may be kept");
        assert!(slabs.give_back(0) && !in_slab(&slabs, 3) && in_slab(&slabs, 0));
        assert!(!slabs.give_back(0) || !in_slab(&slabs, 1));
        drop(third);
    }

    #[test]
    fn slabs_are_not_looked_through_for_each_that_is_added() {
        let mut slabs = Slabs::default();
        let mut taken: Vec<Buf> = (0..20 * LOOKS * PLACES).map(|_| take(&mut slabs)).collect();
        // So it finds nothing, and all are looked through.
        slabs.look();
        taken.pop();
        let count = slabs.slabs.len();
        taken.push(take(&mut slabs));
        assert_eq!(slabs.slabs.len(), count + 1, "the piece that came back is not known");
        while slabs.slabs.len() < count + 4 {
            taken.push(take(&mut slabs));
        }
        assert_eq!(taken.len(), (count + 3) * PLACES + 1, "it was found");
    }

    #[test]
    fn a_buffer_of_another_make_is_dropped() {
        let mut slabs = Slabs::default();
        let piece = take(&mut slabs);
        (0..8).for_each(|_| slabs.give(Buf::zeroed(PIECE)));
        assert_eq!(slabs.free, PLACES - 1);
        slabs.give(piece);
        assert_eq!(slabs.free, PLACES);
    }
}

//! A binary heap of entities by virtual time, from which any entity can be taken.
//!
//! Virtual times wrap, so two are compared by the sign of their difference. Equal ones leave in
//! the order of their sequence numbers, that is, in the order in which they were stamped.

use super::entity::EntityId;

/// The key that a heap is ordered by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// Compared first.
    pub(super) first: u64,
    /// Compared when the first ones are equal.
    pub(super) second: u64,
    /// Compared last; never equal.
    pub(super) seq: u64,
}

/// Whether virtual time `a` is later than `b`.
pub(super) fn is_after(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) as i64 > 0
}

impl Key {
    fn is_before(&self, other: &Key) -> bool {
        if self.first != other.first {
            return is_after(other.first, self.first);
        }
        if self.second != other.second {
            return is_after(other.second, self.second);
        }
        self.seq < other.seq
    }
}

/// The heap. Its callers bring the table of slots: the place of each entity in the heap it is in,
/// apart from the entities, so that moving some up or down leaves their memory alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    slots: Vec<(Key, EntityId)>,
}

impl Heap {
    pub(super) fn top(&self) -> Option<(&Key, EntityId)> {
        self.slots.first().map(|(key, id)| (key, *id))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn push(&mut self, places: &mut [u32], key: Key, id: EntityId) {
        self.slots.push((key, id));
        self.rise(places, self.slots.len() - 1, (key, id));
    }

    /// Takes `id` out; it must be in this heap.
    pub(super) fn remove(&mut self, places: &mut [u32], id: EntityId) {
        let mut hole = places[id.index()] as usize;
        debug_assert!(self.slots[hole].1 == id, "an entity has its place");
        let last = self.slots.pop().expect("it is in this heap");
        let len = self.slots.len();
        if hole == len {
            return;
        }
        // The hole goes down to a leaf, a comparison a level. The last entry belongs near there in
        // general; if not, it rises along the way on which the hole came.
        while 2 * hole + 1 < len {
            let (left, right) = (2 * hole + 1, 2 * hole + 2);
            let right_first = right < len && self.slots[right].0.is_before(&self.slots[left].0);
            let child = if right_first { right } else { left };
            self.put(places, hole, self.slots[child]);
            hole = child;
        }
        self.rise(places, hole, last);
    }

    /// Puts `entry` where it belongs on the way from `hole`, which is free, to the top.
    fn rise(&mut self, places: &mut [u32], mut hole: usize, entry: (Key, EntityId)) {
        while hole > 0 {
            let parent = (hole - 1) / 2;
            if !entry.0.is_before(&self.slots[parent].0) {
                break;
            }
            self.put(places, hole, self.slots[parent]);
            hole = parent;
        }
        self.put(places, hole, entry);
    }

    #[inline(always)]
    fn put(&mut self, places: &mut [u32], slot: usize, entry: (Key, EntityId)) {
        self.slots[slot] = entry;
        places[entry.1.index()] = slot as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use weir_bio::Prng;

    #[test]
    fn the_top_is_the_least_of_those_that_are_there_whichever_are_taken_out() {
        let seed = 5;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let (mut heap, mut places, mut model) = (Heap::default(), vec![0; 300], BTreeMap::new());
        let mut key_of = vec![None; 300];
        for seq in 0..20_000 {
            let id = EntityId(prng.below(300) as u32);
            match key_of[id.index()].take() {
                Some(key) => {
                    heap.remove(&mut places, id);
                    model.remove(&key);
                }
                None => {
                    let (first, second) = (prng.below(20), prng.below(3));
                    heap.push(&mut places, Key { first, second, seq }, id);
                    model.insert((first, second, seq), id);
                    key_of[id.index()] = Some((first, second, seq));
                }
            }
            let least = model.first_key_value().map(|(_, id)| *id);
            assert_eq!(heap.top().map(|(_, id)| id), least);
            assert_eq!(heap.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn virtual_times_are_compared_across_their_wrap() {
        let key = |first, second, seq| Key { first, second, seq };
        for (a, b) in [
            (key(u64::MAX, 9, 9), key(1, 0, 0)),
            (key(5, u64::MAX, 9), key(5, 1, 0)),
            (key(5, 7, 1), key(5, 7, 2)),
        ] {
            assert!(a.is_before(&b) && !b.is_before(&a), "{a:?} {b:?}");
        }
    }
}

//! A binary heap of entities by virtual time, from which any entity can be taken.
//!
//! Virtual times wrap, so two are compared by the sign of their difference. Equal ones leave in
//! the order of their sequence numbers, that is, in the order in which they were stamped.

use super::entity::{Entity, EntityId};

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

/// The heap. Each entity in it knows its slot.
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

    pub(super) fn push(&mut self, entities: &mut [Entity], key: Key, id: EntityId) {
        self.slots.push((key, id));
        self.rise(entities, self.slots.len() - 1);
    }

    /// Takes `id` out; it must be in this heap.
    pub(super) fn remove(&mut self, entities: &mut [Entity], id: EntityId) {
        let slot = entities[id.index()].slot as usize;
        debug_assert!(self.slots[slot].1 == id, "an entity knows its slot");
        self.slots.swap_remove(slot);
        if slot < self.slots.len() {
            let slot = self.rise(entities, slot);
            self.sink(entities, slot);
        }
    }

    fn rise(&mut self, entities: &mut [Entity], mut slot: usize) -> usize {
        while slot > 0 {
            let parent = (slot - 1) / 2;
            if !self.slots[slot].0.is_before(&self.slots[parent].0) {
                break;
            }
            self.slots.swap(slot, parent);
            entities[self.slots[slot].1.index()].slot = slot as u32;
            slot = parent;
        }
        entities[self.slots[slot].1.index()].slot = slot as u32;
        slot
    }

    fn sink(&mut self, entities: &mut [Entity], mut slot: usize) {
        loop {
            let mut least = slot;
            for child in [2 * slot + 1, 2 * slot + 2] {
                if child < self.slots.len() && self.slots[child].0.is_before(&self.slots[least].0) {
                    least = child;
                }
            }
            if least == slot {
                break;
            }
            self.slots.swap(slot, least);
            entities[self.slots[slot].1.index()].slot = slot as u32;
            slot = least;
        }
        entities[self.slots[slot].1.index()].slot = slot as u32;
    }
}

//! Keys in ascending order, in one piece of memory that is kept.
//!
//! Queues of a scheduler hold few requests each and few queues are busy, and both come and go at
//! the ends: a ring with binary search allocates nothing per entry, which a tree would.

use std::collections::VecDeque;

/// Ascending keys, each there once. A key carries what makes it unique and what it stands for.
#[derive(Clone, Debug)]
pub struct Sorted<K> {
    keys: VecDeque<K>,
}

impl<K> Default for Sorted<K> {
    fn default() -> Sorted<K> {
        Sorted { keys: VecDeque::new() }
    }
}

impl<K: Ord + Copy> Sorted<K> {
    /// Adds a key that is not there.
    pub fn insert(&mut self, key: K) {
        if self.keys.back().is_none_or(|last| *last < key) {
            self.keys.push_back(key);
            return;
        }
        let at = self.keys.partition_point(|other| *other < key);
        self.keys.insert(at, key);
    }

    /// Removes a key that is there.
    ///
    /// # Panics
    /// When it is not: the owner has lost count of where its keys are.
    pub fn remove(&mut self, key: K) {
        let at = self.keys.binary_search(&key).expect("a key is removed where it was inserted");
        self.keys.remove(at);
    }

    /// Removes a key that is there for another that is not.
    ///
    /// # Panics
    /// As [`remove`](Sorted::remove).
    pub fn replace(&mut self, old: K, new: K) {
        let at = self.keys.binary_search(&old).expect("a key is removed where it was inserted");
        let below = at.checked_sub(1).and_then(|below| self.keys.get(below));
        if below.is_none_or(|below| *below < new)
            && self.keys.get(at + 1).is_none_or(|above| new < *above)
        {
            self.keys[at] = new;
            return;
        }
        self.keys.remove(at);
        self.insert(new);
    }

    /// The least key.
    #[must_use]
    pub fn first(&self) -> Option<K> {
        self.keys.front().copied()
    }

    /// The greatest key.
    #[must_use]
    pub fn last(&self) -> Option<K> {
        self.keys.back().copied()
    }

    /// The least key that is not below `key`.
    #[must_use]
    pub fn at_or_after(&self, key: K) -> Option<K> {
        self.keys.get(self.keys.partition_point(|other| *other < key)).copied()
    }

    /// The keys that are not below `key`, ascending.
    pub fn from(&self, key: K) -> impl Iterator<Item = K> {
        let at = self.keys.partition_point(|other| *other < key);
        self.keys.range(at..).copied()
    }

    /// The least key above `key`.
    #[must_use]
    pub fn after(&self, key: K) -> Option<K> {
        self.keys.get(self.keys.partition_point(|other| *other <= key)).copied()
    }

    /// The greatest key below `key`.
    #[must_use]
    pub fn before(&self, key: K) -> Option<K> {
        let at = self.keys.partition_point(|other| *other < key);
        at.checked_sub(1).and_then(|at| self.keys.get(at)).copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    #[test]
    fn it_agrees_with_a_tree_over_random_keys() {
        let seed = 11;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut sorted = Sorted::default();
        let mut tree = std::collections::BTreeSet::new();
        for _ in 0..20_000 {
            let key = prng.below(300);
            match tree.insert(key) {
                true => sorted.insert(key),
                false => {
                    tree.remove(&key);
                    // Near ones mostly stay where the old one is, and some go back past others.
                    let other = (key + prng.below(17)).saturating_sub(8);
                    match tree.insert(other) {
                        true => sorted.replace(key, other),
                        false => sorted.remove(key),
                    }
                }
            }
            let key = prng.below(300);
            assert_eq!(sorted.first(), tree.first().copied());
            assert_eq!(sorted.last(), tree.last().copied());
            assert_eq!(sorted.before(key), tree.range(..key).next_back().copied());
            assert_eq!(sorted.at_or_after(key), tree.range(key..).next().copied());
            assert!(sorted.from(key).eq(tree.range(key..).copied()));
            assert_eq!(sorted.after(key), tree.range(key + 1..).next().copied());
            assert_eq!((sorted.len(), sorted.is_empty()), (tree.len(), tree.is_empty()));
        }
    }
}

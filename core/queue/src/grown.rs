//! A list of a fixed length whose later part is made when it is first reached.

use std::ops::Index;
use std::sync::OnceLock;

/// A list of `most` entries whose later part is made when it is first reached: an idle disk is not
/// to pay for queues that it does not have.
pub(crate) struct Grown<T> {
    first: Box<[T]>,
    rest: OnceLock<Box<[T]>>,
    most: usize,
}

impl<T: Default> Grown<T> {
    /// Of `most` entries, of which the first so many are made now.
    pub(crate) fn new(first: u16, most: u16) -> Grown<T> {
        let first = (0..first).map(|_| T::default()).collect();
        Grown { first, rest: OnceLock::new(), most: usize::from(most) }
    }

    /// How many there can be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Those that are made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest.get().into_iter().flatten())
    }

    /// All there can be: they are made.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        (0..self.most).map(|index| &self[index])
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        (index < self.most).then(|| &self[index])
    }

    #[cold]
    fn beyond(&self, index: usize) -> &T {
        let rest = self.most - self.first.len();
        let rest = self.rest.get_or_init(|| (0..rest).map(|_| T::default()).collect());
        &rest[index - self.first.len()]
    }
}

impl<T: Default> Index<usize> for Grown<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        match self.first.get(index) {
            Some(entry) => entry,
            None => self.beyond(index),
        }
    }
}

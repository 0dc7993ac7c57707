//! Locks that simulated processors wait for, in the order in which they came.

use std::collections::VecDeque;

/// A lock. The engine says how long a hand-over takes: it knows how far apart the two are.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    holder: Option<usize>,
    /// The processor whose cache has what the lock protects.
    last: Option<usize>,
    waiting: VecDeque<usize>,
}

/// How a processor got a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The processor that had it before.
    pub(crate) from: Option<usize>,
    /// How many still wait.
    pub(crate) waiting: usize,
}

impl Lock {
    /// Takes it if it is free; else this processor waits.
    pub(crate) fn take(&mut self, cpu: usize) -> Option<Grant> {
        if self.holder.is_some() {
            self.waiting.push_back(cpu);
            return None;
        }
        self.holder = Some(cpu);
        Some(Grant { from: self.last, waiting: 0 })
    }

    /// Lets go of it; who has it next, and how.
    pub(crate) fn free(&mut self, cpu: usize) -> Option<(usize, Grant)> {
        assert_eq!(self.holder, Some(cpu), "a lock is freed by its holder");
        self.last = Some(cpu);
        self.holder = self.waiting.pop_front();
        self.holder.map(|next| (next, Grant { from: self.last, waiting: self.waiting.len() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_goes_to_those_who_wait_in_turn() {
        let mut lock = Lock::default();
        assert_eq!(lock.take(3), Some(Grant { from: None, waiting: 0 }));
        assert_eq!((lock.take(5), lock.take(4)), (None, None));
        assert_eq!(lock.free(3), Some((5, Grant { from: Some(3), waiting: 1 })));
        assert_eq!(lock.free(5), Some((4, Grant { from: Some(5), waiting: 0 })));
        assert_eq!(lock.free(4), None);
        assert_eq!(lock.take(4), Some(Grant { from: Some(4), waiting: 0 }), "its lines are near");
    }
}

//! Locks that simulated processors wait for, in the order in which they came.

use std::collections::VecDeque;

use weir_bio::Nanos;

/// A lock. The engine says how long a hand-over takes: it knows how far apart the two are.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    holder: Option<usize>,
    /// The processor whose cache has what the lock protects.
    last: Option<usize>,
    waiting: VecDeque<usize>,
    /// Since when so many wait.
    since: Nanos,
    /// How long processors have waited actively, in all, ns.
    pub(crate) spun: u64,
}

/// A lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The processor that had it before.
    pub(crate) from: Option<usize>,
}

impl Lock {
    /// Takes it if it is free; else this processor waits.
    pub(crate) fn take(&mut self, cpu: usize, spinners: u64, now: Nanos) -> Option<Grant> {
        if self.holder.is_some() {
            self.count(spinners, now);
            self.waiting.push_back(cpu);
            return None;
        }
        self.holder = Some(cpu);
        Some(Grant { from: self.last })
    }

    /// Processors that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// How many wait is about to change.
    fn count(&mut self, spinners: u64, now: Nanos) {
        self.spun += spinners.min(self.waiting.len() as u64) * now.since(self.since);
        self.since = now;
    }

    /// Lets go of it; who has it next, and how.
    pub(crate) fn free(&mut self, cpu: usize, spinners: u64, now: Nanos) -> Option<(usize, Grant)> {
        self.count(spinners, now);
        assert_eq!(self.holder, Some(cpu), "a lock is freed by its holder");
        self.last = Some(cpu);
        self.holder = self.waiting.pop_front();
        self.holder.map(|next| (next, Grant { from: self.last }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_goes_to_those_who_wait_in_turn() {
        let mut lock = Lock::default();
        let take = |lock: &mut Lock, cpu, at| lock.take(cpu, 1, Nanos(at));
        assert_eq!(take(&mut lock, 3, 0), Some(Grant { from: None }));
        assert_eq!((take(&mut lock, 5, 10), take(&mut lock, 4, 20)), (None, None));
        assert_eq!(lock.free(3, 1, Nanos(50)), Some((5, Grant { from: Some(3) })));
        assert_eq!(lock.free(5, 1, Nanos(60)), Some((4, Grant { from: Some(5) })));
        assert_eq!(lock.free(4, 1, Nanos(90)), None);
        let near = Some(Grant { from: Some(4) });
        assert_eq!(take(&mut lock, 4, 100), near, "its lines are near");
        // One waited from 10 on, then another from 50 to 60; the second of two sleeps.
        assert_eq!(lock.spun, 50);
    }
}

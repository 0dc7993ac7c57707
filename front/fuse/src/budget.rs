//! The memory that the calls of all disks as files may hold together, each from when it is taken
//! until it is answered.
//!
//! # The rule
//!
//! - A read or a write holds the bytes of its whole blocks, and [`CALL`] beside them.
//! - It gets them if all together hold no more than the bound then, or if no other holds anything:
//!   a large one alone always passes.
//! - One that gets none waits, and none behind it is taken meanwhile: these wait in the kernel. So
//!   none is refused, and none overtakes another.
//!
//! Not counted: the buffers of the thread that takes calls, and calls that wait for the library
//! (`calls.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a call holds beside its data: its description, its request and its answer.
pub(crate) const CALL: usize = 512;

/// The memory that all calls share.
pub(crate) struct Budget {
    bound: usize,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
struct Ledger {
    held: usize,
    waiting: VecDeque<Waiting>,
}

/// One that waits until so many bytes may be held.
struct Waiting {
    bytes: usize,
    wake: Wake,
}

type Wake = Box<dyn FnOnce() + Send>;

impl Ledger {
    fn has_room(&self, bytes: usize, bound: usize) -> bool {
        self.held == 0 || bytes <= bound.saturating_sub(self.held)
    }
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(bound: usize) -> Arc<Budget> {
        Arc::new(Budget { bound, ledger: Mutex::default() })
    }

    /// The bound, bytes.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }

    /// Bytes that are held now.
    pub(crate) fn held(&self) -> usize {
        self.ledger().held
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for a call with so many bytes of data, if there is as much.
    pub(crate) fn take(self: &Arc<Budget>, data: usize) -> Option<Share> {
        let (bytes, mut ledger) = (data + CALL, self.ledger());
        let has_room = ledger.has_room(bytes, self.bound);
        has_room.then(|| {
            ledger.held += bytes;
            Share { budget: Arc::clone(self), bytes }
        })
    }

    /// Calls `wake`, once, when it is worth asking for so much data again: now, or when another
    /// gives memory back.
    pub(crate) fn when_room(&self, data: usize, wake: impl FnOnce() + Send + 'static) {
        let (bytes, mut ledger) = (data + CALL, self.ledger());
        if !ledger.has_room(bytes, self.bound) {
            return ledger.waiting.push_back(Waiting { bytes, wake: Box::new(wake) });
        }
        drop(ledger);
        wake();
    }
}

/// The memory of one call. Dropping it gives it back.
pub(crate) struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Share {
    fn drop(&mut self) {
        let bound = self.budget.bound;
        let mut ledger = self.budget.ledger();
        ledger.held -= self.bytes;
        let Some(next) = ledger.waiting.front() else { return };
        if !ledger.has_room(next.bytes, bound) {
            return;
        }
        // All of them: the first may be heard no more, and there may be nothing left to give back.
        let waiting = std::mem::take(&mut ledger.waiting);
        drop(ledger);
        // Outside the lock: they may ask at once.
        waiting.into_iter().for_each(|Waiting { wake, .. }| wake());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_is_held_than_the_bound_but_by_one_alone() {
        let budget = Budget::new(10 * CALL);
        let large = budget.take(100 * CALL).expect("alone it passes");
        assert!(budget.take(0).is_none());
        drop(large);
        let shares: Vec<Share> = std::iter::from_fn(|| budget.take(CALL)).collect();
        assert_eq!((shares.len(), budget.held()), (5, budget.bound()));
        drop(shares);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn those_that_wait_are_woken_once_there_is_room_for_the_first() {
        let budget = Budget::new(10 * CALL);
        let [one, other] = [7, 1].map(|calls| budget.take(calls * CALL).expect("room"));
        let woken = Arc::new(AtomicUsize::new(0));
        let wait = |calls: usize, mark: usize| {
            let woken = Arc::clone(&woken);
            budget.when_room(calls * CALL, move || {
                woken.fetch_add(mark, Ordering::Relaxed);
            });
        };
        wait(8, 1);
        wait(1, 10);
        assert_eq!(woken.load(Ordering::Relaxed), 0);
        drop(other);
        assert_eq!(woken.load(Ordering::Relaxed), 0, "too little for the first");
        drop(one);
        assert_eq!(woken.load(Ordering::Relaxed), 11);
        drop(budget.take(8 * CALL).expect("room"));
        assert_eq!(woken.load(Ordering::Relaxed), 11, "once");
        wait(9, 100);
        assert_eq!(woken.load(Ordering::Relaxed), 111, "there is room now");
    }
}

//! An inbox: many threads post claims, one takes them all at once.
//!
//! A chain is posted with one exchange whatever its length; "was empty" decides whether anybody
//! must be told.

use std::ptr;

use crate::claim::{Incoming, Node, Outgoing};
use crate::sync::{Alone, AtomicPtr, Ordering};

/// A multi-producer, single-taker stack of claims, taken in the order they were posted.
#[derive(Debug)]
pub struct Inbox<T> {
    newest: Alone<AtomicPtr<Node<T>>>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Inbox<T> {
        Inbox { newest: Alone(AtomicPtr::new(ptr::null_mut())) }
    }
}

impl<T> Inbox<T> {
    /// Posts everything on `chain` and empties it. True when the inbox was empty before: then its
    /// owner may be asleep and must be told.
    #[inline]
    pub fn post(&self, chain: &mut Outgoing<T>) -> bool {
        if chain.is_empty() {
            return false;
        }
        let (newest, oldest) = chain.release();
        let mut seen = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: the chain let go of its nodes above and nobody else has them yet.
            unsafe { Node::set_next(oldest, seen) };
            // Release: whoever takes the chain sees the slots as they were posted.
            match self.newest.compare_exchange_weak(
                seen,
                newest,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return seen.is_null(),
                Err(now) => seen = now,
            }
        }
    }

    /// Takes everything, oldest first.
    #[inline]
    pub fn take(&self) -> Incoming<T> {
        if self.newest.load(Ordering::Relaxed).is_null() {
            return Incoming::empty();
        }
        // Acquire: of every poster, as each exchange goes on with the release before it.
        let newest = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: the exchange took the whole chain, and each post linked its end to the rest.
        unsafe { Incoming::reversed(newest) }
    }

    /// Whether nothing is there now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Acquire).is_null()
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

// SAFETY: the inbox owns the slots on its chain; posting and taking move whole claims.
unsafe impl<T: Send> Send for Inbox<T> {}
// SAFETY: as above; every access to the chain goes through the one atomic.
unsafe impl<T: Send> Sync for Inbox<T> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::claim::Claim;

    #[test]
    fn claims_are_taken_in_the_order_they_were_posted_across_chains() {
        let inbox = Inbox::default();
        let mut chain = Outgoing::default();
        let mut told = Vec::new();
        for batch in [&[1, 2, 3][..], &[4], &[5, 6]] {
            for n in batch {
                chain.push(Claim::new(*n));
            }
            told.push(inbox.post(&mut chain));
        }
        assert_eq!(told, [true, false, false]);
        assert_eq!(inbox.take().map(|claim| *claim).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert!(inbox.is_empty());
    }
}

//! An inbox: many threads post chains of claims, one takes them all at once.
//!
//! A chain is posted with one exchange whatever its length; "was empty" decides whether the taker
//! must be told. A chain is in order from first to last; a later one is put before the earlier
//! ones, and its last link says so. Nearly always there is one chain only, and nothing to turn
//! round.

use std::ptr;

use crate::claim::{Incoming, Node, Outgoing};
use crate::sync::{Alone, AtomicPtr, Ordering};

/// A multi-producer, single-taker stack of chains, taken in the order they were posted.
#[derive(Debug)]
pub struct Inbox<T> {
    /// First node of the newest chain, marked if an earlier chain is behind it.
    newest: Alone<AtomicPtr<Node<T>>>,
}

/// On a pointer to a chain: another chain is behind its end. On a link: the end of a chain, and
/// what follows is the next. Nodes are aligned to cache lines, so the bits are free.
const MORE: usize = 1;
const END: usize = 2;

#[inline]
fn is_marked<T>(pointer: *mut Node<T>, mark: usize) -> bool {
    pointer.addr() & mark != 0
}

#[inline]
fn unmarked<T>(pointer: *mut Node<T>) -> *mut Node<T> {
    pointer.map_addr(|addr| addr & !(MORE | END))
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
        let (first, last) = chain.release();
        // Mostly it is empty. To look first would fetch its line from the taker's CPU twice: to
        // read, and then to write.
        let mut seen: *mut Node<T> = ptr::null_mut();
        loop {
            let (link, new) = match seen.is_null() {
                true => (ptr::null_mut(), first),
                false => (seen.map_addr(|addr| addr | END), first.map_addr(|addr| addr | MORE)),
            };
            // SAFETY: the chain let go of its nodes above, and no other thread has them yet.
            unsafe { Node::set_next(last, link) };
            // Release: the owner that takes the chain sees the slots as they were posted.
            match self.newest.compare_exchange_weak(seen, new, Ordering::Release, Ordering::Relaxed)
            {
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
        // SAFETY: the exchange took every chain, and each post linked its end to the rest.
        unsafe {
            let first = if is_marked(newest, MORE) { in_order(newest) } else { newest };
            Incoming::new(first)
        }
    }

    /// Whether nothing is there now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Acquire).is_null()
    }
}

/// Puts the chains behind `newest` in the order they were posted, and makes them one.
///
/// # Safety
/// The caller owns all of them, and each ends in a link as [`Inbox::post`] writes it.
#[cold]
unsafe fn in_order<T>(newest: *mut Node<T>) -> *mut Node<T> {
    let (mut chain, mut later) = (unmarked(newest), ptr::null_mut());
    loop {
        let mut last = chain;
        // SAFETY: the caller's promise.
        let behind = unsafe {
            let mut link = Node::next(last);
            while !link.is_null() && !is_marked(link, END) {
                last = link;
                link = Node::next(last);
            }
            Node::set_next(last, later);
            link
        };
        if behind.is_null() {
            return chain;
        }
        (later, chain) = (chain, unmarked(behind));
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

//! A claim: the one holder of a slot. It is moved, never copied, and can be strung on a chain
//! that crosses threads without allocating.

use std::ops::{Deref, DerefMut};
use std::ptr;

use crate::sync::{LINE, UnsafeCell, fetch_to_write};

/// The exclusive hold on a slot. Where it goes, the right to touch the slot goes.
#[derive(Debug)]
pub struct Claim<T>(Box<Slot<T>>);

#[derive(Debug)]
#[repr(align(64))]
struct Slot<T> {
    /// The next slot of the chain this one is strung on; without meaning while the claim is held.
    /// A cell only for loom, which then sees two threads at one link.
    next: UnsafeCell<*mut Slot<T>>,
    value: T,
}

impl<T> Claim<T> {
    /// A new slot around `value`. Slots are pooled by their owner; this is the slow path.
    pub fn new(value: T) -> Claim<T> {
        Claim(Box::new(Slot { next: UnsafeCell::new(ptr::null_mut()), value }))
    }
}

impl<T> Claim<T> {
    /// Brings the slot nearer, to be written, while its holder does something else: another CPU has
    /// it.
    #[inline]
    pub fn fetch(&self) {
        let slot: *const Slot<T> = &raw const *self.0;
        for line in (0..size_of::<Slot<T>>()).step_by(LINE) {
            fetch_to_write(slot.wrapping_byte_add(line));
        }
    }
}

impl<T> Deref for Claim<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> DerefMut for Claim<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.value
    }
}

// SAFETY: a claim is a `Box` whose extra pointer is only followed by a chain that owns the slots it
// points to; a held claim's pointer is never read.
unsafe impl<T: Send> Send for Claim<T> {}

/// Claims on their way out, in order, so that an inbox can take the chain in one exchange.
#[derive(Debug)]
pub struct Outgoing<T> {
    first: *mut Node<T>,
    /// Its link is not written yet.
    last: *mut Node<T>,
    len: usize,
}

/// A slot on a chain; opaque outside this crate.
#[derive(Debug)]
#[repr(transparent)]
pub struct Node<T>(Slot<T>);

impl<T> Node<T> {
    /// # Safety
    /// The caller owns the live node `this`: no other thread reads or writes it now.
    #[inline]
    pub(crate) unsafe fn set_next(this: *mut Node<T>, next: *mut Node<T>) {
        // SAFETY: the caller's promise.
        unsafe { (*this).0.next.with_mut(|link| *link = next.cast()) };
    }

    /// # Safety
    /// As for [`set_next`](Node::set_next).
    #[inline]
    pub(crate) unsafe fn next(this: *mut Node<T>) -> *mut Node<T> {
        // SAFETY: the caller's promise.
        unsafe { (*this).0.next.with(|link| (*link).cast()) }
    }
}

#[inline]
fn into_node<T>(claim: Claim<T>) -> *mut Node<T> {
    Box::into_raw(claim.0).cast()
}

/// # Safety
/// `node` came from `into_node`, and no other claim of it exists.
#[inline]
unsafe fn from_node<T>(node: *mut Node<T>) -> Claim<T> {
    // SAFETY: the caller's promise; `Node` is transparent over `Slot`.
    Claim(unsafe { Box::from_raw(node.cast()) })
}

impl<T> Default for Outgoing<T> {
    fn default() -> Outgoing<T> {
        Outgoing { first: ptr::null_mut(), last: ptr::null_mut(), len: 0 }
    }
}

impl<T> Outgoing<T> {
    /// Adds a claim behind those already there.
    #[inline]
    pub fn push(&mut self, claim: Claim<T>) {
        let node = into_node(claim);
        if self.first.is_null() {
            self.first = node;
        } else {
            // SAFETY: this chain owns its last node.
            unsafe { Node::set_next(self.last, node) };
        }
        self.last = node;
        self.len += 1;
    }

    /// Claims on the chain.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Takes all claims, oldest first, where sender and receiver are one thread.
    #[inline]
    pub fn take(&mut self) -> Incoming<T> {
        let (first, last) = self.release();
        if !first.is_null() {
            // SAFETY: the chain owned its nodes and has just let go of them.
            unsafe { Node::set_next(last, ptr::null_mut()) };
        }
        // SAFETY: as above; it ends in null.
        unsafe { Incoming::new(first) }
    }

    /// Hands the chain's ends over, first and last, and forgets it. The last link is not written.
    #[inline]
    pub(crate) fn release(&mut self) -> (*mut Node<T>, *mut Node<T>) {
        // Field by field: assigning a whole chain would drop the old one, and with it the claims.
        self.len = 0;
        (
            std::mem::replace(&mut self.first, ptr::null_mut()),
            std::mem::replace(&mut self.last, ptr::null_mut()),
        )
    }
}

impl<T> Drop for Outgoing<T> {
    fn drop(&mut self) {
        if !self.first.is_null() {
            let (first, last) = self.release();
            // SAFETY: this chain owned its nodes and has just let go of them.
            unsafe {
                Node::set_next(last, ptr::null_mut());
                drop(Incoming::new(first));
            }
        }
    }
}

// SAFETY: the chain owns the slots on it.
unsafe impl<T: Send> Send for Outgoing<T> {}

/// Claims that arrived, oldest first.
#[derive(Debug)]
pub struct Incoming<T> {
    first: *mut Node<T>,
}

impl<T> Incoming<T> {
    /// None.
    #[must_use]
    pub fn empty() -> Incoming<T> {
        Incoming { first: ptr::null_mut() }
    }

    /// Takes over a chain.
    ///
    /// # Safety
    /// The caller owns the whole chain and hands it over; it ends in null.
    #[inline]
    pub(crate) unsafe fn new(first: *mut Node<T>) -> Incoming<T> {
        Incoming { first }
    }

    /// Whether there is none left.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// The claim that is there, if it is the only one.
    #[inline]
    #[must_use]
    pub fn only(&self) -> Option<&T> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: this chain owns the node, and `self` is borrowed for as long as it is seen.
        unsafe { Node::next(self.first).is_null().then(|| &(*self.first).0.value) }
    }

    /// Shows each to `visit`, oldest first, without taking any.
    #[inline]
    pub fn for_each_ref(&self, mut visit: impl FnMut(&T)) {
        let mut node = self.first;
        while !node.is_null() {
            // SAFETY: this chain owns the node, and `self` is borrowed for as long as it is seen.
            unsafe {
                visit(&(*node).0.value);
                node = Node::next(node);
            }
        }
    }
}

impl<T> Iterator for Incoming<T> {
    type Item = Claim<T>;
    #[inline]
    fn next(&mut self) -> Option<Claim<T>> {
        if self.first.is_null() {
            return None;
        }
        let node = self.first;
        // SAFETY: this chain owns the node and lets go of it here.
        unsafe {
            self.first = Node::next(node);
            Some(from_node(node))
        }
    }
}

impl<T> Drop for Incoming<T> {
    #[inline]
    fn drop(&mut self) {
        if !self.first.is_null() {
            self.for_each(drop);
        }
    }
}

// SAFETY: the chain owns the slots on it.
unsafe impl<T: Send> Send for Incoming<T> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_taken_in_order_and_is_empty_afterwards() {
        let mut chain = Outgoing::default();
        assert!(chain.take().is_empty());
        (0..3).for_each(|n| chain.push(Claim::new(n)));
        let mut taken = chain.take();
        for (only, next) in [(None, 0), (None, 1), (Some(2), 2)] {
            assert_eq!(taken.only().copied(), only);
            assert_eq!(taken.next().map(|claim| *claim), Some(next));
        }
        assert!(taken.is_empty() && taken.only().is_none());
        assert!(chain.is_empty() && chain.take().is_empty());
    }

    #[test]
    fn a_dropped_chain_drops_what_is_on_it() {
        let counted = std::rc::Rc::new(());
        let mut chain = Outgoing::default();
        for _ in 0..3 {
            chain.push(Claim::new(std::rc::Rc::clone(&counted)));
        }
        assert_eq!(chain.len(), 3);
        drop(chain);
        assert_eq!(std::rc::Rc::strong_count(&counted), 1);
    }
}

//! The right: who may touch something now. Nobody ever waits for it.
//!
//! Whoever has work publishes it and tries to take the right; if another holds it, that holder
//! looks again after letting go, so the work is done by somebody.

use std::ops::{Deref, DerefMut};

use crate::sync::{Alone, AtomicU32, Ordering, UnsafeCell, fence};

/// A value only the holder of the right may touch.
#[derive(Debug)]
pub struct Right<T> {
    taken: Alone<AtomicU32>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through `Held` alone, of which there is one at a time.
unsafe impl<T: Send> Sync for Right<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Right<T> {}

/// The right, held. Dropping it lets go.
#[derive(Debug)]
pub struct Held<'a, T> {
    right: &'a Right<T>,
}

impl<T> Right<T> {
    /// Nobody holds it.
    pub fn new(value: T) -> Right<T> {
        Right { taken: Alone(AtomicU32::new(0)), value: UnsafeCell::new(value) }
    }

    /// Takes the right if nobody holds it.
    #[inline]
    pub fn try_take(&self) -> Option<Held<'_, T>> {
        // Look before exchanging, so that those who fail do not fight over the line.
        let free = self.taken.load(Ordering::Relaxed) == 0
            && self.taken.swap(1, Ordering::Acquire) == 0;
        // Lazily: a `Held` built for nothing and dropped would let go of the other's right.
        free.then(|| Held { right: self })
    }

    /// Works under the right for as long as `has_work` says so, and looks once more after letting
    /// go. Returns at once when another holds it: that one will look. The caller has published
    /// its work before.
    pub fn run(&self, has_work: impl Fn() -> bool, mut work: impl FnMut(&mut T)) {
        // Pairs with the fence below: the holder sees the work, or this sees the right free.
        fence(Ordering::SeqCst);
        while has_work() {
            let Some(mut held) = self.try_take() else { return };
            work(&mut held);
            drop(held);
            fence(Ordering::SeqCst);
        }
    }
}

impl<T> Held<'_, T> {
    fn value(&self) -> *mut T {
        self.right.value.with_mut(|value| value)
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this is the one holder.
        unsafe { &*self.value() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the one holder.
        unsafe { &mut *self.value() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.right.taken.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_fails_leaves_the_right_with_its_holder() {
        let right = Right::new(7);
        let held = right.try_take().expect("nobody holds it");
        assert!(right.try_take().is_none());
        assert!(right.try_take().is_none(), "the failed try let go of it");
        drop(held);
        assert_eq!(right.try_take().as_deref(), Some(&7));
    }
}

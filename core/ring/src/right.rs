//! The right: who may touch something now. Nobody ever waits for it.
//!
//! Whoever has work publishes it and tries to take the right; if another holds it, that holder
//! looks again after letting go, so the work is done by somebody.

use std::ops::{Deref, DerefMut};

use crate::sync::{Alone, AtomicU32, MutPtr, Ordering, UnsafeCell, fence, writing};

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
///
/// It may be shared between threads only if the value may:
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<weir_ring::Held<'static, std::cell::Cell<u32>>>();
/// ```
#[derive(Debug)]
pub struct Held<'a, T> {
    // Fields are dropped in this order: the access ends before the next holder's may begin.
    value: MutPtr<T>,
    _letting_go: LettingGo<'a>,
}

// SAFETY: whoever has the holder has the value, as with `&mut T`.
unsafe impl<T: Send> Send for Held<'_, T> {}
// SAFETY: a shared holder gives out `&T`, so that much must be shareable: `T: Send` is not enough.
unsafe impl<T: Sync> Sync for Held<'_, T> {}

#[derive(Debug)]
struct LettingGo<'a>(&'a AtomicU32);

impl Drop for LettingGo<'_> {
    fn drop(&mut self) {
        // Release: the next holder sees what was done under the right.
        self.0.store(0, Ordering::Release);
    }
}

impl<T> Right<T> {
    /// Nobody holds it.
    pub fn new(value: T) -> Right<T> {
        Right { taken: Alone(AtomicU32::new(0)), value: UnsafeCell::new(value) }
    }

    /// Takes the right if nobody holds it.
    ///
    /// Others who come while it is held go away and count on the holder to look again: after
    /// letting go, call [`run`](Right::run).
    #[inline]
    pub fn try_take(&self) -> Option<Held<'_, T>> {
        // Look before exchanging, so that those who fail do not fight over the line. Compare while
        // exchanging, so that they do not write to it either: loom orders a write of theirs and
        // the holder's plain store wrongly.
        let exchange =
            || self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let free = self.taken.load(Ordering::Relaxed) == 0 && exchange();
        // Lazily: a `Held` built for nothing and dropped would let go of the other's right.
        free.then(|| Held { value: writing(&self.value), _letting_go: LettingGo(&self.taken) })
    }

    /// Works under the right for as long as `has_work` says so, and looks once more after letting
    /// go. Returns at once when another holds it: that one will look. The caller has published
    /// its work before.
    ///
    /// `has_work` is asked without the right and must say no to what cannot move yet (no tag, no
    /// credit), or this spins until it can. A panic in `work` lets go without looking again, so
    /// what others published meanwhile waits for the next caller.
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

impl<T> Deref for Held<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the one holder, shared for as long as the answer lives.
        self.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the one holder, borrowed for as long as the answer lives.
        self.value.with(|value| unsafe { &mut *value })
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

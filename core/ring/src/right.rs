//! The right: exclusive access to a value, given to one thread at a time. On the way of an I/O no
//! thread waits for it.
//!
//! A thread with work publishes it and tries to take the right. If another thread holds it, that
//! holder looks again after letting go, so the work is done by one of the two. A control call
//! waits.

use std::ops::{Deref, DerefMut};

use crate::sync::{Alone, AtomicU32, MutPtr, Ordering, UnsafeCell, fence, writing, yield_now};

/// How often the right is tried before a thread that may wait lets others run: some 20 us, as it is
/// held for a batch, and free again sooner unless its holder is kept from running.
#[cfg(not(loom))]
const TRIES: u32 = 1000;
#[cfg(loom)]
const TRIES: u32 = 1;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// A holder panicked: what it held may be half changed.
const BROKEN: u32 = 2;

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

// SAFETY: the thread that has the holder has the value, as with `&mut T`.
unsafe impl<T: Send> Send for Held<'_, T> {}
// SAFETY: a shared holder gives out `&T`, so that much must be shareable: `T: Send` is not enough.
unsafe impl<T: Sync> Sync for Held<'_, T> {}

#[derive(Debug)]
struct LettingGo<'a> {
    taken: &'a AtomicU32,
    /// The thread was unwinding already, so that it does says nothing about the value.
    unwinding: bool,
}

impl Drop for LettingGo<'_> {
    fn drop(&mut self) {
        // Release: the next holder sees what was done under the right.
        let broken = !self.unwinding && std::thread::panicking();
        self.taken.store(if broken { BROKEN } else { FREE }, Ordering::Release);
    }
}

impl<T> Right<T> {
    /// A free right to this value.
    pub fn new(value: T) -> Right<T> {
        Right { taken: Alone(AtomicU32::new(FREE)), value: UnsafeCell::new(value) }
    }

    /// Takes the right if it is free.
    ///
    /// Others who come while it is held go away and count on the holder: after
    /// [`let_go`](Right::let_go) it looks for what they have published.
    ///
    /// # Panics
    /// When another thread panicked while it held the right.
    #[inline]
    #[must_use]
    pub fn try_take(&self) -> Option<Held<'_, T>> {
        // Look before exchanging, so that those who fail do not fight over the line.
        match self.taken.load(Ordering::Relaxed) {
            FREE => self.exchange(),
            state => {
                assert!(state != BROKEN, "another panicked while it held the right");
                None
            }
        }
    }

    #[inline]
    fn exchange(&self) -> Option<Held<'_, T>> {
        // Compare while exchanging, so that those who fail do not write: loom orders a write of
        // theirs and the holder's plain store wrongly.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        let free = self.taken.compare_exchange(FREE, TAKEN, success, failure).is_ok();
        // Lazily: a `Held` built for nothing and dropped would let go of the other's right.
        free.then(|| {
            let unwinding = std::thread::panicking();
            let letting_go = LettingGo { taken: &self.taken, unwinding };
            Held { value: writing(&self.value), _letting_go: letting_go }
        })
    }

    /// Takes the right, and waits for it if another holds it.
    ///
    /// # Panics
    /// When another thread panicked while it held the right.
    pub fn take(&self) -> Held<'_, T> {
        loop {
            for _ in 0..TRIES {
                if let Some(held) = self.try_take() {
                    return held;
                }
                std::hint::spin_loop();
            }
            yield_now();
        }
    }

    /// As [`take`](Right::take); `None` when another thread panicked while it held the right.
    pub fn take_whole(&self) -> Option<Held<'_, T>> {
        loop {
            let held = match self.taken.load(Ordering::Relaxed) {
                BROKEN => return None,
                FREE => self.exchange(),
                _ => None,
            };
            if held.is_some() {
                return held;
            }
            yield_now();
        }
    }

    /// Lets go. A look afterwards finds the work of threads that tried before and were turned away.
    /// It fences: for what was published before, a doorbell may follow with
    /// [`ring_ordered`](crate::Doorbell::ring_ordered).
    #[inline]
    pub fn let_go(held: Held<'_, T>) {
        drop(held);
        // Pairs with the fence of a thread that publishes and then tries: it finds the right free,
        // or its work is seen.
        fence(Ordering::SeqCst);
    }
}

impl<T: Default> Default for Right<T> {
    fn default() -> Right<T> {
        Right::new(T::default())
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

    #[test]
    fn whoever_may_wait_gets_the_right_when_it_is_let_go_and_no_sooner() {
        let right = Right::new(0);
        let mut held = right.try_take().expect("nobody holds it");
        let begins = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                begins.wait();
                *right.take()
            });
            begins.wait();
            // More turns for others than it tries in one of its own.
            for _ in 0..1000 {
                assert!(!waiting.is_finished(), "it has what another holds, or does not wait");
                std::thread::yield_now();
            }
            *held = 7;
            Right::let_go(held);
            assert_eq!(waiting.join().expect("it takes the right"), 7);
        });
    }

    #[test]
    fn what_a_holder_left_that_panicked_is_not_touched_again() {
        let right = Right::new(0);
        let panics = || {
            let _held = right.try_take().expect("nobody holds it");
            panic!("as arranged");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(right.take_whole().is_none());
        let tries = std::panic::AssertUnwindSafe(|| right.try_take().is_some());
        assert!(std::panic::catch_unwind(tries).is_err(), "it is taken as if nothing had been");
    }
}

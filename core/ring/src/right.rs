//! The right: who may touch something now. On the way of an I/O nobody waits for it.
//!
//! Whoever has work publishes it and tries to take the right; if another holds it, that holder
//! looks again after letting go, so the work is done by somebody. Those who change something, and
//! are not in a hurry, wait.

use crate::sync::{Alone, Mutex, MutexGuard, Ordering, fence, try_lock};

/// How often the right is tried before a thread that may wait sleeps for it: some 20 us, what it
/// costs to sleep and be woken. It is held for a batch, and free again sooner.
#[cfg(not(loom))]
const TRIES: u32 = 1000;
#[cfg(loom)]
const TRIES: u32 = 1;

/// A value only the holder of the right may touch.
#[derive(Debug, Default)]
pub struct Right<T>(Alone<Mutex<T>>);

/// The right, held. Dropping it lets go; whoever others may have published work for lets go with
/// [`Right::let_go`].
pub type Held<'a, T> = MutexGuard<'a, T>;

impl<T> Right<T> {
    /// Nobody holds it.
    pub fn new(value: T) -> Right<T> {
        Right(Alone(Mutex::new(value)))
    }

    /// Takes the right if nobody holds it.
    ///
    /// Others who come while it is held go away and count on the holder: after
    /// [`let_go`](Right::let_go) it looks for what they have published.
    ///
    /// # Panics
    /// When another thread panicked while it held the right.
    #[inline]
    #[must_use]
    pub fn try_take(&self) -> Option<Held<'_, T>> {
        try_lock(&self.0)
    }

    /// Takes the right, and waits for it if another holds it.
    ///
    /// # Panics
    /// When another thread panicked while it held the right.
    pub fn take(&self) -> Held<'_, T> {
        for _ in 0..TRIES {
            if let Some(held) = self.try_take() {
                return held;
            }
            std::hint::spin_loop();
        }
        self.0.lock().expect("nobody panics who holds the right")
    }

    /// As [`take`](Right::take), whatever a panic elsewhere has left; `None` then.
    pub fn take_whole(&self) -> Option<Held<'_, T>> {
        self.0.lock().ok()
    }

    /// Lets go. What is looked at afterwards is what others have published who tried before and
    /// were turned away.
    #[inline]
    pub fn let_go(held: Held<'_, T>) {
        drop(held);
        // Pairs with the fence of whoever publishes and then tries: it finds the right free, or
        // its work is seen.
        fence(Ordering::SeqCst);
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
    fn whoever_may_wait_gets_the_right_when_it_is_let_go() {
        let right = Right::new(0);
        let held = right.try_take().expect("nobody holds it");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| *right.take() += 1);
            Right::let_go(held);
            waiting.join().expect("it takes the right");
        });
        assert_eq!(right.try_take().as_deref(), Some(&1));
    }
}

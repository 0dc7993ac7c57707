//! How a sleeping owner is woken: at most one wake per sleep, none while it is awake.

use crate::sync::{Alone, AtomicU32, Ordering, fence};

/// The way to wake an owner: an eventfd, an unpark.
pub trait Wake: Send + Sync {
    /// Wakes it, from any thread. A [`Doorbell`] calls it once per sleep at most; other callers as
    /// often as they like: a wake of an owner that is awake has it look once more.
    fn wake(&self);
}

/// For an owner that looks by itself and never sleeps: wakes nothing.
#[derive(Debug)]
pub struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;
const NOTIFIED: u32 = 2;

/// A bell with one owner who sleeps and any number of ringers.
pub struct Doorbell {
    state: Alone<AtomicU32>,
    wake: Box<dyn Wake>,
}

impl Doorbell {
    /// A bell whose owner is awake.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>) -> Doorbell {
        Doorbell { state: Alone(AtomicU32::new(AWAKE)), wake }
    }

    /// Rings after something was published. Costs a fence and a load while the owner is awake.
    #[inline]
    pub fn ring(&self) {
        // Pairs with the fence in `prepare_sleep`: either the owner sees what was published, or
        // this sees SLEEPING.
        fence(Ordering::SeqCst);
        let _ = self.ring_ordered();
    }

    /// As [`ring`](Doorbell::ring), for a caller whose writes are ordered before, by a memory
    /// fence; whether it woke the owner.
    #[inline]
    pub fn ring_ordered(&self) -> bool {
        let woken = self.state.load(Ordering::Relaxed) == SLEEPING
            && self
                .state
                .compare_exchange(SLEEPING, NOTIFIED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if woken {
            self.wake.wake();
        }
        woken
    }

    /// Whether the owner is asleep or about to be. A hint: it may be another way at once.
    #[inline]
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.state.load(Ordering::Relaxed) != AWAKE
    }

    /// The owner announces sleep. It must then look at all its sources once more, and either call
    /// [`awake`](Doorbell::awake) or really sleep.
    pub fn prepare_sleep(&self) {
        self.state.store(SLEEPING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The owner sleeps until `is_ready`, which every ringer makes true before it rings. `sleep`
    /// may end for other reasons too.
    pub fn wait_until(&self, is_ready: impl Fn() -> bool, sleep: impl Fn()) {
        loop {
            // Announced anew each time. Of two who make one thing ready the second may ring while
            // the first is not done; woken by that ring the owner finds nothing, and the first
            // rings only who is asleep.
            self.prepare_sleep();
            if is_ready() {
                break;
            }
            sleep();
        }
        self.awake();
    }

    /// The owner is awake again, woken or not. True when a wake was (or is being) sent.
    pub fn awake(&self) -> bool {
        self.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }
}

impl std::fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Doorbell({})", self.state.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Arc;

    struct Tally(Arc<AtomicU32>);

    impl Wake for Tally {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_owner_is_woken_once_per_sleep_and_never_while_awake() {
        let wakes = Arc::new(AtomicU32::new(0));
        let bell = Doorbell::new(Box::new(Tally(Arc::clone(&wakes))));
        let ring = |times| {
            (0..times).for_each(|_| bell.ring());
            wakes.swap(0, Ordering::Relaxed)
        };
        assert_eq!(ring(2), 0, "it never slept");
        bell.prepare_sleep();
        assert_eq!(ring(2), 1);
        assert!(bell.awake(), "a wake was sent");
        bell.prepare_sleep();
        assert!(!bell.awake(), "it found something and did not sleep");
        assert_eq!(ring(2), 0, "it is awake again");
    }
}

//! A counter with one writer and any number of readers.

use crate::sync::{AtomicU64, Ordering, fetch};

/// A counter that one thread writes with plain loads and stores, and any thread reads.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at 0, for constants.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn zero() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// A counter at `start`.
    #[must_use]
    pub fn new(start: u64) -> Counter {
        Counter(AtomicU64::new(start))
    }

    /// Adds `n`. Only the counter's one writer may call this; a second writer loses counts.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Sets it; one writer only.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Raises it to `n` if it is lower; one writer only.
    #[inline]
    pub fn raise(&self, n: u64) {
        if n > self.read() {
            self.set(n);
        }
    }

    /// Brings it nearer, to be read.
    #[inline]
    pub fn fetch(&self) {
        fetch(&raw const self.0);
    }

    /// The value now.
    #[inline]
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

//! Busy-time accounting: a stamp that is written at most once a tick, by one winner.

use crate::sync::{Alone, AtomicU64, Ordering};

/// The tick up to which busy time has been accounted (`io_ticks`: docs/behaviour/block-layer.md,
/// section 11).
#[derive(Debug, Default)]
pub struct BusyStamp(Alone<AtomicU64>);

impl BusyStamp {
    /// Moves the stamp to `tick`. The one caller that moved it gets how many ticks it moved; all
    /// others get 0.
    #[inline]
    pub fn advance(&self, tick: u64) -> u64 {
        let seen = self.0.load(Ordering::Relaxed);
        if tick <= seen {
            return 0;
        }
        match self.0.compare_exchange(seen, tick, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => tick - seen,
            Err(_) => 0,
        }
    }
}

/// A counter that any thread writes: for the round-robin spread, which shares one by definition,
/// and for rare events. Nothing else per I/O may use it.
#[derive(Debug, Default)]
pub struct SharedCounter(Alone<AtomicU64>);

impl SharedCounter {
    /// Adds 1 and returns the new value.
    #[inline]
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// Subtracts 1 and returns the new value.
    #[inline]
    pub fn down(&self) -> u64 {
        self.0.fetch_sub(1, Ordering::AcqRel).wrapping_sub(1)
    }

    /// The value now.
    #[inline]
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

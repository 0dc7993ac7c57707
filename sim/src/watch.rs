//! How far a simulated host has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_bio::Nanos;

/// Says how far a host has come, for a person who waits. It changes nothing of what comes of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Simulated time that has passed, ns.
    passed: Arc<AtomicU64>,
    /// When it is said next.
    next: Nanos,
}

/// How often it is said, simulated ns.
const SAID_EVERY: u64 = 1_000_000;

impl Watch {
    pub(crate) fn new(passed: Arc<AtomicU64>) -> Watch {
        Watch { passed, next: Nanos::ZERO }
    }

    #[inline]
    pub(crate) fn look(&mut self, now: Nanos) {
        if now >= self.next {
            self.next = now + SAID_EVERY;
            self.passed.store(now.0, Ordering::Relaxed);
        }
    }
}

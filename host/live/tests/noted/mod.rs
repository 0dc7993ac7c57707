//! A hard queue of tests that notes that it was used. Tests of other crates include this file too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_bio::Nanos;
use weir_queue::{Batch, Done, DriverQueue};

/// A hard queue that notes, by a bit for its index, that a request has come to it.
pub struct Noted {
    pub inner: Box<dyn DriverQueue>,
    pub bit: u64,
    pub used: Arc<AtomicU64>,
}

impl DriverQueue for Noted {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.used.fetch_or(self.bit, Ordering::Relaxed);
        self.inner.submit(batch, now);
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.inner.reap(now, done);
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.inner.wake_at()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

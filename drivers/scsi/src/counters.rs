//! What a logical unit counts: commands begun, ended, failed and timed out, and ends by sense key.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_proto_scsi::SenseKey;

/// Counters of one lane of a unit, written by the lane that holds its port's lock.
#[derive(Debug, Default)]
pub struct Counters {
    requests: AtomicU64,
    done: AtomicU64,
    errors: AtomicU64,
    timeouts: AtomicU64,
    retries: AtomicU64,
    keys: [AtomicU64; 16],
}

/// The sums over all lanes of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands sent, each time they were.
    pub requests: u64,
    /// Commands that ended.
    pub done: u64,
    /// Those among them with an error.
    pub errors: u64,
    /// Commands whose time was up.
    pub timeouts: u64,
    /// Commands that were sent again.
    pub retries: u64,
    /// Ends by sense key.
    pub keys: [u64; 16],
}

/// Adds to a counter that has one writer at a time.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn sent(&self, more: u64) {
        add(&self.requests, more);
    }

    pub(crate) fn ended(&self, more: u64) {
        add(&self.done, more);
    }

    pub(crate) fn failed(&self) {
        add(&self.errors, 1);
    }

    pub(crate) fn timed_out(&self) {
        add(&self.timeouts, 1);
    }

    pub(crate) fn retried(&self) {
        add(&self.retries, 1);
    }

    pub(crate) fn sense(&self, key: SenseKey) {
        add(&self.keys[key as usize], 1);
    }

    /// Adds these to sums.
    pub(crate) fn add_to(&self, sums: &mut Counts) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        sums.requests += read(&self.requests);
        sums.done += read(&self.done);
        sums.errors += read(&self.errors);
        sums.timeouts += read(&self.timeouts);
        sums.retries += read(&self.retries);
        for (sum, key) in sums.keys.iter_mut().zip(&self.keys) {
            *sum += read(key);
        }
    }
}

//! The counters of paths: each lane writes its own, and a status sums them.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_bio::Nanos;
use weir_queue::{Histogram, Latencies};

use super::control::PathFigures;
use super::selector::Figures;

/// A counter with one writer: no locked instruction.
#[derive(Debug, Default)]
pub(super) struct Single(AtomicU64);

impl Single {
    #[inline]
    pub(super) fn add(&self, value: u64) {
        self.set(self.read().wrapping_add(value));
    }

    #[inline]
    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One path as one lane counts it.
#[derive(Debug, Default)]
#[repr(align(128))] // Its writer shares no line with another lane's.
pub(super) struct PathTally {
    sent: Single,
    sent_bytes: Single,
    ended: Single,
    ended_bytes: Single,
    errors: Single,
    service_time: Single,
    stale_after: Single,
    misses: Single,
    latency: Histogram,
}

impl PathTally {
    #[inline]
    pub(super) fn count_sent(&self, bytes: u64) {
        self.sent.add(1);
        self.sent_bytes.add(bytes);
    }

    #[inline]
    pub(super) fn count_ended(&self, bytes: u64, latency_ns: u64) {
        self.ended.add(1);
        self.ended_bytes.add(bytes);
        self.latency.record(latency_ns);
    }

    /// One comes back that no leg has had.
    pub(super) fn count_recalled(&self, bytes: u64) {
        self.sent.set(self.sent.read().wrapping_sub(1));
        self.sent_bytes.set(self.sent_bytes.read().wrapping_sub(bytes));
    }

    pub(super) fn count_error(&self) {
        self.errors.add(1);
    }

    /// What a selector alone knows.
    #[inline]
    pub(super) fn publish(&self, figures: Figures) {
        self.service_time.set(figures.service_time);
        self.stale_after.set(figures.stale_after.0);
        self.misses.set(figures.misses);
    }
}

/// The paths of one lane.
#[derive(Debug)]
pub(super) struct LaneTally(Box<[PathTally]>);

impl LaneTally {
    pub(super) fn new(paths: usize) -> LaneTally {
        LaneTally((0..paths).map(|_| PathTally::default()).collect())
    }

    #[inline]
    pub(super) fn path(&self, path: usize) -> &PathTally {
        &self.0[path]
    }

    /// The lane is gone: what it had under way is counted no more.
    pub(super) fn close(&self) {
        for path in &self.0 {
            path.ended.set(path.sent.read());
            path.ended_bytes.set(path.sent_bytes.read());
        }
    }
}

/// What the lanes count of one path, summed.
#[derive(Clone, Debug, Default)]
pub(super) struct PathSum {
    pub(super) figures: Figures,
    pub(super) latency: Latencies,
    ended: u64,
    errors: u64,
}

impl PathSum {
    pub(super) fn add(&mut self, path: &PathTally) {
        let ended = path.ended.read();
        self.figures.add(Figures {
            outstanding: path.sent.read().saturating_sub(ended),
            bytes: path.sent_bytes.read().saturating_sub(path.ended_bytes.read()),
            service_time: path.service_time.read(),
            stale_after: Nanos(path.stale_after.read()),
            misses: path.misses.read(),
        });
        self.ended += ended;
        self.errors += path.errors.read();
        path.latency.add_to(&mut self.latency);
    }

    pub(super) fn listed(&self) -> PathFigures {
        PathFigures {
            in_flight: self.figures.outstanding,
            ios: self.ended,
            errors: self.errors,
            p99_ns: self.latency.quantile_ns(990),
        }
    }
}

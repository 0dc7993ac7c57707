//! Latencies as documents have them.

use serde::{Deserialize, Serialize};

/// Latencies, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyNs {
    /// Mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 95 %.
    pub p95: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The largest.
    pub max: u64,
}

/// I/Os that were under way, or due, when the measured time was up. Their latency is known to be
/// larger than their age, and counts as that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unfinished {
    /// How many there were.
    pub ios: u64,
    /// The age of the oldest, nanoseconds.
    pub oldest_ns: u64,
    /// The figures of the latency that are lower bounds for that: `mean`, `p99`, `max` and so on.
    pub at_least: Vec<String>,
}

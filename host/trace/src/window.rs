//! How long a measurement was to take, and how far from that it may be. The judge of a comparison
//! voids runs by it, and the report leaves runs out by it.

use serde_json::Value;

/// How much longer or shorter than asked a window may be, as a part of it.
const OFF: f64 = 0.05;

/// The same as a time, seconds: a short window is not ended to the millisecond.
const OFF_S: f64 = 0.05;

/// How much longer or shorter a window of `asked_s` may be, both in seconds.
#[must_use]
pub fn tolerance_s(asked_s: f64) -> f64 {
    (asked_s * OFF).max(OFF_S)
}

/// Whether a job, as a document describes it, ends when it has moved all it was to move. How long
/// that takes is its result, and no window.
#[must_use]
pub fn ends_by_itself(job: &Value) -> bool {
    let timed = |job: &Value| job.get("time_based").and_then(Value::as_bool);
    match job.get("jobs").and_then(Value::as_array) {
        Some(jobs) if !jobs.is_empty() => jobs.iter().all(|job| timed(job) == Some(false)),
        _ => timed(job) == Some(false),
    }
}

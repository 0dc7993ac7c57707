//! The tunables of `bfq`: names, units, defaults and ranges of Linux. Source:
//! docs/behaviour/bfq.md, section 15.3.

use crate::tunable::{Tunable, Tunables, Unit};

use super::Bfq;

const MS: u64 = 1_000_000;
const INT_MAX: i128 = i32::MAX as i128;

/// Every tunable of `bfq`, in alphabetical order as the directory lists them.
pub static TUNABLES: &[Tunable] = &[
    Tunable::clamped(
        "back_seek_max",
        Unit::Kib,
        16_384,
        (0, INT_MAX),
        "How far behind the head a request may lie to be considered like one ahead.",
    ),
    Tunable::clamped(
        "back_seek_penalty",
        Unit::Factor,
        2,
        (1, INT_MAX),
        "How much farther a request behind the head counts than one ahead.",
    ),
    Tunable::clamped(
        "fifo_expire_async",
        Unit::Milliseconds,
        250,
        (1, INT_MAX),
        "Age at which an async request is served before nearer ones of its queue.",
    ),
    Tunable::clamped(
        "fifo_expire_sync",
        Unit::Milliseconds,
        125,
        (1, INT_MAX),
        "Age at which a sync request is served before nearer ones of its queue.",
    ),
    Tunable::clamped(
        "low_latency",
        Unit::Flag,
        1,
        (0, 1),
        "Raises the weight of interactive and soft real-time processes.",
    ),
    Tunable::clamped(
        "max_budget",
        Unit::Sectors,
        0,
        (0, INT_MAX),
        "The most a queue is served at a time; 0 derives it from the device's peak rate.",
    ),
    Tunable::clamped(
        "slice_idle",
        Unit::Milliseconds,
        8,
        (0, INT_MAX),
        "How long the device is kept idle for the next request of a queue; 0 never idles.",
    ),
    Tunable::clamped(
        "slice_idle_us",
        Unit::Microseconds,
        8000,
        (0, u32::MAX as i128),
        "The same as slice_idle, in microseconds.",
    ),
    Tunable::clamped(
        "strict_guarantees",
        Unit::Flag,
        0,
        (0, 1),
        "Always idles, and lets the device have one request at a time.",
    ),
    Tunable::clamped(
        "timeout_sync",
        Unit::Milliseconds,
        124,
        (1, INT_MAX),
        "How long a queue may hold the device before it has used its budget.",
    ),
];

/// The tunables in the units the rules use.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) slice_idle_ns: u64,
    pub(super) low_latency: bool,
    pub(super) back_seek_sectors: u64,
    pub(super) back_seek_penalty: u64,
    pub(super) fifo_async_ns: u64,
    pub(super) fifo_sync_ns: u64,
    pub(super) timeout_ns: u64,
    /// 0: derived from the peak rate.
    pub(super) user_max_budget: u64,
    pub(super) strict: bool,
}

impl Settings {
    pub(super) fn new() -> Settings {
        Settings {
            slice_idle_ns: 8 * MS,
            low_latency: true,
            back_seek_sectors: 16_384 * 2,
            back_seek_penalty: 2,
            fifo_async_ns: 250 * MS,
            fifo_sync_ns: 125 * MS,
            timeout_ns: 124 * MS,
            user_max_budget: 0,
            strict: false,
        }
    }
}

impl Tunables for Bfq {
    fn table(&self) -> &'static [Tunable] {
        TUNABLES
    }

    fn value(&self, name: &str) -> i128 {
        let set = &self.set;
        i128::from(match name {
            "back_seek_max" => set.back_seek_sectors / 2,
            "back_seek_penalty" => set.back_seek_penalty,
            "fifo_expire_async" => set.fifo_async_ns / MS,
            "fifo_expire_sync" => set.fifo_sync_ns / MS,
            "low_latency" => u64::from(set.low_latency),
            "max_budget" => set.user_max_budget,
            "slice_idle" => set.slice_idle_ns / MS,
            "slice_idle_us" => set.slice_idle_ns / 1000,
            "strict_guarantees" => u64::from(set.strict),
            "timeout_sync" => set.timeout_ns / MS,
            other => unreachable!("{other} is not in the table"),
        })
    }

    fn put(&mut self, name: &str, value: i128) {
        let value = u64::try_from(value).expect("every range here begins at 0 or above");
        let set = &mut self.set;
        match name {
            "back_seek_max" => set.back_seek_sectors = value * 2,
            "back_seek_penalty" => set.back_seek_penalty = value,
            "fifo_expire_async" => set.fifo_async_ns = value * MS,
            "fifo_expire_sync" => set.fifo_sync_ns = value * MS,
            "low_latency" => {
                set.low_latency = value != 0;
                if value == 0 {
                    self.end_all_raising();
                }
            }
            "max_budget" => {
                set.user_max_budget = value;
                self.derive_max_budget();
            }
            "slice_idle" => set.slice_idle_ns = in_32_bits(value * MS),
            "slice_idle_us" => set.slice_idle_ns = in_32_bits(value * 1000),
            "strict_guarantees" => {
                if value != 0 && !set.strict {
                    set.slice_idle_ns = set.slice_idle_ns.max(8 * MS);
                }
                set.strict = value != 0;
            }
            "timeout_sync" => {
                set.timeout_ns = value * MS;
                self.derive_max_budget();
            }
            other => unreachable!("{other} is not in the table"),
        }
    }
}

/// Linux keeps this time in 32 bits of nanoseconds, so that 4.3 s are 5 ms (seen with 6.18).
fn in_32_bits(ns: u64) -> u64 {
    u64::from(ns as u32)
}

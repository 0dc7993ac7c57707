//! The tunables of `bfq`: names, units, defaults and ranges of Linux. Source:
//! docs/behaviour/bfq.md, section 15.3.

use crate::tunable::{Row, Tunable, Tuned, Unit, When, tunables};

use super::Bfq;

const MS: u64 = 1_000_000;
const INT_MAX: i128 = i32::MAX as i128;

/// Every tunable of `bfq`, in alphabetical order as the directory lists them.
pub const TUNABLES: &[Tunable] = &tunables(&ROWS);

const ROWS: [Row<Bfq>; 10] = [
    Row::new(
        Tunable::clamped(
            "back_seek_max",
            Unit::Kib,
            16_384,
            (0, INT_MAX),
            "How far behind the head a request may lie to be considered like one ahead.",
        ),
        |bfq| i128::from(bfq.set.back_seek_sectors / 2),
        |bfq, value| bfq.set.back_seek_sectors = of(value) * 2,
    ),
    Row::new(
        Tunable::clamped(
            "back_seek_penalty",
            Unit::Factor,
            2,
            (1, INT_MAX),
            "How much farther a request behind the head counts than one ahead.",
        ),
        |bfq| i128::from(bfq.set.back_seek_penalty),
        |bfq, value| bfq.set.back_seek_penalty = of(value),
    ),
    Row::new(
        Tunable::clamped(
            "fifo_expire_async",
            Unit::Milliseconds,
            250,
            (1, INT_MAX),
            "Age at which an async request is served before nearer ones of its queue.",
        )
        .holds(When::LaterRequests),
        |bfq| i128::from(bfq.set.fifo_async_ns / MS),
        |bfq, value| bfq.set.fifo_async_ns = of(value) * MS,
    ),
    Row::new(
        Tunable::clamped(
            "fifo_expire_sync",
            Unit::Milliseconds,
            125,
            (1, INT_MAX),
            "Age at which a sync request is served before nearer ones of its queue.",
        )
        .holds(When::LaterRequests),
        |bfq| i128::from(bfq.set.fifo_sync_ns / MS),
        |bfq, value| bfq.set.fifo_sync_ns = of(value) * MS,
    ),
    Row::new(
        Tunable::clamped(
            "low_latency",
            Unit::Flag,
            1,
            (0, 1),
            "Raises the weight of interactive and soft real-time processes.",
        ),
        |bfq| i128::from(bfq.set.low_latency),
        |bfq, value| bfq.set_low_latency(value != 0),
    ),
    Row::new(
        Tunable::clamped(
            "max_budget",
            Unit::Sectors,
            0,
            (0, INT_MAX),
            "The most a queue is served at a time; 0 derives it from the device's peak rate.",
        )
        .holds(When::NextSlice),
        |bfq| i128::from(bfq.set.user_max_budget),
        |bfq, value| bfq.set_max_budget(of(value)),
    ),
    Row::new(
        Tunable::clamped(
            "slice_idle",
            Unit::Milliseconds,
            8,
            (0, INT_MAX),
            "How long the device is kept idle for the next request of a queue; 0 never idles.",
        ),
        |bfq| i128::from(bfq.set.slice_idle_ns / MS),
        |bfq, value| bfq.set.slice_idle_ns = in_32_bits(of(value) * MS),
    ),
    Row::new(
        Tunable::clamped(
            "slice_idle_us",
            Unit::Microseconds,
            8000,
            (0, u32::MAX as i128),
            "The same as slice_idle, in microseconds.",
        ),
        |bfq| i128::from(bfq.set.slice_idle_ns / 1000),
        |bfq, value| bfq.set.slice_idle_ns = in_32_bits(of(value) * 1000),
    ),
    Row::new(
        Tunable::clamped(
            "strict_guarantees",
            Unit::Flag,
            0,
            (0, 1),
            "Always idles, and lets the device have one request at a time.",
        ),
        |bfq| i128::from(bfq.set.strict),
        |bfq, value| bfq.set_strict(value != 0),
    ),
    Row::new(
        Tunable::clamped(
            "timeout_sync",
            Unit::Milliseconds,
            124,
            (1, INT_MAX),
            "How long a queue may hold the device before it has used its budget.",
        )
        .holds(When::NextSlice),
        |bfq| i128::from(bfq.set.timeout_ns / MS),
        |bfq, value| bfq.set_timeout(of(value) * MS),
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

impl Tuned for Bfq {
    const ROWS: &'static [Row<Bfq>] = &ROWS;
    const TABLE: &'static [Tunable] = TUNABLES;
}

impl Bfq {
    fn set_low_latency(&mut self, wanted: bool) {
        self.set.low_latency = wanted;
        if !wanted {
            self.end_all_raising();
        }
    }

    fn set_max_budget(&mut self, sectors: u64) {
        self.set.user_max_budget = sectors;
        self.derive_max_budget();
    }

    fn set_strict(&mut self, wanted: bool) {
        if wanted && !self.set.strict {
            self.set.slice_idle_ns = self.set.slice_idle_ns.max(8 * MS);
        }
        self.set.strict = wanted;
    }

    fn set_timeout(&mut self, ns: u64) {
        self.set.timeout_ns = ns;
        self.derive_max_budget();
    }
}

/// A value of the table; every range here begins at 0 or above.
fn of(value: i128) -> u64 {
    u64::try_from(value).expect("a value within its range")
}

/// Linux keeps this time in 32 bits of nanoseconds, so that 4.3 s are 5 ms (seen with 6.18).
fn in_32_bits(ns: u64) -> u64 {
    u64::from(ns as u32)
}

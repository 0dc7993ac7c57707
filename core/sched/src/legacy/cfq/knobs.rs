//! CFQ's tunables. Names, units, defaults and ranges are Linux's: docs/behaviour/cfq.md, section
//! 10.

use crate::fair::nearest::BackSeek;
use crate::tunable::{Row, Tunable, Tuned, Unit, When, tunables};

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// The values of the tunables; times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Knobs {
    pub(super) quantum: u64,
    pub(super) fifo_expire_sync_ns: u64,
    pub(super) fifo_expire_async_ns: u64,
    back_seek_max_kib: u64,
    back_seek_penalty: u64,
    pub(super) slice_sync_ns: u64,
    pub(super) slice_async_ns: u64,
    pub(super) slice_async_rq: u64,
    pub(super) slice_idle_ns: u64,
    pub(super) group_idle_ns: u64,
    pub(super) low_latency: bool,
    pub(super) target_latency_ns: u64,
}

impl Knobs {
    /// The values at attach; queues are waited for, or they are not, as where seeks cost nothing.
    pub(super) fn new(waits: bool) -> Knobs {
        Knobs {
            quantum: 8,
            fifo_expire_sync_ns: 125 * MS,
            fifo_expire_async_ns: 250 * MS,
            back_seek_max_kib: 16384,
            back_seek_penalty: 2,
            slice_sync_ns: 100 * MS,
            slice_async_ns: 40 * MS,
            slice_async_rq: 2,
            slice_idle_ns: if waits { 8 * MS } else { 0 },
            group_idle_ns: 8 * MS,
            low_latency: true,
            target_latency_ns: 300 * MS,
        }
    }

    pub(super) fn back_seek(&self) -> BackSeek {
        BackSeek { max_sectors: self.back_seek_max_kib * 2, penalty: self.back_seek_penalty }
    }

    pub(super) fn fifo_expire_ns(&self, sync: bool) -> u64 {
        if sync { self.fifo_expire_sync_ns } else { self.fifo_expire_async_ns }
    }
}

impl Tuned for Knobs {
    const ROWS: &'static [Row<Knobs>] = &ROWS;
    const TABLE: &'static [Tunable] = TUNABLES;
}

const MOST: i128 = u32::MAX as i128;

/// The 17 files of `iosched/`. Pairs in ms and us are two views of one value.
pub const TUNABLES: &[Tunable] = &tunables(&ROWS);

const ROWS: [Row<Knobs>; 17] = [
    Row::new(
        Tunable::clamped(
            "quantum",
            Unit::Requests,
            8,
            (1, MOST),
            "Most requests of one queue in flight while other queues are busy.",
        ),
        |knobs| i128::from(knobs.quantum),
        |knobs, value| knobs.quantum = value as u64,
    ),
    Row::new(
        Tunable::clamped(
            "fifo_expire_sync",
            Unit::Milliseconds,
            125,
            (1, MOST),
            "Age from which the oldest read or sync write is served next within its queue.",
        )
        .holds(When::LaterRequests),
        |knobs| i128::from(knobs.fifo_expire_sync_ns / MS),
        |knobs, value| knobs.fifo_expire_sync_ns = value as u64 * MS,
    ),
    Row::new(
        Tunable::clamped(
            "fifo_expire_async",
            Unit::Milliseconds,
            250,
            (1, MOST),
            "Age from which the oldest async write is served next within its queue.",
        )
        .holds(When::LaterRequests),
        |knobs| i128::from(knobs.fifo_expire_async_ns / MS),
        |knobs, value| knobs.fifo_expire_async_ns = value as u64 * MS,
    ),
    Row::new(
        Tunable::clamped(
            "back_seek_max",
            Unit::Kib,
            16384,
            (0, MOST),
            "How far behind the head a request still counts as near.",
        ),
        |knobs| i128::from(knobs.back_seek_max_kib),
        |knobs, value| knobs.back_seek_max_kib = value as u64,
    ),
    Row::new(
        Tunable::clamped(
            "back_seek_penalty",
            Unit::Factor,
            2,
            (1, MOST),
            "By what a distance backwards is multiplied against one forwards.",
        ),
        |knobs| i128::from(knobs.back_seek_penalty),
        |knobs, value| knobs.back_seek_penalty = value as u64,
    ),
    Row::new(
        Tunable::clamped(
            "slice_sync",
            Unit::Milliseconds,
            100,
            (1, MOST),
            "Time slice of a sync queue at level 4; a fifth more or less for each level.",
        )
        .holds(When::NextSlice),
        |knobs| i128::from(knobs.slice_sync_ns / MS),
        |knobs, value| knobs.slice_sync_ns = value as u64 * MS,
    ),
    Row::new(
        Tunable::clamped(
            "slice_sync_us",
            Unit::Microseconds,
            100_000,
            (1, MOST),
            "The same as slice_sync.",
        )
        .holds(When::NextSlice),
        |knobs| i128::from(knobs.slice_sync_ns / US),
        |knobs, value| knobs.slice_sync_ns = value as u64 * US,
    ),
    Row::new(
        Tunable::clamped(
            "slice_async",
            Unit::Milliseconds,
            40,
            (1, MOST),
            "Time slice of an async queue at level 4; a fifth more or less for each level.",
        )
        .holds(When::NextSlice),
        |knobs| i128::from(knobs.slice_async_ns / MS),
        |knobs, value| knobs.slice_async_ns = value as u64 * MS,
    ),
    Row::new(
        Tunable::clamped(
            "slice_async_us",
            Unit::Microseconds,
            40_000,
            (1, MOST),
            "The same as slice_async.",
        )
        .holds(When::NextSlice),
        |knobs| i128::from(knobs.slice_async_ns / US),
        |knobs, value| knobs.slice_async_ns = value as u64 * US,
    ),
    Row::new(
        Tunable::clamped(
            "slice_async_rq",
            Unit::Requests,
            2,
            (1, MOST),
            "Async requests of one slice: twice this for each level up to 8.",
        ),
        |knobs| i128::from(knobs.slice_async_rq),
        |knobs, value| knobs.slice_async_rq = value as u64,
    ),
    Row::new(
        Tunable::clamped(
            "slice_idle",
            Unit::Milliseconds,
            8,
            (0, MOST),
            "How long an empty sync queue is waited for; 0 at attach where seeks cost nothing.",
        ),
        |knobs| i128::from(knobs.slice_idle_ns / MS),
        |knobs, value| knobs.slice_idle_ns = value as u64 * MS,
    ),
    Row::new(
        Tunable::clamped(
            "slice_idle_us",
            Unit::Microseconds,
            8000,
            (0, MOST),
            "The same as slice_idle.",
        ),
        |knobs| i128::from(knobs.slice_idle_ns / US),
        |knobs, value| knobs.slice_idle_ns = value as u64 * US,
    ),
    Row::new(
        Tunable::clamped(
            "group_idle",
            Unit::Milliseconds,
            8,
            (0, MOST),
            "How long the only queue of a group is waited for, so that the group keeps its share.",
        ),
        |knobs| i128::from(knobs.group_idle_ns / MS),
        |knobs, value| knobs.group_idle_ns = value as u64 * MS,
    ),
    Row::new(
        Tunable::clamped(
            "group_idle_us",
            Unit::Microseconds,
            8000,
            (0, MOST),
            "The same as group_idle.",
        ),
        |knobs| i128::from(knobs.group_idle_ns / US),
        |knobs, value| knobs.group_idle_ns = value as u64 * US,
    ),
    Row::new(
        Tunable::clamped(
            "low_latency",
            Unit::Flag,
            1,
            (0, 1),
            "Shorten slices so that every queue comes by within target_latency; hold async back.",
        ),
        |knobs| i128::from(knobs.low_latency),
        |knobs, value| knobs.low_latency = value != 0,
    ),
    Row::new(
        Tunable::clamped(
            "target_latency",
            Unit::Milliseconds,
            300,
            (1, MOST),
            "Time in which each queue of a class is to be served once.",
        )
        .holds(When::NextSlice),
        |knobs| i128::from(knobs.target_latency_ns / MS),
        |knobs, value| knobs.target_latency_ns = value as u64 * MS,
    ),
    Row::new(
        Tunable::clamped(
            "target_latency_us",
            Unit::Microseconds,
            300_000,
            (1, MOST),
            "The same as target_latency.",
        )
        .holds(When::NextSlice),
        |knobs| i128::from(knobs.target_latency_ns / US),
        |knobs, value| knobs.target_latency_ns = value as u64 * US,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunable::Tunables;

    #[test]
    fn the_table_has_17_rows_and_each_shows_its_default() {
        let knobs = Knobs::new(true);
        assert_eq!(TUNABLES.len(), 17);
        for row in TUNABLES {
            assert_eq!(knobs.value(row.name), row.default, "{}", row.name);
        }
    }

    #[test]
    fn every_tunable_takes_its_bounds() {
        for row in TUNABLES {
            for value in [row.least, row.most] {
                let mut knobs = Knobs::new(true);
                knobs.put(row.name, value);
                assert_eq!(knobs.value(row.name), value, "{}", row.name);
            }
        }
    }

    #[test]
    fn a_pair_is_one_value_and_what_is_out_of_range_becomes_the_bound() {
        let mut knobs = Knobs::new(true);
        let tunables: &mut dyn Tunables = &mut knobs;
        let cases = [
            ("slice_sync", "50", "slice_sync_us", "50000"),
            ("target_latency_us", "250500", "target_latency", "250"),
            ("slice_idle_us", "1500", "slice_idle", "1"),
            ("group_idle", "3", "group_idle_us", "3000"),
            ("slice_async_us", "999", "slice_async", "0"),
            ("quantum", "0", "quantum", "1"),
            ("low_latency", "7", "low_latency", "1"),
            ("fifo_expire_sync", "4294967296", "fifo_expire_sync", "4294967295"),
        ];
        for (name, text, shown, value) in cases {
            tunables.set(name, text).expect("a number");
            assert_eq!(tunables.show(shown).as_deref(), Ok(value), "{name} = {text}");
        }
        assert!(tunables.set("quantum", "eight").is_err());
        assert!(tunables.set("slice_async_rq", "-1").is_err());
    }
}

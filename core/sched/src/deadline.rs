//! The parts that `deadline` and `mq-deadline` share besides the staged requests: five tunables,
//! and which direction a new batch goes. Source: docs/behaviour/deadline.md, sections 4 and 6.

use crate::tunable::{Number, Row, Tunable, Unit, When};

/// Index of reads, and of writes, wherever there is one of each.
pub(crate) const READ: usize = 0;
pub(crate) const WRITE: usize = 1;

const NS_PER_MS: u64 = 1_000_000;
const INT_MIN: i128 = i32::MIN as i128;
const INT_MAX: i128 = i32::MAX as i128;

/// How long a read may wait before it is served out of order.
const READ_EXPIRE: Tunable = Tunable {
    name: "read_expire",
    unit: Unit::Milliseconds,
    default: 500,
    least: 0,
    most: INT_MAX,
    number: Number::Signed32,
    when: When::LaterRequests,
    meaning: "Time until a read is served before sector order.",
};

// A write expires ten times later than a read: the reader waits now.
/// How long a write may wait before it is served out of order.
const WRITE_EXPIRE: Tunable = Tunable {
    name: "write_expire",
    default: 5000,
    meaning: "Time until a write is served before sector order.",
    ..READ_EXPIRE
};

/// How often reads are preferred.
const WRITES_STARVED: Tunable = Tunable {
    name: "writes_starved",
    unit: Unit::Selections,
    default: 2,
    least: INT_MIN,
    when: When::AtOnce,
    meaning: "Batches of reads chosen over waiting writes before writes get one.",
    ..READ_EXPIRE
};

/// Whether bios are merged in front of staged requests.
const FRONT_MERGES: Tunable = Tunable {
    name: "front_merges",
    unit: Unit::Flag,
    default: 1,
    most: 1,
    when: When::AtOnce,
    meaning: "Whether a bio looks for a staged request that starts where it ends.",
    ..READ_EXPIRE
};

/// How long a batch is.
const FIFO_BATCH: Tunable = Tunable {
    name: "fifo_batch",
    unit: Unit::Requests,
    default: 16,
    when: When::AtOnce,
    meaning: "Requests in a batch; expiry and direction are looked at between batches only.",
    ..READ_EXPIRE
};

/// A scheduler with these five.
pub(crate) trait Deadlines {
    fn settings(&self) -> &Settings;

    fn settings_mut(&mut self) -> &mut Settings;

    /// Front merges are looked for, or no longer.
    fn set_front_merges(&mut self, wanted: bool);
}

/// The rows of the five.
pub(crate) const fn rows<S: Deadlines>() -> [Row<S>; 5] {
    [
        Row::new(
            READ_EXPIRE,
            |own| ms_of_ns(own.settings().expire_ns[READ]),
            |own, ms| own.settings_mut().expire_ns[READ] = ns_of_ms(ms),
        ),
        Row::new(
            WRITE_EXPIRE,
            |own| ms_of_ns(own.settings().expire_ns[WRITE]),
            |own, ms| own.settings_mut().expire_ns[WRITE] = ns_of_ms(ms),
        ),
        Row::new(
            WRITES_STARVED,
            |own| i128::from(own.settings().writes_starved),
            |own, batches| own.settings_mut().writes_starved = batches as i64,
        ),
        Row::new(
            FRONT_MERGES,
            |own| i128::from(own.settings().front_merges),
            |own, wanted| {
                own.settings_mut().front_merges = wanted != 0;
                own.set_front_merges(wanted != 0);
            },
        ),
        Row::new(
            FIFO_BATCH,
            |own| i128::from(own.settings().fifo_batch),
            |own, requests| own.settings_mut().fifo_batch = requests as u32,
        ),
    ]
}

/// The values of the five.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Of reads and of writes.
    pub(crate) expire_ns: [u64; 2],
    pub(crate) writes_starved: i64,
    pub(crate) front_merges: bool,
    pub(crate) fifo_batch: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            expire_ns: [READ_EXPIRE, WRITE_EXPIRE].map(|row| ns_of_ms(row.default)),
            writes_starved: WRITES_STARVED.default as i64,
            front_merges: FRONT_MERGES.default != 0,
            fifo_batch: FIFO_BATCH.default as u32,
        }
    }
}

impl Settings {
    /// Which direction a new batch goes, given which of them wait; `starved` counts the times that
    /// reads went before waiting writes.
    #[inline]
    pub(crate) fn direction(&self, waiting: [bool; 2], starved: &mut i64) -> Option<usize> {
        match waiting {
            [false, false] => return None,
            [true, false] => return Some(READ),
            [true, true] => {
                let before = *starved;
                *starved += 1;
                if before < self.writes_starved {
                    return Some(READ);
                }
            }
            [false, true] => {}
        }
        *starved = 0;
        Some(WRITE)
    }

    /// Counts as [`direction`](Settings::direction) would have if it had chosen `direction`.
    pub(crate) fn force_direction(&self, direction: usize, waiting: [bool; 2], starved: &mut i64) {
        if direction == WRITE {
            *starved = 0;
        } else if waiting[WRITE] {
            *starved += 1;
        }
    }
}

/// Nanoseconds of a tunable in milliseconds, which is not negative.
pub(crate) fn ns_of_ms(ms: i128) -> u64 {
    u64::try_from(ms).expect("a time is not negative") * NS_PER_MS
}

pub(crate) fn ms_of_ns(ns: u64) -> i128 {
    i128::from(ns / NS_PER_MS)
}

//! The parts that `deadline` and `mq-deadline` share besides the staged requests: five tunables,
//! and which direction a new batch goes. Source: docs/behaviour/deadline.md, sections 4 and 6.

use crate::tunable::{Number, Tunable, Unit};

/// Index of reads, and of writes, wherever there is one of each.
pub(crate) const READ: usize = 0;
pub(crate) const WRITE: usize = 1;

const NS_PER_MS: u64 = 1_000_000;
const INT_MIN: i128 = i32::MIN as i128;
const INT_MAX: i128 = i32::MAX as i128;

/// How long a read may wait before it is served out of order.
pub(crate) const READ_EXPIRE: Tunable = Tunable {
    name: "read_expire",
    unit: Unit::Milliseconds,
    default: 500,
    least: 0,
    most: INT_MAX,
    number: Number::Signed32,
    meaning: "Time until a read is served before sector order; applies to reads inserted later.",
};

// A write expires ten times later than a read: the reader waits now.
/// How long a write may wait before it is served out of order.
pub(crate) const WRITE_EXPIRE: Tunable = Tunable {
    name: "write_expire",
    default: 5000,
    meaning: "Time until a write is served before sector order; applies to writes inserted later.",
    ..READ_EXPIRE
};

/// How often reads are preferred.
pub(crate) const WRITES_STARVED: Tunable = Tunable {
    name: "writes_starved",
    unit: Unit::Selections,
    default: 2,
    least: INT_MIN,
    meaning: "Batches of reads chosen over waiting writes before writes get one.",
    ..READ_EXPIRE
};

/// Whether bios are merged in front of staged requests.
pub(crate) const FRONT_MERGES: Tunable = Tunable {
    name: "front_merges",
    unit: Unit::Flag,
    default: 1,
    most: 1,
    meaning: "Whether a bio looks for a staged request that starts where it ends.",
    ..READ_EXPIRE
};

/// How long a batch is.
pub(crate) const FIFO_BATCH: Tunable = Tunable {
    name: "fifo_batch",
    unit: Unit::Requests,
    default: 16,
    meaning: "Requests in a batch; expiry and direction are looked at between batches only.",
    ..READ_EXPIRE
};

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
        let mut settings =
            Settings { expire_ns: [0; 2], writes_starved: 0, front_merges: false, fifo_batch: 0 };
        for row in [READ_EXPIRE, WRITE_EXPIRE, WRITES_STARVED, FRONT_MERGES, FIFO_BATCH] {
            settings.put(row.name, row.default);
        }
        settings
    }
}

impl Settings {
    /// The value of one of the five; anything else is a caller's mistake.
    pub(crate) fn value(&self, name: &str) -> i128 {
        match name {
            "read_expire" => i128::from(self.expire_ns[READ] / NS_PER_MS),
            "write_expire" => i128::from(self.expire_ns[WRITE] / NS_PER_MS),
            "writes_starved" => i128::from(self.writes_starved),
            "front_merges" => i128::from(self.front_merges),
            "fifo_batch" => i128::from(self.fifo_batch),
            _ => unreachable!("{name} is none of the deadline tunables"),
        }
    }

    /// Sets one of the five to a value within its range.
    pub(crate) fn put(&mut self, name: &str, value: i128) {
        match name {
            "read_expire" => self.expire_ns[READ] = ns_of_ms(value),
            "write_expire" => self.expire_ns[WRITE] = ns_of_ms(value),
            "writes_starved" => self.writes_starved = value as i64,
            "front_merges" => self.front_merges = value != 0,
            "fifo_batch" => self.fifo_batch = value as u32,
            _ => unreachable!("{name} = {value}: none of the deadline tunables"),
        }
    }

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

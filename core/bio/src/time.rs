//! Time as weir's core sees it: a number handed in from outside.

use std::ops::{Add, Sub};

/// Nanoseconds on a clock that never goes back; its origin is the caller's business.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The earliest moment.
    pub const ZERO: Nanos = Nanos(0);

    /// Nanoseconds since `earlier`, 0 when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The earlier of two moments of which there need be none.
    #[must_use]
    #[inline]
    pub fn first_of(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
        match (one, other) {
            (Some(one), Some(other)) => Some(if other < one { other } else { one }),
            (one, None) => one,
            (None, other) => other,
        }
    }

    /// From milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }
}

impl Add<u64> for Nanos {
    type Output = Nanos;
    fn add(self, ns: u64) -> Nanos {
        Nanos(self.0.saturating_add(ns))
    }
}

impl Sub<u64> for Nanos {
    type Output = Nanos;
    fn sub(self, ns: u64) -> Nanos {
        Nanos(self.0.saturating_sub(ns))
    }
}

//! Sequence numbers that wrap. RFC 7143, section 4.2.2.1, with the arithmetic of RFC 1982.

use std::fmt;

/// A 32-bit serial number: CmdSN, StatSN and their kin. It has no order of its own, because two
/// numbers half a circle apart are neither before nor after each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Serial(pub u32);

impl Serial {
    /// The next number.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// The number so many steps on.
    #[must_use]
    pub const fn plus(self, steps: u32) -> Self {
        Self(self.0.wrapping_add(steps))
    }

    /// Steps from `from` to this number: negative when this one comes first.
    #[must_use]
    pub const fn since(self, from: Self) -> i32 {
        self.0.wrapping_sub(from.0).cast_signed()
    }

    /// Whether it comes before `other`.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        other.since(self) > 0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Serial;

    #[test]
    fn numbers_are_compared_around_the_wrap() {
        let last = Serial(u32::MAX);
        assert_eq!(last.next(), Serial(0));
        assert!(last.is_before(Serial(0)) && !Serial(0).is_before(last));
        assert!(!last.is_before(last));
        assert_eq!(Serial(2).since(last), 3);
        assert_eq!(last.since(Serial(2)), -3);
        // Half a circle away is neither before nor after.
        assert!(!Serial(0).is_before(Serial(1 << 31)));
        assert!(!Serial(1 << 31).is_before(Serial(0)));
    }
}

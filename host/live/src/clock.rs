//! The clock.

use rustix::time::{ClockId, clock_gettime};
use weir_bio::Nanos;

/// The system's monotonic clock. Every thread that hands `now` to one device has to read the same
/// clock, and this is it: its origin is the system's, not the reader's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Nanoseconds since the system's own origin. Costs some 20 ns: read it once a pass.
    #[must_use]
    #[inline]
    pub fn now(self) -> Nanos {
        let time = clock_gettime(ClockId::Monotonic);
        Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let mut last = Clock.now();
        for _ in 0..1000 {
            let now = Clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}

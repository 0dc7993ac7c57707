//! The queue depth of a logical unit, as its target's TASK SET FULL lowers it and time raises it.
//!
//! The rules are those of Linux' SCSI mid-layer. A full task set says that fewer commands fit than
//! were sent, not how many. So the depth goes down by one, and only after the same depth was found
//! too high more than 10 times, in different windows of time. It goes up by one in each
//! ramp-up period without a full task set. `fast` is weir's own: it halves and grows with the
//! commands that succeed.

use weir_bio::Nanos;

/// Reports of one depth that are needed before it is lowered.
const REPORTS: u32 = 10;

/// Reports within one window count once: 16 ticks of 4 ms.
const WINDOW_NS: u64 = 64_000_000;

/// The ramp-up period that a logical unit begins with.
pub const RAMP_UP_PERIOD_NS: u64 = 120_000_000_000;

/// Commands that have to succeed before `fast` raises the depth by one.
const FAST_ENDS: u32 = 256;

/// How a depth follows its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ramp {
    /// As Linux: slowly down, more slowly up.
    #[default]
    Tracked,
    /// Down by half, up by one for each 256 commands that succeed.
    Fast,
}

/// The depth of one logical unit.
#[derive(Clone, Debug)]
pub struct DepthTracker {
    ramp: Ramp,
    depth: u16,
    max: u16,
    period_ns: u64,
    ramped_at: Nanos,
    full_at: Option<Nanos>,
    full_depth: u16,
    reports: u32,
    ends: u32,
}

impl DepthTracker {
    /// One that begins with `depth`, at least 1.
    #[must_use]
    pub fn new(depth: u16, ramp: Ramp) -> DepthTracker {
        let depth = depth.max(1);
        DepthTracker {
            ramp,
            depth,
            max: depth,
            period_ns: RAMP_UP_PERIOD_NS,
            ramped_at: Nanos::ZERO,
            full_at: None,
            full_depth: 0,
            reports: 0,
            ends: 0,
        }
    }

    /// Commands it may have at once.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Whether time or success may raise it.
    #[must_use]
    pub fn may_rise(&self) -> bool {
        self.depth < self.max
    }

    /// The ramp-up period, nanoseconds.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Sets the ramp-up period.
    pub fn set_period(&mut self, period_ns: u64) {
        self.period_ns = period_ns;
    }

    /// The administrator sets it; it is not raised above this any more.
    pub fn set(&mut self, depth: u16) {
        (self.depth, self.max) = (depth.max(1), depth.max(1));
        self.reports = 0;
    }

    /// A task set of the target was full.
    pub fn full(&mut self, now: Nanos) {
        let window = |at: Nanos| at.0 / WINDOW_NS;
        let last = self.full_at.replace(now);
        if last.is_some_and(|last| window(last) == window(now)) {
            return;
        }
        self.ends = 0;
        let fits = self.depth.saturating_sub(1).max(1);
        match self.ramp {
            Ramp::Fast => self.depth = (self.depth / 2).max(1),
            Ramp::Tracked => {
                if self.full_depth != fits {
                    (self.full_depth, self.reports) = (fits, 0);
                }
                self.reports += 1;
                if self.reports > REPORTS {
                    self.depth = fits;
                }
            }
        }
    }

    /// So many commands succeeded.
    pub fn good(&mut self, ends: u32, now: Nanos) {
        if !self.may_rise() {
            return;
        }
        match self.ramp {
            Ramp::Fast => {
                self.ends = self.ends.saturating_add(ends);
                if self.ends >= FAST_ENDS {
                    self.ends = 0;
                    self.depth += 1;
                }
            }
            Ramp::Tracked => {
                let rests = |since: Nanos| now.since(since) >= self.period_ns;
                if rests(self.ramped_at) && self.full_at.is_none_or(rests) {
                    self.ramped_at = now;
                    self.depth += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_depth_is_lowered_by_one_after_eleven_reports_of_it() {
        let mut depth = DepthTracker::new(32, Ramp::Tracked);
        for report in 1..=11 {
            assert_eq!(depth.depth(), 32, "before report {report}");
            depth.full(Nanos(report * SECOND));
        }
        assert_eq!(depth.depth(), 31);
        // The next depth is counted from the beginning.
        for report in 12..=21 {
            depth.full(Nanos(report * SECOND));
            assert_eq!(depth.depth(), 31, "report {report}");
        }
        depth.full(Nanos(22 * SECOND));
        assert_eq!(depth.depth(), 30);
    }

    #[test]
    fn reports_within_one_window_count_once() {
        let mut depth = DepthTracker::new(32, Ramp::Tracked);
        for at in 0..60 {
            depth.full(Nanos(at * 1_000_000));
        }
        assert_eq!(depth.depth(), 32);
    }

    #[test]
    fn a_depth_rises_by_one_in_each_period_without_a_full_task_set_up_to_what_was_set() {
        let mut depth = DepthTracker::new(4, Ramp::Tracked);
        (1..=22).for_each(|report| depth.full(Nanos(report * SECOND)));
        assert_eq!(depth.depth(), 2);
        depth.good(1, Nanos((22 + 119) * SECOND));
        assert_eq!(depth.depth(), 2, "the period is not over");
        depth.good(1, Nanos((22 + 120) * SECOND));
        depth.good(1, Nanos((22 + 121) * SECOND));
        assert_eq!(depth.depth(), 3, "one step in a period");
        depth.good(1, Nanos((22 + 241) * SECOND));
        depth.good(1, Nanos((22 + 500) * SECOND));
        assert_eq!((depth.depth(), depth.may_rise()), (4, false));
    }

    #[test]
    fn the_administrators_depth_is_the_new_ceiling() {
        let mut depth = DepthTracker::new(32, Ramp::Tracked);
        depth.set(8);
        depth.good(1, Nanos(1000 * SECOND));
        assert_eq!((depth.depth(), depth.may_rise()), (8, false));
        depth.set(0);
        assert_eq!(depth.depth(), 1, "never none");
    }

    #[test]
    fn fast_halves_and_grows_with_success_and_never_below_one() {
        let mut depth = DepthTracker::new(32, Ramp::Fast);
        depth.full(Nanos(SECOND));
        assert_eq!(depth.depth(), 16);
        depth.good(255, Nanos(SECOND));
        assert_eq!(depth.depth(), 16);
        depth.good(1, Nanos(SECOND));
        assert_eq!(depth.depth(), 17);
        (2..=20).for_each(|at| depth.full(Nanos(at * SECOND)));
        assert_eq!(depth.depth(), 1);
    }

    #[test]
    fn a_depth_of_one_stays_one() {
        let mut depth = DepthTracker::new(1, Ramp::Tracked);
        (1..=50).for_each(|report| depth.full(Nanos(report * SECOND)));
        assert_eq!(depth.depth(), 1);
    }
}

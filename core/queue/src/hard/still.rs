//! A clock that can stand still: what has passed of a request's time, less the outages of its
//! device.

use std::collections::VecDeque;

use weir_bio::Nanos;

/// Spans that are remembered. A device that goes and comes back more often within one time-out has
/// its requests end sooner: of so many outages the oldest count as time.
const SPANS_MAX: usize = 64;

/// The latest outages of a device: spans that do not count as time of its requests.
#[derive(Debug, Default)]
pub(super) struct Still {
    /// Oldest first, apart from each other.
    spans: VecDeque<(Nanos, Nanos)>,
    /// Time stands still, at most until then.
    until: Option<Nanos>,
}

impl Still {
    /// Time stands still from now on, or goes on to, at most until `until`.
    pub(super) fn stand(&mut self, now: Nanos, until: Nanos) {
        self.account(now);
        if self.until.is_none() {
            if self.spans.len() == SPANS_MAX {
                self.spans.pop_front();
            }
            self.spans.push_back((now, now));
        }
        self.until = Some(until);
    }

    /// Time runs.
    pub(super) fn run(&mut self, now: Nanos) {
        self.account(now);
        self.until = None;
    }

    fn account(&mut self, now: Nanos) {
        if let (Some(until), Some((_, to))) = (self.until, self.spans.back_mut()) {
            *to = now.min(until).max(*to);
        }
    }

    /// Whether it was last said to stand still.
    pub(super) fn stands(&self) -> bool {
        self.until.is_some()
    }

    /// A request that began at the returned moment or earlier has had `ns` of its time; `None` when
    /// nothing can have.
    pub(super) fn before(&mut self, ns: u64, now: Nanos) -> Option<Nanos> {
        self.account(now);
        let (mut left, mut at) = (ns, now);
        for (from, to) in self.spans.iter().rev() {
            let ran = at.since(*to);
            if ran >= left {
                break;
            }
            (left, at) = (left - ran, *from);
        }
        let before = at.0.checked_sub(left).map(Nanos)?;
        // The last one may be going on.
        while self.spans.len() > 1 && self.spans[0].1 <= before {
            self.spans.pop_front();
        }
        Some(before)
    }

    /// How much of a request's time has passed since then.
    pub(super) fn passed(&self, since: Nanos, now: Nanos) -> u64 {
        let within = |(from, to): &(Nanos, Nanos)| to.since(since.max(*from));
        now.since(since).saturating_sub(self.spans.iter().map(within).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDLESS: Nanos = Nanos(u64::MAX);

    #[test]
    fn time_that_always_runs_is_what_has_passed() {
        let mut still = Still::default();
        assert_eq!(still.before(30, Nanos(100)), Some(Nanos(70)));
        assert_eq!(still.before(101, Nanos(100)), None);
        assert_eq!(still.passed(Nanos(70), Nanos(100)), 30);
    }

    #[test]
    fn spans_are_left_out_and_no_time_begins_anew() {
        let mut still = Still::default();
        still.stand(Nanos(100), ENDLESS);
        still.stand(Nanos(150), ENDLESS);
        still.run(Nanos(200));
        still.stand(Nanos(210), ENDLESS);
        still.run(Nanos(300));
        for (since, passed) in [(350, 10), (300, 60), (250, 60), (205, 65), (120, 70), (90, 80)] {
            assert_eq!(still.passed(Nanos(since), Nanos(360)), passed, "since {since}");
        }
        for (ns, before) in [(170, 0), (80, 90), (70, 200), (65, 205), (60, 300), (10, 350)] {
            assert_eq!(still.before(ns, Nanos(360)), Some(Nanos(before)), "{ns}");
        }
    }

    #[test]
    fn time_stands_still_no_longer_than_was_said() {
        let mut still = Still::default();
        still.stand(Nanos(100), Nanos(150));
        assert_eq!(still.before(1, Nanos(140)), Some(Nanos(99)));
        still.run(Nanos(1000));
        assert_eq!(still.passed(Nanos(100), Nanos(1000)), 850);
        still.run(Nanos(2000));
        assert_eq!(still.passed(Nanos(100), Nanos(2000)), 1850, "it runs since");
    }

    #[test]
    fn a_device_that_comes_and_goes_for_ever_costs_bounded_memory() {
        let mut still = Still::default();
        for n in 0..10_000 {
            still.stand(Nanos(n * 10), ENDLESS);
            still.run(Nanos(n * 10 + 9));
        }
        assert_eq!(still.spans.len(), SPANS_MAX);
    }
}

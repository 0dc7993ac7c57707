//! Weight raising: what `low_latency` does for interactive and soft real-time processes. Source:
//! docs/behaviour/bfq.md, section 11. Times in ns.
//!
//! The type knows times and sectors, and answers from when on the queue's weight is another;
//! `raising` asks it and tells the scheduler of entities.

use weir_bio::Nanos;

/// The factor of an interactive queue's weight.
pub(super) const INTERACTIVE: u32 = 30;
/// The factor of a soft real-time queue's weight.
pub(super) const SOFT_RT: u32 = 3000;
/// How long a queue is raised as soft real-time after each batch.
const SOFT_RT_PERIOD_NS: u64 = 300_000_000;
/// The most a soft real-time process asks for, sectors/s.
const SOFT_RT_RATE: u64 = 7000;
/// A soft real-time process leaves more room than an idle slice between batches: by this much.
const SOFT_RT_MARGIN_NS: u64 = 16_000_000;
/// A queue idle for longer is interactive when it returns.
const LONG_IDLE_NS: u64 = 2_000_000_000;
/// An async queue whose last request is older is raised with the next.
const ASYNC_IDLE_NS: u64 = 500_000_000;
/// An interactive period ends when the queue has received this, sectors.
const INTERACTIVE_SERVICE: u64 = 120_000;
const SECOND_NS: u64 = 1_000_000_000;

/// As what a queue is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Plain,
    Interactive,
    /// With the beginning of the interactive period that it interrupted.
    SoftRealTime {
        interactive_since: Option<u64>,
    },
}

/// From when on the coefficient of a queue counts that its raising has now.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the one that counts already.
    Unchanged,
    NextStamp,
    AtOnce,
}

/// The state of a queue's weight raising.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    phase: Phase,
    /// When the running period began or the last one ended.
    started: u64,
    /// Its length; 0 when not raised.
    period: u64,
    /// Sectors received since the interactive period began.
    service: u64,
    /// Before this no batch is isochronous.
    soft_rt_next: u64,
    /// Since when the queue has been backlogged, and what it received since, sectors.
    backlog_started: u64,
    backlog_service: u64,
}

/// A queue that turns from idle to busy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// It may be raised: the queue of a process, of the default weight.
    pub(super) takes_part: bool,
    /// None of its requests is in the device.
    pub(super) quiet: bool,
    /// Since when it had had nothing; none if it is new.
    pub(super) drained: Option<u64>,
    /// It may be isochronous: that is looked for, and not all of its requests are far apart.
    pub(super) steady: bool,
    pub(super) in_large_burst: bool,
    /// The interactive period of the device.
    pub(super) interactive_ns: u64,
}

/// What ends the raising of a queue before its time, and how long that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) totally_seeky: bool,
    pub(super) in_large_burst: bool,
    /// The interactive period of the device.
    pub(super) interactive_ns: u64,
}

impl Raise {
    pub(super) fn new(now: Nanos) -> Raise {
        Raise {
            phase: Phase::Plain,
            started: now.0,
            period: 0,
            service: 0,
            soft_rt_next: now.0,
            backlog_started: 0,
            backlog_service: 0,
        }
    }

    /// The factor of the queue's weight.
    pub(super) fn coefficient(&self) -> u32 {
        match self.phase {
            Phase::Plain => 1,
            Phase::Interactive => INTERACTIVE,
            Phase::SoftRealTime { .. } => SOFT_RT,
        }
    }

    /// Length of the running period; 0 when not raised.
    pub(super) fn period(&self) -> u64 {
        self.period
    }

    /// The queue turns busy: begins, restarts or ends raising.
    pub(super) fn arrive(&mut self, at: Arrival, now: Nanos) -> Verdict {
        let long = at.drained.is_none_or(|drained| now.0 > drained + LONG_IDLE_NS);
        // A process that paused so long has most likely been told to do something by its user.
        let interactive = at.quiet && long && !at.in_large_burst;
        // One that asks for little, and at its own pace, plays or records.
        let soft_rt = at.steady && at.quiet && !at.in_large_burst && now.0 > self.soft_rt_next;
        match self.phase {
            Phase::Plain if !at.takes_part => Verdict::Unchanged,
            Phase::Plain if interactive => self.begin_interactive(at.interactive_ns, now),
            Phase::Plain if soft_rt => self.begin_soft_rt(None, now),
            Phase::Plain => Verdict::Unchanged,
            _ if interactive => self.go_on_interactive(now.0, at.interactive_ns),
            _ if at.in_large_burst => self.end(now),
            Phase::Interactive if soft_rt => self.begin_soft_rt(Some(self.started), now),
            Phase::SoftRealTime { interactive_since } if soft_rt => {
                self.begin_soft_rt(interactive_since, now)
            }
            _ => Verdict::Unchanged,
        }
    }

    /// Raises a queue that was not raised, from now on.
    pub(super) fn begin_interactive(&mut self, interactive_ns: u64, now: Nanos) -> Verdict {
        self.service = 0;
        self.go_on_interactive(now.0, interactive_ns)
    }

    fn go_on_interactive(&mut self, since: u64, interactive_ns: u64) -> Verdict {
        self.phase = Phase::Interactive;
        (self.started, self.period) = (since, interactive_ns);
        Verdict::NextStamp
    }

    fn begin_soft_rt(&mut self, interactive_since: Option<u64>, now: Nanos) -> Verdict {
        self.phase = Phase::SoftRealTime { interactive_since };
        (self.started, self.period) = (now.0, SOFT_RT_PERIOD_NS);
        Verdict::NextStamp
    }

    /// The queue's backlog begins, and with it the measure of how fast it asks.
    pub(super) fn begin_backlog(&mut self, now: Nanos) {
        (self.backlog_started, self.backlog_service) = (now.0, 0);
    }

    /// The queue received so many sectors.
    #[inline(always)]
    pub(super) fn charge(&mut self, sectors: u64, raised: bool) {
        self.backlog_service += sectors;
        self.service += if raised { sectors } else { 0 };
    }

    /// A request of the queue, raised and in service, was dispatched: is raising over?
    #[inline(always)]
    pub(super) fn dispatched(&mut self, bounds: Bounds, now: Nanos) -> Verdict {
        let soft_rt = match self.phase {
            Phase::Plain => return Verdict::Unchanged,
            Phase::Interactive => false,
            Phase::SoftRealTime { .. } => true,
        };
        // So much is more than an application needs to start: it copies something.
        let served = !soft_rt && self.service > INTERACTIVE_SERVICE;
        if bounds.in_large_burst || served {
            self.end(now)
        } else if self.is_over(now) || (soft_rt && bounds.totally_seeky) {
            self.fall_back(bounds.interactive_ns, now)
        } else {
            Verdict::Unchanged
        }
    }

    /// How many sectors the queue may receive at `now` while [`dispatched`](Raise::dispatched) has
    /// nothing to say.
    #[inline(always)]
    pub(super) fn steady_for(&self, bounds: Bounds, now: Nanos) -> u64 {
        let ends = bounds.in_large_burst || self.is_over(now);
        match self.phase {
            Phase::Plain => u64::MAX,
            _ if ends => 0,
            Phase::Interactive => INTERACTIVE_SERVICE.saturating_sub(self.service),
            Phase::SoftRealTime { .. } if bounds.totally_seeky => 0,
            Phase::SoftRealTime { .. } => u64::MAX,
        }
    }

    /// Raising that was saved goes on where it was, if its time is not over.
    pub(super) fn resume(&mut self, bounds: Bounds, now: Nanos) {
        let _from_next_stamp = match self.phase {
            Phase::Plain => Verdict::Unchanged,
            _ if bounds.in_large_burst => self.end(now),
            _ if self.is_over(now) => self.fall_back(bounds.interactive_ns, now),
            _ => Verdict::Unchanged,
        };
    }

    fn is_over(&self, now: Nanos) -> bool {
        now.0 >= self.started + self.period
    }

    /// A period is over: what is left of an interactive one that it interrupted goes on.
    fn fall_back(&mut self, interactive_ns: u64, now: Nanos) -> Verdict {
        match self.phase {
            Phase::SoftRealTime { interactive_since: Some(since) }
                if now.0 < since + interactive_ns =>
            {
                let _from_next_stamp = self.go_on_interactive(since, interactive_ns);
                Verdict::AtOnce
            }
            _ => self.end(now),
        }
    }

    /// Ends raising. What an application read while it started says nothing of the pace at which
    /// it will ask, so that is measured from here.
    pub(super) fn end(&mut self, now: Nanos) -> Verdict {
        if self.phase == Phase::Interactive {
            self.soft_rt_next = now.0;
        }
        self.phase = Phase::Plain;
        (self.started, self.period) = (now.0, 0);
        self.begin_backlog(now);
        Verdict::AtOnce
    }

    /// The queue has nothing queued and nothing in the device: when may its next batch begin and
    /// still be isochronous?
    pub(super) fn drained(&mut self, slice_idle_ns: u64, now: Nanos) {
        let earliest = now.0 + slice_idle_ns + SOFT_RT_MARGIN_NS;
        let paced = self.backlog_started.saturating_add(paced_ns(self.backlog_service));
        self.soft_rt_next = self.soft_rt_next.max(paced).max(earliest);
    }

    /// Service begins after so long: a soft real-time queue does not lose the time it waited.
    pub(super) fn excuse(&mut self, waited_ns: u64, now: Nanos) {
        if let Phase::SoftRealTime { .. } = self.phase {
            self.started = (self.started + waited_ns).min(now.0);
        }
    }
}

/// The last request of an async queue is so long ago that the next one raises it.
pub(super) fn is_sparse(last_insert: u64, now: Nanos) -> bool {
    now.0 > last_insert + ASYNC_IDLE_NS
}

/// How long `sectors` take at the most a soft real-time process asks for, ns. Whole seconds apart:
/// a backlog of terabytes in nanoseconds is more than a u64 holds.
fn paced_ns(sectors: u64) -> u64 {
    let (whole, rest) = (sectors / SOFT_RT_RATE, sectors % SOFT_RT_RATE);
    whole.saturating_mul(SECOND_NS).saturating_add(rest * SECOND_NS / SOFT_RT_RATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// The interactive period of the tests.
    const PERIOD: u64 = 10_000 * MS;
    /// The arrival that is raised as interactive, of a queue that is new.
    const NEW: Arrival = Arrival {
        takes_part: true,
        quiet: true,
        drained: None,
        steady: true,
        in_large_burst: false,
        interactive_ns: PERIOD,
    };
    /// As [`NEW`], after a short pause.
    const SOON: Arrival = Arrival { drained: Some(4000 * MS), ..NEW };
    const BOUNDS: Bounds =
        Bounds { totally_seeky: false, in_large_burst: false, interactive_ns: PERIOD };

    fn at(phase: Phase, started_ms: u64, period: u64) -> Raise {
        let started = started_ms * MS;
        Raise { phase, started, period, ..Raise::new(Nanos(0)) }
    }

    fn plain() -> Raise {
        at(Phase::Plain, 0, 0)
    }

    /// Since 4 s.
    fn interactive() -> Raise {
        at(Phase::Interactive, 4000, PERIOD)
    }

    /// Since 4.9 s.
    fn soft(interactive_since_ms: Option<u64>) -> Raise {
        let interactive_since = interactive_since_ms.map(|ms| ms * MS);
        at(Phase::SoftRealTime { interactive_since }, 4900, SOFT_RT_PERIOD_NS)
    }

    #[test]
    fn a_long_pause_is_interactive_and_a_steady_pace_is_soft_real_time() {
        let burst = |arrival| Arrival { in_large_burst: true, ..arrival };
        let unquiet = Arrival { quiet: false, ..NEW };
        let unsteady = Arrival { steady: false, ..SOON };
        let opted_out = Arrival { takes_part: false, ..NEW };
        let paused = |ms: u64| Arrival { drained: Some((5000 - ms) * MS), ..unsteady };
        let later = Raise { soft_rt_next: 5000 * MS, ..plain() };
        let (none, next, once) = (Verdict::Unchanged, Verdict::NextStamp, Verdict::AtOnce);
        // State before, arrival at 5 s, verdict, coefficient, start of the period in ms.
        let table: &[(Raise, Arrival, Verdict, u32, u64)] = &[
            (plain(), NEW, next, 30, 5000),
            (plain(), opted_out, none, 1, 0),
            (plain(), unquiet, none, 1, 0),
            (plain(), paused(2001), next, 30, 5000),
            (plain(), paused(2000), none, 1, 0),
            (plain(), burst(Arrival { takes_part: false, ..NEW }), none, 1, 0),
            (plain(), SOON, next, 3000, 5000),
            (plain(), unsteady, none, 1, 0),
            (later, SOON, none, 1, 0),
            (Raise { soft_rt_next: 5000 * MS - 1, ..later }, SOON, next, 3000, 5000),
            (interactive(), NEW, next, 30, 5000),
            (interactive(), opted_out, next, 30, 5000),
            (interactive(), SOON, next, 3000, 5000),
            (interactive(), unsteady, none, 30, 4000),
            (interactive(), burst(NEW), once, 1, 5000),
            (soft(None), SOON, next, 3000, 5000),
            (soft(None), unsteady, none, 3000, 4900),
            (soft(None), NEW, next, 30, 5000),
            (soft(None), burst(SOON), once, 1, 5000),
        ];
        for (n, (before, arrival, verdict, coefficient, started)) in table.iter().enumerate() {
            let mut raise = *before;
            assert_eq!(raise.arrive(*arrival, Nanos(5000 * MS)), *verdict, "row {n}");
            assert_eq!(raise.coefficient(), *coefficient, "row {n}");
            assert_eq!(raise.started, started * MS, "row {n}");
        }
    }

    #[test]
    fn raising_ends_by_time_by_service_or_by_seeks_and_an_interrupted_period_goes_on() {
        let seeky = Bounds { totally_seeky: true, ..BOUNDS };
        let burst = Bounds { in_large_burst: true, ..BOUNDS };
        let served = |service| Raise { service, ..interactive() };
        let (none, once) = (Verdict::Unchanged, Verdict::AtOnce);
        // State before, dispatch at so many ms, verdict, coefficient, start of the period in ms.
        let table: &[(Raise, Bounds, u64, Verdict, u32, u64)] = &[
            (plain(), burst, 5000, none, 1, 0),
            (interactive(), BOUNDS, 13_999, none, 30, 4000),
            (interactive(), BOUNDS, 14_000, once, 1, 14_000),
            (interactive(), seeky, 5000, none, 30, 4000),
            (interactive(), burst, 5000, once, 1, 5000),
            (served(120_000), BOUNDS, 5000, none, 30, 4000),
            (served(120_001), BOUNDS, 5000, once, 1, 5000),
            (soft(None), BOUNDS, 5199, none, 3000, 4900),
            (soft(None), BOUNDS, 5200, once, 1, 5200),
            (soft(None), seeky, 5000, once, 1, 5000),
            (soft(Some(1000)), BOUNDS, 5199, none, 3000, 4900),
            (soft(Some(1000)), BOUNDS, 5200, once, 30, 1000),
            (soft(Some(1000)), BOUNDS, 10_999, once, 30, 1000),
            (soft(Some(1000)), BOUNDS, 11_000, once, 1, 11_000),
            (soft(Some(1000)), seeky, 5000, once, 30, 1000),
            (soft(Some(1000)), seeky, 11_000, once, 1, 11_000),
            (soft(Some(1000)), burst, 5000, once, 1, 5000),
            (Raise { service: 120_001, ..soft(None) }, BOUNDS, 5000, none, 3000, 4900),
        ];
        for (n, (before, what, ms, verdict, coefficient, started)) in table.iter().enumerate() {
            let mut raise = *before;
            assert_eq!(raise.dispatched(*what, Nanos(ms * MS)), *verdict, "row {n}");
            assert_eq!(raise.coefficient(), *coefficient, "row {n}");
            assert_eq!(raise.started, started * MS, "row {n}");
            assert_eq!(raise.period == 0, *coefficient == 1, "row {n}");
        }
    }

    #[test]
    fn a_saved_period_goes_on_unless_it_is_over() {
        let burst = Bounds { in_large_burst: true, ..BOUNDS };
        for (before, what, ms, coefficient) in [
            (plain(), BOUNDS, 5000, 1),
            (interactive(), BOUNDS, 13_999, 30),
            (interactive(), BOUNDS, 14_000, 1),
            (interactive(), burst, 5000, 1),
            (soft(None), BOUNDS, 5199, 3000),
            (soft(None), BOUNDS, 5200, 1),
            (soft(Some(1000)), BOUNDS, 5200, 30),
            (soft(Some(1000)), BOUNDS, 11_000, 1),
            (soft(Some(1000)), burst, 5000, 1),
        ] {
            let mut raise = before;
            raise.resume(what, Nanos(ms * MS));
            assert_eq!(raise.coefficient(), coefficient, "{before:?} at {ms} ms");
        }
    }

    #[test]
    fn the_pace_of_a_queue_is_measured_anew_when_its_interactive_period_ends() {
        // A batch may begin after what was served is over at 7,000 sectors/s, or after a pause.
        for (before, sectors, next_ms) in [
            (plain(), 70_000, 13_000),
            (plain(), 7, 5024),
            (Raise { soft_rt_next: 20_000 * MS, ..plain() }, 7, 20_000),
        ] {
            let mut raise = before;
            raise.begin_backlog(Nanos(3000 * MS));
            raise.charge(sectors, false);
            raise.drained(8 * MS, Nanos(5000 * MS));
            assert_eq!(raise.soft_rt_next, next_ms * MS, "{sectors} sectors");
        }
        for (before, next_ms) in [(interactive(), 5000), (soft(Some(4000)), 90_000)] {
            let mut raise = Raise { soft_rt_next: 90_000 * MS, ..before };
            raise.charge(1 << 20, true);
            assert_eq!(raise.end(Nanos(5000 * MS)), Verdict::AtOnce);
            assert_eq!(raise.soft_rt_next, next_ms * MS, "{before:?}");
            assert_eq!((raise.backlog_started, raise.backlog_service), (5000 * MS, 0));
        }
    }

    #[test]
    fn the_time_that_a_soft_real_time_queue_waits_is_no_part_of_its_period() {
        for (before, waited_ms, started_ms) in
            [(soft(None), 50, 4950), (soft(None), 500, 5000), (interactive(), 50, 4000)]
        {
            let mut raise = before;
            raise.excuse(waited_ms * MS, Nanos(5000 * MS));
            assert_eq!(raise.started, started_ms * MS, "{before:?} waited {waited_ms} ms");
        }
    }

    #[test]
    fn what_was_served_before_a_period_is_no_part_of_it() {
        let mut raise = Raise { service: 119_999, ..plain() };
        assert_eq!(raise.begin_interactive(PERIOD, Nanos(0)), Verdict::NextStamp);
        raise.charge(120_000, true);
        assert_eq!(raise.dispatched(BOUNDS, Nanos(1)), Verdict::Unchanged);
    }

    #[test]
    fn sectors_take_their_time_at_seven_thousand_a_second() {
        for (sectors, ns) in [(0, 0), (7, MS), (7000, 1000 * MS), (10_500, 1500 * MS)] {
            assert_eq!(paced_ns(sectors), ns, "{sectors} sectors");
        }
    }
}

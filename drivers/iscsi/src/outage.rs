//! The times of an outage: when to try again, until when commands wait, and when those that a lost
//! session left in limbo end. Pure.

use weir_bio::{Nanos, Prng};

/// Steps and cap of the wait between attempts to log in, and their jitter.
const STEP_NS: u64 = 1_000_000_000;
const STEPS_MAX: u32 = 30;
const JITTER_NS: u64 = 500_000_000;

/// A session that stood so long ends the count of attempts. One that is lost sooner goes on with
/// it, so that a target that ends each session at once is not asked without pause.
const STANDING_NS: u64 = 10_000_000_000;

/// The wait between attempts.
#[derive(Debug)]
pub(crate) struct Backoff {
    attempts: u32,
    jitter: Prng,
}

impl Backoff {
    pub(crate) fn new(seed: u64) -> Backoff {
        Backoff { attempts: 0, jitter: Prng::new(seed) }
    }

    /// A session was lost that began at `since`: the wait before the first attempt, `least_s` or
    /// more.
    pub(crate) fn lost(&mut self, since: Nanos, now: Nanos, least_s: u16) -> u64 {
        if now.since(since) >= STANDING_NS {
            self.attempts = 0;
        }
        let least = u64::from(least_s) * STEP_NS;
        let wait = if self.attempts == 0 { 0 } else { self.wait() };
        self.attempts = (self.attempts + 1).min(STEPS_MAX);
        least.max(wait)
    }

    /// An attempt failed: the wait before the next.
    pub(crate) fn failed(&mut self) -> u64 {
        let wait = self.wait();
        self.attempts = (self.attempts + 1).min(STEPS_MAX);
        wait
    }

    fn wait(&mut self) -> u64 {
        u64::from(self.attempts.max(1)) * STEP_NS + self.jitter.below(JITTER_NS)
    }
}

/// How long commands wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a session; `None`: without limit.
    pub(crate) replacement_ns: Option<u64>,
    /// For the end of a write that may still land.
    pub(crate) bound_ns: Option<u64>,
}

/// The portal groups whose sessions left commands in limbo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    One(Option<u16>),
    Several,
}

/// What lost sessions left behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limbo {
    /// The last loss.
    since: Nanos,
    group: Group,
    reads_ended: bool,
}

/// What time makes of limbo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// What changes nothing ends.
    Reads,
    /// Everything ends.
    All,
}

impl Limbo {
    /// A session of this group was lost, with what an earlier one left.
    pub(crate) fn after(earlier: Option<Limbo>, group: Option<u16>, now: Nanos) -> Limbo {
        let group = match earlier {
            Some(Limbo { group: before, .. }) if before != Group::One(group) => Group::Several,
            _ => Group::One(group),
        };
        Limbo { since: now, group, reads_ended: false }
    }

    /// Whether a login to this group ends all of it at the target.
    pub(crate) fn is_reinstated_by(&self, group: Option<u16>) -> bool {
        self.group == Group::One(group)
    }

    /// What is to end now.
    pub(crate) fn due(&mut self, patience: Patience, now: Nanos) -> Due {
        let passed = |time: Option<u64>| time.is_some_and(|time| self.since + time <= now);
        if passed(patience.bound_ns) {
            Due::All
        } else if !self.reads_ended && passed(patience.replacement_ns) {
            self.reads_ended = true;
            Due::Reads
        } else {
            Due::Nothing
        }
    }

    /// When to look again.
    pub(crate) fn wake_at(&self, patience: Patience) -> Option<Nanos> {
        let time = if self.reads_ended { patience.bound_ns } else { patience.replacement_ns };
        time.map(|time| self.since + time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_wait_grows_by_a_second_with_jitter_up_to_thirty() {
        let mut backoff = Backoff::new(7);
        let start = Nanos(0);
        assert_eq!(backoff.lost(start, start + 60 * SECOND, 2), 2 * SECOND);
        let waits: Vec<_> = (0..40).map(|_| backoff.failed()).collect();
        for (step, wait) in (1..).zip(&waits) {
            let whole = step.min(u64::from(STEPS_MAX)) * SECOND;
            assert!((whole..whole + JITTER_NS).contains(wait), "attempt {step}: {wait}");
        }
        assert!(waits.iter().any(|wait| wait % SECOND != 0), "there is jitter");
    }

    #[test]
    fn a_session_that_stood_ends_the_count_and_a_short_one_goes_on_with_it() {
        let mut backoff = Backoff::new(7);
        (0..5).for_each(|_| _ = backoff.failed());
        let (start, short) = (Nanos(0), Nanos(STANDING_NS - 1));
        assert!(backoff.lost(start, short, 0) >= 5 * SECOND);
        assert_eq!(backoff.lost(start, Nanos(STANDING_NS), 0), 0);
        assert!(backoff.lost(start, short, 0) >= SECOND, "not without pause");
    }

    #[test]
    fn reads_in_limbo_end_before_writes_and_both_once() {
        let patience = Patience { replacement_ns: Some(5), bound_ns: Some(10) };
        let mut limbo = Limbo::after(None, Some(1), Nanos(100));
        assert_eq!(limbo.wake_at(patience), Some(Nanos(105)));
        assert_eq!(limbo.due(patience, Nanos(104)), Due::Nothing);
        assert_eq!(limbo.due(patience, Nanos(105)), Due::Reads);
        assert_eq!(limbo.due(patience, Nanos(106)), Due::Nothing);
        assert_eq!(limbo.wake_at(patience), Some(Nanos(110)));
        assert_eq!(limbo.due(patience, Nanos(110)), Due::All);
        let forever = Patience { replacement_ns: None, bound_ns: None };
        let mut limbo = Limbo::after(None, Some(1), Nanos(100));
        assert_eq!(limbo.due(forever, Nanos(u64::MAX)), Due::Nothing);
        assert_eq!(limbo.wake_at(forever), None);
    }

    #[test]
    fn a_login_to_another_group_reinstates_nothing() {
        let limbo = Limbo::after(None, Some(1), Nanos(0));
        assert!(limbo.is_reinstated_by(Some(1)));
        assert!(!limbo.is_reinstated_by(Some(2)) && !limbo.is_reinstated_by(None));
        let both = Limbo::after(Some(limbo), Some(2), Nanos(1));
        assert!(!both.is_reinstated_by(Some(1)) && !both.is_reinstated_by(Some(2)));
    }
}

//! When a path is checked, and what follows from the answer. A check is asked for and answered
//! later; a path has one under way at most, and no answer in time is an answer.
//! Rules: docs/behaviour/multipath.md, section 4.

use weir_bio::Nanos;

use super::{Control, Order, SECOND_NS};
use crate::multipath::settings::{Checker, Settings};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The path carries I/O.
    Up,
    /// It does not.
    Down,
    /// It is there, on a standby port.
    Ghost,
    /// Not known yet: nothing changes.
    Pending,
    /// It answers now and then.
    Shaky,
    /// Its unit is there no more.
    Disconnected,
    /// The check itself failed.
    Wild,
}

/// The checks of one path.
#[derive(Debug)]
pub(super) struct Check {
    next_at: Nanos,
    interval_s: u32,
    /// When the check under way was sent.
    sent_at: Option<Nanos>,
    /// It has been taken for down: an answer comes too late to mean anything.
    is_given_up: bool,
}

impl Check {
    pub(super) fn new(settings: &Settings, now: Nanos) -> Check {
        let interval_s = settings.polling_interval;
        let next_at = now + u64::from(interval_s) * SECOND_NS;
        Check { next_at, interval_s, sent_at: None, is_given_up: false }
    }

    /// The path's state has changed: it is looked at often again.
    pub(super) fn changed(&mut self, settings: &Settings, now: Nanos) {
        self.interval_s = settings.polling_interval;
        self.next_at = now + u64::from(self.interval_s) * SECOND_NS;
    }

    fn times_out_at(&self, settings: &Settings) -> Option<Nanos> {
        let sent_at = self.sent_at.filter(|_| !self.is_given_up)?;
        Some(sent_at + u64::from(settings.checker_timeout) * SECOND_NS)
    }

    pub(super) fn wake_at(&self, settings: &Settings) -> Option<Nanos> {
        if settings.path_checker == Checker::None {
            return None;
        }
        match self.sent_at {
            Some(_) => self.times_out_at(settings),
            None => Some(self.next_at),
        }
    }
}

impl Control {
    pub(super) fn tick_checks(&mut self, now: Nanos) {
        if self.settings.path_checker == Checker::None {
            return;
        }
        for path in 0..self.paths.len() {
            let check = &mut self.paths[path].check;
            if check.times_out_at(&self.settings).is_some_and(|at| at <= now) {
                check.is_given_up = true;
                let timeout_s = self.settings.checker_timeout;
                let reason = format!("its check has no answer after {timeout_s} s");
                self.fail(path, &reason, now);
            } else if check.sent_at.is_none() && check.next_at <= now {
                (check.sent_at, check.is_given_up) = (Some(now), false);
                self.orders.push(Order::Check(path));
            }
        }
    }

    /// The check of a path has ended.
    pub fn checked(&mut self, path: usize, verdict: Verdict, now: Nanos) {
        let (most_s, least_s) =
            (self.settings.max_polling_interval, self.settings.polling_interval);
        let (is_valid, check) = (self.paths[path].is_valid, &mut self.paths[path].check);
        if check.sent_at.take().is_none() {
            return;
        }
        if std::mem::take(&mut check.is_given_up) {
            // It answers again, and late: the next check says what that means.
            check.next_at = now + SECOND_NS;
            return;
        }
        let is_good = matches!(verdict, Verdict::Up | Verdict::Ghost);
        if verdict == Verdict::Pending {
            check.next_at = now + SECOND_NS;
            return;
        }
        if is_good && is_valid {
            check.interval_s = check.interval_s.saturating_mul(2).min(most_s.max(least_s));
        } else {
            check.interval_s = least_s;
        }
        check.next_at = now + u64::from(check.interval_s) * SECOND_NS;
        match verdict {
            Verdict::Up => _ = self.reinstate(path, "its check succeeded", now),
            Verdict::Ghost => _ = self.reinstate(path, "its check found it on standby", now),
            Verdict::Down => _ = self.fail(path, "its check failed", now),
            Verdict::Shaky => _ = self.fail(path, "its check found it shaky", now),
            Verdict::Disconnected => {
                self.fail(path, "its check found no unit there", now);
            }
            Verdict::Wild => _ = self.fail(path, "its check could not be made", now),
            Verdict::Pending => {}
        }
    }
}

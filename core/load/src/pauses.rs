//! When a job begins nothing although it could: before its start, and while it thinks.

use weir_bio::{Nanos, Prng};

use crate::ask::Ask;
use crate::job::Job;
use crate::order::Thinking;

/// The pauses of one clone.
#[derive(Clone, Debug)]
pub(crate) struct Pauses {
    thinking: Thinking,
    /// I/Os begun since the last pause.
    ios: u32,
    /// When the first of them was.
    since: Option<Nanos>,
    /// Nothing may be begun before; `None` when no pause has been counted.
    until: Option<Nanos>,
    /// How long after the first question it begins, until that was asked; then when.
    delay_ns: u64,
    start: Option<Nanos>,
}

impl Pauses {
    pub(crate) fn new(job: &Job, seed: u64) -> Pauses {
        let [least, most] = job.start_delay_ns;
        // Drawn apart from the places, so that a delay changes none of them.
        let drawn = Prng::new(seed ^ 0xde1a).below(most.saturating_sub(least).saturating_add(1));
        let Thinking { ns, ios, io_ns, from_issue } = job.thinking;
        let ios = if ios == 0 && io_ns == 0 { 1 } else { ios };
        let thinking = Thinking { ns, ios, io_ns, from_issue };
        let delay_ns = least + drawn;
        Pauses { thinking, ios: 0, since: None, until: None, delay_ns, start: None }
    }

    /// Whether there are any.
    pub(crate) fn are_none(&self) -> bool {
        self.thinking.ns == 0 && self.delay_ns == 0
    }

    /// How long after it is first asked the clone begins.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// Why nothing may begin now, if that is so.
    pub(crate) fn ask(&mut self, now: Nanos, in_flight: u64) -> Option<Ask> {
        let start = *self.start.get_or_insert(now + self.delay_ns);
        if start > now {
            return Some(Ask::Wait(start));
        }
        let Thinking { ns, ios, io_ns, from_issue } = self.thinking;
        let had_its_ios = ios > 0 && self.ios >= ios;
        let had_its_time = io_ns > 0 && self.since.is_some_and(|since| now.since(since) >= io_ns);
        if ns == 0 || !(had_its_ios || had_its_time) {
            return None;
        }
        if in_flight > 0 && !from_issue {
            return Some(Ask::Blocked);
        }
        if let Some(until) = self.until.filter(|until| *until > now) {
            return Some(Ask::Wait(until));
        }
        (self.ios, self.since, self.until) = (0, None, None);
        None
    }

    pub(crate) fn begun(&mut self, now: Nanos) {
        // Without thinking it is never set back.
        self.ios = self.ios.saturating_add(1);
        self.since.get_or_insert(now);
        if self.thinking.from_issue {
            self.until = Some(now + self.thinking.ns);
        }
    }

    pub(crate) fn ended(&mut self, now: Nanos) {
        if !self.thinking.from_issue {
            self.until = Some(now + self.thinking.ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_alone_lets_any_number_begin() {
        let job = Job { start_delay_ns: [1; 2], ..Job::default() };
        let mut pauses = Pauses::new(&job, 1);
        pauses.ios = u32::MAX;
        pauses.begun(Nanos(1));
        assert_eq!(
            (pauses.ask(Nanos(1), 0), pauses.ask(Nanos(2), 0)),
            (Some(Ask::Wait(Nanos(2))), None)
        );
    }
}

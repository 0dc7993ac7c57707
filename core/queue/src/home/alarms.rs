//! Times at which numbered things are to be looked at.

use std::collections::BTreeSet;

use weir_bio::Nanos;

/// The earliest times at which numbered things (lanes, services) are to be looked at, one for each
/// at most. Each thing keeps the time under which it is entered in a field of its own.
///
/// A thing that names a later time than before keeps the earlier one, at which it is asked again:
/// most times are put off again and again, and never come.
#[derive(Debug, Default)]
pub struct Alarms(BTreeSet<(Nanos, u32)>);

impl Alarms {
    /// This thing is to be looked at no later than `at`; `None`: it has no time.
    #[inline]
    pub fn set(&mut self, set: &mut Option<Nanos>, number: u32, at: Option<Nanos>) {
        if let Some(at) = at
            && set.is_none_or(|set| at < set)
        {
            self.clear(set, number);
            self.0.insert((at, number));
            *set = Some(at);
        }
    }

    /// This thing has no time any more.
    pub fn clear(&mut self, set: &mut Option<Nanos>, number: u32) {
        if let Some(at) = set.take() {
            self.0.remove(&(at, number));
        }
    }

    /// Takes out a thing whose time has come. It has to be told so: its own field is to be `None`.
    #[inline]
    pub fn take_due(&mut self, now: Nanos) -> Option<u32> {
        self.earliest().filter(|at| *at <= now)?;
        self.0.pop_first().map(|(_, number)| number)
    }

    /// The earliest of all times.
    #[must_use]
    #[inline]
    pub fn earliest(&self) -> Option<Nanos> {
        self.0.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_due_at_the_earliest_time_it_named_and_once() {
        let (mut alarms, mut set) = (Alarms::default(), [None; 2]);
        for (number, at) in [(0, 50), (1, 40), (0, 30), (1, 60), (0, 70)] {
            alarms.set(&mut set[number], number as u32, Some(Nanos(at)));
        }
        assert_eq!((alarms.earliest(), alarms.take_due(Nanos(29))), (Some(Nanos(30)), None));
        assert_eq!(alarms.take_due(Nanos(60)), Some(0));
        assert_eq!(alarms.take_due(Nanos(60)), Some(1));
        assert_eq!((alarms.earliest(), alarms.take_due(Nanos(99))), (None, None));
    }

    #[test]
    fn a_time_that_is_cleared_does_not_come() {
        let (mut alarms, mut set) = (Alarms::default(), None);
        alarms.set(&mut set, 3, Some(Nanos(5)));
        alarms.clear(&mut set, 3);
        assert_eq!((set, alarms.take_due(Nanos(9))), (None, None));
    }
}

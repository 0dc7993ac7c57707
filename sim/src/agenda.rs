//! The agenda: what happens when. Of one time, what was put down first comes first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use weir_bio::Nanos;

/// What there may be to come back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// A processor is through with what it was at; void if it has been interrupted since.
    Cpu { cpu: usize, epoch: u32 },
    /// A disk has an end, or something to decide.
    Disk(usize),
    /// A lane named this time.
    Lane(usize),
    /// A process sleeps until this time.
    Process(usize),
    /// Something has passed a link.
    Link(usize),
}

/// An alarm with its place in the order.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Nanos,
    number: u64,
    alarm: Alarm,
}

impl Entry {
    /// One comparison for both parts.
    fn key(&self) -> u128 {
        u128::from(self.at.0) << 64 | u128::from(self.number)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Alarms by time, and the clock.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    next: u64,
    now: Nanos,
    /// Up to where it was last asked to go.
    until: Nanos,
}

impl Agenda {
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    pub(crate) fn put(&mut self, at: Nanos, alarm: Alarm) {
        debug_assert!(at >= self.now, "{alarm:?} at {at:?}, which is past");
        self.heap.push(Reverse(Entry { at, number: self.next, alarm }));
        self.next += 1;
    }

    /// The next alarm; the clock goes on to it. `None` behind `until`, where the clock stops.
    pub(crate) fn take(&mut self, until: Nanos) -> Option<Alarm> {
        self.until = until;
        match self.heap.peek() {
            Some(Reverse(entry)) if entry.at <= until => {}
            _ => {
                self.now = self.now.max(until);
                return None;
            }
        }
        let Reverse(Entry { at, alarm, .. }) = self.heap.pop()?;
        self.now = at;
        Some(alarm)
    }

    /// Lets so much time pass at once, if nothing is to happen in it and it ends within what was
    /// last asked for.
    pub(crate) fn pass(&mut self, ns: u64) -> bool {
        let at = self.now + ns;
        if at > self.until {
            return false;
        }
        if self.heap.peek().is_some_and(|Reverse(next)| next.at <= at) {
            return false;
        }
        self.now = at;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_come_by_time_and_those_of_one_time_in_order() {
        let mut agenda = Agenda::default();
        for (at, disk) in [(20, 0), (10, 1), (10, 2), (5, 3), (10, 0)] {
            agenda.put(Nanos(at), Alarm::Disk(disk));
        }
        let mut taken = Vec::new();
        while let Some(alarm) = agenda.take(Nanos(15)) {
            taken.push((agenda.now().0, alarm));
        }
        let disks = [(5, 3), (10, 1), (10, 2), (10, 0)];
        assert_eq!(taken, disks.map(|(at, disk)| (at, Alarm::Disk(disk))));
        assert_eq!(agenda.now(), Nanos(15), "the clock stops at the bound");
    }

    #[test]
    fn time_passes_at_once_only_up_to_the_next_alarm() {
        let mut agenda = Agenda::default();
        agenda.put(Nanos(1), Alarm::Disk(0));
        agenda.put(Nanos(10), Alarm::Disk(0));
        assert_eq!(agenda.take(Nanos(20)), Some(Alarm::Disk(0)));
        assert!(agenda.pass(8) && !agenda.pass(1));
        assert_eq!(agenda.now(), Nanos(9));
        assert_eq!(agenda.take(Nanos(20)), Some(Alarm::Disk(0)));
        assert!(agenda.pass(10) && !agenda.pass(1), "no farther than it was asked to go");
        assert_eq!(agenda.now(), Nanos(20));
    }
}

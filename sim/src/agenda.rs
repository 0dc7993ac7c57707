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

/// How many of the next alarms are kept in order.
const NEAR: usize = 32;

/// Alarms by time, and the clock.
///
/// Most alarms are of processors that go on within a microsecond, so most of those put down come
/// before nearly all others, and are taken soon. They go to a short list in order, where that is a
/// few moves; a heap has the others.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// The next one last.
    near: Vec<Entry>,
    /// None of these comes before one of the near ones.
    far: BinaryHeap<Reverse<Entry>>,
    next: u64,
    now: Nanos,
    /// Up to where it was last asked to go.
    until: Nanos,
}

impl Agenda {
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    #[inline]
    pub(crate) fn put(&mut self, at: Nanos, alarm: Alarm) {
        debug_assert!(at >= self.now, "{alarm:?} at {at:?}, which is past");
        let entry = Entry { at, number: self.next, alarm };
        self.next += 1;
        // Of one time, those that are there already come first.
        if !self.far.is_empty() && self.near.first().is_none_or(|last| last.at <= at) {
            return self.far.push(Reverse(entry));
        }
        let mut place = self.near.len();
        self.near.push(entry);
        // They are few: a call that moves memory would take longer.
        while place > 0 && self.near[place - 1].at <= at {
            self.near[place] = self.near[place - 1];
            place -= 1;
        }
        self.near[place] = entry;
        if self.near.len() > NEAR {
            self.thin_out();
        }
    }

    /// Makes room among the near ones.
    #[cold]
    fn thin_out(&mut self) {
        self.far.extend(self.near.drain(..NEAR / 2).map(Reverse));
    }

    /// Takes the next ones from the heap.
    #[cold]
    fn fetch(&mut self) {
        let next = std::iter::from_fn(|| self.far.pop());
        self.near.extend(next.take(NEAR / 2).map(|Reverse(entry)| entry));
        self.near.reverse();
    }

    /// When the next alarm is.
    #[inline]
    fn first(&mut self) -> Option<Nanos> {
        if self.near.is_empty() && !self.far.is_empty() {
            self.fetch();
        }
        self.near.last().map(|entry| entry.at)
    }

    /// The next alarm; the clock goes on to it. `None` behind `until`, where the clock stops.
    #[inline]
    pub(crate) fn take(&mut self, until: Nanos) -> Option<Alarm> {
        self.until = until;
        if self.first().is_none_or(|at| at > until) {
            self.now = self.now.max(until);
            return None;
        }
        let Entry { at, alarm, .. } = self.near.pop()?;
        self.now = at;
        Some(alarm)
    }

    /// Lets so much time pass at once, if nothing is to happen in it and it ends within what was
    /// last asked for.
    #[inline]
    pub(crate) fn pass(&mut self, ns: u64) -> bool {
        let at = self.now + ns;
        if at > self.until || self.first().is_some_and(|next| next <= at) {
            return false;
        }
        self.now = at;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

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
    fn any_number_of_alarms_comes_in_the_order_of_their_times_and_numbers() {
        let mut prng = Prng::new(7);
        let (mut agenda, mut left, mut now, mut taken) = (Agenda::default(), Vec::new(), 0, 0);
        for number in 0..20_000 {
            // Near and far ones, and some of one time; all over again from many to none.
            let spread = [3, 40, 1_000_000][prng.below(3) as usize];
            let at = now + prng.below(spread);
            agenda.put(Nanos(at), Alarm::Disk(number));
            left.push((at, number));
            let drains = number % 500 > 400;
            for _ in 0..if drains { 10 } else { prng.below(2) } {
                let expected = left.iter().min().copied();
                let until = expected.map_or(now, |(at, _)| at);
                let alarm = agenda.take(Nanos(until));
                assert_eq!(alarm, expected.map(|(_, number)| Alarm::Disk(number)));
                left.retain(|one| Some(*one) != expected);
                (now, taken) = (agenda.now().0, taken + usize::from(alarm.is_some()));
            }
        }
        assert!(taken > 15_000, "{taken}");
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

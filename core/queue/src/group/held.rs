//! Bios that caps hold back, for a holder with a timer.
//!
//! A cap holds back one direction of one group, so each has a line of its own: a group that is
//! ahead of its cap delays no other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_bio::{Bio, GroupId, Nanos};

use super::meter::CAPS_AGAIN_NS;

/// Bios that caps hold back, each with what its holder keeps beside it.
pub struct HeldBack<T> {
    lines: BTreeMap<LineId, WaitList<T>>,
    /// When each line's first may be submitted again.
    times: BTreeSet<(Nanos, LineId)>,
}

/// A group, and whether what waits are writes; `None` for flushes, which no cap holds back.
type LineId = (GroupId, Option<bool>);

struct WaitList<T> {
    bios: VecDeque<(Bio, T)>,
    /// As in `times`.
    until: Nanos,
}

impl<T> Default for HeldBack<T> {
    fn default() -> HeldBack<T> {
        HeldBack { lines: BTreeMap::new(), times: BTreeSet::new() }
    }
}

impl<T> HeldBack<T> {
    /// Whether none is held back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Gives a new bio back, to be submitted, unless others of its line wait: then it is the last
    /// of them.
    #[inline]
    pub fn pass(&mut self, bio: Bio, beside: T) -> Option<(Bio, T)> {
        if self.is_empty() {
            return Some((bio, beside));
        }
        match self.lines.get_mut(&line_of(&bio)) {
            Some(line) => {
                line.bios.push_back((bio, beside));
                None
            }
            None => Some((bio, beside)),
        }
    }

    /// Keeps a refused bio, as the first of its line, until a cap allows it. It may be submitted
    /// after [`CAPS_AGAIN_NS`] in any case, as the cap may be lifted meanwhile.
    pub fn hold(&mut self, bio: Bio, beside: T, until: Nanos, now: Nanos) {
        let (id, until) = (line_of(&bio), until.min(now + CAPS_AGAIN_NS));
        let line = WaitList { bios: VecDeque::new(), until };
        let line = self.lines.entry(id).or_insert(line);
        self.times.remove(&(line.until, id));
        self.times.insert((until, id));
        line.until = until;
        line.bios.push_front((bio, beside));
    }

    /// The next one whose time has come: of the line whose time came first.
    pub fn pop_due(&mut self, now: Nanos) -> Option<(Bio, T)> {
        let &(at, id) = self.times.first().filter(|(at, _)| *at <= now)?;
        let line = self.lines.get_mut(&id)?;
        let first = line.bios.pop_front();
        if line.bios.is_empty() {
            self.lines.remove(&id);
            self.times.remove(&(at, id));
        }
        first
    }

    /// Takes out the first one that is meant, wherever it stands in its line.
    pub fn withdraw(&mut self, is_meant: impl Fn(&T) -> bool) -> Option<(Bio, T)> {
        let at = |line: &WaitList<T>| line.bios.iter().position(|(_, beside)| is_meant(beside));
        let (id, at) = self.lines.iter().find_map(|(id, line)| Some((*id, at(line)?)))?;
        let line = self.lines.get_mut(&id)?;
        let withdrawn = line.bios.remove(at);
        if line.bios.is_empty() {
            self.times.remove(&(line.until, id));
            self.lines.remove(&id);
        }
        withdrawn
    }

    /// When the next one's time comes.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        self.times.first().map(|(at, _)| *at)
    }

    /// Takes all of them out.
    pub fn drain(&mut self) -> impl Iterator<Item = (Bio, T)> + use<T> {
        self.times.clear();
        std::mem::take(&mut self.lines).into_values().flat_map(|line| line.bios)
    }
}

fn line_of(bio: &Bio) -> LineId {
    (bio.group, (bio.sectors > 0).then(|| bio.op.is_write()))
}

#[cfg(test)]
mod tests {
    use weir_bio::Buf;

    use super::*;

    fn bio(group: u32, cookie: u64) -> Bio {
        Bio { group: GroupId(group), ..Bio::read(0, Buf::zeroed(512)).cookie(cookie) }
    }

    #[test]
    fn a_line_keeps_its_order_and_delays_no_other() {
        let mut held = HeldBack::default();
        assert!(held.pass(bio(1, 1), ()).is_some(), "none waits");
        held.hold(bio(1, 1), (), Nanos(50), Nanos(10));
        assert!(held.pass(bio(1, 2), ()).is_none(), "behind the first of its group");
        assert!(held.pass(bio(2, 3), ()).is_some(), "another group");
        assert_eq!((held.wake_at(), held.pop_due(Nanos(49)).is_none()), (Some(Nanos(50)), true));
        let (first, ()) = held.pop_due(Nanos(50)).unwrap();
        held.hold(first, (), Nanos(60), Nanos(50));
        assert!(held.pop_due(Nanos(50)).is_none(), "the first is asked for all of them");
        let flush = Bio { group: GroupId(1), ..Bio::flush() };
        assert!(held.pass(flush, ()).is_some(), "no cap holds a flush back");
        let order = [0; 2].map(|_| held.pop_due(Nanos(60)).unwrap().0.cookie);
        assert_eq!((order, held.is_empty(), held.wake_at()), ([1, 2], true, None));
    }

    #[test]
    fn the_line_whose_time_comes_first_is_the_next_and_a_new_time_takes_the_place_of_the_old() {
        let mut held = HeldBack::default();
        for (group, until) in [(1, 70), (2, 50), (3, 60), (2, 90), (3, 55)] {
            held.hold(bio(group, until), (), Nanos(until), Nanos(10));
        }
        let mut next = |now| held.pop_due(Nanos(now)).map(|(bio, ())| bio.cookie);
        assert_eq!((next(54), next(55), next(55), next(55)), (None, Some(55), Some(60), None));
        assert_eq!((next(100), next(100), next(100)), (Some(70), Some(90), Some(50)));
        assert_eq!((held.wake_at(), held.is_empty()), (None, true));
    }

    #[test]
    fn one_that_is_withdrawn_leaves_its_line_to_those_behind_it() {
        let mut held = HeldBack::default();
        held.hold(bio(1, 1), 1, Nanos(50), Nanos(10));
        held.hold(bio(2, 2), 2, Nanos(60), Nanos(10));
        assert!(held.pass(bio(1, 3), 3).is_none());
        let mut withdraw = |which| held.withdraw(|one| *one == which).map(|(bio, _)| bio.cookie);
        assert_eq!(
            (withdraw(9), withdraw(1), withdraw(2), withdraw(2)),
            (None, Some(1), Some(2), None)
        );
        assert_eq!(held.wake_at(), Some(Nanos(50)), "the time of the line is that of the next");
        assert_eq!(held.pop_due(Nanos(50)).map(|(bio, _)| bio.cookie), Some(3));
        assert_eq!((held.is_empty(), held.wake_at()), (true, None));
    }

    #[test]
    fn a_cap_that_may_be_lifted_is_asked_again() {
        let mut held = HeldBack::default();
        held.hold(bio(1, 1), (), Nanos(1 << 60), Nanos(10));
        assert_eq!(held.wake_at(), Some(Nanos(10 + CAPS_AGAIN_NS)));
        assert_eq!(held.drain().count(), 1);
        assert!(held.is_empty());
    }
}

//! What a call of the core told, as counts: that is what it costs.

use std::cell::{Cell, RefCell};

use weir_queue::{Event, Sink, What};

/// Counts of the events of a call that have a price.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) accepted: Cell<u64>,
    pub(crate) inserted: Cell<u64>,
    pub(crate) picked: Cell<u64>,
    pub(crate) issued: Cell<u64>,
    pub(crate) answered: Cell<u64>,
    pub(crate) ended: Cell<u64>,
}

impl Sink for &Heard {
    fn tell(self, event: impl FnOnce() -> Event) {
        let count = match event().what {
            What::Accepted { .. } => &self.accepted,
            What::Inserted { .. } => &self.inserted,
            What::Picked { .. } => &self.picked,
            What::Issued { .. } => &self.issued,
            What::Answered { .. } => &self.answered,
            What::Ended { .. } => &self.ended,
            _ => return,
        };
        count.set(count.get() + 1);
    }
}

/// What happened while the lock of a single queue was held once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) inserted: u64,
    pub(crate) picked: u64,
    pub(crate) issued: u64,
    pub(crate) ended: u64,
}

/// The holds of the single queue's lock in a call, one after the other.
#[derive(Debug, Default)]
pub(crate) struct HeardHolds {
    holds: RefCell<Vec<Hold>>,
    is_held: Cell<bool>,
}

impl HeardHolds {
    pub(crate) fn into_holds(self) -> Vec<Hold> {
        assert!(!self.is_held.get(), "a call lets go of the lock");
        self.holds.into_inner()
    }
}

impl Sink for &HeardHolds {
    fn tell(self, event: impl FnOnce() -> Event) {
        let what = event().what;
        let mut holds = self.holds.borrow_mut();
        match what {
            What::RightTaken => {
                self.is_held.set(true);
                holds.push(Hold::default());
                return;
            }
            What::RightLetGo => return self.is_held.set(false),
            _ => {}
        }
        // A merge in the plug, and a bio that is accepted, are outside: their work is no hold's.
        let Some(hold) = holds.last_mut().filter(|_| self.is_held.get()) else { return };
        let count = match what {
            What::Inserted { .. } => &mut hold.inserted,
            What::Picked { .. } => &mut hold.picked,
            What::Issued { .. } => &mut hold.issued,
            What::Ended { .. } => &mut hold.ended,
            _ => return,
        };
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Flags, GroupId, IoPrio, Nanos, Op, Rq, RqId, SchedTag, Status, SubmitterId};
    use weir_queue::Place;

    #[test]
    fn what_happens_between_two_holds_is_part_of_neither() {
        let heard = HeardHolds::default();
        let tell = |what: What| {
            let by = Place::Submitter(SubmitterId(0));
            (&heard).tell(|| Event { at: Nanos::ZERO, by, what });
        };
        let id = RqId::new(SubmitterId(0), 0, 0);
        let rq = Rq {
            sector: 0,
            sectors: 8,
            id,
            flags: Flags::NONE,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag::NONE,
            op: Op::Read,
            segments: 1,
        };
        let ended = || What::Ended { rq, status: Status::Ok };
        let inserted = || What::Inserted { rq, tag: SchedTag(0) };
        tell(ended());
        for what in [What::RightTaken, What::RightLetGo, ended()] {
            tell(what);
        }
        for what in [What::RightTaken, inserted(), ended(), ended(), What::RightLetGo, ended()] {
            tell(what);
        }
        let busy = Hold { inserted: 1, ended: 2, ..Hold::default() };
        assert_eq!(heard.into_holds(), [Hold::default(), busy]);
    }
}

//! What a call of the core told, as counts: that is what it costs.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_queue::{Event, Listener, Sink, What};

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

/// Holds of the locks of single queues, one after the other, each with its device.
#[derive(Debug, Default)]
struct Holds {
    list: Vec<(usize, Hold)>,
    is_held: bool,
}

impl Holds {
    fn hear(&mut self, device: usize, what: What) {
        match what {
            What::RightTaken => {
                self.is_held = true;
                self.list.push((device, Hold::default()));
                return;
            }
            What::RightLetGo => return self.is_held = false,
            _ => {}
        }
        // A merge in the plug, and a bio that is accepted, are outside: their work is no hold's.
        let Some((_, hold)) = self.list.last_mut().filter(|_| self.is_held) else { return };
        let count = match what {
            What::Inserted { .. } => &mut hold.inserted,
            What::Picked { .. } => &mut hold.picked,
            What::Issued { .. } => &mut hold.issued,
            What::Ended { .. } => &mut hold.ended,
            _ => return,
        };
        *count += 1;
    }

    fn take(&mut self, to: &mut Vec<(usize, Hold)>) {
        assert!(!self.is_held, "a call lets go of the lock");
        to.append(&mut self.list);
    }
}

/// The holds in a call of a device, or of some.
#[derive(Debug, Default)]
pub(crate) struct HeardHolds(RefCell<Holds>);

impl HeardHolds {
    /// Those of one device.
    pub(crate) fn of(&self, device: usize) -> OfDevice<'_> {
        OfDevice { heard: self, device }
    }

    pub(crate) fn take(&self, to: &mut Vec<(usize, Hold)>) {
        self.0.borrow_mut().take(to);
    }
}

/// Listens to one device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfDevice<'a> {
    heard: &'a HeardHolds,
    device: usize,
}

impl Sink for OfDevice<'_> {
    fn tell(self, event: impl FnOnce() -> Event) {
        self.heard.0.borrow_mut().hear(self.device, event().what);
    }
}

/// The holds of paths' locks by mappers above.
#[derive(Debug, Default)]
pub(crate) struct HeardBelow(Mutex<Holds>);

impl HeardBelow {
    /// Those of one path.
    pub(crate) fn of(self: &Arc<HeardBelow>, device: usize) -> Arc<dyn Listener> {
        Arc::new(OfPath { heard: Arc::clone(self), device })
    }

    pub(crate) fn take(&self, to: &mut Vec<(usize, Hold)>) {
        self.holds().take(to);
    }

    /// The engine and a mapper run in one thread: the lock is never waited for.
    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens to the mappers above one path.
struct OfPath {
    heard: Arc<HeardBelow>,
    device: usize,
}

impl Listener for OfPath {
    fn hear(&self, event: Event) {
        self.heard.holds().hear(self.device, event.what);
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
            heard.of(7).tell(|| Event { at: Nanos::ZERO, by, what });
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
        let mut holds = Vec::new();
        heard.take(&mut holds);
        assert_eq!(holds, [(7, Hold::default()), (7, busy)]);
    }
}

//! What a lane finds at its next reap: ends of its commands that another lane of the same port
//! came by, and all ends that are not plain successes.

use weir_bio::{Data, RqId, Status};
use weir_queue::{Detail, Done, Tag};

use crate::slot::Tries;

/// A request that is handed back to the core, and how often it was tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remembered {
    pub(crate) rq: RqId,
    pub(crate) tries: Tries,
}

#[derive(Debug)]
struct Answer {
    tag: Tag,
    status: Status,
    pieces: u32,
}

/// Ends for one lane. Its lists keep their capacity.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    answers: Vec<Answer>,
    memory: Vec<Data>,
    details: Vec<(Tag, Detail)>,
    requeued: Vec<(Tag, Vec<Data>)>,
    pub(crate) remembered: Vec<Remembered>,
    /// Commands that succeeded.
    pub(crate) good: u32,
}

/// What was taken out of an inbox.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Requests that the lane has no more.
    pub(crate) requests: usize,
    /// Those of them that had a place of the unit.
    pub(crate) places: u32,
    /// The unit answered some of them.
    pub(crate) ended: bool,
}

impl Inbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.requeued.is_empty()
    }

    /// An end, with the memory that goes back.
    pub(crate) fn end(&mut self, tag: Tag, status: Status, memory: impl Iterator<Item = Data>) {
        let before = self.memory.len();
        self.memory.extend(memory);
        let pieces = (self.memory.len() - before) as u32;
        self.answers.push(Answer { tag, status, pieces });
    }

    /// The target's words about the end of a passthrough command.
    pub(crate) fn detail(&mut self, tag: Tag, detail: Detail) {
        self.details.push((tag, detail));
    }

    /// A request that the core is to send again.
    pub(crate) fn requeue(&mut self, tag: Tag, memory: Vec<Data>, remembered: Remembered) {
        self.requeued.push((tag, memory));
        self.remembered.push(remembered);
    }

    /// Hands all to the core. Tags below `reserved` have no places.
    pub(crate) fn drain_to(
        &mut self,
        done: &mut Done,
        lent: &mut Vec<Data>,
        reserved: u16,
    ) -> Taken {
        let mut taken = Taken::default();
        for (tag, detail) in self.details.drain(..) {
            done.push_detail(tag, detail);
        }
        let mut memory = self.memory.drain(..);
        for Answer { tag, status, pieces } in self.answers.drain(..) {
            lent.extend(memory.by_ref().take(pieces as usize));
            done.push_lent(tag, status, lent);
            taken.count(tag, reserved);
            taken.ended = true;
        }
        for (tag, memory) in self.requeued.drain(..) {
            done.push_requeue(tag, 0, memory);
            taken.count(tag, reserved);
        }
        taken
    }
}

impl Taken {
    /// A request under this tag is the lane's no more.
    #[inline]
    pub(crate) fn count(&mut self, tag: Tag, reserved: u16) {
        self.requests += 1;
        self.places += u32::from(tag.0 >= reserved);
    }
}

//! The flushes of a ring, in turn.
//!
//! The kernel tells a write that was lost to each open file description once. So each ring flushes
//! through a description of its own, and makes one such call at a time: of two under way one would
//! be told, and the other not. Flushes that arrive during a call share the next one and its result.

use rustix::io::Errno;
use weir_queue::{Done, Tag};

use super::super::job::Next;
use super::{UringQueue, workers};

/// The flushes of one ring: those that the call under way answers, and those that the next one
/// will.
#[derive(Default)]
pub(super) struct Turns {
    /// Those that the call under way speaks for; its entry names the first.
    pub(super) served: Vec<Tag>,
    /// Those that came after it began.
    pub(super) gathered: Vec<Tag>,
    /// Kept for its capacity.
    spare: Vec<Tag>,
}

impl Turns {
    /// Takes part in a flush; whether its entry is to be queued now, under this tag.
    pub(super) fn begins(&mut self, tag: Tag) -> bool {
        match self.served.first() {
            // It found no room in the submission queue before.
            Some(first) if *first == tag => true,
            Some(_) => {
                self.gathered.push(tag);
                false
            }
            None => {
                self.served.push(tag);
                true
            }
        }
    }
}

impl UringQueue {
    /// The flush under way has ended: so has each that it speaks for, and the next begins. True
    /// when there is one.
    #[cold]
    pub(super) fn end_flush(&mut self, result: Result<u32, Errno>, done: &mut Done) -> bool {
        let spare = std::mem::take(&mut self.turns.spare);
        let mut served = std::mem::replace(&mut self.turns.served, spare);
        for tag in served.drain(..) {
            let slot = &mut self.slots[usize::from(tag.0)];
            let Some(job) = &mut slot.job else { continue };
            if workers::undone(job, result, self.workers.crew.is_some()) {
                self.pass_on(tag);
                continue;
            }
            match job.advance(result, &self.target) {
                Next::Call => self.call(tag),
                Next::Ended(status) => {
                    self.in_flight -= 1;
                    slot.answer(status, done);
                }
            }
        }
        self.turns.spare = served;
        self.next_flush();
        !self.turns.served.is_empty()
    }

    /// Begins the next flush if none is under way and one is due.
    #[cold]
    pub(super) fn next_flush(&mut self) {
        let Turns { served, gathered, .. } = &mut self.turns;
        if served.is_empty() && !gathered.is_empty() {
            std::mem::swap(served, gathered);
            let first = served[0];
            self.call(first);
        }
    }

    /// A request was given up. Whether all is done that there is to do: it took part in no flush
    /// yet, or takes part in one that speaks for others too, which goes on.
    #[cold]
    pub(super) fn leave_flush(&mut self, tag: Tag) -> bool {
        let Turns { served, gathered, .. } = &mut self.turns;
        if let Some(place) = gathered.iter().position(|gathered| *gathered == tag) {
            gathered.remove(place);
            self.withdrawn.push(tag);
            return true;
        }
        if served[..] == [tag] && self.waiting.contains(&tag) {
            // The kernel has not heard of it.
            served.clear();
        }
        served.contains(&tag) && served.len() > 1
    }
}

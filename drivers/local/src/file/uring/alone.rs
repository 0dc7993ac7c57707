//! Calls that the thread of a queue makes by itself, where it is there for that queue alone.
//!
//! A durable write ends in a worker of the kernel that makes the flush behind it, a flush is made
//! by one of io_uring's workers; either wakes the thread that waits for its ring. While the worker
//! runs, the thread is woken on another CPU, and if that CPU sleeps, and is a virtual one, it takes
//! 25 to 40 us until it runs: a fifth of a write of a log (`docs/performance.md`, the library). The
//! thread that makes the call itself is woken by the device.

use rustix::io::Errno;
use weir_queue::{Done, Tag};

use super::super::crew;
use super::super::job::{Call, Next};
use super::UringQueue;

/// The answer to a call that was made, until it is reaped.
#[derive(Default)]
pub(super) struct Alone {
    answer: Option<(Tag, Result<u32, Errno>)>,
}

impl Alone {
    pub(super) fn has_answer(&self) -> bool {
        self.answer.is_some()
    }

    /// The request whose call was made and that was not answered.
    pub(super) fn tag(self) -> Option<Tag> {
        self.answer.map(|(tag, _)| tag)
    }
}

impl UringQueue {
    /// Whether a request that has just come is to wait for the end of its burst, because nothing
    /// else is in flight and it is one that the thread may make by itself.
    #[inline]
    pub(super) fn stays_alone(&self, tag: Tag) -> bool {
        self.alone.is_some() && self.is_alone(tag)
    }

    fn is_alone(&self, tag: Tag) -> bool {
        let job = self.slots[usize::from(tag.0)].job.as_ref();
        self.in_flight == 1
            && self.workers.in_flight() == 0
            // A thread's calls have the thread's own priority.
            && job.is_some_and(|job| {
                job.call == Call::WriteDurably && job.ioprio == 0
                    || job.call == Call::Flush && self.workers.flushed().is_some()
            })
    }

    /// The burst is over: makes the call of its only request. Where others came behind it, the ring
    /// has them all.
    pub(super) fn call_alone(&mut self) {
        let Some(tag) = self.waiting.front().copied().filter(|tag| self.is_alone(*tag)) else {
            return;
        };
        self.waiting.pop_front();
        let Some(job) = &mut self.slots[usize::from(tag.0)].job else { return };
        let result = match self.workers.flushed() {
            Some(flushed) if job.call == Call::Flush => {
                let begins = self.turns.begins(tag);
                debug_assert!(begins, "a flush is under way beside one that is alone");
                rustix::fs::fdatasync(flushed).map(|()| 0)
            }
            _ => crew::call(job, &self.target, &self.target.flushes),
        };
        self.alone = Some(Alone { answer: Some((tag, result)) });
    }

    /// Answers the request whose call was made. True when its job goes on.
    #[inline]
    pub(super) fn answer_alone(&mut self, done: &mut Done) -> bool {
        let Some((tag, result)) = self.alone.as_mut().and_then(|alone| alone.answer.take()) else {
            return false;
        };
        let slot = &mut self.slots[usize::from(tag.0)];
        let Some(job) = &mut slot.job else { return false };
        if job.call == Call::Flush {
            return self.end_flush(result, done);
        }
        match job.advance(result, &self.target) {
            Next::Call => {
                self.call(tag);
                true
            }
            Next::Ended(status) => {
                self.in_flight -= 1;
                slot.answer(status, done);
                false
            }
        }
    }
}

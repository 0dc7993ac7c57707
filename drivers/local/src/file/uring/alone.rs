//! A durable write or a flush that is alone with a ring, whose thread waits for its end and has
//! nothing else to do ([`Waiter::may_block`]): that thread makes the call itself.
//!
//! io_uring has such a call end in threads of the kernel: the flush behind a write past the page
//! cache in a work queue, where the device has no FUA, and fdatasync(2) in one of its workers. Each
//! is woken by an interrupt and wakes another thread. pwritev2(2) waits for both interrupts itself.
//!
//! The call may take longer than the request has time: its thread, which watches that, is inside.
//!
//! [`Waiter::may_block`]: weir_queue::Waiter::may_block

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_bio::Status;
use weir_queue::{Done, Tag};

use super::super::crew;
use super::super::job::{Call, Next};
use super::{Slot, UringQueue};

/// The request that is alone, and whether its thread may block for it.
#[derive(Default)]
pub(super) struct Alone {
    /// Written by the waiter, on the same thread.
    pub(super) may_block: Arc<AtomicBool>,
    /// Kept from the ring until the burst is over: another may follow.
    kept: Option<Tag>,
    /// Its calls were made, and it ends so.
    ended: Option<(Tag, Status)>,
}

impl Alone {
    /// Whether the next reap has an answer.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// The tag that the ring has never heard of, if there is one.
    pub(super) fn take(&mut self) -> Option<Tag> {
        self.kept.take().or(self.ended.take().map(|(tag, _)| tag))
    }
}

impl UringQueue {
    /// Whether the request just taken is kept from the ring until the burst is over.
    #[inline]
    pub(super) fn keeps(&mut self, tag: Tag) -> bool {
        if self.in_flight > 1 || !self.alone.may_block.load(Ordering::Relaxed) {
            return false;
        }
        let promises = |slot: &Slot| slot.job.as_ref().is_some_and(|job| job.may_be_made_alone());
        let failed = self.failure.is_some() || self.workers.crew.is_some();
        if !failed && promises(&self.slots[usize::from(tag.0)]) {
            self.alone.kept = Some(tag);
        }
        self.alone.kept.is_some()
    }

    /// The one that was kept is not alone: it goes to the ring.
    #[inline]
    pub(super) fn let_go(&mut self) {
        if let Some(tag) = self.alone.kept.take() {
            self.call(tag);
            self.queued += 1;
        }
    }

    /// Makes the calls of the one that was kept; whether there was one.
    #[inline]
    pub(super) fn carry_out_kept(&mut self) -> bool {
        match self.alone.kept.take() {
            Some(tag) => self.carry_out(tag),
            None => false,
        }
    }

    #[inline(never)]
    fn carry_out(&mut self, tag: Tag) -> bool {
        let (target, flushed) = (&self.target, self.workers.flushed());
        let Some(job) = &mut self.slots[usize::from(tag.0)].job else { return false };
        let status = loop {
            let result = match job.call {
                // No other flush is under way on that description.
                Call::Flush => rustix::fs::fdatasync(flushed.unwrap_or(&target.file)).map(|()| 0),
                _ => crew::transfer(job, target),
            };
            if let Next::Ended(status) = job.advance(result, target) {
                break status;
            }
        };
        self.alone.ended = Some((tag, status));
        true
    }

    /// Answers for the one whose calls were made.
    #[inline]
    pub(super) fn answer_alone(&mut self, done: &mut Done) {
        if let Some((tag, status)) = self.alone.ended.take() {
            self.in_flight -= 1;
            self.slots[usize::from(tag.0)].answer(status, done);
        }
    }
}

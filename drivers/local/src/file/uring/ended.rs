//! A hard queue whose ring failed for good: the call that turns it has an error that trying again
//! does not mend.
//!
//! The ring is closed at once. The kernel then ends what it had been given, and until it has, the
//! memory of those requests stays lent. They are answered when the kernel has taken the ring down,
//! all with EIO, as whatever comes later is. Where the event is the ring itself (before Linux 6.1),
//! or a thread waits in it, the ring lives on: its requests end by their time-outs.

use std::fs;
use std::io::{self, PipeReader};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_bio::{Nanos, Status};
use weir_queue::{Batch, Cancel, Done, DriverError, DriverQueue, Tag, Waiter, Wake};

use super::super::crew::{Crew, Make};
use super::super::target::Target;
use super::{Slot, UringQueue};

/// How often it is looked whether the kernel has taken the ring down: that takes milliseconds.
const LOOK_NS: u64 = 10_000_000;

/// A hard queue on a ring, for as long as the ring can be turned.
#[expect(clippy::large_enum_variant, reason = "the large one is nearly always there")]
pub(in super::super) enum RingQueue {
    Turning(UringQueue),
    Ended(Ended),
}

/// The rest of a queue whose ring failed for good.
pub(in super::super) struct Ended {
    slots: Vec<Slot>,
    /// Requests that the ring took, and that came too late, not answered.
    in_flight: usize,
    /// Threads with calls that the kernel's workers did not make.
    crew: Option<Crew>,
    /// Requests that came too late; they brought no memory.
    refused: Vec<Tag>,
    /// Hangs up when the kernel has taken the ring down; none once it has.
    taken_down: Option<PipeReader>,
    look_at: Nanos,
}

impl RingQueue {
    pub(in super::super) fn new(
        target: Arc<Target>,
        flushed: fs::File,
        depth: u16,
        instead: Make,
    ) -> Result<RingQueue, DriverError> {
        UringQueue::new(target, flushed, depth, instead).map(RingQueue::Turning)
    }

    /// Closes the ring if it has failed.
    #[inline]
    fn look(&mut self, now: Nanos) {
        if let RingQueue::Turning(queue) = self
            && queue.failure.is_some()
        {
            *self = RingQueue::Ended(Ended::of(queue, now));
        }
    }
}

impl Ended {
    #[cold]
    fn of(queue: &mut UringQueue, now: Nanos) -> Ended {
        let failure = queue.failure.as_ref().map(io::Error::to_string).unwrap_or_default();
        queue.target.tell([format!(
            "file: {}: error: an io_uring fails for good: {failure}; I/O of its hard queue ends \
             with EIO until the disk is opened again",
            queue.target.path.display()
        )]);
        queue.waiting.clear();
        queue.withdrawn.clear();
        let in_flight = std::mem::take(&mut queue.in_flight);
        let (slots, taken_down) = (std::mem::take(&mut queue.slots), queue.taken_down.take());
        let crew = queue.workers.crew.take();
        Ended { slots, in_flight, crew, refused: Vec::new(), taken_down, look_at: now }
    }

    fn is_down(&mut self, now: Nanos) -> bool {
        let Some(pipe) = &self.taken_down else { return true };
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Nothing is ever written there: what can be seen is that it hangs up.
        let down = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&at_once));
        if down.is_ok_and(|seen| seen > 0) {
            self.taken_down = None;
        }
        self.look_at = Nanos(now.0.saturating_add(LOOK_NS));
        self.taken_down.is_none()
    }
}

impl DriverQueue for Ended {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        batch.take_all(|tag, _| self.refused.push(tag));
        self.in_flight = self.slots.iter().filter(|slot| slot.job.is_some()).count();
        self.in_flight += self.refused.len();
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.in_flight -= self.refused.len();
        self.refused.drain(..).for_each(|tag| done.push(tag, Status::IoErr));
        if self.in_flight > 0 && self.is_down(now) {
            self.slots.iter_mut().for_each(|slot| slot.answer(Status::IoErr, done));
            self.in_flight = 0;
        }
        if let Some(crew) = &mut self.crew {
            self.look_at = Nanos(now.0.saturating_add(LOOK_NS));
            crew.try_again();
            crew.hand_back(|tag, status, job| _ = job.answer(tag, status, done));
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        if let Some(crew) = &mut self.crew {
            crew.cancel(tag);
        }
        Cancel::Pending
    }

    fn wake_at(&self) -> Option<Nanos> {
        match (self.refused.is_empty(), DriverQueue::in_flight(self)) {
            (false, _) => Some(Nanos(0)),
            (true, 0) => None,
            (true, _) => Some(self.look_at),
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight + self.crew.as_ref().map_or(0, Crew::in_flight)
    }
}

impl DriverQueue for RingQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        match self {
            RingQueue::Turning(queue) => queue.submit(batch, now),
            RingQueue::Ended(ended) => return ended.submit(batch, now),
        }
        self.look(now);
    }

    fn commit(&mut self, now: Nanos) {
        match self {
            RingQueue::Turning(queue) => queue.commit(now),
            RingQueue::Ended(ended) => return ended.commit(now),
        }
        self.look(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        match self {
            RingQueue::Turning(queue) => queue.reap(now, done),
            RingQueue::Ended(ended) => return ended.reap(now, done),
        }
        self.look(now);
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        match self {
            RingQueue::Turning(queue) => queue.cancel(tag),
            RingQueue::Ended(ended) => ended.cancel(tag),
        }
    }

    fn may_block(&mut self) -> bool {
        match self {
            RingQueue::Turning(queue) => queue.may_block(),
            RingQueue::Ended(_) => false,
        }
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        match self {
            RingQueue::Turning(queue) => queue.at_home(lane),
            RingQueue::Ended(_) => {}
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        match self {
            RingQueue::Turning(queue) => queue.wake_at(),
            RingQueue::Ended(ended) => ended.wake_at(),
        }
    }

    fn event_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match self {
            RingQueue::Turning(queue) => queue.event_fd(),
            RingQueue::Ended(_) => None,
        }
    }

    fn waiter(&mut self, beside: std::os::fd::BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        match self {
            RingQueue::Turning(queue) => queue.waiter(beside),
            RingQueue::Ended(_) => None,
        }
    }

    fn in_flight(&self) -> usize {
        match self {
            RingQueue::Turning(queue) => queue.in_flight(),
            RingQueue::Ended(ended) => ended.in_flight(),
        }
    }
}

//! The thread pool back end, for where io_uring is forbidden or too old: each hard queue has a few
//! threads that make blocking calls ([`Crew`]) and a counter that becomes readable when one has
//! answered.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::EventfdFlags;
use weir_bio::{Data, Nanos, Status};
use weir_queue::{Batch, Cancel, Done, DriverError, DriverQueue, Tag};

use super::crew::{Crew, Make, Outlet};
use super::errors::error;
use super::flushes::Flushes;
use super::job::{Call, Job};
use super::target::Target;

/// A hard queue served by threads.
pub(super) struct PoolQueue {
    target: Arc<Target>,
    crew: Crew,
    /// Jobs taken in this burst.
    taken: Vec<(Tag, Job)>,
    /// Empty vectors to lend memory into.
    spare: Vec<Vec<Data>>,
    /// The thread that turns the queue is there for it alone.
    may_block: bool,
    /// What that thread did by itself, until it is reaped.
    ended: Option<(Tag, Status, Job)>,
}

/// How large a queue is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Tags.
    pub(super) depth: u16,
    /// Workers at most.
    pub(super) threads: u16,
}

impl PoolQueue {
    /// Opens a queue that flushes through `flushes`.
    pub(super) fn new(
        target: Arc<Target>,
        flushes: Arc<Flushes>,
        index: u16,
        make: Size,
    ) -> Result<PoolQueue, DriverError> {
        let Size { depth, threads } = make;
        let failed = |what: &str, source| error(&target.path, what, Some(source));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let answered = rustix::event::eventfd(0, flags)
            .map_err(|errno| failed("cannot make an eventfd", errno.into()))?;
        let make = Make { index, threads: threads.min(depth) };
        let mut crew = Crew::new(Arc::clone(&target), flushes, Outlet::Event(answered), make);
        while crew.len() < crew.workers_max() {
            match crew.hire() {
                Ok(()) => {}
                // One is enough to serve, if slowly.
                Err(_) if crew.len() > 0 => break,
                Err(source) => return Err(failed("cannot start a thread", source)),
            }
        }
        let (taken, spare) = (Vec::with_capacity(depth.into()), Vec::with_capacity(depth.into()));
        Ok(PoolQueue { crew, taken, spare, may_block: false, ended: None, target })
    }
}

impl DriverQueue for PoolQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            let memory = self.spare.pop().unwrap_or_default();
            self.taken.push((tag, Job::new(request, &self.target, memory)));
            batch.take();
        }
    }

    fn commit(&mut self, _now: Nanos) {
        if self.may_block
            && self.crew.in_flight() == 0
            && self.ended.is_none()
            && let [(_, job)] = &self.taken[..]
            && matches!(job.call, Call::WriteDurably | Call::Flush)
        {
            // Two threads less to wake.
            self.ended = self.taken.pop().map(|(tag, mut job)| {
                let status = self.crew.carry_out(&mut job);
                (tag, status, job)
            });
            return;
        }
        self.crew.take_over(self.taken.drain(..));
    }

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        let spare = &mut self.spare;
        if let Some((tag, status, job)) = self.ended.take() {
            spare.push(job.answer(tag, status, done));
        }
        self.crew.hand_back(|tag, status, job| spare.push(job.answer(tag, status, done)));
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        self.crew.cancel(tag);
        Cancel::Pending
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        match self.crew.outlet() {
            Outlet::Event(answered) => Some(answered.as_fd()),
            Outlet::Lane(_) => None,
        }
    }

    fn may_block(&mut self) -> bool {
        self.may_block = true;
        true
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.ended.as_ref().map(|_| Nanos(0))
    }

    fn in_flight(&self) -> usize {
        self.crew.in_flight() + self.taken.len() + usize::from(self.ended.is_some())
    }
}

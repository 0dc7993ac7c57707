//! The thread pool back end, for where io_uring is forbidden or too old: each hard queue has a few
//! threads that make blocking calls and a counter that becomes readable when one has answered.
//!
//! A job travels to a worker with the memory it was lent, so nothing is shared while a call runs.
//! Locks: one per queue, never held during a call.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::EventfdFlags;
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags};
use weir_bio::{Data, Nanos, Status};
use weir_queue::{Batch, Cancel, Done, DriverError, DriverQueue, Tag};

use super::job::{Call, Job, Next};
use super::target::{Target, error};

/// A hard queue served by threads.
pub(super) struct PoolQueue {
    target: Arc<Target>,
    shared: Arc<Shared>,
    in_flight: usize,
    /// Jobs taken in this burst.
    taken: Vec<(Tag, Job)>,
    /// Empty vectors to lend memory into.
    spare: Vec<Vec<Data>>,
    workers: Vec<thread::JoinHandle<()>>,
}

/// What the queue and its workers meet in.
struct Shared {
    work: Mutex<Work>,
    /// Told when there is a job to do, or none ever again.
    arrived: Condvar,
    /// Readable while `Work::rung`.
    answered: OwnedFd,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<(Tag, Job)>,
    ended: Vec<(Tag, Status, Job)>,
    rung: bool,
    closed: bool,
    /// Workers inside a call.
    busy: usize,
}

impl PoolQueue {
    /// Opens a queue of `depth` tags with up to `threads` workers.
    pub(super) fn new(
        target: Arc<Target>,
        index: u16,
        depth: u16,
        threads: u16,
    ) -> Result<PoolQueue, DriverError> {
        let failed = |what: &str, source| error(&target.path, what, Some(source));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let answered = rustix::event::eventfd(0, flags)
            .map_err(|errno| failed("cannot make an eventfd", errno.into()))?;
        let shared = Shared { work: Mutex::default(), arrived: Condvar::new(), answered };
        let mut queue = PoolQueue {
            shared: Arc::new(shared),
            in_flight: 0,
            taken: Vec::with_capacity(usize::from(depth)),
            spare: Vec::with_capacity(usize::from(depth)),
            workers: Vec::new(),
            target: Arc::clone(&target),
        };
        for worker in 0..threads.min(depth).max(1) {
            let (shared, target) = (Arc::clone(&queue.shared), Arc::clone(&target));
            let started = thread::Builder::new()
                .name(format!("weir-io-{index}-{worker}"))
                .spawn(move || shared.work_off(&target));
            match started {
                Ok(worker) => queue.workers.push(worker),
                // One is enough to serve, if slowly.
                Err(_) if worker > 0 => break,
                Err(source) => return Err(failed("cannot start a thread", source)),
            }
        }
        Ok(queue)
    }
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        // No call is made under the lock, so a panic leaves nothing half done.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a worker does until the queue closes.
    fn work_off(&self, target: &Target) {
        let mut work = self.work();
        loop {
            if work.closed {
                return;
            }
            let Some((tag, mut job)) = work.jobs.pop_front() else {
                work = self.arrived.wait(work).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            work.busy += 1;
            drop(work);
            let status = carry_out(&mut job, target);
            work = self.work();
            work.busy -= 1;
            self.end(&mut work, tag, status, job);
        }
    }

    fn end(&self, work: &mut Work, tag: Tag, status: Status, job: Job) {
        work.ended.push((tag, status, job));
        if !work.rung {
            work.rung = true;
            // It can only fail when the counter is full, and then it is readable.
            _ = rustix::io::write(&self.answered, &1_u64.to_ne_bytes());
        }
    }
}

/// Makes the job's calls until it has ended.
fn carry_out(job: &mut Job, target: &Target) -> Status {
    loop {
        let result = call(job, target);
        if let Next::Ended(status) = job.advance(result, target) {
            return status;
        }
    }
}

fn call(job: &mut Job, target: &Target) -> Result<u32, Errno> {
    let (file, at, left) = (&target.file, job.at, job.left);
    let free = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let zero = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    match job.call {
        Call::Read => {
            let mut pieces: Vec<IoSliceMut<'_>> = job.pieces_mut().map(IoSliceMut::new).collect();
            rustix::io::preadv(file, &mut pieces, at).map(|bytes| bytes as u32)
        }
        Call::Write => {
            let pieces: Vec<IoSlice<'_>> = job.pieces().map(IoSlice::new).collect();
            rustix::io::pwritev(file, &pieces, at).map(|bytes| bytes as u32)
        }
        Call::WriteDurably => {
            let pieces: Vec<IoSlice<'_>> = job.pieces().map(IoSlice::new).collect();
            let written = rustix::io::pwritev2(file, &pieces, at, ReadWriteFlags::DSYNC);
            written.map(|bytes| bytes as u32)
        }
        Call::Flush => rustix::fs::fdatasync(file).map(|()| 0),
        Call::PunchHole => rustix::fs::fallocate(file, free, at, left).map(|()| 0),
        Call::ZeroRange => rustix::fs::fallocate(file, zero, at, left).map(|()| 0),
        Call::WillNeed => {
            let len = std::num::NonZeroU64::new(left);
            rustix::fs::fadvise(file, at, len, Advice::WillNeed).map(|()| 0)
        }
        Call::Nothing(_) => Ok(0),
    }
}

impl DriverQueue for PoolQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            let memory = self.spare.pop().unwrap_or_default();
            self.taken.push((tag, Job::new(request, &self.target, memory)));
            self.in_flight += 1;
            batch.take();
        }
    }

    fn commit(&mut self, _now: Nanos) {
        let count = self.taken.len();
        self.shared.work().jobs.extend(self.taken.drain(..));
        match count {
            0 => {}
            1 => self.shared.arrived.notify_one(),
            _ => self.shared.arrived.notify_all(),
        }
    }

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        let mut work = self.shared.work();
        if work.rung {
            work.rung = false;
            _ = rustix::io::read(&self.shared.answered, &mut [0_u8; 8]);
        }
        for (tag, status, job) in work.ended.drain(..) {
            self.in_flight -= 1;
            self.spare.push(job.answer(tag, status, done));
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        // Its memory is lent, so it comes back the way of all answers.
        let mut work = self.shared.work();
        if let Some(index) = work.jobs.iter().position(|(queued, _)| *queued == tag)
            && let Some((_, job)) = work.jobs.remove(index)
        {
            self.shared.end(&mut work, tag, Status::Timeout, job);
        }
        Cancel::Pending
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.answered.as_fd())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for PoolQueue {
    fn drop(&mut self) {
        let mut work = self.shared.work();
        work.closed = true;
        work.jobs.clear();
        let busy = work.busy;
        drop(work);
        self.shared.arrived.notify_all();
        // A worker inside a call owns its memory and the file; waiting for it could take for ever.
        if busy == 0 {
            for worker in self.workers.drain(..) {
                _ = worker.join();
            }
        }
    }
}

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

use super::errors::error;
use super::flushes::Flushes;
use super::job::{Call, Job, Next};
use super::target::Target;

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

/// The state that the queue and its workers share.
struct Shared {
    work: Mutex<Work>,
    /// Told when there is a job to do, or none ever again.
    arrived: Condvar,
    /// Readable while `Work::rung`.
    answered: OwnedFd,
    flushes: Arc<Flushes>,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<(Tag, Job)>,
    ended: Vec<(Tag, Status, Job)>,
    rung: bool,
    closed: bool,
    /// The job each worker makes calls for.
    under_way: Vec<Option<UnderWay>>,
}

/// A job in a worker's hands.
struct UnderWay {
    tag: Tag,
    /// The core has given the request up: the worker makes no further call for it.
    given_up: bool,
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
        let threads = threads.min(depth).max(1);
        let under_way = (0..threads).map(|_| None).collect();
        let work = Mutex::new(Work { under_way, ..Work::default() });
        let shared = Shared { work, arrived: Condvar::new(), answered, flushes };
        let mut queue = PoolQueue {
            shared: Arc::new(shared),
            in_flight: 0,
            taken: Vec::with_capacity(usize::from(depth)),
            spare: Vec::with_capacity(usize::from(depth)),
            workers: Vec::new(),
            target: Arc::clone(&target),
        };
        for worker in 0..threads {
            let (shared, target) = (Arc::clone(&queue.shared), Arc::clone(&target));
            let started = thread::Builder::new()
                .name(format!("weir-io-{index}-{worker}"))
                .spawn(move || shared.work_off(usize::from(worker), &target));
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

    /// The loop of a worker: takes jobs and runs them until the queue closes.
    fn work_off(&self, worker: usize, target: &Target) {
        let mut work = self.work();
        loop {
            if work.closed {
                return;
            }
            let Some((tag, mut job)) = work.jobs.pop_front() else {
                work = self.arrived.wait(work).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            work.under_way[worker] = Some(UnderWay { tag, given_up: false });
            drop(work);
            let status = self.carry_out(worker, &mut job, target);
            work = self.work();
            work.under_way[worker] = None;
            self.end(&mut work, tag, status, job);
        }
    }

    /// Makes the job's calls until it has ended or may make none any more.
    fn carry_out(&self, worker: usize, job: &mut Job, target: &Target) -> Status {
        loop {
            let result = call(job, target, &self.flushes);
            match job.advance(result, target) {
                Next::Ended(status) => return status,
                Next::Call if self.gives_up(worker) => return Status::Timeout,
                Next::Call => {}
            }
        }
    }

    /// Whether the worker's job was given up while its call ran, or the queue was dropped.
    fn gives_up(&self, worker: usize) -> bool {
        let work = self.work();
        work.closed || work.under_way[worker].as_ref().is_some_and(|job| job.given_up)
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

fn call(job: &mut Job, target: &Target, flushes: &Flushes) -> Result<u32, Errno> {
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
        Call::Flush => flushes.flush(&target.file).map(|()| 0),
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
        } else if let Some(job) = work.under_way.iter_mut().flatten().find(|job| job.tag == tag) {
            job.given_up = true;
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

impl PoolQueue {
    /// Has the workers end; returns how many are inside a call. Each of these owns its memory and
    /// the file, and waiting for it could take for ever.
    fn stop(&mut self) -> usize {
        let mut work = self.shared.work();
        work.closed = true;
        work.jobs.clear();
        let busy = work.under_way.iter().flatten().count();
        drop(work);
        self.shared.arrived.notify_all();
        if busy == 0 {
            for worker in self.workers.drain(..) {
                _ = worker.join();
            }
        }
        busy
    }
}

impl Drop for PoolQueue {
    fn drop(&mut self) {
        let busy = self.stop();
        if busy > 0 {
            let path = self.target.path.display();
            self.target.tell([format!(
                "file: {path}: closed with {busy} calls under way: it stays locked until they have \
                 ended"
            )]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Buf;

    const TAG: Tag = Tag::first(0);
    const NOW: Nanos = Nanos(1);

    /// A queue without workers, a job for its first one that the end of the file cuts short, and
    /// the file: a second call would find nothing and be an error.
    fn cut_short() -> (PoolQueue, Job) {
        let target = Arc::new(Target::nameless(8192));
        let mut queue =
            PoolQueue::new(Arc::clone(&target), Arc::default(), 0, Size { depth: 1, threads: 1 })
                .expect("a queue");
        queue.stop();
        queue.shared.work().closed = false;
        queue.shared.work().under_way[0] = Some(UnderWay { tag: TAG, given_up: false });
        (queue, Job::of(Call::Read, vec![Data::One(Buf::zeroed(8192))]))
    }

    #[test]
    fn a_worker_makes_no_second_call_for_a_request_that_was_given_up() {
        let (queue, mut job) = cut_short();
        assert_eq!(queue.shared.carry_out(0, &mut job, &queue.target), Status::IoErr);
        let (mut queue, mut job) = cut_short();
        assert_eq!(queue.cancel(TAG), Cancel::Pending);
        assert_eq!(queue.shared.carry_out(0, &mut job, &queue.target), Status::Timeout);
    }

    #[test]
    fn a_cancel_gives_up_only_the_request_it_names() {
        let (mut queue, mut job) = cut_short();
        queue.cancel(Tag::first(1));
        assert_eq!(queue.shared.carry_out(0, &mut job, &queue.target), Status::IoErr);
    }

    #[test]
    fn a_worker_makes_no_second_call_for_a_queue_that_was_dropped() {
        let (queue, mut job) = cut_short();
        let (shared, target) = (Arc::clone(&queue.shared), Arc::clone(&queue.target));
        drop(queue);
        assert_eq!(shared.carry_out(0, &mut job, &target), Status::Timeout);
    }

    #[test]
    fn a_request_that_is_cancelled_before_a_worker_took_it_is_never_carried_out() {
        let (mut queue, job) = cut_short();
        queue.shared.work().under_way[0] = None;
        queue.shared.work().jobs.push_back((TAG, job));
        queue.in_flight = 1;
        queue.cancel(TAG);
        let mut done = Done::default();
        queue.reap(NOW, &mut done);
        assert_eq!((done.len(), queue.in_flight()), (1, 0));
        assert!(queue.shared.work().jobs.is_empty());
    }
}

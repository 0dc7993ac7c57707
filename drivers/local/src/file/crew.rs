//! Threads that make a hard queue's blocking calls: all of them for the thread pool back end, and
//! for a ring those that io_uring's own workers leave undone.
//!
//! A job travels to a worker with the memory it was lent, so nothing is shared while a call runs.
//! Locks: one per crew, never held during a call.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use weir_bio::Status;
use weir_queue::{Tag, Wake};

use super::flushes::Flushes;
use super::job::{Call, Job, Next};
use super::target::Target;
use super::vectors;

/// The threads of one hard queue.
pub(super) struct Crew {
    target: Arc<Target>,
    shared: Arc<Shared>,
    index: u16,
    workers_max: usize,
    workers: Vec<thread::JoinHandle<()>>,
    in_flight: usize,
    /// No thread could be started, and it was not tried again.
    short: bool,
    /// That it has none was told.
    told: bool,
}

/// How large a crew may be, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Make {
    /// The hard queue: part of the names of its threads.
    pub(super) index: u16,
    /// Threads at most, at least 1.
    pub(super) threads: u16,
}

/// How the home of the queue hears of answers.
pub(super) enum Outlet {
    /// A counter that becomes readable.
    Event(OwnedFd),
    /// The queue's lane, if it has one: a queue that a test turns by hand has none.
    Lane(Option<Arc<dyn Wake>>),
}

/// The state that the queue and its workers share.
struct Shared {
    work: Mutex<Work>,
    /// Told when there is a job to do, or none ever again.
    arrived: Condvar,
    /// Told of answers while `Work::rung` is not set.
    outlet: Outlet,
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

impl Crew {
    /// A crew without threads, which flushes through `flushes`.
    pub(super) fn new(
        target: Arc<Target>,
        flushes: Arc<Flushes>,
        outlet: Outlet,
        make: Make,
    ) -> Crew {
        let Make { index, threads } = make;
        let workers_max = usize::from(threads.max(1));
        let under_way = (0..workers_max).map(|_| None).collect();
        let work = Mutex::new(Work { under_way, ..Work::default() });
        let shared = Arc::new(Shared { work, arrived: Condvar::new(), outlet, flushes });
        Crew {
            target,
            shared,
            index,
            workers_max,
            workers: Vec::new(),
            in_flight: 0,
            short: false,
            told: false,
        }
    }

    /// Starts one thread more, if it may have more.
    pub(super) fn hire(&mut self) -> io::Result<()> {
        let number = self.workers.len();
        if number < self.workers_max {
            let (shared, target) = (Arc::clone(&self.shared), Arc::clone(&self.target));
            let worker = thread::Builder::new()
                .name(format!("weir-io-{}-{number}", self.index))
                .spawn(move || shared.work_off(number, &target))?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Threads there are.
    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Threads there may be.
    pub(super) fn workers_max(&self) -> usize {
        self.workers_max
    }

    /// Starts a thread for each job that has to wait for one, as far as there may be so many. If
    /// the system refuses, nothing is tried until [`try_again`](Crew::try_again): the jobs wait for
    /// the threads there are, and without any until one can be started.
    pub(super) fn staff(&mut self) {
        while !self.short && self.lacks_a_worker() {
            let Err(error) = self.hire() else { continue };
            self.short = true;
            if self.workers.is_empty() && !std::mem::replace(&mut self.told, true) {
                let path = self.target.path.display();
                let index = self.index;
                self.target.tell([format!(
                    "file: {path}: error: no thread can be started ({error}): calls of hard queue \
                     {index} wait until one can"
                )]);
            }
        }
    }

    /// Time has passed since no thread could be started.
    pub(super) fn try_again(&mut self) {
        self.short = false;
        self.staff();
    }

    /// Whether a job has to wait for a thread, and there may be another.
    fn lacks_a_worker(&self) -> bool {
        if self.workers.len() == self.workers_max {
            return false;
        }
        let work = self.shared.work();
        let busy = work.under_way.iter().flatten().count();
        work.jobs.len() + busy > self.workers.len()
    }

    /// Takes over jobs: each is handed back once.
    pub(super) fn take_over(&mut self, jobs: impl ExactSizeIterator<Item = (Tag, Job)>) {
        let count = jobs.len();
        self.in_flight += count;
        self.shared.work().jobs.extend(jobs);
        match count {
            0 => {}
            1 => self.shared.arrived.notify_one(),
            _ => self.shared.arrived.notify_all(),
        }
    }

    /// Hands back the jobs that have ended, with their answers.
    pub(super) fn hand_back(&mut self, mut each: impl FnMut(Tag, Status, Job)) {
        let mut work = self.shared.work();
        if work.rung {
            work.rung = false;
            if let Outlet::Event(answered) = &self.shared.outlet {
                _ = rustix::io::read(answered, &mut [0_u8; 8]);
            }
        }
        for (tag, status, job) in work.ended.drain(..) {
            self.in_flight -= 1;
            each(tag, status, job);
        }
    }

    /// The core gives a request up. Its memory is lent, so it comes back the way of all answers.
    pub(super) fn cancel(&mut self, tag: Tag) {
        let mut work = self.shared.work();
        if let Some(index) = work.jobs.iter().position(|(queued, _)| *queued == tag)
            && let Some((_, job)) = work.jobs.remove(index)
        {
            self.shared.end(work, tag, Status::Timeout, job);
        } else if let Some(job) = work.under_way.iter_mut().flatten().find(|job| job.tag == tag) {
            job.given_up = true;
        }
    }

    /// Jobs taken over and not handed back.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Makes the calls of a job on the thread that asks, until it has ended.
    pub(super) fn carry_out(&self, job: &mut Job) -> Status {
        loop {
            let result = call(job, &self.target, &self.shared.flushes);
            if let Next::Ended(status) = job.advance(result, &self.target) {
                return status;
            }
        }
    }

    pub(super) fn outlet(&self) -> &Outlet {
        &self.shared.outlet
    }

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

impl Drop for Crew {
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
            // A panic here is a fault of this crate; its caller would wait for the answer for ever.
            let calls = AssertUnwindSafe(|| self.carry_out(worker, &mut job, target));
            let status = catch_unwind(calls).unwrap_or_else(|_| {
                // Whether a write or a flush was lost is not known.
                target.flush_has_failed(Errno::IO);
                Status::IoErr
            });
            work = self.work();
            work.under_way[worker] = None;
            self.end(work, tag, status, job);
            work = self.work();
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

    fn end(&self, mut work: MutexGuard<'_, Work>, tag: Tag, status: Status, job: Job) {
        work.ended.push((tag, status, job));
        if work.rung || work.closed {
            return;
        }
        work.rung = true;
        match &self.outlet {
            // It can only fail when the counter is full, and then it is readable.
            Outlet::Event(answered) => {
                _ = rustix::io::write(answered, &1_u64.to_ne_bytes());
            }
            Outlet::Lane(lane) => {
                drop(work);
                if let Some(lane) = lane {
                    lane.wake();
                }
            }
        }
    }
}

/// Makes the next call of a job, and returns when the device has answered.
pub(super) fn call(job: &mut Job, target: &Target, flushes: &Flushes) -> Result<u32, Errno> {
    let (file, at, left) = (&target.file, job.at, job.left);
    let free = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let zero = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    match job.call {
        Call::Read => vectors::read(file, job),
        Call::Write => vectors::write(file, job, false),
        Call::WriteDurably => vectors::write(file, job, true),
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use weir_bio::{Buf, Data};

    use super::*;

    const TAG: Tag = Tag::first(0);

    /// A crew without threads, a job for its first one that the end of the file cuts short, and
    /// the file: a second call would find nothing and be an error.
    fn cut_short() -> (Crew, Job) {
        let target = Arc::new(Target::nameless(8192));
        let outlet = Outlet::Lane(None);
        let make = Make { index: 0, threads: 1 };
        let crew = Crew::new(Arc::clone(&target), Arc::default(), outlet, make);
        crew.shared.work().under_way[0] = Some(UnderWay { tag: TAG, given_up: false });
        (crew, Job::of(Call::Read, vec![Data::One(Buf::zeroed(8192))]))
    }

    #[test]
    fn a_worker_makes_no_second_call_for_a_request_that_was_given_up() {
        let (crew, mut job) = cut_short();
        assert_eq!(crew.shared.carry_out(0, &mut job, &crew.target), Status::IoErr);
        let (mut crew, mut job) = cut_short();
        crew.cancel(TAG);
        assert_eq!(crew.shared.carry_out(0, &mut job, &crew.target), Status::Timeout);
    }

    #[test]
    fn a_cancel_gives_up_only_the_request_it_names() {
        let (mut crew, mut job) = cut_short();
        crew.cancel(Tag::first(1));
        assert_eq!(crew.shared.carry_out(0, &mut job, &crew.target), Status::IoErr);
    }

    #[test]
    fn a_worker_makes_no_second_call_for_a_queue_that_was_dropped() {
        let (crew, mut job) = cut_short();
        let (shared, target) = (Arc::clone(&crew.shared), Arc::clone(&crew.target));
        drop(crew);
        assert_eq!(shared.carry_out(0, &mut job, &target), Status::Timeout);
    }

    #[test]
    fn a_request_that_is_cancelled_before_a_worker_took_it_is_never_carried_out() {
        let (mut crew, job) = cut_short();
        crew.shared.work().under_way[0] = None;
        crew.take_over([(TAG, job)].into_iter());
        crew.cancel(TAG);
        let mut ended = Vec::new();
        crew.hand_back(|tag, status, _| ended.push((tag, status)));
        assert_eq!((ended, crew.in_flight()), (vec![(TAG, Status::Timeout)], 0));
        assert!(crew.shared.work().jobs.is_empty());
    }

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Counter(AtomicU32);

    impl Wake for Counter {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_lane_is_woken_once_for_the_answers_that_it_has_not_taken() {
        let (target, woken) = (Arc::new(Target::nameless(8192)), Arc::new(Counter::default()));
        let lane: Arc<dyn Wake> = woken.clone();
        let make = Make { index: 0, threads: 1 };
        let mut crew = Crew::new(target, Arc::default(), Outlet::Lane(Some(lane)), make);
        for turn in 1..=2 {
            for number in 0..2 {
                crew.take_over(
                    [(Tag::first(number), Job::of(Call::Flush, Vec::new()))].into_iter(),
                );
                crew.cancel(Tag::first(number));
            }
            assert_eq!(woken.0.load(Ordering::Relaxed), turn);
            crew.hand_back(|_, _, _| {});
        }
    }

    #[test]
    fn a_crew_dropped_with_jobs_that_wait_for_a_thread_lets_go_of_the_file() {
        let (mut crew, job) = cut_short();
        crew.shared.work().under_way[0] = None;
        crew.take_over([(TAG, job)].into_iter());
        let target = Arc::downgrade(&crew.target);
        drop(crew);
        assert!(target.upgrade().is_none(), "it stays locked");
    }

    #[test]
    fn a_crew_has_no_more_threads_than_jobs_and_no_more_than_it_may_have() {
        let target = Arc::new(Target::nameless(8192));
        let make = Make { index: 0, threads: 2 };
        let mut crew = Crew::new(target, Arc::default(), Outlet::Lane(None), make);
        crew.staff();
        assert_eq!(crew.len(), 0);
        crew.shared.work().under_way[0] = Some(UnderWay { tag: TAG, given_up: false });
        crew.staff();
        assert_eq!(crew.len(), 1);
        crew.shared.work().under_way[1] = Some(UnderWay { tag: TAG, given_up: false });
        crew.staff();
        assert_eq!(crew.len(), 2);
        crew.take_over([(TAG, Job::of(Call::Flush, Vec::new()))].into_iter());
        crew.staff();
        assert_eq!(crew.len(), 2);
        crew.shared.work().under_way.fill_with(|| None);
    }
}

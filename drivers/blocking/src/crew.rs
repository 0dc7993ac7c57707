//! The threads that make a driver's calls, and the jobs of all its hard queues in one line.
//!
//! A job travels to a thread with the memory it was lent, so nothing is shared while a call runs.
//! Locks: that of the line and that of an outlet. Neither is held during a call, and they are never
//! held together.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use weir_bio::{Buf, Data, Flags, Op, SECTOR, Status};
use weir_queue::{DriverError, EXTENTS_MAX, Extent, Notices, Tag};

use crate::BlockingDriver;
use crate::call::{self, INTERRUPTIONS_MAX, Outcome};
use crate::outlet::Outlet;

/// Bytes of zeros in one write, where a driver can make none itself.
const ZEROS_MAX: u64 = 1 << 20;

/// A request in the hands of a crew.
pub(crate) struct Job {
    pub(crate) tag: Tag,
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) flags: Flags,
    pub(crate) lent: Vec<Data>,
    pub(crate) outlet: Arc<Outlet>,
}

/// The threads of one driver.
pub(crate) struct Crew {
    driver: Arc<dyn BlockingDriver>,
    threads_max: usize,
    work: Mutex<Work>,
    /// Told when there is a job to do, or no queue any more.
    arrived: Condvar,
    /// Told when a thread has ended.
    left: Condvar,
    pub(crate) notices: Notices,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    under_way: Vec<UnderWay>,
    /// The number of the next call.
    next: u64,
    /// Hard queues that are open.
    queues: usize,
    /// Threads that there are.
    threads: usize,
    /// How a flush has failed: none is made any more.
    failed_flush: Option<Status>,
    /// The kinds of call of which a broken contract was told.
    told: Vec<Op>,
}

/// A job of which a thread makes calls.
struct UnderWay {
    number: u64,
    tag: Tag,
    outlet: Arc<Outlet>,
    /// The core has given the request up, or its queue is gone: no further call is made for it.
    given_up: bool,
}

impl UnderWay {
    fn is(&self, tag: Tag, outlet: &Arc<Outlet>) -> bool {
        self.tag == tag && Arc::ptr_eq(&self.outlet, outlet)
    }
}

impl Crew {
    pub(crate) fn new(driver: Arc<dyn BlockingDriver>, threads: u16) -> Crew {
        Crew {
            driver,
            threads_max: threads.into(),
            work: Mutex::default(),
            arrived: Condvar::new(),
            left: Condvar::new(),
            notices: Notices::default(),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.work().threads
    }

    /// The calls that have not returned in time, as a sentence.
    pub(crate) fn faults(&self) -> Vec<String> {
        let work = self.work();
        let lost = work.under_way.iter().filter(|job| job.given_up).count();
        let of = self.threads_max;
        let told = || format!("blocking driver: {lost} of {of} threads are in calls given up");
        let mut faults: Vec<String> = (lost > 0).then(told).into_iter().collect();
        if let Some(status) = work.failed_flush {
            faults.push(format!("blocking driver: a flush has failed ({status})"));
        }
        faults
    }

    /// One hard queue more: its threads are there from now on.
    ///
    /// # Errors
    /// There is none, and none can be started.
    pub(crate) fn join(self: &Arc<Crew>) -> io::Result<()> {
        let mut work = self.work();
        while work.threads < self.threads_max {
            let crew = Arc::clone(self);
            let thread = thread::Builder::new().name(format!("weir-call-{}", work.threads));
            match thread.spawn(move || crew.work_off()) {
                Ok(_) => work.threads += 1,
                Err(error) if work.threads == 0 => return Err(error),
                Err(error) => {
                    let (there, of) = (work.threads, self.threads_max);
                    work.queues += 1;
                    drop(work);
                    self.notices.add(format!(
                        "blocking driver: {there} of {of} threads; no more start ({error})"
                    ));
                    return Ok(());
                }
            }
        }
        work.queues += 1;
        Ok(())
    }

    /// A hard queue is gone. With the last one the threads are, but for those in a call.
    pub(crate) fn leave(&self, outlet: &Arc<Outlet>) {
        outlet.close();
        let mut work = self.work();
        let all = std::mem::take(&mut work.jobs);
        let (dropped, kept): (VecDeque<Job>, VecDeque<Job>) =
            all.into_iter().partition(|job| Arc::ptr_eq(&job.outlet, outlet));
        work.jobs = kept;
        let mut busy = 0;
        for job in work.under_way.iter_mut().filter(|job| Arc::ptr_eq(&job.outlet, outlet)) {
            job.given_up = true;
            busy += 1;
        }
        work.queues -= 1;
        if work.queues == 0 {
            self.arrived.notify_all();
            // A thread without a call ends as soon as it has the lock.
            while work.queues == 0 && work.threads > work.under_way.len() {
                work = self.left.wait(work).unwrap_or_else(PoisonError::into_inner);
            }
        }
        drop(work);
        drop(dropped);
        if busy > 0 {
            let calls = if busy == 1 { "call" } else { "calls" };
            self.notices.add(format!(
                "blocking driver: closed with {busy} {calls} under way; each keeps its thread and \
                 its memory until it returns"
            ));
        }
    }

    /// Takes over jobs: each is answered once, at its outlet.
    pub(crate) fn take_over(&self, jobs: impl ExactSizeIterator<Item = Job>) {
        match jobs.len() {
            0 => {}
            1 => {
                self.work().jobs.extend(jobs);
                self.arrived.notify_one();
            }
            _ => {
                self.work().jobs.extend(jobs);
                self.arrived.notify_all();
            }
        }
    }

    /// The core gives a request up. Its memory is lent, so it comes back the way of all answers.
    pub(crate) fn cancel(&self, tag: Tag, outlet: &Arc<Outlet>) {
        let mut work = self.work();
        let is_it = |job: &Job| job.tag == tag && Arc::ptr_eq(&job.outlet, outlet);
        if let Some(at) = work.jobs.iter().position(is_it)
            && let Some(job) = work.jobs.remove(at)
        {
            drop(work);
            outlet.end(job.tag, Status::Timeout, job.lent);
        } else if let Some(job) = work.under_way.iter_mut().find(|job| job.is(tag, outlet)) {
            job.given_up = true;
        }
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        // No call is made under the lock, so a panic leaves nothing half done.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of a thread.
    fn work_off(&self) {
        let mut work = self.work();
        loop {
            if work.queues == 0 {
                work.threads -= 1;
                self.left.notify_all();
                return;
            }
            let Some(mut job) = work.jobs.pop_front() else {
                work = self.arrived.wait(work).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let number = work.next;
            work.next += 1;
            let (tag, outlet) = (job.tag, Arc::clone(&job.outlet));
            work.under_way.push(UnderWay { number, tag, outlet, given_up: false });
            drop(work);
            let status = self.carry_out(number, &mut job);
            work = self.work();
            work.under_way.retain(|job| job.number != number);
            drop(work);
            job.outlet.end(job.tag, status, job.lent);
            work = self.work();
        }
    }

    /// Makes a job's calls until it has ended, or may make none any more.
    fn carry_out(&self, number: u64, job: &mut Job) -> Status {
        let (driver, op, offset, len) = (&*self.driver, job.op, job.offset, job.len);
        match op {
            Op::Read | Op::Write => self.transfer_all(number, job),
            Op::Flush => self.flush(number),
            Op::Discard => self.repeat(number, op, || call::plain(|| driver.trim(offset, len))),
            Op::WriteZeroes => self.zero(number, job),
            _ => Status::NotSupp,
        }
    }

    /// Reads or writes all memory of a job, from its first byte on the disk to its last.
    fn transfer_all(&self, number: u64, job: &mut Job) -> Status {
        let mut at = job.offset;
        let mut status = Status::Ok;
        for data in &mut job.lent {
            // The spare memory of zeros has what was in it before.
            if let (Op::Write, Data::Zero { len, .. }) = (job.op, &*data) {
                *data = Data::One(Buf::zeroed(*len as usize));
            } else {
                data.materialise();
            }
            let len = data.len() as u64;
            match data.bufs_mut() {
                Some(bufs) => {
                    for buf in bufs {
                        status = self.transfer(number, job.op, at, buf);
                        if !status.is_ok() {
                            break;
                        }
                        at += buf.len() as u64;
                    }
                }
                None => {
                    // Memory to which no reference may be made: by way of a copy.
                    let mut bytes = data.to_vec();
                    status = self.transfer(number, job.op, at, &mut bytes);
                    if job.op == Op::Read {
                        data.copy_from_at(0, &bytes);
                    }
                    at += len;
                }
            }
            if !status.is_ok() {
                return status;
            }
        }
        status
    }

    /// Has a range made zeros; where the driver cannot, and the caller does not ask for speed or
    /// nothing, zeros are written.
    fn zero(&self, number: u64, job: &Job) -> Status {
        let (offset, len) = (job.offset, job.len);
        let keep = job.flags.has(Flags::NOUNMAP);
        let zeroed =
            self.repeat(number, job.op, || call::plain(|| self.driver.zero(offset, len, keep)));
        if zeroed != Status::NotSupp || job.flags.has(Flags::NOFALLBACK) {
            return zeroed;
        }
        let (mut at, end, mut status) = (offset, offset + len, Status::Ok);
        let mut zeros = vec![0; len.min(ZEROS_MAX) as usize];
        while at < end && status.is_ok() {
            let bytes = (end - at).min(ZEROS_MAX);
            status = self.transfer(number, Op::Write, at, &mut zeros[..bytes as usize]);
            at += bytes;
        }
        status
    }

    fn transfer(&self, number: u64, op: Op, offset: u64, bytes: &mut [u8]) -> Status {
        let driver = &*self.driver;
        let (mut done, mut status) = (0, Status::Ok);
        while done < bytes.len() && status.is_ok() {
            let (at, rest) = (offset + done as u64, &mut bytes[done..]);
            let len = rest.len();
            status = self.repeat(number, op, || {
                let outcome = call::transfer(len, || match op {
                    Op::Read => driver.read(at, rest),
                    _ => driver.write(at, rest),
                });
                if let Outcome::Moved(moved) = outcome {
                    done += moved;
                }
                outcome
            });
        }
        status
    }

    /// Nothing is durable any more once a flush has failed, also one that went on beside it.
    fn flush(&self, number: u64) -> Status {
        if let Some(failed) = self.work().failed_flush {
            return failed;
        }
        let mut called = false;
        let status = self.repeat(number, Op::Flush, || {
            called = true;
            call::plain(|| self.driver.flush())
        });
        let mut work = self.work();
        if called && !status.is_ok() {
            work.failed_flush.get_or_insert(status);
        }
        work.failed_flush.unwrap_or(status)
    }

    /// Makes a call, and again while it is interrupted.
    fn repeat(&self, number: u64, op: Op, mut call: impl FnMut() -> Outcome) -> Status {
        for _ in 0..INTERRUPTIONS_MAX {
            if self.gives_up(number) {
                return Status::Timeout;
            }
            match call() {
                Outcome::Moved(_) => return Status::Ok,
                Outcome::Failed(status) => return status,
                Outcome::Again => {}
                Outcome::Broken(how) => {
                    self.tell_broken(op, &how);
                    return Status::IoErr;
                }
            }
        }
        self.tell_broken(op, &format!("was interrupted {INTERRUPTIONS_MAX} times"));
        Status::IoErr
    }

    /// Whether the job was given up while its call ran.
    fn gives_up(&self, number: u64) -> bool {
        self.work().under_way.iter().any(|job| job.number == number && job.given_up)
    }

    /// The driver's answer to a question about a range, made by the thread that asks. One that is
    /// none is told of, and everything is data.
    pub(crate) fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        let (offset, len) = (sector * SECTOR, sectors * SECTOR);
        let failed = |source: io::Error| {
            let what = format!("blocking driver: allocation of {len} bytes at offset {offset}");
            DriverError { what, source: Some(source) }
        };
        for _ in 0..INTERRUPTIONS_MAX {
            match call::guarded(|| self.driver.allocation(offset, len)) {
                Ok(Ok(extents)) if is_answer(&extents, sectors) => return Ok(extents),
                Ok(Ok(extents)) => {
                    let told = format!(
                        "blocking driver: allocation of {sectors} sectors: {} extents of {} \
                         sectors are no answer; everything is taken for data",
                        extents.len(),
                        extents.iter().map(|extent| u128::from(extent.sectors)).sum::<u128>()
                    );
                    self.notices.add(told);
                    return Ok(vec![Extent { sectors, hole: false, zero: false }]);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(failed(error)),
                Err(panic) => return Err(failed(io::Error::other(panic))),
            }
        }
        Err(failed(io::ErrorKind::Interrupted.into()))
    }

    /// Tells of a call that broke its contract, once for each kind of call.
    fn tell_broken(&self, op: Op, how: &str) {
        let mut work = self.work();
        if work.told.contains(&op) {
            return;
        }
        work.told.push(op);
        drop(work);
        let name = match op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::WriteZeroes => "zero",
            _ => "trim",
        };
        let notice = format!(
            "blocking driver: {name} {how}; its request failed, later ones of its kind are not told"
        );
        // A listener that panics does not take the thread with it.
        let _ = catch_unwind(AssertUnwindSafe(|| self.notices.add(notice)));
    }
}

/// Whether extents cover a range of so many sectors, or its beginning.
fn is_answer(extents: &[Extent], sectors: u64) -> bool {
    let all = extents.iter().try_fold(0_u64, |all, extent| all.checked_add(extent.sectors));
    let has_place = (1..=EXTENTS_MAX).contains(&extents.len());
    has_place
        && extents.iter().all(|extent| extent.sectors > 0)
        && all.is_some_and(|all| all <= sectors)
}

//! The io_uring back end: one ring per hard queue, turned by the thread that opened it.
//!
//! Memory the kernel may touch is owned by the job in its tag's slot from before the entry is
//! queued until its completion is seen; that is what every `unsafe` here rests on. Entries are
//! never linked: order is the queue core's business.

mod alone;
mod close;
mod ended;
mod entry;
mod turns;
mod wait;
mod workers;

use std::collections::VecDeque;
use std::fs;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::ThreadId;

use io_uring::types::Fd;
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::io_uring::IoringEnterFlags;
use weir_bio::{Data, Nanos, Status};
use weir_queue::{Batch, Cancel, Done, DriverError, DriverQueue, Tag, Waiter, Wake};

use super::crew::Make;
use super::errors::{error, is};
use super::job::{Call, Job, Next};
use super::target::Target;
use super::vectors::Iovec;
use alone::Alone;
use close::Abandoned;
pub(super) use ended::RingQueue;
use turns::Turns;
use wait::RingWaiter;
use workers::{Wait, Workers};

/// When to offer entries again that the kernel had no memory for.
const RETRY_NS: u64 = 1_000_000;

/// With at most so many requests in flight the first of a burst is handed over at once, and each
/// further part as soon as it is longer than all before it: the device may be about to run dry, and
/// while it works on one part the next is prepared. A part costs a system call, and of a virtual
/// device a notification, which is the dearest of all.
const HUNGRY: usize = 24;

/// Above that, a long burst is handed over in parts of so many requests, each for one system call.
/// 4 KiB random reads at depth 32 on a virtio disk, against fio in the same rounds (geometric means
/// of 14 and 20 interleaved rounds, standard error 0.03 to 0.05): 0.93 in parts of 8 throughout,
/// 0.92 of 4, 0.98 of 2, 1.00 of 1, and 1.00 and 1.02 with these two rules.
const HANDOVER: usize = 8;

/// On the first and the third reap in a row that find nothing what may have told of completions is
/// silenced, and then on every so-many-th: it may have told of what had been found already. It may
/// tell once more right after the first; a lone request is mostly followed by the next before a
/// third.
const HUSH_EVERY: u8 = 64;

/// Marks the completion of a cancel: its own result says nothing.
const CANCEL: u64 = 1 << 32;

/// Marks that what is looked at beside the ring became readable.
const BESIDE: u64 = 1 << 33;

/// Why a ring for `depth` tags cannot be used here, if so: one is made as it will be used, because
/// a limit may let a small one pass.
pub(super) fn usable(depth: u16) -> Result<(), io::Error> {
    let (ring, _rung) = ring(u32::from(depth))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Readv::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
        opcode::Fadvise::CODE,
        opcode::AsyncCancel::CODE,
        opcode::Timeout::CODE,
    ];
    match needed.iter().find(|code| !probe.is_supported(**code)) {
        None => Ok(()),
        Some(code) => Err(io::Error::other(format!("io_uring lacks operation {code}"))),
    }
}

/// The state of one tag.
struct Slot {
    /// The tag as it was last given: the answer names it, with its generation.
    tag: Tag,
    job: Option<Job>,
    /// How long the kernel has its call.
    wait: Wait,
    /// The job's memory as the kernel was told; kept for its capacity in between.
    iovecs: Vec<Iovec>,
    /// An empty vector to lend the next job's memory into.
    spare: Vec<Data>,
}

/// A hard queue on a ring.
pub(super) struct UringQueue {
    target: Arc<Target>,
    /// The thread that opened it.
    home: ThreadId,
    ring: IoUring,
    /// Tells of completions that are not on the ring before the kernel is asked for them.
    rung: Option<OwnedFd>,
    /// Reaps in a row that found nothing, since the kernel could last put something there.
    quiet: u8,
    /// The ring as its waiter knows it: a waiter left over must not hold the ring open.
    waited: Option<Arc<OwnedFd>>,
    /// A second descriptor that wakes a thread waiting in the ring, and whether the kernel watches
    /// it.
    beside: Option<OwnedFd>,
    watched: bool,
    slots: Vec<Slot>,
    /// Requests that the ring has, or is to have.
    in_flight: usize,
    /// Requests queued since the kernel was last entered.
    queued: usize,
    /// Requests of this burst that it was handed before.
    handed: usize,
    /// Its flushes.
    turns: Turns,
    /// The calls it makes by itself, if it may.
    alone: Option<Alone>,
    /// The kernel's workers, and the threads that stand in for them.
    workers: Workers,
    /// Tags whose entry found no room in the submission queue.
    waiting: VecDeque<Tag>,
    /// Tags given up while they waited: the kernel has no entry of theirs, the next reap answers.
    withdrawn: Vec<Tag>,
    /// The kernel was short of something: when to try again.
    retry_at: Option<Nanos>,
    /// Why the ring cannot be turned any more.
    failure: Option<io::Error>,
    /// Completions taken off the ring; empty between calls.
    ended: Vec<cqueue::Entry>,
    /// Hangs up when the kernel has taken the ring down.
    taken_down: Option<PipeReader>,
}

impl UringQueue {
    /// Opens a ring for `depth` tags on this thread. `flushed` is a description of the file that
    /// no other queue flushes through, and nothing else is done through. `instead` says which
    /// threads make calls if the kernel's workers do not.
    pub(super) fn new(
        target: Arc<Target>,
        flushed: fs::File,
        depth: u16,
        instead: Make,
    ) -> Result<UringQueue, DriverError> {
        let failed = |what: &str, source| error(&target.path, what, Some(source));
        let (ring, rung) = ring(u32::from(depth)).map_err(|source| {
            failed(&format!("io_uring of {depth} entries cannot be set up"), source)
        })?;
        let (taken_down, held) =
            io::pipe().map_err(|source| failed("cannot make a pipe", source))?;
        // The last is for the ring's end alone. All are the ring's from now on.
        ring.submitter()
            .register_files(&[target.file.as_raw_fd(), flushed.as_raw_fd(), held.as_raw_fd()])
            .map_err(|source| failed("cannot be registered with its io_uring", source))?;
        Ok(UringQueue {
            home: std::thread::current().id(),
            ring,
            rung,
            quiet: 0,
            waited: None,
            beside: None,
            watched: false,
            slots: (0..depth).map(Slot::new).collect(),
            in_flight: 0,
            queued: 0,
            handed: 0,
            turns: Turns::default(),
            alone: None,
            workers: Workers::new(Some(flushed).filter(|_| !target.fuse), instead),
            waiting: VecDeque::with_capacity(usize::from(depth)),
            withdrawn: Vec::new(),
            retry_at: None,
            failure: None,
            ended: Vec::with_capacity(usize::from(depth)),
            taken_down: Some(taken_down),
            target,
        })
    }

    /// Queues the next call of a tag's job.
    fn call(&mut self, tag: Tag) {
        let slot = &mut self.slots[usize::from(tag.0)];
        let flushes = slot.job.as_ref().is_some_and(|job| job.call == Call::Flush);
        if flushes && !self.turns.begins(tag) {
            return;
        }
        if self.workers.crew.is_some() && self.divert(tag) {
            return;
        }
        let slot = &mut self.slots[usize::from(tag.0)];
        slot.wait = Wait::New;
        let Some(entry) = slot.entry(self.workers.flags()) else { return };
        let entry = entry.user_data(u64::from(tag.0));
        if !self.push(&entry) {
            self.waiting.push_back(tag);
        }
    }

    fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the entry's memory and iovecs are owned by its tag's slot, which lets go of them
        // only in `finish`, after the completion; `drop` has them outlast the ring.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Hands queued entries to the kernel and lets it deliver completions.
    fn enter(&mut self, now: Nanos) {
        (self.retry_at, self.queued) = (None, 0);
        if self.failure.is_some() {
            return;
        }
        if self.beside.is_some() && !self.watched {
            self.watch();
        }
        // The kernel brings some twenty at a time.
        let mut rounds = self.slots.len() / 16 + 2;
        loop {
            while let Some(tag) = self.waiting.pop_front() {
                if self.ring.submission().is_full() {
                    self.waiting.push_front(tag);
                    break;
                }
                self.call(tag);
            }
            let queue = self.ring.submission();
            if queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
                return;
            }
            let count = queue.len();
            drop(queue);
            match self.hand_over(count) {
                Ok(taken) if taken > 0 => {}
                Err(error) if is(&error, Errno::INTR) => {}
                Err(error) if !passes(&error) => {
                    self.failure = Some(error);
                    return;
                }
                Ok(_) if rounds > 0 && self.keeps_more() => rounds -= 1,
                Ok(_) | Err(_) => {
                    // Short of memory, or too many completions waiting to be reaped: later.
                    if !self.ring.submission().is_empty() {
                        self.retry_at = Some(now + RETRY_NS);
                    }
                    return;
                }
            }
        }
    }

    /// Hands so many entries to the kernel. Where that keeps completions until they are asked for,
    /// it is asked in the same call: this costs next to nothing, and may save the next.
    fn hand_over(&mut self, count: usize) -> io::Result<usize> {
        self.quiet = 0;
        if self.rung.is_none() {
            debug_assert_eq!(self.home, std::thread::current().id(), "{}", self.away());
            return self.ring.submit();
        }
        let events = IoringEnterFlags::GETEVENTS.bits();
        // SAFETY: these are the entries that were pushed, and there is no argument to point at.
        let taken = unsafe { self.ring.submitter().enter::<()>(count as u32, 0, events, None) };
        // Whose thread it is the kernel looks at anyway, and to ask who this is takes longer.
        let away = taken.as_ref().is_err_and(|error| is(error, Errno::EXIST));
        assert!(!away, "{}", self.away());
        taken
    }

    /// Why a ring that is only for one thread is of no use on this one.
    #[cold]
    fn away(&self) -> String {
        let path = self.target.path.display();
        format!("the io_uring of {path} is used by another thread than the one that opened it")
    }

    /// Whether the kernel has completions for which there is room on the ring.
    fn keeps_more(&mut self) -> bool {
        let queue = self.ring.submission();
        let keeps = queue.is_empty() && queue.taskrun();
        drop(queue);
        keeps && !self.ring.completion().is_full()
    }

    /// Takes completions off the ring and answers what has ended. True when some job goes on.
    fn finish(&mut self, done: &mut Done) -> bool {
        if !self.withdrawn.is_empty() {
            self.answer_withdrawn(done);
        }
        let mut again = self.answer_alone(done);
        let mut ended = std::mem::take(&mut self.ended);
        ended.extend(self.ring.completion());
        for completion in ended.drain(..) {
            let Ok(number) = u16::try_from(completion.user_data()) else {
                again |= self.hear(&completion);
                continue;
            };
            let slot = &mut self.slots[usize::from(number)];
            let tag = slot.tag;
            let Some(job) = &mut slot.job else { continue };
            let result = outcome(completion.result());
            if job.call == Call::Flush {
                again |= self.end_flush(result, done);
                continue;
            }
            if result.is_err() && workers::undone(job, result, self.workers.crew.is_some()) {
                self.pass_on(tag);
                continue;
            }
            match job.advance(result, &self.target) {
                Next::Call => {
                    again = true;
                    self.call(tag);
                }
                Next::Ended(status) => {
                    self.in_flight -= 1;
                    slot.answer(status, done);
                }
            }
        }
        self.ended = ended;
        again
    }

    /// Answers for what was given up before the kernel was told of it.
    #[cold]
    fn answer_withdrawn(&mut self, done: &mut Done) {
        for tag in self.withdrawn.drain(..) {
            self.in_flight -= 1;
            self.slots[usize::from(tag.0)].answer(Status::Timeout, done);
        }
    }

    /// Has the kernel tell, each time anew, when what stands beside becomes readable.
    #[cold]
    fn watch(&mut self) {
        let Some(beside) = &self.beside else { return };
        let events = rustix::event::PollFlags::IN.bits().into();
        let entry = opcode::PollAdd::new(Fd(beside.as_raw_fd()), events).multi(true).build();
        self.watched = self.push(&entry.user_data(BESIDE));
    }

    /// Silences what may have told of completions, and looks for those it has told of until then.
    fn hush(&mut self, now: Nanos) {
        if let Some(rung) = &self.rung {
            // That there is nothing to read is what is wanted.
            _ = rustix::io::read(rung, &mut [0_u8; 8]);
        }
        self.enter(now);
    }

    fn cancel_entry(&mut self, tag: Tag) -> bool {
        let user_data = u64::from(tag.0);
        let entry = opcode::AsyncCancel::new(user_data).build().user_data(CANCEL | user_data);
        self.push(&entry)
    }
}

/// Whether what io_uring_enter(2) answers may be otherwise in a moment: short of memory, or of room
/// for completions.
fn passes(error: &io::Error) -> bool {
    [Errno::AGAIN, Errno::BUSY, Errno::NOMEM].iter().any(|errno| is(error, *errno))
}

/// The bytes a completion reports, or its error.
fn outcome(result: i32) -> Result<u32, Errno> {
    u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

/// A ring whose completions wait until the thread that turns it asks for them (Linux 6.1), and what
/// tells of them: a poll(2) of the ring itself would not. Or one whose completions at least do not
/// interrupt that thread (Linux 5.19), or any.
fn ring(depth: u32) -> io::Result<(IoUring, Option<OwnedFd>)> {
    let entries = depth.max(2);
    // Room for a cancel and a question beside each request, for the timer, and for what stands
    // beside the ring.
    let completions = 3 * entries.next_power_of_two() + 2;
    let (mut deferring, mut cooperative) = (IoUring::builder(), IoUring::builder());
    deferring.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    if let Ok(ring) = deferring.setup_cqsize(completions).build(entries) {
        let rung = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(rung.as_raw_fd())?;
        return Ok((ring, Some(rung)));
    }
    cooperative.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
    let mut plain = IoUring::builder();
    let ring = cooperative
        .setup_cqsize(completions)
        .build(entries)
        .or_else(|_| plain.setup_cqsize(completions).build(entries))?;
    Ok((ring, None))
}

impl Slot {
    fn new(number: u16) -> Slot {
        let tag = Tag::first(number);
        Slot { tag, job: None, wait: Wait::New, iovecs: Vec::new(), spare: Vec::new() }
    }

    fn answer(&mut self, status: Status, done: &mut Done) {
        if let Some(job) = self.job.take() {
            self.spare = job.answer(self.tag, status, done);
        }
    }
}

impl DriverQueue for UringQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            // Only cancels can fill it: there is an entry for every tag.
            if self.ring.submission().is_full() {
                self.enter(now);
                if self.ring.submission().is_full() {
                    let coming = DriverQueue::in_flight(self) > 0;
                    let reason = if coming { Status::DevResource } else { Status::Resource };
                    return batch.refuse(reason);
                }
            }
            let slot = &mut self.slots[usize::from(tag.0)];
            let memory = std::mem::take(&mut slot.spare);
            (slot.tag, slot.job) = (tag, Some(Job::new(request, &self.target, memory)));
            batch.take();
            self.in_flight += 1;
            if self.stays_alone(tag) {
                self.waiting.push_back(tag);
                continue;
            }
            self.call(tag);
            self.queued += 1;
            let hungry = self.in_flight <= HUNGRY;
            let part = if hungry { HANDOVER.min(self.handed + 1) } else { HANDOVER };
            if self.queued >= part {
                self.handed += self.queued;
                self.enter(now);
            }
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.handed = 0;
        if self.alone.is_some() {
            self.call_alone();
        }
        if !self.workers.ticking {
            self.tick();
        }
        self.enter(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        if self.workers.in_flight() > 0 {
            self.take_back(done);
        }
        if !self.workers.ticking {
            self.tick();
        }
        self.enter(now);
        if self.rung.is_some() && self.beside.is_none() && self.ring.completion().is_empty() {
            let quiet = self.quiet;
            self.quiet = if quiet == 2 * HUSH_EVERY { HUSH_EVERY } else { quiet } + 1;
            if quiet == 2 || quiet.is_multiple_of(HUSH_EVERY) {
                self.hush(now);
            }
        }
        if self.finish(done) || self.beside.is_some() && !self.watched {
            self.enter(now);
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        let Some(job) = &mut self.slots[usize::from(tag.0)].job else {
            self.workers.cancel(tag);
            return Cancel::Pending;
        };
        job.give_up();
        let flushes = job.call == Call::Flush;
        if self.leave_flush(tag) {
            return Cancel::Pending;
        }
        if let Some(place) = self.waiting.iter().position(|waiting| *waiting == tag) {
            self.waiting.remove(place);
            self.withdrawn.push(tag);
            self.next_flush();
            return Cancel::Pending;
        }
        if flushes {
            self.tell_of_flush(tag);
        }
        // Best effort: disk I/O that has started mostly cannot be stopped. An entry that is not
        // handed over yet runs before the kernel reads its cancel.
        for _ in 0..2 {
            let queued = self.cancel_entry(tag);
            let count = self.ring.submission().len();
            _ = self.hand_over(count);
            if queued {
                break;
            }
        }
        Cancel::Pending
    }

    fn wake_at(&self) -> Option<Nanos> {
        let has_answer = self.alone.as_ref().is_some_and(Alone::has_answer);
        if self.withdrawn.is_empty() && !has_answer { self.retry_at } else { Some(Nanos(0)) }
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.rung.as_ref().map_or(self.ring.as_fd(), AsFd::as_fd))
    }

    fn waiter(&mut self, beside: BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        self.rung.as_ref()?;
        let waited = Arc::new(self.ring.as_fd().try_clone_to_owned().ok()?);
        self.beside = Some(beside.try_clone_to_owned().ok()?);
        self.ring.completion().disable_eventfd();
        self.watch();
        let ring = Arc::downgrade(&waited);
        self.waited = Some(waited);
        Some(Box::new(RingWaiter { ring }))
    }

    fn may_block(&mut self) -> bool {
        self.alone.get_or_insert_default();
        true
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.workers.lane = Some(lane);
    }

    fn in_flight(&self) -> usize {
        self.in_flight + self.workers.in_flight()
    }
}

impl UringQueue {
    /// Has the memory and the file outlast the ring, which is closed next. Makes no call that turns
    /// the ring: this may be another thread than its home.
    #[cold]
    fn abandon(&mut self, start: impl FnOnce(close::Keeper) -> io::Result<()>) {
        let Some(taken_down) = self.taken_down.take() else { return };
        let (slots, target) = (std::mem::take(&mut self.slots), Arc::clone(&self.target));
        let abandoned = Abandoned { slots, target, taken_down };
        let (count, bytes) = (self.in_flight, abandoned.bytes());
        let (kept, path) = (abandoned.keep(start), self.target.path.display());
        let closed = format!("file: {path}: closed with {count} requests in flight");
        self.target.tell(match kept {
            Ok(()) if count == 0 => None,
            Ok(()) => Some(format!("{closed}: it stays locked until they have ended")),
            Err(error) => Some(format!(
                "{closed} and no thread to wait for their end ({error}): {bytes} bytes of memory \
                 are leaked, and it stays locked until this process ends"
            )),
        });
    }
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        // These the kernel never heard of, or has done with.
        let withdrawn = std::mem::take(&mut self.withdrawn);
        let made = self.alone.take().and_then(Alone::tag);
        for tag in std::mem::take(&mut self.waiting).into_iter().chain(withdrawn).chain(made) {
            self.slots[usize::from(tag.0)].job = None;
            self.in_flight -= 1;
        }
        let at_home = self.home == std::thread::current().id();
        if !at_home {
            let path = self.target.path.display();
            self.target.tell([format!(
                "file: {path}: error: an io_uring was closed by another thread than the one that \
                 opened it"
            )]);
        } else if self.in_flight == 0 {
            // Lets go of the file now, not when the kernel gets round to taking down the ring.
            _ = self.ring.submitter().unregister_files();
            return;
        }
        self.abandon(close::in_thread);
    }
}

#[cfg(test)]
mod tests;

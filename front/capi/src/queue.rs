//! One thread's queue: a submitter of the disk with the caller's memory, completions in the order
//! in which they came, and a descriptor that tells of them.

use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir::{
    Bell, Bio, Clock, Completion, Data, Disk, EventWake, Flags, Nanos, Op, Refused, Segment,
    Status, Submitter,
};

use crate::call::{Failure, Outcome, text};
use crate::slots::{Ask, HeldMemory, Slots};

/// Bits of a request's flags: `WEIR_REQ_*` of the header.
pub(crate) const FUA: u32 = 1 << 0;
pub(crate) const NO_UNMAP: u32 = 1 << 1;
pub(crate) const NO_FALLBACK: u32 = 1 << 2;

/// A bit of a completion's flags: the memory is still with the device.
const MEMORY_HELD: u32 = 1 << 0;

/// Zeros that are written for a range at one time, bytes.
const ZEROS: u64 = 256 << 10;

const SECTOR: u64 = 512;

/// The most bytes of one read or write: what the memory of one I/O may have, in whole blocks of any
/// size.
pub(crate) const TRANSFER_MAX: u64 = 1 << 30;

/// The most bytes of a range of zeroes or a discard: sectors are counted in 32 bits.
pub(crate) const RANGE_MAX: u64 = 1 << 40;

/// The most segments of one I/O, as of `readv`.
pub(crate) const SEGMENTS_MAX: usize = 1024;

/// `struct weir_completion`.
#[repr(C)]
pub(crate) struct Ended {
    user_data: usize,
    error_msg: *const c_char,
    ret: c_int,
    flags: u32,
    reserved: [u64; 2],
}

/// `struct weirq`: the lock is never waited for. One that is taken is another thread's, which the
/// header forbids.
pub(crate) struct Queue(Mutex<Inner>);

pub(crate) struct Inner {
    // Dropped first: what it has under way goes on without it.
    submitter: Submitter,
    bell: Arc<Bell>,
    event: EventWake,
    disk: Disk,
    slots: Slots,
    /// Bios that the submitter has no place for yet.
    backlog: VecDeque<Bio>,
    ended: VecDeque<Told>,
    /// Completions on their way from the submitter.
    taken: Vec<Completion>,
    /// The memory of an I/O on its way in.
    pub(crate) segments: Vec<Segment>,
    /// What the completions point to that were handed over last.
    messages: Vec<CString>,
    /// I/Os that it may be owed.
    entries: usize,
    tells: bool,
    /// A cap, for whose end no bell rings, holds the backlog until then.
    capped: Option<Nanos>,
    held: HeldMemory,
}

/// An I/O that has ended.
struct Told {
    user_data: usize,
    failed: Option<Failure>,
    held: bool,
}

/// A queue is used by one thread after the other, by pointers that say nothing of it to the
/// compiler. Its table of segments is empty between two calls.
const _: fn() = || {
    fn may_go_to_another_thread<T: Send>() {}
    may_go_to_another_thread::<(Submitter, EventWake, Disk, Slots)>();
    may_go_to_another_thread::<(VecDeque<Bio>, VecDeque<Told>, Vec<Completion>, Vec<CString>)>();
};

impl Queue {
    pub(crate) fn open(
        disk: &Disk,
        index: usize,
        entries: usize,
        held: &HeldMemory,
    ) -> Outcome<Queue> {
        let refused = |error: std::io::Error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Failure::new(errno, format!("queue {index}: a descriptor for completions: {error}"))
        };
        let event = EventWake::new().map_err(refused)?;
        let bell = Bell::new(Box::new(event.clone()), 1);
        let submitter = disk.device().submitter(&bell, 0, index).map_err(weir::Error::from)?;
        Ok(Queue(Mutex::new(Inner {
            submitter,
            bell,
            event,
            disk: disk.clone(),
            slots: Slots::default(),
            backlog: VecDeque::new(),
            ended: VecDeque::new(),
            taken: Vec::new(),
            segments: Vec::new(),
            messages: Vec::new(),
            entries,
            tells: false,
            capped: None,
            held: held.clone(),
        })))
    }

    /// The queue, for one call.
    pub(crate) fn lock(&self) -> Outcome<MutexGuard<'_, Inner>> {
        match self.0.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::new(libc::EBUSY, "the queue is in a call of another thread"))
            }
            Err(TryLockError::Poisoned(_)) => {
                let what = "a panic of weir has left the queue half done; destroy the disk";
                Err(Failure::new(libc::ENOTRECOVERABLE, what))
            }
        }
    }
}

impl Inner {
    /// Accepts an I/O; how it ends is told by a completion. It is sent on by
    /// [`do_io`](Inner::do_io).
    ///
    /// # Errors
    /// A queue that is owed too many, and an I/O that no disk has.
    ///
    /// # Safety
    /// That of [`Slot::memory`](crate::slots::Slot::memory), for these segments.
    pub(crate) unsafe fn start(&mut self, ask: Ask, segments: &[Segment]) -> Outcome<()> {
        let owed = self.slots.used() + self.ended.len();
        if owed >= self.entries {
            let what = format!(
                "the queue is owed {owed} completions, num-entries={}: take some first",
                self.entries
            );
            return Err(Failure::new(libc::EAGAIN, what));
        }
        check_flags(&ask)?;
        let is_data = matches!(ask.op, Op::Read | Op::Write);
        let (name, most) = match ask.op {
            Op::WriteZeroes => ("max-write-zeroes-len", RANGE_MAX),
            _ if is_data => ("max-transfer", TRANSFER_MAX),
            _ => ("max-discard-len", RANGE_MAX),
        };
        if ask.len > most {
            return Err(Failure::invalid(format!("length={} is above {name}={most}", ask.len)));
        }
        if ask.op != Op::Flush {
            if let Err(error) = self.disk.check(ask.op, ask.offset, ask.len) {
                self.tell(Told {
                    user_data: ask.user_data,
                    failed: Some(error.into()),
                    held: false,
                });
                return Ok(());
            }
            if ask.len == 0 {
                // A bio of nothing would be a flush.
                self.tell(Told { user_data: ask.user_data, failed: None, held: false });
                return Ok(());
            }
        }
        let index = self.slots.take(ask);
        let (sector, sectors) = (ask.offset / SECTOR, (ask.len / SECTOR) as u32);
        let bio = match ask.op {
            Op::Flush => Bio::flush(),
            Op::Read | Op::Write => {
                // SAFETY: the caller's promise is that of `memory`.
                let data = unsafe { self.slots.at(index).memory(segments) };
                if ask.op == Op::Read {
                    Bio::read_into(sector, data)
                } else {
                    Bio::write_from(sector, data)
                }
            }
            op => Bio::new(op, sector, sectors, Data::None).with(Flags::SYNC),
        };
        let with =
            [(FUA, Flags::FUA), (NO_UNMAP, Flags::NOUNMAP), (NO_FALLBACK, Flags::NOFALLBACK)];
        let set = with.iter().filter(|(bit, _)| ask.flags & bit != 0);
        let bio = set.fold(bio, |bio, (_, flag)| bio.with(*flag)).cookie(index as u64);
        self.backlog.push_back(bio);
        // Into the plug, where neighbours merge.
        self.submit();
        Ok(())
    }

    /// Sends on what was started, and hands over up to `out.len()` that have ended: at least
    /// `least`, unless fewer are under way or the time is over.
    ///
    /// # Errors
    /// `ETIME`: the time is over, and none has ended of the `least`.
    pub(crate) fn do_io(
        &mut self,
        out: &mut [std::mem::MaybeUninit<Ended>],
        least: usize,
        time_ns: Option<u64>,
    ) -> Outcome<usize> {
        self.disarm();
        self.messages.clear();
        let until = time_ns.map(|ns| Clock.now() + ns);
        let is_over = || until.is_some_and(|until| Clock.now() >= until);
        let late = loop {
            self.look();
            if self.ended.len() >= least || self.slots.used() == 0 {
                break false;
            }
            if is_over() {
                break true;
            }
            self.rest(until);
        };
        let count = out.len().min(self.ended.len());
        for (place, told) in out.iter_mut().zip(self.ended.drain(..count)) {
            let ended = ended(told, &mut self.messages);
            place.write(ended);
        }
        self.arm();
        if late && count == 0 {
            let (ms, owed) = (time_ns.unwrap_or(0) / 1_000_000, self.slots.used());
            let what = format!("none of {owed} I/Os has ended within timeout={ms} ms");
            return Err(Failure::new(libc::ETIME, what));
        }
        Ok(count)
    }

    /// The descriptor that becomes readable.
    pub(crate) fn fd(&self) -> c_int {
        self.event.as_fd().as_raw_fd()
    }

    pub(crate) fn set_telling(&mut self, tells: bool) {
        self.disarm();
        self.tells = tells;
        self.arm();
    }

    /// Waits until all has ended, or until then, and forgets the completions. How many I/Os are
    /// left.
    pub(crate) fn drain(&mut self, until: Nanos) -> usize {
        loop {
            self.look();
            self.ended.clear();
            if self.slots.used() == 0 {
                return 0;
            }
            if Clock.now() >= until {
                self.slots.leave(&self.held);
                return self.slots.used();
            }
            self.rest(Some(until));
        }
    }

    fn tell(&mut self, told: Told) {
        self.ended.push_back(told);
        if self.tells {
            weir::Wake::wake(&self.event);
        }
    }

    /// Submits the backlog, as far as there is room.
    fn submit(&mut self) {
        self.capped = None;
        let now = Clock.now();
        while let Some(bio) = self.backlog.pop_front() {
            let Err(refused) = self.submitter.submit(bio, now) else { continue };
            if let Refused::Capped { until, .. } = &refused {
                self.capped = Some(*until);
            }
            self.backlog.push_front(refused.into_bio());
            return;
        }
    }

    /// Sends on what was started, and takes what has ended.
    pub(crate) fn look(&mut self) {
        loop {
            // Before anything is looked at: what comes afterwards sets it again.
            self.bell.ready().take(|_| ());
            self.submit();
            let now = Clock.now();
            self.submitter.flush_plug(now);
            let mut taken = std::mem::take(&mut self.taken);
            self.submitter.complete(now, |completion| taken.push(completion));
            let ended = taken.len();
            taken.drain(..).for_each(|completion| self.end(completion));
            self.taken = taken;
            if ended == 0 || self.backlog.is_empty() {
                return;
            }
        }
    }

    fn end(&mut self, completion: Completion) {
        let Completion { cookie, mut status, data, .. } = completion;
        let index = cookie as usize;
        let slot = self.slots.at(index);
        let ask = slot.ask;
        if status == Status::NotSupp && slot.zeroed.is_none() && falls_back(&ask) {
            (slot.zeroed, status) = (Some(0), Status::Ok);
        }
        if let Some(at) = slot.zeroed.filter(|at| status.is_ok() && *at < ask.len) {
            let len = ZEROS.min(ask.len - at);
            slot.zeroed = Some(at + len);
            let zeros = Data::Zero { len: len as u32, spare: None };
            let bio = Bio::write_from((ask.offset + at) / SECTOR, zeros).cookie(cookie);
            let fua = if ask.flags & FUA != 0 { Flags::FUA } else { Flags::NONE };
            self.backlog.push_back(bio.with(fua));
            return;
        }
        let held = self.slots.give_back(index, data, &self.held) && !status.is_ok();
        let failed = (!status.is_ok()).then(|| {
            let (sector, sectors) = (ask.offset / SECTOR, (ask.len / SECTOR) as u32);
            self.disk.error_of(ask.op, sector, sectors, status).into()
        });
        self.ended.push_back(Told { user_data: ask.user_data, failed, held });
    }

    /// Sleeps until there may be something new, or until then.
    fn rest(&self, until: Option<Nanos>) {
        let until = until.into_iter().chain(self.capped).min();
        let left = || until.map(|until| until.since(Clock.now()));
        let is_over = || self.bell.ready().any() || left() == Some(0);
        let sleep = || {
            let time = left().map(|ns| Timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            });
            // Ended early, as by a signal, it is entered again.
            let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], time.as_ref());
            self.event.clear();
        };
        self.bell.doorbell().wait_until(is_over, sleep);
    }

    /// Has the descriptor tell of what comes from now on, and of what is there.
    fn arm(&mut self) {
        if !self.tells {
            return;
        }
        self.bell.doorbell().prepare_sleep();
        let has_news = self.bell.ready().any() || self.submitter.has_completions();
        // No bell rings at the end of a cap.
        if has_news || !self.ended.is_empty() || self.capped.is_some() {
            weir::Wake::wake(&self.event);
        }
    }

    fn disarm(&mut self) {
        if self.tells {
            self.bell.doorbell().awake();
            self.event.clear();
        }
    }
}

fn check_flags(ask: &Ask) -> Outcome<()> {
    let (known, of) = match ask.op {
        Op::Write => (FUA, "a write"),
        Op::WriteZeroes => (FUA | NO_UNMAP | NO_FALLBACK, "a write of zeroes"),
        Op::Read => (0, "a read"),
        Op::Flush => (0, "a flush"),
        _ => (0, "a discard"),
    };
    if ask.flags & !known == 0 {
        return Ok(());
    }
    Err(Failure::invalid(format!("flags={:#x}: {of} has no others than {known:#x}", ask.flags)))
}

/// Whether zeros are written if the device has no command for them.
fn falls_back(ask: &Ask) -> bool {
    ask.op == Op::WriteZeroes && ask.flags & NO_FALLBACK == 0
}

fn ended(told: Told, messages: &mut Vec<CString>) -> Ended {
    let Told { user_data, failed, held } = told;
    let (ret, error_msg) = match failed {
        None => (0, ptr::null()),
        Some(failure) => {
            let message = text(&failure.what);
            // The bytes stay where they are when the vector grows.
            let start = message.as_ptr();
            messages.push(message);
            (-failure.errno, start)
        }
    };
    let flags = if held { MEMORY_HELD } else { 0 };
    Ended { user_data, error_msg, ret, flags, reserved: [0; 2] }
}

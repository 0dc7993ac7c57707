//! Requests that io_uring gave to a worker that did not come.
//!
//! A call that may sleep (fdatasync(2), fallocate(2), a write that needs blocks) is made by worker
//! threads that the kernel keeps for the thread that turns the ring. Two failures were seen with
//! Linux 6.18 ([docs/reliability.md](../../../../../docs/reliability.md)):
//!
//! - no worker can be started, for a limit of processes (RLIMIT_NPROC, pids.max). After some 50 ms
//!   the requests end ECANCELED, though they were not cancelled;
//! - the kernel counts on workers that do not exist. The requests are kept and never answered.
//!
//! So a timer in the ring has the queue look once a second while requests are in flight
//! ([`Wait`]). A request that the kernel has had since the look before is asked to be cancelled:
//!
//! | answer to that | what it means | what follows |
//! |---|---|---|
//! | 0 | no worker had begun it | it ends ECANCELED |
//! | EALREADY | a worker is at it | it will be answered, and is not asked for again |
//! | ENOENT | the device has it, or its completion is due | it is asked for at the next look |
//!
//! A request that ends ECANCELED, and that the core has not given up, was never begun ([`undone`]):
//! its call is made by threads of the queue's own ([`Crew`]). From then on these make all calls
//! that io_uring gives to workers: flushes and fallocate(2) at once, and reads and writes, which
//! are handed to the ring with RWF_NOWAIT, when they come back because they would have to wait.
//! A write that was begun without a worker, as far as that went, is made anew from its beginning,
//! with the same bytes. io_uring is not gone back to before the queue is opened again.
//!
//! One flush is under way on the queue's description at a time (`turns.rs`): as long as one runs in
//! the ring, later ones gather, and go to the threads when it has ended.

use std::fs;
use std::sync::Arc;

use io_uring::types::Timespec;
use io_uring::{cqueue, opcode};
use rustix::io::{Errno, ReadWriteFlags};
use weir_queue::{Done, Tag, Wake};

use super::super::crew::{Crew, Make, Outlet};
use super::super::flushes::Flushes;
use super::super::job::{Call, Job};
use super::super::target::Target;
use super::{BESIDE, UringQueue, outcome};

/// Marks that the timer is over.
const TICK: u64 = 1 << 34;

/// Marks the answer to the question whether a request can be cancelled.
const ASKED: u64 = 1 << 35;

/// The time from one look to the next: a request is asked for when it is 1 to 2 s old. Shorter than
/// any sensible `io_timeout` (30 s), longer than most waits for a disk at work: to ask costs
/// little, but a worker that is only late is then done without.
static TICK_SPAN: Timespec = Timespec::new().sec(1);

/// How long the kernel has had the call of a tag, in looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wait {
    /// It was handed over since the last look.
    #[default]
    New,
    /// It was there at the last look.
    Old,
    /// A worker is at it.
    Running,
}

impl Wait {
    /// One more look; whether the kernel is to be asked for the call.
    fn look(&mut self) -> bool {
        match self {
            Wait::New => {
                *self = Wait::Old;
                false
            }
            Wait::Old => true,
            Wait::Running => false,
        }
    }

    /// The kernel's answer. Only of a running call it says anything that lasts: the device may hand
    /// a request back to io_uring, which then gives it to a worker.
    fn hear(&mut self, answer: Result<u32, Errno>) {
        if answer == Err(Errno::ALREADY) {
            *self = Wait::Running;
        }
    }
}

/// Whether the result says that this call was not made, for want of a worker or of the leave to
/// wait for one. A request that was given up is not made any more.
pub(super) fn undone(job: &Job, result: Result<u32, Errno>, crewed: bool) -> bool {
    let transfers = matches!(job.call, Call::Read | Call::Write | Call::WriteDurably);
    match result {
        Err(Errno::CANCELED) => !job.is_given_up(),
        // Would have to wait; cannot say whether it would.
        Err(Errno::AGAIN | Errno::OPNOTSUPP) => crewed && transfers && !job.is_given_up(),
        _ => false,
    }
}

/// The look at what the kernel has, and the threads that make its workers' calls once those have
/// failed.
pub(super) struct Workers {
    make: Make,
    /// The description to flush through, until the threads have it. None of a FUSE file, on which
    /// all flush through one: to close it would take an answer of the server.
    flushed: Option<fs::File>,
    /// The lane to turn when the threads have answered.
    pub(super) lane: Option<Arc<dyn Wake>>,
    /// The timer runs.
    pub(super) ticking: bool,
    /// There when the workers have failed.
    pub(super) crew: Option<Crew>,
}

impl Workers {
    pub(super) fn new(flushed: Option<fs::File>, make: Make) -> Workers {
        Workers { make, flushed, lane: None, ticking: false, crew: None }
    }

    /// The flags of transfers: those that would have to wait for a worker come back if there is
    /// none.
    #[inline]
    pub(super) fn flags(&self) -> ReadWriteFlags {
        match self.crew {
            None => ReadWriteFlags::empty(),
            Some(_) => ReadWriteFlags::NOWAIT,
        }
    }

    /// The description to flush through, unless the threads have it.
    #[inline]
    pub(super) fn flushed(&self) -> Option<&fs::File> {
        self.flushed.as_ref()
    }

    /// Jobs in the hands of the threads.
    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        self.crew.as_ref().map_or(0, Crew::in_flight)
    }

    /// A request that the ring does not have is given up.
    #[cold]
    pub(super) fn cancel(&mut self, tag: Tag) {
        if let Some(crew) = &mut self.crew {
            crew.cancel(tag);
        }
    }

    /// The workers have failed: the threads in their place.
    #[cold]
    fn crew(&mut self, target: &Arc<Target>) -> &mut Crew {
        let Workers { make, flushed, lane, .. } = self;
        self.crew.get_or_insert_with(|| {
            target.tell([format!(
                "file: {}: io_uring's workers did not make the calls of hard queue {} that may \
                 sleep; {} threads at most make them until the disk is opened again",
                target.path.display(),
                make.index,
                make.threads,
            )]);
            let flushes = match flushed.take() {
                Some(flushed) => Arc::new(Flushes::through(flushed)),
                None => Arc::clone(&target.flushes),
            };
            let outlet = Outlet::Lane(lane.take());
            Crew::new(Arc::clone(target), flushes, outlet, *make)
        })
    }
}

impl UringQueue {
    /// Starts the timer, for as long as something is in flight.
    #[cold]
    pub(super) fn tick(&mut self) {
        if self.in_flight + self.workers.in_flight() > 0 {
            let entry = opcode::Timeout::new(&raw const TICK_SPAN).build().user_data(TICK);
            self.workers.ticking = self.push(&entry);
        }
    }

    /// A completion that is none of a request; whether there is more to hand to the kernel.
    #[cold]
    pub(super) fn hear(&mut self, completion: &cqueue::Entry) -> bool {
        let user_data = completion.user_data();
        if user_data == BESIDE {
            self.watched = cqueue::more(completion.flags());
        } else if user_data == TICK {
            self.workers.ticking = false;
            self.look();
            return true;
        } else if user_data & ASKED != 0
            && let Some(slot) = self.slots.get_mut(usize::from(user_data as u16))
        {
            // The request is still that which was asked for: the kernel says what it knows of one
            // before it ends it, and the tag is not given anew before.
            slot.wait.hear(outcome(completion.result()));
        }
        false
    }

    /// Asks for what has been with the kernel for too long.
    fn look(&mut self) {
        if let Some(crew) = &mut self.workers.crew {
            crew.try_again();
        }
        let speaks = self.turns.served.first().copied();
        for number in 0..self.slots.len() {
            let slot = &mut self.slots[number];
            let Some(job) = &slot.job else { continue };
            // Of flushes that share a call one has the entry.
            let has_entry = job.call != Call::Flush || speaks == Some(slot.tag);
            if has_entry && slot.wait.look() {
                let tag = u64::from(slot.tag.0);
                let ask = opcode::AsyncCancel::new(tag).build().user_data(ASKED | tag);
                if !self.push(&ask) {
                    break;
                }
            }
        }
        self.tick();
    }

    /// The workers have failed: whether the call of this tag's job is made by threads, to which it
    /// goes then.
    #[cold]
    pub(super) fn divert(&mut self, tag: Tag) -> bool {
        let Some(job) = &self.slots[usize::from(tag.0)].job else { return false };
        match job.call {
            Call::Read | Call::Write | Call::WriteDurably | Call::Nothing(_) => return false,
            Call::PunchHole | Call::ZeroRange | Call::WillNeed => self.pass_on(tag),
            Call::Flush => {
                let mut served = std::mem::take(&mut self.turns.served);
                served.drain(..).for_each(|tag| self.pass_on(tag));
                self.turns.served = served;
            }
        }
        true
    }

    /// A flush is given up that the ring has: what is known of it.
    #[cold]
    pub(super) fn tell_of_flush(&self, tag: Tag) {
        let known = match self.slots[usize::from(tag.0)].wait {
            Wait::Running => "a worker of io_uring is at it",
            Wait::New | Wait::Old => "io_uring names no worker that is at it",
        };
        self.target.tell([format!(
            "file: {}: a flush of hard queue {} is given up: {known}",
            self.target.path.display(),
            self.workers.make.index
        )]);
    }

    /// A job goes from the ring to the threads.
    #[cold]
    pub(super) fn pass_on(&mut self, tag: Tag) {
        let slot = &mut self.slots[usize::from(tag.0)];
        let Some(job) = slot.job.take() else { return };
        self.in_flight -= 1;
        let crew = self.workers.crew(&self.target);
        crew.take_over([(slot.tag, job)].into_iter());
        crew.staff();
    }

    /// Answers what the threads have ended.
    #[cold]
    pub(super) fn take_back(&mut self, done: &mut Done) {
        let (slots, Some(crew)) = (&mut self.slots, &mut self.workers.crew) else { return };
        crew.hand_back(|tag, status, job| {
            slots[usize::from(tag.0)].spare = job.answer(tag, status, done);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_asked_for_at_the_second_look_and_again_until_a_worker_is_at_it() {
        let mut wait = Wait::default();
        assert!(!wait.look(), "it came a moment ago");
        assert!(wait.look());
        // The device may yet hand it back to io_uring.
        wait.hear(Err(Errno::NOENT));
        assert!(wait.look());
        wait.hear(Ok(0));
        assert!(wait.look());
        wait.hear(Err(Errno::ALREADY));
        assert!(!wait.look() && !wait.look(), "the worker is disturbed");
    }

    #[test]
    fn only_a_call_that_the_kernel_did_not_make_goes_to_threads() {
        let all = [
            Call::Read,
            Call::Write,
            Call::WriteDurably,
            Call::Flush,
            Call::PunchHole,
            Call::ZeroRange,
            Call::WillNeed,
        ];
        for call in all {
            let waits = matches!(call, Call::Read | Call::Write | Call::WriteDurably);
            for crewed in [false, true] {
                for (result, expected) in [
                    (Ok(0), false),
                    (Err(Errno::IO), false),
                    (Err(Errno::INTR), false),
                    (Err(Errno::CANCELED), true),
                    (Err(Errno::AGAIN), waits && crewed),
                    (Err(Errno::OPNOTSUPP), waits && crewed),
                ] {
                    let mut job = Job::of(call, Vec::new());
                    let what = format!("{call:?} {result:?} {crewed}");
                    assert_eq!(undone(&job, result, crewed), expected, "{what}");
                    job.give_up();
                    assert!(!undone(&job, result, crewed), "given up: {what}");
                }
            }
        }
    }
}

//! One opener of a disk: the intake that feeds a submitter on a reactor, and how the kernel is
//! answered.
//!
//! Each call has memory of its own from the kernel's copy to its end, as much as the budget of all
//! has for it (`budget.rs`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::Errno;
use weir_bio::{Bio, GroupId, IoPrio, Status};
use weir_control::Seen;
use weir_live::{Answer, Door, Handle, Host, Job, PollRule};
use weir_queue::{ClientTimes, Completion, Device, Error, Kept, Tally};

use crate::budget::{Need, Share};
use crate::polling::Voter;
use crate::wire::Pending;

/// How a call ended.
pub(crate) enum Outcome<'a> {
    /// These bytes were read.
    Read(&'a [u8]),
    /// So many bytes were written.
    Written(u32),
    /// What was answered before is durable.
    Flushed,
    Failed(Errno),
}

/// The way to answer a call, once; dropped, it says EIO.
pub(crate) enum Caller {
    /// Through the library, whose thread took the call.
    Library(Box<dyn FnOnce(Outcome<'_>) + Send>),
    /// A reactor took it.
    Kernel(Pending),
}

impl Caller {
    pub(crate) fn library(answer: impl FnOnce(Outcome<'_>) + Send + 'static) -> Caller {
        Caller::Library(Box::new(answer))
    }

    pub(crate) fn end(self, outcome: Outcome<'_>) {
        match (self, outcome) {
            (Caller::Library(answer), outcome) => answer(outcome),
            (Caller::Kernel(pending), Outcome::Read(bytes)) => pending.done(bytes),
            (Caller::Kernel(pending), Outcome::Written(len)) => pending.written(len),
            (Caller::Kernel(pending), Outcome::Flushed) => pending.done(&[]),
            (Caller::Kernel(pending), Outcome::Failed(errno)) => pending.failed(errno),
        }
    }

    pub(crate) fn fail(self, errno: Errno) {
        self.end(Outcome::Failed(errno));
    }
}

/// The reply to an I/O: the call to answer, the bytes it counts, and the memory that it holds.
pub(crate) struct Reply {
    pub(crate) caller: Caller,
    pub(crate) kind: Kind,
    /// `None` for one without data.
    pub(crate) share: Option<Share>,
}

/// A write for which there is no memory now.
pub(crate) struct Short {
    /// The call, unanswered.
    pub(crate) caller: Caller,
    /// What it has to wait for.
    pub(crate) need: Need,
}

/// The I/O that a reply is to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A read: so many bytes behind so many that were read because blocks are whole.
    Read {
        skip: usize,
        len: usize,
    },
    /// A write of so many bytes.
    Write {
        len: u32,
    },
    Flush,
}

impl Answer for Reply {
    fn end(self, completion: Completion) {
        let Reply { caller, kind, share: _share } = self;
        // Dropped before the share is given back.
        let Completion { status, data, .. } = completion;
        if !status.is_ok() {
            return caller.fail(errno(status));
        }
        match kind {
            Kind::Read { skip, len } => match data.bufs() {
                Some([buf]) => caller.end(Outcome::Read(&buf[skip..skip + len])),
                // Zeros without memory of their own, or pieces.
                _ => {
                    let mut bytes = vec![0; data.len()];
                    data.copy_to(&mut bytes);
                    caller.end(Outcome::Read(&bytes[skip..skip + len]));
                }
            },
            Kind::Write { len } => caller.end(Outcome::Written(len)),
            Kind::Flush => caller.end(Outcome::Flushed),
        }
    }
}

fn errno(status: Status) -> Errno {
    Errno::from_i32(status.errno())
}

/// No bound on the calls that wait to be accepted but the kernel's own on those under way: a
/// thread that takes calls must not wait, as it answers for every other file.
const BACKLOG: usize = usize::MAX;

/// The way to a disk. Dropping it gives the submitter back.
pub(crate) struct Opener {
    door: Door<Reply>,
    reactor: usize,
    /// Its say on the reactor that takes the calls, if that is another one.
    voter: Mutex<Option<Handle<Voter>>>,
    /// The priority of the process that used it last.
    pub(crate) priority: Seen,
}

impl Opener {
    /// A submitter into `device` on reactor `reactor` modulo their number.
    ///
    /// # Errors
    /// Too many submitters, in the device or on the reactor, or a device that is going away.
    pub(crate) fn open(host: &Host, reactor: usize, device: &Device) -> Result<Opener, Error> {
        let (door, voter) = (Door::open(host, reactor, device, BACKLOG)?, Mutex::default());
        let reactor = reactor % host.reactors();
        Ok(Opener { door, reactor, voter, priority: Seen::default() })
    }

    /// The figures of its submitter.
    pub(crate) fn tally(&self) -> &Tally {
        self.door.tally()
    }

    /// The times of its I/O.
    pub(crate) fn times(&self) -> ClientTimes {
        self.door.times()
    }

    /// Gives its I/O from now on the class of its client.
    pub(crate) fn reclassify(&self, group: GroupId, ioprio: IoPrio, background: bool) {
        self.door.reclassify(group, ioprio, background);
    }

    /// Asks for these rules of polling from now on, also where the calls are taken if a reactor
    /// does that. No reactor may call this.
    pub(crate) fn vote(&self, host: &Host, calls: Option<usize>, rules: Vec<PollRule>) {
        self.door.vote(rules.clone());
        let apart = calls.filter(|calls| *calls != self.reactor);
        let voter = apart.and_then(|reactor| Voter::install(host, reactor, rules));
        let before = std::mem::replace(&mut *self.voter(), voter);
        before.iter().for_each(Handle::remove);
    }

    fn voter(&self) -> MutexGuard<'_, Option<Handle<Voter>>> {
        self.voter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an I/O of a process of this priority in. The kernel is told when it has ended.
    pub(crate) fn enter(&self, bio: Bio, kept: Kept, priority: IoPrio, reply: Reply) {
        if self.priority.get() != priority {
            self.priority.set(priority);
        }
        let job = Job::new(Bio { ioprio: priority, ..bio }, reply).keeping(kept);
        // Without a bound there always is a place.
        self.door.enter(job, || true);
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.door.remove();
        self.voter().iter().for_each(Handle::remove);
    }
}

//! One opener of a disk: the intake that feeds a submitter on a reactor, and how the kernel is
//! answered.
//!
//! Each call has memory of its own from the kernel's copy to its end, so that any number of them
//! may be under way.

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use weir_bio::{Bio, GroupId, IoPrio, Status};
use weir_control::Seen;
use weir_live::{Answer, Door, Host, Job};
use weir_queue::{ClientTimes, Completion, Device, Error, Kept, Tally};

/// The reply to an I/O: the kernel's request to answer, and the bytes it counts.
pub(crate) enum Reply {
    /// A read: so many bytes behind so many that were read because blocks are whole.
    Read { reply: ReplyData, skip: usize, len: usize },
    /// A write of so many bytes.
    Write { reply: ReplyWrite, len: u32 },
    /// A flush.
    Flush(ReplyEmpty),
}

impl Answer for Reply {
    fn end(self, completion: Completion) {
        let Completion { status, data, .. } = completion;
        match self {
            Reply::Read { reply, .. } if !status.is_ok() => reply.error(errno(status)),
            Reply::Write { reply, .. } if !status.is_ok() => reply.error(errno(status)),
            Reply::Flush(reply) if !status.is_ok() => reply.error(errno(status)),
            Reply::Read { reply, skip, len } => match data.bufs() {
                Some([buf]) => reply.data(&buf[skip..skip + len]),
                // Zeros without memory of their own, or pieces.
                _ => {
                    let mut bytes = vec![0; data.len()];
                    data.copy_to(&mut bytes);
                    reply.data(&bytes[skip..skip + len]);
                }
            },
            Reply::Write { reply, len } => reply.written(len),
            Reply::Flush(reply) => reply.ok(),
        }
    }
}

fn errno(status: Status) -> Errno {
    Errno::from_i32(status.errno())
}

/// No bound on the calls that wait to be accepted but the kernel's own on those under way: its
/// thread must not wait, as it answers for every other file.
const BACKLOG: usize = usize::MAX;

/// The way to a disk. Dropping it gives the submitter back.
pub(crate) struct Opener {
    door: Door<Reply>,
    /// The priority of the process that used it last.
    pub(crate) priority: Seen,
}

impl Opener {
    /// A submitter into `device` on reactor `reactor` modulo their number.
    ///
    /// # Errors
    /// Too many submitters, in the device or on the reactor, or a device that is going away.
    pub(crate) fn open(host: &Host, reactor: usize, device: &Device) -> Result<Opener, Error> {
        let door = Door::open(host, reactor, device, BACKLOG)?;
        Ok(Opener { door, priority: Seen::default() })
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

    /// Sends an I/O of a process of this priority in. The kernel is told when it has ended.
    pub(crate) fn enter(&self, bio: Bio, kept: Kept, priority: IoPrio, reply: Reply) {
        if self.priority.get() != priority {
            self.priority.set(priority);
        }
        let job = Job::new(Bio { ioprio: priority, ..bio }, reply).keeping(kept);
        // The thread that takes the kernel's calls is no reactor.
        self.door.enter(job, || false);
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.door.remove();
    }
}

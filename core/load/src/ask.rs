//! The requests of a workload, and how it is told their ends.

use weir_bio::{Flags, IoPrio, Nanos, Op};

/// Data blocks that one transaction of the database workload changes.
pub const CHANGES: usize = 8;

/// One I/O to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Its op.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// Sectors.
    pub sectors: u32,
    /// How.
    pub flags: Flags,
    /// Priority.
    pub ioprio: IoPrio,
    /// Which of the workload's disks.
    pub disk: u8,
    /// Which of the workload's contexts issues it.
    pub context: u16,
    /// Which group of figures it belongs to.
    pub group: u8,
    /// The workload's own word, handed back with the end.
    pub token: u16,
}

/// The next request of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// This I/O, now.
    Io(Io),
    /// Makes the writes to `disk` durable.
    Flush {
        /// Which of the workload's disks.
        disk: u8,
        /// Which of its contexts asks.
        context: u16,
        /// The workload's own word, handed back with the end.
        token: u16,
    },
    /// Nothing before this time.
    Wait(Nanos),
    /// Nothing until something ends.
    Blocked,
    /// Nothing any more.
    Done,
}

/// Something that happened above single I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A statement was executed.
    Execution {
        /// How long it took.
        ns: u64,
    },
    /// A transaction is durable, and its session was told.
    Commit {
        /// Of which instance.
        instance: u16,
        /// Which one.
        id: u64,
        /// The data blocks it changed, for the audit after a crash.
        blocks: [u64; CHANGES],
        /// How long its session waited for that.
        ns: u64,
    },
}

/// A read that does not hold what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The byte of the target at which the bad block begins.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The expected content, and the content found.
    pub what: String,
}

/// A workload as a machine that is turned from outside: by threads that do the I/O, or by a
/// simulator. It owns no clock: every call brings `now`, which never goes back.
///
/// # Contract
/// Each [`Ask::Io`] and [`Ask::Flush`] is ended once, in any order, by [`ended`](Workload::ended)
/// with its token. After [`Ask::Blocked`] it is asked again when something has ended; after
/// [`Ask::Wait`] also when the time has come.
pub trait Workload {
    /// The next request.
    fn ask(&mut self, now: Nanos) -> Ask;

    /// The I/O or flush of this token has ended; `ok`: as it should.
    fn ended(&mut self, token: u16, ok: bool, now: Nanos);

    /// Writes what `io` is to carry into its memory. Called once, before it is made.
    fn fill(&mut self, io: &Io, bytes: &mut [u8]) {
        let _ = (io, bytes);
    }

    /// Whether [`fill`](Workload::fill) has anything to say.
    fn fills(&self) -> bool {
        false
    }

    /// Whether reads are to be shown to [`check`](Workload::check).
    fn checks(&self) -> bool {
        false
    }

    /// Looks at what a read brought, before it is told to have ended; how many blocks of it were
    /// known and are what they should be.
    ///
    /// # Errors
    /// The block that is wrong.
    fn check(&mut self, token: u16, bytes: &[u8]) -> Result<u64, Fault> {
        let _ = (token, bytes);
        Ok(0)
    }

    /// Hands over what has happened above single I/Os since it was last asked.
    fn events(&mut self, each: &mut dyn FnMut(Event)) {
        let _ = each;
    }

    /// Begins nothing new.
    fn stop(&mut self);
}

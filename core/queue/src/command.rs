//! Passthrough: commands that the core carries and does not understand, such as a TEST UNIT READY,
//! a persistent reservation, or a vendor's own. For the part of a program that knows the driver;
//! a bio cannot carry one, so no client reaches this.

use weir_bio::{Data, Flags, Op, Status};

/// Longest command block, bytes.
pub const CDB_MAX: usize = 32;

/// Longest sense data, bytes.
pub const SENSE_MAX: usize = 252;

/// A command for [`Submitter::submit_command`](crate::Submitter::submit_command): a command block,
/// and memory in one direction.
///
/// It is never split, merged, sorted or held at a fence, needs no scheduler's tag, and is sent
/// while the scheduler holds everything else back. A closed gate keeps it out, a quiesced device
/// keeps it waiting, and its time is the device's `io_timeout`.
#[derive(Debug)]
pub struct Command {
    cdb: [u8; CDB_MAX],
    cdb_len: u8,
    pub(crate) op: Op,
    pub(crate) data: Data,
    pub(crate) reserved: bool,
    pub(crate) first: bool,
    pub(crate) flags: Flags,
    pub(crate) cookie: u64,
}

impl Command {
    /// A command without memory.
    ///
    /// # Panics
    /// When the block is empty or longer than [`CDB_MAX`].
    #[must_use]
    pub fn new(cdb: &[u8]) -> Command {
        let len = cdb.len();
        assert!((1..=CDB_MAX).contains(&len), "a command block of {len} bytes, 1..={CDB_MAX}");
        let mut block = [0; CDB_MAX];
        block[..len].copy_from_slice(cdb);
        Command {
            cdb: block,
            cdb_len: len as u8,
            op: Op::DrvOut,
            data: Data::None,
            reserved: false,
            first: false,
            flags: Flags::NONE,
            cookie: 0,
        }
    }

    /// The same, which fills `data`.
    #[must_use]
    pub fn reading(self, data: Data) -> Command {
        Command { op: Op::DrvIn, data, ..self }
    }

    /// The same, which sends `data`.
    #[must_use]
    pub fn writing(self, data: Data) -> Command {
        Command { op: Op::DrvOut, data, ..self }
    }

    /// The same on one of the driver's reserved tags, and without a place of a
    /// [`Budget`](crate::Budget): it does not wait for other requests. For what an error handler
    /// sends. On a device without reserved tags it ends with [`Status::Inval`].
    #[must_use]
    pub fn reserved(self) -> Command {
        Command { reserved: true, ..self }
    }

    /// The same, in front of all that waits for the driver.
    #[must_use]
    pub fn first(self) -> Command {
        Command { first: true, ..self }
    }

    /// The same with flags for the driver, such as FAILFAST.
    #[must_use]
    pub fn with(self, flags: Flags) -> Command {
        Command { flags, ..self }
    }

    /// The same with the caller's own word.
    #[must_use]
    pub fn cookie(self, cookie: u64) -> Command {
        Command { cookie, ..self }
    }

    /// The command block.
    #[must_use]
    pub fn cdb(&self) -> &[u8] {
        &self.cdb[..usize::from(self.cdb_len)]
    }
}

/// The driver's own words about the end of a command, beside its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The driver's status, such as that of SCSI.
    pub driver_status: u32,
    /// Bytes of the memory that were not transferred.
    pub residue: u32,
    /// Sense data, if there are any: at most [`SENSE_MAX`] bytes.
    pub sense: Option<Box<[u8]>>,
}

/// How a command ended.
#[derive(Debug)]
pub struct CommandEnd {
    /// The command's cookie.
    pub cookie: u64,
    /// How it ended.
    pub status: Status,
    /// The driver's own words.
    pub detail: Detail,
    /// Its memory, unless the device still owns it (after a timeout).
    pub data: Data,
    /// From acceptance to the driver, ns.
    pub wait_ns: u64,
    /// From the driver to the end, ns.
    pub device_ns: u64,
}

/// A command that was not accepted.
#[derive(Debug)]
pub enum RefusedCommand {
    /// So many are under way that some have to end first.
    Full(Command),
    /// The device is frozen; its bell rings when it no longer is.
    Frozen(Command),
}

/// A command in its slot.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) command: Command,
    pub(crate) detail: Detail,
}

//! The border to a transport: what carries commands to a target, such as iSCSI or a simulated
//! target.
//!
//! A [`Transport`] is the control side, shared and slow. A [`Port`] is one hardware queue of the
//! initiator: a session of iSCSI. Commands have numbers of the initiator, *slots*; the mid-layer
//! gives them out, and no two commands of one adapter have the same at a time.

use std::os::fd::BorrowedFd;
use weir_bio::{Data, Nanos};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{Lun, ScsiStatus};
use weir_queue::DriverError;

/// What the adapter of a transport can carry: Linux' host template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Hardware queues, 1 or more.
    pub queues: u16,
    /// Commands of the block layer in flight on each of them, at most.
    pub can_queue: u16,
    /// Slots from `queues * can_queue` on that the mid-layer has for commands of its own, such as
    /// those of its error handler. No command of the block layer has one of these.
    pub own_slots: u16,
    /// The queue depth that a logical unit begins with, 1 or more.
    pub cmd_per_lun: u16,
    /// Pieces of memory of one command, at most.
    pub segments_max: u16,
    /// Sectors of one command, at most; 0: 1024.
    pub sectors_max: u32,
    /// Longest CDB, bytes.
    pub cdb_max: u8,
}

/// Which way the data of a command goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It has none.
    None,
    /// So many bytes from the target.
    In(u32),
    /// So many bytes to the target.
    Out(u32),
}

/// A command on its way to a logical unit. Its task attribute is SIMPLE.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The slot it takes until its end.
    pub slot: u16,
    /// The logical unit.
    pub lun: Lun,
    /// The CDB, [`Adapter::cdb_max`] bytes at most.
    pub cdb: &'a [u8],
    /// Its data, exactly as long as its memory.
    pub direction: Direction,
}

/// Why a port takes no command now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The port has no room: the target's command window is closed, or a buffer is full. It takes
    /// one after an end of its own, or after a reap that it asks for by its event or time.
    Busy,
    /// There is no connection, and there may be one again: see [`Port::outage_until`].
    Down,
    /// The connection was lost for longer than commands wait for it: they end with
    /// [`Delivery::FailFast`] until it is back.
    Lost,
    /// The target is gone for good, or is not the one it was.
    Gone,
}

/// Asks a target to end tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// The command in this slot.
    Abort {
        /// Its slot.
        slot: u16,
    },
    /// All commands of a logical unit, on every nexus.
    LunReset(Lun),
    /// All commands of the target, on every nexus.
    TargetReset,
    /// All commands of this port: the connection is ended and made anew. Linux' host reset, as far
    /// as iSCSI has one.
    SessionReset,
}

/// The answer to a [`Management`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagementAnswer {
    /// It is done: none of the commands does anything any more, and each of this port has been
    /// handed over before.
    Complete,
    /// The target does not have the command: it has ended, and its end was handed over before, or
    /// never arrived.
    NoTask,
    /// The target has no such logical unit.
    NoLun,
    /// The target does not support it.
    Unsupported,
    /// The target rejects it, or it failed.
    Failed,
    /// No answer came in time. The commands may still do anything.
    Late,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its slot, which is free from here on.
    pub slot: u16,
    /// How it fared on its way. With anything but [`Delivery::Delivered`] there is no status.
    ///
    /// Whatever is said here, the command can change no block any more: a port keeps a command
    /// that may, until the target has answered an abort, or has ended or reinstated the session,
    /// or until a bound of time that the transport states.
    pub delivery: Delivery,
    /// The target's status.
    pub status: ScsiStatus,
    /// Bytes from the start of its memory that moved.
    pub moved: u32,
    /// Bytes of sense data in [`Ends::sense`], which it has behind those of the ends before it.
    pub sense: u8,
    /// Pieces in [`Ends::memory`], behind those of the ends before it: all that the command came
    /// with, in order.
    pub memory: u16,
}

/// What a reap hands over. Its lists keep their capacity.
#[derive(Debug, Default)]
pub struct Ends {
    /// Commands that have ended.
    pub commands: Vec<Delivered>,
    /// Their sense data.
    pub sense: Vec<u8>,
    /// Their memory.
    pub memory: Vec<Data>,
    /// Answers to [`Port::manage`], by its token; the commands that they ended are in `commands`.
    pub managements: Vec<(u32, ManagementAnswer)>,
    /// Logical units of which the target said unasked that something happened to them, with the
    /// number of bytes of sense data in `event_sense`.
    pub events: Vec<(Lun, u8)>,
    /// The sense data of `events`.
    pub event_sense: Vec<u8>,
}

impl Ends {
    /// Empties all lists.
    pub fn clear(&mut self) {
        self.commands.clear();
        self.sense.clear();
        self.memory.clear();
        self.managements.clear();
        self.events.clear();
        self.event_sense.clear();
    }
}

/// A conversation with a target that knows no time: the mid-layer's inquiries about a logical unit.
pub trait Asker {
    /// The next command, if there is one: logical unit, CDB, and bytes of data that are wanted from
    /// the target or sent to it.
    fn next(&mut self) -> Option<(Lun, Vec<u8>, Asked)>;

    /// How it ended, with its data and its sense.
    fn answer(&mut self, delivery: Delivery, status: ScsiStatus, data: &[u8], sense: &[u8]);
}

/// The data of a command of an [`Asker`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// None.
    Nothing,
    /// At most so many bytes from the target.
    In(u32),
    /// These bytes to the target.
    Out(Vec<u8>),
}

/// The control side of a transport to one target: shared, slow, may block.
pub trait Transport: Send + Sync {
    /// What it can carry. The answer never changes.
    fn adapter(&self) -> Adapter;

    /// The target as messages call it, without a secret.
    fn name(&self) -> String;

    /// Sends the commands of `asker` one after the other until it has no more. May block.
    ///
    /// # Errors
    /// The target could not be reached, with the step that failed.
    fn ask(&self, asker: &mut dyn Asker) -> Result<(), DriverError>;

    /// Does what opening port `index` would have to wait for, such as a login. May block, may be
    /// called again, and the port may not be opened after all.
    ///
    /// # Errors
    /// The step that failed.
    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        let _ = index;
        Ok(())
    }

    /// The target that a user writes to have a logical unit as a disk; `None`: there is none to
    /// write.
    fn target_line(&self, lun: Lun) -> Option<String> {
        let _ = lun;
        None
    }

    /// The name of the target's node: the same by way of each of its ports. `None`: it has none.
    fn node_name(&self) -> Option<String> {
        None
    }

    /// What is amiss on the way to the target now, a sentence each: ports that are down. By any
    /// thread; it does not wait.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Opens port `index`, on the thread that will turn it.
    ///
    /// # Errors
    /// The step that failed.
    fn open(&self, index: u16) -> Result<Box<dyn Port>, DriverError>;
}

/// One hardware queue of an adapter, used by one thread at a time.
///
/// # Contract
/// A command that [`send`](Port::send) takes is handed over by [`reap`](Port::reap) exactly once,
/// with all its memory. Nothing ends inside `send` or `commit`. A port that is dropped ends its
/// connection; what it still has is dropped with it.
pub trait Port: Send {
    /// Takes a command with its memory, which it moves out of `memory`; or refuses, and takes
    /// neither.
    ///
    /// # Errors
    /// Why it takes none now.
    fn send(
        &mut self,
        command: &Command<'_>,
        memory: &mut Vec<Data>,
        now: Nanos,
    ) -> Result<(), Refusal>;

    /// The burst is over: all that was sent leaves.
    fn commit(&mut self, now: Nanos);

    /// Hands over what has ended.
    fn reap(&mut self, now: Nanos, ends: &mut Ends);

    /// Asks the target to end tasks. The answer comes in a reap with this token, at `deadline` with
    /// [`ManagementAnswer::Late`] if the target gave none.
    ///
    /// # Errors
    /// Why it cannot be asked now; a session reset always can.
    fn manage(
        &mut self,
        what: Management,
        token: u32,
        deadline: Nanos,
        now: Nanos,
    ) -> Result<(), Refusal>;

    /// Until when commands wait for a connection that was lost and may come back. The port ends
    /// those that may end when that moment has passed, with [`Delivery::FailFast`].
    fn outage_until(&self) -> Option<Nanos> {
        None
    }

    /// When to reap without being told.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// Becomes readable when there is something to reap.
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether lanes are turned when there is something to reap: by its event, or because its owner
    /// turns them, as a simulator does. Without that a lane that has commands is turned in every
    /// round. The answer never changes.
    fn announces(&self) -> bool {
        self.event_fd().is_some()
    }

    /// Sentences for the log since last asked, such as that a connection was lost and why.
    fn notices(&mut self, tell: &mut dyn FnMut(String)) {
        let _ = tell;
    }
}

//! A slot: what is remembered of one command while the transport has it.

use weir_bio::{Flags, Nanos, RqId};
use weir_proto_scsi::decide::Purpose;
use weir_queue::Tag;

use crate::transport::Direction;

/// Bytes of a CDB that is carried, at most.
pub(crate) const CDB_MAX: usize = 16;

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nowhere: the slot is free.
    Free,
    /// With the port.
    Sent,
    /// With the port, its time is up, and the target was asked to abort it.
    Aborting,
    /// With the port, its time is up, and no abort of it alone has helped.
    Overdue,
    /// Here, to be sent again.
    Kept,
}

/// A command as it is sent, each time it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    pub(crate) cdb: [u8; CDB_MAX],
    pub(crate) cdb_len: u8,
    pub(crate) direction: Direction,
    pub(crate) purpose: Purpose,
    /// Its memory is the request's; else what was made for it.
    pub(crate) lends: bool,
    /// It is a passthrough command: its end is told as it is.
    pub(crate) raw: bool,
}

impl Prepared {
    /// Bytes that are to move.
    pub(crate) fn bytes(&self) -> u32 {
        match self.direction {
            Direction::None => 0,
            Direction::In(bytes) | Direction::Out(bytes) => bytes,
        }
    }

    /// Its CDB.
    pub(crate) fn cdb(&self) -> &[u8] {
        &self.cdb[..usize::from(self.cdb_len)]
    }
}

/// How often a request was tried, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tries {
    pub(crate) retries: u8,
    pub(crate) created: Nanos,
    /// An abort of it was tried before: the next time it is overdue the error handler has it.
    pub(crate) aborted: bool,
}

impl Tries {
    pub(crate) fn first(now: Nanos) -> Tries {
        Tries { retries: 0, created: now, aborted: false }
    }
}

/// A command in its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) stage: Stage,
    pub(crate) tries: Tries,
    /// The lane it is of.
    pub(crate) seat: u16,
    pub(crate) tag: Tag,
    pub(crate) rq: RqId,
    pub(crate) flags: Flags,
    pub(crate) sent_at: Nanos,
    pub(crate) prepared: Prepared,
}

impl Slot {
    pub(crate) const FREE: Slot = Slot {
        stage: Stage::Free,
        tries: Tries { retries: 0, created: Nanos::ZERO, aborted: false },
        seat: u16::MAX,
        tag: Tag::first(0),
        rq: RqId(0),
        flags: Flags::NONE,
        sent_at: Nanos::ZERO,
        prepared: Prepared {
            cdb: [0; CDB_MAX],
            cdb_len: 0,
            direction: Direction::None,
            purpose: Purpose::Other,
            lends: false,
            raw: false,
        },
    };

    /// Whether the port has it.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.stage, Stage::Sent | Stage::Aborting | Stage::Overdue)
    }

    /// Whether its time was up.
    pub(crate) fn is_overdue(&self) -> bool {
        matches!(self.stage, Stage::Aborting | Stage::Overdue)
    }
}

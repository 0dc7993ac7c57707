//! Why a session is over, and why it takes no command.

use std::fmt;

use crate::wire::{Opcode, WireError};

/// A session that is over. With error recovery level 0 every error of the protocol ends it: close
/// the connection, and log in again with the same ISID to reinstate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The stream cannot be read, or a digest is wrong.
    Wire(WireError),
    /// The target breaks the protocol.
    Violation(Violation),
    /// The target rejects a PDU of ours.
    Rejected {
        /// Why. RFC 7143, section 11.17.1.
        reason: u8,
        /// The kind of the PDU.
        opcode: Opcode,
    },
    /// The target says nothing, not even to a ping.
    Silent,
    /// The target drops the connection or the session.
    Dropped {
        /// Seconds to wait before the next login.
        wait_s: u16,
        /// Seconds for which the target keeps the tasks.
        retain_s: u16,
    },
    /// The session was ended by a logout.
    LoggedOut,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire(why) => why.fmt(f),
            Self::Violation(why) => write!(f, "the target broke the protocol: {why}"),
            Self::Rejected { reason, opcode } => {
                write!(f, "the target rejected a {opcode}, reason {reason:#04x}")
            }
            Self::Silent => f.write_str("the target does not answer"),
            Self::Dropped { wait_s, retain_s } => {
                write!(f, "the target drops it: wait {wait_s} s, tasks are kept {retain_s} s")
            }
            Self::LoggedOut => f.write_str("logged out"),
        }
    }
}

impl std::error::Error for Over {}

impl From<WireError> for Over {
    fn from(why: WireError) -> Self {
        Self::Wire(why)
    }
}

impl From<Violation> for Over {
    fn from(why: Violation) -> Self {
        Self::Violation(why)
    }
}

/// How a target broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A PDU that has no place here.
    Unexpected(Opcode),
    /// A PDU whose header contradicts itself.
    Malformed(Opcode),
    /// A tag that no task had.
    UnknownTask {
        /// The kind of the PDU.
        opcode: Opcode,
        /// The tag.
        itt: u32,
    },
    /// Data for a task that reads nothing, or a request for data of one that writes nothing.
    Direction {
        /// The kind of the PDU.
        opcode: Opcode,
        /// The task.
        itt: u32,
    },
    /// StatSN is not the next.
    StatSn {
        /// The number received.
        found: u32,
        /// The one expected.
        expected: u32,
    },
    /// DataSN or R2TSN is not the next of its task.
    DataSn {
        /// The task.
        itt: u32,
        /// The number received.
        found: u32,
        /// The one expected.
        expected: u32,
    },
    /// Data, or a request for data, that does not begin where the last ended, or goes beyond the
    /// task's length.
    Range {
        /// The task.
        itt: u32,
        /// The first byte.
        offset: u32,
        /// Bytes.
        length: u32,
        /// Where it had to begin.
        expected: u32,
        /// The task's length.
        end: u32,
    },
    /// A request for more data than a burst may have, or for none.
    Burst {
        /// Bytes asked for.
        length: u32,
        /// MaxBurstLength.
        bound: u32,
    },
    /// More requests for data at once than MaxOutstandingR2T.
    R2ts {
        /// The task.
        itt: u32,
        /// MaxOutstandingR2T.
        bound: u16,
    },
    /// A success of a task whose data has not moved, as far as the residual tells.
    Short {
        /// The task.
        itt: u32,
        /// Bytes that moved.
        moved: u32,
        /// Bytes that had to.
        due: u32,
    },
    /// A residual of more bytes than the task has.
    Residual {
        /// The task.
        itt: u32,
        /// Bytes.
        residual: u32,
    },
    /// Sense data longer than its segment.
    Sense {
        /// The task.
        itt: u32,
    },
    /// More pings than are answered at a time.
    Pings,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected(opcode) => write!(f, "{opcode} in the full feature phase"),
            Self::Malformed(opcode) => write!(f, "a {opcode} that contradicts itself"),
            Self::UnknownTask { opcode, itt } => write!(f, "{opcode} for task {itt:#010x}"),
            Self::Direction { opcode, itt } => {
                write!(f, "{opcode} for task {itt:#010x}, which has no such data")
            }
            Self::StatSn { found, expected } => write!(f, "StatSN {found}, expected {expected}"),
            Self::DataSn { itt, found, expected } => {
                write!(f, "task {itt:#010x}: number {found} in sequence, expected {expected}")
            }
            Self::Range { itt, offset, length, expected, end } => write!(
                f,
                "task {itt:#010x}: {length} bytes at {offset}, expected at {expected} of {end}"
            ),
            Self::Burst { length, bound } => {
                write!(f, "R2T for {length} bytes is outside 1..={bound}")
            }
            Self::R2ts { itt, bound } => {
                write!(f, "task {itt:#010x}: more than {bound} R2T at a time")
            }
            Self::Short { itt, moved, due } => {
                write!(f, "task {itt:#010x} is called a success, {moved} of {due} bytes moved")
            }
            Self::Residual { itt, residual } => {
                write!(f, "task {itt:#010x}: a residual of {residual} bytes exceeds it")
            }
            Self::Sense { itt } => write!(f, "task {itt:#010x}: sense data exceeds its segment"),
            Self::Pings => f.write_str("more pings than can be answered"),
        }
    }
}

/// Why a session takes nothing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The target's command window is closed, until any PDU opens it.
    Window,
    /// Too many task management functions wait for their answers.
    Managements,
    /// The task is not in flight.
    NoTask,
    /// The session is being left, or over.
    Closed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => "the target's command window is closed",
            Self::Managements => "too many task management functions are under way",
            Self::NoTask => "the task is not in flight",
            Self::Closed => "the session is being left",
        })
    }
}

impl std::error::Error for Refused {}

//! What becomes of a command: by how it was delivered, its status and its sense.
//!
//! Pure rules: [tables] that are read from the top, and the first row that fits counts. They are
//! those of Linux' SCSI mid-layer and disk driver taken together, with two exceptions that weir's
//! laws ask for. MEDIUM ERROR is never a path error, whatever its code, because another path leads
//! to the same medium. And a deferred error that a flush meets fails the flush, because a write
//! that was answered before is lost.
//!
//! The order is: the command's delivery (Linux: host byte), its status, its sense. A retry counts
//! against the command's allowance; a requeue does not, and holds the logical unit back until
//! something in flight has ended.

mod notice;
pub mod tables;

pub use notice::Notice;

use weir_bio::{Flags, Status};

use crate::codes::ScsiStatus;
use crate::command::ScsiCommand;
use crate::sense::Sense;

/// Retries that a command on blocks is allowed.
pub const RETRIES_ALLOWED: u8 = 5;

/// How a command fared on its way: Linux' host byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The target answered; its status counts.
    Delivered,
    /// There is no connection to the target.
    NoConnect,
    /// The target is not there.
    BadTarget,
    /// The initiator aborted the command.
    Aborted,
    /// No answer in time.
    TimedOut,
    /// The way stayed busy.
    BusBusy,
    /// A check sum was wrong.
    Parity,
    /// Something went wrong inside the initiator.
    Error,
    /// Something went wrong that a retry may heal.
    SoftError,
    /// The connection was lost, and may come back.
    Disrupted,
    /// The initiator asks for a retry that does not count.
    RetryNow,
    /// The initiator asks for a requeue.
    Requeue,
    /// The connection was lost for longer than it is waited for.
    FailFast,
    /// The target was reset.
    Reset,
    /// Any other end.
    Other,
}

/// What a command is for, as far as rules differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// READ or WRITE.
    Transfer,
    /// UNMAP, or WRITE SAME with UNMAP.
    Unmap,
    /// WRITE SAME.
    WriteSame,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// TEST UNIT READY.
    TestUnitReady,
    /// INQUIRY.
    Inquiry,
    /// Any other command.
    Other,
}

impl Purpose {
    /// The purpose of a command.
    #[must_use]
    pub const fn of(command: &ScsiCommand) -> Self {
        match command {
            ScsiCommand::Read(_) | ScsiCommand::Write(_) => Self::Transfer,
            ScsiCommand::Unmap { .. } => Self::Unmap,
            ScsiCommand::WriteSame(same) if same.unmap => Self::Unmap,
            ScsiCommand::WriteSame(_) => Self::WriteSame,
            ScsiCommand::SynchronizeCache(_) => Self::Flush,
            ScsiCommand::TestUnitReady => Self::TestUnitReady,
            ScsiCommand::Inquiry { .. } => Self::Inquiry,
            _ => Self::Other,
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiEnd {
    /// How it fared on its way.
    pub delivery: Delivery,
    /// Its status.
    pub status: ScsiStatus,
    /// Its sense, if there is any that is whole enough to have a key.
    pub sense: Option<Sense>,
}

/// What is known of a logical unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitTraits {
    /// The error handler may start it.
    pub allow_restart: bool,
    /// Its hardware errors go away.
    pub retry_hardware_errors: bool,
    /// Its medium can be taken out.
    pub removable: bool,
    /// It has target port groups with states that are followed.
    pub alua: bool,
    /// It was reset from here, and the unit attention of that is to come. The mid-layer clears
    /// this at the first unit attention.
    pub expecting_attention: bool,
    /// It may be one that takes 6-byte reads and writes only.
    pub may_need_six: bool,
}

/// One attempt at a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What the command is for.
    pub purpose: Purpose,
    /// The request's flags, of which the fail-fast ones count.
    pub flags: Flags,
    /// Retries that were made.
    pub retries: u8,
    /// Retries that are allowed.
    pub retries_allowed: u8,
    /// The command is older than its time-out times one more than its retries: see
    /// [`Attempt::lifetime_ns`].
    pub out_of_time: bool,
    /// What is known of the logical unit.
    pub unit: UnitTraits,
}

impl Attempt {
    /// The age at which a command is failed whatever the tables say, nanoseconds.
    #[must_use]
    pub const fn lifetime_ns(timeout_ns: u64, retries_allowed: u8) -> u64 {
        timeout_ns.saturating_mul(retries_allowed as u64 + 1)
    }
}

/// What the error handler is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// Fetch the sense, with REQUEST SENSE.
    FetchSense,
    /// Start the logical unit, with START STOP UNIT.
    StartUnit,
    /// Abort the command, and escalate.
    Abort,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// It succeeded.
    Complete,
    /// Send it again at once; this is one retry.
    Retry,
    /// Send it again at once; this is no retry.
    RetryUncounted,
    /// Put it back at the head, and hold the logical unit back; this is no retry.
    Requeue,
    /// Send it again with 6 bytes, and all that follow.
    UseSix,
    /// Hand it to the error handler.
    Recover(Recovery),
    /// It failed.
    Fail(Status),
}

impl Disposition {
    /// Whether a command that is too old fails instead. An abort has to be made whatever the age:
    /// a command without an answer may still land.
    const fn can_be_given_up(self) -> bool {
        match self {
            Self::Complete | Self::Fail(_) | Self::Recover(Recovery::Abort) => false,
            Self::Retry
            | Self::RetryUncounted
            | Self::Requeue
            | Self::UseSix
            | Self::Recover(Recovery::FetchSense | Recovery::StartUnit) => true,
        }
    }
}

/// What is to be done, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What.
    pub disposition: Disposition,
    /// What else was learnt.
    pub notice: Option<Notice>,
    /// The row of the table, in words for a log line.
    pub reason: &'static str,
}

impl Decision {
    /// Whether the path is to blame: another path may succeed where this one failed.
    #[must_use]
    pub const fn is_path_error(&self) -> bool {
        matches!(self.disposition, Disposition::Fail(status) if status.is_path_error())
    }
}

/// What a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It succeeded.
    Complete,
    /// A retry, if there is one left and the request has none of these fail-fast flags; else what
    /// follows.
    Retry {
        /// Flags that stop it.
        unless: Flags,
        /// What follows then.
        finally: Finally,
    },
    /// A retry that does not count.
    RetryUncounted,
    /// A requeue.
    Requeue,
    /// With 6 bytes from now on.
    UseSix,
    /// To the error handler.
    Recover(Recovery),
    /// It failed.
    Fail(Status),
    /// The table of the status decides.
    ByStatus,
    /// The table of the sense decides.
    BySense,
}

/// What follows when no retry is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finally {
    /// It failed.
    Fail(Status),
    /// A requeue.
    Requeue,
    /// A retry that does not count.
    RetryUncounted,
}

/// Decides what becomes of a command.
#[must_use]
pub fn decide(end: &ScsiEnd, attempt: &Attempt) -> Decision {
    let (rule, reason) = tables::look_up(end, attempt);
    let mut disposition = match rule {
        Rule::Complete => Disposition::Complete,
        Rule::Retry { unless, finally } => {
            if attempt.retries < attempt.retries_allowed && !attempt.flags.any(unless) {
                Disposition::Retry
            } else {
                match finally {
                    Finally::Fail(status) => Disposition::Fail(status),
                    Finally::Requeue => Disposition::Requeue,
                    Finally::RetryUncounted => Disposition::RetryUncounted,
                }
            }
        }
        Rule::RetryUncounted => Disposition::RetryUncounted,
        Rule::Requeue => Disposition::Requeue,
        Rule::UseSix => Disposition::UseSix,
        Rule::Recover(recovery) => Disposition::Recover(recovery),
        Rule::Fail(status) => Disposition::Fail(status),
        // No row after the first table says so, and its rows are followed by `look_up`.
        Rule::ByStatus | Rule::BySense => unreachable!("a table leads on and ends"),
    };
    if attempt.out_of_time && disposition.can_be_given_up() {
        disposition = Disposition::Fail(match rule {
            Rule::Retry { finally: Finally::Fail(status), .. } => status,
            _ => Status::IoErr,
        });
    }
    Decision { disposition, notice: notice::of(end, attempt), reason }
}

//! What an answer tells beside the fate of its command.

use super::{Attempt, Delivery, Purpose, ScsiEnd};
use crate::codes::{AdditionalSense, ScsiStatus};
use crate::sense::{Sense, SenseKey};

/// Something the mid-layer has to do besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The queue depth of the target's logical units is too high.
    TaskSetFull,
    /// READ CAPACITY says something else now.
    CapacityChanged,
    /// A thin store is nearly full.
    ThinThreshold,
    /// REPORT LUNS says something else now.
    LunsChanged,
    /// MODE SENSE says something else now.
    ModeChanged,
    /// INQUIRY says something else now.
    InquiryChanged,
    /// REPORT TARGET PORT GROUPS says something else now.
    AccessStateChanged,
    /// The medium may be another one.
    MediumChanged,
    /// The logical unit was reset, or powered on.
    WasReset,
    /// A unit attention that none of these is.
    OtherAttention,
    /// The logical unit is not there any more.
    LunGone,
    /// The disk knows no UNMAP, or no WRITE SAME with UNMAP: not to be tried again.
    UnmapRefused,
    /// The disk knows no WRITE SAME: not to be tried again.
    WriteSameRefused,
    /// The disk is write-protected.
    WriteProtected,
    /// A command that was answered before has failed. If it was a write, no flush may succeed
    /// until the disk is opened anew.
    DeferredError,
}

/// What an answer tells.
pub(super) fn of(end: &ScsiEnd, attempt: &Attempt) -> Option<Notice> {
    if end.delivery != Delivery::Delivered {
        return None;
    }
    match end.status {
        ScsiStatus::TASK_SET_FULL => Some(Notice::TaskSetFull),
        ScsiStatus::CHECK_CONDITION => by_sense(&end.sense?, attempt.purpose),
        _ => None,
    }
}

fn by_sense(sense: &Sense, purpose: Purpose) -> Option<Notice> {
    use AdditionalSense as Asc;
    if sense.deferred {
        let failed = !matches!(sense.key, SenseKey::NoSense | SenseKey::RecoveredError);
        return failed.then_some(Notice::DeferredError);
    }
    match (sense.key, sense.code) {
        (SenseKey::UnitAttention, code) => Some(attention(code)),
        (SenseKey::NotReady, Asc::ASYMMETRIC_ACCESS_STATE_TRANSITION) => {
            Some(Notice::AccessStateChanged)
        }
        (SenseKey::IllegalRequest, Asc::LOGICAL_UNIT_NOT_SUPPORTED) => Some(Notice::LunGone),
        (SenseKey::IllegalRequest, code) if matches!(code.asc(), 0x20 | 0x24) => match purpose {
            Purpose::Unmap => Some(Notice::UnmapRefused),
            Purpose::WriteSame => Some(Notice::WriteSameRefused),
            _ => None,
        },
        // Its thin store being full has this code as well.
        (SenseKey::DataProtect, Asc::SPACE_ALLOCATION_FAILED_WRITE_PROTECT) => None,
        (SenseKey::DataProtect, code) if code.asc() == 0x27 => Some(Notice::WriteProtected),
        _ => None,
    }
}

fn attention(code: AdditionalSense) -> Notice {
    match code {
        AdditionalSense::CAPACITY_DATA_HAS_CHANGED => Notice::CapacityChanged,
        AdditionalSense::THIN_PROVISIONING_SOFT_THRESHOLD_REACHED => Notice::ThinThreshold,
        AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED => Notice::LunsChanged,
        AdditionalSense::MODE_PARAMETERS_CHANGED => Notice::ModeChanged,
        AdditionalSense::INQUIRY_DATA_HAS_CHANGED => Notice::InquiryChanged,
        AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED
        | AdditionalSense::IMPLICIT_STATE_TRANSITION_FAILED => Notice::AccessStateChanged,
        code if code.asc() == 0x28 => Notice::MediumChanged,
        code if code.asc() == 0x29 => Notice::WasReset,
        _ => Notice::OtherAttention,
    }
}

//! The tables: by delivery, by status, and two by sense. Each row has words of its own, which are
//! the reason in the log.

use weir_bio::Flags;
use weir_bio::Status::{
    self, IoErr, Medium, NoSpc, NotSupp, Protection, ResvConflict, Target, Timeout, Transport,
};

use super::{Attempt, Delivery, Finally, Purpose, Recovery, Rule, ScsiEnd};
use crate::codes::{AdditionalSense, ScsiStatus};
use crate::sense::{Sense, SenseKey};

/// What else has to hold for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// The command is TEST UNIT READY.
    AtTest,
    /// The command is TEST UNIT READY or INQUIRY.
    AtProbe,
    /// The command is SYNCHRONIZE CACHE.
    AtFlush,
    /// The command is UNMAP or WRITE SAME.
    AtUnmap,
    /// [`super::UnitTraits::alua`].
    Alua,
    /// [`super::UnitTraits::allow_restart`].
    AllowRestart,
    /// [`super::UnitTraits::retry_hardware_errors`].
    RetryHardware,
    /// [`super::UnitTraits::may_need_six`], and the command is READ or WRITE.
    MayNeedSix,
    /// [`super::UnitTraits::expecting_attention`].
    Expecting,
    /// [`super::UnitTraits::removable`].
    Removable,
}

impl Condition {
    fn holds(self, attempt: &Attempt) -> bool {
        let (unit, purpose) = (attempt.unit, attempt.purpose);
        match self {
            Self::Always => true,
            Self::AtTest => purpose == Purpose::TestUnitReady,
            Self::AtProbe => matches!(purpose, Purpose::TestUnitReady | Purpose::Inquiry),
            Self::AtFlush => purpose == Purpose::Flush,
            Self::AtUnmap => matches!(purpose, Purpose::Unmap | Purpose::WriteSame),
            Self::Alua => unit.alua,
            Self::AllowRestart => unit.allow_restart,
            Self::RetryHardware => unit.retry_hardware_errors,
            Self::MayNeedSix => unit.may_need_six && purpose == Purpose::Transfer,
            Self::Expecting => unit.expecting_attention,
            Self::Removable => unit.removable,
        }
    }
}

/// A row of a table by `K`.
#[derive(Clone, Copy, Debug)]
pub struct RuleRow<K: 'static> {
    /// The deliveries, statuses or sense keys it is for; empty is all.
    pub of: &'static [K],
    /// The additional sense codes it is for; of the tables by sense only.
    pub codes: Codes,
    /// What else has to hold.
    pub condition: Condition,
    /// What follows.
    pub rule: Rule,
    /// Why, in words.
    pub reason: &'static str,
}

/// The keys of a group, which is `[]` for all.
macro_rules! keys {
    ($by:ident [$($key:ident),*]) => { &[$($by::$key),*] };
}

/// Declares a table: groups of keys, and in each group rows of codes and condition, rule, reason.
macro_rules! rules {
    ($(#[$doc:meta])* $name:ident by $by:ident {
        $($keys:tt {
            $($codes:ident if $condition:ident => $rule:expr, $reason:literal;)+
        })+
    }) => {
        $(#[$doc])*
        pub const $name: &[RuleRow<$by>] = &[
            $($(RuleRow {
                of: keys!($by $keys),
                codes: $codes,
                condition: Condition::$condition,
                rule: $rule,
                reason: $reason,
            },)+)+
        ];
    };
}

const REQUEUE: Rule = Rule::Requeue;
const AGAIN: Rule = Rule::RetryUncounted;
const ABORT: Rule = Rule::Recover(Recovery::Abort);
const START: Rule = Rule::Recover(Recovery::StartUnit);

/// It failed with this status.
const fn fail(status: Status) -> Rule {
    Rule::Fail(status)
}

/// A retry that none of the fail-fast flags stops.
const fn retry(status: Status) -> Rule {
    Rule::Retry { unless: Flags::NONE, finally: Finally::Fail(status) }
}

/// A retry that the fail-fast flag of transports stops.
const fn retry_transport(status: Status) -> Rule {
    Rule::Retry { unless: Flags::FAILFAST_TRANSPORT, finally: Finally::Fail(status) }
}

/// A retry that the fail-fast flag of drivers stops.
const fn retry_driver(status: Status) -> Rule {
    Rule::Retry { unless: Flags::FAILFAST_DRIVER, finally: Finally::Fail(status) }
}

/// A retry that the fail-fast flag of devices stops.
const fn retry_device(status: Status) -> Rule {
    check(Finally::Fail(status))
}

const fn check(finally: Finally) -> Rule {
    Rule::Retry { unless: Flags::FAILFAST_DEV, finally }
}

rules! {
    /// By the delivery. An error of the initiator with a reservation conflict goes by its status.
    DELIVERIES by Delivery {
        [Delivered] { ANY if Always => Rule::ByStatus, "delivered"; }
        [NoConnect] { ANY if Always => fail(IoErr), "no connection to the target"; }
        [BadTarget] { ANY if Always => fail(IoErr), "no such target"; }
        [Aborted] { ANY if Always => fail(IoErr), "aborted by the initiator"; }
        [TimedOut] {
            ANY if AtProbe => fail(Timeout), "no answer to a probe";
            ANY if Always => ABORT, "no answer in time";
        }
        [BusBusy] { ANY if Always => retry_transport(IoErr), "the way is busy"; }
        [Parity] { ANY if Always => retry_device(IoErr), "a check sum was wrong"; }
        [Error] { ANY if Always => retry_driver(IoErr), "an error of the initiator"; }
        [SoftError] { ANY if Always => retry_driver(IoErr), "a passing error of the initiator"; }
        [Disrupted] { ANY if Always => retry(Transport), "the connection was lost"; }
        [RetryNow] { ANY if Always => AGAIN, "the initiator asks for a retry"; }
        [Requeue] { ANY if Always => REQUEUE, "the initiator asks for a requeue"; }
        [FailFast] { ANY if Always => fail(Transport), "the connection stays lost"; }
        [Reset] { ANY if Always => AGAIN, "the target was reset"; }
        [Other] { ANY if Always => ABORT, "an end without a rule"; }
    }
}

rules! {
    /// By the status. BUSY and TASK SET FULL are honoured for fail-fast requests too.
    STATUSES by ScsiStatus {
        // Sense that comes with GOOD is no error: tgt sends some with an UNMAP it carried out.
        [GOOD] { ANY if Always => Rule::Complete, "good"; }
        [CHECK_CONDITION] { ANY if Always => Rule::BySense, "check condition"; }
        [BUSY] { ANY if Always => REQUEUE, "the logical unit is busy"; }
        [TASK_SET_FULL] { ANY if Always => REQUEUE, "the task set is full"; }
        [TASK_ABORTED] { ANY if Always => retry(IoErr), "aborted by another initiator"; }
        [RESERVATION_CONFLICT] {
            ANY if AtTest => Rule::Complete, "reserved, and there";
            ANY if Always => fail(ResvConflict), "reserved by another initiator";
        }
        [ACA_ACTIVE] { ANY if Always => fail(IoErr), "an ACA is in force"; }
        [] { ANY if Always => ABORT, "a status without a rule"; }
    }
}

rules! {
    /// By sense that is deferred: the command it came with was not carried out, and an earlier one
    /// failed. A flush answers for every write before it.
    DEFERRED by SenseKey {
        [NoSense, RecoveredError] {
            ANY if Always => retry_device(IoErr), "an earlier command recovered";
        }
        [MediumError] { ANY if AtFlush => fail(Medium), "an earlier write met a medium error"; }
        [] {
            ANY if AtFlush => fail(Target), "an earlier command failed before a flush";
            ANY if Always => retry_device(IoErr), "an earlier command failed";
        }
    }
}

rules! {
    /// By sense of the command itself.
    SENSES by SenseKey {
        [NoSense] { ANY if Always => Rule::Complete, "no error"; }
        [RecoveredError] { ANY if Always => Rule::Complete, "recovered"; }
        [NotReady] {
            TRANSITION if Alua => REQUEUE, "the port group is between two states";
            BECOMING_READY if Always => check(Finally::Requeue), "becoming ready";
            STOPPED if AllowRestart => START, "stopped, and may be started";
            UNDER_WAY if Always => REQUEUE, "not ready, and an operation is under way";
            ANY if Always => fail(IoErr), "not ready";
        }
        [MediumError] {
            UNREADABLE if Always => fail(Medium), "the block cannot be read";
            ANY if Always => retry_device(Medium), "medium error";
        }
        [HardwareError] {
            ANY if RetryHardware => REQUEUE, "hardware error that goes away";
            ANY if Always => fail(Target), "hardware error";
        }
        [IllegalRequest] {
            NO_COMMAND if MayNeedSix => Rule::UseSix, "no 10-byte commands";
            REFUSED if AtUnmap => fail(NotSupp), "no such command for deallocation or zeros";
            MEANINGLESS if Always => fail(Target), "refused by the target";
            GUARD if Always => fail(Protection), "protection of a request is wrong";
            NO_UNIT if Always => fail(IoErr), "no such logical unit";
            ANY if Always => fail(IoErr), "illegal request";
        }
        [UnitAttention] {
            PORT_GROUPS if Alua => REQUEUE, "the port groups may have changed";
            ANY if Expecting => check(Finally::RetryUncounted), "attention of a reset from here";
            ANY if Removable => fail(IoErr), "unit attention, and the medium may be another";
            ANY if Always => AGAIN, "unit attention";
        }
        [DataProtect] {
            STORE_FULL if Always => fail(NoSpc), "the thin store is full";
            ANY if Always => fail(Target), "protected";
        }
        [BlankCheck] { ANY if Always => fail(Target), "blank check"; }
        [CopyAborted] { ANY if Always => fail(Target), "copy aborted"; }
        [VolumeOverflow] { ANY if Always => fail(Target), "volume overflow"; }
        [Miscompare] { ANY if Always => fail(Target), "miscompare"; }
        [AbortedCommand] {
            GUARD if Always => fail(Protection), "protection of a transfer is wrong";
            ANY if Always => retry_device(IoErr), "aborted by the target";
        }
        [] { ANY if Always => fail(IoErr), "a sense key without a rule"; }
    }
}

/// The reason of CHECK CONDITION without sense.
pub const NO_SENSE_DATA: &str = "check condition without sense";

/// The codes a row is for.
#[derive(Clone, Copy, Debug)]
pub enum Codes {
    /// Any.
    Any,
    /// These codes with any qualifier.
    Asc(&'static [u8]),
    /// These pairs of code and qualifier.
    Pairs(&'static [AdditionalSense]),
}

impl Codes {
    fn has(self, code: AdditionalSense) -> bool {
        match self {
            Self::Any => true,
            Self::Asc(codes) => codes.contains(&code.asc()),
            Self::Pairs(pairs) => pairs.contains(&code),
        }
    }
}

const ANY: Codes = Codes::Any;
const TRANSITION: Codes = Codes::Pairs(&[AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION]);
const BECOMING_READY: Codes = Codes::Pairs(&[AdditionalSense::BECOMING_READY]);
const STOPPED: Codes = Codes::Pairs(&[AdditionalSense::INITIALIZING_COMMAND_REQUIRED]);
/// What ends by itself.
const UNDER_WAY: Codes = Codes::Pairs(&[
    AdditionalSense::FORMAT_IN_PROGRESS,
    AdditionalSense::REBUILD_IN_PROGRESS,
    AdditionalSense::RECALCULATION_IN_PROGRESS,
    AdditionalSense::OPERATION_IN_PROGRESS,
    AdditionalSense::LONG_WRITE_IN_PROGRESS,
    AdditionalSense::SELF_TEST_IN_PROGRESS,
    AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION,
    AdditionalSense::NOTIFY_ENABLE_SPINUP_REQUIRED,
    AdditionalSense::SPACE_ALLOCATION_IN_PROGRESS,
    AdditionalSense::START_STOP_UNIT_COMMAND_IN_PROGRESS,
    AdditionalSense::SANITIZE_IN_PROGRESS,
    AdditionalSense::CONFIGURATION_IN_PROGRESS,
    AdditionalSense::DEPOPULATION_IN_PROGRESS,
]);
/// Unrecovered, no address mark, not found.
const UNREADABLE: Codes = Codes::Asc(&[0x11, 0x13, 0x14]);
const NO_COMMAND: Codes = Codes::Pairs(&[AdditionalSense::INVALID_COMMAND_OPERATION_CODE]);
/// INVALID COMMAND OPERATION CODE and INVALID FIELD IN CDB.
const REFUSED: Codes = Codes::Asc(&[0x20, 0x24]);
/// These, address out of range, invalid field in parameter list, write protected.
const MEANINGLESS: Codes = Codes::Asc(&[0x20, 0x21, 0x24, 0x26, 0x27]);
/// The checks of protection information.
const GUARD: Codes = Codes::Asc(&[0x10]);
const NO_UNIT: Codes = Codes::Pairs(&[AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED]);
/// What may come with, or hide, a change of a port group's state.
const PORT_GROUPS: Codes = Codes::Pairs(&[
    AdditionalSense::POWER_ON_OR_RESET_OCCURRED,
    AdditionalSense::DEVICE_INTERNAL_RESET,
    AdditionalSense::MODE_PARAMETERS_CHANGED,
    AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED,
    AdditionalSense::IMPLICIT_STATE_TRANSITION_FAILED,
    AdditionalSense::INQUIRY_DATA_HAS_CHANGED,
    AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED,
]);
const STORE_FULL: Codes = Codes::Pairs(&[AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT]);

/// The rule for a command's end, and its reason.
pub(super) fn look_up(end: &ScsiEnd, attempt: &Attempt) -> (Rule, &'static str) {
    let status = end.status;
    let conflict = end.delivery == Delivery::Error && status == ScsiStatus::RESERVATION_CONFLICT;
    let delivery = if conflict { Delivery::Delivered } else { end.delivery };
    match first(DELIVERIES, delivery, AdditionalSense::NONE, attempt) {
        (Rule::ByStatus, _) => {}
        decided => return decided,
    }
    match first(STATUSES, status, AdditionalSense::NONE, attempt) {
        (Rule::BySense, _) => {}
        decided => return decided,
    }
    match end.sense {
        None => (Rule::Recover(Recovery::FetchSense), NO_SENSE_DATA),
        Some(Sense { deferred: true, key, code, .. }) => first(DEFERRED, key, code, attempt),
        Some(Sense { key, code, .. }) => first(SENSES, key, code, attempt),
    }
}

/// The first row that fits.
fn first<K: PartialEq>(
    table: &[RuleRow<K>],
    key: K,
    code: AdditionalSense,
    attempt: &Attempt,
) -> (Rule, &'static str) {
    let fits = |row: &&RuleRow<K>| {
        (row.of.is_empty() || row.of.contains(&key))
            && row.codes.has(code)
            && row.condition.holds(attempt)
    };
    let row = table.iter().find(fits).expect("a last row without a condition");
    (row.rule, row.reason)
}

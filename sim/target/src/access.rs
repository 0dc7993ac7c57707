//! Which commands are carried out in which state of a logical unit and of its port's group.

use weir_proto_scsi::alua::AccessState;
use weir_proto_scsi::command::StartStopUnit;
use weir_proto_scsi::{AdditionalSense, ScsiCommand};

/// What a command does, as far as reservations ask. Sources: SPC-4 and SBC-3, tables of commands
/// that are allowed in the presence of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is always carried out.
    Free,
    /// It reads.
    Read,
    /// It changes something.
    Write,
}

pub(crate) const fn access(command: &ScsiCommand) -> Access {
    match command {
        ScsiCommand::TestUnitReady
        | ScsiCommand::RequestSense { .. }
        | ScsiCommand::Inquiry { .. }
        | ScsiCommand::ReadCapacity10
        | ScsiCommand::ReadCapacity16 { .. }
        | ScsiCommand::ReportLuns { .. }
        | ScsiCommand::ReportTargetPortGroups { .. }
        | ScsiCommand::ReportOpcode(_)
        | ScsiCommand::ReserveIn { .. }
        // Its service actions have rules of their own.
        | ScsiCommand::ReserveOut(_)
        | ScsiCommand::StartStopUnit(StartStopUnit { start: true, power_condition: 0, .. }) => {
            Access::Free
        }
        ScsiCommand::Read(_) | ScsiCommand::ModeSense(_) => Access::Read,
        ScsiCommand::ModeSelect(_)
        | ScsiCommand::StartStopUnit(_)
        | ScsiCommand::Write(_)
        | ScsiCommand::CompareAndWrite(_)
        | ScsiCommand::SynchronizeCache(_)
        | ScsiCommand::WriteSame(_)
        | ScsiCommand::Unmap { .. }
        | ScsiCommand::SetTargetPortGroups { .. } => Access::Write,
    }
}

/// Whether a unit attention is told with this command: SPC-4 excepts three.
pub(crate) const fn tells_attention(command: &ScsiCommand) -> bool {
    !matches!(
        command,
        ScsiCommand::Inquiry { .. }
            | ScsiCommand::ReportLuns { .. }
            | ScsiCommand::RequestSense { .. }
    )
}

/// Whether a command needs blocks that are ready.
pub(crate) const fn needs_medium(command: &ScsiCommand) -> bool {
    matches!(
        command,
        ScsiCommand::TestUnitReady
            | ScsiCommand::ReadCapacity10
            | ScsiCommand::ReadCapacity16 { .. }
            | ScsiCommand::Read(_)
            | ScsiCommand::Write(_)
            | ScsiCommand::CompareAndWrite(_)
            | ScsiCommand::SynchronizeCache(_)
            | ScsiCommand::WriteSame(_)
            | ScsiCommand::Unmap { .. }
    )
}

/// Why a group in a state carries a command out not. Source: SPC-4, "Target port asymmetric access
/// states".
pub(crate) const fn refusal(state: AccessState, command: &ScsiCommand) -> Option<AdditionalSense> {
    let always = matches!(
        command,
        ScsiCommand::Inquiry { .. }
            | ScsiCommand::ReportLuns { .. }
            | ScsiCommand::RequestSense { .. }
            | ScsiCommand::ReportTargetPortGroups { .. }
    );
    let sets = matches!(command, ScsiCommand::SetTargetPortGroups { .. });
    let manages = matches!(
        command,
        ScsiCommand::ModeSense(_)
            | ScsiCommand::ModeSelect(_)
            | ScsiCommand::ReserveIn { .. }
            | ScsiCommand::ReserveOut(_)
            | ScsiCommand::ReportOpcode(_)
    );
    let (allowed, code) = match state {
        AccessState::ActiveOptimized
        | AccessState::ActiveNonOptimized
        | AccessState::LbaDependent => return None,
        AccessState::Standby => {
            (always || sets || manages, AdditionalSense::TARGET_PORT_IN_STANDBY_STATE)
        }
        AccessState::Unavailable => {
            (always || sets, AdditionalSense::TARGET_PORT_IN_UNAVAILABLE_STATE)
        }
        AccessState::Transitioning => (always, AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION),
        AccessState::Offline | AccessState::Reserved(_) => (always, AdditionalSense::OFFLINE),
    };
    if allowed { None } else { Some(code) }
}

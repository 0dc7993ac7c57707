//! The steps of a probe, each with its command.

use weir_proto_scsi::command::{ModeSense, PageControl, ReportOpcode, StartStopUnit};
use weir_proto_scsi::mode::{ALL_PAGES, CACHING};
use weir_proto_scsi::supported::CommandSupport;
use weir_proto_scsi::vpd::{
    BLOCK_CHARACTERISTICS, BLOCK_LIMITS, DEVICE_IDENTIFICATION, PROVISIONING, SUPPORTED_PAGES,
    UNIT_SERIAL_NUMBER, VpdPage,
};
use weir_proto_scsi::{Opcode, ScsiCommand};

/// Bytes of a VPD page that are asked for first: old targets look at one byte of the length.
pub(super) const PAGE_LEN: u16 = 255;

/// Bytes of port groups that are asked for first: room for some 60 ports.
pub(super) const GROUPS_LEN: u32 = 512;

/// Bytes of mode data: the longest that the 6-byte form can ask for, in whole words.
const MODE_LEN: u16 = 192;

/// Bytes of the answer about one command.
const SUPPORT_LEN: u32 = 64;

/// The pages that are read, last one first.
const PAGES: [u8; 5] =
    [PROVISIONING, BLOCK_CHARACTERISTICS, BLOCK_LIMITS, DEVICE_IDENTIFICATION, UNIT_SERIAL_NUMBER];

/// A step of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Inquiry {
        allocation: u16,
    },
    Ready,
    Start,
    Capacity16,
    Capacity10,
    /// READ CAPACITY(16) for a disk whose size the short form does not hold.
    CapacityLarge,
    Page {
        code: u8,
        allocation: u16,
    },
    ModeAll,
    ModeCaching,
    WriteSame16,
    WriteSame10,
    PortGroups {
        allocation: u32,
    },
    Done,
}

impl Step {
    /// Its command, and the bytes it asks for.
    pub(super) fn command(self) -> Option<(ScsiCommand, u32)> {
        Some(match self {
            Step::Inquiry { allocation } => {
                (ScsiCommand::Inquiry { page: None, allocation }, u32::from(allocation))
            }
            Step::Ready => (ScsiCommand::TestUnitReady, 0),
            Step::Start => {
                let start = StartStopUnit { start: true, ..StartStopUnit::default() };
                (ScsiCommand::StartStopUnit(start), 0)
            }
            Step::Capacity16 | Step::CapacityLarge => {
                (ScsiCommand::ReadCapacity16 { allocation: 32 }, 32)
            }
            Step::Capacity10 => (ScsiCommand::ReadCapacity10, 8),
            Step::Page { code, allocation } => {
                (ScsiCommand::Inquiry { page: Some(code), allocation }, u32::from(allocation))
            }
            Step::ModeAll => (mode_sense(ALL_PAGES, 4), 4),
            Step::ModeCaching => (mode_sense(CACHING, MODE_LEN), u32::from(MODE_LEN)),
            Step::WriteSame16 => (report(Opcode::WRITE_SAME_16), SUPPORT_LEN),
            Step::WriteSame10 => (report(Opcode::WRITE_SAME_10), SUPPORT_LEN),
            Step::PortGroups { allocation } => {
                (ScsiCommand::ReportTargetPortGroups { extended: false, allocation }, allocation)
            }
            Step::Done => return None,
        })
    }

    /// It in words.
    pub(super) fn words(self) -> String {
        match (self, self.command()) {
            (Step::Page { code, .. }, _) => format!("INQUIRY for VPD page {code:02x}h"),
            (_, Some((command, _))) => command.opcode().to_string(),
            (_, None) => "the last command".to_owned(),
        }
    }
}

fn mode_sense(page: u8, allocation: u16) -> ScsiCommand {
    ScsiCommand::ModeSense(ModeSense {
        ten: false,
        no_descriptors: true,
        control: PageControl::Current,
        page,
        subpage: 0,
        allocation,
    })
}

fn report(opcode: Opcode) -> ScsiCommand {
    ScsiCommand::ReportOpcode(ReportOpcode {
        timeouts: false,
        opcode,
        service_action: None,
        allocation: SUPPORT_LEN,
    })
}

/// Whether the answer says that the command is known.
pub(super) fn is_supported(data: &[u8]) -> bool {
    CommandSupport::decode(data).is_ok_and(|known| known.support.is_standard())
}

/// The pages to read of a disk that lists these.
pub(super) fn pages_of(data: &[u8]) -> Vec<u8> {
    let Ok(list) = VpdPage::decode(SUPPORTED_PAGES, data) else { return Vec::new() };
    PAGES.into_iter().filter(|code| list.lists(*code)).collect()
}

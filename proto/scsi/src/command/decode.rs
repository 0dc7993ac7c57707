//! From bytes to fields. What does not belong to a field is found by encoding again.

use super::{
    CdbSize, CompareAndWrite, DPO, EXTENDED_HEADER, FUA, InvalidCdb, ModeSelect, ModeSense, NDOB,
    Opcode, PageControl, READ_CAPACITY_16, ReportOpcode, ReserveOut, SUPPORTED_OPERATION_CODES,
    ScsiCommand, StartStopUnit, SynchronizeCache, TARGET_PORT_GROUPS, Transfer, WRITE_SAME_ANCHOR,
    WRITE_SAME_UNMAP, WriteSame, bit_at, u8_at, u16_at, u32_at, u64_at,
};
use crate::reservation::{ReservationType, ReserveInAction, ReserveOutAction};

/// The service action of a CDB: the low five bits of byte 1.
fn service_action(cdb: &[u8]) -> u8 {
    u8_at(cdb, 1) & 0x1f
}

/// Reads a CDB of the length that its operation code has.
pub(super) fn decode(opcode: Opcode, cdb: &[u8]) -> Result<ScsiCommand, InvalidCdb> {
    use CdbSize::{Six, Sixteen, Ten, Twelve};
    let unknown_action = Err(InvalidCdb::Field { opcode, at: 1 });
    Ok(match opcode {
        Opcode::TEST_UNIT_READY => ScsiCommand::TestUnitReady,
        Opcode::REQUEST_SENSE => ScsiCommand::RequestSense {
            descriptors: bit_at(cdb, 1, 0x01),
            allocation: u8_at(cdb, 4),
        },
        Opcode::INQUIRY => ScsiCommand::Inquiry {
            page: bit_at(cdb, 1, 0x01).then(|| u8_at(cdb, 2)),
            allocation: u16_at(cdb, 3),
        },
        Opcode::MODE_SENSE_6 => mode_sense(cdb, false),
        Opcode::MODE_SENSE_10 => mode_sense(cdb, true),
        Opcode::MODE_SELECT_6 => mode_select(cdb, false),
        Opcode::MODE_SELECT_10 => mode_select(cdb, true),
        Opcode::START_STOP_UNIT => start_stop(cdb),
        Opcode::READ_CAPACITY_10 => ScsiCommand::ReadCapacity10,
        Opcode::READ_6 => ScsiCommand::Read(transfer(cdb, Six)),
        Opcode::READ_10 => ScsiCommand::Read(transfer(cdb, Ten)),
        Opcode::READ_12 => ScsiCommand::Read(transfer(cdb, Twelve)),
        Opcode::READ_16 => ScsiCommand::Read(transfer(cdb, Sixteen)),
        Opcode::WRITE_6 => ScsiCommand::Write(transfer(cdb, Six)),
        Opcode::WRITE_10 => ScsiCommand::Write(transfer(cdb, Ten)),
        Opcode::WRITE_12 => ScsiCommand::Write(transfer(cdb, Twelve)),
        Opcode::WRITE_16 => ScsiCommand::Write(transfer(cdb, Sixteen)),
        Opcode::COMPARE_AND_WRITE => ScsiCommand::CompareAndWrite(CompareAndWrite {
            lba: u64_at(cdb, 2),
            blocks: u8_at(cdb, 13),
            dpo: bit_at(cdb, 1, DPO),
            fua: bit_at(cdb, 1, FUA),
        }),
        Opcode::SYNCHRONIZE_CACHE_10 => synchronize(cdb, Ten),
        Opcode::SYNCHRONIZE_CACHE_16 => synchronize(cdb, Sixteen),
        Opcode::WRITE_SAME_10 => write_same(cdb, Ten),
        Opcode::WRITE_SAME_16 => write_same(cdb, Sixteen),
        Opcode::UNMAP => unmap(cdb),
        Opcode::REPORT_LUNS => {
            ScsiCommand::ReportLuns { select: u8_at(cdb, 2), allocation: u32_at(cdb, 6) }
        }
        Opcode::PERSISTENT_RESERVE_IN => ScsiCommand::ReserveIn {
            action: ReserveInAction(service_action(cdb)),
            allocation: u16_at(cdb, 7),
        },
        Opcode::PERSISTENT_RESERVE_OUT => ScsiCommand::ReserveOut(ReserveOut {
            action: ReserveOutAction(service_action(cdb)),
            scope: u8_at(cdb, 2) >> 4,
            kind: ReservationType(u8_at(cdb, 2) & 0x0f),
            length: u32_at(cdb, 5),
        }),
        Opcode::SERVICE_ACTION_IN_16 if service_action(cdb) == READ_CAPACITY_16 => {
            ScsiCommand::ReadCapacity16 { allocation: u32_at(cdb, 10) }
        }
        Opcode::MAINTENANCE_OUT if service_action(cdb) == TARGET_PORT_GROUPS => {
            ScsiCommand::SetTargetPortGroups { length: u32_at(cdb, 6) }
        }
        Opcode::MAINTENANCE_IN => match service_action(cdb) {
            TARGET_PORT_GROUPS => ScsiCommand::ReportTargetPortGroups {
                extended: bit_at(cdb, 1, EXTENDED_HEADER),
                allocation: u32_at(cdb, 6),
            },
            SUPPORTED_OPERATION_CODES => report_opcode(cdb),
            _ => return unknown_action,
        },
        Opcode::SERVICE_ACTION_IN_16 | Opcode::MAINTENANCE_OUT => return unknown_action,
        _ => return Err(InvalidCdb::Opcode(opcode)),
    })
}

/// Address and length of a form.
fn range(cdb: &[u8], size: CdbSize) -> (u64, u32) {
    match size {
        CdbSize::Six => {
            let blocks = match u8_at(cdb, 4) {
                0 => 256,
                blocks => u32::from(blocks),
            };
            (u64::from(u32_at(cdb, 0) & 0x1f_ffff), blocks)
        }
        CdbSize::Ten => (u64::from(u32_at(cdb, 2)), u32::from(u16_at(cdb, 7))),
        CdbSize::Twelve => (u64::from(u32_at(cdb, 2)), u32_at(cdb, 6)),
        CdbSize::Sixteen => (u64_at(cdb, 2), u32_at(cdb, 10)),
    }
}

fn transfer(cdb: &[u8], size: CdbSize) -> Transfer {
    let (lba, blocks) = range(cdb, size);
    let flags = size != CdbSize::Six;
    let (dpo, fua) = (flags && bit_at(cdb, 1, DPO), flags && bit_at(cdb, 1, FUA));
    Transfer { size, lba, blocks, dpo, fua }
}

fn synchronize(cdb: &[u8], size: CdbSize) -> ScsiCommand {
    let (lba, blocks) = range(cdb, size);
    let immediate = bit_at(cdb, 1, 0x02);
    ScsiCommand::SynchronizeCache(SynchronizeCache { size, lba, blocks, immediate })
}

fn write_same(cdb: &[u8], size: CdbSize) -> ScsiCommand {
    let (lba, blocks) = range(cdb, size);
    ScsiCommand::WriteSame(WriteSame {
        size,
        lba,
        blocks,
        unmap: bit_at(cdb, 1, WRITE_SAME_UNMAP),
        anchor: bit_at(cdb, 1, WRITE_SAME_ANCHOR),
        ndob: size == CdbSize::Sixteen && bit_at(cdb, 1, NDOB),
    })
}

fn unmap(cdb: &[u8]) -> ScsiCommand {
    ScsiCommand::Unmap { anchor: bit_at(cdb, 1, 0x01), length: u16_at(cdb, 7) }
}

/// The length of a mode command.
fn mode_length(cdb: &[u8], ten: bool) -> u16 {
    if ten { u16_at(cdb, 7) } else { u16::from(u8_at(cdb, 4)) }
}

fn mode_sense(cdb: &[u8], ten: bool) -> ScsiCommand {
    ScsiCommand::ModeSense(ModeSense {
        ten,
        no_descriptors: bit_at(cdb, 1, 0x08),
        control: match u8_at(cdb, 2) >> 6 {
            0 => PageControl::Current,
            1 => PageControl::Changeable,
            2 => PageControl::Default,
            _ => PageControl::Saved,
        },
        page: u8_at(cdb, 2) & 0x3f,
        subpage: u8_at(cdb, 3),
        allocation: mode_length(cdb, ten),
    })
}

fn mode_select(cdb: &[u8], ten: bool) -> ScsiCommand {
    ScsiCommand::ModeSelect(ModeSelect {
        ten,
        page_format: bit_at(cdb, 1, 0x10),
        save: bit_at(cdb, 1, 0x01),
        length: mode_length(cdb, ten),
    })
}

fn start_stop(cdb: &[u8]) -> ScsiCommand {
    ScsiCommand::StartStopUnit(StartStopUnit {
        immediate: bit_at(cdb, 1, 0x01),
        power_condition: u8_at(cdb, 4) >> 4,
        no_flush: bit_at(cdb, 4, 0x04),
        load_eject: bit_at(cdb, 4, 0x02),
        start: bit_at(cdb, 4, 0x01),
    })
}

fn report_opcode(cdb: &[u8]) -> ScsiCommand {
    ScsiCommand::ReportOpcode(ReportOpcode {
        timeouts: bit_at(cdb, 2, 0x80),
        opcode: Opcode(u8_at(cdb, 3)),
        service_action: (u8_at(cdb, 2) & 0x07 == 2).then(|| u16_at(cdb, 4)),
        allocation: u32_at(cdb, 6),
    })
}

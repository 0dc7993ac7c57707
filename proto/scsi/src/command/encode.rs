//! From fields to bytes.

use super::{
    Cdb, CdbSize, CompareAndWrite, DPO, EXTENDED_HEADER, FUA, ModeSelect, ModeSense, NDOB, Opcode,
    READ_CAPACITY_16, ReportOpcode, ReserveOut, SUPPORTED_OPERATION_CODES, ScsiCommand,
    StartStopUnit, SynchronizeCache, TARGET_PORT_GROUPS, Transfer, WRITE_SAME_ANCHOR,
    WRITE_SAME_UNMAP, WireError, WriteSame, flag,
};

pub(super) const fn opcode(command: &ScsiCommand) -> Opcode {
    match command {
        ScsiCommand::TestUnitReady => Opcode::TEST_UNIT_READY,
        ScsiCommand::RequestSense { .. } => Opcode::REQUEST_SENSE,
        ScsiCommand::Inquiry { .. } => Opcode::INQUIRY,
        ScsiCommand::ModeSense(ModeSense { ten: false, .. }) => Opcode::MODE_SENSE_6,
        ScsiCommand::ModeSense(ModeSense { ten: true, .. }) => Opcode::MODE_SENSE_10,
        ScsiCommand::ModeSelect(ModeSelect { ten: false, .. }) => Opcode::MODE_SELECT_6,
        ScsiCommand::ModeSelect(ModeSelect { ten: true, .. }) => Opcode::MODE_SELECT_10,
        ScsiCommand::StartStopUnit(_) => Opcode::START_STOP_UNIT,
        ScsiCommand::ReadCapacity10 => Opcode::READ_CAPACITY_10,
        ScsiCommand::ReadCapacity16 { .. } => Opcode::SERVICE_ACTION_IN_16,
        ScsiCommand::Read(transfer) => match transfer.size {
            CdbSize::Six => Opcode::READ_6,
            CdbSize::Ten => Opcode::READ_10,
            CdbSize::Twelve => Opcode::READ_12,
            CdbSize::Sixteen => Opcode::READ_16,
        },
        ScsiCommand::Write(transfer) => match transfer.size {
            CdbSize::Six => Opcode::WRITE_6,
            CdbSize::Ten => Opcode::WRITE_10,
            CdbSize::Twelve => Opcode::WRITE_12,
            CdbSize::Sixteen => Opcode::WRITE_16,
        },
        ScsiCommand::CompareAndWrite(_) => Opcode::COMPARE_AND_WRITE,
        // The forms that do not exist are refused by `encode`.
        ScsiCommand::SynchronizeCache(cache) => match cache.size {
            CdbSize::Six | CdbSize::Ten => Opcode::SYNCHRONIZE_CACHE_10,
            CdbSize::Twelve | CdbSize::Sixteen => Opcode::SYNCHRONIZE_CACHE_16,
        },
        ScsiCommand::WriteSame(same) => match same.size {
            CdbSize::Six | CdbSize::Ten => Opcode::WRITE_SAME_10,
            CdbSize::Twelve | CdbSize::Sixteen => Opcode::WRITE_SAME_16,
        },
        ScsiCommand::Unmap { .. } => Opcode::UNMAP,
        ScsiCommand::ReportLuns { .. } => Opcode::REPORT_LUNS,
        ScsiCommand::ReportTargetPortGroups { .. } | ScsiCommand::ReportOpcode(_) => {
            Opcode::MAINTENANCE_IN
        }
        ScsiCommand::SetTargetPortGroups { .. } => Opcode::MAINTENANCE_OUT,
        ScsiCommand::ReserveIn { .. } => Opcode::PERSISTENT_RESERVE_IN,
        ScsiCommand::ReserveOut(_) => Opcode::PERSISTENT_RESERVE_OUT,
    }
}

pub(super) fn encode(command: &ScsiCommand) -> Result<Cdb, WireError> {
    let cdb = Cdb::new(opcode(command));
    Ok(match *command {
        ScsiCommand::TestUnitReady | ScsiCommand::ReadCapacity10 => cdb,
        ScsiCommand::RequestSense { descriptors, allocation } => {
            cdb.with(1, [flag(descriptors, 0x01)]).with(4, [allocation])
        }
        ScsiCommand::Inquiry { page, allocation } => cdb
            .with(1, [flag(page.is_some(), 0x01), page.unwrap_or(0)])
            .with(3, allocation.to_be_bytes()),
        ScsiCommand::ModeSense(sense) => mode_sense(cdb, sense)?,
        ScsiCommand::ModeSelect(select) => mode_select(cdb, select)?,
        ScsiCommand::StartStopUnit(start) => start_stop(cdb, start)?,
        ScsiCommand::ReadCapacity16 { allocation } => {
            cdb.with(1, [READ_CAPACITY_16]).with(10, allocation.to_be_bytes())
        }
        ScsiCommand::Read(transfer) => rw(cdb, "READ", transfer)?,
        ScsiCommand::Write(transfer) => rw(cdb, "WRITE", transfer)?,
        ScsiCommand::CompareAndWrite(CompareAndWrite { lba, blocks, dpo, fua }) => cdb
            .with(1, [flag(dpo, DPO) | flag(fua, FUA)])
            .with(2, lba.to_be_bytes())
            .with(13, [blocks]),
        ScsiCommand::SynchronizeCache(cache) => synchronize(cdb, cache)?,
        ScsiCommand::WriteSame(same) => write_same(cdb, same)?,
        ScsiCommand::Unmap { anchor, length } => {
            cdb.with(1, [flag(anchor, 0x01)]).with(7, length.to_be_bytes())
        }
        ScsiCommand::ReportLuns { select, allocation } => {
            cdb.with(2, [select]).with(6, allocation.to_be_bytes())
        }
        ScsiCommand::ReportTargetPortGroups { extended, allocation } => cdb
            .with(1, [TARGET_PORT_GROUPS | flag(extended, EXTENDED_HEADER)])
            .with(6, allocation.to_be_bytes()),
        ScsiCommand::SetTargetPortGroups { length } => {
            cdb.with(1, [TARGET_PORT_GROUPS]).with(6, length.to_be_bytes())
        }
        ScsiCommand::ReportOpcode(report) => report_opcode(cdb, report),
        ScsiCommand::ReserveIn { action, allocation } => {
            let action = narrow("PERSISTENT RESERVE IN", SERVICE_ACTION, action.0, 0x1f)?;
            cdb.with(1, [action]).with(7, allocation.to_be_bytes())
        }
        ScsiCommand::ReserveOut(out) => reserve_out(cdb, out)?,
    })
}

/// A field's name and its byte.
type Name = (&'static str, usize);

const SERVICE_ACTION: Name = ("SERVICE ACTION", 1);

/// Refuses a value above the most its field of less than a byte holds.
fn narrow(what: &'static str, field: Name, value: u8, most: u8) -> Result<u8, WireError> {
    let bound = match most {
        0x0f => "within 4 bits",
        0x1f => "within 5 bits",
        _ => "within 6 bits",
    };
    if value > most { Err(outside(what, field, u64::from(value), bound)) } else { Ok(value) }
}

fn outside(what: &'static str, field: Name, value: u64, bound: &'static str) -> WireError {
    let (field, at) = field;
    WireError::Field { what, field, at, value, bound }
}

/// The form with the range in it: the bytes of address and length at their places.
fn range(
    cdb: Cdb,
    what: &'static str,
    size: CdbSize,
    (lba, blocks): (u64, u32),
) -> Result<Cdb, WireError> {
    if lba > size.lba_max() {
        return Err(outside(what, ("LOGICAL BLOCK ADDRESS", 2), lba, "within the form's field"));
    }
    if blocks > size.blocks_max() {
        let blocks = u64::from(blocks);
        return Err(outside(what, ("TRANSFER LENGTH", 7), blocks, "within the form's field"));
    }
    let [high, low] = [(lba >> 16) as u8, blocks as u8];
    Ok(match size {
        CdbSize::Six => cdb.with(1, [high]).with(2, (lba as u16).to_be_bytes()).with(4, [low]),
        CdbSize::Ten => {
            cdb.with(2, (lba as u32).to_be_bytes()).with(7, (blocks as u16).to_be_bytes())
        }
        CdbSize::Twelve => cdb.with(2, (lba as u32).to_be_bytes()).with(6, blocks.to_be_bytes()),
        CdbSize::Sixteen => cdb.with(2, lba.to_be_bytes()).with(10, blocks.to_be_bytes()),
    })
}

fn rw(cdb: Cdb, what: &'static str, transfer: Transfer) -> Result<Cdb, WireError> {
    let Transfer { size, lba, blocks, dpo, fua } = transfer;
    let flags = flag(dpo, DPO) | flag(fua, FUA);
    if size == CdbSize::Six {
        if flags != 0 {
            return Err(outside(what, ("DPO and FUA", 1), u64::from(flags), "in the 6-byte form"));
        }
        if blocks == 0 {
            return Err(outside(what, ("TRANSFER LENGTH", 4), 0, "at least 1 in the 6-byte form"));
        }
        return range(cdb, what, size, (lba, blocks));
    }
    Ok(range(cdb, what, size, (lba, blocks))?.with(1, [flags]))
}

/// Refuses the forms of 6 and 12 bytes, which some commands do not have.
fn ten_or_sixteen(what: &'static str, size: CdbSize) -> Result<(), WireError> {
    match size {
        CdbSize::Ten | CdbSize::Sixteen => Ok(()),
        CdbSize::Six => Err(outside(what, ("CDB size", 0), 6, "10 or 16")),
        CdbSize::Twelve => Err(outside(what, ("CDB size", 0), 12, "10 or 16")),
    }
}

fn synchronize(cdb: Cdb, cache: SynchronizeCache) -> Result<Cdb, WireError> {
    const WHAT: &str = "SYNCHRONIZE CACHE";
    ten_or_sixteen(WHAT, cache.size)?;
    let cdb = cdb.with(1, [flag(cache.immediate, 0x02)]);
    range(cdb, WHAT, cache.size, (cache.lba, cache.blocks))
}

fn write_same(cdb: Cdb, same: WriteSame) -> Result<Cdb, WireError> {
    const WHAT: &str = "WRITE SAME";
    ten_or_sixteen(WHAT, same.size)?;
    if same.ndob && same.size == CdbSize::Ten {
        return Err(outside(WHAT, ("NDOB", 1), 1, "in the 10-byte form"));
    }
    let flags = flag(same.anchor, WRITE_SAME_ANCHOR)
        | flag(same.unmap, WRITE_SAME_UNMAP)
        | flag(same.ndob, NDOB);
    range(cdb.with(1, [flags]), WHAT, same.size, (same.lba, same.blocks))
}

/// Places a length of a mode command: 8 bits at byte 4, or 16 bits at byte 7.
fn mode_length(
    cdb: Cdb,
    what: &'static str,
    field: &'static str,
    (ten, length): (bool, u16),
) -> Result<Cdb, WireError> {
    if ten {
        return Ok(cdb.with(7, length.to_be_bytes()));
    }
    let length = u8::try_from(length)
        .map_err(|_| outside(what, (field, 4), u64::from(length), "8 bits in the 6-byte form"))?;
    Ok(cdb.with(4, [length]))
}

fn mode_sense(cdb: Cdb, sense: ModeSense) -> Result<Cdb, WireError> {
    const WHAT: &str = "MODE SENSE";
    let page = narrow(WHAT, ("PAGE CODE", 2), sense.page, 0x3f)?;
    let cdb = cdb
        .with(1, [flag(sense.no_descriptors, 0x08)])
        .with(2, [(sense.control as u8) << 6 | page, sense.subpage]);
    mode_length(cdb, WHAT, "ALLOCATION LENGTH", (sense.ten, sense.allocation))
}

fn mode_select(cdb: Cdb, select: ModeSelect) -> Result<Cdb, WireError> {
    let cdb = cdb.with(1, [flag(select.page_format, 0x10) | flag(select.save, 0x01)]);
    mode_length(cdb, "MODE SELECT", "PARAMETER LIST LENGTH", (select.ten, select.length))
}

fn start_stop(cdb: Cdb, start: StartStopUnit) -> Result<Cdb, WireError> {
    let power =
        narrow("START STOP UNIT", ("POWER CONDITION", 4), start.power_condition, 0x0f)? << 4;
    let flags = flag(start.no_flush, 0x04) | flag(start.load_eject, 0x02) | flag(start.start, 0x01);
    Ok(cdb.with(1, [flag(start.immediate, 0x01)]).with(4, [power | flags]))
}

fn report_opcode(cdb: Cdb, report: ReportOpcode) -> Cdb {
    let options = if report.service_action.is_some() { 2 } else { 1 };
    cdb.with(1, [SUPPORTED_OPERATION_CODES])
        .with(2, [flag(report.timeouts, 0x80) | options, report.opcode.0])
        .with(4, report.service_action.unwrap_or(0).to_be_bytes())
        .with(6, report.allocation.to_be_bytes())
}

fn reserve_out(cdb: Cdb, out: ReserveOut) -> Result<Cdb, WireError> {
    const WHAT: &str = "PERSISTENT RESERVE OUT";
    let action = narrow(WHAT, SERVICE_ACTION, out.action.0, 0x1f)?;
    let scope = narrow(WHAT, ("SCOPE", 2), out.scope, 0x0f)?;
    let kind = narrow(WHAT, ("TYPE", 2), out.kind.0, 0x0f)?;
    Ok(cdb.with(1, [action, scope << 4 | kind]).with(5, out.length.to_be_bytes()))
}

//! From requests to commands.

use weir_bio::{Buf, Data, Flags, Op, Status};
use weir_proto_scsi::Opcode;
use weir_proto_scsi::ScsiCommand;
use weir_proto_scsi::decide::Purpose;
use weir_proto_scsi::limits::{BlockPayload, CarriedCommand, DiskLimits, SectorRange};
use weir_proto_scsi::unmap::put_unmap_list;
use weir_queue::Request;

use crate::slot::{CDB_MAX, Prepared};
use crate::transport::Direction;

/// The command of a request, and its memory in `memory`, which is empty before.
///
/// # Errors
/// How the request ends without a command: [`Status::Ok`] if there is nothing to do.
pub(crate) fn prepare(
    request: &mut Request,
    limits: &DiskLimits,
    cdb_max: u8,
    memory: &mut Vec<Data>,
) -> Result<Prepared, Status> {
    let rq = *request.rq();
    let range = SectorRange { sector: rq.sector, sectors: rq.sectors };
    let fua = rq.flags.has(Flags::FUA);
    let prepared = match rq.op {
        Op::Read => {
            let command = limits.read(range, false)?;
            of_command(&command, Direction::In(request.len() as u32))
        }
        Op::Write => {
            // Without a cache that could lose it, a write is on the medium anyway.
            let command = limits.write(range, fua && limits.volatile_cache)?;
            of_command(&command, Direction::Out(request.len() as u32))
        }
        Op::Flush if !limits.volatile_cache => return Err(Status::Ok),
        Op::Flush => return checked(of_command(&limits.flush(), Direction::None), cdb_max),
        Op::Discard => {
            let carried = limits.discard(range)?;
            return checked(with_payload(&carried, limits, memory), cdb_max);
        }
        Op::WriteZeroes => {
            let keep = rq.flags.has(Flags::NOUNMAP);
            let carried = limits.write_zeroes(range, keep)?;
            return checked(with_payload(&carried, limits, memory), cdb_max);
        }
        Op::DrvIn | Op::DrvOut => passthrough(request)?,
        Op::SecureErase | Op::Prefetch => return Err(Status::NotSupp),
    };
    let prepared = checked(prepared, cdb_max)?;
    request.lend(memory);
    if memory.iter().any(|data| matches!(data, Data::Zero { .. })) {
        make_memory(memory, rq.op.is_write());
    }
    Ok(Prepared { lends: true, ..prepared })
}

/// Gives a request its memory back that no port took.
pub(crate) fn take_back(request: &mut Request, prepared: &Prepared, memory: &mut Vec<Data>) {
    if prepared.lends {
        let mut pieces = memory.drain(..);
        request.for_each_data(|data| *data = pieces.next().expect("as many as were lent"));
    }
    memory.clear();
}

fn checked(prepared: Prepared, cdb_max: u8) -> Result<Prepared, Status> {
    // As in Linux: it is aborted before it is sent.
    if prepared.cdb_len > cdb_max { Err(Status::IoErr) } else { Ok(prepared) }
}

/// A port is given real memory only.
#[cold]
fn make_memory(memory: &mut [Data], is_write: bool) {
    for data in memory {
        match data {
            Data::Zero { len, .. } if is_write => {
                *data = Data::One(Buf::zeroed(*len as usize));
            }
            other => other.materialise(),
        }
    }
}

#[inline]
pub(crate) fn of_command(command: &ScsiCommand, direction: Direction) -> Prepared {
    // A value that does not fit its field was refused by the limits.
    let cdb = command.encode().expect("fields that fit");
    Prepared {
        cdb: *cdb.padded(),
        cdb_len: cdb.bytes().len() as u8,
        direction,
        purpose: Purpose::of(command),
        lends: false,
        raw: false,
    }
}

#[cold]
fn with_payload(carried: &CarriedCommand, limits: &DiskLimits, memory: &mut Vec<Data>) -> Prepared {
    let payload = match carried.payload {
        BlockPayload::ZeroBlock => Buf::zeroed(limits.logical_block_size as usize),
        BlockPayload::Unmap(range) => {
            let mut list = Vec::new();
            put_unmap_list(&mut list, &[range]).expect("one range fits");
            Buf::filled(list.len(), |bytes| bytes.copy_from_slice(&list))
        }
    };
    let direction = Direction::Out(payload.len() as u32);
    memory.push(Data::One(payload));
    of_command(&carried.command, direction)
}

#[cold]
fn passthrough(request: &mut Request) -> Result<Prepared, Status> {
    let is_write = request.op() == Op::DrvOut;
    let mut bytes = 0;
    request.for_each_data(|data| bytes += data.len());
    let bytes = u32::try_from(bytes).map_err(|_| Status::Inval)?;
    let cdb = request.cdb().ok_or(Status::Inval)?;
    let mut padded = [0; CDB_MAX];
    // As in Linux: a CDB that the adapter cannot carry is aborted before it is sent.
    padded.get_mut(..cdb.len()).ok_or(Status::IoErr)?.copy_from_slice(cdb);
    Ok(Prepared {
        cdb: padded,
        cdb_len: cdb.len() as u8,
        direction: match (bytes, is_write) {
            (0, _) => Direction::None,
            (bytes, true) => Direction::Out(bytes),
            (bytes, false) => Direction::In(bytes),
        },
        purpose: match Opcode(cdb[0]) {
            Opcode::TEST_UNIT_READY => Purpose::TestUnitReady,
            Opcode::INQUIRY => Purpose::Inquiry,
            _ => Purpose::Other,
        },
        lends: false,
        raw: true,
    })
}

/// The same command with 6 bytes.
///
/// # Errors
/// How the request ends if these do not reach, or say, what it needs.
pub(crate) fn with_six(prepared: &Prepared) -> Result<Prepared, Status> {
    use weir_proto_scsi::CdbSize::Six;
    let command = ScsiCommand::decode(prepared.cdb()).map_err(|_| Status::IoErr)?;
    let (ScsiCommand::Read(mut transfer) | ScsiCommand::Write(mut transfer)) = command else {
        return Err(Status::IoErr);
    };
    if transfer.fua {
        return Err(Status::NotSupp);
    }
    transfer.size = Six;
    let fits = transfer.blocks <= Six.blocks_max() && transfer.lba <= Six.lba_max();
    let command = match command {
        ScsiCommand::Read(_) => ScsiCommand::Read(transfer),
        _ => ScsiCommand::Write(transfer),
    };
    let six = of_command(&command, prepared.direction);
    if fits { Ok(Prepared { lends: prepared.lends, ..six }) } else { Err(Status::IoErr) }
}

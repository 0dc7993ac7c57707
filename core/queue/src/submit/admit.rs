//! The checks of a bio before it is accepted (docs/behaviour/block-layer.md, section 1): once,
//! before any driver.

use weir_bio::{Bio, Buf, Data, Flags, Limits, Op, Status};

use crate::hard::flush;
use crate::request::FlushStep;
use crate::snapshot::Snapshot;

/// Whether a bio is a plain read or write in one piece that fits into one request and breaks no
/// rule: nearly all are, and this costs them a handful of compares.
#[inline(always)]
pub(crate) fn is_plain(bio: &Bio, snapshot: &Snapshot) -> bool {
    let Data::One(buf) = &bio.data else { return false };
    // A look-up, not a branch: which of the two it is cannot be predicted.
    let Some(plain) = snapshot.plain.get(bio.op as usize) else { return false };
    // A length of 0 wraps round and is above every bound.
    bio.sectors.wrapping_sub(1) < plain.sectors
        && (bio.flags.0 ^ plain.flags.0) & plain.bound.0 == 0
        && buf.len() == bio.sectors as usize * weir_bio::SECTOR as usize
        && misplaced(bio, buf, snapshot) == 0
        && bio.sector < snapshot.plain_end
}

/// Not 0 if its place is off a block, or its memory off the alignment or across a boundary of
/// segments. One test for all: each alone is nearly never true.
#[inline(always)]
fn misplaced(bio: &Bio, buf: &Buf, snapshot: &Snapshot) -> u64 {
    let start = buf.as_ptr() as u64;
    let last = start.wrapping_add(buf.len() as u64 - 1);
    (bio.sector | u64::from(bio.sectors)) & snapshot.block_mask
        | start & snapshot.memory_mask
        | (start ^ last) & snapshot.beyond_segment
}

/// Judges a bio. `Err` is how it ends at once, `Status::Ok` included; `Ok` are the steps the flush
/// machine has to take. The flags are reduced to what the device is to see.
#[inline]
pub(crate) fn admit(bio: &mut Bio, snapshot: &Snapshot) -> Result<FlushStep, Status> {
    if snapshot.offline {
        return Err(Status::Offline);
    }
    let limits = &snapshot.limits;
    if bio.sectors == 0 && !(bio.op == Op::Write && bio.flags.has(Flags::PREFLUSH)) {
        return Err(Status::Inval);
    }
    if bio.end() > limits.capacity || bio.sector > limits.capacity {
        return Err(Status::IoErr);
    }
    let block = limits.block_sectors();
    // The block is a power of two, and nearly always one sector.
    if block > 1 && (bio.sector | u64::from(bio.sectors)) & u64::from(block - 1) != 0 {
        return Err(Status::IoErr);
    }
    check_op(bio, limits)?;
    if bio.flags.has(Flags::ATOMIC) {
        check_atomic(bio, limits)?;
    }
    if bio.flags.has(Flags::RAHEAD) {
        // Read-ahead may fail at any time, so no layer retries it (docs/behaviour/block-layer.md,
        // section 1).
        bio.flags |= Flags::FAILFAST;
    }
    if !bio.flags.is_flushish() {
        return Ok(FlushStep { data: true, ..FlushStep::default() });
    }
    if bio.op != Op::Write && !(bio.op == Op::WriteZeroes || bio.op == Op::Discard) {
        return Err(Status::IoErr);
    }
    match flush::steps(bio.flags, bio.op, bio.sectors > 0, limits, snapshot.barriers) {
        None => Err(Status::Ok),
        Some((step, flags)) => {
            bio.flags = flags;
            Ok(step)
        }
    }
}

/// A write that cannot be carried out whole or not at all is refused. Linux answers EINVAL as well
/// where a device has no atomic writes: any length is above a unit of 0.
#[cold]
fn check_atomic(bio: &Bio, limits: &Limits) -> Result<(), Status> {
    let whole = bio.op == Op::Write && limits.takes_atomic_write(bio.sector, bio.sectors);
    if whole { Ok(()) } else { Err(Status::Inval) }
}

#[inline]
fn check_op(bio: &Bio, limits: &Limits) -> Result<(), Status> {
    if bio.op.is_write() && limits.read_only && bio.sectors > 0 {
        return Err(Status::ReadOnly);
    }
    let max = match bio.op {
        Op::Read | Op::Write => {
            // A length in bytes has 32 bits on its way.
            let bytes = u64::from(bio.sectors) * weir_bio::SECTOR;
            let whole = bio.data.len() as u64 == bytes && bytes <= u64::from(u32::MAX);
            return if whole { Ok(()) } else { Err(Status::Inval) };
        }
        Op::Prefetch => u32::MAX,
        // Flushes are made inside, and passthrough commands come by a call of their own.
        Op::Flush | Op::DrvIn | Op::DrvOut => 0,
        Op::Discard => limits.max_discard_sectors(),
        Op::SecureErase => limits.max_secure_erase_sectors,
        Op::WriteZeroes if bio.flags.has(Flags::NOFALLBACK) && !limits.fast_write_zeroes => 0,
        Op::WriteZeroes => limits.max_write_zeroes_sectors,
    };
    if max == 0 {
        return Err(Status::NotSupp);
    }
    if bio.data.is_empty() { Ok(()) } else { Err(Status::Inval) }
}

//! The allocated ranges of a file, found by lseek(2) with SEEK_DATA and SEEK_HOLE.

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use weir_bio::SECTOR;
use weir_queue::{DriverError, EXTENTS_MAX, Extent};

use super::errors::error;
use super::target::Target;

const DATA: fn(u64) -> Extent = |sectors| Extent { sectors, hole: false, zero: false };
const HOLE: fn(u64) -> Extent = |sectors| Extent { sectors, hole: true, zero: true };

/// Consecutive extents that cover `sectors` sectors from `sector`, or as many of them as may be.
pub(super) fn allocation(
    target: &Target,
    sector: u64,
    sectors: u64,
) -> Result<Vec<Extent>, DriverError> {
    if target.block_device {
        return Ok(vec![DATA(sectors)]);
    }
    let end = sector + sectors;
    let mut extents = Vec::new();
    let mut at = sector;
    while at < end && extents.len() < EXTENTS_MAX {
        // Sectors a hole covers only in part count as data.
        let data = match rustix::fs::seek(&target.file, SeekFrom::Data(at * SECTOR)) {
            Ok(byte) => (byte / SECTOR).clamp(at, end),
            Err(Errno::NXIO) => end,
            // This file system does not tell: all data is always right.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![DATA(sectors)]),
            Err(errno) => return Err(failed(target, at, errno)),
        };
        if data > at {
            extents.push(HOLE(data - at));
            at = data;
            continue;
        }
        let hole = match rustix::fs::seek(&target.file, SeekFrom::Hole(at * SECTOR)) {
            Ok(byte) => byte.div_ceil(SECTOR).clamp(at + 1, end),
            Err(Errno::NXIO) => end,
            Err(errno) => return Err(failed(target, at, errno)),
        };
        extents.push(DATA(hole - at));
        at = hole;
    }
    Ok(extents)
}

fn failed(target: &Target, sector: u64, errno: Errno) -> DriverError {
    let what = format!("allocation at sector {sector} cannot be read");
    error(&target.path, &what, Some(errno.into()))
}

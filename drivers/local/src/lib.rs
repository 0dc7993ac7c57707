//! Drivers of what is on this machine: [`null`] (nothing), [`ram`] (memory, also with a volatile
//! cache that a simulated power loss empties) and [`file`](mod@file).
//!
//! They move bytes and nothing else: ranges, read-only and support for an op were checked above
//! them, and order is the queue core's business.

#![deny(unsafe_code)]

pub mod file;
pub mod kinds;
pub mod null;
pub mod ram;

pub use file::{File, FileOptions, Io};
pub use kinds::KINDS;
pub use null::Null;
pub use ram::Ram;

use weir_bio::{Limits, SECTOR};
use weir_queue::DriverError;

/// Tags per queue by default.
const DEPTH: u16 = 128;

/// Largest request of a device in memory: 32 MiB, the largest an NBD client may send unasked.
const MEMORY_SECTORS_MAX: u32 = 32 << 11;

/// The size of a device in sectors.
fn whole_sectors(kind: &str, bytes: u64) -> Result<u64, DriverError> {
    if bytes == 0 || !bytes.is_multiple_of(SECTOR) {
        let what = format!("{kind}: size={bytes} is not a positive multiple of {SECTOR} bytes");
        return Err(DriverError { what, source: None });
    }
    Ok(bytes / SECTOR)
}

/// The limits of a device in memory and of the null device: any address, any pieces.
fn memory_limits(capacity: u64) -> Limits {
    Limits {
        capacity,
        max_hw_sectors: MEMORY_SECTORS_MAX,
        max_segments: u16::MAX,
        max_segment_size: u32::MAX,
        seg_boundary_mask: u64::MAX,
        dma_alignment: 0,
        takes_segments: true,
        max_hw_discard_sectors: u32::MAX,
        discard_granularity: SECTOR as u32,
        max_write_zeroes_sectors: u32::MAX,
        fast_write_zeroes: true,
        ..Limits::default()
    }
}

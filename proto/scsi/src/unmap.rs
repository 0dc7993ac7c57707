//! The parameter list of UNMAP: the ranges to deallocate.
//!
//! Layout: SBC-3, "UNMAP command". WRITE SAME needs no such list: one logical block of data is
//! sent with it, or nothing with NDOB.

use crate::codes::AdditionalSense;
use crate::sense::{Sense, SenseKey};
use crate::wire::{WireError, at_least, claimed, u16_at, u32_at, u64_at};

/// Bytes before the descriptors.
const HEADER_LEN: usize = 8;
/// Bytes of a descriptor.
const DESCRIPTOR_LEN: usize = 16;

/// The most ranges of one list: both lengths have 16 bits.
pub const UNMAP_RANGES_MAX: usize = (u16::MAX as usize - (HEADER_LEN - 2)) / DESCRIPTOR_LEN;

/// A range to deallocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmapRange {
    /// UNMAP LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// NUMBER OF LOGICAL BLOCKS; zero does nothing.
    pub blocks: u32,
}

/// The PARAMETER LIST LENGTH of a list of so many ranges, for the CDB.
#[must_use]
pub const fn unmap_list_len(ranges: usize) -> Option<u16> {
    if ranges > UNMAP_RANGES_MAX {
        return None;
    }
    Some((HEADER_LEN + ranges * DESCRIPTOR_LEN) as u16)
}

/// Appends a parameter list.
///
/// # Errors
/// [`WireError::Field`] with more than [`UNMAP_RANGES_MAX`] ranges; nothing is appended.
pub fn put_unmap_list(out: &mut Vec<u8>, ranges: &[UnmapRange]) -> Result<(), WireError> {
    let len = unmap_list_len(ranges.len()).ok_or(WireError::Field {
        what: WHAT,
        field: "UNMAP BLOCK DESCRIPTOR DATA LENGTH",
        at: 2,
        value: ranges.len() as u64 * DESCRIPTOR_LEN as u64,
        bound: "within 16 bits",
    })?;
    out.extend_from_slice(&(len - 2).to_be_bytes());
    out.extend_from_slice(&(len - HEADER_LEN as u16).to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    for range in ranges {
        out.extend_from_slice(&range.lba.to_be_bytes());
        out.extend_from_slice(&range.blocks.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
    }
    Ok(())
}

/// The ranges of a parameter list: as many whole descriptors as both its lengths and the data
/// allow. What remains of a length that is no multiple of a descriptor is left out, as SBC-3 asks.
///
/// # Errors
/// [`WireError::Short`] if the header is cut; see [`list_length_error`].
pub fn unmap_ranges(bytes: &[u8]) -> Result<impl Iterator<Item = UnmapRange>, WireError> {
    at_least(WHAT, bytes, HEADER_LEN)?;
    let bytes = claimed(bytes, 2 + usize::from(u16_at(bytes, 0)));
    let descriptors = bytes.get(HEADER_LEN..).unwrap_or_default();
    let descriptors = claimed(descriptors, usize::from(u16_at(bytes, 2)));
    Ok(descriptors
        .chunks_exact(DESCRIPTOR_LEN)
        .map(|descriptor| UnmapRange { lba: u64_at(descriptor, 0), blocks: u32_at(descriptor, 8) }))
}

/// What a target answers to a parameter list that is cut inside its header.
#[must_use]
pub const fn list_length_error() -> Sense {
    Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
}

const WHAT: &str = "UNMAP parameter list";

//! Big-endian fields at fixed offsets, and the error of a structure that does not hold.
//!
//! Two conventions of SPC are kept here once. A reply is cut at the allocation length without an
//! error, so a field that the data ends before, wholly or in part, reads as zero; a decoder asks
//! for no more bytes than its answer needs. And a length inside the data is a claim: what counts
//! is the smaller of the claim and of what is there.

use std::fmt;

/// Why bytes are not the structure that was looked for, or a value does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// The data ends before the part that has the meaning.
    Short {
        /// The structure.
        what: &'static str,
        /// Bytes there are.
        len: usize,
        /// Bytes it takes.
        least: usize,
    },
    /// A field has a value outside its bound.
    Field {
        /// The structure.
        what: &'static str,
        /// The standard's name of the field.
        field: &'static str,
        /// The byte at which it begins.
        at: usize,
        /// The value it has.
        value: u64,
        /// The bound, as the end of a sentence.
        bound: &'static str,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Short { what, len, least } => {
                write!(f, "{what}: {len} bytes are fewer than {least}")
            }
            Self::Field { what, field, at, value, bound } => {
                write!(f, "{what}: {field} at byte {at} is {value:#x}, not {bound}")
            }
        }
    }
}

impl std::error::Error for WireError {}

/// Refuses data that is shorter than `least` bytes.
pub(crate) fn at_least(what: &'static str, bytes: &[u8], least: usize) -> Result<(), WireError> {
    let len = bytes.len();
    if len < least { Err(WireError::Short { what, len, least }) } else { Ok(()) }
}

/// The first `claimed` bytes, or fewer if there are not so many.
pub(crate) fn claimed(bytes: &[u8], claimed: usize) -> &[u8] {
    &bytes[..claimed.min(bytes.len())]
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// The byte at `at`, or zero behind the end.
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    array_at::<1>(bytes, at)[0]
}

/// The bits of `mask` at `at`, any of them.
pub(crate) fn bit_at(bytes: &[u8], at: usize, mask: u8) -> bool {
    u8_at(bytes, at) & mask != 0
}

/// The 16 bits at `at`, or zero behind the end.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, at))
}

/// The 32 bits at `at`, or zero behind the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, at))
}

/// The 64 bits at `at`, or zero behind the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, at))
}

/// `N` bytes of text at `at`; what is behind the end is blank.
pub(crate) fn text_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut text = [b' '; N];
    let there = bytes.get(at..).unwrap_or_default();
    let len = there.len().min(N);
    text[..len].copy_from_slice(&there[..len]);
    text
}

/// Writes a field into a structure that was laid out before.
pub(crate) fn set(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// A mask, or nothing.
pub(crate) const fn flag(on: bool, mask: u8) -> u8 {
    if on { mask } else { 0 }
}

/// ASCII of a fixed field as text: trailing and leading blanks and NULs are left out, and what is
/// not printable is a dot.
pub(crate) fn ascii(bytes: &[u8]) -> String {
    let shown = bytes.iter().map(|&byte| match byte {
        0 => ' ',
        b' '..=b'~' => char::from(byte),
        _ => '.',
    });
    String::from(shown.collect::<String>().trim())
}

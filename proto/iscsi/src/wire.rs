//! The bytes: headers, sequence numbers, digests and the cut of the stream into PDUs.
//!
//! Pure functions and plain data; which PDU may come when is the business of the machines. All
//! integers travel big-endian, the digests least significant byte first.
//!
//! Source of every layout and number: RFC 7143, chapter 11.

mod bhs;
mod decoder;
mod digest;
mod initiator;
mod serial;
mod target;

pub use bhs::{BHS_LEN, Bhs, NO_TAG, Opcode};
pub use decoder::{AHS_MAX, Decoder, Piece, Segment, WireError};
pub use digest::{Crc, Digests};
pub use initiator::{
    Attribute, CDB_MAX, DataOut, Function, LoginRequest, LogoutReason, LogoutRequest, NopOut,
    ScsiCommand, TaskRequest, TextRequest,
};
pub use serial::Serial;
pub use target::{
    AsyncMessage, DataIn, LoginResponse, LogoutResponse, NopIn, Numbers, R2t, Reject, Residual,
    ScsiResponse, TaskResponse, TextResponse,
};

/// IANA's TCP port for iSCSI.
pub const PORT: u16 = 3260;
/// The largest data segment that a side takes before it has declared another, in bytes.
/// RFC 7143, section 13.12.
pub const SEGMENT_DEFAULT: u32 = 8192;
/// The largest value of a length that has 24 bits.
pub const LENGTH_MAX: u32 = (1 << 24) - 1;

/// Bytes that fill a segment of this length up to whole words.
#[must_use]
pub const fn padding(length: u32) -> usize {
    (length.wrapping_neg() & 3) as usize
}

/// Appends a header with its digest, if there is one. `ahs` is whole words.
pub fn put_head(out: &mut Vec<u8>, bhs: &Bhs, ahs: &[u8], digests: Digests) {
    let start = out.len();
    out.extend_from_slice(bhs.bytes());
    out.extend_from_slice(ahs);
    if digests.header {
        let mut crc = Crc::new();
        crc.update(&out[start..]);
        out.extend_from_slice(&crc.bytes());
    }
}

/// Appends a PDU whose data segment is at hand, and sets its length in the header.
pub fn put_pdu(out: &mut Vec<u8>, bhs: Bhs, data: &[u8], digests: Digests) {
    let length = u32::try_from(data.len()).expect("a data segment");
    put_head(out, &bhs.with_data_len(length), &[], digests);
    out.extend_from_slice(data);
    let mut crc = Crc::new();
    crc.update(data);
    put_tail(out, length, crc, digests);
}

/// Appends what stands behind a data segment of this length: padding and digest. `crc` is that of
/// the segment.
pub fn put_tail(out: &mut Vec<u8>, length: u32, mut crc: Crc, digests: Digests) {
    let padding = &[0; 3][..padding(length)];
    out.extend_from_slice(padding);
    if digests.data && length > 0 {
        crc.update(padding);
        out.extend_from_slice(&crc.bytes());
    }
}

/// Bytes of a PDU on the wire whose header is the basic one.
#[must_use]
pub const fn pdu_len(data: u32, digests: Digests) -> u64 {
    let header = BHS_LEN + if digests.header { 4 } else { 0 };
    let digest = if digests.data && data > 0 { 4 } else { 0 };
    header as u64 + data as u64 + padding(data) as u64 + digest
}

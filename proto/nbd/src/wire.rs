//! The bytes: constants, bit sets, codes, and encode and decode of every structure.
//!
//! Pure functions and plain data; the order in which structures may come is the business of
//! [`crate::server`] and [`crate::client`]. All integers travel big-endian. Decoding takes a
//! slice and answers `None` when the slice is too short or does not fit the layout; encoding
//! appends to a `Vec<u8>` or returns a fixed array.
//!
//! Source: NBD protocol, `doc/proto.md`, and its branch `extension-ext-header`.

mod codes;
mod flags;
mod option;
mod reply;
mod request;

pub use codes::{ChunkType, Command, InfoType, OptionCode, OptionReplyCode};
pub use flags::{
    ClientFlags, CommandFlags, HandshakeFlags, ReplyFlags, StatusFlags, TransmissionFlags,
};
pub use option::{
    BlockSizes, ExportEntry, ExportSize, Greeting, InfoQuery, MetaContext, MetaQuery, OptionHeader,
    OptionReplyHeader, put_block_sizes, put_export_entry, put_export_name_reply, put_export_size,
    put_info_query, put_info_text, put_meta_context, put_meta_query, put_option, put_option_reply,
};
pub use reply::{ErrorChunk, ExtendedHeader, Extent, Hole, SimpleReply, StructuredHeader};
pub use request::{ReplyTo, Request};

/// `NBDMAGIC`, the first eight bytes a server sends.
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: the second eight bytes of a newstyle greeting, and the first of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// The second eight bytes of an oldstyle greeting, which weir's client does not speak.
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// The first eight bytes of every option reply.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// The first four bytes of a compact request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// The first four bytes of an extended request.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// The first four bytes of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// The first four bytes of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// The first four bytes of an extended reply chunk.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// IANA's TCP port for NBD.
pub const PORT: u16 = 10809;
/// No string of the protocol is longer, in bytes.
pub const STRING_MAX: usize = 4096;
/// Zero bytes that follow an EXPORT_NAME answer unless NO_ZEROES was agreed on.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// The largest payload a portable peer sends, and the server's default maximum, in bytes. Text:
/// "Size constraints", 2^25.
pub const PAYLOAD_MAX_DEFAULT: u32 = 1 << 25;
/// A status chunk should not hold more descriptors.
pub const EXTENTS_MAX: usize = 1 << 20;
/// The option data a server keeps while it waits for the rest, in bytes. It holds the longest
/// sensible option: an export name and fifteen metadata queries of the full string length.
pub const OPTION_DATA_MAX: u32 = 64 << 10;
/// The name of the one metadata context the protocol defines.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// How requests and replies look after the handshake. Every rule of the transmission phase that
/// depends on the negotiation depends on this word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Compact requests (28 bytes), simple replies (16 bytes).
    Simple,
    /// Compact requests, structured reply chunks (20 bytes and a payload).
    Structured,
    /// Extended requests and extended reply chunks (32 bytes each).
    Extended,
}

impl Mode {
    /// Bytes of a request header.
    #[must_use]
    pub const fn request_len(self) -> usize {
        match self {
            Self::Simple | Self::Structured => Request::COMPACT_LEN,
            Self::Extended => Request::EXTENDED_LEN,
        }
    }

    /// Bytes the server sends before the data of a read that it answers in one piece.
    #[must_use]
    pub const fn read_header_len(self) -> usize {
        match self {
            Self::Simple => SimpleReply::LEN,
            Self::Structured => StructuredHeader::LEN + 8,
            Self::Extended => ExtendedHeader::LEN + 8,
        }
    }

    /// The longest length a request of this mode can carry, in bytes.
    #[must_use]
    pub const fn length_max(self) -> u64 {
        match self {
            Self::Simple | Self::Structured => u32::MAX as u64,
            Self::Extended => u64::MAX,
        }
    }
}

/// Why some bytes are not a string of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadText {
    /// Longer than [`STRING_MAX`]; the length in bytes.
    TooLong(usize),
    /// Not UTF-8 from this byte on.
    NotUtf8(usize),
    /// A NUL at this byte.
    Nul(usize),
}

impl std::fmt::Display for BadText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong(len) => write!(f, "string of {len} bytes exceeds {STRING_MAX}"),
            Self::NotUtf8(at) => write!(f, "string is not UTF-8 at byte {at}"),
            Self::Nul(at) => write!(f, "string has a NUL at byte {at}"),
        }
    }
}

impl std::error::Error for BadText {}

/// Reads bytes as a string of the protocol.
///
/// # Errors
/// [`BadText`] when they are too long, not UTF-8, or contain a NUL.
pub fn text(bytes: &[u8]) -> Result<&str, BadText> {
    if bytes.len() > STRING_MAX {
        return Err(BadText::TooLong(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| BadText::NotUtf8(e.valid_up_to()))?;
    text.find('\0').map_or(Ok(text), |at| Err(BadText::Nul(at)))
}

/// The longest prefix of `text` that is a string of the protocol: at most [`STRING_MAX`] bytes,
/// cut between characters. Used for messages, which may be made of anything.
#[must_use]
pub fn clipped(text: &str) -> &str {
    if text.len() <= STRING_MAX {
        return text;
    }
    let mut end = STRING_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Takes big-endian fields off the front of a slice.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string whose length in bytes comes first, as 32 bits.
    pub(crate) fn counted(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.take(usize::try_from(len).ok()?)
    }
}

pub(crate) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

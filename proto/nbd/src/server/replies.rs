//! Encodes replies in the form that was negotiated.
//!
//! Simple mode answers with simple replies. Structured mode answers everything with chunks: a
//! READ has to be, errors included, and the others gain the text of an error and a stream of one
//! magic. Extended mode answers everything with extended chunks.
//!
//! Every encoder appends to the caller's buffer and touches nothing in front of it, so headers
//! and data of many replies can stand in one arena: append [`Replies::read_header`], then the
//! data right behind it.

use super::Reject;
use crate::NbdError;
use crate::wire::{
    ChunkType, EXTENTS_MAX, ErrorChunk, ExtendedHeader, Extent, Hole, Mode, ReplyFlags, ReplyTo,
    STRING_MAX, SimpleReply, StatusFlags, StructuredHeader, clipped, put_u32, put_u64,
};
use std::io::Write as _;

/// The longest extent a 32-bit descriptor is given: the largest multiple of every minimum block.
const COMPACT_EXTENT_MAX: u64 = (1 << 32) - (1 << 16);

/// Encodes replies for one client. Copy it where it is needed; it is one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replies {
    mode: Mode,
}

/// A content chunk: a part of the range of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// First byte, counted from the start of the export.
    pub offset: u64,
    /// Bytes; not zero, at most the maximum payload.
    pub length: u32,
    /// Whether this is the last chunk of the reply.
    pub last: bool,
}

/// The BLOCK_STATUS request a status reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusQuery {
    /// The context id that was negotiated.
    pub context: u32,
    /// Bytes asked about, from the request's offset on.
    pub length: u64,
    /// REQ_ONE: exactly one extent, not beyond the length.
    pub one: bool,
}

impl Replies {
    /// The encoder for a mode.
    #[must_use]
    pub const fn new(mode: Mode) -> Self {
        Self { mode }
    }

    /// Appends the whole reply of a request without data that went well.
    #[inline]
    pub fn done(&self, to: ReplyTo, out: &mut Vec<u8>) {
        match self.mode {
            Mode::Simple => self.simple(to, 0, out),
            _ => self.chunk(to, ReplyFlags::DONE, ChunkType::NONE, 0, out),
        }
    }

    /// Appends what stands in front of the data of a READ that is answered in one piece and is
    /// known to have gone well: [`Mode::read_header_len`] bytes. `length` bytes of data follow,
    /// and the reply is complete.
    #[inline]
    pub fn read_header(&self, to: ReplyTo, length: u32, out: &mut Vec<u8>) {
        match self.mode {
            Mode::Simple => self.simple(to, 0, out),
            _ => self.data_header(to, Chunk { offset: to.offset, length, last: true }, out),
        }
    }

    /// Appends what stands in front of the data of one chunk; `chunk.length` bytes follow.
    ///
    /// # Panics
    /// In simple mode, which has no chunks: a read is answered there by [`Replies::read_header`].
    #[inline]
    pub fn data_header(&self, to: ReplyTo, chunk: Chunk, out: &mut Vec<u8>) {
        assert!(self.mode != Mode::Simple, "a simple reply has no chunks");
        let length = u64::from(chunk.length) + 8;
        self.chunk(to, done_if(chunk.last), ChunkType::OFFSET_DATA, length, out);
        put_u64(out, chunk.offset);
    }

    /// Appends a chunk that says a part of a READ is all zeroes. Not for a READ with DF.
    ///
    /// # Panics
    /// In simple mode, which has no chunks.
    pub fn hole(&self, to: ReplyTo, chunk: Chunk, out: &mut Vec<u8>) {
        assert!(self.mode != Mode::Simple, "a simple reply has no holes");
        let flags = done_if(chunk.last);
        self.chunk(to, flags, ChunkType::OFFSET_HOLE, Hole::LEN as u64, out);
        Hole { offset: chunk.offset, length: chunk.length }.put(out);
    }

    /// Appends the reply of a request that failed, or its last chunk if content chunks went
    /// ahead. The words reach the client except in simple mode; they are cut to 4096 bytes.
    pub fn error(&self, to: ReplyTo, error: NbdError, words: &str, out: &mut Vec<u8>) {
        self.error_chunk(to, error, words, None, out);
    }

    /// Appends an error at an offset, counted from the start of the export, as the last chunk of
    /// a READ, WRITE, TRIM, CACHE, WRITE_ZEROES or BLOCK_STATUS.
    pub fn error_at(&self, to: ReplyTo, error: NbdError, at: u64, words: &str, out: &mut Vec<u8>) {
        self.error_chunk(to, error, words, Some(at), out);
    }

    /// Appends the reply of a request that was refused, with the reason as its words.
    #[cold]
    pub fn reject(&self, to: ReplyTo, reject: &Reject, out: &mut Vec<u8>) {
        let mut words = [0; 256];
        let mut rest = &mut words[..];
        // A reason longer than the buffer is cut; none is.
        let _ = write!(rest, "{}", reject.why);
        let len = 256 - rest.len();
        self.error(to, reject.error, std::str::from_utf8(&words[..len]).unwrap_or(""), out);
    }

    /// Appends the whole reply of a BLOCK_STATUS with one context. `extents` are consecutive from
    /// the request's offset on; neighbours of equal flags are joined, empty ones are skipped.
    ///
    /// Keeps the protocol's rules whatever comes in: only the last extent reaches beyond the
    /// length asked about, with REQ_ONE none does and there is one, there are at most
    /// [`EXTENTS_MAX`], and there is always one: if none was given, a status of 0, which is
    /// always true. In 32-bit form a longer extent is cut and is the last.
    ///
    /// # Panics
    /// In simple mode, where no context can be negotiated.
    pub fn block_status(
        &self,
        to: ReplyTo,
        query: StatusQuery,
        extents: impl IntoIterator<Item = Extent>,
        out: &mut Vec<u8>,
    ) {
        assert!(self.mode != Mode::Simple, "a simple reply has no extents");
        let extended = self.mode == Mode::Extended;
        let kind = if extended { ChunkType::BLOCK_STATUS_EXT } else { ChunkType::BLOCK_STATUS };
        let header_at = out.len();
        self.chunk(to, ReplyFlags::DONE, kind, 0, out);
        let payload_at = out.len();
        put_u32(out, query.context);
        if extended {
            put_u32(out, 0);
        }
        let count = put_extents(self.mode, query, extents, out);
        let payload_len = (out.len() - payload_at) as u64;
        if extended {
            out[payload_at + 4..payload_at + 8].copy_from_slice(&count.to_be_bytes());
        }
        // The length stands at the end of either header, in 64 or 32 bits.
        let length = payload_len.to_be_bytes();
        let length = if extended { &length[..] } else { &length[4..] };
        let length_at = payload_at - length.len();
        debug_assert!(length_at > header_at);
        out[length_at..payload_at].copy_from_slice(length);
    }

    #[cold]
    fn error_chunk(
        &self,
        to: ReplyTo,
        error: NbdError,
        words: &str,
        offset: Option<u64>,
        out: &mut Vec<u8>,
    ) {
        if self.mode == Mode::Simple {
            return self.simple(to, error.to_wire(), out);
        }
        let words = clipped(words);
        debug_assert!(words.len() <= STRING_MAX);
        let payload = ErrorChunk { error: error.to_wire(), message: words.as_bytes(), offset };
        self.chunk(to, ReplyFlags::DONE, payload.chunk(), payload.len() as u64, out);
        payload.put(out);
    }

    #[inline]
    fn simple(self, to: ReplyTo, error: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&SimpleReply { error, cookie: to.cookie }.encode());
    }

    /// Appends the header of a chunk in structured or extended form.
    #[inline]
    fn chunk(
        self,
        to: ReplyTo,
        flags: ReplyFlags,
        chunk: ChunkType,
        length: u64,
        out: &mut Vec<u8>,
    ) {
        let ReplyTo { cookie, offset } = to;
        if self.mode == Mode::Extended {
            let header = ExtendedHeader { flags, chunk, cookie, offset, length };
            out.extend_from_slice(&header.encode());
        } else {
            let length = u32::try_from(length).expect("payload of a chunk shorter than 4 GiB");
            out.extend_from_slice(&StructuredHeader { flags, chunk, cookie, length }.encode());
        }
    }
}

const fn done_if(last: bool) -> ReplyFlags {
    if last { ReplyFlags::DONE } else { ReplyFlags::EMPTY }
}

/// Appends descriptors by the rules of [`Replies::block_status`]; how many there are.
fn put_extents(
    mode: Mode,
    query: StatusQuery,
    extents: impl IntoIterator<Item = Extent>,
    out: &mut Vec<u8>,
) -> u32 {
    let count_max = if query.one { 1 } else { EXTENTS_MAX as u32 };
    let mut count = 0;
    let mut reported: u64 = 0;
    let mut held: Option<Extent> = None;
    for extent in extents.into_iter().filter(|extent| extent.length > 0) {
        let mut next = extent;
        if let Some(last) = held {
            if last.flags == extent.flags {
                next.length = next.length.saturating_add(last.length);
            } else {
                // The descriptor in hand is complete. A descriptor that has to be cut, or for which
                // there is no successor, is the last one.
                let cut = mode != Mode::Extended && last.length > COMPACT_EXTENT_MAX;
                if cut || count + 1 == count_max {
                    break;
                }
                put_extent(mode, last, out);
                count += 1;
                reported = reported.saturating_add(last.length);
            }
        }
        held = Some(next);
        if reported.saturating_add(next.length) >= query.length {
            break;
        }
    }
    let mut last = held.unwrap_or(Extent { length: query.length, flags: StatusFlags::EMPTY });
    if query.one {
        last.length = last.length.min(query.length);
    }
    put_extent(mode, last, out);
    count + 1
}

/// Appends one descriptor. In 32-bit form the length is cut and the flags lose their upper half,
/// which `base:allocation` does not use.
fn put_extent(mode: Mode, extent: Extent, out: &mut Vec<u8>) {
    if mode == Mode::Extended {
        return extent.put_extended(out);
    }
    let length = extent.length.min(COMPACT_EXTENT_MAX);
    let flags = StatusFlags::from_bits(extent.flags.bits() & u64::from(u32::MAX));
    Extent { length, flags }.put_compact(out).expect("length and flags cut to 32 bits");
}

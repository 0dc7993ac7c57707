//! Reply headers and chunk payloads: simple, structured, extended.

use super::{
    ChunkType, EXTENDED_REPLY_MAGIC, Fields, ReplyFlags, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC, StatusFlags, put_u16, put_u32, put_u64,
};

/// A simple reply; the data of a successful READ follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// Zero, or a wire error value.
    pub error: u32,
    /// The request's cookie.
    pub cookie: u64,
}

impl SimpleReply {
    /// Bytes of a simple reply.
    pub const LEN: usize = 16;

    /// The reply as it goes out.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }

    /// Reads one off the front of `bytes`; `None` if too short or of another magic.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u32()? == SIMPLE_REPLY_MAGIC).then_some(())?;
        Some(Self { error: fields.u32()?, cookie: fields.u64()? })
    }
}

/// The header of a structured reply chunk; `length` bytes of payload follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructuredHeader {
    /// Whether this is the last chunk.
    pub flags: ReplyFlags,
    /// The kind of the payload.
    pub chunk: ChunkType,
    /// The request's cookie.
    pub cookie: u64,
    /// Bytes of payload.
    pub length: u32,
}

impl StructuredHeader {
    /// Bytes of the header.
    pub const LEN: usize = 20;

    /// The header as it goes out.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.bits().to_be_bytes());
        bytes[6..8].copy_from_slice(&self.chunk.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads one off the front of `bytes`; `None` if too short or of another magic.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u32()? == STRUCTURED_REPLY_MAGIC).then_some(())?;
        Some(Self {
            flags: ReplyFlags::from_bits(fields.u16()?),
            chunk: ChunkType(fields.u16()?),
            cookie: fields.u64()?,
            length: fields.u32()?,
        })
    }
}

/// The header of an extended reply chunk; `length` bytes of payload follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedHeader {
    /// Whether this is the last chunk.
    pub flags: ReplyFlags,
    /// The kind of the payload.
    pub chunk: ChunkType,
    /// The request's cookie.
    pub cookie: u64,
    /// The offset of the request, in bytes; not that of the chunk.
    pub offset: u64,
    /// Bytes of payload.
    pub length: u64,
}

impl ExtendedHeader {
    /// Bytes of the header.
    pub const LEN: usize = 32;

    /// The header as it goes out.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..4].copy_from_slice(&EXTENDED_REPLY_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.bits().to_be_bytes());
        bytes[6..8].copy_from_slice(&self.chunk.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads one off the front of `bytes`; `None` if too short or of another magic.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u32()? == EXTENDED_REPLY_MAGIC).then_some(())?;
        Some(Self {
            flags: ReplyFlags::from_bits(fields.u16()?),
            chunk: ChunkType(fields.u16()?),
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u64()?,
        })
    }
}

/// The payload of an OFFSET_HOLE chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// First byte of the hole, counted from the start of the export.
    pub offset: u64,
    /// Bytes that read as zeroes; never zero.
    pub length: u32,
}

impl Hole {
    /// Bytes of the payload.
    pub const LEN: usize = 12;

    /// Appends the payload.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, self.offset);
        put_u32(out, self.length);
    }

    /// Reads a whole payload; `None` unless it has exactly [`Hole::LEN`] bytes.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let hole = Self { offset: fields.u64()?, length: fields.u32()? };
        fields.0.is_empty().then_some(hole)
    }
}

/// One descriptor of a status chunk: so many bytes, and how they stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the extent; never zero on the wire.
    pub length: u64,
    /// How they stand, in the context's own bits.
    pub flags: StatusFlags,
}

impl Extent {
    /// Bytes of the 32-bit form.
    pub const COMPACT_LEN: usize = 8;
    /// Bytes of the 64-bit form.
    pub const EXTENDED_LEN: usize = 16;
    /// Bytes before the descriptors of a BLOCK_STATUS chunk: the context.
    pub const COMPACT_HEAD: usize = 4;
    /// Bytes before the descriptors of a BLOCK_STATUS_EXT chunk: the context and their count.
    pub const EXTENDED_HEAD: usize = 8;

    /// Appends the 32-bit form: `None`, and nothing appended, if a value does not fit.
    #[must_use = "None means nothing was encoded"]
    pub fn put_compact(&self, out: &mut Vec<u8>) -> Option<()> {
        let (length, flags) =
            (u32::try_from(self.length).ok()?, u32::try_from(self.flags.bits()).ok()?);
        put_u32(out, length);
        put_u32(out, flags);
        Some(())
    }

    /// Appends the 64-bit form.
    pub fn put_extended(&self, out: &mut Vec<u8>) {
        put_u64(out, self.length);
        put_u64(out, self.flags.bits());
    }

    /// Reads a 32-bit descriptor off the front of `bytes`.
    #[must_use]
    pub fn decode_compact(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (length, flags) = (fields.u32()?, fields.u32()?);
        Some(Self { length: u64::from(length), flags: StatusFlags::from_bits(u64::from(flags)) })
    }

    /// Reads a 64-bit descriptor off the front of `bytes`.
    #[must_use]
    pub fn decode_extended(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self { length: fields.u64()?, flags: StatusFlags::from_bits(fields.u64()?) })
    }
}

/// The payload of an ERROR or ERROR_OFFSET chunk, or of an unknown error type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorChunk<'a> {
    /// The wire error value; never zero in a valid chunk.
    pub error: u32,
    /// Words for a person, as they came.
    pub message: &'a [u8],
    /// Where it happened, for ERROR_OFFSET.
    pub offset: Option<u64>,
}

impl<'a> ErrorChunk<'a> {
    /// Bytes before the message.
    pub const HEAD: usize = 6;

    /// The type of the chunk this payload belongs in.
    #[must_use]
    pub const fn chunk(&self) -> ChunkType {
        if self.offset.is_some() { ChunkType::ERROR_OFFSET } else { ChunkType::ERROR }
    }

    /// Bytes of the payload.
    #[must_use]
    pub const fn len(&self) -> usize {
        Self::HEAD + self.message.len() + if self.offset.is_some() { 8 } else { 0 }
    }

    /// Never: a payload has at least its error and the length of its message.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Appends the payload. The message is cut to what its length field can say.
    pub fn put(&self, out: &mut Vec<u8>) {
        let len = u16::try_from(self.message.len()).unwrap_or(u16::MAX);
        put_u32(out, self.error);
        put_u16(out, len);
        out.extend_from_slice(&self.message[..usize::from(len)]);
        if let Some(offset) = self.offset {
            put_u64(out, offset);
        }
    }

    /// Reads a whole payload of a chunk of this type; `None` if the message does not fit, or an
    /// ERROR_OFFSET has no offset. Bytes that follow in an unknown error type are left unread.
    #[must_use]
    pub fn decode(chunk: ChunkType, payload: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let error = fields.u32()?;
        let len = fields.u16()?;
        let message = fields.take(usize::from(len))?;
        let offset = if chunk == ChunkType::ERROR_OFFSET { Some(fields.u64()?) } else { None };
        Some(Self { error, message, offset })
    }
}

//! The request header, compact and extended.

use super::{
    Command, CommandFlags, EXTENDED_REQUEST_MAGIC, Fields, Mode, REQUEST_MAGIC, put_u16, put_u32,
    put_u64,
};

/// One request header. The compact form carries 32 bits of `length`, the extended form 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The flags beside the command.
    pub flags: CommandFlags,
    /// The command.
    pub command: Command,
    /// The client's word for this request; opaque to the server.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range, or of the payload: see [`Request::payload_len`].
    pub length: u64,
}

/// The request a reply answers: the cookie, and the request's offset, which an extended reply
/// repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// The request's cookie.
    pub cookie: u64,
    /// The request's offset in bytes, whatever part of the range a chunk is about.
    pub offset: u64,
}

impl Request {
    /// Bytes of a compact request header.
    pub const COMPACT_LEN: usize = 28;
    /// Bytes of an extended request header.
    pub const EXTENDED_LEN: usize = 32;

    /// A request without flags.
    #[must_use]
    pub const fn new(command: Command, cookie: u64, offset: u64, length: u64) -> Self {
        Self { flags: CommandFlags::EMPTY, command, cookie, offset, length }
    }

    /// The same request with these flags in addition.
    #[must_use]
    pub const fn with(self, flags: CommandFlags) -> Self {
        Self { flags: self.flags.with(flags), ..self }
    }

    /// Bytes of payload that follow this header on the wire.
    ///
    /// Compact: the length of a WRITE, nothing for every other command. Extended: the length, if
    /// and only if PAYLOAD_LEN is set, whatever the command.
    #[must_use]
    #[inline]
    pub const fn payload_len(&self, mode: Mode) -> u64 {
        let has_payload = match mode {
            Mode::Simple | Mode::Structured => self.command.0 == Command::WRITE.0,
            Mode::Extended => self.flags.contains(CommandFlags::PAYLOAD_LEN),
        };
        if has_payload { self.length } else { 0 }
    }

    /// The address of a reply to this request.
    #[must_use]
    #[inline]
    pub const fn reply_to(&self) -> ReplyTo {
        ReplyTo { cookie: self.cookie, offset: self.offset }
    }

    /// Reads a compact header off the front of `bytes`; `None` if it is too short or the magic is
    /// another.
    #[must_use]
    #[inline]
    pub fn decode_compact(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes.get(..Self::COMPACT_LEN)?);
        (fields.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(Self {
            flags: CommandFlags::from_bits(fields.u16()?),
            command: Command(fields.u16()?),
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: u64::from(fields.u32()?),
        })
    }

    /// Reads an extended header off the front of `bytes`; `None` if it is too short or the magic
    /// is another.
    #[must_use]
    #[inline]
    pub fn decode_extended(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes.get(..Self::EXTENDED_LEN)?);
        (fields.u32()? == EXTENDED_REQUEST_MAGIC).then_some(())?;
        Some(Self {
            flags: CommandFlags::from_bits(fields.u16()?),
            command: Command(fields.u16()?),
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u64()?,
        })
    }

    /// Appends the compact form. `length` has to fit 32 bits: `None`, and nothing appended, if it
    /// does not.
    #[must_use = "None means nothing was encoded"]
    pub fn put_compact(&self, out: &mut Vec<u8>) -> Option<()> {
        let length = u32::try_from(self.length).ok()?;
        self.put_head(REQUEST_MAGIC, out);
        put_u32(out, length);
        Some(())
    }

    /// Appends the extended form.
    pub fn put_extended(&self, out: &mut Vec<u8>) {
        self.put_head(EXTENDED_REQUEST_MAGIC, out);
        put_u64(out, self.length);
    }

    fn put_head(&self, magic: u32, out: &mut Vec<u8>) {
        out.reserve(Self::EXTENDED_LEN);
        put_u32(out, magic);
        put_u16(out, self.flags.bits());
        put_u16(out, self.command.0);
        put_u64(out, self.cookie);
        put_u64(out, self.offset);
    }
}

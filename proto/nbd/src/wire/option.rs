//! The handshake's structures: greeting, options, option replies and what they carry.

use super::{
    EXPORT_NAME_ZEROES, Fields, HandshakeFlags, InfoType, NBD_MAGIC, OPTION_MAGIC,
    OPTION_REPLY_MAGIC, OptionCode, OptionReplyCode, PAYLOAD_MAX_DEFAULT, TransmissionFlags,
    put_u16, put_u32, put_u64,
};

/// The first bytes of a newstyle server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The flags the server offers.
    pub flags: HandshakeFlags,
}

impl Greeting {
    /// Bytes of the greeting.
    pub const LEN: usize = 18;

    /// Appends the greeting.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, NBD_MAGIC);
        put_u64(out, OPTION_MAGIC);
        put_u16(out, self.flags.bits());
    }

    /// Reads one off the front of `bytes`; `None` if too short or not newstyle.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u64()? == NBD_MAGIC && fields.u64()? == OPTION_MAGIC).then_some(())?;
        Some(Self { flags: HandshakeFlags::from_bits(fields.u16()?) })
    }
}

/// The header of an option; `length` bytes of data follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option asked for.
    pub code: OptionCode,
    /// Bytes of data.
    pub length: u32,
}

impl OptionHeader {
    /// Bytes of the header.
    pub const LEN: usize = 16;

    /// Reads one off the front of `bytes`; `None` if too short or of another magic.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u64()? == OPTION_MAGIC).then_some(())?;
        Some(Self { code: OptionCode(fields.u32()?), length: fields.u32()? })
    }
}

/// The header of an option reply; `length` bytes of data follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option this answers.
    pub option: OptionCode,
    /// The answer.
    pub code: OptionReplyCode,
    /// Bytes of data.
    pub length: u32,
}

impl OptionReplyHeader {
    /// Bytes of the header.
    pub const LEN: usize = 20;

    /// Reads one off the front of `bytes`; `None` if too short or of another magic.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u64()? == OPTION_REPLY_MAGIC).then_some(())?;
        Some(Self {
            option: OptionCode(fields.u32()?),
            code: OptionReplyCode(fields.u32()?),
            length: fields.u32()?,
        })
    }
}

/// Appends an option whose data `data` appends; its length is filled in afterwards.
pub fn put_option(out: &mut Vec<u8>, code: OptionCode, data: impl FnOnce(&mut Vec<u8>)) {
    put_u64(out, OPTION_MAGIC);
    put_u32(out, code.0);
    put_counted(out, data);
}

/// Appends an option reply whose data `data` appends; its length is filled in afterwards.
pub fn put_option_reply(
    out: &mut Vec<u8>,
    option: OptionCode,
    code: OptionReplyCode,
    data: impl FnOnce(&mut Vec<u8>),
) {
    put_u64(out, OPTION_REPLY_MAGIC);
    put_u32(out, option.0);
    put_u32(out, code.0);
    put_counted(out, data);
}

/// Appends a 32-bit length and what `data` appends. The handshake's data is made of strings of
/// at most 4096 bytes, far from what 32 bits can count.
fn put_counted(out: &mut Vec<u8>, data: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    put_u32(out, 0);
    data(out);
    let len = u32::try_from(out.len() - at - 4).expect("option data shorter than 4 GiB");
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

/// The answer to EXPORT_NAME, and the payload of an EXPORT info: what there is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportSize {
    /// Size of the export in bytes.
    pub size: u64,
    /// The abilities of the export.
    pub flags: TransmissionFlags,
}

impl ExportSize {
    /// Bytes without the zeroes that may follow an EXPORT_NAME answer.
    pub const LEN: usize = 10;

    /// Reads one off the front of `bytes`.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self { size: fields.u64()?, flags: TransmissionFlags::from_bits(fields.u16()?) })
    }
}

/// Appends the answer to EXPORT_NAME, with its zeroes unless `no_zeroes` was agreed on.
pub fn put_export_name_reply(out: &mut Vec<u8>, export: ExportSize, no_zeroes: bool) {
    put_u64(out, export.size);
    put_u16(out, export.flags.bits());
    if !no_zeroes {
        out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
    }
}

/// Appends the data of an EXPORT info.
pub fn put_export_size(out: &mut Vec<u8>, export: ExportSize) {
    put_u16(out, InfoType::EXPORT.0);
    put_u64(out, export.size);
    put_u16(out, export.flags.bits());
}

/// Appends the data of a NAME or DESCRIPTION info.
pub fn put_info_text(out: &mut Vec<u8>, info: InfoType, text: &str) {
    put_u16(out, info.0);
    out.extend_from_slice(text.as_bytes());
}

/// The sizes requests have to keep to, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of this power of two, at most 65536.
    pub minimum: u32,
    /// Multiples of this power of two are efficient; at least `minimum`.
    pub preferred: u32,
    /// Longest payload of one request; `u32::MAX` means no fixed limit.
    pub maximum: u32,
}

impl BlockSizes {
    /// Bytes of the payload behind the info type.
    pub const LEN: usize = 12;
    /// The sizes that hold when a server says nothing ("Size constraints").
    pub const UNADVERTISED: Self =
        Self { minimum: 1, preferred: 4096, maximum: PAYLOAD_MAX_DEFAULT };

    /// Whether the three sizes obey the protocol: minimum a power of two of at most 65536,
    /// preferred a power of two of at least the minimum, maximum at least preferred.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.minimum.is_power_of_two()
            && self.minimum <= 1 << 16
            && self.preferred.is_power_of_two()
            && self.preferred >= self.minimum
            && self.maximum >= self.preferred
    }

    /// Reads the payload behind the info type.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self { minimum: fields.u32()?, preferred: fields.u32()?, maximum: fields.u32()? })
    }
}

/// Appends the data of a BLOCK_SIZE info.
pub fn put_block_sizes(out: &mut Vec<u8>, sizes: BlockSizes) {
    put_u16(out, InfoType::BLOCK_SIZE.0);
    put_u32(out, sizes.minimum);
    put_u32(out, sizes.preferred);
    put_u32(out, sizes.maximum);
}

/// The data of a SERVER reply: one export of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportEntry<'a> {
    /// The export's name, as it came.
    pub name: &'a [u8],
    /// Words for a person, as they came; often empty.
    pub description: &'a [u8],
}

impl<'a> ExportEntry<'a> {
    /// Reads the whole data of a SERVER reply.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        Some(Self { name: fields.counted()?, description: fields.0 })
    }
}

/// Appends the data of a SERVER reply.
pub fn put_export_entry(out: &mut Vec<u8>, name: &str, description: &str) {
    put_counted(out, |out| out.extend_from_slice(name.as_bytes()));
    out.extend_from_slice(description.as_bytes());
}

/// The data of an INFO or GO option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoQuery<'a> {
    /// The export's name, as it came; empty for the default export.
    pub name: &'a [u8],
    /// The list of info types, two bytes each.
    infos: &'a [u8],
}

impl<'a> InfoQuery<'a> {
    /// Reads the whole data of the option; `None` unless its counts fill it exactly.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.counted()?;
        let count = usize::from(fields.u16()?);
        (fields.0.len() == 2 * count).then_some(Self { name, infos: fields.0 })
    }

    /// The info types asked for, in the client's order.
    pub fn infos(&self) -> impl Iterator<Item = InfoType> + 'a {
        self.infos.chunks_exact(2).map(|pair| InfoType(u16::from_be_bytes([pair[0], pair[1]])))
    }

    /// Whether this info type was asked for.
    #[must_use]
    pub fn wants(&self, info: InfoType) -> bool {
        self.infos().any(|asked| asked == info)
    }
}

/// Appends the data of an INFO or GO option. At most 65535 info types are counted.
pub fn put_info_query(out: &mut Vec<u8>, name: &str, infos: &[InfoType]) {
    put_counted(out, |out| out.extend_from_slice(name.as_bytes()));
    let count = u16::try_from(infos.len()).unwrap_or(u16::MAX);
    put_u16(out, count);
    infos.iter().take(usize::from(count)).for_each(|info| put_u16(out, info.0));
}

/// The data of a LIST_META_CONTEXT or SET_META_CONTEXT option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaQuery<'a> {
    /// The export's name, as it came; empty for the default export.
    pub name: &'a [u8],
    /// How many queries there are; none asks for all contexts, or sets none.
    pub count: u32,
    /// The queries, each behind its 32-bit length.
    queries: &'a [u8],
}

impl<'a> MetaQuery<'a> {
    /// Reads the whole data of the option; `None` unless its counts fill it exactly.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let name = fields.counted()?;
        let count = fields.u32()?;
        let queries = fields.0;
        // Each turn takes at least four bytes, so a hostile count ends with the data.
        for _ in 0..count {
            fields.counted()?;
        }
        fields.0.is_empty().then_some(Self { name, count, queries })
    }

    /// The queries, as they came.
    pub fn queries(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut fields = Fields(self.queries);
        std::iter::from_fn(move || fields.counted())
    }
}

/// Appends the data of a LIST_META_CONTEXT or SET_META_CONTEXT option.
pub fn put_meta_query(out: &mut Vec<u8>, name: &str, queries: &[&str]) {
    put_counted(out, |out| out.extend_from_slice(name.as_bytes()));
    put_u32(out, u32::try_from(queries.len()).expect("fewer than 2^32 queries"));
    for query in queries {
        put_counted(out, |out| out.extend_from_slice(query.as_bytes()));
    }
}

/// The data of a META_CONTEXT reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaContext<'a> {
    /// The number status chunks of this connection use for the context.
    pub id: u32,
    /// The context's name, as it came.
    pub name: &'a [u8],
}

impl<'a> MetaContext<'a> {
    /// Reads the whole data of a META_CONTEXT reply.
    #[must_use]
    pub fn decode(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        Some(Self { id: fields.u32()?, name: fields.0 })
    }
}

/// Appends the data of a META_CONTEXT reply.
pub fn put_meta_context(out: &mut Vec<u8>, id: u32, name: &str) {
    put_u32(out, id);
    out.extend_from_slice(name.as_bytes());
}

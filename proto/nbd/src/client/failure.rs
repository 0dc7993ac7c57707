//! Why a client gives up on a server. Each names the value, the bound and the place.

use crate::wire::{
    BlockSizes, ChunkType, Command, Mode, OPTION_REPLY_MAGIC, OptionCode, OptionReplyCode,
    TransmissionFlags,
};
use std::fmt;

/// The longest option reply data a client accepts, in bytes. The longest legal one is a list
/// entry, a name and a description.
pub const REPLY_DATA_MAX: u32 = 16 << 10;
/// The replies to one option a client accepts.
pub const REPLIES_MAX: u32 = 1000;

/// Why a handshake did not end in transmission. The connection has to be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    /// The server speaks the oldstyle handshake.
    Oldstyle,
    /// The greeting starts with other bytes than NBDMAGIC IHAVEOPT.
    NotNbd([u8; 16]),
    /// An option reply starts with these eight bytes.
    ReplyMagic(u64),
    /// The server answers an option that is not the one asked.
    WrongOption {
        /// The option it answers.
        answered: OptionCode,
        /// The option that was asked.
        asked: OptionCode,
    },
    /// A reply with data longer than [`REPLY_DATA_MAX`].
    ReplyTooLong {
        /// The option it answers.
        option: OptionCode,
        /// Bytes of data it announced.
        length: u32,
    },
    /// More than [`REPLIES_MAX`] replies to one option.
    TooManyReplies(OptionCode),
    /// A reply whose code or data does not fit the option.
    BadReply {
        /// The option it answers.
        option: OptionCode,
        /// The reply's code.
        code: OptionReplyCode,
        /// Bytes of its data.
        length: usize,
    },
    /// The server refused what cannot be done without. An ABORT has been appended to the output.
    Refused {
        /// The option.
        option: OptionCode,
        /// Its answer.
        code: OptionReplyCode,
        /// Its words, if any.
        message: String,
    },
    /// TLS is wanted, and the server knows no option but EXPORT_NAME.
    NotFixed,
    /// So many bytes stood behind the grant of STARTTLS, where only TLS may begin.
    BehindStartTls(usize),
    /// GO was granted without an EXPORT info.
    NoExportInfo,
    /// The transmission flags lack HAS_FLAGS, which every server sets.
    NoFlags(TransmissionFlags),
    /// Block sizes against the protocol.
    BlockSizes(BlockSizes),
    /// The handshake is already over.
    Over,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oldstyle => f.write_str("server speaks the oldstyle handshake, without names"),
            Self::NotNbd(bytes) => write!(f, "not an NBD server: it greets with {bytes:02x?}"),
            Self::ReplyMagic(magic) => {
                write!(f, "option reply starts with {magic:#018x}, not {OPTION_REPLY_MAGIC:#018x}")
            }
            Self::WrongOption { answered, asked } => {
                write!(f, "server answers option {answered}, asked was {asked}")
            }
            Self::ReplyTooLong { option, length } => write!(
                f,
                "reply to option {option} has {length} bytes of data, the bound is \
                 {REPLY_DATA_MAX}"
            ),
            Self::TooManyReplies(option) => {
                write!(f, "more than {REPLIES_MAX} replies to option {option}")
            }
            Self::BadReply { option, code, length } => {
                write!(f, "reply {code} with {length} bytes does not fit option {option}")
            }
            Self::Refused { option: OptionCode::STARTTLS, code, message } => {
                write!(f, "server does not offer TLS, which is required here: {code} {message:?}")
            }
            Self::Refused { code: OptionReplyCode::ERR_TLS_REQD, .. } => {
                f.write_str("server requires TLS, and the target does not ask for it")
            }
            Self::NotFixed => f.write_str(
                "server does not offer TLS, which is required here: it knows no option for it",
            ),
            Self::BehindStartTls(bytes) => {
                write!(f, "server sent {bytes} bytes behind its answer to STARTTLS")
            }
            Self::Refused { option, code, message } if message.is_empty() => {
                write!(f, "server refuses option {option} with {code}")
            }
            Self::Refused { option, code, message } => {
                write!(f, "server refuses option {option} with {code}: {message:?}")
            }
            Self::NoExportInfo => f.write_str("server granted GO without telling the size"),
            Self::NoFlags(flags) => write!(f, "transmission flags {flags:?} lack HAS_FLAGS"),
            Self::BlockSizes(BlockSizes { minimum, preferred, maximum }) => write!(
                f,
                "block sizes minimum {minimum}, preferred {preferred}, maximum {maximum} are not \
                 two powers of two and a bound, in order, the first at most 65536"
            ),
            Self::Over => f.write_str("handshake is over"),
        }
    }
}

impl std::error::Error for HandshakeError {}

/// Why the stream of replies cannot be followed any further. The connection has to be closed, and
/// what is in flight on it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// A reply starts with these four bytes, which no reply of this mode does.
    Magic(u32, Mode),
    /// A reply to nothing in flight: its cookie.
    UnknownCookie(u64),
    /// An extended reply whose offset is not that of its request.
    Offset {
        /// The request's cookie.
        cookie: u64,
        /// The offset in the reply.
        found: u64,
        /// The offset of the request.
        expected: u64,
    },
    /// A chunk that cannot answer this command, or not in this mode.
    Chunk {
        /// The request's cookie.
        cookie: u64,
        /// The chunk's type.
        chunk: ChunkType,
        /// The request's command.
        command: Command,
    },
    /// A simple reply to a READ though structured replies were agreed on: the cookie.
    SimpleRead(u64),
    /// A chunk whose payload length does not fit its type.
    Length {
        /// The chunk's type.
        chunk: ChunkType,
        /// Bytes of payload.
        length: u64,
    },
    /// Data or a hole outside what was asked for, or of no bytes.
    Range {
        /// The request's cookie.
        cookie: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Data or a hole that overlaps an earlier one.
    Overlap {
        /// The request's cookie.
        cookie: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// A read that comes in more separate places at a time than are kept account of: the cookie.
    Scattered(u64),
    /// A read reported as done with bytes missing.
    Short {
        /// The request's cookie.
        cookie: u64,
        /// Bytes that never came.
        missing: u64,
    },
    /// A BLOCK_STATUS reported as done without a status: the cookie.
    NoStatus(u64),
    /// A status of a context that was not negotiated, or twice: cookie and context.
    Context(u64, u32),
    /// An extent of no bytes, one that starts where nothing was asked, or one too many.
    Extent {
        /// The request's cookie.
        cookie: u64,
        /// Where it starts, from the start of the export.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// An error chunk whose error is zero, or whose message does not fit: the cookie.
    BadErrorChunk(u64),
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(found, mode) => {
                write!(f, "reply starts with {found:#010x}, which is none in {mode:?} mode")
            }
            Self::UnknownCookie(cookie) => write!(f, "reply to unknown cookie {cookie:#x}"),
            Self::Offset { cookie, found, expected } => {
                write!(f, "reply to {cookie:#x} repeats offset {found}, asked was {expected}")
            }
            Self::Chunk { cookie, chunk, command } => {
                write!(f, "chunk {chunk} cannot answer {command} (cookie {cookie:#x})")
            }
            Self::SimpleRead(cookie) => {
                write!(f, "simple reply to READ (cookie {cookie:#x}) among structured replies")
            }
            Self::Length { chunk, length } => {
                write!(f, "chunk {chunk} with a payload of {length} bytes")
            }
            Self::Range { cookie, offset, length } => {
                write!(f, "{length} bytes at {offset} were not asked for (cookie {cookie:#x})")
            }
            Self::Overlap { cookie, offset, length } => {
                write!(f, "{length} bytes at {offset} came before (cookie {cookie:#x})")
            }
            Self::Scattered(cookie) => write!(
                f,
                "read (cookie {cookie:#x}) comes in more than {} separate places",
                super::coverage::PLACES
            ),
            Self::Short { cookie, missing } => {
                write!(f, "read (cookie {cookie:#x}) is done with {missing} bytes missing")
            }
            Self::NoStatus(cookie) => {
                write!(f, "BLOCK_STATUS (cookie {cookie:#x}) is done without a status")
            }
            Self::Context(cookie, context) => {
                write!(f, "status of context {context} was not due (cookie {cookie:#x})")
            }
            Self::Extent { cookie, offset, length } => {
                write!(f, "extent of {length} bytes at {offset} was not due (cookie {cookie:#x})")
            }
            Self::BadErrorChunk(cookie) => {
                write!(f, "error chunk without error, or its message too long ({cookie:#x})")
            }
        }
    }
}

impl std::error::Error for ReplyError {}

//! The one place that decides whether a request may be done.
//!
//! The order of the rules is the order of the code in [`Geometry::check`]: the command and its
//! flags, the right to write, the payload, the shape of the range, its end. Whatever is refused
//! is refused in step: the answer says how many payload bytes have to be dropped, or that the
//! connection has to end because dropping them would serve an attack.
//!
//! Source: NBD protocol, "Command flags", "Size constraints", "Request types", "Error values".

use crate::NbdError;
use crate::wire::{Command, CommandFlags, Mode, PAYLOAD_MAX_DEFAULT, Request, TransmissionFlags};
use std::fmt;

/// Refused payload up to this many bytes is dropped and the session goes on; above it the
/// connection ends. Text: payloads of up to 2^25 bytes should not be taken for an attack.
pub const DRAIN_MAX: u32 = PAYLOAD_MAX_DEFAULT;

/// The longest read of an export without a fixed maximum, in bytes: a structured chunk counts the
/// data and its offset in 32 bits.
const READ_MAX: u32 = u32::MAX - 8;

/// The rules one client's requests are held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// How requests look.
    pub mode: Mode,
    /// Size of the export in bytes.
    pub size: u64,
    /// Where the export begins on its device, a multiple of `device_block`, in bytes: the ranges of
    /// checked requests are the device's, those of refused ones the client's.
    pub start: u64,
    /// Offsets and lengths are multiples of this power of two, in bytes; others are refused.
    pub minimum_block: u32,
    /// The device's block, a power of two, in bytes: a range that is no multiple of it is
    /// [unaligned](Checked::Unaligned).
    pub device_block: u32,
    /// Longest payload of one request or reply, in bytes.
    pub payload_max: u32,
    /// The flags the client was told.
    pub flags: TransmissionFlags,
    /// Whether the client selected a metadata context.
    pub block_status: bool,
}

/// A range of bytes inside the export, as the device counts them; not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// A request that may be done, with the flags that mean something for it. Ranges are whole blocks
/// of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Read a range of at most `payload_max` bytes.
    Read {
        /// The range to read.
        range: Range,
        /// DF: answer with one content chunk, zeroes spelled out.
        whole: bool,
    },
    /// Write the payload, at most `payload_max` bytes, to a range.
    Write {
        /// The range to write.
        range: Range,
        /// Answer only once it is on stable storage.
        fua: bool,
    },
    /// Finish what came before, answer it, close. Has no reply, whatever its fields hold.
    Disconnect,
    /// Make every answered write durable.
    Flush,
    /// The range is no longer needed.
    Trim {
        /// The range to discard.
        range: Range,
        /// Answer only once it is on stable storage.
        fua: bool,
    },
    /// The range will be needed soon.
    Cache {
        /// The range to prefetch.
        range: Range,
    },
    /// Make the range read as zeroes; may be longer than any payload.
    WriteZeroes {
        /// The range to zero.
        range: Range,
        /// Answer only once it is on stable storage.
        fua: bool,
        /// Leave the range allocated.
        no_hole: bool,
        /// ENOTSUP unless faster than writing zeroes.
        fast: bool,
    },
    /// Report the extents of a range.
    BlockStatus {
        /// The range to report on.
        range: Range,
        /// Report exactly one extent, not beyond the range.
        one: bool,
    },
    /// One of these with a range that begins or ends inside a block of the device.
    Unaligned {
        /// The range asked for.
        range: Range,
        /// The command.
        act: Act,
    },
}

/// The command for an unaligned range; the fields are those of [`Checked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// As [`Checked::Read`].
    Read {
        /// DF was set.
        whole: bool,
    },
    /// As [`Checked::Write`].
    Write {
        /// FUA was set.
        fua: bool,
    },
    /// As [`Checked::Trim`].
    Trim {
        /// FUA was set.
        fua: bool,
    },
    /// As [`Checked::Cache`].
    Cache,
    /// As [`Checked::WriteZeroes`].
    WriteZeroes {
        /// FUA was set.
        fua: bool,
        /// NO_HOLE was set.
        no_hole: bool,
        /// FAST_ZERO was set.
        fast: bool,
    },
    /// As [`Checked::BlockStatus`].
    BlockStatus {
        /// REQ_ONE was set.
        one: bool,
    },
}

/// A request that may not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The error to answer.
    pub error: NbdError,
    /// Why, with the value and its bound; its display is the text of a structured error.
    pub why: Why,
    /// How to stay in step, or not.
    pub then: Then,
}

/// How the stream goes on after a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Drop so many payload bytes (often none) and go on.
    Drain(u32),
    /// Answer the error and what is outstanding, then close: the payload is longer than
    /// [`DRAIN_MAX`] and the bound, and will not be received.
    Close,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No such command.
    UnknownCommand(Command),
    /// The export does not offer the command.
    NotOffered(Command),
    /// These flags are unknown, not valid for the command, or need a feature that was not agreed
    /// on.
    Flags(Command, CommandFlags),
    /// An extended WRITE without PAYLOAD_LEN.
    NoPayload,
    /// The export is read-only.
    ReadOnly(Command),
    /// A payload longer than the bound, in bytes.
    PayloadTooLong(u64, u32),
    /// A read longer than the bound, in bytes.
    ReadTooLong(u64, u32),
    /// A range of no bytes.
    Empty(Command),
    /// An offset or length that is no multiple of the minimum block.
    Misaligned(Range, u32),
    /// A range that ends behind the export, whose size is given.
    PastEnd(Range, u64),
    /// A FLUSH with an offset or length.
    FlushRange(Range),
    /// BLOCK_STATUS without a selected context.
    NoContext,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCommand(command) => write!(f, "unknown command {command}"),
            Self::NotOffered(command) => write!(f, "{command} is not offered by this export"),
            Self::Flags(command, flags) => {
                write!(f, "flags {:#x} are not valid for {command} here", flags.bits())
            }
            Self::NoPayload => f.write_str("WRITE with extended headers needs flag PAYLOAD_LEN"),
            Self::ReadOnly(command) => write!(f, "{command} on a read-only export"),
            Self::PayloadTooLong(length, bound) => {
                write!(f, "payload of {length} bytes exceeds {bound}")
            }
            Self::ReadTooLong(length, bound) => write!(f, "read of {length} bytes exceeds {bound}"),
            Self::Empty(command) => write!(f, "{command} of no bytes"),
            Self::Misaligned(Range { offset, length }, block) => {
                write!(f, "offset {offset} or length {length} is no multiple of {block}")
            }
            Self::PastEnd(Range { offset, length }, size) => {
                write!(f, "{length} bytes at {offset} end behind the export's {size}")
            }
            Self::FlushRange(Range { offset, length }) => {
                write!(f, "FLUSH with offset {offset} and length {length}, both must be 0")
            }
            Self::NoContext => f.write_str("BLOCK_STATUS without a negotiated context"),
        }
    }
}

impl std::error::Error for Why {}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error, self.why)
    }
}

impl std::error::Error for Reject {}

/// A rule's verdict before it is known what becomes of the payload.
type Rule<T> = Result<T, (NbdError, Why)>;

impl Geometry {
    /// Decides whether `request` may be done. Panics on nothing a client can send.
    ///
    /// # Errors
    /// A [`Reject`]: `EINVAL` for an unknown or unoffered command, an invalid flag, an empty,
    /// misaligned or overlong range; `EPERM` for a write of any kind on a read-only export;
    /// `ENOSPC` for WRITE and WRITE_ZEROES past the end; `EOVERFLOW` for a read longer than the
    /// maximum payload.
    #[inline]
    pub fn check(&self, request: &Request) -> Result<Checked, Reject> {
        self.judge(request).map_err(|(error, why)| self.reject(request, error, why))
    }

    /// Adds to a verdict what becomes of the request's payload.
    #[cold]
    fn reject(&self, request: &Request, error: NbdError, why: Why) -> Reject {
        let then = match u32::try_from(request.payload_len(self.mode)) {
            Ok(len) if len <= DRAIN_MAX.max(self.payload_max) => Then::Drain(len),
            _ => Then::Close,
        };
        Reject { error, why, then }
    }

    #[inline]
    fn judge(&self, request: &Request) -> Rule<Checked> {
        let command = request.command;
        if command == Command::DISC {
            return Ok(Checked::Disconnect);
        }
        self.judge_flags(request)?;
        self.judge_command(command)?;
        let payload = request.payload_len(self.mode);
        if payload > u64::from(self.payload_max) {
            return Err((NbdError::Inval, Why::PayloadTooLong(payload, self.payload_max)));
        }
        if command == Command::FLUSH {
            let Request { offset, length, .. } = *request;
            if offset != 0 || length != 0 {
                return Err((NbdError::Inval, Why::FlushRange(Range { offset, length })));
            }
            return Ok(Checked::Flush);
        }
        if (request.offset | request.length) & self.mask() != 0 {
            return self.judge_unaligned(request);
        }
        let range = self.judge_range(request)?;
        Ok(Self::checked(request, range))
    }

    /// The bits that neither an offset nor a length of a plain request has.
    #[inline]
    fn mask(&self) -> u64 {
        u64::from(self.minimum_block.max(self.device_block).max(1)) - 1
    }

    /// The checked form of a request with a good range.
    #[inline]
    fn checked(request: &Request, range: Range) -> Checked {
        let has = |flag| request.flags.contains(flag);
        let fua = has(CommandFlags::FUA);
        match request.command {
            Command::READ => Checked::Read { range, whole: has(CommandFlags::DF) },
            Command::WRITE => Checked::Write { range, fua },
            Command::TRIM => Checked::Trim { range, fua },
            Command::CACHE => Checked::Cache { range },
            Command::WRITE_ZEROES => Checked::WriteZeroes {
                range,
                fua,
                no_hole: has(CommandFlags::NO_HOLE),
                fast: has(CommandFlags::FAST_ZERO),
            },
            // The command rule has let nothing else through.
            _ => Checked::BlockStatus { range, one: has(CommandFlags::REQ_ONE) },
        }
    }

    /// A range that is no multiple of the minimum block or of the device's.
    #[cold]
    fn judge_unaligned(&self, request: &Request) -> Rule<Checked> {
        let Request { offset, length, .. } = *request;
        let minimum = u64::from(self.minimum_block.max(1));
        if length > 0 && (offset | length) & (minimum - 1) != 0 {
            let why = Why::Misaligned(Range { offset, length }, self.minimum_block);
            return Err((NbdError::Inval, why));
        }
        let range = self.judge_range(request)?;
        let act = match Self::checked(request, range) {
            Checked::Read { whole, .. } => Act::Read { whole },
            Checked::Write { fua, .. } => Act::Write { fua },
            Checked::Trim { fua, .. } => Act::Trim { fua },
            Checked::Cache { .. } => Act::Cache,
            Checked::WriteZeroes { fua, no_hole, fast, .. } => {
                Act::WriteZeroes { fua, no_hole, fast }
            }
            Checked::BlockStatus { one, .. } => Act::BlockStatus { one },
            other @ (Checked::Disconnect | Checked::Flush | Checked::Unaligned { .. }) => {
                return Ok(other);
            }
        };
        Ok(Checked::Unaligned { range, act })
    }

    /// Holds the flags against the command and against what was agreed on.
    #[inline]
    fn judge_flags(&self, request: &Request) -> Rule<()> {
        use CommandFlags as F;
        let offers = |flag, offered| if self.flags.contains(offered) { flag } else { F::EMPTY };
        // FUA is accepted on any command once offered, even where there is nothing to write.
        let mut valid = offers(F::FUA, TransmissionFlags::SEND_FUA);
        match request.command {
            Command::READ => valid = valid | offers(F::DF, TransmissionFlags::SEND_DF),
            Command::WRITE if self.mode == Mode::Extended => {
                if !request.flags.contains(F::PAYLOAD_LEN) {
                    return Err((NbdError::Inval, Why::NoPayload));
                }
                valid = valid | F::PAYLOAD_LEN;
            }
            Command::WRITE_ZEROES => {
                let fast = offers(F::FAST_ZERO, TransmissionFlags::SEND_FAST_ZERO);
                valid = valid | F::NO_HOLE | fast;
            }
            Command::BLOCK_STATUS => valid = valid | F::REQ_ONE,
            _ => {}
        }
        match request.flags.without(valid) {
            F::EMPTY => Ok(()),
            flags => Err((NbdError::Inval, Why::Flags(request.command, flags))),
        }
    }

    /// Whether the command exists, may be used on this export, and was offered.
    #[inline]
    fn judge_command(&self, command: Command) -> Rule<()> {
        use TransmissionFlags as F;
        let writes = matches!(command, Command::WRITE | Command::TRIM | Command::WRITE_ZEROES);
        if writes && self.flags.contains(F::READ_ONLY) {
            return Err((NbdError::Perm, Why::ReadOnly(command)));
        }
        let offered = match command {
            // Clients exist that send CACHE where it was not offered; a hint does no harm.
            Command::READ | Command::WRITE | Command::CACHE => true,
            Command::FLUSH => self.flags.contains(F::SEND_FLUSH),
            Command::TRIM => self.flags.contains(F::SEND_TRIM),
            Command::WRITE_ZEROES => self.flags.contains(F::SEND_WRITE_ZEROES),
            Command::BLOCK_STATUS if self.block_status => true,
            Command::BLOCK_STATUS => return Err((NbdError::Inval, Why::NoContext)),
            _ => return Err((NbdError::Inval, Why::UnknownCommand(command))),
        };
        if offered { Ok(()) } else { Err((NbdError::Inval, Why::NotOffered(command))) }
    }

    /// Holds the range against the end, and for a read against the maximum payload.
    #[inline]
    fn judge_range(&self, request: &Request) -> Rule<Range> {
        let range = Range { offset: request.offset, length: request.length };
        if range.length == 0 {
            return Err((NbdError::Inval, Why::Empty(request.command)));
        }
        let inside = range.offset.checked_add(range.length).is_some_and(|end| end <= self.size);
        if !inside {
            let error = match request.command {
                Command::WRITE | Command::WRITE_ZEROES => NbdError::NoSpc,
                _ => NbdError::Inval,
            };
            return Err((error, Why::PastEnd(range, self.size)));
        }
        let read_max = self.payload_max.min(READ_MAX);
        if request.command == Command::READ && range.length > u64::from(read_max) {
            return Err((NbdError::Overflow, Why::ReadTooLong(range.length, read_max)));
        }
        // Does not overflow: the export lies inside a device.
        Ok(Range { offset: range.offset + self.start, ..range })
    }
}

//! Requests on their way out, and what is remembered of them until the reply.

use super::ReplyError;
use super::coverage::{Coverage, Refused};
use crate::NbdError;
use crate::wire::{Command, CommandFlags, Mode, Request};
use std::collections::BTreeMap;
use std::fmt;

/// A length the mode or the command cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The command.
    pub command: Command,
    /// Bytes asked for.
    pub length: u64,
    /// Bytes that can be asked for.
    pub bound: u64,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, length, bound } = self;
        write!(f, "{command} of {length} bytes exceeds the {bound} a request can carry")
    }
}

impl std::error::Error for TooLong {}

/// Encodes requests for one server. Copy it where it is needed; it is one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    mode: Mode,
}

impl Requests {
    /// The encoder for a mode.
    #[must_use]
    pub const fn new(mode: Mode) -> Self {
        Self { mode }
    }

    /// Appends the header of a request, [`Mode::request_len`] bytes, and returns what has to be
    /// kept for its reply. For a WRITE, `length` bytes of data have to follow.
    ///
    /// PAYLOAD_LEN is set and cleared as the mode demands. Whether the server allows the request
    /// is for the caller to know ([`super::ServerInfo`]).
    ///
    /// # Errors
    /// [`TooLong`], with nothing appended, if the length does not fit: 32 bits for READ and WRITE
    /// in any mode and for every command without extended headers.
    #[inline]
    pub fn push(&self, request: &Request, out: &mut Vec<u8>) -> Result<Pending, TooLong> {
        let command = request.command;
        let bound = match command {
            Command::READ | Command::WRITE => u64::from(u32::MAX),
            _ => self.mode.length_max(),
        };
        let too_long = TooLong { command, length: request.length, bound };
        if request.length > bound {
            return Err(too_long);
        }
        let mut flags = request.flags.without(CommandFlags::PAYLOAD_LEN);
        if self.mode == Mode::Extended {
            if command == Command::WRITE {
                flags = flags | CommandFlags::PAYLOAD_LEN;
            }
            Request { flags, ..*request }.put_extended(out);
        } else {
            Request { flags, ..*request }.put_compact(out).ok_or(too_long)?;
        }
        Ok(Pending::new(request))
    }
}

/// The facts of a request that are kept until its reply is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub(super) command: Command,
    pub(super) offset: u64,
    pub(super) length: u64,
    /// REQ_ONE.
    pub(super) one: bool,
    /// Whether a status has come.
    pub(super) status: bool,
    /// The first error that has come.
    pub(super) error: Option<NbdError>,
    coverage: Coverage,
}

impl Pending {
    fn new(request: &Request) -> Self {
        Self {
            command: request.command,
            offset: request.offset,
            length: request.length,
            one: request.flags.contains(CommandFlags::REQ_ONE),
            status: false,
            error: None,
            coverage: Coverage::default(),
        }
    }

    /// The request's command.
    #[must_use]
    pub const fn command(&self) -> Command {
        self.command
    }

    /// First byte of the request's range; data events carry offsets from the start of the export,
    /// so this is what to subtract.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the request's range.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Whether this is a READ of which nothing has come, no error either.
    pub(super) fn is_untouched_read(&self) -> bool {
        self.command == Command::READ && self.error.is_none() && self.coverage.is_empty()
    }

    /// Notes that a part of a READ comes.
    pub(super) fn cover(
        &mut self,
        cookie: u64,
        offset: u64,
        length: u64,
    ) -> Result<(), ReplyError> {
        let range = ReplyError::Range { cookie, offset, length };
        let start = offset.checked_sub(self.offset).ok_or(range)?;
        let end = start.checked_add(length).ok_or(range)?;
        if length == 0 || end > self.length {
            return Err(range);
        }
        let start = u32::try_from(start).map_err(|_| range)?;
        let end = u32::try_from(end).map_err(|_| range)?;
        self.coverage.add(start, end).map_err(|why| match why {
            Refused::Overlap => ReplyError::Overlap { cookie, offset, length },
            Refused::Scattered => ReplyError::Scattered(cookie),
        })
    }

    /// How the request ended, once the server calls it done.
    pub(super) fn result(&self, cookie: u64) -> Result<Result<(), NbdError>, ReplyError> {
        if let Some(error) = self.error {
            return Ok(Err(error));
        }
        let missing = self.length - self.coverage.bytes().min(self.length);
        match self.command {
            Command::READ if missing > 0 => Err(ReplyError::Short { cookie, missing }),
            Command::BLOCK_STATUS if !self.status => Err(ReplyError::NoStatus(cookie)),
            _ => Ok(Ok(())),
        }
    }
}

/// Where the decoder of replies finds the requests in flight.
pub trait Outstanding {
    /// The request of this cookie, or `None` if none is in flight. The cookie comes from the
    /// server: any number.
    fn find(&mut self, cookie: u64) -> Option<&mut Pending>;
}

impl Outstanding for BTreeMap<u64, Pending> {
    fn find(&mut self, cookie: u64) -> Option<&mut Pending> {
        self.get_mut(&cookie)
    }
}

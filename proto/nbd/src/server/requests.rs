//! Cuts received bytes into requests.
//!
//! No state and no buffer: a request header is decoded where it lies, and payload is handed on as
//! the slice that has arrived and the number of bytes that have not, so that the caller receives
//! the rest where it belongs.

use crate::wire::{EXTENDED_REQUEST_MAGIC, Mode, REQUEST_MAGIC, Request};
use std::fmt;

/// The beginning of some received bytes, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A whole header, [`Mode::request_len`] bytes. [`Request::payload_len`] bytes of payload
    /// follow it, and then the next header.
    Request(Request),
    /// The beginning of a header, or nothing.
    NeedMore,
    /// No request of this mode; the stream has lost its step and the connection has to end.
    BadMagic(BadMagic),
}

/// A request that does not begin with the magic of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMagic {
    /// The four bytes that were found.
    pub found: u32,
    /// Those that should have been there.
    pub expected: u32,
}

impl fmt::Display for BadMagic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, expected } = self;
        write!(f, "request starts with {found:#010x}, not with {expected:#010x}")
    }
}

impl std::error::Error for BadMagic {}

/// Decodes the header at the front of `bytes`. Looks at the magic as soon as it is there, so that
/// garbage is found out by its first four bytes.
#[must_use]
#[inline]
pub fn decode(mode: Mode, bytes: &[u8]) -> Decoded {
    let (request, expected) = match mode {
        Mode::Simple | Mode::Structured => (Request::decode_compact(bytes), REQUEST_MAGIC),
        Mode::Extended => (Request::decode_extended(bytes), EXTENDED_REQUEST_MAGIC),
    };
    if let Some(request) = request {
        return Decoded::Request(request);
    }
    match bytes.first_chunk().map(|magic| u32::from_be_bytes(*magic)) {
        Some(found) if found != expected => Decoded::BadMagic(BadMagic { found, expected }),
        _ => Decoded::NeedMore,
    }
}

/// A request with as much of its payload as has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming<'a> {
    /// The header. It is not checked yet.
    pub request: Request,
    /// The payload's bytes that lie behind the header.
    pub payload: &'a [u8],
    /// Payload bytes that are still to come. If not zero, this request is the last of its batch.
    /// Any 64-bit number can stand here until [`super::Geometry::check`] has passed.
    pub missing: u64,
}

/// The requests in a batch of received bytes.
///
/// Ends where the next header is not whole, or after a request whose payload is not; then
/// [`Requests::consumed`] bytes are used up, and the bytes behind them have to be given again in
/// front of the next ones. For a request with `missing` payload there are no such bytes: the
/// caller takes that many from the stream itself and starts a new batch behind them. A
/// [`BadMagic`] comes once and is the last item.
#[derive(Clone, Debug)]
pub struct Requests<'a> {
    mode: Mode,
    rest: &'a [u8],
    given: usize,
    lost: bool,
}

impl<'a> Requests<'a> {
    /// Starts at the front of `bytes`, which has to be the front of a header.
    #[must_use]
    #[inline]
    pub const fn new(mode: Mode, bytes: &'a [u8]) -> Self {
        Self { mode, rest: bytes, given: bytes.len(), lost: false }
    }

    /// Bytes used up by the requests that came out so far, headers and payload.
    #[must_use]
    #[inline]
    pub const fn consumed(&self) -> usize {
        self.given - self.rest.len()
    }
}

impl<'a> Iterator for Requests<'a> {
    type Item = Result<Incoming<'a>, BadMagic>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let request = match decode(self.mode, self.rest) {
            Decoded::Request(request) => request,
            Decoded::NeedMore => return None,
            Decoded::BadMagic(_) if self.lost => return None,
            Decoded::BadMagic(bad) => {
                self.lost = true;
                return Some(Err(bad));
            }
        };
        let behind = &self.rest[self.mode.request_len()..];
        let length = request.payload_len(self.mode);
        let here = usize::try_from(length).map_or(behind.len(), |len| len.min(behind.len()));
        let (payload, rest) = behind.split_at(here);
        self.rest = rest;
        Some(Ok(Incoming { request, payload, missing: length - here as u64 }))
    }
}

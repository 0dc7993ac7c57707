//! Decodes the stream of replies, in any fragmentation, and holds it against what is in flight.
//!
//! Data is handed out as slices of the input, never copied. Where data is due that has not
//! arrived, [`Replies::missing`] says what belongs where, so that the caller can receive it
//! straight into the buffer of the read and report it with [`Replies::received`].
//!
//! Source: NBD protocol, "Structured reply types" and "Request types".

use super::{Outstanding, ReplyError};
use crate::NbdError;
use crate::wire::{
    ChunkType, Command, EXTENTS_MAX, ErrorChunk, ExtendedHeader, Extent, Hole, Mode, ReplyFlags,
    STRING_MAX, SimpleReply, StructuredHeader,
};

/// The longest payload of an error chunk that is accepted, in bytes: the longest message, and
/// room for what a future error type may carry behind it.
pub const ERROR_PAYLOAD_MAX: u64 = STRING_MAX as u64 + 64;

/// The next event in the stream of replies. Cookies are those of requests in flight; offsets count
/// from the start of the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing more in this input, which is all used up.
    NeedMore,
    /// A piece of the data of a READ.
    Data {
        /// The request.
        cookie: u64,
        /// Where the piece belongs.
        offset: u64,
        /// The piece, not empty.
        bytes: &'a [u8],
    },
    /// A part of a READ that is all zeroes.
    Hole {
        /// The request.
        cookie: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// One extent of a BLOCK_STATUS. They come in order, from the request's offset on; the last
    /// may reach beyond what was asked.
    Extent {
        /// The request.
        cookie: u64,
        /// First byte.
        offset: u64,
        /// Its length and how it stands.
        extent: Extent,
    },
    /// The request fails. Its Done follows, perhaps after more data; [`Replies::words`] holds the
    /// server's words until the next event.
    Error {
        /// The request.
        cookie: u64,
        /// The error.
        error: NbdError,
        /// Where it happened, if the server says so.
        at: Option<u64>,
    },
    /// The reply is complete, and the request no longer in flight: take it out of
    /// [`Outstanding`].
    Done {
        /// The request.
        cookie: u64,
        /// How it ended: the first error that came. A READ is only a success if every byte of it
        /// has come exactly once, a BLOCK_STATUS only if a status has come.
        result: Result<(), NbdError>,
    },
}

/// Data that is due and has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The READ it belongs to.
    pub cookie: u64,
    /// Where it belongs, from the start of the export.
    pub offset: u64,
    /// Bytes, not zero.
    pub length: u64,
}

/// The header of a chunk, in either form.
#[derive(Clone, Copy, Debug)]
struct Head {
    cookie: u64,
    chunk: ChunkType,
    length: u64,
    done: bool,
}

/// Where in the stream the decoder stands.
#[derive(Clone, Copy, Debug)]
enum State {
    /// At the start of a reply.
    Start,
    /// In a structured header, behind everything but its length.
    Length(u64, ChunkType, bool),
    /// Before the offset of a data chunk.
    DataOffset(Head),
    /// In data.
    Data(Missing, bool),
    /// Before the payload of a hole.
    Hole(Head),
    /// Before the context of a status chunk.
    Context(Head),
    /// Between the extents of a status chunk: how many are left, and where the next one starts,
    /// from the start of the request.
    Extents { head: Head, left: u64, position: u64 },
    /// Before the payload of an error chunk.
    Error(Head),
    /// Behind the last chunk of a reply that has not been reported yet.
    Done(u64),
    /// Lost.
    Lost(ReplyError),
}

/// The decoder of one connection's replies. Its memory is bounded by [`ERROR_PAYLOAD_MAX`].
#[derive(Debug)]
pub struct Replies {
    mode: Mode,
    context: Option<u32>,
    state: State,
    /// The part of the expected piece that has arrived.
    held: Vec<u8>,
    words: String,
}

type Step<'a> = Result<Option<Event<'a>>, ReplyError>;

impl Replies {
    /// A decoder at the start of the transmission phase. `context` is the id of the negotiated
    /// metadata context.
    #[must_use]
    pub const fn new(mode: Mode, context: Option<u32>) -> Self {
        Self { mode, context, state: State::Start, held: Vec::new(), words: String::new() }
    }

    /// The words of the last [`Event::Error`]; empty if the server had none.
    #[must_use]
    pub fn words(&self) -> &str {
        &self.words
    }

    /// Heap bytes held for pieces that have not arrived whole and for the words of an error; a
    /// few times [`ERROR_PAYLOAD_MAX`] at most.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.capacity() + self.words.capacity()
    }

    /// The data that is due next, if the stream stands in the middle of some.
    #[must_use]
    pub const fn missing(&self) -> Option<Missing> {
        match self.state {
            State::Data(missing, _) => Some(missing),
            _ => None,
        }
    }

    /// Reports that the caller has received the next `length` bytes of the stream itself, which
    /// belong to [`Replies::missing`]. Then [`Replies::next`] has to be called, if only with an
    /// empty input: the reply may be complete.
    ///
    /// # Panics
    /// If fewer bytes are missing.
    pub fn received(&mut self, length: u64) {
        let State::Data(missing, done) = self.state else {
            assert!(length == 0, "{length} bytes received where no data is due");
            return;
        };
        assert!(length <= missing.length, "{length} bytes received of {}", missing.length);
        self.state = after_data(missing, length, done);
    }

    /// Takes the reply of a READ off the front of `input` if it stands there whole: a success,
    /// with all its data in one piece. Returns the cookie, which is no longer in flight, and the
    /// data.
    ///
    /// A short cut for what a busy server sends nearly always. `None` takes nothing and judges
    /// nothing: [`Replies::next`] does.
    #[inline]
    pub fn whole_read<'a>(
        &self,
        input: &mut &'a [u8],
        outstanding: &mut impl Outstanding,
    ) -> Option<(u64, &'a [u8])> {
        if !matches!(self.state, State::Start) || !self.held.is_empty() {
            return None;
        }
        let (head, behind) = input.split_at_checked(self.mode.read_header_len())?;
        let content = |done: ReplyFlags, chunk, at: usize| {
            let whole = done.contains(ReplyFlags::DONE) && chunk == ChunkType::OFFSET_DATA;
            let offset: [u8; 8] = *head[at..].first_chunk()?;
            whole.then_some(u64::from_be_bytes(offset))
        };
        // The place and length that the reply gives: a simple one gives neither.
        let (cookie, told) = match self.mode {
            Mode::Simple => {
                let SimpleReply { error, cookie } = SimpleReply::decode(head)?;
                (error == 0).then_some((cookie, None))?
            }
            Mode::Structured => {
                let StructuredHeader { flags, chunk, cookie, length } =
                    StructuredHeader::decode(head)?;
                let offset = content(flags, chunk, StructuredHeader::LEN)?;
                (cookie, Some((offset, u64::from(length).checked_sub(8)?)))
            }
            Mode::Extended => {
                let ExtendedHeader { flags, chunk, cookie, offset: start, length } =
                    ExtendedHeader::decode(head)?;
                let offset = content(flags, chunk, ExtendedHeader::LEN)?;
                (start == offset).then_some((cookie, Some((offset, length.checked_sub(8)?))))?
            }
        };
        let pending = outstanding.find(cookie)?;
        let asked = (pending.offset, pending.length);
        if !pending.is_untouched_read() || told.is_some_and(|told| told != asked) {
            return None;
        }
        let (data, rest) = behind.split_at_checked(usize::try_from(pending.length).ok()?)?;
        *input = rest;
        Some((cookie, data))
    }

    /// Takes the next event off the front of `input`. Call it until [`Event::NeedMore`].
    ///
    /// # Errors
    /// A [`ReplyError`] when the server breaks the protocol in a way that cannot be followed; it
    /// is repeated by every later call.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        outstanding: &mut impl Outstanding,
    ) -> Result<Event<'a>, ReplyError> {
        loop {
            let before = (input.len(), std::mem::discriminant(&self.state));
            match self.step(input, outstanding) {
                Ok(Some(event)) => return Ok(event),
                Ok(None) if before == (input.len(), std::mem::discriminant(&self.state)) => {
                    return Ok(Event::NeedMore);
                }
                Ok(None) => {}
                Err(why) => {
                    self.state = State::Lost(why);
                    return Err(why);
                }
            }
        }
    }

    /// Handles one piece of the stream. `None` without progress means that it has not arrived.
    fn step<'a>(&mut self, input: &mut &'a [u8], outstanding: &mut impl Outstanding) -> Step<'a> {
        match self.state {
            State::Start => self.start(input, outstanding),
            State::Length(cookie, chunk, done) => {
                let read = |b: &[u8]| b.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
                let Some(length) = self.gather(input, 4, read) else { return Ok(None) };
                self.chunk(Head { cookie, chunk, length, done }, outstanding)
            }
            State::DataOffset(head) => self.data_offset(head, input, outstanding),
            State::Data(missing, done) => Ok(self.data(missing, done, input)),
            State::Hole(head) => self.hole(head, input, outstanding),
            State::Context(head) => self.context(head, input, outstanding),
            State::Extents { head, left, position } => {
                self.extent(head, left, position, input, outstanding)
            }
            State::Error(head) => self.error(head, input, outstanding),
            State::Done(cookie) => {
                self.state = State::Start;
                let pending = outstanding.find(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
                Ok(Some(Event::Done { cookie, result: pending.result(cookie)? }))
            }
            State::Lost(why) => Err(why),
        }
    }

    /// Reads a piece of `want` bytes once it is whole, from the input alone if it lies there.
    #[inline]
    fn gather<T>(
        &mut self,
        input: &mut &[u8],
        want: usize,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Option<T> {
        if self.held.is_empty()
            && let Some((piece, rest)) = input.split_at_checked(want)
        {
            *input = rest;
            return Some(read(piece));
        }
        let (part, rest) = input.split_at(input.len().min(want - self.held.len()));
        self.held.extend_from_slice(part);
        *input = rest;
        if self.held.len() < want {
            return None;
        }
        let value = read(&self.held);
        self.held.clear();
        Some(value)
    }

    fn start<'a>(&mut self, input: &mut &'a [u8], outstanding: &mut impl Outstanding) -> Step<'a> {
        if self.mode == Mode::Extended {
            let read = |b: &[u8]| ExtendedHeader::decode(b).ok_or_else(|| magic(b));
            let Some(header) = self.gather(input, ExtendedHeader::LEN, read) else {
                return Ok(None);
            };
            let header = header.map_err(|found| ReplyError::Magic(found, self.mode))?;
            let ExtendedHeader { flags, chunk, cookie, offset: found, length } = header;
            let pending = outstanding.find(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
            let expected = pending.offset;
            if found != expected {
                return Err(ReplyError::Offset { cookie, found, expected });
            }
            let done = flags.contains(ReplyFlags::DONE);
            return self.chunk(Head { cookie, chunk, length, done }, outstanding);
        }
        // A simple reply is the shorter of the two that can stand here, so this never waits for
        // bytes that will not come.
        let mut bytes = [0; SimpleReply::LEN];
        let Some(()) = self.gather(input, bytes.len(), |b| bytes.copy_from_slice(b)) else {
            return Ok(None);
        };
        if let Some(reply) = SimpleReply::decode(&bytes) {
            return self.simple(reply, outstanding);
        }
        // The length that is missing here does not matter yet.
        let mut padded = [0; StructuredHeader::LEN];
        padded[..bytes.len()].copy_from_slice(&bytes);
        match StructuredHeader::decode(&padded) {
            Some(header) if self.mode == Mode::Structured => {
                let done = header.flags.contains(ReplyFlags::DONE);
                self.state = State::Length(header.cookie, header.chunk, done);
                Ok(None)
            }
            _ => Err(ReplyError::Magic(magic(&bytes), self.mode)),
        }
    }

    fn simple<'a>(&mut self, reply: SimpleReply, outstanding: &mut impl Outstanding) -> Step<'a> {
        let cookie = reply.cookie;
        let pending = outstanding.find(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
        let (offset, length) = (pending.offset, pending.length);
        let read = pending.command == Command::READ;
        if self.mode != Mode::Simple && read {
            return Err(ReplyError::SimpleRead(cookie));
        }
        self.state = State::Done(cookie);
        if let Some(error) = NbdError::from_wire(reply.error) {
            pending.error.get_or_insert(error);
        } else if pending.command == Command::BLOCK_STATUS {
            return Err(ReplyError::NoStatus(cookie));
        } else if read && length > 0 {
            pending.cover(cookie, offset, length)?;
            self.state = State::Data(Missing { cookie, offset, length }, true);
        }
        Ok(None)
    }

    /// Holds a chunk's header against its request, and turns to its payload.
    fn chunk<'a>(&mut self, head: Head, outstanding: &mut impl Outstanding) -> Step<'a> {
        let Head { cookie, chunk, length, done } = head;
        let pending = outstanding.find(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
        let command = pending.command;
        let extended = self.mode == Mode::Extended;
        let (state, fits) = match chunk {
            ChunkType::NONE => (State::Done(cookie), length == 0 && done),
            ChunkType::OFFSET_DATA if command == Command::READ => {
                (State::DataOffset(head), length > 8 && length - 8 <= pending.length)
            }
            ChunkType::OFFSET_HOLE if command == Command::READ => {
                (State::Hole(head), length == Hole::LEN as u64)
            }
            ChunkType::BLOCK_STATUS if command == Command::BLOCK_STATUS && !extended => {
                let fits = holds_extents(length, Extent::COMPACT_HEAD, Extent::COMPACT_LEN);
                (State::Context(head), fits)
            }
            ChunkType::BLOCK_STATUS_EXT if command == Command::BLOCK_STATUS && extended => {
                let fits = holds_extents(length, Extent::EXTENDED_HEAD, Extent::EXTENDED_LEN);
                (State::Context(head), fits)
            }
            _ if chunk.is_error() => {
                let bounds = ErrorChunk::HEAD as u64..=ERROR_PAYLOAD_MAX;
                (State::Error(head), bounds.contains(&length))
            }
            _ => return Err(ReplyError::Chunk { cookie, chunk, command }),
        };
        if !fits {
            return Err(ReplyError::Length { chunk, length });
        }
        self.state = state;
        Ok(None)
    }

    fn data_offset<'a>(
        &mut self,
        head: Head,
        input: &mut &'a [u8],
        outstanding: &mut impl Outstanding,
    ) -> Step<'a> {
        let read = |b: &[u8]| b.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let Some(offset) = self.gather(input, 8, read) else { return Ok(None) };
        let Head { cookie, length, done, .. } = head;
        let length = length - 8;
        let pending = outstanding.find(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
        pending.cover(cookie, offset, length)?;
        self.state = State::Data(Missing { cookie, offset, length }, done);
        Ok(None)
    }

    fn data<'a>(
        &mut self,
        missing: Missing,
        done: bool,
        input: &mut &'a [u8],
    ) -> Option<Event<'a>> {
        let here = usize::try_from(missing.length).map_or(input.len(), |l| l.min(input.len()));
        if here == 0 {
            return None;
        }
        let (bytes, rest) = input.split_at(here);
        *input = rest;
        self.state = after_data(missing, here as u64, done);
        let Missing { cookie, offset, .. } = missing;
        Some(Event::Data { cookie, offset, bytes })
    }

    fn hole<'a>(
        &mut self,
        head: Head,
        input: &mut &'a [u8],
        outstanding: &mut impl Outstanding,
    ) -> Step<'a> {
        let Some(hole) = self.gather(input, Hole::LEN, Hole::decode) else { return Ok(None) };
        let Hole { offset, length } = hole.expect("twelve bytes are a hole");
        let cookie = head.cookie;
        let pending = outstanding.find(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
        pending.cover(cookie, offset, u64::from(length))?;
        self.state = after_chunk(head);
        Ok(Some(Event::Hole { cookie, offset, length }))
    }

    fn context<'a>(
        &mut self,
        head: Head,
        input: &mut &'a [u8],
        outstanding: &mut impl Outstanding,
    ) -> Step<'a> {
        let extended = self.mode == Mode::Extended;
        let (start, each) = if extended {
            (Extent::EXTENDED_HEAD, Extent::EXTENDED_LEN)
        } else {
            (Extent::COMPACT_HEAD, Extent::COMPACT_LEN)
        };
        let word = |b: &[u8], at: usize| {
            b[at..at + 4].iter().fold(0, |value: u32, &byte| value << 8 | u32::from(byte))
        };
        let left = (head.length - start as u64) / each as u64;
        let read = |b: &[u8]| (word(b, 0), extended.then(|| word(b, 4)));
        let Some((context, count)) = self.gather(input, start, read) else { return Ok(None) };
        let cookie = head.cookie;
        let pending = outstanding.find(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
        if pending.status || Some(context) != self.context {
            return Err(ReplyError::Context(cookie, context));
        }
        if count.is_some_and(|count| u64::from(count) != left) {
            return Err(ReplyError::Length { chunk: head.chunk, length: head.length });
        }
        pending.status = true;
        self.state = State::Extents { head, left, position: 0 };
        Ok(None)
    }

    fn extent<'a>(
        &mut self,
        head: Head,
        left: u64,
        position: u64,
        input: &mut &'a [u8],
        outstanding: &mut impl Outstanding,
    ) -> Step<'a> {
        let extent = if self.mode == Mode::Extended {
            self.gather(input, Extent::EXTENDED_LEN, Extent::decode_extended)
        } else {
            self.gather(input, Extent::COMPACT_LEN, Extent::decode_compact)
        };
        let Some(extent) = extent else { return Ok(None) };
        let extent = extent.expect("as many bytes as an extent has");
        let cookie = head.cookie;
        let pending = outstanding.find(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
        // The position is below the length of the request, which may be any 64-bit number.
        let offset = pending.offset.saturating_add(position);
        let length = extent.length;
        let one_and_only = left == 1 && position == 0 && length <= pending.length;
        let due = length > 0 && position < pending.length && (!pending.one || one_and_only);
        if !due {
            return Err(ReplyError::Extent { cookie, offset, length });
        }
        self.state = if left > 1 {
            State::Extents { head, left: left - 1, position: position.saturating_add(length) }
        } else {
            after_chunk(head)
        };
        Ok(Some(Event::Extent { cookie, offset, extent }))
    }

    fn error<'a>(
        &mut self,
        head: Head,
        input: &mut &'a [u8],
        outstanding: &mut impl Outstanding,
    ) -> Step<'a> {
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        let want = usize::try_from(head.length).expect("bounded by ERROR_PAYLOAD_MAX");
        let read = |payload: &[u8]| {
            let chunk = ErrorChunk::decode(head.chunk, payload)?;
            words.push_str(&String::from_utf8_lossy(chunk.message));
            Some((NbdError::from_wire(chunk.error)?, chunk.offset))
        };
        let parsed = self.gather(input, want, read);
        self.words = words;
        let Some(parsed) = parsed else { return Ok(None) };
        let cookie = head.cookie;
        let (error, at) = parsed.ok_or(ReplyError::BadErrorChunk(cookie))?;
        let pending = outstanding.find(cookie).ok_or(ReplyError::UnknownCookie(cookie))?;
        pending.error.get_or_insert(error);
        self.state = after_chunk(head);
        Ok(Some(Event::Error { cookie, error, at }))
    }
}

/// The first four bytes of something.
fn magic(bytes: &[u8]) -> u32 {
    bytes[..4].iter().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

/// Whether a status payload of this length holds a legal number of extents exactly.
fn holds_extents(length: u64, head: usize, each: usize) -> bool {
    let (head, each) = (head as u64, each as u64);
    length > head
        && (length - head).is_multiple_of(each)
        && (length - head) / each <= EXTENTS_MAX as u64
}

/// Where the stream stands behind a chunk.
const fn after_chunk(head: Head) -> State {
    if head.done { State::Done(head.cookie) } else { State::Start }
}

/// Where the stream stands once so many of the missing bytes have come.
const fn after_data(missing: Missing, length: u64, done: bool) -> State {
    let Missing { cookie, offset, length: all } = missing;
    if length == all {
        return if done { State::Done(cookie) } else { State::Start };
    }
    State::Data(Missing { cookie, offset: offset + length, length: all - length }, done)
}

//! Cuts the stream into PDUs, in any fragmentation, and checks the digests.
//!
//! A header is handed out once it is whole, data as slices of the input, never copied. Where data
//! is due that has not arrived, [`Decoder::missing`] says how much, so that the caller can receive
//! it where it belongs and report it with [`Decoder::received`]. Nothing is allocated.

use super::{BHS_LEN, Bhs, Crc, Digests, padding};
use std::fmt;

/// Bytes of the longest additional header segments.
pub const AHS_MAX: usize = 255 * 4;
/// The most that is held: a header that arrives in parts.
const HELD_MAX: usize = BHS_LEN + AHS_MAX + 4;

/// The next piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Nothing more in this input, which is all used up.
    NeedMore,
    /// A header, which is [`Decoder::header`].
    Header,
    /// Bytes of the data segment, not empty.
    Data(&'a [u8]),
    /// The end of the PDU: its data is whole and as the sender meant it, as far as a digest tells.
    End,
}

/// What a digest was of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The header segments.
    Header,
    /// The data segment.
    Data,
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Data => "data",
        })
    }
}

/// Why the stream cannot be followed any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// A digest is not that of the bytes before it.
    Digest {
        /// Which one.
        of: Segment,
        /// The digest received.
        found: [u8; 4],
        /// That of the bytes received.
        computed: [u8; 4],
    },
    /// A data segment is longer than was declared to be taken.
    TooLong {
        /// Bytes of the segment.
        length: u32,
        /// MaxRecvDataSegmentLength.
        bound: u32,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest { of, found, computed } => {
                let (found, computed) = (u32::from_le_bytes(*found), u32::from_le_bytes(*computed));
                write!(f, "{of} digest {found:08x}, the bytes have {computed:08x}")
            }
            Self::TooLong { length, bound } => {
                write!(f, "data segment of {length} bytes, MaxRecvDataSegmentLength is {bound}")
            }
        }
    }
}

impl std::error::Error for WireError {}

#[derive(Clone, Copy, Debug)]
enum State {
    /// In front of a header or within it.
    Head,
    /// In the data segment: bytes that have not come.
    Data(u32),
    /// In padding and digest.
    Tail,
    /// Lost.
    Lost(WireError),
}

/// The decoder of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    digests: Digests,
    segment_max: u32,
    state: State,
    bhs: Bhs,
    crc: Crc,
    /// Bytes of `held` that are of the piece due.
    have: usize,
    held: [u8; HELD_MAX],
}

impl Decoder {
    /// A decoder at the start of a PDU. A data segment of more than `segment_max` bytes is refused.
    #[must_use]
    pub const fn new(digests: Digests, segment_max: u32) -> Self {
        let bhs = Bhs::from_bytes([0; BHS_LEN]);
        let (state, crc) = (State::Head, Crc::new());
        Self { digests, segment_max, state, bhs, crc, have: 0, held: [0; HELD_MAX] }
    }

    /// The last header handed out.
    #[must_use]
    #[inline]
    pub const fn header(&self) -> &Bhs {
        &self.bhs
    }

    /// The additional header segments behind [`Decoder::header`], until the next piece is asked
    /// for.
    #[must_use]
    pub fn ahs(&self) -> &[u8] {
        &self.held[BHS_LEN..BHS_LEN + self.bhs.ahs_len()]
    }

    /// Bytes of a data segment that are due next.
    #[must_use]
    pub const fn missing(&self) -> u32 {
        match self.state {
            State::Data(left) => left,
            _ => 0,
        }
    }

    /// Reports that the caller has received the next bytes of the stream itself, which are of the
    /// data segment.
    ///
    /// # Panics
    /// If fewer are missing.
    pub fn received(&mut self, bytes: &[u8]) {
        let missing = self.missing();
        let got = u32::try_from(bytes.len()).ok().filter(|got| *got <= missing);
        let got = got.unwrap_or_else(|| panic!("{} bytes received of {missing}", bytes.len()));
        if let State::Data(left) = &mut self.state {
            *left -= got;
            if self.digests.data {
                self.crc.update(bytes);
            }
        }
    }

    /// Takes the next piece off the front of `input`. Call it until [`Piece::NeedMore`].
    ///
    /// # Errors
    /// A [`WireError`], which every later call repeats.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, WireError> {
        let piece = match self.state {
            State::Head => self.head(input),
            State::Data(left) if left > 0 => return Ok(self.data(left, input)),
            State::Data(_) | State::Tail => self.tail(input),
            State::Lost(why) => Err(why),
        };
        if let Err(why) = piece {
            self.state = State::Lost(why);
        }
        piece
    }

    fn head<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, WireError> {
        if self.have == 0
            && !self.digests.header
            && let Some((bytes, rest)) = input.split_first_chunk::<BHS_LEN>()
            && bytes[4] == 0
        {
            self.bhs = Bhs::from_bytes(*bytes);
            *input = rest;
            return self.judge();
        }
        if !self.gather(input, BHS_LEN) {
            return Ok(Piece::NeedMore);
        }
        self.bhs = Bhs::from_bytes(*self.held.first_chunk().expect("as many as a header has"));
        let headers = BHS_LEN + self.bhs.ahs_len();
        if !self.gather(input, headers + if self.digests.header { 4 } else { 0 }) {
            return Ok(Piece::NeedMore);
        }
        self.have = 0;
        if self.digests.header {
            let mut crc = Crc::new();
            crc.update(&self.held[..headers]);
            check(Segment::Header, crc, &self.held[headers..headers + 4])?;
        }
        self.judge()
    }

    /// Holds a whole header against the bound.
    #[inline]
    fn judge<'a>(&mut self) -> Result<Piece<'a>, WireError> {
        let (length, bound) = (self.bhs.data_len(), self.segment_max);
        if length > bound {
            return Err(WireError::TooLong { length, bound });
        }
        self.state = State::Data(length);
        self.crc = Crc::new();
        Ok(Piece::Header)
    }

    #[inline]
    fn data<'a>(&mut self, left: u32, input: &mut &'a [u8]) -> Piece<'a> {
        let here = input.len().min(left as usize);
        if here == 0 {
            return Piece::NeedMore;
        }
        let (bytes, rest) = input.split_at(here);
        *input = rest;
        self.received(bytes);
        Piece::Data(bytes)
    }

    fn tail<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, WireError> {
        let length = self.bhs.data_len();
        let padding = padding(length);
        let digest = if self.digests.data && length > 0 { 4 } else { 0 };
        self.state = State::Tail;
        if !self.gather(input, padding + digest) {
            return Ok(Piece::NeedMore);
        }
        (self.have, self.state) = (0, State::Head);
        if digest > 0 {
            self.crc.update(&self.held[..padding]);
            check(Segment::Data, self.crc, &self.held[padding..padding + 4])?;
        }
        Ok(Piece::End)
    }

    /// Whether so many bytes of the piece are held, after what the input has of them.
    #[inline]
    fn gather(&mut self, input: &mut &[u8], want: usize) -> bool {
        let here = input.len().min(want.saturating_sub(self.have));
        let (part, rest) = input.split_at(here);
        self.held[self.have..self.have + here].copy_from_slice(part);
        self.have += here;
        *input = rest;
        self.have >= want
    }
}

fn check(of: Segment, crc: Crc, found: &[u8]) -> Result<(), WireError> {
    let computed = crc.bytes();
    let found = *found.first_chunk().expect("four bytes of a digest");
    if found == computed { Ok(()) } else { Err(WireError::Digest { of, found, computed }) }
}

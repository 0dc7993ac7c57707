//! The blocking calls of a session: byte offsets and the caller's memory, in pieces.

use std::ops::Range;

use weir_bio::{Bio, Buf, Data, Flags, Op, SECTOR, Status};

use super::{OWN, Session, Turner};
use crate::error::{Bounds, IoError};

/// A blocking transfer travels in pieces of so many bytes, so that its buffers can be used again.
const PIECE: u64 = 256 << 10;

/// Pieces of a blocking call under way at one time, and buffers kept for the next.
const PIECES: usize = 8;

/// A range without data travels in parts of so many bytes (1 TiB): a bio counts its sectors in 32
/// bits.
const RANGE: u64 = 1 << 40;

impl<T: Turner> Session<T> {
    /// Reads `out.len()` bytes from byte `offset` on. After an error `out` may be partly filled.
    ///
    /// # Errors
    /// [`IoError`]: how it ended, or what was wrong with the range. Offset and length must be
    /// multiples of the [logical block](weir_bio::Limits::logical_block_size); no bytes are no
    /// I/O.
    pub fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        let ask = self.ask(Op::Read, offset, out.len() as u64)?;
        let make = |spare: &mut Vec<Buf>, at: Range<u64>| {
            let len = at.end - at.start;
            Bio::read((offset + at.start) / SECTOR, buffer(spare, len))
        };
        self.carry_out(&ask, PIECE, make, |at, data| {
            data.copy_to(&mut out[at.start as usize..at.end as usize]);
        })
    }

    /// Writes `bytes` from byte `offset` on. They are durable after a later
    /// [`flush`](Session::flush). After an error some may have been written.
    ///
    /// # Errors
    /// As [`read_at`](Session::read_at).
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.write(offset, bytes, Flags::NONE)
    }

    /// As [`write_at`](Session::write_at), and durable when it returns (FUA). That is so for these
    /// bytes alone, not for what was written before.
    ///
    /// # Errors
    /// As [`read_at`](Session::read_at).
    pub fn write_at_durable(&mut self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.write(offset, bytes, Flags::FUA)
    }

    fn write(&mut self, offset: u64, bytes: &[u8], flags: Flags) -> Result<(), IoError> {
        let ask = self.ask(Op::Write, offset, bytes.len() as u64)?;
        let make = |spare: &mut Vec<Buf>, at: Range<u64>| {
            let mut buf = buffer(spare, at.end - at.start);
            buf.copy_from_slice(&bytes[at.start as usize..at.end as usize]);
            Bio::write((offset + at.start) / SECTOR, buf).with(flags)
        };
        self.carry_out(&ask, PIECE, make, |_, _| ())
    }

    /// Makes everything durable whose write was answered, to whomever, before this call.
    ///
    /// # Errors
    /// [`IoError`]: how it ended. Then nothing can be said of any write since the last flush.
    pub fn flush(&mut self) -> Result<(), IoError> {
        let ask = Ask { op: Op::Flush, offset: 0, len: 0 };
        self.carry_out(&ask, 1, |_, _| Bio::flush(), |_, _| ())
    }

    /// Says that a range's contents are no longer needed; what it reads as afterwards is not
    /// defined.
    ///
    /// # Errors
    /// As [`read_at`](Session::read_at); [`Status::NotSupp`] when the disk cannot.
    pub fn discard(&mut self, offset: u64, len: u64) -> Result<(), IoError> {
        let ask = self.ask(Op::Discard, offset, len)?;
        let make = |_: &mut Vec<Buf>, at: Range<u64>| ask.bare(Op::Discard, at, Data::None);
        self.carry_out(&ask, RANGE, make, |_, _| ())
    }

    /// Makes a range read as zeros. `may_unmap` says whether its space may be given back. A disk
    /// that has no command for it is written to.
    ///
    /// # Errors
    /// As [`read_at`](Session::read_at).
    pub fn write_zeroes(&mut self, offset: u64, len: u64, may_unmap: bool) -> Result<(), IoError> {
        let ask = self.ask(Op::WriteZeroes, offset, len)?;
        let flags = if may_unmap { Flags::NONE } else { Flags::NOUNMAP };
        let command = |_: &mut Vec<Buf>, at: Range<u64>| {
            ask.bare(Op::WriteZeroes, at, Data::None).with(flags | Flags::SYNC)
        };
        match self.carry_out(&ask, RANGE, command, |_, _| ()) {
            Err(error) if error.status == Status::NotSupp => {}
            ended => return ended,
        }
        let write = |_: &mut Vec<Buf>, at: Range<u64>| {
            let zeros = Data::Zero { len: (at.end - at.start) as u32, spare: None };
            ask.bare(Op::Write, at, zeros).with(Flags::SYNC)
        };
        self.carry_out(&ask, PIECE, write, |_, _| ())
    }

    /// Checks a blocking call's range.
    fn ask(&self, op: Op, offset: u64, len: u64) -> Result<Ask, IoError> {
        let bounds = Bounds { block: self.block, size: self.size };
        bounds.check(&self.device, op, (offset, len))?;
        Ok(Ask { op, offset, len })
    }

    /// Does a blocking call in parts of `step` bytes, several at a time. `make` makes the I/O of a
    /// part, by its place in the call; `take` sees the memory of one that succeeded.
    fn carry_out(
        &mut self,
        ask: &Ask,
        step: u64,
        mut make: impl FnMut(&mut Vec<Buf>, Range<u64>) -> Bio,
        mut take: impl FnMut(Range<u64>, &Data),
    ) -> Result<(), IoError> {
        let parts = if ask.op == Op::Flush { 1 } else { ask.len.div_ceil(step) };
        let place = |part: u64| part * step..((part + 1) * step).min(ask.len);
        let mut failed: Option<(u64, Status)> = None;
        let (mut next, mut left) = (0, 0);
        loop {
            while next < parts && left < PIECES && failed.is_none() {
                let bio = make(&mut self.spare, place(next));
                self.submit_own(bio.cookie(OWN | next));
                (next, left) = (next + 1, left + 1);
            }
            if left == 0 {
                break;
            }
            self.wait_for_piece();
            let mut pieces = std::mem::take(&mut self.pieces);
            for piece in pieces.drain(..) {
                let part = piece.cookie & !OWN;
                left -= 1;
                match piece.status {
                    Status::Ok => take(place(part), &piece.data),
                    status if failed.is_none_or(|(first, _)| part < first) => {
                        failed = Some((part, status));
                    }
                    _ => {}
                }
                self.keep(piece.data);
            }
            // For its memory.
            self.pieces = pieces;
        }
        match failed {
            None => Ok(()),
            Some((_, status)) => {
                Err(IoError::of(&self.device, ask.op, (ask.offset, ask.len), status))
            }
        }
    }

    /// Keeps a buffer for the next piece.
    fn keep(&mut self, data: Data) {
        if self.spare.len() < PIECES {
            self.spare.extend(data.into_spare().filter(|buf| buf.capacity() <= PIECE as usize));
        }
    }
}

/// The arguments of a blocking call; offset and length in bytes.
struct Ask {
    op: Op,
    offset: u64,
    len: u64,
}

impl Ask {
    /// An I/O on a part of the range, with no memory of its own.
    fn bare(&self, op: Op, at: Range<u64>, data: Data) -> Bio {
        let (sector, sectors) = ((self.offset + at.start) / SECTOR, (at.end - at.start) / SECTOR);
        Bio::new(op, sector, sectors as u32, data)
    }
}

/// A buffer of `len` bytes, used before if possible. Its old contents are overwritten, or never
/// looked at.
fn buffer(spare: &mut Vec<Buf>, len: u64) -> Buf {
    let len = len as usize;
    let fits = spare.iter().rposition(|buf| buf.capacity() >= len);
    let mut buf = match fits {
        Some(index) => spare.swap_remove(index),
        None => {
            // One that is too small makes way for one that serves both.
            spare.pop();
            Buf::filled(len.next_power_of_two(), |_| ())
        }
    };
    buf.resize(len);
    buf
}

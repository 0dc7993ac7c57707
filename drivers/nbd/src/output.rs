//! The output of one connection: headers and small payloads in an arena, large payloads from the
//! memory of their requests, all in one order.

use std::collections::VecDeque;
use std::io::IoSlice;

use rustix::io::Errno;
use weir_bio::Data;
use weir_queue::Tag;

use crate::channel::Channel;
use crate::slots::{Slots, pieces_to_send};

/// Pieces gathered by one system call.
const PIECES: usize = 64;

/// Sent bytes in front of the arena that are worth moving the rest down for.
const STALE_MAX: usize = 64 << 10;

/// The bytes a connection still has to send.
#[derive(Debug, Default)]
pub(crate) struct Output {
    arena: Vec<u8>,
    /// Bytes of the arena that are sent.
    sent: usize,
    /// Payloads that lie elsewhere, in order.
    splices: VecDeque<Splice>,
    /// Bytes of the stream up to the end of the spliced payloads that are not in the arena: those
    /// that were taken off its front, and the payloads.
    beside: u64,
    /// Bytes of the stream that the channel has taken: the server may have them. Over TLS the last
    /// 128 KiB of them may never arrive.
    gone: u64,
}

/// A payload of lent memory, which goes out in front of the arena's byte `at`.
#[derive(Clone, Copy, Debug)]
struct Splice {
    at: usize,
    tag: Tag,
    sent: u64,
    length: u64,
}

impl Output {
    /// Whether everything is sent.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.arena.len() && self.splices.is_empty()
    }

    /// Where in the stream the next byte appended will stand.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.beside + self.arena.len() as u64
    }

    /// Bytes of the stream that the channel has taken.
    pub(crate) fn gone(&self) -> u64 {
        self.gone
    }

    /// The arena, to append headers to.
    #[inline]
    pub(crate) fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.arena
    }

    /// Appends a payload by copying it.
    #[inline]
    pub(crate) fn copy(&mut self, lent: &[Data]) {
        for piece in lent.iter().flat_map(pieces_to_send) {
            self.arena.extend_from_slice(piece);
        }
    }

    /// Appends the memory lent for this tag, `length` bytes, without copying it.
    pub(crate) fn splice(&mut self, tag: Tag, length: u64) {
        self.splices.push_back(Splice { at: self.arena.len(), tag, sent: 0, length });
        self.beside += length;
    }

    /// Sends until everything is sent or the socket takes no more.
    ///
    /// # Errors
    /// Why the connection is broken.
    pub(crate) fn send(&mut self, channel: &mut Channel, slots: &mut Slots) -> Result<(), Errno> {
        match channel.flush() {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        }
        while !self.is_empty() {
            let (sent, offered) = match self.send_once(channel, slots) {
                Ok(counts) => counts,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            self.advance(sent, slots);
            // Of a channel with TLS the next call tells whether the socket is full.
            if sent < offered && !channel.is_secure() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One system call: bytes sent, of how many.
    fn send_once(&self, channel: &mut Channel, slots: &Slots) -> Result<(u64, u64), Errno> {
        if self.splices.is_empty() {
            let bytes = &self.arena[self.sent..];
            return Ok((channel.send(bytes)? as u64, bytes.len() as u64));
        }
        let mut places = [IoSlice::new(&[]); PIECES];
        let (used, offered) = self.lay_out(slots, &mut places);
        let sent = channel.send_pieces(&places[..used])?;
        Ok((sent as u64, offered))
    }

    /// Lays out what is to be sent next, as far as there are places: how many, and their bytes.
    fn lay_out<'a>(&'a self, slots: &'a Slots, places: &mut [IoSlice<'a>; PIECES]) -> (usize, u64) {
        let (mut used, mut bytes, mut from) = (0, 0, self.sent);
        let ends = self.splices.iter().map(|splice| (splice.at, Some(splice)));
        for (at, splice) in ends.chain([(self.arena.len(), None)]) {
            if from < at {
                if used == PIECES {
                    return (used, bytes);
                }
                places[used] = IoSlice::new(&self.arena[from..at]);
                (used, bytes) = (used + 1, bytes + (at - from) as u64);
                from = at;
            }
            let Some(splice) = splice else { break };
            let (more, laid) = slots.gather(splice.tag, splice.sent, &mut places[used..]);
            (used, bytes) = (used + more, bytes + laid);
            if laid < splice.length - splice.sent {
                break;
            }
        }
        (used, bytes)
    }

    /// Crosses off what was sent.
    fn advance(&mut self, sent: u64, slots: &mut Slots) {
        self.gone += sent;
        self.cross_off(sent, slots);
        if self.is_empty() {
            self.beside += self.arena.len() as u64;
            self.arena.clear();
            self.sent = 0;
        } else if self.sent > STALE_MAX.max(self.arena.len() / 2) {
            // A socket that always has something left must not make the arena grow for ever.
            self.arena.drain(..self.sent);
            self.beside += self.sent as u64;
            self.splices.iter_mut().for_each(|splice| splice.at -= self.sent);
            self.sent = 0;
        }
    }

    fn cross_off(&mut self, mut sent: u64, slots: &mut Slots) {
        while let Some(splice) = self.splices.front_mut() {
            let before = sent.min((splice.at - self.sent) as u64);
            self.sent += before as usize;
            sent -= before;
            if self.sent < splice.at {
                return;
            }
            let here = sent.min(splice.length - splice.sent);
            splice.sent += here;
            sent -= here;
            if splice.sent < splice.length {
                return;
            }
            slots.sent(splice.tag);
            self.splices.pop_front();
        }
        self.sent += sent as usize;
    }
}

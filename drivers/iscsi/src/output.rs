//! The output of one session: headers and small payloads in an arena, large payloads from the
//! memory of their commands, all in one order.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use weir_proto_iscsi::session::{Outgoing, Payload};
use weir_proto_iscsi::wire::Crc;

use crate::slots::{LARGE, Slots};

/// No signal for a target that has gone, and no waiting for one that does not read.
const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Pieces gathered by one system call.
const PIECES: usize = 64;

/// Sent bytes in front of the arena that are worth moving the rest down for.
const STALE_MAX: usize = 64 << 10;

/// The bytes a session still has to send.
#[derive(Debug, Default)]
pub(crate) struct Output {
    arena: Vec<u8>,
    /// Bytes of the arena that are sent.
    sent: usize,
    /// Payloads that lie elsewhere, in order.
    splices: VecDeque<Splice>,
    /// Bytes of the splices that are not sent.
    spliced: u64,
    /// Bytes of the stream that the socket has taken: the target may have them.
    gone: u64,
}

/// A payload of lent memory, which goes out in front of the arena's byte `at`.
#[derive(Clone, Copy, Debug)]
struct Splice {
    at: usize,
    task: u16,
    from: u32,
    length: u32,
}

impl Output {
    /// Whether everything is sent.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.arena.len() && self.splices.is_empty()
    }

    /// Bytes that wait to be sent.
    pub(crate) fn waiting(&self) -> u64 {
        (self.arena.len() - self.sent) as u64 + self.spliced
    }

    /// Bytes of the stream that the socket has taken.
    pub(crate) fn gone(&self) -> u64 {
        self.gone
    }

    /// Sends until everything is sent or the socket takes no more.
    ///
    /// # Errors
    /// Why the connection is broken.
    #[inline]
    pub(crate) fn send(&mut self, socket: &OwnedFd, slots: &mut Slots) -> Result<(), Errno> {
        while !self.is_empty() {
            let (sent, offered) = match self.send_once(socket, slots) {
                Ok(counts) => counts,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            self.advance(sent, slots);
            if sent < offered {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One system call: bytes sent, of how many.
    fn send_once(&self, socket: &OwnedFd, slots: &Slots) -> Result<(u64, u64), Errno> {
        if self.splices.is_empty() {
            let bytes = &self.arena[self.sent..];
            return Ok((send(socket, bytes, FLAGS)? as u64, bytes.len() as u64));
        }
        let mut places = [IoSlice::new(&[]); PIECES];
        let (used, offered) = self.lay_out(slots, &mut places);
        let nothing = &mut SendAncillaryBuffer::default();
        Ok((sendmsg(socket, &places[..used], nothing, FLAGS)? as u64, offered))
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
            let mut laid = 0;
            for piece in slots.pieces(splice.task, splice.from, splice.length) {
                if used == PIECES {
                    break;
                }
                places[used] = IoSlice::new(piece);
                (used, laid) = (used + 1, laid + piece.len() as u64);
            }
            bytes += laid;
            if laid < u64::from(splice.length) {
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
            self.arena.clear();
            self.sent = 0;
        } else if self.sent > STALE_MAX.max(self.arena.len() / 2) {
            // A socket that always has something left must not make the arena grow for ever.
            self.arena.drain(..self.sent);
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
            let here = sent.min(splice.length.into());
            splice.from += here as u32;
            splice.length -= here as u32;
            self.spliced -= here;
            sent -= here;
            if splice.length > 0 {
                return;
            }
            slots.spliced_out(splice.task);
            self.splices.pop_front();
        }
        self.sent += sent as usize;
    }
}

/// Where a session puts what it sends: the output, with the memory that payloads lie in.
pub(crate) struct Outlet<'a> {
    pub(crate) output: &'a mut Output,
    pub(crate) slots: &'a mut Slots,
}

impl Outgoing for Outlet<'_> {
    #[inline]
    fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.output.arena
    }

    #[inline]
    fn payload(&mut self, payload: Payload, digest: Option<&mut Crc>) {
        let Payload { task, offset: from, length } = payload;
        let (Outlet { output, slots }, task) = (self, task.slot());
        if let Some(crc) = digest {
            slots.pieces(task, from, length).for_each(|piece| crc.update(piece));
        }
        if length < LARGE {
            for piece in slots.pieces(task, from, length) {
                output.arena.extend_from_slice(piece);
            }
            return;
        }
        slots.spliced_in(task);
        output.spliced += u64::from(length);
        output.splices.push_back(Splice { at: output.arena.len(), task, from, length });
    }
}

//! Replies on their way out of one connection: small ones side by side in reply blocks, long data
//! gathered from where it lies. The headers of long data share blocks too, so that what a client
//! does not read takes no more memory than it has bytes, but for the end of a block.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use weir_bio::{Buf, Data};

use crate::arena::{Arena, ROOM};
use crate::pool::{Pool, room};
use crate::share;

/// Data from so many bytes on is gathered instead of copied.
pub(crate) const GATHER: usize = 16 << 10;

/// Most pieces of one system call.
const PIECES: usize = 64;

/// The memory that zeros without memory of their own are sent from.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

enum Chunk {
    /// So many bytes of a block, behind those of the chunk before that lies in one.
    Small(usize),
    /// A reply too long for a block: the extents of a fragmented disk.
    Long(Vec<u8>),
    Buf(Buf),
    Zeros(usize),
}

impl Chunk {
    fn len(&self) -> usize {
        match self {
            Chunk::Small(len) | Chunk::Zeros(len) => *len,
            Chunk::Long(bytes) => bytes.len(),
            Chunk::Buf(buf) => buf.len(),
        }
    }

    /// Memory it has for itself, bytes.
    fn memory(&self) -> usize {
        match self {
            Chunk::Small(_) | Chunk::Zeros(_) => 0,
            Chunk::Long(bytes) => bytes.capacity(),
            Chunk::Buf(buf) => room(buf.len()),
        }
    }
}

/// How far a send came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Everything is on its way.
    All,
    /// The socket takes no more now.
    Blocked,
    /// There is more, for the next round.
    Paused,
}

/// The replies of one connection that are not sent yet.
#[derive(Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Chunk>,
    /// The blocks that small chunks lie in, one behind the other.
    arenas: VecDeque<Arena>,
    /// Where in the first block the first small chunk begins.
    begin: usize,
    /// Bytes of the first chunk that are sent.
    sent: usize,
    /// Memory of the chunks that have their own, bytes.
    gathered: usize,
    /// Bytes not sent.
    bytes: usize,
    /// Nothing that is put in will be read, so nothing is kept.
    closed: bool,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Bytes waiting to be sent.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that is held until it is sent, bytes.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        self.gathered + self.arenas.len() * ROOM
    }

    /// Appends the reply that `encode` appends to an empty buffer.
    #[inline]
    pub(crate) fn put<T>(&mut self, pool: &mut Pool, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut reply = std::mem::take(&mut pool.scratch);
        let value = encode(&mut reply);
        if self.closed {
            reply.clear();
        }
        self.bytes += reply.len();
        if reply.is_empty() {
            // Nothing to keep.
        } else if reply.len() > ROOM {
            self.push(Chunk::Long(std::mem::take(&mut reply)));
        } else {
            self.small(pool, reply.len()).put(&reply);
        }
        reply.clear();
        pool.scratch = reply;
        value
    }

    /// Adds a small chunk of `len` bytes, more than none: the block it is to be put in.
    #[inline]
    fn small(&mut self, pool: &mut Pool, len: usize) -> &mut Arena {
        if self.arenas.back().is_none_or(|arena| arena.is_full() || !arena.fits(len)) {
            self.arenas.push_back(pool.arena());
            self.chunks.push_back(Chunk::Small(len));
        } else if let Some(Chunk::Small(last)) = self.chunks.back_mut() {
            *last += len;
        } else {
            self.chunks.push_back(Chunk::Small(len));
        }
        self.arenas.back_mut().expect("there is one now")
    }

    /// Adds a chunk that has its own memory.
    fn push(&mut self, chunk: Chunk) {
        self.gathered += chunk.memory();
        self.chunks.push_back(chunk);
    }

    /// Appends data behind its header, by copy or by gathering; the memory goes to the pool when
    /// it is no longer needed.
    #[inline]
    pub(crate) fn put_data(&mut self, pool: &mut Pool, data: Data) {
        if self.closed {
            return pool.give_data(data);
        }
        match data {
            Data::Zero { len, spare } => {
                spare.into_iter().for_each(|buf| pool.give(buf));
                self.put_zeros(pool, len as usize);
            }
            Data::One(buf) => self.put_buf(pool, buf),
            Data::Many(mut bufs) => bufs.drain(..).for_each(|buf| self.put_buf(pool, buf)),
            Data::Segments(segments) => {
                let mut buf = pool.buf(segments.len());
                segments.copy_to(0, &mut buf);
                self.put_buf(pool, buf);
            }
            Data::None => {}
        }
    }

    #[inline]
    fn put_buf(&mut self, pool: &mut Pool, buf: Buf) {
        self.bytes += buf.len();
        if buf.len() < GATHER {
            self.small(pool, buf.len()).put(&buf);
            pool.give(buf);
        } else {
            self.push(Chunk::Buf(buf));
        }
    }

    #[inline]
    fn put_zeros(&mut self, pool: &mut Pool, len: usize) {
        self.bytes += len;
        if len < GATHER {
            self.small(pool, len).put_zeros(len);
        } else {
            self.chunks.push_back(Chunk::Zeros(len));
        }
    }

    /// Sends as much as the socket takes, and as one connection may have sent in a round.
    ///
    /// # Errors
    /// The socket's: the peer is gone.
    pub(crate) fn send(&mut self, fd: impl AsFd, pool: &mut Pool) -> io::Result<Sent> {
        let mut left = share::SENT;
        while self.bytes > 0 {
            if left == 0 {
                return Ok(Sent::Paused);
            }
            let (sent, offered) = match self.send_once(&fd, left) {
                Ok(counts) => counts,
                Err(Errno::AGAIN) => return Ok(Sent::Blocked),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            self.retire(sent, pool);
            left -= sent;
            if sent < offered {
                return Ok(Sent::Blocked);
            }
        }
        Ok(Sent::All)
    }

    /// One system call for at most so many bytes: bytes sent and bytes offered.
    fn send_once(&self, fd: impl AsFd, most: usize) -> Result<(usize, usize), Errno> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if let (1, [Chunk::Small(_)], Some(arena)) =
            (self.chunks.len(), self.chunks.as_slices().0, self.arenas.front())
        {
            let rest = &arena.filled()[self.begin + self.sent..];
            let rest = &rest[..rest.len().min(most)];
            return Ok((send(fd, rest, flags)?, rest.len()));
        }
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let (count, offered) = self.lay_out(&mut pieces, most);
        let sent = sendmsg(fd, &pieces[..count], &mut SendAncillaryBuffer::default(), flags)?;
        Ok((sent, offered))
    }

    /// Gives what comes next to `take`, which says how many bytes of it are out of the way; so many
    /// were.
    ///
    /// # Errors
    /// Those of `take`.
    pub(crate) fn take(
        &mut self,
        pool: &mut Pool,
        take: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let (count, _) = self.lay_out(&mut pieces, share::SEALED);
        let taken = take(&pieces[..count])?;
        self.retire(taken, pool);
        Ok(taken)
    }

    /// Lays out what comes next, as far as there are places and at most so many bytes: how many
    /// pieces, and their bytes.
    fn lay_out<'a>(&'a self, pieces: &mut [IoSlice<'a>; PIECES], most: usize) -> (usize, usize) {
        let (mut count, mut offered) = (0, 0);
        let mut skip = self.sent;
        let (mut arenas, mut at) = (self.arenas.iter().peekable(), self.begin);
        for chunk in self.chunks.iter().take(PIECES) {
            let mut left = chunk.len() - skip;
            if let Chunk::Small(_) = chunk
                && arenas.next_if(|arena| at == arena.filled().len()).is_some()
            {
                at = 0;
            }
            while left > 0 && count < PIECES && offered < most {
                let piece = match chunk {
                    Chunk::Small(len) => {
                        at += len;
                        let arena = arenas.peek().expect("small chunks lie in blocks");
                        &arena.filled()[at - left..at]
                    }
                    Chunk::Long(bytes) => &bytes[skip..],
                    Chunk::Buf(buf) => &buf[skip..],
                    Chunk::Zeros(_) => &ZEROS[..left.min(ZEROS.len())],
                };
                let piece = &piece[..piece.len().min(most - offered)];
                pieces[count] = IoSlice::new(piece);
                (count, offered, left) = (count + 1, offered + piece.len(), left - piece.len());
            }
            skip = 0;
        }
        (count, offered)
    }

    /// Forgets the first `sent` bytes and gives their memory back.
    fn retire(&mut self, sent: usize, pool: &mut Pool) {
        self.bytes -= sent;
        self.sent += sent;
        while let Some(first) = self.chunks.front() {
            let len = first.len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            self.gathered -= first.memory();
            match self.chunks.pop_front() {
                Some(Chunk::Small(len)) => self.leave_block(len, pool),
                Some(Chunk::Buf(buf)) => pool.give(buf),
                Some(Chunk::Long(_) | Chunk::Zeros(_)) | None => {}
            }
        }
        if self.chunks.is_empty() && self.chunks.capacity() > PIECES {
            self.chunks = VecDeque::new();
        }
    }

    /// Forgets the first `len` bytes of the first block, and the block with the last of them.
    fn leave_block(&mut self, len: usize, pool: &mut Pool) {
        self.begin += len;
        if self.arenas.front().is_some_and(|arena| arena.filled().len() == self.begin) {
            self.begin = 0;
            self.arenas.pop_front().into_iter().for_each(|arena| pool.give_arena(arena));
        }
    }

    /// Drops everything, now and from now on: the client will not read it.
    pub(crate) fn close(&mut self, pool: &mut Pool) {
        self.closed = true;
        self.retire(self.bytes, pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_put_comes_out_in_order_whatever_the_socket_takes_at_once() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (mut pool, mut outbox) = (Pool::default(), Outbox::default());
        let mut expected = Vec::new();
        for step in 0..200_u32 {
            let len = [40, 4096, GATHER, 200_000][step as usize % 4];
            let fill = step as u8 | 1;
            expected.extend_from_slice(&step.to_be_bytes());
            outbox.put(&mut pool, |out| out.extend_from_slice(&step.to_be_bytes()));
            let zeros = step % 3 == 0;
            expected.extend(std::iter::repeat_n(if zeros { 0 } else { fill }, len));
            let data = if zeros {
                Data::Zero { len: len as u32, spare: None }
            } else {
                let mut buf = pool.buf(len);
                buf.fill(fill);
                Data::One(buf)
            };
            outbox.put_data(&mut pool, data);
        }
        assert_eq!(outbox.bytes(), expected.len());
        let (mut got, mut part) = (Vec::new(), vec![0; 70_001]);
        while got.len() < expected.len() {
            outbox.send(&ours, &mut pool).unwrap();
            match theirs.read(&mut part) {
                Ok(count) => got.extend_from_slice(&part[..count]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert!(got == expected, "bytes differ");
        assert!(outbox.is_empty() && outbox.chunks.is_empty() && outbox.sent == 0);
        assert_eq!((outbox.memory(), outbox.arenas.len()), (0, 0));
    }

    #[test]
    fn a_round_offers_so_many_bytes_and_the_next_goes_on_behind_them() {
        let (mut pool, mut outbox) = (Pool::default(), Outbox::default());
        let mut expected = Vec::new();
        for fill in 1..=4 {
            outbox.put(&mut pool, |out| out.extend_from_slice(&[fill; 16]));
            outbox.put_data(&mut pool, Data::One(Buf::filled(share::SEALED, |b| b.fill(fill))));
            expected.resize(expected.len() + 16 + share::SEALED, fill);
        }
        let (mut got, mut rounds) = (Vec::new(), Vec::new());
        while !outbox.is_empty() {
            let taken = outbox.take(&mut pool, |pieces| {
                let before = got.len();
                pieces.iter().for_each(|piece| got.extend_from_slice(piece));
                Ok(got.len() - before)
            });
            rounds.push(taken.unwrap());
        }
        assert!(got == expected, "bytes differ");
        assert_eq!(rounds, [share::SEALED, share::SEALED, share::SEALED, share::SEALED, 64]);
    }

    #[test]
    fn headers_between_long_data_share_a_block() {
        let (mut pool, mut outbox) = (Pool::default(), Outbox::default());
        for _ in 0..1000 {
            outbox.put(&mut pool, |out| out.extend_from_slice(&[1; 16]));
            let buf = pool.buf(GATHER);
            outbox.put_data(&mut pool, Data::One(buf));
        }
        assert_eq!(outbox.memory(), 1000 * GATHER + ROOM);
        outbox.close(&mut pool);
        assert_eq!(outbox.memory(), 0);
    }

    #[test]
    fn a_send_to_nobody_is_an_error_and_no_signal() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let (mut pool, mut outbox) = (Pool::default(), Outbox::default());
        outbox.put(&mut pool, |out| out.push(1));
        let error = outbox.send(&ours, &mut pool).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        outbox.close(&mut pool);
        outbox.put(&mut pool, |out| out.push(1));
        outbox.put_data(&mut pool, Data::Zero { len: 4096, spare: None });
        outbox.put_data(&mut pool, Data::One(Buf::zeroed(4096)));
        assert!(outbox.is_empty() && outbox.chunks.is_empty());
    }
}

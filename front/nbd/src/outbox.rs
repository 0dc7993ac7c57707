//! Replies on their way out of one connection: small ones side by side in reply blocks, long data
//! gathered from where it lies.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use weir_bio::{Buf, Data};

use crate::pool::{ARENA, Pool};

/// Data from so many bytes on is gathered instead of copied.
pub(crate) const GATHER: usize = 16 << 10;

/// Most pieces of one system call.
const PIECES: usize = 64;

/// What zeros that nobody holds are sent from.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

enum Chunk {
    Arena(Vec<u8>),
    Buf(Buf),
    Zeros(usize),
}

impl Chunk {
    fn len(&self) -> usize {
        match self {
            Chunk::Arena(bytes) => bytes.len(),
            Chunk::Buf(buf) => buf.len(),
            Chunk::Zeros(len) => *len,
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
}

/// See the module.
#[derive(Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent.
    sent: usize,
    /// Bytes not sent.
    bytes: usize,
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

    /// Appends what `encode` appends to the block it is given.
    #[inline]
    pub(crate) fn put<T>(&mut self, pool: &mut Pool, encode: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let has_room = matches!(self.chunks.back(), Some(Chunk::Arena(last)) if last.len() < ARENA);
        if !has_room {
            self.chunks.push_back(Chunk::Arena(pool.arena()));
        }
        let Some(Chunk::Arena(arena)) = self.chunks.back_mut() else {
            unreachable!("the last chunk was just seen to be a block")
        };
        let before = arena.len();
        let value = encode(arena);
        self.bytes += arena.len() - before;
        value
    }

    /// Appends data behind its header, by copy or by gathering; the memory goes to the pool when
    /// it is no longer needed.
    #[inline]
    pub(crate) fn put_data(&mut self, pool: &mut Pool, data: Data) {
        match data {
            Data::Zero { len, spare } => {
                spare.into_iter().for_each(|buf| pool.give(buf));
                self.put_zeros(pool, len as usize);
            }
            Data::One(buf) => self.put_buf(pool, buf),
            Data::Many(mut bufs) => bufs.drain(..).for_each(|buf| self.put_buf(pool, buf)),
            Data::None => {}
        }
    }

    #[inline]
    fn put_buf(&mut self, pool: &mut Pool, buf: Buf) {
        if buf.len() < GATHER {
            self.put(pool, |out| out.extend_from_slice(&buf));
            pool.give(buf);
        } else {
            self.bytes += buf.len();
            self.chunks.push_back(Chunk::Buf(buf));
        }
    }

    #[inline]
    fn put_zeros(&mut self, pool: &mut Pool, len: usize) {
        if len < GATHER {
            self.put(pool, |out| out.resize(out.len() + len, 0));
        } else {
            self.bytes += len;
            self.chunks.push_back(Chunk::Zeros(len));
        }
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// The socket's: the peer is gone.
    pub(crate) fn send(&mut self, fd: impl AsFd, pool: &mut Pool) -> io::Result<Sent> {
        while self.bytes > 0 {
            let (sent, offered) = match self.send_once(&fd) {
                Ok(counts) => counts,
                Err(Errno::AGAIN) => return Ok(Sent::Blocked),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            self.retire(sent, pool);
            if sent < offered {
                return Ok(Sent::Blocked);
            }
        }
        Ok(Sent::All)
    }

    /// One system call: bytes sent and bytes offered.
    fn send_once(&self, fd: impl AsFd) -> Result<(usize, usize), Errno> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        if let [Chunk::Arena(only)] = self.chunks.as_slices().0
            && self.chunks.len() == 1
        {
            let rest = &only[self.sent..];
            return Ok((send(fd, rest, flags)?, rest.len()));
        }
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let (mut count, mut offered) = (0, 0);
        let mut skip = self.sent;
        for chunk in &self.chunks {
            let mut left = chunk.len() - skip;
            while left > 0 && count < PIECES {
                let piece = match chunk {
                    Chunk::Arena(bytes) => &bytes[skip..],
                    Chunk::Buf(buf) => &buf[skip..],
                    Chunk::Zeros(_) => &ZEROS[..left.min(ZEROS.len())],
                };
                pieces[count] = IoSlice::new(piece);
                (count, offered, left) = (count + 1, offered + piece.len(), left - piece.len());
            }
            skip = 0;
        }
        let sent = sendmsg(fd, &pieces[..count], &mut SendAncillaryBuffer::default(), flags)?;
        Ok((sent, offered))
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
            match self.chunks.pop_front() {
                Some(Chunk::Arena(arena)) => pool.give_arena(arena),
                Some(Chunk::Buf(buf)) => pool.give(buf),
                Some(Chunk::Zeros(_)) | None => {}
            }
        }
        if self.chunks.is_empty() && self.chunks.capacity() > PIECES {
            self.chunks = VecDeque::new();
        }
    }

    /// Drops everything: nobody will read it.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
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
    }

    #[test]
    fn a_send_to_nobody_is_an_error_and_no_signal() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let (mut pool, mut outbox) = (Pool::default(), Outbox::default());
        outbox.put(&mut pool, |out| out.push(1));
        let error = outbox.send(&ours, &mut pool).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        outbox.clear(&mut pool);
        assert!(outbox.is_empty());
    }
}

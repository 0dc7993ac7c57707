//! The kernel's calls and their answers as they travel through `/dev/fuse`: fuse(4).
//!
//! Only the calls that move a disk's bytes are decoded. All numbers are the machine's own.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use fuser::Errno;
use rustix::fs::OFlags;

/// Bytes of a call's header.
const HEADER: usize = 40;

/// Bytes in front of what a write brings: the header and its arguments.
const WRITE_HEAD: usize = HEADER + 40;

/// Opcodes, from the kernel's `linux/fuse.h` (a header of its interface, as libfuse has it).
const FORGET: u32 = 2;
const READ: u32 = 15;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
const READDIR: u32 = 28;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const READDIRPLUS: u32 = 44;

/// A call of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    /// Names the call in its answer.
    pub(crate) unique: u64,
    /// The process, or its thread, that asks; 0 if it is not seen from here.
    pub(crate) process: u32,
    pub(crate) call: Call<'a>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call<'a> {
    /// `len` bytes at `offset`.
    Read { handle: u64, offset: u64, len: u32 },
    /// The bytes are to be at `offset`, durable if the file was opened so.
    Write { handle: u64, offset: u64, bytes: &'a [u8], durable: bool },
    /// What was answered is to be durable.
    Flush { handle: u64 },
    /// One of these, cut short.
    Broken,
    /// What is not answered and changes nothing here: files that are forgotten, a caller that would
    /// like to stop waiting.
    Notice,
    /// Any other.
    Other,
}

impl<'a> Message<'a> {
    /// `None` for bytes that do not make a header.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (opcode, unique) = (u32_at(bytes, 4)?, u64_at(bytes, 8)?);
        let process = u32_at(bytes, 32)?;
        let call = match opcode {
            READ => read(bytes),
            WRITE => write(bytes),
            FSYNC => u64_at(bytes, HEADER).map(|handle| Call::Flush { handle }),
            FORGET | BATCH_FORGET | INTERRUPT => Some(Call::Notice),
            _ => Some(Call::Other),
        };
        Some(Message { unique, process, call: call.unwrap_or(Call::Broken) })
    }
}

fn read(bytes: &[u8]) -> Option<Call<'_>> {
    let (handle, offset) = (u64_at(bytes, HEADER)?, u64_at(bytes, HEADER + 8)?);
    Some(Call::Read { handle, offset, len: u32_at(bytes, HEADER + 16)? })
}

fn write(bytes: &[u8]) -> Option<Call<'_>> {
    let (handle, offset) = (u64_at(bytes, HEADER)?, u64_at(bytes, HEADER + 8)?);
    let (len, flags) = (u32_at(bytes, HEADER + 16)?, u32_at(bytes, HEADER + 32)?);
    let bytes = bytes.get(WRITE_HEAD..)?.get(..len as usize)?;
    Some(Call::Write { handle, offset, bytes, durable: flags & OFlags::DSYNC.bits() != 0 })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

/// The call that an answer is to; `None` for a message of another kind.
pub(crate) fn answered(answer: &[u8]) -> Option<u64> {
    u64_at(answer, 8).filter(|unique| *unique != 0)
}

/// Has the listing of a folder, if it is one that is asked for, be answered in `most` bytes.
pub(crate) fn shorten_listing(message: &mut [u8], most: u32) {
    let listing = matches!(u32_at(message, 4), Some(READDIR | READDIRPLUS));
    if listing && let Some(size) = message.get_mut(HEADER + 16..HEADER + 20) {
        let asked = <[u8; 4]>::try_from(&*size).map_or(most, u32::from_ne_bytes);
        size.copy_from_slice(&asked.min(most).to_ne_bytes());
    }
}

/// The first call of a session, which asks for no capability, with the arguments that protocol 7.31
/// has.
pub(crate) fn greeting() -> Vec<u8> {
    const LEN: usize = HEADER + 64;
    let mut message = vec![0; LEN];
    let unique = 1_u32;
    for (at, number) in [(0, LEN as u32), (4, INIT), (8, unique), (HEADER, 7), (HEADER + 4, 31)] {
        message[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    message
}

/// A descriptor of `/dev/fuse`: one end of a mount.
pub(crate) struct Link(OwnedFd);

impl Link {
    pub(crate) fn new(device: OwnedFd) -> Link {
        Link(device)
    }

    pub(crate) fn device(&self) -> &OwnedFd {
        &self.0
    }

    /// Answers a call. The kernel takes no answer once nothing is mounted any more.
    fn answer(&self, unique: u64, errno: i32, bytes: &[u8]) {
        const LEN: usize = 16;
        let mut head = [0; LEN];
        head[..4].copy_from_slice(&((LEN + bytes.len()) as u32).to_ne_bytes());
        head[4..8].copy_from_slice(&(-errno).to_ne_bytes());
        head[8..].copy_from_slice(&unique.to_ne_bytes());
        if let Err(error) = rustix::io::writev(&self.0, &[IoSlice::new(&head), IoSlice::new(bytes)])
        {
            tracing::debug!(%error, unique, "an answer that the kernel does not take");
        }
    }
}

/// A call that has no answer yet. Dropped, it is answered with EIO.
pub(crate) struct Pending {
    link: Option<Arc<Link>>,
    unique: u64,
}

impl Pending {
    pub(crate) fn new(link: &Arc<Link>, unique: u64) -> Pending {
        Pending { link: Some(Arc::clone(link)), unique }
    }

    /// Answers with what was read, or nothing.
    pub(crate) fn done(mut self, bytes: &[u8]) {
        self.answer(0, bytes);
    }

    /// Answers with so many bytes written.
    pub(crate) fn written(mut self, len: u32) {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.answer(0, &bytes);
    }

    pub(crate) fn failed(mut self, errno: Errno) {
        self.answer(errno.code(), &[]);
    }

    fn answer(&mut self, errno: i32, bytes: &[u8]) {
        if let Some(link) = self.link.take() {
            link.answer(self.unique, errno, bytes);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.answer(Errno::EIO.code(), &[]);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// A call with these arguments, each as its bytes.
    fn message(opcode: u32, arguments: &[&[u8]]) -> Vec<u8> {
        let arguments = arguments.concat();
        let len = (HEADER + arguments.len()) as u32;
        let head: [&[u8]; 9] = [
            &len.to_ne_bytes(),
            &opcode.to_ne_bytes(),
            &77_u64.to_ne_bytes(),
            &5_u64.to_ne_bytes(),
            &[0; 4],
            &[0; 4],
            &4711_u32.to_ne_bytes(),
            &[0; 4],
            &arguments,
        ];
        head.concat()
    }

    fn call(bytes: &[u8]) -> Call<'_> {
        let message = Message::decode(bytes).unwrap();
        assert_eq!((message.unique, message.process), (77, 4711));
        message.call
    }

    #[test]
    fn the_calls_that_move_bytes_are_read_and_all_others_are_left() {
        let (handle, offset) = (9_u64.to_ne_bytes(), (1_u64 << 40).to_ne_bytes());
        let (size, none) = (5_u32.to_ne_bytes(), [0; 4]);
        let transfer = |opcode, flags: u32, bytes: &[u8]| {
            let flags = flags.to_ne_bytes();
            let (lock_owner, padding) = ([0; 8], none);
            let parts: [&[u8]; 8] =
                [&handle, &offset, &size, &none, &lock_owner, &flags, &padding, bytes];
            message(opcode, &parts)
        };
        let read = Call::Read { handle: 9, offset: 1 << 40, len: 5 };
        assert_eq!(call(&transfer(READ, 0, &[])), read);
        let durable = OFlags::DSYNC.bits();
        for (flags, durable) in [(0, false), (durable, true), (OFlags::DIRECT.bits(), false)] {
            let bytes = transfer(WRITE, flags, b"abcde");
            let write = Call::Write { handle: 9, offset: 1 << 40, bytes: b"abcde", durable };
            assert_eq!(call(&bytes), write);
            assert_eq!(call(&bytes[..bytes.len() - 1]), Call::Broken, "a byte is missing");
        }
        let flush = message(FSYNC, &[&handle, &[0; 8]]);
        assert_eq!(call(&flush), Call::Flush { handle: 9 });
        assert_eq!(call(&flush[..HEADER + 7]), Call::Broken);
        assert_eq!(call(&message(1, &[b"name\0"])), Call::Other);
        for notice in [FORGET, INTERRUPT, BATCH_FORGET] {
            assert_eq!(call(&message(notice, &[&handle])), Call::Notice);
        }
        assert_eq!(Message::decode(&flush[..35]), None);
        let mut listing = transfer(READDIR, 0, &[]);
        shorten_listing(&mut listing, 6);
        assert_eq!(listing, transfer(READDIR, 0, &[]), "short enough");
        shorten_listing(&mut listing, 4);
        assert_eq!(listing[HEADER + 16], 4);
    }

    #[test]
    fn a_call_is_answered_once_and_one_that_is_dropped_with_eio() {
        let (mut read, write) = std::io::pipe().unwrap();
        let link = Arc::new(Link::new(write.into()));
        Pending::new(&link, 1).done(b"abc");
        Pending::new(&link, 2).written(4096);
        Pending::new(&link, 3).failed(Errno::ENODEV);
        drop(Pending::new(&link, 4));
        drop(link);
        let mut bytes = Vec::new();
        read.read_to_end(&mut bytes).unwrap();
        let mut rest = &bytes[..];
        let mut next = || {
            let len = u32_at(rest, 0).unwrap() as usize;
            let (answer, behind) = rest.split_at(len);
            rest = behind;
            (u64_at(answer, 8).unwrap(), u32_at(answer, 4).unwrap() as i32, answer[16..].to_vec())
        };
        assert_eq!(next(), (1, 0, b"abc".to_vec()));
        assert_eq!(next(), (2, 0, [&4096_u32.to_ne_bytes()[..], &[0; 4]].concat()));
        assert_eq!(next(), (3, -19, vec![]));
        assert_eq!(next(), (4, -5, vec![]));
        assert!(rest.is_empty());
    }
}

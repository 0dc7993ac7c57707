//! The thread that moves the disks' bytes takes the kernel's calls for them itself: a service on a
//! reactor that reads `/dev/fuse` when there is something to read.
//!
//! Reads, writes and flushes go straight to the disk, as many as there are before the reactor
//! submits them, and the reactor that hears of their end answers: no thread has to be woken for
//! one. All other calls (a lookup, an open, a listing) go on to a thread of the library through a
//! socket, and its answers come back by it: an open waits for a reactor, which may be this one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use weir_live::{Interest, Readiness, Service, Turn};

use crate::disks::Disks;
use crate::files::WRITE_BYTES_MAX;
use crate::port::Caller;
use crate::wire::{Call, Link, Message, Pending, shorten_listing};

/// Tokens of the two descriptors.
const KERNEL: u32 = 0;
const LIBRARY: u32 = 1;

/// Calls taken before others on the reactor have their turn.
const CALLS: usize = 64;

/// Bytes of theirs: a call that begins within them is taken whole.
const BYTES: usize = 1 << 20;

/// The longest call, bytes, with room for its arguments: the kernel hands nothing to a shorter
/// buffer.
const MESSAGE: usize = WRITE_BYTES_MAX as usize + 4096;

/// The longest listing that fits in an answer of the library through the socket.
const LISTING: u32 = 64 << 10;

/// The calls of one mount.
pub(crate) struct Calls {
    disks: Arc<Disks>,
    kernel: Arc<Link>,
    /// The way to the library's thread and back.
    library: OwnedFd,
    message: Vec<u8>,
    /// Bytes of a call in `message` for which the library had no room. Nothing is read meanwhile.
    held: usize,
    answer: Vec<u8>,
}

impl Calls {
    /// With both descriptors watched from now on, or the system's reason that one cannot be.
    pub(crate) fn new(
        turn: &Turn<'_>,
        disks: Arc<Disks>,
        kernel: Arc<Link>,
        library: OwnedFd,
    ) -> (Calls, std::io::Result<()>) {
        let watched = turn.watch(kernel.device(), KERNEL, Interest::READ);
        let watched = watched.and_then(|()| turn.watch(&library, LIBRARY, Interest::READ));
        let (message, answer) = (vec![0; MESSAGE], vec![0; 2 * LISTING as usize]);
        let calls = Calls { disks, kernel, library, message, held: 0, answer };
        if watched.is_err() {
            calls.end(turn);
        }
        (calls, watched)
    }

    fn take_calls(&mut self, turn: &mut Turn<'_>) {
        use rustix::io::Errno as Why;
        let mut bytes = 0;
        for _ in 0..CALLS {
            if self.held > 0 || bytes >= BYTES {
                return;
            }
            match rustix::io::read(self.kernel.device(), &mut self.message[..]) {
                Ok(len) => {
                    bytes += len;
                    self.take(turn, len);
                }
                Err(Why::AGAIN) => return,
                // NOENT: the process was killed before its call was read.
                Err(Why::INTR | Why::NOENT) => {}
                Err(why) => {
                    if why != Why::NODEV {
                        tracing::error!(error = %why, "the disks as files end: no call is heard");
                    }
                    return self.end(turn);
                }
            }
        }
    }

    /// Deals with the call of so many bytes.
    fn take(&mut self, turn: &mut Turn<'_>, len: usize) {
        let Some(message) = Message::decode(&self.message[..len]) else { return };
        let Message { unique, process, call } = message;
        let caller = || Caller::Kernel(Pending::new(&self.kernel, unique));
        match call {
            Call::Read { handle, offset, len } => {
                self.disks.read(process, handle, offset, len, caller());
            }
            Call::Write { handle, offset, bytes, durable } => {
                self.disks.write(process, handle, (offset, bytes), durable, caller());
            }
            Call::Flush { handle } => self.disks.flush(process, handle, caller()),
            Call::Broken => drop(caller()),
            Call::Other => {
                shorten_listing(&mut self.message[..len], LISTING);
                self.pass_on(turn, len);
            }
        }
    }

    /// Hands a call on to the library; it is held while there is no room.
    fn pass_on(&mut self, turn: &mut Turn<'_>, len: usize) {
        let was_held = std::mem::take(&mut self.held) > 0;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let message = &self.message[..len];
        match send(&self.library, message, flags) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => self.held = len,
            Err(error) => {
                // A call that wants no answer gets one that the kernel does not take.
                tracing::warn!(%error, "a call for the disks as files is answered with EIO");
                let message = Message::decode(message);
                message.iter().for_each(|m| drop(Pending::new(&self.kernel, m.unique)));
            }
        }
        let holds = self.held > 0;
        if holds != was_held {
            let kernel = Interest { read: !holds, write: false };
            let library = Interest { read: true, write: holds };
            let watched = turn.rewatch(self.kernel.device(), KERNEL, kernel);
            if watched.and(turn.rewatch(&self.library, LIBRARY, library)).is_err() {
                self.end(turn);
            }
        }
    }

    /// Brings the library's answers to the kernel.
    fn take_answers(&mut self) {
        for _ in 0..CALLS {
            let Ok((len, _)) = recv(&self.library, &mut self.answer[..], RecvFlags::DONTWAIT)
            else {
                return;
            };
            if len == 0 {
                return;
            }
            // The kernel knows no call any more whose process was killed meanwhile.
            let _ = rustix::io::write(self.kernel.device(), &self.answer[..len]);
        }
    }

    /// The file system is not mounted any more: what is under way is answered as it ends.
    fn end(&self, turn: &Turn<'_>) {
        turn.unwatch(self.kernel.device());
        turn.unwatch(&self.library);
        // It ends the library's thread.
        let _ = shutdown(&self.library, Shutdown::Both);
        turn.handle::<Calls>().remove();
    }
}

impl Service for Calls {
    fn ready(&mut self, turn: &mut Turn<'_>, token: u32, readiness: Readiness) {
        if token == KERNEL {
            return self.take_calls(turn);
        }
        if readiness.closed {
            // Its thread has ended: the calls it is asked for fail one by one.
            if self.held > 0 {
                self.pass_on(turn, self.held);
            }
            return turn.unwatch(&self.library);
        }
        if readiness.readable {
            self.take_answers();
        }
        if readiness.writable && self.held > 0 {
            self.pass_on(turn, self.held);
        }
    }

    fn completed(&mut self, _: &mut Turn<'_>, _: u32) {}

    fn settle(&mut self, _: &mut Turn<'_>) {}
}

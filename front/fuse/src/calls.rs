//! The thread that moves the disks' bytes takes the kernel's calls for them itself: a service on a
//! reactor that reads `/dev/fuse` when there is something to read.
//!
//! Reads, writes and flushes go straight to the disk, as many as there are before the reactor
//! submits them, and the reactor that hears of their end answers: no thread has to be woken for
//! one. All other calls (a lookup, an open, a listing) go on to a thread of the library through a
//! socket, and its answers come back by it: an open waits for a reactor, which may be this one.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use weir_live::{Handle, Host, Interest, Readiness, Service, Turn};

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

/// The calls of one mount, on one reactor; nothing once they were moved to another.
pub(crate) struct Calls(Option<Taker>);

/// What takes calls, wherever it is.
pub(crate) struct Taker {
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
    /// Puts them on a reactor, whose calling thread this is not.
    ///
    /// # Errors
    /// The system's, of which a descriptor cannot be watched; a host that has ended.
    pub(crate) fn install(host: &Host, reactor: usize, taker: Taker) -> io::Result<Handle<Calls>> {
        let (sender, receiver) = channel();
        let make = move |turn: &mut Turn<'_>| {
            let watched = taker.begin(turn);
            let taker = watched.is_ok().then_some(taker);
            // It is received below.
            let _ = sender.send(watched);
            Calls(taker)
        };
        let handle = host.install(reactor, make).map_err(io::Error::other)?;
        receiver.recv().map_err(io::Error::other)??;
        Ok(handle)
    }

    /// Moves them to another reactor; where they are, or `None` if they have ended. Calls that come
    /// meanwhile wait in the kernel.
    pub(crate) fn move_to(
        handle: &Handle<Calls>,
        host: &Host,
        reactor: usize,
    ) -> Option<Handle<Calls>> {
        let (sender, receiver) = channel();
        handle.post(move |calls, turn| {
            if let Some(taker) = calls.0.take() {
                turn.unwatch(taker.kernel.device());
                turn.unwatch(&taker.library);
                // It is received below.
                let _ = sender.send(taker);
            }
        });
        let taker = receiver.recv().ok()?;
        handle.remove();
        let moved = Calls::install(host, reactor, taker);
        moved.inspect_err(|error| tracing::error!(%error, "the disks as files end")).ok()
    }
}

impl Taker {
    pub(crate) fn new(disks: Arc<Disks>, kernel: Arc<Link>, library: OwnedFd) -> Taker {
        let (message, answer) = (vec![0; MESSAGE], vec![0; 2 * LISTING as usize]);
        Taker { disks, kernel, library, message, held: 0, answer }
    }

    /// The events of both descriptors that are waited for.
    fn interests(&self) -> [Interest; 2] {
        let holds = self.held > 0;
        [Interest { read: !holds, write: false }, Interest { read: true, write: holds }]
    }

    /// Has both descriptors watched.
    fn begin(&self, turn: &Turn<'_>) -> io::Result<()> {
        let [kernel, library] = self.interests();
        turn.watch(self.kernel.device(), KERNEL, kernel)?;
        turn.watch(&self.library, LIBRARY, library)
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
        if was_held != (self.held > 0) {
            let [kernel, library] = self.interests();
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
        // Moved away in the same pass, if there is none.
        self.0.iter_mut().for_each(|taker| taker.ready(turn, token, readiness));
    }

    fn completed(&mut self, _: &mut Turn<'_>, _: u32) {}

    fn settle(&mut self, _: &mut Turn<'_>) {}
}

impl Taker {
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
}

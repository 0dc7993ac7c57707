//! The thread that moves the disks' bytes takes the kernel's calls for them itself: a service on a
//! reactor that reads `/dev/fuse` when there is something to read.
//!
//! Reads, writes and flushes go straight to the disk, as many as there are before the reactor
//! submits them, and the reactor that hears of their end answers: no thread has to be woken for
//! one. All other calls (a lookup, an open, a listing) go on to a thread of the library through a
//! socket, and its answers come back by it: an open waits for a reactor, which may be this one.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use weir_live::{Handle, Host, Interest, Readiness, Service, Turn};

use crate::budget::Share;
use crate::disks::Disks;
use crate::files::WRITE_BYTES_MAX;
use crate::port::{Caller, Short};
use crate::wire::{Call, Link, Message, Pending, answered, shorten_listing};

#[cfg(test)]
mod tests;

/// Tokens of the two descriptors.
const KERNEL: u32 = 0;
const LIBRARY: u32 = 1;

/// Calls taken before others on the reactor have their turn.
const CALLS: usize = 64;

/// Bytes that they bring or ask for: a call that begins within them is taken whole.
const BYTES: usize = 1 << 20;

/// The longest call, bytes, with room for its arguments: the kernel hands nothing to a shorter
/// buffer.
const MESSAGE: usize = WRITE_BYTES_MAX as usize + 4096;

/// Calls that wait for the library, and their bytes, with which no more calls are taken.
const WAITING: usize = 4096;
/// See [`WAITING`].
const WAITING_BYTES: usize = 4 << 20;

/// The longest listing that fits in an answer of the library through the socket.
const LISTING: u32 = 64 << 10;

/// The calls of one mount, on one reactor; nothing once they were moved to another.
pub(crate) struct Calls(Option<CallRouter>);

/// Reads the kernel's calls and sends each where it is carried out, on whatever reactor it is: to
/// its disk, or to the library, whose answers it brings to the kernel.
pub(crate) struct CallRouter {
    disks: Arc<Disks>,
    kernel: Arc<Link>,
    /// The way to the library's thread and back.
    library: OwnedFd,
    message: Vec<u8>,
    /// Calls for which the library had no room yet, the oldest first.
    waiting: VecDeque<Vec<u8>>,
    /// Their bytes.
    waiting_bytes: usize,
    /// Calls that the library has and has not answered.
    asked: BTreeSet<u64>,
    answer: Vec<u8>,
    /// The write that waits for memory. No call behind it is taken meanwhile.
    stalled: Option<Stalled>,
    /// Unmounts the disks, unless that was done, so that no caller waits where none is heard.
    unmount: Unmount,
}

/// A write in the router's message, which waits for memory.
struct Stalled {
    /// Its bytes.
    len: usize,
    caller: Caller,
}

/// See [`CallRouter::fail`].
pub(crate) type Unmount = Arc<dyn Fn() + Send + Sync>;

impl Calls {
    /// Puts them on a reactor, whose calling thread this is not.
    ///
    /// # Errors
    /// The system's, of which a descriptor cannot be watched; a host that has ended.
    pub(crate) fn install(
        host: &Host,
        reactor: usize,
        router: CallRouter,
    ) -> io::Result<Handle<Calls>> {
        let (sender, receiver) = channel();
        let make = move |turn: &mut Turn<'_>| {
            let mut router = router;
            let watched = router.begin(turn).inspect_err(|_| router.fail());
            let router = watched.is_ok().then_some(router);
            // It is received below.
            let _ = sender.send(watched);
            Calls(router)
        };
        let handle = host.install(reactor, make).map_err(io::Error::other)?;
        let watched = receiver.recv().map_err(io::Error::other)?;
        watched.inspect_err(|_| handle.remove())?;
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
            if let Some(router) = calls.0.take() {
                turn.unwatch(router.kernel.device());
                turn.unwatch(&router.library);
                // It is received below.
                let _ = sender.send(router);
            }
        });
        let router = receiver.recv().ok()?;
        handle.remove();
        let moved = Calls::install(host, reactor, router);
        moved.inspect_err(|error| tracing::error!(%error, "the disks as files end")).ok()
    }
}

impl Calls {
    /// There is memory for the write that waits for it, or nothing to wait for any more.
    fn resume(&mut self, turn: &mut Turn<'_>, share: Option<Share>) {
        if let Some(router) = &mut self.0 {
            router.resume(turn, share);
        }
    }
}

impl CallRouter {
    pub(crate) fn new(
        disks: Arc<Disks>,
        kernel: Arc<Link>,
        library: OwnedFd,
        unmount: Unmount,
    ) -> CallRouter {
        let (message, answer) = (vec![0; MESSAGE], vec![0; 2 * LISTING as usize]);
        let (waiting, asked) = (VecDeque::new(), BTreeSet::new());
        let waiting_bytes = 0;
        CallRouter {
            disks,
            kernel,
            library,
            message,
            waiting,
            waiting_bytes,
            asked,
            answer,
            stalled: None,
            unmount,
        }
    }

    /// Whether calls are taken: no write waits for memory, and not too many for the library.
    fn takes_more(&self) -> bool {
        let has_room = self.waiting.len() < WAITING && self.waiting_bytes < WAITING_BYTES;
        self.stalled.is_none() && has_room
    }

    /// The events of both descriptors that are waited for.
    fn interests(&self) -> [Interest; 2] {
        let (full, waits) = (!self.takes_more(), !self.waiting.is_empty());
        [Interest { read: !full, write: false }, Interest { read: true, write: waits }]
    }

    /// Has both descriptors watched, and goes on with a write that waits for memory: what it is
    /// told elsewhere it does not hear here.
    fn begin(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        let [kernel, library] = self.interests();
        turn.watch(self.kernel.device(), KERNEL, kernel)?;
        let watched = turn.watch(&self.library, LIBRARY, library);
        watched.inspect_err(|_| turn.unwatch(self.kernel.device()))?;
        self.resume(turn, None);
        Ok(())
    }

    fn take_calls(&mut self, turn: &mut Turn<'_>) {
        use rustix::io::Errno as Why;
        let mut bytes = 0;
        for _ in 0..CALLS {
            if !self.takes_more() || bytes >= BYTES {
                return;
            }
            match rustix::io::read(self.kernel.device(), &mut self.message[..]) {
                Ok(len) => bytes += self.take(turn, len).max(len),
                Err(Why::AGAIN) => return,
                // NOENT: a call was taken back before it was read.
                Err(Why::INTR | Why::NOENT) => {}
                Err(Why::NODEV) => return self.end(turn),
                Err(why) => {
                    tracing::error!(error = %why, "the disks as files end: no call is heard");
                    self.fail();
                    return self.end(turn);
                }
            }
        }
    }

    /// Deals with the call of so many bytes; the bytes that it asks for.
    fn take(&mut self, turn: &mut Turn<'_>, len: usize) -> usize {
        let Some(message) = Message::decode(&self.message[..len]) else { return 0 };
        let Message { unique, process, call } = message;
        let caller = || Caller::Kernel(Pending::new(&self.kernel, unique));
        match call {
            Call::Read { handle, offset, len } => {
                self.disks.read(process, handle, (offset, len), caller());
                return len as usize;
            }
            Call::Write { .. } => self.write(turn, len, (caller(), None)),
            Call::Flush { handle } => self.disks.flush(process, handle, caller()),
            Call::Broken => drop(caller()),
            Call::Other => {
                shorten_listing(&mut self.message[..len], LISTING);
                self.pass_on(turn, len);
            }
            Call::Notice => {}
        }
        0
    }

    /// Has the write in `message` carried out, or keeps it until there is memory.
    fn write(&mut self, turn: &mut Turn<'_>, len: usize, paid: (Caller, Option<Share>)) {
        let Some(Message { process, call, .. }) = Message::decode(&self.message[..len]) else {
            return;
        };
        let Call::Write { handle, offset, bytes, durable } = call else { return };
        let written = self.disks.write(process, handle, (offset, bytes), durable, paid);
        if let Err(Short { caller, need }) = written {
            let (before, calls) = (self.interests(), turn.handle::<Calls>());
            self.stalled = Some(Stalled { len, caller });
            let resume = move |share| calls.post(|calls, turn| calls.resume(turn, share));
            self.disks.wait(need, resume);
            self.follow(turn, before);
        }
    }

    /// There is memory for the write that waits for it, or nothing to wait for any more.
    fn resume(&mut self, turn: &mut Turn<'_>, share: Option<Share>) {
        let before = self.interests();
        if let Some(Stalled { len, caller }) = self.stalled.take() {
            self.write(turn, len, (caller, share));
            self.follow(turn, before);
        }
    }

    /// Hands a call on to the library, behind those that wait for room there.
    fn pass_on(&mut self, turn: &mut Turn<'_>, len: usize) {
        let before = self.interests();
        let message = std::mem::take(&mut self.message);
        if !self.waiting.is_empty() || !self.hand_over(&message[..len]) {
            self.waiting.push_back(message[..len].to_vec());
            self.waiting_bytes += len;
        }
        self.message = message;
        self.follow(turn, before);
    }

    /// Hands over the calls that wait, as many as there is room for.
    fn go_on(&mut self, turn: &mut Turn<'_>) {
        let before = self.interests();
        while let Some(message) = self.waiting.pop_front() {
            if !self.hand_over(&message) {
                self.waiting.push_front(message);
                break;
            }
            self.waiting_bytes -= message.len();
        }
        self.follow(turn, before);
    }

    /// Whether a call is out of the way: with the library, or answered because that has ended.
    fn hand_over(&mut self, message: &[u8]) -> bool {
        let Some(Message { unique, .. }) = Message::decode(message) else { return true };
        match send(&self.library, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => {
                self.asked.insert(unique);
            }
            Err(rustix::io::Errno::AGAIN) => return false,
            Err(error) => {
                tracing::debug!(%error, "a call for the disks as files is answered with EIO");
                drop(Pending::new(&self.kernel, unique));
            }
        }
        true
    }

    /// Has the events watched that are waited for now, if these were others before.
    fn follow(&mut self, turn: &mut Turn<'_>, before: [Interest; 2]) {
        let [kernel, library] = self.interests();
        let mut watched = Ok(());
        if kernel != before[0] {
            watched = turn.rewatch(self.kernel.device(), KERNEL, kernel);
        }
        // It is not watched any more once its thread has ended.
        if library != before[1] {
            watched = watched.and(turn.rewatch(&self.library, LIBRARY, library));
        }
        if let Err(error) = watched {
            tracing::error!(%error, "the disks as files end: no call is heard");
            self.fail();
            self.end(turn);
        }
    }

    /// Brings so many of the library's answers to the kernel, if there are so many.
    fn take_answers(&mut self, most: usize) {
        for _ in 0..most {
            let len = match recv(&self.library, &mut self.answer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return,
                Ok((len, _)) => len,
                // The library's thread ended with calls unread. What it answered is behind this.
                Err(rustix::io::Errno::CONNRESET) => continue,
                Err(_) => return,
            };
            let answer = &self.answer[..len];
            if let Some(unique) = answered(answer) {
                self.asked.remove(&unique);
            }
            // It takes none once the disks are not mounted any more.
            let _ = rustix::io::write(self.kernel.device(), answer);
        }
    }

    /// No call is heard any more, though the disks are mounted: they are unmounted, so that
    /// those who ask are told.
    fn fail(&self) {
        let unmount = Arc::clone(&self.unmount);
        // It may wait for calls that are under way here.
        let aside = std::thread::Builder::new().name(String::from("weir-unmount"));
        if aside.spawn(move || unmount()).is_err() {
            // No thread is left: a reactor that waits is better than callers that do for ever.
            (self.unmount)();
        }
    }

    /// No call is taken from now on. What is under way is answered as it ends, and a write that
    /// waits for memory with EIO.
    fn end(&mut self, turn: &Turn<'_>) {
        self.stalled = None;
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
        self.0.iter_mut().for_each(|router| router.ready(turn, token, readiness));
    }

    fn completed(&mut self, _: &mut Turn<'_>, _: u32) {}

    fn settle(&mut self, _: &mut Turn<'_>) {}
}

impl CallRouter {
    fn ready(&mut self, turn: &mut Turn<'_>, token: u32, readiness: Readiness) {
        if token == KERNEL {
            // Nothing is mounted any more, or there is something to read.
            return if readiness.closed { self.end(turn) } else { self.take_calls(turn) };
        }
        if readiness.closed {
            tracing::error!(
                "disks as files: no more can be opened, as the thread for that has ended"
            );
            self.take_answers(usize::MAX);
            for unique in std::mem::take(&mut self.asked) {
                drop(Pending::new(&self.kernel, unique));
            }
            self.go_on(turn);
            return turn.unwatch(&self.library);
        }
        if readiness.readable {
            self.take_answers(CALLS);
        }
        if readiness.writable {
            self.go_on(turn);
        }
    }
}

//! Signals that end the daemon, and the word that ends its wait as they do.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::Failure;
use crate::handover::{Handed, REPLACED, Waiting};

/// SIGINT and SIGTERM, as bytes in a pipe.
pub(super) struct Signals {
    pipe: UnixStream,
    writer: UnixStream,
    /// The last signal.
    last: Arc<AtomicUsize>,
}

impl Signals {
    pub(super) fn install() -> Result<Signals, Failure> {
        let failed = |e: std::io::Error| format!("signals: {e}");
        let (pipe, writer) = UnixStream::pair().map_err(failed)?;
        let last = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM] {
            // Before the byte that is waited for.
            signal_hook::flag::register_usize(signal, Arc::clone(&last), signal as usize)
                .map_err(failed)?;
            let writer = writer.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
        }
        Ok(Signals { pipe, writer, last })
    }

    /// The name of the last signal, if one has come.
    pub(super) fn name(&self) -> Option<&'static str> {
        match self.last.load(Ordering::Relaxed) as i32 {
            SIGINT => Some("SIGINT"),
            SIGTERM => Some("SIGTERM"),
            _ => None,
        }
    }

    /// A byte written here ends the wait as a signal does.
    pub(super) fn end(&self) -> std::io::Result<UnixStream> {
        self.writer.try_clone()
    }

    /// Waits for a signal.
    pub(super) fn wait(&self) {
        self.next();
    }

    /// Waits for a signal, or for a daemon that takes the place of this one.
    pub(super) fn wait_for_either(&self, waiting: &Waiting) -> Option<Handed> {
        while self.next() == Some(REPLACED) {
            if let Some(given) = waiting.take() {
                return Some(given);
            }
        }
        None
    }

    /// The next byte. Whatever ends the read ends the wait: a daemon that can no longer hear
    /// signals stops.
    fn next(&self) -> Option<u8> {
        let mut byte = [0];
        (&self.pipe).read(&mut byte).is_ok_and(|count| count > 0).then_some(byte[0])
    }

    /// Readable once a signal has come.
    pub(super) fn heard(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Whether one has come.
    pub(super) fn is_heard(&self) -> bool {
        let mut waits = [PollFd::new(&self.pipe, PollFlags::IN)];
        poll(&mut waits, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

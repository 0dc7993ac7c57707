//! Ways to wake a sleeping owner.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::Thread;

use rustix::event::{EventfdFlags, eventfd};
use weir_ring::Wake;

/// Wakes a thread that sleeps in a poll on [`EventWake::as_fd`].
#[derive(Clone, Debug)]
pub struct EventWake {
    fd: Arc<OwnedFd>,
}

impl EventWake {
    /// An event that has not happened.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn new() -> std::io::Result<EventWake> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(EventWake { fd: Arc::new(fd) })
    }

    /// Takes the event back, so that the descriptor is no longer readable.
    pub fn clear(&self) {
        // Nothing to read is as good as having read it.
        let _ = rustix::io::read(&*self.fd, &mut [0_u8; 8]);
    }
}

impl AsFd for EventWake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Wake for EventWake {
    fn wake(&self) {
        // The one way it fails is a full counter, and then the descriptor is readable already.
        let _ = rustix::io::write(&*self.fd, &1_u64.to_ne_bytes());
    }
}

/// Wakes a parked thread.
#[derive(Clone, Debug)]
pub struct Unpark(Thread);

impl Unpark {
    /// Wakes the calling thread.
    #[must_use]
    pub fn current() -> Unpark {
        Unpark(std::thread::current())
    }
}

impl Wake for Unpark {
    fn wake(&self) {
        self.0.unpark();
    }
}

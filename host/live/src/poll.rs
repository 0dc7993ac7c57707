//! The set of descriptors a reactor sleeps on (epoll, level-triggered).
//!
//! Level-triggered, because then a service may leave bytes where they are and is asked again, and
//! because the kernel wakes no thread for a direction that was not asked for: with edges, each
//! reply a client reads would be a wake.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

/// Events taken at once.
const EVENTS: usize = 128;

/// Sleeps shorter than this are timed to the nanosecond, which takes a second system call; longer
/// ones to the millisecond, rounded up.
const FINE_NS: u64 = 100_000_000;

/// The events of a descriptor that a service waits for. Its end is reported in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// When it can be read.
    pub read: bool,
    /// When it can be written.
    pub write: bool,
}

impl Interest {
    /// Reading only.
    pub const READ: Interest = Interest { read: true, write: false };

    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, self.read);
        flags.set(epoll::EventFlags::OUT, self.write);
        flags
    }
}

/// The events of a descriptor that have occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// It can be read, if only to find its end.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// It is broken, or the other side has closed both directions. Reported again and again, so
    /// the service has to [give up watching](crate::Turn::unwatch).
    pub closed: bool,
}

/// An epoll set.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poller {
    /// A descriptor for [`Poller::new`].
    pub(crate) fn descriptor() -> io::Result<OwnedFd> {
        Ok(epoll::create(epoll::CreateFlags::CLOEXEC)?)
    }

    pub(crate) fn new(epoll: OwnedFd) -> Poller {
        Poller { epoll, events: Vec::with_capacity(EVENTS) }
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>, key: u64, interest: Interest) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::add(&self.epoll, fd, data, interest.flags())?)
    }

    pub(crate) fn change(
        &self,
        fd: BorrowedFd<'_>,
        key: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let data = epoll::EventData::new_u64(key);
        Ok(epoll::modify(&self.epoll, fd, data, interest.flags())?)
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until something happens or the time (ns; `None`: for ever) has passed.
    pub(crate) fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.events.clear();
        let mut timeout = timeout_ns.map(timespec);
        if let Some(fine) = timeout_ns.filter(|ns| (1..FINE_NS).contains(ns)) {
            let mut set = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut set, Some(&timespec(fine))) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Ok(_) => timeout = Some(timespec(0)),
                Err(error) => return Err(error.into()),
            }
        }
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The event at `index` of the last wait: the key, and what has happened.
    pub(crate) fn event(&self, index: usize) -> Option<(u64, Readiness)> {
        use epoll::EventFlags as F;
        let epoll::Event { flags, data } = *self.events.get(index)?;
        let closed = flags.intersects(F::HUP | F::ERR);
        let readable = closed || flags.contains(F::IN);
        Some((data.u64(), Readiness { readable, writable: flags.contains(F::OUT), closed }))
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, EventWake};
    use std::os::fd::AsFd;
    use weir_ring::Wake;

    #[test]
    fn a_wait_lasts_as_long_as_it_was_told_and_no_event_is_made_up() {
        let mut poller = Poller::new(Poller::descriptor().unwrap());
        for ns in [0, 50_000, 1_500_000, 101_000_000] {
            let start = Clock.now();
            poller.wait(Some(ns)).unwrap();
            assert!(Clock.now().since(start) >= ns, "{ns} ns were cut short");
            assert_eq!(poller.event(0), None);
        }
    }

    #[test]
    fn a_wake_ends_a_wait_of_any_length_and_is_cleared() {
        let mut poller = Poller::new(Poller::descriptor().unwrap());
        let wake = EventWake::new().unwrap();
        poller.add(wake.as_fd(), 7, Interest::READ).unwrap();
        for timeout in [None, Some(50_000_000), Some(60_000_000_000)] {
            wake.wake();
            poller.wait(timeout).unwrap();
            let (key, readiness) = poller.event(0).unwrap();
            assert!(key == 7 && readiness.readable && !readiness.closed);
            wake.clear();
            poller.wait(Some(0)).unwrap();
            assert_eq!(poller.event(0), None);
        }
    }
}

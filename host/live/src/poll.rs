//! The set of descriptors a reactor sleeps on (epoll, level-triggered).
//!
//! Level-triggered, because then a service may leave bytes where they are and is asked again, and
//! because the kernel wakes no thread for a direction that was not asked for: with edges, each
//! reply a client reads would be a wake. The reactor's own wake is the exception: an edge of it
//! needs no read to clear it.
//!
//! Waits have no time-out of their own: a time-out arms a timer and takes it back in each wait, and
//! nearly every wait of a busy reactor ends before. One timer stands beside the descriptors instead
//! (`poll/timer.rs`).

mod timer;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use weir_bio::Nanos;

use timer::Timer;

/// Events taken at once.
const EVENTS: usize = 128;

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

/// The descriptors of a [`Poller`], made before the thread that uses them.
pub(crate) struct Descriptors {
    epoll: OwnedFd,
    timer: Timer,
}

impl Descriptors {
    pub(crate) fn new() -> io::Result<Descriptors> {
        Ok(Descriptors { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, timer: Timer::new()? })
    }
}

/// An epoll set with its timer.
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: Timer,
    /// The key of the timer's event.
    timer_key: u64,
    events: Vec<epoll::Event>,
}

impl Poller {
    /// `timer_key` is no key of a descriptor: the poller keeps that event to itself.
    pub(crate) fn new(descriptors: Descriptors, timer_key: u64) -> io::Result<Poller> {
        let Descriptors { epoll, timer } = descriptors;
        let poller = Poller { epoll, timer, timer_key, events: Vec::with_capacity(EVENTS) };
        poller.add_edge(poller.timer.as_fd(), timer_key)?;
        Ok(poller)
    }

    /// Watches for each time the descriptor becomes readable anew, so that it need not be read.
    pub(crate) fn add_edge(&self, fd: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), flags)?)
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

    /// Has the timer ring at this time at the latest: for a thread that sleeps on the descriptor.
    pub(crate) fn ring_by(&mut self, at: Nanos) -> io::Result<()> {
        self.timer.ring_by(at)
    }

    /// Takes the events that are there, without waiting.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        self.take(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    /// Waits until something happens, which is at this time at the latest (`None`: not by itself).
    /// The timer may end it earlier, for a time that was asked for before.
    pub(crate) fn wait(&mut self, until: Option<Nanos>) -> io::Result<()> {
        if let Some(at) = until {
            self.timer.ring_by(at)?;
        }
        self.take(None)
    }

    fn take(&mut self, timeout: Option<&Timespec>) -> io::Result<()> {
        self.events.clear();
        let spare = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, spare, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let rang = self.events.iter().position(|event| event.data.u64() == self.timer_key);
        if let Some(index) = rang {
            self.events.swap_remove(index);
            self.timer.rang();
        }
        Ok(())
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

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, EventWake};
    use std::os::fd::AsFd;
    use weir_ring::Wake;

    const TIMER: u64 = u64::MAX;

    fn poller() -> Poller {
        Poller::new(Descriptors::new().unwrap(), TIMER).unwrap()
    }

    /// Waits until this time, at least once.
    fn wait_out(poller: &mut Poller, at: Nanos) {
        loop {
            poller.wait(Some(at)).unwrap();
            assert_eq!(poller.event(0), None);
            if Clock.now() >= at {
                return;
            }
        }
    }

    #[test]
    fn a_wait_lasts_until_its_time_and_no_event_is_made_up() {
        let mut poller = poller();
        for ns in [0, 50_000, 1_500_000, 101_000_000] {
            wait_out(&mut poller, Clock.now() + ns);
            poller.look().unwrap();
            assert_eq!(poller.event(0), None);
        }
        assert_eq!(poller.timer.settings(), 4);
    }

    #[test]
    fn the_timer_is_set_for_an_earlier_time_only() {
        let (mut poller, wake) = (poller(), EventWake::new().unwrap());
        poller.add_edge(wake.as_fd(), 7).unwrap();
        let start = Clock.now();
        for later_ns in [3_600_000_000_000, 3_600_000_000_001, 7_200_000_000_000] {
            wake.wake();
            poller.wait(Some(start + later_ns)).unwrap();
            assert_eq!(poller.event(0).map(|(key, _)| key), Some(7));
        }
        assert_eq!(poller.timer.settings(), 1, "a later time needs no timer of its own");
        // It ends the wait for an hour, and is set anew afterwards.
        for settings in [2, 3] {
            wait_out(&mut poller, Clock.now() + 2_000_000);
            assert_eq!(poller.timer.settings(), settings);
        }
    }

    #[test]
    fn a_wake_ends_any_wait_once_without_being_read() {
        let (mut poller, wake) = (poller(), EventWake::new().unwrap());
        poller.add_edge(wake.as_fd(), 7).unwrap();
        let start = Clock.now();
        for until in [None, Some(start + 50_000_000_000), Some(start + 60_000_000_000)] {
            wake.wake();
            wake.wake();
            poller.wait(until).unwrap();
            let (key, readiness) = poller.event(0).unwrap();
            assert!(key == 7 && readiness.readable && !readiness.closed);
            poller.look().unwrap();
            assert_eq!(poller.event(0), None);
        }
    }
}

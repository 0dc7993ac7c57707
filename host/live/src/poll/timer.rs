//! The one timer of a reactor: a descriptor that becomes readable at a time.
//!
//! It is set when an earlier time is asked for than it is set for, and not taken back when that
//! time is no longer wanted: it then rings once for nothing. So a reactor whose next time moves
//! away with each request sets it about once in that time, and not with each request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use weir_bio::Nanos;

/// A timer on the clock that [`Clock`](crate::Clock) reads.
pub(crate) struct Timer {
    fd: OwnedFd,
    /// When it rings; `None`: not before it is set.
    at: Option<Nanos>,
    #[cfg(test)]
    settings: usize,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Timer {
            fd,
            at: None,
            #[cfg(test)]
            settings: 0,
        })
    }

    /// Has it ring at this time, or before.
    pub(crate) fn ring_by(&mut self, at: Nanos) -> io::Result<()> {
        if self.at.is_some_and(|set| set <= at) {
            return Ok(());
        }
        // A time of 0 would switch it off.
        let value = timespec(Nanos(at.0.max(1)));
        let once = Itimerspec { it_interval: timespec(Nanos::ZERO), it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &once)?;
        self.at = Some(at);
        #[cfg(test)]
        {
            self.settings += 1;
        }
        Ok(())
    }

    /// It has rung.
    pub(crate) fn rang(&mut self) {
        self.at = None;
    }

    /// How often it was set.
    #[cfg(test)]
    pub(crate) fn settings(&self) -> usize {
        self.settings
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn timespec(at: Nanos) -> Timespec {
    Timespec { tv_sec: (at.0 / 1_000_000_000) as i64, tv_nsec: (at.0 % 1_000_000_000) as i64 }
}

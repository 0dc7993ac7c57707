//! Wakes a thread that waits in its ring: when somebody rings for it, or at a time that stays set.
//!
//! A wait with a time limit sets a timer and takes it back again, each time: 8 us under a
//! hypervisor, the second time while an answer waits to be counted. This one is set once for each
//! time, answers that come before leave it alone, and it is mostly set before it is asked to be.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use weir_bio::Nanos;

/// No time is met better than this, ns.
const NEAR_NS: u64 = 1000;

/// What comes less often than this is not foreseen, ns.
const OFTEN_NS: u64 = 10_000_000;

/// See the module.
pub(crate) struct Alarm {
    /// Readable when the bell or the timer is.
    both: OwnedFd,
    timer: OwnedFd,
    set_for: Option<Nanos>,
    /// The time for which it last went off.
    went_off: Nanos,
}

impl Alarm {
    /// Not set; `bell` is what others ring.
    pub(crate) fn new(bell: BorrowedFd<'_>) -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [bell, timer.as_fd()] {
            epoll::add(&both, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Alarm { both, timer, set_for: None, went_off: Nanos::ZERO })
    }

    /// Goes off at this time, or before.
    pub(crate) fn set(&mut self, at: Option<Nanos>, now: Nanos) {
        let Some(at) = at else { return };
        if !self.set_for.is_some_and(|set_for| now < set_for && set_for <= at + NEAR_NS) {
            self.set_to(at);
        }
    }

    fn set_to(&mut self, at: Nanos) {
        let it_value = Timespec {
            tv_sec: (at.0 / 1_000_000_000) as i64,
            tv_nsec: (at.0 % 1_000_000_000) as i64,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
        set.expect("a timer takes any time");
        self.set_for = Some(at);
    }

    /// What it has told of by now is not told again. If it went off, it sets itself for when it
    /// would have to once more if I/Os go on being due as far apart: before the one that is due
    /// begins, it is in nobody's time.
    pub(crate) fn silence(&mut self, now: Nanos) {
        let Some(at) = self.set_for.take_if(|at| *at <= now) else { return };
        // That there is nothing to read is what is wanted.
        let _ = rustix::io::read(&self.timer, &mut [0_u8; 8]);
        let apart = at.since(std::mem::replace(&mut self.went_off, at));
        if apart < OFTEN_NS && at + apart > now {
            self.set_to(at + apart);
        }
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};
    use weir_live::{Clock, EventWake};
    use weir_ring::Wake;

    fn readable(alarm: &Alarm, timeout: Option<&Timespec>) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(alarm.as_fd(), PollFlags::IN)];
        poll(&mut fds, timeout).expect("a poll") > 0
    }

    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    const HOUR_NS: u64 = 3_600_000_000_000;

    #[test]
    fn it_goes_off_at_its_time_and_is_silent_until_the_next() {
        let bell = EventWake::new().expect("an event");
        let mut alarm = Alarm::new(bell.as_fd()).expect("an alarm");
        let now = Clock.now();
        alarm.set(Some(now + HOUR_NS), now);
        assert!(!readable(&alarm, Some(&AT_ONCE)), "an hour is not over");
        let soon = Clock.now() + 1_000_000;
        alarm.set(Some(soon), now);
        assert!(readable(&alarm, None), "the earlier time holds");
        assert!(Clock.now() >= soon);
        alarm.silence(Clock.now());
        assert!(!readable(&alarm, Some(&AT_ONCE)), "it was told");
        // A time that is past comes at once.
        alarm.set(Some(soon), Clock.now());
        assert!(readable(&alarm, None));
    }

    #[test]
    fn what_is_due_often_is_foreseen_and_an_early_alarm_is_good_enough() {
        let bell = EventWake::new().expect("an event");
        let mut alarm = Alarm::new(bell.as_fd()).expect("an alarm");
        let start = Clock.now();
        let due = |count: u64| start + count * 5_000_000;
        for count in [1, 2] {
            alarm.set(Some(due(count)), start);
            assert!(readable(&alarm, None));
            alarm.silence(due(count));
        }
        assert_eq!(alarm.set_for, Some(due(3)), "as far apart as before");
        alarm.set(Some(due(3) + HOUR_NS), due(2));
        assert_eq!(alarm.set_for, Some(due(3)), "it looks again then");
        alarm.set(Some(due(3) - 2 * NEAR_NS), due(2));
        assert_eq!(alarm.set_for, Some(due(3) - 2 * NEAR_NS), "this would be late");
        alarm.silence(due(3));
        alarm.set(Some(due(3) + OFTEN_NS), due(3));
        alarm.silence(due(3) + OFTEN_NS);
        assert_eq!(alarm.set_for, None, "what is rare is not foreseen");
    }

    #[test]
    fn whoever_rings_is_heard_with_a_time_set_or_without() {
        let bell = EventWake::new().expect("an event");
        let mut alarm = Alarm::new(bell.as_fd()).expect("an alarm");
        let now = Clock.now();
        for at in [None, Some(now + HOUR_NS)] {
            alarm.set(at, now);
            assert!(!readable(&alarm, Some(&AT_ONCE)));
            bell.wake();
            assert!(readable(&alarm, None));
            bell.clear();
        }
    }
}

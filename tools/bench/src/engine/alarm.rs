//! Wakes a thread that waits in a ring or a poll: when its bell is rung, or at a time that stays
//! set.
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

/// Gaps between I/Os above this are not foreseen, ns.
const OFTEN_NS: u64 = 10_000_000;

/// The alarm of one thread.
pub(crate) struct Alarm {
    /// Readable when the bell or the timer is.
    both: OwnedFd,
    timer: OwnedFd,
    plan: Plan,
}

/// When it is to go off, and why.
#[derive(Debug, Default)]
struct Plan {
    set_for: Option<Nanos>,
    /// The time it was last asked for.
    asked: Option<Nanos>,
    /// The time for which it last went off that it was asked for.
    went_off: Nanos,
}

impl Plan {
    /// It is to go off at this time, or before; whether it must be set anew for that.
    fn ask(&mut self, at: Option<Nanos>, now: Nanos) -> bool {
        self.asked = at;
        let Some(at) = at else { return false };
        let serves = |set_for: Nanos| now < set_for && set_for <= at + NEAR_NS;
        let anew = !self.set_for.is_some_and(serves);
        if anew {
            self.set_for = Some(at);
        }
        anew
    }

    /// Whether it has gone off by now. If it was asked to, it is then set for when it would be once
    /// more should I/Os go on being due as far apart: what was foreseen in vain foresees nothing.
    fn go_off(&mut self, now: Nanos) -> bool {
        if self.set_for.take_if(|at| *at <= now).is_none() {
            return false;
        }
        if let Some(at) = self.asked.take_if(|at| *at <= now + NEAR_NS) {
            let apart = at.since(std::mem::replace(&mut self.went_off, at));
            self.set_for = (apart < OFTEN_NS && at + apart > now).then_some(at + apart);
        }
        true
    }
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
        Ok(Alarm { both, timer, plan: Plan::default() })
    }

    /// Has it go off at this time, or before. Without one it may still go off for an earlier one.
    pub(crate) fn set(&mut self, at: Option<Nanos>, now: Nanos) {
        if self.plan.ask(at, now) {
            self.set_timer();
        }
    }

    /// Events it has reported by now are not reported again. If it went off, it may set itself:
    /// that happens before the due I/O begins, so it is in no latency.
    pub(crate) fn silence(&mut self, now: Nanos) {
        if self.plan.go_off(now) {
            // That there is nothing to read is what is wanted.
            let _ = rustix::io::read(&self.timer, &mut [0_u8; 8]);
            self.set_timer();
        }
    }

    fn set_timer(&self) {
        let Some(at) = self.plan.set_for else { return };
        let it_value = Timespec {
            tv_sec: (at.0 / 1_000_000_000) as i64,
            tv_nsec: (at.0 % 1_000_000_000) as i64,
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
        set.expect("a timer takes any time");
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
    use weir_live::EventWake;
    use weir_ring::Wake;

    /// Longer than anything here takes.
    const LONG: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    const MS: u64 = 1_000_000;

    fn readable(alarm: &Alarm, timeout: &Timespec) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(alarm.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(timeout)).expect("a poll") > 0
    }

    fn at(ms: u64) -> Nanos {
        Nanos(1_000_000_000 + ms * MS)
    }

    #[test]
    fn an_alarm_goes_off_for_its_time_and_for_who_rings_and_is_silent_again() {
        let bell = EventWake::new().expect("an event");
        let mut alarm = Alarm::new(bell.as_fd()).expect("an alarm");
        alarm.set(Some(Nanos(1 << 62)), Nanos(1));
        assert!(!readable(&alarm, &AT_ONCE), "centuries are not over");
        bell.wake();
        assert!(readable(&alarm, &LONG));
        bell.clear();
        assert!(!readable(&alarm, &AT_ONCE));
        // The system's clock is past its first second.
        alarm.set(Some(at(0)), Nanos(1));
        assert!(readable(&alarm, &LONG));
        alarm.silence(at(0));
        assert!(!readable(&alarm, &AT_ONCE), "it was told");
    }

    #[test]
    fn what_is_due_often_is_foreseen() {
        let mut plan = Plan::default();
        for count in [5, 10] {
            assert!(plan.ask(Some(at(count)), at(0)));
            assert!(!plan.go_off(at(count - 1)) && plan.go_off(at(count)));
        }
        assert_eq!(plan.set_for, Some(at(15)), "as far apart as before");
        assert!(!plan.ask(Some(at(15)), at(11)), "it need not be set anew");
        assert!(plan.ask(Some(at(13)), at(11)), "this would be late");
    }

    #[test]
    fn what_is_rare_is_not_foreseen() {
        let mut plan = Plan::default();
        for count in [9, 20] {
            plan.ask(Some(at(count)), at(0));
            assert!(plan.go_off(at(count)));
        }
        assert_eq!(plan.set_for, None);
    }

    #[test]
    fn what_was_foreseen_in_vain_foresees_nothing() {
        let mut plan = Plan::default();
        for count in [3, 6] {
            plan.ask(Some(at(count)), at(0));
            plan.go_off(at(count));
        }
        assert!(!plan.ask(Some(at(100)), at(7)), "it looks again at 9 ms");
        assert!(plan.go_off(at(9)));
        assert_eq!(plan.set_for, None);
        assert!(plan.ask(Some(at(100)), at(9)));
        // No client asks for an I/O any more.
        let mut idle = Plan::default();
        for count in [3, 6] {
            idle.ask(Some(at(count)), at(0));
            idle.go_off(at(count));
        }
        assert!(!idle.ask(None, at(7)) && idle.go_off(at(9)));
        assert_eq!(idle.set_for, None);
    }
}

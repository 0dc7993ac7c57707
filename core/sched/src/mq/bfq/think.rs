//! A process's habit: how long it thinks between an answer and its next request, and how much of
//! the time it leaves its queue empty. Source: docs/behaviour/bfq.md, sections 8 and 16.4. Times in
//! ns.

use weir_bio::Nanos;

use crate::fair::think_time::ThinkTime;

/// An empty fifth of the window, and a process is not I/O-bound.
const IDLE_PART: u64 = 5;
/// The window is halved when it is longer.
const WINDOW_NS: u64 = 200_000_000;

/// What is known of a process's habit, and the verdicts on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Think {
    time: ThinkTime,
    short: bool,
    io_bound: bool,
    /// Start of the window of the I/O-bound test, and how long the queue was empty within.
    window_started: u64,
    window_idle: u64,
}

/// A request that arrives at a sync queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The queue had nothing staged and nothing in the device.
    pub(super) idle: bool,
    /// The queue was busy: it had requests, or the device was kept for it.
    pub(super) busy: bool,
    /// The end of the queue's last request.
    pub(super) last_end: u64,
    /// A process uses the queue.
    pub(super) live: bool,
    pub(super) slice_idle_ns: u64,
}

impl Think {
    /// A new process counts as one that is worth waiting for.
    pub(super) fn new(now: Nanos) -> Think {
        Think {
            time: ThinkTime::new(now),
            short: true,
            io_bound: true,
            window_started: now.0,
            window_idle: 0,
        }
    }

    /// The process thinks briefly enough for idling to pay.
    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    /// The process leaves its queue empty for at most a fifth of the time.
    pub(super) fn is_io_bound(&self) -> bool {
        self.io_bound
    }

    #[cfg(test)]
    pub(super) fn mean_ns(&self) -> Option<u64> {
        self.time.mean_ns()
    }

    /// A request of the queue ended.
    #[inline(always)]
    pub(super) fn ended(&mut self, now: Nanos) {
        self.time.ended(now);
    }

    /// Takes note of a request; true if the process does not think as long as the verdict says.
    ///
    /// A pause is a sample only if it made the queue idle: while the device is kept for the queue,
    /// the idle slice cuts the pauses that are seen.
    #[inline(always)]
    pub(super) fn observe(&mut self, request: Request, now: Nanos) -> bool {
        if request.idle {
            self.window_idle += now.0.saturating_sub(request.last_end);
            if !request.busy {
                self.time.sample(now, 2 * request.slice_idle_ns);
            }
        }
        let window = now.0.saturating_sub(self.window_started);
        self.io_bound = self.window_idle * IDLE_PART <= window;
        if window > WINDOW_NS {
            self.window_started += window / 2;
            self.window_idle /= 2;
        }
        let short = request.live && !self.time.exceeds(request.slice_idle_ns / 2);
        short != self.short
    }

    /// Whether one more request at this moment, of a queue that has some, changes nothing: the
    /// window goes on, and the verdict is what it says.
    #[inline(always)]
    pub(super) fn is_settled(&self, now: Nanos) -> bool {
        let window = now.0.saturating_sub(self.window_started);
        window <= WINDOW_NS && self.io_bound == (self.window_idle * IDLE_PART <= window)
    }

    /// Reverses the verdict on the think time; says what it is now.
    pub(super) fn turn(&mut self) -> bool {
        self.short = !self.short;
        self.short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const REQUEST: Request =
        Request { idle: true, busy: false, last_end: 0, live: true, slice_idle_ns: 8 * MS };

    /// Whether the verdict turns with the last of so many requests, each so long after the end of
    /// the one before.
    fn turns(request: Request, think_ms: u64, requests: u64) -> bool {
        let mut think = Think::new(Nanos(0));
        let mut turns = false;
        for n in 0..requests {
            let last_end = n * think_ms * MS;
            think.ended(Nanos(last_end));
            let now = Nanos(last_end + think_ms * MS);
            turns = think.observe(Request { last_end, ..request }, now);
        }
        turns
    }

    #[test]
    fn half_an_idle_slice_is_long_from_the_third_pause_of_a_queue_that_was_not_busy() {
        let busy = Request { busy: true, ..REQUEST };
        let staged = Request { idle: false, ..REQUEST };
        let dead = Request { live: false, ..REQUEST };
        for (request, think_ms, requests, turned) in [
            (REQUEST, 3, 9, false),
            (REQUEST, 5, 2, false),
            (REQUEST, 5, 3, true),
            (busy, 5, 9, false),
            (staged, 5, 9, false),
            (dead, 0, 1, true),
            (Request { slice_idle_ns: 12 * MS, ..REQUEST }, 5, 9, false),
        ] {
            let case = (request, think_ms, requests);
            assert_eq!(turns(request, think_ms, requests), turned, "{case:?}");
        }
        let mut think = Think::new(Nanos(0));
        assert!(think.is_short() && !think.turn() && !think.is_short() && think.turn());
    }

    #[test]
    fn a_habit_is_settled_if_another_request_at_that_moment_changes_nothing() {
        // A pause that made the queue empty at first, the moment, both ms: settled.
        for (pause_ms, at_ms, settled) in [
            (0, 100, true),
            (0, 200, true),
            (0, 201, false),
            (20, 20, true),
            (20, 99, true),
            (20, 100, false),
        ] {
            let (mut think, now) = (Think::new(Nanos(0)), Nanos(at_ms * MS));
            think.observe(Request { busy: true, ..REQUEST }, Nanos(pause_ms * MS));
            assert_eq!(think.is_settled(now), settled, "{pause_ms} ms of {at_ms}");
            let before = format!("{think:?}");
            think.observe(Request { idle: false, busy: true, ..REQUEST }, now);
            assert_eq!(before == format!("{think:?}"), settled, "{pause_ms} ms of {at_ms}");
        }
    }

    #[test]
    fn a_process_that_leaves_its_queue_empty_for_more_than_a_fifth_is_not_io_bound() {
        // (idle, ms after the request before): the window begins at 0 and is halved after 200 ms.
        let table: [(&[(bool, u64)], bool); 6] = [
            (&[(true, 100)], false),
            (&[(false, 80), (true, 20)], true),
            (&[(false, 79), (true, 21)], false),
            // Each request is looked at: of 125 ms, 21 are less.
            (&[(false, 79), (true, 21), (false, 25)], true),
            (&[(true, 50), (false, 199), (false, 1)], true),
            // 240 ms, halved: 20 of 120 ms, and 7 more.
            (&[(true, 40), (false, 200), (true, 7)], false),
        ];
        for (requests, io_bound) in table {
            let (mut think, mut now) = (Think::new(Nanos(0)), 0);
            for (idle, after_ms) in requests {
                let request = Request { idle: *idle, busy: true, last_end: now, ..REQUEST };
                now += after_ms * MS;
                think.observe(request, Nanos(now));
            }
            assert_eq!(think.is_io_bound(), io_bound, "{requests:?}");
        }
    }
}

//! What a run has used of the CPUs, without what its threads have spent in wait for I/Os.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::cpu::process_time;

/// CPU time of the process at both ends of the measured time, each taken by the first thread that
/// gets there: the watcher may be late, and I/Os are counted by threads.
#[derive(Debug, Default)]
pub(crate) struct Used {
    began: OnceLock<Duration>,
    over: OnceLock<Duration>,
    /// ns that threads have spent awake, waiting for I/Os to be due: no I/O costs that.
    awake_ns: AtomicU64,
    /// Threads whose clients have not done all that is measured.
    measuring: AtomicUsize,
}

impl Used {
    pub(crate) fn new(threads: usize) -> Used {
        let measuring = AtomicUsize::new(threads);
        Used { measuring, ..Used::default() }
    }

    pub(crate) fn begin(&self) -> Duration {
        *self.began.get_or_init(|| self.now())
    }

    pub(crate) fn end(&self) -> Duration {
        *self.over.get_or_init(|| self.now())
    }

    /// A thread's clients have done all that is measured; true for the last.
    pub(crate) fn thread_is_over(&self) -> bool {
        let is_last = self.measuring.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.end();
        }
        is_last
    }

    fn now(&self) -> Duration {
        // In this order: what is spent between the two readings is not taken off.
        let awake = self.awake();
        process_time().saturating_sub(awake)
    }

    /// What threads have spent awake so far, waiting for I/Os to be due; all of it in user mode.
    pub(crate) fn awake(&self) -> Duration {
        Duration::from_nanos(self.awake_ns.load(Ordering::Relaxed))
    }

    /// A thread has spent this awake.
    pub(crate) fn was_awake(&self, time: Duration) {
        self.awake_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_awake_adds_up_and_the_last_thread_is_told_that_it_is() {
        let used = Used::new(2);
        let ms = Duration::from_millis;
        used.was_awake(ms(3));
        used.was_awake(ms(4));
        assert_eq!(used.awake(), ms(7));
        assert_eq!([used.thread_is_over(), used.thread_is_over()], [false, true]);
        assert_eq!(used.end(), used.end(), "it was read then");
    }
}

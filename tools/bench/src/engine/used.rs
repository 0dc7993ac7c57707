//! The CPU time that a run has used.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cpu::{CpuTime, PerCpu, process_time};

/// CPU time of the process at both ends of the measured time, each taken by the first thread that
/// gets there: the watcher may be late, and I/Os are counted by threads.
#[derive(Debug, Default)]
pub(crate) struct Used {
    began: OnceLock<Duration>,
    over: OnceLock<Duration>,
    /// Threads whose clients have not done all that is measured.
    measuring: AtomicUsize,
}

impl Used {
    pub(crate) fn new(threads: usize) -> Used {
        let measuring = AtomicUsize::new(threads);
        Used { measuring, ..Used::default() }
    }

    pub(crate) fn begin(&self) -> Duration {
        *self.began.get_or_init(process_time)
    }

    pub(crate) fn end(&self) -> Duration {
        *self.over.get_or_init(process_time)
    }

    /// A thread's clients have done all that is measured; true for the last.
    pub(crate) fn thread_is_over(&self) -> bool {
        let is_last = self.measuring.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.end();
        }
        is_last
    }
}

/// The kernel's ticks so far.
pub(crate) struct Ticks {
    pub(crate) process: CpuTime,
    pub(crate) per_cpu: PerCpu,
}

impl Ticks {
    pub(crate) fn now() -> Ticks {
        Ticks { process: CpuTime::of_process(), per_cpu: PerCpu::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thread_is_told_that_it_is() {
        let used = Used::new(2);
        assert_eq!([used.thread_is_over(), used.thread_is_over()], [false, true]);
        assert_eq!(used.end(), used.end(), "it was read then");
    }
}

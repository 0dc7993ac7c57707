//! CPU time and system calls of a thread or process.

use std::time::Duration;

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use rustix::time::{ClockId, clock_gettime};

/// User and system time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

/// Where in `/proc/PID/stat` a process's own times stand, and those of its children.
const OWN: usize = 14;
const CHILDREN: usize = 16;

impl CpuTime {
    /// Of this process so far, all threads together, at the kernel's granularity.
    ///
    /// # Panics
    /// When the kernel gives no usage of the calling process.
    #[must_use]
    pub fn of_process() -> CpuTime {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        CpuTime::from_stat(&stat, OWN).unwrap_or_default()
    }

    /// Of the children of this process that have ended and were waited for.
    #[must_use]
    pub fn of_children() -> CpuTime {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        CpuTime::from_stat(&stat, CHILDREN).unwrap_or_default()
    }

    /// Of another process.
    #[must_use]
    pub fn of(pid: u32) -> Option<CpuTime> {
        CpuTime::from_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?, OWN)
    }

    /// Two fields of proc(5), `/proc/PID/stat`: the user time's, counted from 1, and the next.
    fn from_stat(stat: &str, field: usize) -> Option<CpuTime> {
        // The second, the command's name, may hold spaces and ends with the last parenthesis.
        let rest = stat.rsplit_once(')')?.1;
        let mut fields = rest.split_whitespace().skip(field - 3);
        let ticks = rustix::param::clock_ticks_per_second();
        let mut field = || {
            let value: u64 = fields.next()?.parse().ok()?;
            Some(Duration::from_nanos(value * 1_000_000_000 / ticks))
        };
        Some(CpuTime { user: field()?, system: field()? })
    }

    /// Both together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.user + self.system
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// CPU time of the calling thread, to the nanosecond.
#[must_use]
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// CPU time of this process, to the nanosecond.
#[must_use]
pub fn process_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Ties the calling thread to one CPU; false where that is not allowed or there is no such CPU.
#[must_use]
pub fn pin(cpu: usize) -> bool {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).is_ok()
}

/// The kernel's number of the trace point every system call passes. It stands where the trace file
/// system is mounted, which is one of two places.
fn sys_enter() -> Option<u64> {
    let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let ids = roots.map(|root| format!("{root}/events/raw_syscalls/sys_enter/id"));
    ids.iter().find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
}

/// Counts the system calls of the calling thread.
pub struct Syscalls(Option<Counter>);

impl Syscalls {
    /// Starts counting, where the kernel lets us.
    #[must_use]
    pub fn count() -> Syscalls {
        let counter = sys_enter()
            .and_then(|id| Builder::new(Tracepoint::with_id(id)).include_kernel().build().ok())
            .and_then(|mut counter| counter.enable().ok().map(|()| counter));
        Syscalls(counter)
    }

    /// How many there were, not counting the one that asks; `None` where they cannot be counted.
    #[must_use]
    pub fn read(&mut self) -> Option<u64> {
        let count = self.0.as_mut()?.read().ok()?;
        Some(count.saturating_sub(1))
    }
}

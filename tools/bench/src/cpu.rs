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

    /// A time known to the nanosecond, divided between the modes as these ticks are; where there
    /// are none yet, it is all the user's.
    #[must_use]
    pub fn divide(&self, time: Duration) -> CpuTime {
        let ticks = self.total();
        if ticks.is_zero() {
            return CpuTime { user: time, system: Duration::ZERO };
        }
        let system = time.mul_f64(self.system.as_secs_f64() / ticks.as_secs_f64()).min(time);
        CpuTime { user: time - system, system }
    }

    /// Both together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.user + self.system
    }

    /// The use since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// The CPU time of each CPU of the host, of all processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerCpu(pub Vec<CpuUse>);

/// The time of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// Its number.
    pub cpu: usize,
    /// In user mode.
    pub user: Duration,
    /// In the kernel, interrupts included.
    pub system: Duration,
    /// With nothing to do, or waiting for I/O.
    pub idle: Duration,
    /// Taken away by the hypervisor.
    pub steal: Duration,
}

impl PerCpu {
    /// Since the host was started.
    #[must_use]
    pub fn now() -> PerCpu {
        PerCpu::from_stat(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The lines `cpu0 ...` of proc(5), `/proc/stat`.
    fn from_stat(stat: &str) -> PerCpu {
        let ticks = rustix::param::clock_ticks_per_second();
        let one = |line: &str| {
            // The line of all together has a space where the number stands.
            let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
            let (cpu, fields) = (cpu.parse().ok()?, fields.split_whitespace());
            let fields: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
            let sum = |which: &[usize]| {
                let ticks_of = which.iter().filter_map(|field| fields.get(*field)).sum::<u64>();
                Duration::from_nanos(ticks_of * 1_000_000_000 / ticks)
            };
            // user nice system idle iowait irq softirq steal; guests count as user already.
            Some(CpuUse {
                cpu,
                user: sum(&[0, 1]),
                system: sum(&[2, 5, 6]),
                idle: sum(&[3, 4]),
                steal: sum(&[7]),
            })
        };
        PerCpu(stat.lines().filter_map(one).collect())
    }

    /// The time since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &PerCpu) -> PerCpu {
        let between = self.0.iter().filter_map(|now| {
            let before = earlier.0.iter().find(|before| before.cpu == now.cpu)?;
            Some(CpuUse {
                cpu: now.cpu,
                user: now.user.saturating_sub(before.user),
                system: now.system.saturating_sub(before.system),
                idle: now.idle.saturating_sub(before.idle),
                steal: now.steal.saturating_sub(before.steal),
            })
        });
        PerCpu(between.collect())
    }

    /// Ticks of about so long a time as shares of it; a CPU without any is left out.
    #[must_use]
    pub fn within(&self, time: Duration) -> PerCpu {
        let share = |cpu: &CpuUse| {
            let CpuUse { cpu, user, system, idle, steal } = *cpu;
            let ticks = (user + system + idle + steal).as_secs_f64();
            let part = |ticked: Duration| time.mul_f64(ticked.as_secs_f64() / ticks);
            let [user, system, idle, steal] = [user, system, idle, steal].map(part);
            CpuUse { cpu, user, system, idle, steal }
        };
        let ticked = |cpu: &&CpuUse| !(cpu.user + cpu.system + cpu.idle + cpu.steal).is_zero();
        PerCpu(self.0.iter().filter(ticked).map(share).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_cpu_did_is_read_field_by_field() {
        let ticks = rustix::param::clock_ticks_per_second();
        let line = |factor: u64| {
            let fields: Vec<_> =
                [1, 2, 3, 4, 5, 6, 7, 8, 0, 0].map(|n| (n * factor * ticks).to_string()).into();
            format!("cpu  9 9 9\ncpu1 {}\nintr 5\n", fields.join(" "))
        };
        let [now, before] = [2, 1].map(|factor| PerCpu::from_stat(&line(factor)));
        let PerCpu(between) = now.since(&before);
        let seconds = Duration::from_secs;
        let wanted = CpuUse {
            cpu: 1,
            user: seconds(3),
            system: seconds(16),
            idle: seconds(9),
            steal: seconds(8),
        };
        assert_eq!(between, [wanted]);
    }

    #[test]
    fn ticks_are_shares_of_the_time_that_was_measured() {
        let cpu = |cpu, parts: [u64; 4]| {
            let [user, system, idle, steal] = parts.map(Duration::from_millis);
            CpuUse { cpu, user, system, idle, steal }
        };
        let ticks = PerCpu(vec![cpu(0, [100, 50, 40, 10]), cpu(1, [0; 4])]);
        // Two seconds of which the kernel has ticked 200 ms.
        let shares = ticks.within(Duration::from_secs(2));
        assert_eq!(shares.0, [cpu(0, [1000, 500, 400, 100])]);
        let ms = Duration::from_millis;
        let ticks = CpuTime { user: ms(30), system: ms(10) };
        let divided = CpuTime { user: ms(75), system: ms(25) };
        assert_eq!(ticks.divide(ms(100)), divided);
        assert_eq!(CpuTime::default().divide(ms(7)).user, ms(7));
    }
}

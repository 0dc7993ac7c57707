//! The priority of an I/O as the kernel takes it from this process.
//!
//! Only with io_uring: of threads that make one call after another each would have to be given it
//! before every call.

use std::sync::LazyLock;

use weir_bio::{Class, IoPrio};

/// Whether the kernel lets this process have I/O of the real-time class: ioprio_set(2) asks for
/// one of these two capabilities.
static MAY_BE_REAL_TIME: LazyLock<bool> = LazyLock::new(|| {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    has_either(&status, &[CAP_SYS_ADMIN, CAP_SYS_NICE])
});

/// Numbers of capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_NICE: u32 = 23;

/// The priority for the kernel; 0 is none.
pub(super) fn of(ioprio: IoPrio) -> u16 {
    let is_real_time = ioprio.class() == Class::RealTime;
    for_kernel(ioprio, is_real_time && *MAY_BE_REAL_TIME)
}

/// The kernel refuses an I/O with a level and no class, and one of the real-time class that is not
/// allowed: those have none.
fn for_kernel(ioprio: IoPrio, may_be_real_time: bool) -> u16 {
    match ioprio.class() {
        Class::RealTime if !may_be_real_time => 0,
        Class::None => 0,
        class => IoPrio::new(class, ioprio.level()).0,
    }
}

/// Whether `/proc/PID/status` has any of these among the effective capabilities.
fn has_either(status: &str, wanted: &[u32]) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    effective.is_some_and(|effective| wanted.iter().any(|bit| effective >> bit & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_and_its_level_reach_the_kernel_and_what_it_would_refuse_is_none() {
        let idle = IoPrio::new(Class::Idle, 0);
        let best_effort = IoPrio::new(Class::BestEffort, 3);
        let real_time = IoPrio::new(Class::RealTime, 1);
        assert_eq!([of(idle), of(best_effort)], [0x6000, 0x4003]);
        assert_eq!(for_kernel(real_time, true), 0x2001);
        assert_eq!(for_kernel(real_time, false), 0);
        // No class, or one that is none, with a level.
        assert_eq!([for_kernel(IoPrio(5), true), for_kernel(IoPrio(0xe005), true)], [0, 0]);
    }

    #[test]
    fn either_of_two_capabilities_is_enough() {
        let status = |effective: u64| format!("CapPrm:\tffff\nCapEff:\t{effective:016x}\n");
        for (effective, expected) in
            [(1 << 21, true), (1 << 23, true), (1 << 22, false), (0, false)]
        {
            let status = status(effective);
            assert_eq!(has_either(&status, &[CAP_SYS_ADMIN, CAP_SYS_NICE]), expected, "{status}");
        }
        assert!(!has_either("", &[CAP_SYS_ADMIN]));
    }
}

//! The use of CPUs and of hard queues in the measured time.

use serde::{Deserialize, Serialize};

/// CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// In user mode, seconds.
    pub user_s: f64,
    /// In the kernel, seconds.
    pub sys_s: f64,
    /// Both for each I/O, nanoseconds; none where nothing was measured.
    pub ns_per_io: Option<f64>,
    /// What all CPUs of the machine did meanwhile for all of it, kernel workers, interrupts and
    /// other processes too, seconds; none where the kernel did not tick.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_s: Option<f64>,
    /// That for each I/O of a kernel's device; of a command for each unit of a rate that it
    /// printed, MiB where that is of bytes, else for each run; nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_ns: Option<f64>,
}

/// How long a stage of a run was measured, and what the CPUs did meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageUse {
    /// Its name.
    pub name: String,
    /// Measured time, seconds.
    pub duration_s: f64,
    /// CPU time of the process.
    pub cpu: Cpu,
    /// Time of all CPUs of the machine in the kernel, per cent; none where it did not tick.
    pub sys_pct: Option<f64>,
}

/// How one CPU of the machine spent the measured time, for all processes; the fields add up to the
/// measured time, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Core {
    /// Its number.
    pub cpu: u32,
    /// In user mode.
    pub user_s: f64,
    /// In the kernel, interrupts included.
    pub sys_s: f64,
    /// With nothing to do, or waiting for I/O.
    pub idle_s: f64,
    /// Taken away by the hypervisor.
    pub steal_s: f64,
}

/// The requests of one hard queue in the measured time, those of merged I/Os as one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HardQueue {
    /// The disk: its target as given.
    pub disk: String,
    /// Its number.
    pub queue: u16,
    /// Requests that were handed to the driver.
    pub dispatched: u64,
    /// Requests that the driver ended.
    pub completed: u64,
}

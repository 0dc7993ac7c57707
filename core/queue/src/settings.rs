//! The settings of a device that can be changed while it is in use.
//!
//! A setting is a field here, with its value to begin with; lanes and submitters read it from their
//! [`Snapshot`](crate::snapshot::Snapshot).

use weir_bio::Limits;

use crate::config::Config;
use crate::wbt::WbtTarget;

/// What a [reconfiguration](crate::Device::reconfigure) may change.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The device's limits.
    pub limits: Limits,
    /// 0: every merge, 1: cheap ones only, 2: none.
    pub nomerges: u8,
    /// Whether flushes reach the device.
    pub barriers: bool,
    /// Requests the queue holds.
    pub nr_requests: u16,
    /// Whether I/O is counted in the statistics.
    pub iostats: bool,
    /// A request is timed out after so long, ns; 0 = never.
    pub timeout_ns: u64,
    /// The latency that the write-back throttle keeps reads to.
    pub wbt: WbtTarget,
}

impl Settings {
    /// Those that a device begins with.
    #[must_use]
    pub fn first(config: &Config, limits: Limits, nr_requests: u16, wbt: WbtTarget) -> Settings {
        let Config { nomerges, barriers, iostats, timeout_ns, .. } = *config;
        Settings { limits, nomerges, barriers, nr_requests, iostats, timeout_ns, wbt }
    }
}

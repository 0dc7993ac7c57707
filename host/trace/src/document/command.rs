//! The run of a command on a mounted disk, as documents have it.

use serde::{Deserialize, Serialize};

/// A command that was run, and what its device did meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandRun {
    /// The command, as the shell was given it.
    pub command: String,
    /// The scheduler of the device.
    pub scheduler: String,
    /// From its start to its end, seconds.
    pub wall_s: f64,
    /// What it printed and is compared by; none: it is compared by the time that it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<Figure>,
    /// What the device did; none where the kernel does not count it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceUse>,
    /// The last lines of its output.
    pub output: String,
}

/// A number that a command printed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figure {
    /// The number: nanoseconds of a time, bytes a second of such a rate, else times 1000 for each
    /// step of `k`, `M` and `G`.
    pub value: f64,
    /// Its unit: `ns`, `B/s`, or as it was printed; empty where it has none.
    pub unit: String,
    /// Whether it is a time, of which less is faster.
    pub is_time: bool,
}

impl Figure {
    /// Whether it is so many of something in each second, as far as its unit tells.
    #[must_use]
    pub fn is_rate(&self) -> bool {
        let unit = self.unit.to_ascii_lowercase();
        let is_named = ["tps", "qps", "rps", "iops", "bps"].contains(&unit.as_str());
        let ends = ["/s", "/sec", "/second", "per second"].iter().any(|end| unit.ends_with(end));
        !self.is_time && (is_named || ends)
    }
}

/// The I/O of a block device over some time, from its counters in `/proc/diskstats`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceUse {
    /// Its name, as `sda`.
    pub name: String,
    /// Reads that ended, a second.
    pub reads_per_s: f64,
    /// Writes that ended, a second.
    pub writes_per_s: f64,
    /// Flushes that ended, a second.
    pub flushes_per_s: f64,
    /// Bytes read, a second.
    pub read_bytes_per_s: f64,
    /// Bytes written, a second.
    pub write_bytes_per_s: f64,
    /// From when a read was queued until it ended, mean, nanoseconds; none where there was none.
    pub read_latency_ns: Option<f64>,
    /// The same of a write.
    pub write_latency_ns: Option<f64>,
    /// The same of a flush.
    pub flush_latency_ns: Option<f64>,
    /// The share of the time in which it had any I/O.
    pub utilisation: f64,
    /// I/Os that it had at a time, mean.
    pub depth_mean: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_known_by_its_unit_and_a_count_or_a_time_is_none() {
        let of = |unit: &str| Figure { unit: String::from(unit), ..Figure::default() }.is_rate();
        assert!(
            ["tps", "TPS", "IOPS", "B/s", "ops/sec", "rows per second"]
                .map(of)
                .iter()
                .all(|is| *is)
        );
        assert!(!["", "s", "loops", "points", "rows", "%"].map(of).iter().any(|is| *is));
        assert!(!Figure { is_time: true, unit: String::from("B/s"), value: 1.0 }.is_rate());
    }
}

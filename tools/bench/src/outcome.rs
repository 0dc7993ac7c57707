//! A bench's figures in the shape tools depend on, and as a table for people.

use std::fmt::Write;

use serde::Serialize;
use weir::{Latencies, Stats};

use crate::job::{Measured, Options};

/// Latencies in nanoseconds, each known to within an eighth.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyNs {
    /// Mean, exact.
    pub mean: f64,
    /// Half are at most this.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 95 %.
    pub p95: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// The largest, of the ramp too.
    pub max: u64,
}

impl From<&Latencies> for LatencyNs {
    fn from(from: &Latencies) -> LatencyNs {
        LatencyNs {
            mean: from.mean_ns(),
            p50: from.quantile_ns(500),
            p90: from.quantile_ns(900),
            p95: from.quantile_ns(950),
            p99: from.quantile_ns(990),
            p999: from.quantile_ns(999),
            max: from.max_ns(),
        }
    }
}

/// The figures of all I/O, or of one group.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Bios that ended.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// A second.
    pub iops: f64,
    /// A second.
    pub bytes_per_s: f64,
    /// From acceptance to end.
    pub latency_ns: LatencyNs,
    /// From acceptance to the driver.
    pub queue_wait_ns: LatencyNs,
    /// From the driver to the end.
    pub device_ns: LatencyNs,
}

/// One group: a job's reads, or its writes.
#[derive(Clone, Debug, Serialize)]
pub struct GroupFigures {
    /// The job's name.
    pub name: String,
    /// `read` or `write`.
    pub op: &'static str,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// CPU time of the bench's process.
#[derive(Clone, Debug, Serialize)]
pub struct CpuFigures {
    /// In user mode, seconds.
    pub user_s: f64,
    /// In the kernel, seconds.
    pub sys_s: f64,
    /// Both, for each I/O.
    pub ns_per_io: f64,
}

/// The whole outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// weir's version.
    pub weir: &'static str,
    /// The target as given.
    pub target: String,
    /// The device's options as they took effect.
    pub options: serde_json::Value,
    /// The job.
    pub job: serde_json::Value,
    /// Seed of everything random.
    pub seed: u64,
    /// Measured time.
    pub duration_s: f64,
    /// Bios that ended with an error.
    pub errors: u64,
    /// All I/O.
    #[serde(flatten)]
    pub figures: Figures,
    /// CPU time.
    pub cpu: CpuFigures,
    /// By direction.
    pub groups: Vec<GroupFigures>,
}

struct Sum {
    ios: u64,
    sectors: u64,
    total: Latencies,
    wait: Latencies,
    device: Latencies,
}

fn difference(measured: &Measured, direction: usize) -> Sum {
    let (before, after) = (&measured.before.directions, &measured.after.directions);
    let (before, after) = (&before[direction], &after[direction]);
    let total = after.total.since(&before.total);
    Sum {
        // Bios, merged ones too: the histograms have one entry for each.
        ios: total.count(),
        sectors: after.sectors - before.sectors,
        wait: after.wait.since(&before.wait),
        device: after.device.since(&before.device),
        total,
    }
}

fn figures(sum: &Sum, seconds: f64) -> Figures {
    let bytes = sum.sectors * weir_bio::SECTOR;
    Figures {
        ios: sum.ios,
        bytes,
        iops: sum.ios as f64 / seconds,
        bytes_per_s: bytes as f64 / seconds,
        latency_ns: (&sum.total).into(),
        queue_wait_ns: (&sum.wait).into(),
        device_ns: (&sum.device).into(),
    }
}

impl Outcome {
    /// The outcome of a measurement.
    #[must_use]
    pub fn new(
        target: &str,
        device_options: serde_json::Value,
        job: serde_json::Value,
        options: &Options,
        measured: &Measured,
    ) -> Outcome {
        let seconds = measured.wall.as_secs_f64();
        let mut groups = Vec::new();
        let mut all: Option<Sum> = None;
        for (direction, op) in ["read", "write", "trim"].into_iter().enumerate() {
            let sum = difference(measured, direction);
            if sum.ios > 0 {
                let name = String::from("job");
                groups.push(GroupFigures { name, op, figures: figures(&sum, seconds) });
            }
            all = Some(match all {
                None => sum,
                Some(mut all) => {
                    all.ios += sum.ios;
                    all.sectors += sum.sectors;
                    all.total.add(&sum.total);
                    all.wait.add(&sum.wait);
                    all.device.add(&sum.device);
                    all
                }
            });
        }
        let all = all.expect("three directions");
        let ns_per_io = measured.cpu_total.as_nanos() as f64 / all.ios.max(1) as f64;
        Outcome {
            weir: env!("CARGO_PKG_VERSION"),
            target: String::from(target),
            options: device_options,
            job,
            seed: options.job.seed,
            duration_s: seconds,
            errors: errors(&measured.after) - errors(&measured.before),
            figures: figures(&all, seconds),
            cpu: CpuFigures {
                user_s: measured.cpu.user.as_secs_f64(),
                sys_s: measured.cpu.system.as_secs_f64(),
                ns_per_io,
            },
            groups,
        }
    }

    /// The figures as a table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            "", "IOPS", "MiB/s", "mean us", "p50 us", "p99 us", "p99.9 us", "wait us"
        );
        let row = |text: &mut String, name: &str, figures: &Figures| {
            let us = |ns: f64| ns / 1000.0;
            let latency = &figures.latency_ns;
            writeln!(
                text,
                "{name:8} {:>10.0} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
                figures.iops,
                figures.bytes_per_s / (1 << 20) as f64,
                us(latency.mean),
                us(latency.p50 as f64),
                us(latency.p99 as f64),
                us(latency.p999 as f64),
                us(figures.queue_wait_ns.mean),
            )
            .expect("a string takes text");
        };
        for group in &self.groups {
            row(&mut text, group.op, &group.figures);
        }
        if self.groups.len() != 1 {
            row(&mut text, "all", &self.figures);
        }
        writeln!(
            text,
            "{} I/Os in {:.2} s, {} errors, CPU {:.0} ns per I/O (user {:.2} s, system {:.2} s)",
            self.figures.ios,
            self.duration_s,
            self.errors,
            self.cpu.ns_per_io,
            self.cpu.user_s,
            self.cpu.sys_s
        )
        .expect("a string takes text");
        text
    }
}

fn errors(stats: &Stats) -> u64 {
    stats.errors
}

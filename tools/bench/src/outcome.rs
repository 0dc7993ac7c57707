//! A bench's figures in the shape tools depend on, and as a table for people.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use weir_trace::document::{Figures, LatencyNs, Transactions};

use crate::cpu::CpuUse;
use crate::run::{Group, Measured};
use crate::tally::{Row, Times};

impl From<&Times> for LatencyNs {
    fn from(from: &Times) -> LatencyNs {
        LatencyNs {
            mean: from.mean_ns(),
            p50: from.quantile_ns(0.5),
            p90: from.quantile_ns(0.9),
            p95: from.quantile_ns(0.95),
            p99: from.quantile_ns(0.99),
            p999: from.quantile_ns(0.999),
            max: from.max_ns(),
        }
    }
}

/// The figures of a row, over so long.
fn figures(row: &Row, time: Duration) -> Figures {
    let seconds = time.as_secs_f64().max(1e-9);
    Figures {
        ios: row.ios,
        bytes: row.bytes,
        iops: row.ios as f64 / seconds,
        bytes_per_s: row.bytes as f64 / seconds,
        latency_ns: (&row.total).into(),
        queue_wait_ns: (&row.wait).into(),
        device_ns: (&row.device).into(),
    }
}

/// One group: a job's reads, or its writes.
#[derive(Clone, Debug, Serialize)]
pub struct GroupFigures {
    /// The job's name, or what an instance does.
    pub name: String,
    /// `read`, `write`, `trim` or `flush`.
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

/// What was run.
#[derive(Clone, Debug)]
pub struct About {
    /// The target as given.
    pub target: String,
    /// The device's options as they took effect.
    pub options: serde_json::Value,
    /// The job.
    pub job: serde_json::Value,
    /// Seed of everything random.
    pub seed: u64,
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
    /// Bios that ended with an error, and blocks that were not what they should be.
    pub errors: u64,
    /// All I/O.
    #[serde(flatten)]
    pub figures: Figures,
    /// CPU time.
    pub cpu: CpuFigures,
    /// By job and direction.
    pub groups: Vec<GroupFigures>,
    /// What databases got done; only where there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<Transactions>,
    /// What each CPU of the host did, for people.
    #[serde(skip)]
    pub per_cpu: Vec<CpuUse>,
}

impl Outcome {
    /// The outcome of one measurement, or of several one after the other, which are told as one;
    /// each has a name for its groups, or none.
    ///
    /// # Panics
    /// When there is no measurement.
    #[must_use]
    pub fn new(about: About, measured: &[(Option<String>, Measured)]) -> Outcome {
        let time: Duration = measured.iter().map(|(_, part)| part.wall).sum();
        let mut all = Row::default();
        let (mut cpu_total, mut errors) = (Duration::ZERO, 0);
        let (mut user_s, mut sys_s) = (0.0, 0.0);
        let mut groups = Vec::new();
        let mut per_cpu: Vec<CpuUse> = Vec::new();
        for (name, part) in measured {
            all.add(&part.tally.all());
            cpu_total += part.cpu_total;
            errors += part.tally.errors;
            user_s += part.cpu.user.as_secs_f64();
            sys_s += part.cpu.system.as_secs_f64();
            groups.extend(groups_of(name.as_deref(), part));
            add_cpus(&mut per_cpu, &part.per_cpu.0);
        }
        let rate = |wanted: &str| {
            groups.iter().find(|group| group.name == wanted).map(|group| group.figures.iops)
        };
        let transactions = rate("executions").map(|executions_per_s| Transactions {
            executions_per_s,
            commits_per_s: rate("commit").unwrap_or(0.0),
        });
        let ns_per_io = cpu_total.as_nanos() as f64 / all.ios.max(1) as f64;
        Outcome {
            weir: env!("CARGO_PKG_VERSION"),
            target: about.target,
            options: about.options,
            job: about.job,
            seed: about.seed,
            duration_s: time.as_secs_f64(),
            errors,
            figures: figures(&all, time),
            cpu: CpuFigures { user_s, sys_s, ns_per_io },
            groups,
            transactions,
            per_cpu,
        }
    }

    /// The figures as a table.
    #[must_use]
    pub fn table(&self) -> String {
        let named = self.groups.iter().any(|group| group.name != self.groups[0].name);
        let name = |group: &GroupFigures| match named {
            true if group.name.ends_with(group.op) => group.name.clone(),
            true => format!("{} {}", group.name, group.op),
            false => String::from(group.op),
        };
        let width = self.groups.iter().map(|group| name(group).chars().count()).max();
        let width = width.unwrap_or(0).max(8);
        let mut text = format!(
            "{:width$} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
            "", "IOPS", "MiB/s", "mean us", "p50 us", "p99 us", "p99.9 us", "wait us"
        );
        let row = |text: &mut String, name: &str, figures: &Figures| {
            let us = |ns: f64| ns / 1000.0;
            let latency = &figures.latency_ns;
            writeln!(
                text,
                "{name:width$} {:>10.0} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
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
            row(&mut text, &name(group), &group.figures);
        }
        if self.groups.len() != 1 {
            row(&mut text, "all", &self.figures);
        }
        self.footer(&mut text).expect("a string takes text");
        text
    }

    fn footer(&self, text: &mut String) -> std::fmt::Result {
        if let Some(transactions) = &self.transactions {
            writeln!(
                text,
                "{:.0} executions and {:.0} commits a second",
                transactions.executions_per_s, transactions.commits_per_s
            )?;
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
        )?;
        for cpu in &self.per_cpu {
            let all = (cpu.user + cpu.system + cpu.idle + cpu.steal).as_secs_f64();
            if all > 0.0 {
                let percent = |time: Duration| 100.0 * time.as_secs_f64() / all;
                writeln!(
                    text,
                    "CPU {}: user {:.0} %, system {:.0} %, idle {:.0} %, steal {:.0} %",
                    cpu.cpu,
                    percent(cpu.user),
                    percent(cpu.system),
                    percent(cpu.idle),
                    percent(cpu.steal)
                )?;
            }
        }
        Ok(())
    }
}

fn groups_of(part: Option<&str>, measured: &Measured) -> Vec<GroupFigures> {
    let mut groups = Vec::new();
    for Group { name, op, row, ended_after, .. } in &measured.groups {
        let Some(row) = measured.tally.row(*row) else { continue };
        let name = part.unwrap_or(name).to_owned();
        let time = ended_after.unwrap_or(measured.wall);
        groups.push(GroupFigures { name, op, figures: figures(row, time) });
    }
    groups
}

fn add_cpus(sum: &mut Vec<CpuUse>, more: &[CpuUse]) {
    for cpu in more {
        match sum.iter_mut().find(|known| known.cpu == cpu.cpu) {
            None => sum.push(*cpu),
            Some(known) => {
                known.user += cpu.user;
                known.system += cpu.system;
                known.idle += cpu.idle;
                known.steal += cpu.steal;
            }
        }
    }
}

//! A bench's figures in the shape tools depend on, and as a table for people.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value};
use weir_queue::QueueUse;
use weir_trace::document::{
    Bench, Core, Cpu, Figures, Group, HardQueue, LatencyNs, StageUse, Transactions, Unfinished,
};

use crate::cpu::{CpuTime, CpuUse};
use crate::engine::run::{self, Measured};
use crate::results::censored;
use weir_load::times::{QUANTILE_ERROR, Row, Times};

/// The times of a row as documents have them.
#[must_use]
pub fn latency(of: &Times) -> LatencyNs {
    LatencyNs {
        mean: of.mean_ns(),
        p50: of.quantile_ns(0.5),
        p90: of.quantile_ns(0.9),
        p95: of.quantile_ns(0.95),
        p99: of.quantile_ns(0.99),
        p999: of.quantile_ns(0.999),
        max: of.max_ns(),
    }
}

/// The figures of a row, over so long.
#[must_use]
pub fn figures(row: &Row, time: Duration) -> Figures {
    figures_with(row, &Times::default(), time)
}

/// The same, with the ages of those that had not ended when the time was up.
fn figures_with(row: &Row, open: &Times, time: Duration) -> Figures {
    let (latency_ns, unfinished) = match open.count() {
        0 => (latency(&row.total), Unfinished::default()),
        _ => censored::latency(&row.total, open),
    };
    let seconds = time.as_secs_f64().max(1e-9);
    Figures {
        ios: row.ios,
        bytes: row.bytes,
        iops: row.ios as f64 / seconds,
        bytes_per_s: row.bytes as f64 / seconds,
        latency_ns,
        queue_wait_ns: latency(&row.wait),
        device_ns: latency(&row.device),
        unfinished,
    }
}

/// The workload that was run.
#[derive(Clone, Debug)]
pub struct About {
    /// The target as given.
    pub target: String,
    /// The device's options as they took effect.
    pub options: Map<String, Value>,
    /// The job.
    pub job: Value,
    /// Seed of everything random.
    pub seed: u64,
    /// Whether a job looks at what it reads.
    pub verifies: bool,
    /// Whether it is on a block device of the kernel, which works beside the process.
    pub of_kernel: bool,
}

/// The figures of one measurement, or of several one after the other, which are told as one; each
/// has a name for its groups, or none.
#[must_use]
pub fn outcome(about: About, measured: &[(Option<String>, Measured)]) -> Bench {
    let time: Duration = measured.iter().map(|(_, part)| part.wall).sum();
    let (mut all, mut open) = (Row::default(), Times::default());
    let (mut cpu, mut errors) = (CpuTime::default(), 0);
    let mut groups = Vec::new();
    for (name, part) in measured {
        all.add(&part.tally.all());
        open.add(&part.tally.all_unfinished());
        cpu.user += part.cpu.user;
        cpu.system += part.cpu.system;
        errors += part.tally.errors;
        groups.extend(groups_of(name.as_deref(), part));
    }
    // By kind: any job may be called executions.
    let rate = |wanted: &str| {
        groups.iter().find(|group: &&Group| group.op == wanted).map(|group| group.figures.iops)
    };
    let transactions = rate("execution").map(|executions_per_s| Transactions {
        executions_per_s,
        commits_per_s: rate("commit").unwrap_or(0.0),
    });
    let verified: u64 = measured.iter().map(|(_, part)| part.tally.verified).sum();
    let ns_per_io = (all.ios > 0).then(|| cpu.total().as_nanos() as f64 / all.ios as f64);
    let has_done =
        |part: &Measured| part.failure.is_none() && part.ends.iter().flatten().all(Option::is_some);
    let finished = !measured.is_empty() && measured.iter().all(|(_, part)| has_done(part));
    let cores = cores(measured);
    let machine_s = machine_s(&cores);
    let per_io = (about.of_kernel && all.ios > 0).then_some(all.ios as f64);
    Bench {
        weir: String::from(env!("CARGO_PKG_VERSION")),
        target: weir::target::shown(&about.target),
        options: about.options,
        job: about.job,
        seed: about.seed,
        duration_s: time.as_secs_f64(),
        makespan_ns: finished.then_some(time.as_nanos() as u64),
        errors,
        figures: figures_with(&all, &open, time),
        percentile_error: Some(QUANTILE_ERROR),
        cpu: Cpu {
            user_s: cpu.user.as_secs_f64(),
            sys_s: cpu.system.as_secs_f64(),
            ns_per_io,
            machine_s,
            machine_ns: machine_s.zip(per_io).map(|(seconds, ios)| seconds * 1e9 / ios),
        },
        cores,
        hard_queues: hard_queues(measured),
        groups,
        stages: stages(measured),
        transactions,
        verified_blocks: about.verifies.then_some(verified),
        ..Bench::default()
    }
}

/// What the CPUs did in each stage that has a name.
fn stages(measured: &[(Option<String>, Measured)]) -> Vec<StageUse> {
    let of = |(name, part): &(Option<String>, Measured)| {
        let cores: Vec<Core> = part.per_cpu.0.iter().map(Core::from).collect();
        let (ios, used) = (part.tally.all().ios, part.cpu.total());
        Some(StageUse {
            name: name.clone()?,
            duration_s: part.wall.as_secs_f64(),
            cpu: Cpu {
                user_s: part.cpu.user.as_secs_f64(),
                sys_s: part.cpu.system.as_secs_f64(),
                ns_per_io: (ios > 0).then(|| used.as_nanos() as f64 / ios as f64),
                machine_s: machine_s(&cores),
                machine_ns: None,
            },
            sys_pct: share(&cores, |core| core.sys_s),
        })
    };
    measured.iter().filter_map(of).collect()
}

/// A part of the time of all CPUs, per cent; none where the kernel did not tick.
#[must_use]
pub fn share(cores: &[Core], part: impl Fn(&Core) -> f64) -> Option<f64> {
    let all: f64 = cores.iter().map(|c| c.user_s + c.sys_s + c.idle_s + c.steal_s).sum();
    (all > 0.0).then(|| 100.0 * cores.iter().map(part).sum::<f64>() / all)
}

/// The time in which CPUs of the machine did anything, seconds; none where the kernel did not tick.
#[must_use]
pub fn machine_s(cores: &[Core]) -> Option<f64> {
    let busy = cores.iter().map(|core| core.user_s + core.sys_s);
    (!cores.is_empty()).then(|| busy.sum())
}

/// The time of each CPU in all of the measured time.
#[must_use]
pub fn cores(measured: &[(Option<String>, Measured)]) -> Vec<Core> {
    let mut sum: Vec<Core> = Vec::new();
    for more in measured.iter().flat_map(|(_, part)| part.per_cpu.0.iter().map(Core::from)) {
        match sum.iter_mut().find(|known| known.cpu == more.cpu) {
            None => sum.push(more),
            Some(known) => {
                known.user_s += more.user_s;
                known.sys_s += more.sys_s;
                known.idle_s += more.idle_s;
                known.steal_s += more.steal_s;
            }
        }
    }
    sum
}

/// The requests of each hard queue of each disk in all of the measured time.
fn hard_queues(measured: &[(Option<String>, Measured)]) -> Vec<HardQueue> {
    let mut sum: Vec<HardQueue> = Vec::new();
    for (name, [before, after]) in measured.iter().flat_map(|(_, part)| &part.queues) {
        let disk = weir::target::shown(name);
        for (queue, after) in after.iter().enumerate() {
            let before = before.get(queue).copied().unwrap_or_default();
            let since = |requests: fn(&QueueUse) -> [u64; 2]| {
                let [after, before] = [after, &before].map(|of| requests(of).iter().sum::<u64>());
                after.saturating_sub(before)
            };
            let (queue, dispatched) = (queue as u16, since(QueueUse::dispatched));
            let completed = since(|of| of.ended);
            match sum.iter_mut().find(|known| known.disk == disk && known.queue == queue) {
                None => sum.push(HardQueue { disk: disk.clone(), queue, dispatched, completed }),
                Some(known) => {
                    known.dispatched += dispatched;
                    known.completed += completed;
                }
            }
        }
    }
    sum
}

/// How the requests of each disk with several hard queues were spread, a sentence each.
fn spreads(queues: &[HardQueue]) -> Vec<String> {
    let of_disks = queues.chunk_by(|one, next| one.disk == next.disk);
    let several = of_disks.filter(|queues| queues.len() > 1);
    let told = several.map(|queues| {
        let requests: Vec<_> = queues.iter().map(|queue| queue.completed.to_string()).collect();
        format!("requests of the hard queues of {}: {}", queues[0].disk, requests.join(" "))
    });
    told.collect()
}

impl From<&CpuUse> for Core {
    fn from(from: &CpuUse) -> Core {
        Core {
            cpu: from.cpu as u32,
            user_s: from.user.as_secs_f64(),
            sys_s: from.system.as_secs_f64(),
            idle_s: from.idle.as_secs_f64(),
            steal_s: from.steal.as_secs_f64(),
        }
    }
}

/// The figures as a table.
///
/// # Panics
/// Never: a string takes all text.
#[must_use]
pub fn table(bench: &Bench, cores: &[Core]) -> String {
    let groups = &bench.groups;
    let named = groups.iter().any(|group| group.name != groups[0].name);
    let name = |group: &Group| match named {
        true if group.name.ends_with(&group.op) => group.name.clone(),
        true if group.op == "execution" => group.name.clone(),
        true => format!("{} {}", group.name, group.op),
        false => group.op.clone(),
    };
    let width = groups.iter().map(|group| name(group).chars().count()).max();
    let width = width.unwrap_or(0).max(8);
    let mut text = format!(
        "{:width$} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}\n",
        "", "IOPS", "MiB/s", "mean us", "p50 us", "p99 us", "p99.9 us", "wait us", "device us"
    );
    let row = |text: &mut String, name: &str, figures: &Figures, is_whole: bool| {
        let part = |part: &LatencyNs| match is_whole {
            true => String::from("-"),
            false => format!("{:.1}", part.mean / 1000.0),
        };
        let us = |ns: f64| ns / 1000.0;
        let latency = &figures.latency_ns;
        writeln!(
            text,
            "{name:width$} {:>10.0} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10} {:>10}",
            figures.iops,
            figures.bytes_per_s / (1 << 20) as f64,
            us(latency.mean),
            us(latency.p50 as f64),
            us(latency.p99 as f64),
            us(latency.p999 as f64),
            part(&figures.queue_wait_ns),
            part(&figures.device_ns),
        )
        .expect("a string takes text");
    };
    for group in groups {
        row(&mut text, &name(group), &group.figures, group.is_whole());
    }
    if groups.len() != 1 {
        row(&mut text, "all", &bench.figures, false);
    }
    footer(bench, cores, &mut text).expect("a string takes text");
    text
}

fn footer(bench: &Bench, cores: &[Core], text: &mut String) -> std::fmt::Result {
    if let Some(transactions) = &bench.transactions {
        writeln!(
            text,
            "{:.0} executions and {:.0} commits a second",
            transactions.executions_per_s, transactions.commits_per_s
        )?;
    }
    if let Some(blocks) = bench.verified_blocks {
        writeln!(text, "{blocks} blocks were read and held what they should")?;
    }
    let Cpu { user_s, sys_s, ns_per_io, machine_s, machine_ns } = bench.cpu;
    let per_io = ns_per_io.map_or(String::from("-"), |ns| format!("{ns:.0} ns"));
    writeln!(
        text,
        "{} I/Os in {:.2} s, {} errors, CPU {per_io} per I/O \
         (user {user_s:.2} s, system {sys_s:.2} s)",
        bench.figures.ios, bench.duration_s, bench.errors,
    )?;
    if let Some((seconds, ns)) = machine_s.zip(machine_ns) {
        writeln!(
            text,
            "CPU of the machine {ns:.0} ns per I/O ({seconds:.2} s): kernel workers, interrupts \
             and all else that ran are in this alone"
        )?;
    }
    for target in &bench.durability_disabled {
        writeln!(text, "durability disabled: {target}")?;
    }
    let notices = [unfinished(bench), spreads(&bench.hard_queues)].concat();
    for told in bench.prepared.iter().chain(&notices) {
        writeln!(text, "{told}")?;
    }
    for Core { cpu, user_s, sys_s, idle_s, steal_s } in cores {
        let all = user_s + sys_s + idle_s + steal_s;
        if all > 0.0 {
            let [user, system, idle, steal] =
                [user_s, sys_s, idle_s, steal_s].map(|seconds| 100.0 * seconds / all);
            writeln!(
                text,
                "CPU {cpu}: user {user:.0} %, system {system:.0} %, idle {idle:.0} %, \
                 steal {steal:.0} %"
            )?;
        }
    }
    Ok(())
}

/// Which latencies are known to be larger than they are told, a sentence for each group.
#[must_use]
pub fn unfinished(bench: &Bench) -> Vec<String> {
    let of = |group: &Group| {
        let at_least = &group.figures.unfinished.at_least;
        let first = at_least.iter().find(|name| name.starts_with('p'))?;
        let Group { name, op, .. } = group;
        let first = first.replace("p999", "p99.9");
        Some(format!(
            "{name}: latencies of {op} from {first} on are lower bounds: that many were under way \
             or due, and for longer, when the time was up"
        ))
    };
    bench.groups.iter().filter_map(of).collect()
}

fn groups_of(part: Option<&str>, measured: &Measured) -> Vec<Group> {
    let mut groups = Vec::new();
    for run::Group { name, op, row, ended_after, .. } in &measured.groups {
        let (ended, open) = (measured.tally.row(*row), measured.tally.unfinished(*row));
        if ended.is_none() && open.is_none() {
            continue;
        }
        let (ended, open) = (ended.cloned().unwrap_or_default(), open.cloned().unwrap_or_default());
        let (name, op) = (part.unwrap_or(name).to_owned(), String::from(*op));
        let time = ended_after.unwrap_or(measured.wall);
        groups.push(Group { name, op, figures: figures_with(&ended, &open, time) });
    }
    groups
}

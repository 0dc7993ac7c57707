//! One run.

use super::merged::{curve, percentile_curve};
use super::{job_name, repeat, warning};
use crate::chart::{Bar, Points, percentiles, series, stacked};
use crate::document::{Bench, BenchDocument, Document, Figures, Group};
use crate::numbers::{NONE, byte_rate, change, count, time, words};
use crate::page::{Page, Section, Table, Tone, Verdict};
use crate::sources;

/// Adds a run; its title.
pub(crate) fn compose(page: &mut Page, document: &BenchDocument) -> String {
    let bench = &document.bench;
    if document.partial {
        let why = document.failure.as_deref().unwrap_or("nobody said why");
        page.verdicts.push(warning(format!("The run broke off: {why}. What it measured stands.")));
    }
    page.verdicts.push(Verdict { tone: Tone::Plain, text: headline(bench) });
    if bench.errors > 0 {
        page.verdicts.push(warning(format!("{} I/Os failed.", bench.errors)));
    }
    let mut section = Section::new("Figures");
    section.table(figures_table(bench));
    section.charts([
        percentiles("Latency percentiles", "", &curves(document)),
        series("IOPS", "", &[rate(document)], &count),
        series("Mean latency", "", &[latency(document)], &time),
        where_time_went(bench),
    ]);
    page.sections.push(section);
    if let Some(preset) = sources::preset(&bench.job, &document.command) {
        let ours = |key: &str| own_figure(bench, key).map(|value| [Some(value), None]);
        page.sections.push(sources::section(preset, ["this run", "–"], &ours));
    }
    let environment = &document.environment;
    let facts = [
        ("target", bench.target.clone()),
        ("options", words(&serde_json::Value::Object(bench.options.clone()))),
        ("job", words(&bench.job)),
        ("seed", bench.seed.to_string()),
        ("machine", format!("{} CPUs, {}", environment.cpus, environment.cpu_model)),
        ("kernel", environment.kernel.clone()),
        ("weir", bench.weir.clone()),
        ("began", environment.started_at.clone()),
    ];
    page.sections.push(repeat(&document.command, &facts));
    format!("{} on {}", job_name(&bench.job), bench.target)
}

fn headline(bench: &Bench) -> String {
    let figures = &bench.figures;
    if figures.ios == 0 {
        return String::from("No I/O ended.");
    }
    let commits = bench.transactions.map_or_else(String::new, |transactions| {
        format!(", {} commits per second", count(transactions.commits_per_s))
    });
    let cpu = bench.cpu.ns_per_io.map_or_else(String::new, |ns| {
        format!(", CPU {} per I/O (all threads, the generator's share included)", time(ns))
    });
    format!(
        "{} IOPS, {}{commits}; latency mean {}, p99 {}{cpu}; measured for {:.1} s.",
        count(figures.iops),
        byte_rate(figures.bytes_per_s),
        time(figures.latency_ns.mean),
        time(figures.latency_ns.p99 as f64),
        bench.duration_s
    )
}

fn figures_table(bench: &Bench) -> Table {
    let head =
        ["", "IOPS", "rate", "mean", "p50", "p90", "p99", "p99.9", "max", "queue wait", "device"];
    let mut table = Table::new("Latency from begin to answer; the last two are means", head);
    let mut row = |name: String, figures: &Figures| {
        let latency = &figures.latency_ns;
        let quantiles = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
        let [p50, p90, p99, p999, max] = quantiles.map(|ns| time(ns as f64));
        let (wait, device) = (time(figures.queue_wait_ns.mean), time(figures.device_ns.mean));
        let (iops, rate) = (count(figures.iops), byte_rate(figures.bytes_per_s));
        table.row([name, iops, rate, time(latency.mean), p50, p90, p99, p999, max, wait, device]);
    };
    for group in &bench.groups {
        row(group_name(&group.name, &group.op), &group.figures);
    }
    if bench.groups.len() != 1 {
        row(String::from("all"), &bench.figures);
    }
    table
}

/// A group's name, with its op where the name does not say it.
pub(crate) fn group_name(name: &str, op: &str) -> String {
    match name.split(' ').any(|word| word == op) || op.is_empty() {
        true => String::from(name),
        false => format!("{name} {op}"),
    }
}

fn curves(document: &BenchDocument) -> Vec<crate::chart::Curve> {
    let bench = &document.bench;
    let mut curves = vec![curve("all", ("all", "all"), &[document])];
    if bench.groups.len() > 1 {
        curves.extend(bench.groups.iter().map(|group| {
            curve(&group_name(&group.name, &group.op), (&group.name, &group.op), &[document])
        }));
    }
    curves.retain(|curve| !curve.quantiles.is_empty());
    if curves.is_empty() {
        curves.push(percentile_curve("all", &[bench.figures.latency_ns]));
    }
    // More would hide each other.
    curves.truncate(crate::chart::COLOURS);
    curves
}

/// I/Os per second over the measured time.
pub(crate) fn rate(document: &BenchDocument) -> Points {
    let mut from = 0.0;
    let line = document.series.iter().map(|sample| {
        let span = sample.at_s - from;
        from = sample.at_s;
        (sample.at_s, sample.ios as f64 / span)
    });
    let line: Vec<_> = line.filter(|(_, rate)| rate.is_finite()).collect();
    Points { label: String::from("all"), lines: vec![line], intervals: Vec::new() }
}

/// Mean latency over the measured time; an interval in which nothing ended has none.
pub(crate) fn latency(document: &BenchDocument) -> Points {
    let known = document.series.iter().filter(|sample| sample.ios > 0);
    let line = known.map(|sample| (sample.at_s, sample.latency_mean_ns)).collect();
    Points { label: String::from("all"), lines: vec![line], intervals: Vec::new() }
}

fn where_time_went(bench: &Bench) -> Option<crate::page::Chart> {
    let bar = |label: String, figures: &Figures| Bar {
        label,
        parts: [figures.queue_wait_ns.mean, figures.device_ns.mean],
    };
    let mut bars = vec![bar(String::from("all"), &bench.figures)];
    if bench.groups.len() > 1 {
        // What is no I/O, as a commit is, is made of many and has no place beside them.
        let groups = bench.groups.iter().filter(|group| is_io(group));
        bars.extend(groups.map(|group| bar(group_name(&group.name, &group.op), &group.figures)));
    }
    bars.retain(|bar| bar.parts.iter().sum::<f64>() > 0.0);
    let note = "Mean of an I/O: until the driver had it, and until the driver answered.";
    stacked("Where the time went", note, ["queue wait", "device"], &bars, &time)
}

/// A figure of a run for a place in a published table; see [`sources::section`].
pub(crate) fn own_figure(bench: &Bench, key: &str) -> Option<f64> {
    const MIB: f64 = 1_048_576.0;
    const MS: f64 = 1e6;
    let group = |wanted: &dyn Fn(&str) -> bool| {
        bench.groups.iter().find(|group| wanted(&group.name)).map(|group| &group.figures)
    };
    match key.split_once(' ') {
        // A sweep within one run has a group for each number of threads.
        Some((what, threads)) => {
            let digits = |name: &str| {
                name.split(|c: char| !c.is_ascii_digit()).any(|number| number == threads)
            };
            let figures = group(&digits)?;
            match what {
                "iops" => Some(figures.iops),
                _ => Some(figures.latency_ns.mean / MS),
            }
        }
        None => match key {
            "iops" => group(&|name| name == "data read").map(|_| data_iops(bench)),
            "read_latency_ms" => {
                group(&|name| name == "data read").map(|figures| figures.latency_ns.mean / MS)
            }
            "commits" => bench.transactions.map(|transactions| transactions.commits_per_s),
            "cached" | "buffered" => {
                group(&|name| name.contains(key)).map(|figures| figures.bytes_per_s / MIB)
            }
            _ => None,
        },
    }
}

/// Whether a group is of what moves bytes, and not of what that was done for.
fn is_io(group: &Group) -> bool {
    group.figures.bytes > 0
}

/// Reads and writes of data, without redo and what counts other things than I/Os.
fn data_iops(bench: &Bench) -> f64 {
    let data = bench.groups.iter().filter(|group| group.name.starts_with("data") && is_io(group));
    data.map(|group| group.figures.iops).sum()
}

/// Two or more runs of one job in one table. A single run each has no interval, so no verdict.
pub(crate) fn beside(page: &mut Page, documents: &[Document]) {
    let runs: Vec<&Bench> = documents
        .iter()
        .filter_map(|document| match document {
            Document::Bench(bench) if !bench.partial => Some(&bench.bench),
            _ => None,
        })
        .collect();
    let [first, .., last] = runs.as_slice() else { return };
    if runs.iter().any(|run| run.job != first.job) {
        return;
    }
    let mut section = Section::new("Side by side");
    section.prose(
        "One run each, one after the other: the changes below are what was seen and no verdict. \
         `weir compare` gives one.",
    );
    let mut table = Table::new("", [""]);
    table.head.extend(runs.iter().map(|run| {
        format!(
            "{} {}",
            run.target,
            words(&run.options.get("scheduler").cloned().unwrap_or_default())
        )
    }));
    table.head.push(String::from("first to last"));
    let mut row = |name: &str, of: &dyn Fn(&Bench) -> f64, show: &dyn Fn(f64) -> String| {
        let cells = runs.iter().map(|run| show(of(run)));
        let gain = change(of(first), of(last));
        table.rows.push(std::iter::once(String::from(name)).chain(cells).chain([gain]).collect());
    };
    row("IOPS", &|run| run.figures.iops, &count);
    row("mean latency", &|run| run.figures.latency_ns.mean, &time);
    row("p99 latency", &|run| run.figures.latency_ns.p99 as f64, &time);
    let cpu = |run: &Bench| run.cpu.ns_per_io.unwrap_or(f64::NAN);
    row("CPU per I/O", &cpu, &|ns| if ns.is_nan() { String::from(NONE) } else { time(ns) });
    section.table(table);
    page.sections.insert(0, section);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::LatencyNs;

    fn group(name: &str, op: &str, bytes: u64, device_ns: f64) -> Group {
        let device_ns = LatencyNs { mean: device_ns, ..LatencyNs::default() };
        let figures = Figures { ios: 10, bytes, iops: 5.0, device_ns, ..Figures::default() };
        Group { name: String::from(name), op: String::from(op), figures }
    }

    #[test]
    fn commits_are_neither_device_time_nor_data() {
        let mut bench = Bench::default();
        bench.groups.extend([
            group("data read", "read", 8192, 1e6),
            group("data write", "write", 8192, 2e6),
            group("data flush", "flush", 0, 3e6),
            group("commit", "write", 0, 9e9),
        ]);
        let chart = where_time_went(&bench).expect("a chart").svg;
        assert!(chart.contains("data write") && !chart.contains("commit"), "{chart}");
        assert_eq!(own_figure(&bench, "iops"), Some(10.0));
    }
}

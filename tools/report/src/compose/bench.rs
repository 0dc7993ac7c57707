//! One run.

use super::merged::{curve, percentile_curve};
use super::{cores, jobs, notices, queues, repeat, warning};
use crate::chart::{Bar, Points, percentiles, series, stacked};
use crate::numbers::{NONE, byte_rate, change, count, time, words};
use crate::page::{Page, Section, Table};
use crate::sources;
use crate::tone::{Tone, Verdict};
use weir_trace::document::{Bench, BenchDocument, Core, Document, Figures, Group, StageUse};

/// Adds a run; its title.
pub(crate) fn compose(page: &mut Page, document: &BenchDocument) -> String {
    let bench = &document.bench;
    if document.partial {
        let why = document.failure.as_deref().unwrap_or("nobody said why");
        page.verdicts.push(warning(format!("The run broke off: {why}. What it measured stands.")));
    }
    page.verdicts.push(Verdict { tone: Tone::Plain, text: headline(bench) });
    page.verdicts.extend(notices([document]));
    if bench.errors > 0 {
        page.verdicts.push(warning(format!("{} I/Os failed.", bench.errors)));
    }
    let mut section = Section::new("Figures");
    section.table(figures_table(bench));
    let this = [(String::from("this run"), vec![document])];
    section.table(cores::table(&this));
    section.table(queues::table(&this));
    section.charts(percentile_charts(document));
    section.charts([
        series("IOPS", "", &[rate(document)], &count),
        series("Mean latency", "", &[latency(document)], &time),
        where_time_went(bench),
    ]);
    page.sections.push(section);
    if let Some(preset) = sources::preset(&bench.job) {
        let ours = |key: &str| own_figure(bench, key).map(|value| [Some(value), None]);
        page.sections.push(sources::section(preset, &["this run"], &ours));
    }
    let environment = &document.environment;
    let mut facts = vec![
        ("target", bench.target.clone()),
        ("options", words(&serde_json::Value::Object(bench.options.clone()))),
    ];
    if !bench.durability_disabled.is_empty() {
        facts.push(("durability disabled", bench.durability_disabled.join(", ")));
    }
    facts.extend(jobs::facts(&bench.job, ""));
    facts.extend([
        ("measured for", format!("{:.2} s", bench.duration_s)),
        ("seed", bench.seed.to_string()),
        ("machine", format!("{} CPUs, {}", environment.cpus, environment.cpu_model)),
        ("kernel", environment.kernel.clone()),
        ("weir", bench.weir.clone()),
        ("began", environment.started_at.clone()),
    ]);
    page.sections.push(repeat(&document.command, &facts));
    format!("{} on {}", jobs::name(&bench.job), bench.target)
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
    let done = bench.makespan_ns.map_or_else(
        || format!("measured for {:.1} s", bench.duration_s),
        |ns| format!("all was done after {}", time(ns as f64)),
    );
    format!(
        "{} IOPS, {}{commits}; latency mean {}, p99 {}{cpu}; {done}.",
        count(figures.iops),
        byte_rate(figures.bytes_per_s),
        time(figures.latency_ns.mean),
        time(figures.latency_ns.p99 as f64),
    )
}

fn figures_table(bench: &Bench) -> Table {
    let head =
        ["", "IOPS", "rate", "mean", "p50", "p90", "p99", "p99.9", "max", "queue wait", "device"];
    let mut table = Table::new("Latency from begin to answer; the last two are means", head);
    // A group made of many I/Os was not seen by a driver as one.
    let is_whole = |group: &Group| ["execution", "commit"].contains(&group.op.as_str());
    let mut row = |name: String, figures: &Figures, is_io: bool| {
        let latency = &figures.latency_ns;
        let quantiles = [latency.p50, latency.p90, latency.p99, latency.p999, latency.max];
        let [p50, p90, p99, p999, max] = quantiles.map(|ns| time(ns as f64));
        let parts = [&figures.queue_wait_ns, &figures.device_ns];
        let known = |ns: f64| if is_io { time(ns) } else { String::from(NONE) };
        let [wait, device] = parts.map(|part| known(part.mean));
        let (iops, rate) = (count(figures.iops), byte_rate(figures.bytes_per_s));
        table.row([name, iops, rate, time(latency.mean), p50, p90, p99, p999, max, wait, device]);
    };
    for group in &bench.groups {
        row(group_name(&group.name, &group.op), &group.figures, !is_whole(group));
    }
    if bench.groups.len() != 1 {
        row(String::from("all"), &bench.figures, true);
    }
    table
}

/// A group's name, with its op where the name does not say it.
pub(crate) fn group_name(name: &str, op: &str) -> String {
    // As in `commit` and `executions`.
    let says_it = |word: &str| word == op || word.strip_suffix('s') == Some(op);
    match name.split(' ').any(says_it) || op.is_empty() {
        true => String::from(name),
        false => format!("{name} {op}"),
    }
}

/// All curves, in as many charts as it takes: more in one would hide each other.
fn percentile_charts(document: &BenchDocument) -> Vec<Option<crate::page::Chart>> {
    let curves = curves(document);
    let parts: Vec<_> = curves.chunks(crate::chart::COLOURS).collect();
    let title = |at: usize| match parts.len() {
        1 => String::from("Latency percentiles"),
        all => format!("Latency percentiles, {} of {all}", at + 1),
    };
    parts.iter().enumerate().map(|(at, part)| percentiles(&title(at), "", part)).collect()
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
    Points { label: String::from("all"), lines: vec![line], ..Points::default() }
}

/// Mean latency over the measured time; an interval in which nothing ended has none.
pub(crate) fn latency(document: &BenchDocument) -> Points {
    let known = document.series.iter().filter(|sample| sample.ios > 0);
    let line = known.map(|sample| (sample.at_s, sample.latency_mean_ns)).collect();
    Points { label: String::from("all"), lines: vec![line], ..Points::default() }
}

fn where_time_went(bench: &Bench) -> Option<crate::page::Chart> {
    let bar = |label: String, figures: &Figures| Bar {
        label,
        parts: [figures.queue_wait_ns.mean, figures.device_ns.mean],
    };
    let mut bars = vec![bar(String::from("all"), &bench.figures)];
    if bench.groups.len() > 1 {
        let groups = bench.groups.iter();
        let groups = groups.filter(|group| moves_data(group));
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
    let named = |name: &'static str| Together::of(bench, move |group| group.name == name);
    match key.split_once(' ') {
        Some(("stage_s", name)) => {
            let stage = bench.stages.iter().find(|stage| stage.name == name)?;
            Some(stage.duration_s)
        }
        Some(("sys_pct", threads)) => {
            let is = |stage: &&StageUse| stage.name.split(' ').next() == Some(threads);
            bench.stages.iter().find(is)?.sys_pct
        }
        // A sweep within one run has groups for each number of threads: its reads, its writes.
        Some((what, threads)) => {
            let together = Together::of(bench, |group| {
                group.name.split(|c: char| !c.is_ascii_digit()).any(|number| number == threads)
            })?;
            match what {
                "iops" => Some(together.iops),
                _ => together.latency_mean_ns.map(|ns| ns / MS),
            }
        }
        None => match key {
            "iops" => Together::of(bench, |group| group.name.starts_with("data"))
                .map(|together| together.iops),
            "read_latency_ms" => named("data read")?.latency_mean_ns.map(|ns| ns / MS),
            "commits" => bench.transactions.map(|transactions| transactions.commits_per_s),
            "executions" => bench.transactions.map(|transactions| transactions.executions_per_s),
            // Of several stages the sum is that of none.
            "total_s" if bench.stages.is_empty() => bench.makespan_ns.map(|ns| ns as f64 / 1e9),
            "gb_per_s" => Some(bench.figures.bytes_per_s / 1e9),
            "data_write_ms" | "metadata_write_ms" => {
                let wanted = key.trim_end_matches("_write_ms");
                Together::of(bench, |group| group.name == wanted && group.op == "write")?
                    .latency_mean_ns
                    .map(|ns| ns / MS)
            }
            "idle_pct" => share_pct(bench, |core| core.idle_s),
            "cached" | "buffered" => Together::of(bench, |group| group.name.contains(key))
                .map(|together| together.bytes_per_s / MIB),
            _ => None,
        },
    }
}

/// A part of the time of all CPUs of the machine, per cent; none where the kernel did not tick.
pub(crate) fn share_pct(bench: &Bench, part: fn(&Core) -> f64) -> Option<f64> {
    let all = bench.cores.iter().map(|c| c.user_s + c.sys_s + c.idle_s + c.steal_s).sum::<f64>();
    (all > 0.0).then(|| 100.0 * bench.cores.iter().map(part).sum::<f64>() / all)
}

/// Several groups as one.
struct Together {
    iops: f64,
    bytes_per_s: f64,
    /// Over all their I/Os; none where none ended.
    latency_mean_ns: Option<f64>,
}

impl Together {
    /// Those of a run's groups that move data and are wanted; none where there is none.
    fn of(bench: &Bench, is_wanted: impl Fn(&Group) -> bool) -> Option<Together> {
        let wanted = || bench.groups.iter().filter(|group| moves_data(group) && is_wanted(group));
        wanted().next()?;
        let sum = |of: fn(&Figures) -> f64| wanted().map(|group| of(&group.figures)).sum::<f64>();
        let ios = sum(|figures| figures.ios as f64);
        let ns = sum(|figures| figures.latency_ns.mean * figures.ios as f64);
        Some(Together {
            iops: sum(|figures| figures.iops),
            bytes_per_s: sum(|figures| figures.bytes_per_s),
            latency_mean_ns: (ios > 0.0).then(|| ns / ios),
        })
    }
}

/// Whether a group is of I/Os that move data: flushes move none, and whole executions and commits
/// are no I/Os.
fn moves_data(group: &Group) -> bool {
    matches!(group.op.as_str(), "read" | "write") && group.figures.bytes > 0
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

    /// A group of so many I/Os in two seconds, of 4 KiB each where they move data.
    #[test]
    fn a_name_that_says_what_is_done_is_not_told_it_again() {
        let names = [("executions", "execution"), ("commit", "commit"), ("data", "read")];
        let names = names.map(|(name, op)| group_name(name, op));
        assert_eq!(names, ["executions", "commit", "data read"]);
    }

    fn group(name: &str, op: &str, ios: u64, mean: f64) -> Group {
        let mut group = Group { name: name.into(), op: op.into(), ..Group::default() };
        let figures = &mut group.figures;
        (figures.ios, figures.iops, figures.latency_ns.mean) = (ios, ios as f64 / 2.0, mean);
        if matches!(op, "read" | "write") {
            (figures.bytes, figures.bytes_per_s) = (ios * 4096, ios as f64 * 2048.0);
        }
        group
    }

    #[test]
    fn the_stage_of_a_sweep_is_all_its_groups_together() {
        let groups = vec![
            group("8 threads", "read", 3000, 1e6),
            group("8 threads", "write", 1000, 5e6),
            group("8 threads", "flush", 500, 9e9),
            group("18 threads", "read", 70, 1.0),
        ];
        let bench = Bench { groups, ..Bench::default() };
        assert_eq!(own_figure(&bench, "iops 8"), Some(2000.0));
        assert_eq!(own_figure(&bench, "response 8"), Some(2.0));
        assert_eq!(own_figure(&bench, "iops 16"), None);
    }

    #[test]
    fn every_group_has_its_curve_however_many_there_are() {
        let groups: Vec<Group> = (1..=8).map(|n| group(&format!("g{n}"), "read", n, 1e6)).collect();
        let histogram = |name: &str, op: &str| weir_trace::document::Histogram {
            name: name.into(),
            op: op.into(),
            what: "latency".into(),
            buckets: vec![(1000, 5), (2000, 5)],
        };
        let of_groups = groups.iter().map(|group| histogram(&group.name, &group.op));
        let histograms = std::iter::once(histogram("all", "all")).chain(of_groups).collect();
        let bench = Bench { groups, ..Bench::default() };
        let document = BenchDocument { bench, histograms, ..BenchDocument::default() };
        let charts: Vec<_> = percentile_charts(&document).into_iter().flatten().collect();
        assert_eq!(charts.len(), 2);
        let drawn: String = charts.iter().map(|chart| chart.svg.as_str()).collect();
        for name in ["all", "g1 read", "g6 read", "g8 read"] {
            assert!(drawn.contains(&format!(">{name}</text>")), "{name} is not drawn");
        }
    }

    #[test]
    fn executions_commits_and_flushes_are_no_data_ios_and_no_bars() {
        let mut groups = vec![
            group("data read", "read", 600, 1e6),
            group("data write", "write", 200, 1e6),
            group("redo write", "write", 50, 1e6),
            group("executions", "read", 900, 9e6),
            group("commit", "write", 50, 7e6),
            group("data flush", "flush", 400, 5e6),
        ];
        for group in &mut groups {
            if ["executions", "commit"].contains(&group.name.as_str()) {
                (group.figures.bytes, group.figures.bytes_per_s) = (0, 0.0);
            }
            group.figures.device_ns.mean = group.figures.latency_ns.mean;
        }
        let bench = Bench { groups, ..Bench::default() };
        assert_eq!(own_figure(&bench, "iops"), Some(400.0));
        assert_eq!(own_figure(&bench, "read_latency_ms"), Some(1.0));
        let chart = where_time_went(&bench).expect("bars").svg;
        assert!(chart.contains("data write") && chart.contains("redo write"), "{chart}");
        for name in ["executions", "commit", "flush"] {
            assert!(!chart.contains(name), "{name}: {chart}");
        }
    }
}

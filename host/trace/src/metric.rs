//! What comparisons compare: each metric with its names, its value in a run and its estimate.
//!
//! The only list of them: statistics, flags, tables, sentences and charts go by it.

use crate::document::{BenchDocument, Compare, Estimate, Figures, Group, Variant};

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in documents and flags.
    pub name: &'static str,
    /// Its name in sentences and tables.
    pub title: &'static str,
    /// Whether more of it is better.
    pub more_is_better: bool,
    /// What it is counted in.
    pub unit: Unit,
    /// The work that a run without any of it did not do; none where nothing of it is no result.
    pub undone: Option<&'static str>,
    /// Whether it comes out of a histogram, which knows it to within a bucket.
    pub is_bucket: bool,
    /// Whether it is of one kind of I/O alone, and so restates others where there is no other kind.
    pub is_of_one_kind: bool,
    of_run: fn(&BenchDocument) -> Option<f64>,
}

/// What a metric is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many a second.
    PerSecond,
    /// A time, nanoseconds.
    Nanoseconds,
    /// CPU time, nanoseconds: less of it is cheaper, and not faster.
    CpuNanoseconds,
}

/// The metric of CPU time.
pub const CPU: &str = "cpu_ns_per_io";
/// The metric of transactions.
pub const COMMITS: &str = "commits_per_s";
/// The metric of all I/O.
pub const IOPS: &str = "iops";
/// The metric of jobs that end by themselves.
pub const MAKESPAN: &str = "makespan_ns";

/// The metric of a rate that a command printed.
pub const FIGURE: &str = "figure";
/// The metric of a time that a command printed.
pub const FIGURE_NS: &str = "figure_ns";
/// The metric of the CPU time of all that ran meanwhile.
pub const MACHINE_CPU: &str = "machine_cpu_ns";

/// All of them, what answers a question first.
pub const METRICS: [Metric; 18] = [
    Metric { undone: None, ..rate(FIGURE, "figure of the command", "", |run| printed(run, false)) },
    time(FIGURE_NS, "time that the command printed", |run| printed(run, true)),
    time(MAKESPAN, "time to finish", |run| Some(run.bench.makespan_ns? as f64)),
    rate(IOPS, "IOPS", "I/O", |run| Some(run.bench.figures.iops)),
    rate(COMMITS, "commits per second", "commit", |run| {
        Some(run.bench.transactions?.commits_per_s)
    }),
    of_kind(time("commit_latency_mean_ns", "mean commit latency", |run| mean(run, COMMIT)), COMMIT),
    bucket(of_kind(
        time("commit_latency_p99_ns", "p99 commit latency", |run| p99(run, COMMIT)),
        COMMIT,
    )),
    time("latency_mean_ns", "mean latency", |run| Some(run.bench.figures.latency_ns.mean)),
    bucket(time("latency_p50_ns", "median latency", |run| {
        Some(run.bench.figures.latency_ns.p50 as f64)
    })),
    bucket(time("latency_p99_ns", "p99 latency", |run| {
        Some(run.bench.figures.latency_ns.p99 as f64)
    })),
    of_kind(rate("read_iops", "read IOPS", READ, |run| iops(run, READ)), READ),
    of_kind(time("read_latency_mean_ns", "mean read latency", |run| mean(run, READ)), READ),
    bucket(of_kind(time("read_latency_p99_ns", "p99 read latency", |run| p99(run, READ)), READ)),
    of_kind(rate("write_iops", "write IOPS", WRITE, |run| iops(run, WRITE)), WRITE),
    of_kind(time("write_latency_mean_ns", "mean write latency", |run| mean(run, WRITE)), WRITE),
    bucket(of_kind(
        time("write_latency_p99_ns", "p99 write latency", |run| p99(run, WRITE)),
        WRITE,
    )),
    Metric {
        unit: Unit::CpuNanoseconds,
        ..time(CPU, "CPU per I/O", |run| run.bench.cpu.ns_per_io)
    },
    Metric {
        unit: Unit::CpuNanoseconds,
        ..time(MACHINE_CPU, "CPU of the machine", |run| run.bench.cpu.machine_ns)
    },
];

/// The kinds of groups.
const READ: &str = "read";
const WRITE: &str = "write";
const COMMIT: &str = "commit";

const fn rate(
    name: &'static str,
    title: &'static str,
    what: &'static str,
    of_run: fn(&BenchDocument) -> Option<f64>,
) -> Metric {
    Metric {
        more_is_better: true,
        unit: Unit::PerSecond,
        undone: Some(what),
        ..time(name, title, of_run)
    }
}

const fn time(
    name: &'static str,
    title: &'static str,
    of_run: fn(&BenchDocument) -> Option<f64>,
) -> Metric {
    Metric {
        name,
        title,
        more_is_better: false,
        unit: Unit::Nanoseconds,
        undone: None,
        is_bucket: false,
        is_of_one_kind: false,
        of_run,
    }
}

const fn bucket(metric: Metric) -> Metric {
    Metric { is_bucket: true, ..metric }
}

const fn of_kind(metric: Metric, kind: &'static str) -> Metric {
    Metric { is_of_one_kind: true, undone: Some(kind), ..metric }
}

impl Metric {
    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// Its value in a run; 0 where what it is of was not done. The device of a command may have had
    /// no I/O, and has no percentiles: 0 is no value there.
    #[must_use]
    pub fn of_run(&self, run: &BenchDocument) -> Option<f64> {
        let is_command = run.bench.command_run.is_some();
        (self.of_run)(run).filter(|value| !is_command || *value != 0.0)
    }

    /// Whether it says anything of these runs: that of one kind only where another kind is done
    /// too, for where all is of one kind the metrics of all I/O are that.
    #[must_use]
    pub fn is_of<'a>(&self, runs: impl Iterator<Item = &'a BenchDocument>) -> bool {
        let mut runs = runs.peekable();
        if !self.is_of_one_kind {
            return runs.any(|run| self.of_run(run).is_some());
        }
        let (mut known, mut kinds) = (false, [false; 2]);
        for run in runs {
            known |= self.of_run(run).is_some_and(|value| value > 0.0);
            for (done, kind) in kinds.iter_mut().zip([READ, WRITE]) {
                *done |= iops(run, kind).is_some_and(|rate| rate > 0.0);
            }
        }
        known && (kinds == [true; 2] || self.undone == Some(COMMIT))
    }

    /// Its estimate for a variant; none where it was not measured.
    #[must_use]
    pub fn of_variant(&self, variant: &Variant) -> Option<Estimate> {
        let found = match self.name {
            IOPS => Some(variant.iops),
            "latency_mean_ns" => Some(variant.latency_mean_ns),
            "latency_p50_ns" => variant.latency_p50_ns,
            "latency_p99_ns" => Some(variant.latency_p99_ns),
            CPU => Some(variant.cpu_ns_per_io),
            COMMITS => variant.commits_per_s,
            MAKESPAN => variant.makespan_ns,
            FIGURE => variant.figure,
            FIGURE_NS => variant.figure_ns,
            MACHINE_CPU => variant.machine_cpu_ns,
            other => variant.of_one_kind.get(other).copied(),
        };
        found.filter(|estimate| estimate.mean != 0.0 || estimate.ci95.is_some())
    }
}

/// The metric that answers the question of a comparison. Documents of old do not name it.
#[must_use]
pub fn primary(compare: &Compare) -> &str {
    if !compare.metric.is_empty() {
        return &compare.metric;
    }
    let has = |name: &&str| compare.comparisons.iter().any(|found| found.metric == *name);
    [MAKESPAN, COMMITS].into_iter().find(has).unwrap_or(IOPS)
}

/// The rate or the time that a command printed.
fn printed(run: &BenchDocument, is_time: bool) -> Option<f64> {
    let figure = run.bench.command_run.as_ref()?.figure.as_ref()?;
    (figure.is_time == is_time).then_some(figure.value)
}

/// The groups of a kind that did anything.
fn groups<'a>(run: &'a BenchDocument, kind: &'a str) -> impl Iterator<Item = &'a Group> {
    run.bench.groups.iter().filter(move |group| group.op == kind && group.figures.ios > 0)
}

/// I/Os of a kind in all of the measured time, as all of them are counted: groups of stages that
/// come one after the other, or that end early, have rates over times of their own.
fn iops(run: &BenchDocument, kind: &str) -> Option<f64> {
    if run.bench.groups.is_empty() {
        return None;
    }
    let sum = |of: fn(&Figures) -> f64| groups(run, kind).map(|group| of(&group.figures)).sum();
    let (ios, rates): (f64, f64) = (sum(|of| of.ios as f64), sum(|of| of.iops));
    let seconds = run.bench.duration_s;
    Some(if seconds > 0.0 { ios / seconds } else { rates })
}

/// The mean latency of all groups of a kind.
fn mean(run: &BenchDocument, kind: &str) -> Option<f64> {
    let sum = |of: fn(&Figures) -> f64| groups(run, kind).map(|group| of(&group.figures)).sum();
    let (ios, ns): (f64, f64) =
        (sum(|of| of.ios as f64), sum(|of| of.ios as f64 * of.latency_ns.mean));
    let known = !run.bench.groups.is_empty();
    known.then_some(if ios > 0.0 { ns / ios } else { 0.0 })
}

/// The latency that 99 % of a kind did not exceed: of one group its own, of several that of their
/// histograms together.
fn p99(run: &BenchDocument, kind: &str) -> Option<f64> {
    if run.bench.groups.is_empty() {
        return None;
    }
    let mut of_kind = groups(run, kind);
    let Some(first) = of_kind.next() else { return Some(0.0) };
    if of_kind.next().is_none() {
        return Some(first.figures.latency_ns.p99 as f64);
    }
    let wanted = run.histograms.iter().filter(|one| one.op == kind && one.what == "latency");
    let mut buckets: Vec<(u64, u64)> = wanted.flat_map(|one| one.buckets.clone()).collect();
    buckets.sort_unstable();
    let all: u128 = buckets.iter().map(|(_, count)| u128::from(*count)).sum();
    let rank = (all * 99).div_ceil(100);
    let mut seen = 0;
    let at = buckets.into_iter().find(|(_, count)| {
        seen += u128::from(*count);
        seen >= rank
    });
    at.map(|(bound, _)| bound as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{CommandRun, Figure, Histogram, LatencyNs};

    fn group(name: &str, op: &str, ios: u64, mean: f64) -> Group {
        let latency_ns = LatencyNs { mean, p99: mean as u64 * 3, ..LatencyNs::default() };
        let figures = Figures { ios, iops: ios as f64 / 2.0, latency_ns, ..Figures::default() };
        Group { name: name.into(), op: op.into(), figures }
    }

    fn run(groups: Vec<Group>) -> BenchDocument {
        let mut run = BenchDocument::default();
        run.bench.groups = groups;
        run
    }

    fn value(name: &str, run: &BenchDocument) -> Option<f64> {
        Metric::named(name).expect("a metric").of_run(run)
    }

    #[test]
    fn names_are_those_of_one_metric_each() {
        for (at, metric) in METRICS.iter().enumerate() {
            let others = METRICS.iter().skip(at + 1);
            assert!(others.clone().all(|other| other.name != metric.name), "{}", metric.name);
            assert!(others.clone().all(|other| other.title != metric.title), "{}", metric.title);
        }
    }

    #[test]
    fn groups_of_a_kind_are_taken_together_by_what_they_did() {
        let mut run = run(vec![
            group("a", "read", 30, 100.0),
            group("b", "read", 10, 500.0),
            group("a", "write", 4, 900.0),
            group("c", "read", 0, 7.0),
        ]);
        assert_eq!(value("read_iops", &run), Some(20.0));
        // Over the time of all stages, as the IOPS of all kinds are.
        run.bench.duration_s = 8.0;
        assert_eq!(value("read_iops", &run), Some(5.0));
        assert_eq!(value("read_latency_mean_ns", &run), Some(200.0));
        assert_eq!(value("write_latency_p99_ns", &run), Some(2700.0), "of the only group");
        assert_eq!(value("read_latency_p99_ns", &run), None, "of two, whose times are not known");
        let histogram = |op: &str, what: &str, buckets: &[(u64, u64)]| Histogram {
            name: "a".into(),
            op: op.into(),
            what: what.into(),
            buckets: buckets.into(),
        };
        run.histograms = vec![
            histogram("read", "latency", &[(100, 80), (700, 1)]),
            histogram("read", "latency", &[(200, 18), (600, 1)]),
            histogram("read", "device", &[(1, 10_000)]),
            histogram("write", "latency", &[(1, 10_000)]),
        ];
        assert_eq!(value("read_latency_p99_ns", &run), Some(600.0));
        assert_eq!(value("commit_latency_mean_ns", &run), Some(0.0), "none was made");
        assert_eq!(value("read_iops", &BenchDocument::default()), None, "no groups are told");
    }

    #[test]
    fn a_command_is_compared_by_what_it_printed_and_by_what_its_device_did() {
        let figure = |value, is_time| Some(Figure { value, is_time, unit: String::new() });
        let run = |figure| {
            let mut run = run(vec![group("sdb", "write", 9, 100.0)]);
            run.bench.command_run = Some(CommandRun { figure, ..CommandRun::default() });
            run.bench.figures.latency_ns.mean = 100.0;
            run
        };
        let rate = run(figure(7.0, false));
        assert_eq!((value(FIGURE, &rate), value(FIGURE_NS, &rate)), (Some(7.0), None));
        let time = run(figure(7.0, true));
        assert_eq!((value(FIGURE, &time), value(FIGURE_NS, &time)), (None, Some(7.0)));
        assert_eq!(value("latency_mean_ns", &time), Some(100.0));
        for unknown in [IOPS, "latency_p99_ns", "write_latency_p50_ns", "read_iops", MACHINE_CPU] {
            let metric = Metric::named(unknown);
            assert_eq!(metric.and_then(|metric| metric.of_run(&time)), None, "{unknown}");
        }
    }

    #[test]
    fn one_kind_of_io_is_a_metric_only_where_there_is_another() {
        let is_of = |name: &str, runs: &[BenchDocument]| {
            Metric::named(name).expect("a metric").is_of(runs.iter())
        };
        let reads = [run(vec![group("a", "read", 9, 1.0), group("a", "write", 0, 0.0)])];
        assert!(!is_of("read_iops", &reads) && !is_of("write_iops", &reads));
        assert!(is_of("iops", &reads) && is_of("latency_p99_ns", &reads));
        // One run without a write is a run in which none was done.
        let starved = run(vec![group("a", "read", 9, 1.0)]);
        let mixed = [starved, run(vec![group("a", "read", 9, 1.0), group("a", "write", 9, 1.0)])];
        for name in ["read_iops", "write_iops", "read_latency_mean_ns", "write_latency_p99_ns"] {
            assert!(is_of(name, &mixed), "{name}");
        }
        assert_eq!(value("write_iops", &mixed[0]), Some(0.0));
        assert!(!is_of("commit_latency_mean_ns", &mixed) && !is_of("commits_per_s", &mixed));
        let commits = [run(vec![group("commit", "commit", 9, 1.0)])];
        assert!(is_of("commit_latency_p99_ns", &commits));
    }

    #[test]
    fn a_document_that_does_not_name_its_primary_metric_has_that_of_its_job() {
        let of = |metrics: &[&str]| {
            let found = |metric: &&str| crate::document::Comparison {
                metric: (*metric).into(),
                ..Default::default()
            };
            let comparisons = metrics.iter().map(found).collect();
            String::from(primary(&Compare { comparisons, ..Compare::default() }))
        };
        assert_eq!(of(&[IOPS, COMMITS, CPU]), COMMITS);
        assert_eq!(of(&[CPU, IOPS]), IOPS);
        assert_eq!(of(&["latency_mean_ns", MAKESPAN]), MAKESPAN);
        let named = Compare { metric: CPU.into(), ..Compare::default() };
        assert_eq!(primary(&named), CPU);
    }
}

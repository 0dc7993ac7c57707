//! Differences of known size, put into recorded rounds.

use weir_trace::document::{BenchDocument, Group};
use weir_trace::metric::Metric;

use crate::chance::median;
use crate::saved::Recorded;
use crate::{Drawing, replay};

/// By how much one of the two is off: what is asked about, and what is found in noise too.
const SIZES: [f64; 5] = [0.02, 0.05, 0.10, 0.50, 2.0];

/// One way to be off.
struct Kind {
    name: &'static str,
    /// The metric that shows it.
    metric: &'static str,
    /// Makes a run so by this factor.
    plant: fn(&mut BenchDocument, f64),
}

const KINDS: [Kind; 4] = [
    Kind { name: "IOPS", metric: "iops", plant: iops },
    Kind { name: "read latency", metric: "read_latency_mean_ns", plant: read_latency },
    Kind { name: "CPU", metric: "cpu_ns_per_io", plant: cpu },
    Kind { name: "99th percentile", metric: "latency_p99_ns", plant: p99 },
];

/// The rate of all I/O and those of its kinds; latencies stay.
fn iops(run: &mut BenchDocument, by: f64) {
    run.bench.figures.iops *= by;
    for group in &mut run.bench.groups {
        group.figures.iops *= by;
    }
}

/// Mean and 99th percentile of reads; and the mean of all, as far as reads are part of it.
fn read_latency(run: &mut BenchDocument, by: f64) {
    let is_read = |group: &&mut Group| group.op == "read";
    let (mut added, ios) = (0.0, run.bench.figures.ios);
    for group in run.bench.groups.iter_mut().filter(is_read) {
        let latency = &mut group.figures.latency_ns;
        added += group.figures.ios as f64 * latency.mean * (by - 1.0);
        latency.mean *= by;
        latency.p99 = scaled(latency.p99, by);
    }
    run.bench.figures.latency_ns.mean += added / ios.max(1) as f64;
}

/// CPU time of an I/O.
fn cpu(run: &mut BenchDocument, by: f64) {
    if let Some(ns) = &mut run.bench.cpu.ns_per_io {
        *ns *= by;
    }
}

/// The 99th percentile of all I/O and those of its kinds; means and medians stay.
fn p99(run: &mut BenchDocument, by: f64) {
    let groups = run.bench.groups.iter_mut().map(|group| &mut group.figures);
    for figures in groups.chain([&mut run.bench.figures]) {
        figures.latency_ns.p99 = scaled(figures.latency_ns.p99, by);
    }
}

fn scaled(ns: u64, by: f64) -> u64 {
    (ns as f64 * by).round() as u64
}

/// Tells how often each is found, and after how many rounds.
pub fn table(disks: &[Recorded], drawing: &Drawing, comparisons: u32) -> Result<bool, String> {
    let Drawing { rounds, randseed, .. } = drawing;
    println!(
        "Each cell is of {comparisons} comparisons of {rounds} rounds at most, drawn as by \
         resample; the runs of b are changed. It has how many find the difference by its own \
         metric as the primary one (--metric), after how many rounds in the middle, and how many \
         find it beside the job's own primary metric. --randseed {randseed}\n"
    );
    let sizes = SIZES.map(|size| format!("{:.0} %", size * 100.0));
    println!("| disk | planted in | noise of a round | {} |", sizes.join(" | "));
    println!("|---|---|---|{}", "---|".repeat(SIZES.len()));
    for disk in disks {
        for kind in &KINDS {
            let noise = noise(disk, kind.metric);
            let noise =
                noise.map_or(String::from("–"), |noise| format!("{:.1} %", noise * 100.0));
            let cells: Result<Vec<String>, String> = SIZES
                .map(|size| cell(disk, kind, size, drawing, comparisons))
                .into_iter()
                .collect();
            println!("| {} | {} | {noise} | {} |", disk.name, kind.name, cells?.join(" | "));
        }
    }
    println!(
        "\nThe noise is the standard deviation of the logarithm of the ratio of the two runs of a \
         round."
    );
    Ok(true)
}

/// How often one kind of this size is found.
fn cell(
    disk: &Recorded,
    kind: &Kind,
    size: f64,
    drawing: &Drawing,
    comparisons: u32,
) -> Result<String, String> {
    let plant = |run: &mut BenchDocument| (kind.plant)(run, 1.0 + size);
    let metric = Some(kind.metric);
    let found = |chosen| {
        let made = replay::stopping(disk, drawing, comparisons, [chosen, metric], &plant)?;
        let found = made.iter().filter(|one| one.is_found).map(|one| one.rounds);
        Ok::<Vec<u32>, String>(found.collect())
    };
    let (asked, unasked) = (found(metric)?, found(None)?);
    let after = median(&asked).map(|rounds| format!(" after {rounds}")).unwrap_or_default();
    Ok(format!("{}{after}; {}", asked.len(), unasked.len()))
}

/// The standard deviation of the logarithm of the ratio of a round's runs.
fn noise(disk: &Recorded, metric: &str) -> Option<f64> {
    let metric = Metric::named(metric)?;
    let value = |run: &BenchDocument| metric.of_run(run).filter(|value| *value > 0.0);
    // A run that did nothing has no value.
    let log = |[one, other]: &[BenchDocument; 2]| Some((value(other)? / value(one)?).ln());
    let logs: Vec<f64> = disk.rounds.iter().filter_map(log).collect();
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    (logs.len() > 1).then(|| (squares / (logs.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::document::Figures;
    use weir_trace::metric::METRICS;

    fn run() -> BenchDocument {
        let group = |op: &str, ios: u64, mean: f64| {
            let mut figures = Figures { ios, iops: ios as f64, ..Figures::default() };
            (figures.latency_ns.mean, figures.latency_ns.p99) = (mean, 5000);
            Group { name: "x".into(), op: op.into(), figures }
        };
        let mut run = BenchDocument::default();
        run.bench.groups = vec![group("read", 300, 1000.0), group("write", 100, 2000.0)];
        run.bench.figures = Figures { ios: 400, iops: 400.0, ..Figures::default() };
        run.bench.figures.latency_ns.mean = 1250.0;
        run.bench.figures.latency_ns.p99 = 5000;
        run.bench.cpu.ns_per_io = Some(500.0);
        run
    }

    #[test]
    fn what_is_planted_is_in_its_metrics_and_in_no_other() {
        let own = |kind: &Kind| {
            let (before, mut after) = (run(), run());
            (kind.plant)(&mut after, 1.1);
            let changed = METRICS.iter().filter_map(|metric| {
                let [before, after] = [&before, &after].map(|run| metric.of_run(run));
                (before != after).then(|| (metric.name, after.unwrap() / before.unwrap()))
            });
            changed.collect::<Vec<_>>()
        };
        let names = |kind: &Kind| own(kind).iter().map(|one| one.0).collect::<Vec<_>>();
        assert_eq!(names(&KINDS[0]), ["iops", "read_iops", "write_iops"]);
        let reads = ["latency_mean_ns", "read_latency_mean_ns", "read_latency_p99_ns"];
        assert_eq!(names(&KINDS[1]), reads);
        assert_eq!(names(&KINDS[2]), ["cpu_ns_per_io"]);
        let tails = ["latency_p99_ns", "read_latency_p99_ns", "write_latency_p99_ns"];
        assert_eq!(names(&KINDS[3]), tails);
        for kind in &KINDS {
            let by = own(kind).into_iter().find(|one| one.0 == kind.metric).expect("its own").1;
            assert!((by - 1.1).abs() < 1e-9, "{}: {by}", kind.name);
        }
        // Reads are three of four, and 60 % of the time.
        let of_all = own(&KINDS[1])[0].1;
        assert!((of_all - 1.06).abs() < 1e-9, "{of_all}");
    }
}

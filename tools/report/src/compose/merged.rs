//! Figures of several runs put together.

use std::collections::BTreeMap;

use crate::chart::Curve;
use weir_trace::document::{Bench, BenchDocument, LatencyNs};

/// The mean of what each run says; none without a run.
pub(crate) fn mean<'a>(
    runs: impl IntoIterator<Item = &'a Bench>,
    of: impl Fn(&Bench) -> Option<f64>,
) -> Option<f64> {
    let values: Vec<f64> = runs.into_iter().filter_map(of).filter(|v| v.is_finite()).collect();
    match values.len() {
        0 => None,
        count => Some(values.iter().sum::<f64>() / count as f64),
    }
}

/// The shares of I/Os over their latency: of the runs' histograms together, and where there are
/// none, of the percentiles in their figures.
pub(crate) fn curve(label: &str, group: (&str, &str), runs: &[&BenchDocument]) -> Curve {
    // Wide enough for any number of the largest counts a file can have.
    let mut counts: BTreeMap<u64, u128> = BTreeMap::new();
    for run in runs {
        let wanted = run.histograms.iter().filter(|histogram| {
            (histogram.name.as_str(), histogram.op.as_str()) == group && histogram.what == "latency"
        });
        for (bound, count) in wanted.flat_map(|histogram| &histogram.buckets) {
            *counts.entry(*bound).or_default() += u128::from(*count);
        }
    }
    Curve { label: String::from(label), quantiles: shares(&counts) }
}

fn shares(counts: &BTreeMap<u64, u128>) -> Vec<(f64, f64)> {
    let total: u128 = counts.values().sum();
    let mut seen = 0;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (bound, count) in counts.iter().filter(|(_, count)| **count > 0) {
        // Below the first bound there is nothing: the curve begins at it.
        if points.is_empty() {
            points.push((0.0, *bound as f64));
        }
        seen += count;
        points.push((seen as f64 / total as f64, *bound as f64));
    }
    // The slowest is one I/O in all of them: what lies behind its nine is not known.
    if let Some(last) = points.last_mut().filter(|_| total > 1) {
        last.0 = 1.0 - 1.0 / total as f64;
    }
    // A single last I/O makes two points of one share; the slower stands.
    points.dedup_by(|later, earlier| {
        later.0 <= earlier.0 && {
            earlier.1 = later.1.max(earlier.1);
            true
        }
    });
    points
}

/// A curve through the percentiles of figures.
pub(crate) fn percentile_curve(label: &str, figures: &[LatencyNs]) -> Curve {
    let mean = |of: fn(&LatencyNs) -> u64| {
        figures.iter().map(|latency| of(latency) as f64).sum::<f64>() / figures.len() as f64
    };
    let known = figures.iter().any(|latency| latency.max > 0);
    let quantiles = match known {
        false => Vec::new(),
        true => vec![
            (0.5, mean(|latency| latency.p50)),
            (0.9, mean(|latency| latency.p90)),
            (0.95, mean(|latency| latency.p95)),
            (0.99, mean(|latency| latency.p99)),
            (0.999, mean(|latency| latency.p999)),
        ],
    };
    Curve { label: String::from(label), quantiles }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::document::Histogram;

    #[test]
    fn histograms_of_runs_are_added_and_end_where_the_slowest_io_is() {
        let run = |buckets: &[(u64, u64)]| BenchDocument {
            histograms: vec![Histogram {
                name: "all".into(),
                op: "all".into(),
                what: "latency".into(),
                buckets: buckets.into(),
            }],
            ..BenchDocument::default()
        };
        let runs = [run(&[(10, 50), (100, 40)]), run(&[(100, 9), (1000, 1)])];
        let found = curve("x", ("all", "all"), &runs.iter().collect::<Vec<_>>());
        assert_eq!(found.quantiles, [(0.0, 10.0), (0.5, 10.0), (0.99, 1000.0)]);
        assert_eq!(curve("x", ("read", "read"), &[]).quantiles, []);
        let huge = [run(&[(10, u64::MAX), (20, u64::MAX)]), run(&[(10, u64::MAX)])];
        let found = curve("x", ("all", "all"), &huge.iter().collect::<Vec<_>>());
        assert!((found.quantiles[1].0 - 2.0 / 3.0).abs() < 1e-9, "{found:?}");
        let one = run(&[(10, 1)]);
        assert_eq!(curve("x", ("all", "all"), &[&one]).quantiles, [(0.0, 10.0), (1.0, 10.0)]);
    }

    #[test]
    fn a_mean_passes_over_what_is_no_number() {
        let runs = [1.0, f64::NAN, 3.0].map(|iops| {
            let mut bench = Bench::default();
            bench.figures.iops = iops;
            bench
        });
        assert_eq!(mean(&runs, |bench| Some(bench.figures.iops)), Some(2.0));
        assert_eq!(mean(&[], |bench| Some(bench.figures.iops)), None);
    }
}

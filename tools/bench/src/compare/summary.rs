//! From runs to figures, differences and verdicts.

use weir_trace::document::{
    BenchDocument, Compare, CompareEnvironment, Comparison, Estimate, Run, Variant,
};

use super::interval::{SHOWN, VERDICT, detectable, mean, paired, student};

/// What is compared.
pub(super) struct Metric {
    /// Its name in documents.
    pub(super) name: &'static str,
    /// Its name in tables.
    pub(super) title: &'static str,
    /// Whether more of it is faster.
    more_is_faster: bool,
    /// Its value in a run.
    of: fn(&BenchDocument) -> Option<f64>,
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "iops",
        title: "I/Os a second",
        more_is_faster: true,
        of: |run| Some(run.bench.figures.iops),
    },
    Metric {
        name: "latency_mean_ns",
        title: "latency, mean",
        more_is_faster: false,
        of: |run| Some(run.bench.figures.latency_ns.mean),
    },
    Metric {
        name: "latency_p50_ns",
        title: "latency, p50",
        more_is_faster: false,
        of: |run| Some(run.bench.figures.latency_ns.p50 as f64),
    },
    Metric {
        name: "latency_p99_ns",
        title: "latency, p99",
        more_is_faster: false,
        of: |run| Some(run.bench.figures.latency_ns.p99 as f64),
    },
    Metric {
        name: "cpu_ns_per_io",
        title: "CPU per I/O",
        more_is_faster: false,
        of: |run| run.bench.cpu.ns_per_io,
    },
    Metric {
        name: "commits_per_s",
        title: "commits a second",
        more_is_faster: true,
        of: |run| Some(run.bench.transactions?.commits_per_s),
    },
    Metric {
        name: MAKESPAN,
        title: "time to finish",
        more_is_faster: false,
        of: |run| Some(run.bench.makespan_ns? as f64),
    },
];

const MAKESPAN: &str = "makespan_ns";
/// What is the time to finish once more where the work was done: so many I/Os over that time.
const RESTATES_MAKESPAN: &str = "iops";

/// A value that can be averaged and divided by.
fn value(metric: &Metric, run: &Run) -> Option<f64> {
    (metric.of)(&run.document).filter(|value| value.is_finite() && *value > 0.0)
}

/// Whether a run counts.
pub(super) fn counts(run: &Run) -> bool {
    run.voided.is_none()
}

/// The document of a comparison. `variants` are names and what sets each apart.
#[must_use]
pub fn summary(
    variants: &[(String, serde_json::Value)],
    runs: &[Run],
    environment: CompareEnvironment,
) -> Compare {
    let names: Vec<&str> = variants.iter().map(|(name, _)| name.as_str()).collect();
    let described = variants.iter().map(|(name, options)| variant(name, options, &names, runs));
    let mut counted = runs.iter().filter(|run| counts(run)).peekable();
    let all_finished =
        counted.peek().is_some() && counted.all(|run| run.document.bench.makespan_ns.is_some());
    let compared = |metric: &&Metric| !(all_finished && metric.name == RESTATES_MAKESPAN);
    let mut comparisons = Vec::new();
    for (position, (a, _)) in variants.iter().enumerate() {
        for (b, _) in &variants[position + 1..] {
            let metrics = METRICS.iter().filter(compared);
            comparisons.extend(metrics.filter_map(|metric| compare(metric, [a, b], &names, runs)));
        }
    }
    Compare { variants: described.collect(), comparisons, environment }
}

/// What a variant has in a round, if that counts.
fn of_round(metric: &Metric, name: &str, round: u32, runs: &[Run]) -> Option<f64> {
    let found = |run: &&Run| run.variant == name && run.round == round && counts(run);
    runs.iter().find(found).and_then(|run| value(metric, run))
}

/// The rounds in which every variant has the metric that has it at all. A round that lacks one is
/// left out for all: so means, ratios and intervals are of the same rounds, whichever two of many
/// variants are looked at.
fn whole_rounds(metric: &Metric, names: &[&str], runs: &[Run]) -> Vec<u32> {
    let last = runs.iter().map(|run| run.round).max().unwrap_or_default();
    let has = |name: &str, round: u32| of_round(metric, name, round, runs).is_some();
    let known: Vec<_> =
        names.iter().filter(|name| (1..=last).any(|round| has(name, round))).collect();
    if known.len() < 2 {
        return Vec::new();
    }
    (1..=last).filter(|round| known.iter().all(|name| has(name, *round))).collect()
}

fn variant(name: &str, options: &serde_json::Value, names: &[&str], runs: &[Run]) -> Variant {
    let own: Vec<&Run> = runs.iter().filter(|run| run.variant == name && counts(run)).collect();
    let estimate = |metric: &str| {
        let metric = METRICS.iter().find(|known| known.name == metric)?;
        let whole = whole_rounds(metric, names, runs).into_iter();
        let mut values: Vec<f64> =
            whole.filter_map(|round| of_round(metric, name, round, runs)).collect();
        if values.is_empty() {
            // One that ended before any round was whole has means all the same, and no verdict.
            values = own.iter().filter_map(|run| value(metric, run)).collect();
        }
        let some = !values.is_empty();
        some.then(|| Estimate { mean: mean(&values), ci95: student(&values, SHOWN), ci99: None })
    };
    let known = |metric| estimate(metric).unwrap_or_default();
    Variant {
        name: String::from(name),
        options: options.clone(),
        rounds: own.iter().map(|run| run.document.bench.clone()).collect(),
        iops: known("iops"),
        latency_mean_ns: known("latency_mean_ns"),
        latency_p50_ns: estimate("latency_p50_ns"),
        latency_p99_ns: known("latency_p99_ns"),
        cpu_ns_per_io: known("cpu_ns_per_io"),
        commits_per_s: estimate("commits_per_s"),
        makespan_ns: estimate(MAKESPAN),
    }
}

/// The logarithm of b over a in each whole round; `None` if nobody has the metric.
fn compare(metric: &Metric, [a, b]: [&str; 2], names: &[&str], runs: &[Run]) -> Option<Comparison> {
    if !runs.iter().any(|run| (metric.of)(&run.document).is_some()) {
        return None;
    }
    let of = |name: &str, round: u32| of_round(metric, name, round, runs);
    let whole = whole_rounds(metric, names, runs).into_iter();
    let logs: Vec<f64> =
        whole.filter_map(|round| Some((of(b, round)? / of(a, round)?).ln())).collect();
    let ratio = |log: f64| log.exp();
    let deciding = paired(&logs, VERDICT);
    let verdict = match deciding {
        Some([low, _]) if low > 0.0 => Some(metric.more_is_faster),
        Some([_, high]) if high < 0.0 => Some(!metric.more_is_faster),
        _ => None,
    };
    Some(Comparison {
        a: String::from(a),
        b: String::from(b),
        metric: String::from(metric.name),
        ratio: (!logs.is_empty()).then(|| ratio(mean(&logs))),
        ci95: paired(&logs, SHOWN).map(|ends| ends.map(ratio)),
        ci99: deciding.map(|ends| ends.map(ratio)),
        min_detectable_effect: detectable(&logs).map(|log| log.exp() - 1.0),
        verdict: match verdict {
            Some(true) => format!("{b} is faster"),
            Some(false) => format!("{b} is slower"),
            None => String::from(SAME),
        },
    })
}

/// The verdict where nothing can be told apart.
const SAME: &str = "no detectable difference";

/// Whether a comparison found a difference.
#[must_use]
pub fn differs(comparison: &Comparison) -> bool {
    comparison.verdict != SAME
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run of so many I/Os a second; latency is their inverse.
    pub(crate) fn run(variant: &str, round: u32, iops: f64) -> Run {
        let mut run = Run { variant: String::from(variant), round, ..Run::default() };
        let bench = &mut run.document.bench;
        bench.figures.iops = iops;
        bench.figures.latency_ns.mean = 1e9 / iops;
        bench.figures.latency_ns.p50 = (1e9 / iops) as u64;
        bench.cpu.ns_per_io = Some(500.0);
        run
    }

    fn two(runs: &[Run]) -> Compare {
        let variants = ["a", "b"].map(|name| (String::from(name), serde_json::json!({})));
        summary(&variants, runs, CompareEnvironment::default())
    }

    fn of<'a>(compare: &'a Compare, metric: &str) -> &'a Comparison {
        compare.comparisons.iter().find(|found| found.metric == metric).expect("a metric")
    }

    #[test]
    fn what_is_slower_in_every_round_is_slower_by_throughput_and_by_latency() {
        let runs: Vec<Run> = (1..=10)
            .flat_map(|n| {
                let drift = 1000.0 * f64::from(n);
                [run("a", n, drift), run("b", n, drift * 0.95 * (1.0 + f64::from(n % 3) * 0.001))]
            })
            .collect();
        let compare = two(&runs);
        let iops = of(&compare, "iops");
        assert_eq!(iops.verdict, "b is slower");
        assert!((iops.ratio.expect("a ratio") - 0.951).abs() < 0.001, "{iops:?}");
        let [low, high] = iops.ci99.expect("an interval");
        assert!(low < 0.951 && 0.951 < high && high < 0.96, "{iops:?}");
        assert!(iops.min_detectable_effect.is_some_and(|least| least < 0.01), "{iops:?}");
        assert_eq!(of(&compare, "latency_mean_ns").verdict, "b is slower");
        assert_eq!(of(&compare, "cpu_ns_per_io").verdict, SAME);
        assert_eq!(of(&compare, "latency_p99_ns").ratio, None, "nothing was measured");
        assert!(!compare.comparisons.iter().any(|found| found.metric == "commits_per_s"));
        assert_eq!(compare.variants[0].rounds.len(), 10);
        assert_eq!(compare.variants[0].iops.mean, 5500.0);
    }

    #[test]
    fn a_voided_run_and_its_partner_are_left_out_of_the_difference() {
        let mut runs: Vec<Run> = (1..=9)
            .flat_map(|n| [run("a", n, 1000.0 + f64::from(n)), run("b", n, 1000.0)])
            .collect();
        runs.push(run("a", 10, 10.0));
        runs.push(Run { voided: Some(String::from("disturbed")), ..run("b", 10, 1e9) });
        let compare = two(&runs);
        assert!(of(&compare, "iops").ratio.is_some_and(|ratio| (0.99..1.0).contains(&ratio)));
        assert_eq!((compare.variants[0].rounds.len(), compare.variants[1].rounds.len()), (10, 9));
        // The tenth of a, without a partner, would make b look faster.
        assert_eq!(
            compare.variants.iter().map(|v| v.iops.mean).collect::<Vec<_>>(),
            [1005.0, 1000.0]
        );
    }

    #[test]
    fn a_single_round_has_a_ratio_and_no_verdict() {
        let compare = two(&[run("a", 1, 1000.0), run("b", 1, 1000.0)]);
        let iops = of(&compare, "iops");
        assert_eq!((iops.ratio, iops.ci95), (Some(1.0), None));
        assert_eq!((iops.min_detectable_effect, iops.verdict.as_str()), (None, SAME));
    }

    fn three(runs: &[Run]) -> Compare {
        let variants = ["a", "b", "c"].map(|name| (String::from(name), serde_json::json!({})));
        summary(&variants, runs, CompareEnvironment::default())
    }

    #[test]
    fn of_three_variants_means_and_ratios_are_of_the_same_rounds() {
        let mut runs: Vec<Run> =
            (1..=9).flat_map(|n| ["a", "b", "c"].map(|name| run(name, n, 1000.0))).collect();
        // The tenth of c was voided: a and b are paired in it, a and c are not.
        runs.extend([run("a", 10, 2000.0), run("b", 10, 4000.0)]);
        runs.push(Run { voided: Some(String::from("disturbed")), ..run("c", 10, 1.0) });
        let compare = three(&runs);
        for found in compare.comparisons.iter().filter(|found| found.metric == "iops") {
            let mean = |name: &str| {
                compare.variants.iter().find(|v| v.name == name).expect("a variant").iops.mean
            };
            let ratio = found.ratio.expect("a ratio");
            let of_means = mean(&found.b) / mean(&found.a);
            assert!((ratio - of_means).abs() < 1e-9, "{ratio} and {of_means}: {found:?}");
        }
        // One that never counts takes no rounds from the others.
        let absent = |run: &mut Run| run.voided = Some(String::from("failed"));
        runs.iter_mut().filter(|run| run.variant == "c").for_each(absent);
        let compare = three(&runs);
        assert_eq!(compare.variants[1].iops.mean, 1300.0);
        assert!(of(&compare, "iops").ratio.is_some_and(|ratio| ratio > 1.05));
    }

    #[test]
    fn work_that_ends_is_compared_by_the_time_it_took_and_by_its_throughput_not_again() {
        let done = |name: &str, round: u32, ms: u64| {
            let mut run = run(name, round, 1e6 / ms as f64);
            run.document.bench.makespan_ns = Some(ms * 1_000_000);
            run
        };
        let mut runs: Vec<Run> = (1..=10)
            .flat_map(|n| [done("a", n, 1000), done("b", n, 1200 + u64::from(n % 3))])
            .collect();
        let compare = two(&runs);
        assert_eq!(of(&compare, MAKESPAN).verdict, "b is slower");
        assert!(!compare.comparisons.iter().any(|found| found.metric == "iops"));
        assert_eq!(compare.variants[0].iops.mean, 1000.0, "it is shown all the same");
        assert_eq!(compare.variants[0].makespan_ns.map(|e| e.mean), Some(1e9));
        // Where time was up first for one, throughput is what there is to be compared.
        runs[7].document.bench.makespan_ns = None;
        let compare = two(&runs);
        assert_eq!(of(&compare, "iops").verdict, "b is slower");
        assert_eq!(compare.variants[0].makespan_ns.map(|e| e.mean), Some(1e9));
    }

    #[test]
    fn every_pair_of_three_is_compared() {
        let runs: Vec<Run> = ["a", "b", "c"]
            .iter()
            .flat_map(|name| [run(name, 1, 7.0), run(name, 2, 7.0)])
            .collect();
        let compare = three(&runs);
        let pairs: Vec<_> = compare.comparisons.iter().filter(|c| c.metric == "iops").collect();
        let pairs: Vec<_> = pairs.iter().map(|c| (c.a.as_str(), c.b.as_str())).collect();
        assert_eq!(pairs, [("a", "b"), ("a", "c"), ("b", "c")]);
    }
}

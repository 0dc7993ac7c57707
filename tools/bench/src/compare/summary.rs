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
];

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
    let described = variants.iter().map(|(name, options)| variant(name, options, runs));
    let mut comparisons = Vec::new();
    for (position, (a, _)) in variants.iter().enumerate() {
        for (b, _) in &variants[position + 1..] {
            comparisons.extend(METRICS.iter().filter_map(|metric| compare(metric, a, b, runs)));
        }
    }
    Compare { variants: described.collect(), comparisons, environment }
}

/// Whether another variant has a run that counts in the same round: what has none is in no
/// difference, and in a mean it would make that say another thing than the verdict.
fn is_paired(run: &Run, runs: &[Run]) -> bool {
    runs.iter()
        .any(|other| other.round == run.round && other.variant != run.variant && counts(other))
}

fn variant(name: &str, options: &serde_json::Value, runs: &[Run]) -> Variant {
    let own: Vec<&Run> = runs.iter().filter(|run| run.variant == name && counts(run)).collect();
    let paired: Vec<&Run> = own.iter().copied().filter(|run| is_paired(run, runs)).collect();
    // A comparison that ended before any pair was whole has means all the same, and no verdict.
    let averaged = if paired.is_empty() { &own } else { &paired };
    let estimate = |metric: &str| {
        let metric = METRICS.iter().find(|known| known.name == metric)?;
        let values: Vec<f64> = averaged.iter().filter_map(|run| value(metric, run)).collect();
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
    }
}

/// The logarithm of b over a in each round in which both count; `None` if neither has the metric.
fn compare(metric: &Metric, a: &str, b: &str, runs: &[Run]) -> Option<Comparison> {
    let of = |name: &str, round: u32| {
        let found = |run: &&Run| run.variant == name && run.round == round && counts(run);
        runs.iter().find(found).and_then(|run| value(metric, run))
    };
    if !runs.iter().any(|run| (metric.of)(&run.document).is_some()) {
        return None;
    }
    let last = runs.iter().map(|run| run.round).max().unwrap_or_default();
    let logs: Vec<f64> =
        (1..=last).filter_map(|round| Some((of(b, round)? / of(a, round)?).ln())).collect();
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

    #[test]
    fn every_pair_of_three_is_compared() {
        let runs: Vec<Run> = ["a", "b", "c"]
            .iter()
            .flat_map(|name| [run(name, 1, 7.0), run(name, 2, 7.0)])
            .collect();
        let variants = ["a", "b", "c"].map(|name| (String::from(name), serde_json::json!({})));
        let compare = summary(&variants, &runs, CompareEnvironment::default());
        let pairs: Vec<_> = compare.comparisons.iter().filter(|c| c.metric == "iops").collect();
        let pairs: Vec<_> = pairs.iter().map(|c| (c.a.as_str(), c.b.as_str())).collect();
        assert_eq!(pairs, [("a", "b"), ("a", "c"), ("b", "c")]);
    }
}

//! From runs to figures, differences and verdicts.

use weir_trace::document::{
    BenchDocument, Compare, CompareEnvironment, Comparison, Estimate, Run, Variant,
};

use super::interval::{SHOWN, VERDICT, detectable, mean, paired, student};

/// A metric that is compared.
pub(super) struct Metric {
    /// Its name in documents.
    pub(super) name: &'static str,
    /// Its name in tables.
    pub(super) title: &'static str,
    /// Whether more of it is faster.
    more_is_faster: bool,
    /// Its value in a run.
    of: fn(&BenchDocument) -> Option<f64>,
    /// The work that a run without any of it did not do; none where nothing of it is no result.
    undone: Option<&'static str>,
    /// Whether it comes out of a histogram, which knows it to within a bucket.
    is_bucket: bool,
}

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "iops",
        title: "I/Os a second",
        more_is_faster: true,
        of: |run| Some(run.bench.figures.iops),
        undone: Some("I/O"),
        is_bucket: false,
    },
    Metric {
        name: "latency_mean_ns",
        title: "latency, mean",
        more_is_faster: false,
        of: |run| Some(run.bench.figures.latency_ns.mean),
        undone: None,
        is_bucket: false,
    },
    Metric {
        name: "latency_p50_ns",
        title: "latency, p50",
        more_is_faster: false,
        of: |run| Some(run.bench.figures.latency_ns.p50 as f64),
        undone: None,
        is_bucket: true,
    },
    Metric {
        name: "latency_p99_ns",
        title: "latency, p99",
        more_is_faster: false,
        of: |run| Some(run.bench.figures.latency_ns.p99 as f64),
        undone: None,
        is_bucket: true,
    },
    Metric {
        name: "cpu_ns_per_io",
        title: "CPU per I/O",
        more_is_faster: false,
        of: |run| run.bench.cpu.ns_per_io,
        undone: None,
        is_bucket: false,
    },
    Metric {
        name: "commits_per_s",
        title: "commits a second",
        more_is_faster: true,
        of: |run| Some(run.bench.transactions?.commits_per_s),
        undone: Some("commit"),
        is_bucket: false,
    },
    Metric {
        name: MAKESPAN,
        title: "time to finish",
        more_is_faster: false,
        of: |run| Some(run.bench.makespan_ns? as f64),
        undone: None,
        is_bucket: false,
    },
];

const MAKESPAN: &str = "makespan_ns";
/// The metric that restates the time to finish: so many I/Os over that time.
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

/// The value of a variant in a round, if that counts.
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

/// How far a value of this size may be off for having been read from a histogram, as a part of it:
/// the width of its bucket. Two digits are kept, in 128 buckets or more for each power of two.
fn bucket(value: f64) -> f64 {
    let scale = (value.max(1.0).log2().floor() as i32 - BUCKETS_LOG2).max(0);
    2_f64.powi(scale) / value
}

/// Between 128 and 256 buckets for each power of two, as many as two digits take.
const BUCKETS_LOG2: i32 = 7;

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
        if values.is_empty() {
            return None;
        }
        let mean = mean(&values);
        // Half a bucket to each side: the mean is known no better than the values.
        let half = if metric.is_bucket { bucket(mean) * mean / 2.0 } else { 0.0 };
        let ci95 = student(&values, SHOWN).map(|[low, high]| [low - half, high + half]);
        Some(Estimate { mean, ci95: ci95.filter(is_finite), ci99: None })
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

/// The values of two variants in the rounds that count for both.
struct Paired {
    /// The logarithm of b over a in each.
    logs: Vec<f64>,
    /// How far all of them may be off to either side, for what they were read from.
    margin: f64,
}

impl Paired {
    fn of(metric: &Metric, [a, b]: [&str; 2], names: &[&str], runs: &[Run]) -> Paired {
        let of = |name: &str, round: u32| of_round(metric, name, round, runs);
        let whole = whole_rounds(metric, names, runs).into_iter();
        let values: Vec<(f64, f64)> =
            whole.filter_map(|round| Some((of(a, round)?, of(b, round)?))).collect();
        let logs = values.iter().map(|(a, b)| (b / a).ln()).collect();
        // Half a bucket for each of the two, of the wider: so a jump by one is no difference.
        let width = |(a, b): &(f64, f64)| {
            let bucket = (bucket(*a) * a).max(bucket(*b) * b);
            (bucket / a + bucket / b) / 2.0
        };
        let widths: Vec<f64> = values.iter().map(width).collect();
        let known = !metric.is_bucket || widths.is_empty();
        Paired { logs, margin: if known { 0.0 } else { mean(&widths) } }
    }

    /// The interval of the ratio; none from so few rounds that it would say nothing.
    fn interval(&self, level: f64) -> Option<[f64; 2]> {
        let enough = self.logs.len() >= PAIRS_LEAST;
        let [low, high] = paired(&self.logs, level).filter(|_| enough)?;
        Some([(low - self.margin).exp(), (high + self.margin).exp()]).filter(is_finite)
    }
}

/// From two rounds Student's 99 % interval is 64 standard errors wide to each side.
const PAIRS_LEAST: usize = 3;

fn is_finite(interval: &[f64; 2]) -> bool {
    interval.iter().all(|end| end.is_finite())
}

/// Why a metric of two variants has no verdict although rounds count: one of them did nothing in
/// some, and the others would be its best alone.
fn undone(metric: &Metric, pair: [&str; 2], runs: &[Run]) -> Option<String> {
    let metrics = [&METRICS[0], metric];
    let what = metrics.iter().filter_map(|metric| Some((metric.of, metric.undone?)));
    what.flat_map(|(of, what)| pair.map(|name| (of, what, name))).find_map(|(of, what, name)| {
        let own = || runs.iter().filter(|run| run.variant == name && counts(run));
        let none = own().filter(|run| of(&run.document) == Some(0.0)).count();
        (none > 0).then(|| format!("{name} did no {what} in {none} of {} rounds", own().count()))
    })
}

/// The comparison of one metric of two variants; `None` if neither has it.
fn compare(metric: &Metric, [a, b]: [&str; 2], names: &[&str], runs: &[Run]) -> Option<Comparison> {
    if !runs.iter().any(|run| (metric.of)(&run.document).is_some()) {
        return None;
    }
    let mut found = Comparison {
        a: String::from(a),
        b: String::from(b),
        metric: String::from(metric.name),
        ..Comparison::default()
    };
    if let Some(why) = undone(metric, [a, b], runs) {
        found.verdict = format!("{NOT_COMPARED}: {why}");
        return Some(found);
    }
    let pairs = Paired::of(metric, [a, b], names, runs);
    let ratio = (!pairs.logs.is_empty()).then(|| mean(&pairs.logs).exp());
    found.ratio = ratio.filter(|ratio| ratio.is_finite());
    found.ci99 = pairs.interval(VERDICT);
    found.verdict = match found.ci99 {
        Some([low, _]) if low > 1.0 => says(b, metric.more_is_faster),
        Some([_, high]) if high < 1.0 => says(b, !metric.more_is_faster),
        Some(_) => String::from(SAME),
        None => {
            let made = runs.iter().map(|run| run.round).max().unwrap_or_default();
            let count = pairs.logs.len();
            format!("{NOT_COMPARED}: too few rounds count ({count} of {made})")
        }
    };
    if found.ci99.is_some() {
        found.ci95 = pairs.interval(SHOWN);
        let least = detectable(&pairs.logs).map(|log| (log + pairs.margin).exp() - 1.0);
        found.min_detectable_effect = least.filter(|least| least.is_finite());
    }
    Some(found)
}

fn says(b: &str, is_faster: bool) -> String {
    format!("{b} is {}", if is_faster { "faster" } else { "slower" })
}

/// The verdict where nothing can be told apart.
const SAME: &str = "no detectable difference";
/// How it begins where nothing decides; why not follows.
const NOT_COMPARED: &str = "not compared";

/// Whether a comparison found a difference.
#[must_use]
pub fn differs(comparison: &Comparison) -> bool {
    is_decided(comparison) && comparison.verdict != SAME
}

/// Whether there is a verdict.
#[must_use]
pub fn is_decided(comparison: &Comparison) -> bool {
    comparison.ci99.is_some()
}

/// The two variants that a comparison is of.
fn pair(comparison: &Comparison) -> (&str, &str) {
    (&comparison.a, &comparison.b)
}

/// Why two variants were compared in nothing at all, for the first two of which that is so.
#[must_use]
pub fn undecided(compare: &Compare) -> Option<String> {
    let decided: Vec<(&str, &str)> =
        compare.comparisons.iter().filter(|c| is_decided(c)).map(pair).collect();
    let found = compare.comparisons.iter().find(|found| !decided.contains(&pair(found)));
    found.map(|found| format!("{} and {}: {}", found.a, found.b, found.verdict))
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
        assert!(!is_decided(of(&compare, "latency_p99_ns")));
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
    fn without_an_interval_nothing_is_compared_and_the_rounds_that_count_are_told() {
        let compare = two(&[run("a", 1, 1000.0), run("b", 1, 4000.0)]);
        let iops = of(&compare, "iops");
        assert_eq!((iops.ratio, iops.ci95, iops.ci99), (Some(4.0), None, None));
        let told = "not compared: too few rounds count (1 of 1)";
        assert_eq!((iops.min_detectable_effect, iops.verdict.as_str()), (None, told));
        assert!(!differs(iops));
        let voided = Run { voided: Some(String::from("disturbed")), ..run("b", 1, 4000.0) };
        let compare = two(&[run("a", 1, 1000.0), voided]);
        let told = "not compared: too few rounds count (0 of 1)";
        assert_eq!(of(&compare, "iops").verdict, told);
        assert_eq!(undecided(&compare), Some(format!("a and b: {told}")));
        // Two rounds that are far apart would have an interval from nothing to everything.
        let few = [(1, 1000.0), (2, 3000.0)];
        let few: Vec<Run> =
            few.iter().flat_map(|(n, iops)| [run("a", *n, 1e3), run("b", *n, *iops)]).collect();
        assert_eq!(of(&two(&few), "iops").ci99, None);
        assert_eq!(of(&two(&few), "iops").verdict, "not compared: too few rounds count (2 of 2)");
        let third = [few.as_slice(), &[run("a", 3, 1e3), run("b", 3, 2e3)]].concat();
        assert_eq!(of(&two(&third), "iops").verdict, SAME);
        assert_eq!(undecided(&two(&third)), None);
    }

    #[test]
    fn a_variant_that_did_nothing_in_some_rounds_is_not_judged_by_the_others() {
        let mut runs: Vec<Run> = (1..=10)
            .flat_map(|n| [run("a", n, 1000.0), run("b", n, 2000.0 + f64::from(n))])
            .collect();
        for starved in [3, 9, 15] {
            runs[starved].document.bench.figures.iops = 0.0;
        }
        let compare = two(&runs);
        for metric in ["iops", "latency_mean_ns", "cpu_ns_per_io"] {
            let found = of(&compare, metric);
            assert_eq!(found.verdict, "not compared: b did no I/O in 3 of 10 rounds");
            assert_eq!((found.ratio, found.ci99), (None, None));
        }
        assert!(undecided(&compare).is_some_and(|why| why.contains("b did no I/O")));
    }

    #[test]
    fn a_jump_of_a_percentile_by_one_bucket_of_its_histogram_is_no_difference() {
        let compared = |before: u64, after: u64| {
            let runs: Vec<Run> = (1..=10)
                .flat_map(|n| {
                    let [mut a, mut b] = ["a", "b"].map(|name| run(name, n, 1000.0));
                    a.document.bench.figures.latency_ns.p50 = before;
                    b.document.bench.figures.latency_ns.p50 = after;
                    [a, b]
                })
                .collect();
            let compare = two(&runs);
            let widths = compare.variants.iter().map(|variant| {
                let p50 = variant.latency_p50_ns.expect("it was measured");
                let [low, high] = p50.ci95.expect("ten rounds");
                (high - low) / p50.mean
            });
            assert!(widths.clone().all(|width| (0.003..0.02).contains(&width)), "{before}");
            of(&compare, "latency_p50_ns").clone()
        };
        // Upper bounds of neighbouring buckets: of 2048 ns, and where their width doubles.
        for [before, after] in [[313_343, 315_391], [262_143, 264_191], [524_287, 528_383]] {
            for (before, after) in [(before, after), (after, before)] {
                let found = compared(before, after);
                assert_eq!(found.verdict, SAME, "{before} {after}: {found:?}");
                assert!(found.min_detectable_effect.is_some_and(|least| least > 0.003));
            }
        }
        assert_eq!(compared(313_343, 317_439).verdict, "b is slower", "by two");
    }

    #[test]
    fn an_interval_beyond_all_numbers_is_left_out() {
        let runs: Vec<Run> = (1..=4)
            .flat_map(|n| {
                let far = if n % 2 == 0 { 1e-290 } else { 1e290 };
                [run("a", n, 1.0), run("b", n, far)]
            })
            .collect();
        let compare = two(&runs);
        let text = serde_json::to_string(&compare).expect("JSON");
        let read: Compare = serde_json::from_str(&text).expect("what is written can be read");
        assert_eq!(of(&read, "iops").ci99, None, "{text}");
        assert_eq!(of(&read, "iops").verdict, "not compared: too few rounds count (4 of 4)");
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

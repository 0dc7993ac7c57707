//! From runs to figures, differences and verdicts.

use weir_trace::document::{
    Compare, CompareEnvironment, Comparison, Estimate, Inference, Run, Variant,
};
use weir_trace::metric::{
    COMMITS, FIGURE, FIGURE_NS, IOPS, MACHINE_CPU, MAKESPAN, METRICS, Metric, Unit,
};

use super::interval::{Difference, Fit, Looks, SHOWN, VERDICT, mean, student};

/// The metric that restates the time to finish: so many I/Os over that time.
const RESTATES_MAKESPAN: &str = IOPS;

/// The names of all metrics.
pub fn metrics() -> impl Iterator<Item = &'static str> {
    METRICS.iter().map(|metric| metric.name)
}

/// By what a comparison is judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Judging<'a> {
    /// The primary metric: what answers the question. If none is chosen, what a command printed,
    /// else the time to finish where all jobs end by themselves, else commits a second where there
    /// are any, else I/Os a second.
    pub metric: Option<&'a str>,
    /// Differences up to this share do not matter.
    pub within: Option<f64>,
    /// How often it is judged.
    pub looks: Looks,
}

/// A value that can be averaged and divided by.
fn value(metric: &Metric, run: &Run) -> Option<f64> {
    metric.of_run(&run.document).filter(|value| value.is_finite() && *value > 0.0)
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
    judging: Judging<'_>,
) -> Compare {
    let names: Vec<&str> = variants.iter().map(|(name, _)| name.as_str()).collect();
    let looks = judging.looks;
    let described =
        variants.iter().map(|(name, options)| variant(name, options, &names, runs, looks));
    let compare = judged(&names, runs, judging, Told::Whole);
    Compare { variants: described.collect(), environment, ..compare }
}

/// What the primary metric says of these runs, and nothing else: a comparison that may end after
/// any round asks after each. The least difference that would be seen is told at its end.
#[must_use]
pub fn primary(names: &[&str], runs: &[Run], judging: Judging<'_>) -> Compare {
    judged(names, runs, judging, Told::Primary)
}

/// What every metric says of these runs, without what else is told of a comparison at its end: the
/// least difference that would be seen takes longer to find than all the rest.
#[must_use]
pub fn verdicts(names: &[&str], runs: &[Run], judging: Judging<'_>) -> Compare {
    judged(names, runs, judging, Told::Verdicts)
}

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// The verdict of the primary metric.
    Primary,
    /// The verdicts of all metrics.
    Verdicts,
    /// Those, and the least difference that would be seen.
    Whole,
}

/// Each two of them, in order.
fn pairs_of<'a>(names: &[&'a str]) -> Vec<[&'a str; 2]> {
    let of = |(position, a)| names[position + 1..].iter().map(move |b| [a, *b]);
    names.iter().copied().enumerate().flat_map(of).collect()
}

/// Whether all jobs of these runs ended by themselves.
fn all_finished(runs: &[Run]) -> bool {
    let mut counted = runs.iter().filter(|run| counts(run)).peekable();
    counted.peek().is_some() && counted.all(|run| run.document.bench.makespan_ns.is_some())
}

/// The primary metric where none was chosen.
fn usual_metric(runs: &[Run]) -> &'static str {
    let has_commits = runs.iter().any(|run| run.document.bench.transactions.is_some());
    let is_known = |metric: &str| {
        let metric = Metric::named(metric);
        runs.iter().any(|run| metric.is_some_and(|metric| metric.of_run(&run.document).is_some()))
    };
    match () {
        () if is_known(FIGURE) => FIGURE,
        () if is_known(FIGURE_NS) => FIGURE_NS,
        () if all_finished(runs) => MAKESPAN,
        () if has_commits => COMMITS,
        () => IOPS,
    }
}

/// The comparisons of each two variants.
fn judged(names: &[&str], runs: &[Run], judging: Judging<'_>, told: Told) -> Compare {
    let primary = judging.metric.unwrap_or_else(|| usual_metric(runs));
    let all_finished = all_finished(runs);
    let is_command = runs.iter().any(|run| run.document.bench.command_run.is_some());
    let restates =
        |metric: &Metric| all_finished && !is_command && metric.name == RESTATES_MAKESPAN;
    let compared = |metric: &&Metric| !restates(metric) || metric.name == primary;
    let pairs = pairs_of(names);
    let known = |metric: &&Metric| metric.is_of(runs.iter().map(|run| &run.document));
    let metrics: Vec<&Metric> = METRICS.iter().filter(compared).filter(known).collect();
    let others = metrics.iter().filter(|metric| metric.name != primary).count();
    let mut comparisons = Vec::new();
    for pair in &pairs {
        let wanted = |metric: &&&Metric| told != Told::Primary || metric.name == primary;
        for metric in metrics.iter().filter(wanted) {
            // The answer may be wrong once in a hundred comparisons, and all that is told beside
            // it together as often (Bonferroni).
            let judged = if metric.name == primary { 1 } else { others };
            let level = 1.0 - (1.0 - VERDICT) / (judged * pairs.len()) as f64;
            comparisons.push(compare(metric, *pair, names, runs, &Terms { level, judging, told }));
        }
    }
    let (metric, within) = (primary.to_owned(), judging.within);
    let inference = match judging.looks {
        Looks::Once => Inference::Fixed,
        Looks::AnyTime => Inference::Anytime,
    };
    Compare { comparisons, metric, within, inference, ..Compare::default() }
}

/// By what one metric of two variants is judged.
struct Terms<'a> {
    /// The level of the interval that decides.
    level: f64,
    judging: Judging<'a>,
    told: Told,
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

/// How far a value of this size may be off for having been read from a histogram: the width of its
/// bucket, which is 1 at least, and in each power of two this part of where that begins.
fn bucket(value: f64, part: f64) -> f64 {
    (value.max(1.0).log2().floor().exp2() * part).max(1.0)
}

/// That part, of the run whose percentiles are known least well.
fn coarsest<'a>(runs: impl Iterator<Item = &'a Run>) -> f64 {
    let error = |run: &Run| run.document.bench.percentile_error.unwrap_or(OLDER_ERROR);
    runs.map(error).fold(0.0, f64::max)
}

/// That part in documents which do not say it.
const OLDER_ERROR: f64 = 1.0 / 128.0;

fn variant(
    name: &str,
    options: &serde_json::Value,
    names: &[&str],
    runs: &[Run],
    looks: Looks,
) -> Variant {
    let own: Vec<&Run> = runs.iter().filter(|run| run.variant == name && counts(run)).collect();
    let estimate = |metric: &str| {
        let metric = Metric::named(metric)?;
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
        let part = coarsest(own.iter().copied());
        let half = if metric.is_bucket { bucket(mean, part) / 2.0 } else { 0.0 };
        let ci95 = student(&values, SHOWN).map(|[low, high]| [low - half, high + half]);
        let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
        let log = self::mean(&logs) + share_of_order(metric, name, names, runs, looks);
        let gmean = Some(log.exp()).filter(|gmean| gmean.is_finite());
        Some(Estimate { mean, ci95: ci95.filter(is_finite), ci99: None, gmean })
    };
    let known = |metric| estimate(metric).unwrap_or_default();
    let of_one_kind = METRICS.iter().filter(|metric| {
        metric.is_of_one_kind && metric.is_of(runs.iter().map(|run| &run.document))
    });
    let of_one_kind =
        of_one_kind.filter_map(|metric| Some((metric.name.to_owned(), estimate(metric.name)?)));
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
        figure: estimate(FIGURE),
        figure_ns: estimate(FIGURE_NS),
        machine_cpu_ns: estimate(MACHINE_CPU),
        of_one_kind: of_one_kind.collect(),
    }
}

/// By how much the order of runs has to be taken out of the mean logarithm of one of two variants,
/// where one was first more often, so that their means have the ratio that is compared.
fn share_of_order(metric: &Metric, name: &str, names: &[&str], runs: &[Run], looks: Looks) -> f64 {
    let [a, b] = names else { return 0.0 };
    let pairs = Paired::of(metric, [a, b], names, runs);
    let Some(fit) = Fit::of(&pairs.differences, looks) else { return 0.0 };
    let plain = mean(&pairs.differences.iter().map(|one| one.log).collect::<Vec<_>>());
    let half = (fit.mean - plain) / 2.0;
    if name == *b { half } else { -half }
}

/// The values of two variants in the rounds that count for both.
struct Paired {
    differences: Vec<Difference>,
    /// How far all of them may be off to either side, for what they were read from.
    margin: f64,
}

impl Paired {
    fn of(metric: &Metric, [a, b]: [&str; 2], names: &[&str], runs: &[Run]) -> Paired {
        let of = |name: &str, round: u32| of_round(metric, name, round, runs);
        let at = |name: &str, round: u32| {
            runs.iter().position(|run| run.variant == name && run.round == round && counts(run))
        };
        let whole = whole_rounds(metric, names, runs).into_iter();
        let values: Vec<(f64, f64, bool)> = whole
            .filter_map(|round| Some((of(a, round)?, of(b, round)?, at(a, round) < at(b, round))))
            .collect();
        let one = |(a, b, in_order): &(f64, f64, bool)| Difference {
            log: (b / a).ln(),
            in_order: *in_order,
        };
        // Half a bucket for each of the two, of the wider: so a jump by one is no difference.
        let part = coarsest(runs.iter().filter(|run| counts(run)));
        let width = |(a, b, _): &(f64, f64, bool)| {
            let bucket = bucket(*a, part).max(bucket(*b, part));
            (bucket / a + bucket / b) / 2.0
        };
        let widths: Vec<f64> = values.iter().map(width).collect();
        let known = !metric.is_bucket || widths.is_empty();
        let margin = if known { 0.0 } else { mean(&widths) };
        Paired { differences: values.iter().map(one).collect(), margin }
    }

    /// The ratio over all of them.
    fn ratio(&self, looks: Looks) -> Option<f64> {
        let logs: Vec<f64> = self.differences.iter().map(|one| one.log).collect();
        let plain = || (!logs.is_empty()).then(|| mean(&logs));
        let log = Fit::of(&self.differences, looks).map(|fit| fit.mean).or_else(plain)?;
        Some(log.exp()).filter(|ratio| ratio.is_finite())
    }

    /// What they come to; none of so few rounds that it would say nothing.
    fn fit(&self, looks: Looks) -> Option<Fit> {
        let enough = self.differences.len() >= PAIRS_LEAST;
        Fit::of(&self.differences, looks).filter(|_| enough)
    }

    /// The interval of the ratio.
    fn interval(&self, fit: &Fit, level: f64) -> Option<[f64; 2]> {
        let [low, high] = fit.interval(level)?;
        Some([(low - self.margin).exp(), (high + self.margin).exp()]).filter(is_finite)
    }
}

/// From two rounds Student's 99 % interval is 64 standard errors wide to each side.
const PAIRS_LEAST: usize = 3;

fn is_finite(interval: &[f64; 2]) -> bool {
    interval.iter().all(|end| end.is_finite())
}

/// The share of a variant's runs that may fail, one in so many: where more do, those that did not
/// are its best alone.
const FAILED_MOST: usize = 10;
const FAILED_IN: &str = "failed in";

/// Why two variants have no verdict although rounds count: one of them failed in too many runs.
fn often_failed(pair: [&str; 2], runs: &[Run]) -> Option<String> {
    pair.into_iter().find_map(|name| {
        let own = || runs.iter().filter(|run| run.variant == name);
        let failed = own().filter(|run| run.document.failure.is_some()).count();
        let made = failed + own().filter(|run| counts(run)).count();
        let too_many = failed * FAILED_MOST > made;
        too_many.then(|| format!("{name} {FAILED_IN} {failed} of {made} runs"))
    })
}

/// Why a metric of two variants has no verdict although rounds count: one of them did nothing in
/// some, and the others would be its best alone.
fn undone(metric: &Metric, pair: [&str; 2], runs: &[Run]) -> Option<String> {
    let metrics = [Metric::named(IOPS)?, metric];
    let what = metrics.into_iter().filter_map(|metric| Some((metric, metric.undone?)));
    what.flat_map(|(of, what)| pair.map(|name| (of, what, name))).find_map(|(of, what, name)| {
        let own = || runs.iter().filter(|run| run.variant == name && counts(run));
        let none = own().filter(|run| of.of_run(&run.document) == Some(0.0)).count();
        (none > 0).then(|| format!("{name} did no {what} in {none} of {} rounds", own().count()))
    })
}

/// The comparison of one metric of two variants.
fn compare(
    metric: &Metric,
    [a, b]: [&str; 2],
    names: &[&str],
    runs: &[Run],
    terms: &Terms<'_>,
) -> Comparison {
    let Judging { within, looks, .. } = terms.judging;
    let mut found = Comparison {
        a: String::from(a),
        b: String::from(b),
        metric: String::from(metric.name),
        ..Comparison::default()
    };
    if let Some(why) = often_failed([a, b], runs).or_else(|| undone(metric, [a, b], runs)) {
        found.verdict = format!("{NOT_COMPARED}: {why}");
        return found;
    }
    let pairs = Paired::of(metric, [a, b], names, runs);
    found.ratio = pairs.ratio(looks);
    let fit = pairs.fit(looks);
    found.ci99 = fit.and_then(|fit| pairs.interval(&fit, terms.level));
    found.verdict = match (found.ci99, within) {
        (Some(interval), Some(share)) if is_within(interval, share) => {
            format!("{SAME_WITHIN} {} %", percent(share))
        }
        (Some([low, _]), _) if low > 1.0 => says(metric, b, metric.more_is_better),
        (Some([_, high]), _) if high < 1.0 => says(metric, b, !metric.more_is_better),
        (Some(_), _) => String::from(SAME),
        (None, _) => {
            let made = runs.iter().map(|run| run.round).max().unwrap_or_default();
            let count = pairs.differences.len();
            // Of three metrics together a third of a hundredth has no end.
            let percent = percent((terms.level * 1e4).floor() / 1e4);
            match fit {
                // They count, and at this level so few have no interval.
                Some(_) => format!("{NOT_COMPARED}: {TOO_FEW} for {percent} % ({count})"),
                None => format!("{NOT_COMPARED}: {TOO_FEW} count ({count} of {made})"),
            }
        }
    };
    if let Some(fit) = fit.filter(|_| found.ci99.is_some()) {
        found.ci95 = pairs.interval(&fit, SHOWN);
        let whole = (terms.told == Told::Whole).then_some(fit);
        let least = whole.and_then(|fit| fit.detectable(terms.level));
        let least = least.map(|log| (log + pairs.margin).exp() - 1.0);
        found.min_detectable_effect = least.filter(|least| least.is_finite());
        found.second_run = second_run(&fit, terms.level);
    }
    found
}

/// What being the second of the two did to a run, where it is known to do anything.
fn second_run(fit: &Fit, level: f64) -> Option<Estimate> {
    let [low, high] = fit.interval_of_second(level)?.map(f64::exp);
    let known = low > 1.0 || high < 1.0;
    let mean = fit.second.filter(|_| known)?.exp();
    Some(Estimate { mean, ci99: Some([low, high]), ..Estimate::default() })
}

fn says(metric: &Metric, b: &str, is_better: bool) -> String {
    match (metric.unit == Unit::CpuNanoseconds, is_better) {
        (true, true) => format!("{b} takes less CPU"),
        (true, false) => format!("{b} takes more CPU"),
        (false, true) => format!("{b} is faster"),
        (false, false) => format!("{b} is slower"),
    }
}

/// Whether a ratio is known to be within this share of 1, whichever of the two is divided by the
/// other.
fn is_within([low, high]: [f64; 2], share: f64) -> bool {
    let most = 1.0 + share;
    1.0 / most <= low && high <= most
}

/// A share in per cent, as it was given.
fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

/// The verdict where nothing can be told apart.
const SAME: &str = "no detectable difference";
/// How it begins where the two are as much alike as was asked for.
const SAME_WITHIN: &str = "the same within";
/// How it begins where nothing decides; why not follows.
const NOT_COMPARED: &str = "not compared";
/// Why not, where more rounds may change that.
const TOO_FEW: &str = "too few rounds";

/// Whether a comparison found a difference.
#[must_use]
pub fn differs(comparison: &Comparison) -> bool {
    let alike = comparison.verdict == SAME || comparison.verdict.starts_with(SAME_WITHIN);
    is_decided(comparison) && !alike
}

/// The comparisons by the primary metric.
pub fn by_primary(compare: &Compare) -> impl Iterator<Item = &Comparison> {
    compare.comparisons.iter().filter(|found| found.metric == compare.metric)
}

/// Each two variants, in their order.
fn pairs(compare: &Compare) -> impl Iterator<Item = (&str, &str)> {
    let variants = &compare.variants;
    variants.iter().enumerate().flat_map(move |(position, a)| {
        variants[position + 1..].iter().map(move |b| (a.name.as_str(), b.name.as_str()))
    })
}

/// The comparison of the first two variants of which the primary metric says, as far as it is
/// known, neither that they differ nor that they are as much alike as was asked for.
#[must_use]
pub fn unsettled(compare: &Compare) -> Option<&Comparison> {
    // More rounds may bring what failed below its bound.
    let few = |why: &str| why.starts_with(TOO_FEW) || why.contains(FAILED_IN);
    let not_compared = format!("{NOT_COMPARED}: ");
    let is_open = |found: &&Comparison| {
        found.verdict == SAME || found.verdict.strip_prefix(&not_compared).is_some_and(few)
    };
    by_primary(compare).find(is_open)
}

/// Why two variants have no verdict by the primary metric, for the first two of which that is so.
#[must_use]
pub fn unanswered(compare: &Compare) -> Option<String> {
    pairs(compare).find_map(|(a, b)| {
        let found = by_primary(compare).find(|found| pair(found) == (a, b));
        match found {
            Some(found) if is_decided(found) => None,
            Some(found) => Some(format!("{a} and {b}, {}: {}", compare.metric, found.verdict)),
            None => Some(format!("{a} and {b}, {}: it was not measured", compare.metric)),
        }
    })
}

/// Whether a comparison found that the second variant is slower than the first, or takes more CPU.
#[must_use]
pub fn is_worse(comparison: &Comparison) -> bool {
    let metric = Metric::named(&comparison.metric);
    let more = comparison.ratio.is_some_and(|ratio| ratio > 1.0);
    differs(comparison) && metric.is_some_and(|metric| metric.more_is_better != more)
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
pub(super) mod tests;

//! Where each variant stands by a metric, from the verdicts on each two of them.

use weir_trace::document::{Compare, Comparison};
use weir_trace::metric::Metric;

use crate::verdict::{is_decided, is_difference};

/// Where a variant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// 1 for the best and for all that are not told apart from it.
    pub(crate) rank: usize,
    /// Whether its value is the best of those that share the rank.
    pub(crate) is_head: bool,
    /// Whether others share the rank.
    pub(crate) is_shared: bool,
}

/// The places of all variants by a metric; none for one that it was not compared by.
///
/// The best is the one with the best value that nothing was shown to be better than, and what is
/// not told apart from it shares its place; what is left is ranked in the same way behind them.
pub(crate) fn places(compare: &Compare, metric: &Metric) -> Vec<Option<Place>> {
    let variants = &compare.variants;
    let value = |at: usize| {
        let estimate = metric.of_variant(&variants[at])?;
        Some(estimate.gmean.unwrap_or(estimate.mean)).filter(|value| value.is_finite())
    };
    let decided = |at: usize| {
        let name = &variants[at].name;
        let mut own = compare.comparisons.iter().filter(|one| one.metric == metric.name);
        own.any(|one| (one.a == *name || one.b == *name) && is_decided(one))
    };
    let known = (0..variants.len()).filter(|at| decided(*at));
    let mut left: Vec<(usize, f64)> = known.filter_map(|at| Some((at, value(at)?))).collect();
    left.sort_by(
        |(_, a), (_, b)| if metric.more_is_better { b.total_cmp(a) } else { a.total_cmp(b) },
    );
    let mut places = vec![None; variants.len()];
    let mut rank = 1;
    while let Some((first, _)) = left.first().copied() {
        // Means are no verdicts: a document of old may have one that says otherwise.
        let beats = |at: usize, other: usize| {
            let found = against(compare, metric, at, other);
            found.and_then(|found| found.is_better(metric)) == Some(true)
        };
        let is_unbeaten = |at: &usize| !left.iter().any(|(other, _)| beats(*at, *other));
        let head = left.iter().map(|(at, _)| *at).find(is_unbeaten).unwrap_or(first);
        let of_head = |at: usize| against(compare, metric, head, at).map(|found| found.verdict);
        let alike = |at: usize| at == head || of_head(at).is_some_and(|one| !is_difference(one));
        let group: Vec<usize> = left.iter().map(|(at, _)| *at).filter(|at| alike(*at)).collect();
        for at in &group {
            let (is_head, is_shared) = (*at == head, group.len() > 1);
            places[*at] = Some(Place { rank, is_head, is_shared });
        }
        rank += group.len();
        // Nothing is known of one that was not compared with the head.
        left.retain(|(at, _)| !group.contains(at) && of_head(*at).is_some());
    }
    places
}

/// One variant against another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Against<'a> {
    /// Its value over the other's.
    pub(crate) ratio: f64,
    /// The interval of that.
    pub(crate) interval: [f64; 2],
    pub(crate) verdict: &'a Comparison,
}

/// What the variant at `of` is against the one at `base`, by a metric; none where that was not
/// decided.
pub(crate) fn against<'a>(
    compare: &'a Compare,
    metric: &Metric,
    base: usize,
    of: usize,
) -> Option<Against<'a>> {
    let verdict = between(compare, metric, base, of).filter(|found| is_decided(found))?;
    let (ratio, [low, high]) = (verdict.ratio?, verdict.ci99.or(verdict.ci95)?);
    let is_turned = verdict.a != compare.variants[base].name;
    let (ratio, interval) =
        if is_turned { (1.0 / ratio, [1.0 / high, 1.0 / low]) } else { (ratio, [low, high]) };
    Some(Against { ratio, interval, verdict })
}

/// The comparison of two variants by a metric, whichever stands first in it.
pub(crate) fn between<'a>(
    compare: &'a Compare,
    metric: &Metric,
    one: usize,
    other: usize,
) -> Option<&'a Comparison> {
    let [one, other] = [one, other].map(|at| compare.variants[at].name.as_str());
    compare.comparisons.iter().find(|found| {
        let pair = (found.a.as_str(), found.b.as_str());
        found.metric == metric.name && (pair == (one, other) || pair == (other, one))
    })
}

impl Against<'_> {
    /// Whether the two are told apart, and whether that is for the better.
    pub(crate) fn is_better(&self, metric: &Metric) -> Option<bool> {
        is_difference(self.verdict).then_some((self.ratio >= 1.0) == metric.more_is_better)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;
    use weir_trace::document::{Estimate, Variant};
    use weir_trace::metric::IOPS;

    /// Variants with these values of a metric, of which any two that are further apart than a tenth
    /// are told apart.
    pub(crate) fn of(metric: &str, values: &[(&str, f64)]) -> Compare {
        let mut compare = Compare { metric: metric.into(), ..Compare::default() };
        compare.variants = values
            .iter()
            .enumerate()
            .map(|(at, (label, _))| Variant {
                name: char::from(b'a' + at as u8).to_string(),
                options: json!({ "scheduler": label }),
                ..Variant::default()
            })
            .collect();
        add(&mut compare, metric, &values.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        compare
    }

    /// Adds a metric to such a comparison.
    pub(crate) fn add(compare: &mut Compare, metric: &str, values: &[f64]) {
        let of = Metric::named(metric).expect("a metric");
        for (variant, value) in compare.variants.iter_mut().zip(values) {
            let estimate = Estimate { mean: *value, gmean: Some(*value), ..Estimate::default() };
            match metric {
                IOPS => variant.iops = estimate,
                "latency_p99_ns" => variant.latency_p99_ns = estimate,
                "cpu_ns_per_io" => variant.cpu_ns_per_io = estimate,
                "commits_per_s" => variant.commits_per_s = Some(estimate),
                other => {
                    variant.of_one_kind.insert(other.into(), estimate);
                }
            }
        }
        let names: Vec<String> = compare.variants.iter().map(|one| one.name.clone()).collect();
        for (at, a) in names.iter().enumerate() {
            for (b, value) in names.iter().zip(values).skip(at + 1) {
                let ratio = value / values[at];
                let words = match () {
                    () if (ratio.ln()).abs() < 0.1 => "no detectable difference".into(),
                    () if (ratio > 1.0) == of.more_is_better => format!("{b} is faster"),
                    () => format!("{b} is slower"),
                };
                compare.comparisons.push(Comparison {
                    a: a.clone(),
                    b: b.clone(),
                    metric: metric.into(),
                    ratio: Some(ratio),
                    ci95: Some([ratio * 0.95, ratio * 1.05]),
                    ci99: Some([ratio * 0.91, ratio * 1.1]),
                    min_detectable_effect: Some(0.12),
                    second_run: None,
                    verdict: words,
                });
            }
        }
    }

    fn ranks(compare: &Compare) -> Vec<Option<(usize, bool)>> {
        let metric = Metric::named(&compare.metric).expect("a metric");
        let places = places(compare, metric).into_iter();
        places.map(|place| place.map(|place| (place.rank, place.is_shared))).collect()
    }

    #[test]
    fn what_is_not_told_apart_from_the_best_shares_its_rank() {
        let compare = of(IOPS, &[("none", 100.0), ("bfq", 50.0), ("kyber", 104.0), ("x", 70.0)]);
        let expected = [(1, true), (4, false), (1, true), (3, false)];
        assert_eq!(ranks(&compare), expected.map(Some));
        let metric = Metric::named(IOPS).expect("a metric");
        let heads: Vec<_> = places(&compare, metric).iter().map(|p| p.unwrap().is_head).collect();
        assert_eq!(heads, [false, true, true, true]);
        // Of latency less is better.
        let compare = of("latency_p99_ns", &[("none", 100.0), ("bfq", 50.0)]);
        assert_eq!(ranks(&compare), [Some((2, false)), Some((1, false))]);
        // What is alike to the second and not to the first is no first.
        let compare = of(IOPS, &[("a", 100.0), ("b", 92.0), ("c", 84.0)]);
        assert_eq!(ranks(&compare), [Some((1, true)), Some((1, true)), Some((3, false))]);
    }

    #[test]
    fn one_that_was_not_compared_has_no_place() {
        let mut compare = of(IOPS, &[("none", 100.0), ("bfq", 50.0), ("kyber", 104.0)]);
        for found in compare.comparisons.iter_mut().filter(|one| one.b == "c") {
            (found.ci99, found.ci95, found.verdict) = (None, None, "not compared: why".into());
        }
        assert_eq!(ranks(&compare), [Some((1, false)), Some((2, false)), None]);
        // Of two that were not compared with each other one has a place.
        let mut pairs = of(IOPS, &[("none", 100.0), ("bfq", 120.0), ("kyber", 80.0)]);
        pairs.comparisons.retain(|found| found.a == "a");
        assert_eq!(ranks(&pairs), [Some((2, false)), Some((1, false)), None]);
        compare.comparisons.clear();
        assert_eq!(ranks(&compare), [None; 3]);
    }

    #[test]
    fn a_variant_against_a_later_one_has_the_inverse_and_its_interval() {
        let compare = of(IOPS, &[("none", 100.0), ("bfq", 50.0)]);
        let metric = Metric::named(IOPS).expect("a metric");
        let found = against(&compare, metric, 1, 0).expect("it was decided");
        assert_eq!(found.ratio, 2.0);
        assert!(found.interval[0] < 2.0 && 2.0 < found.interval[1], "{found:?}");
        assert_eq!(found.is_better(metric), Some(true));
        assert_eq!(
            against(&compare, metric, 0, 1).expect("decided").is_better(metric),
            Some(false)
        );
    }
}

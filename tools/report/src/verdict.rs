//! Comparisons in words. `weir compare` has decided what is a difference: a `ratio` beside `no
//! detectable difference` is none, whatever its size.

use crate::numbers::{percent, ratio, shown};
use crate::tone::{Tone, Verdict};
use serde_json::Value;
use weir_trace::document::{Compare, Comparison};
use weir_trace::labels;
use weir_trace::metric::{CPU, IOPS, MAKESPAN, Metric, Unit};

/// A name at the beginning of a line.
pub(crate) fn capital(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map_or_else(String::new, |c| c.to_uppercase().collect());
    first + letters.as_str()
}

/// What the variants are called.
pub(crate) fn labels(compare: &Compare) -> Vec<String> {
    let variants = compare.variants.iter();
    let told: Vec<(&str, &Value)> =
        variants.map(|variant| (variant.name.as_str(), &variant.options)).collect();
    labels::labels(&told)
}

/// A sentence for each comparison.
pub(crate) fn verdicts(compare: &Compare) -> Vec<Verdict> {
    let labels = labels(compare);
    let found = |name: &str| compare.variants.iter().position(|variant| variant.name == name);
    let label =
        |name: &str| found(name).map_or_else(|| String::from(name), |at| labels[at].clone());
    let sentence = |comparison: &Comparison| {
        let metric = Metric::named(&comparison.metric);
        let value = |name: &str| {
            let variant = &compare.variants[found(name)?];
            metric?.of_variant(variant).map(|estimate| estimate.gmean.unwrap_or(estimate.mean))
        };
        let values = value(&comparison.a).zip(value(&comparison.b));
        let values = values.filter(|values| agree(*values, comparison.ratio));
        verdict(comparison, &label(&comparison.a), &label(&comparison.b), values)
    };
    compare.comparisons.iter().map(sentence).collect()
}

/// Whether two values have the ratio that was found, as near as it is told: the means of a document
/// that has no other may say something else.
fn agree((a, b): (f64, f64), found: Option<f64>) -> bool {
    found.is_some_and(|found| (b / a / found - 1.0).abs() < 0.005)
}

/// Whether a comparison decided anything: without an interval there is nothing to decide by.
pub(crate) fn is_decided(comparison: &Comparison) -> bool {
    let interval = comparison.ci99.or(comparison.ci95);
    comparison.ratio.is_some() && interval.is_some() && !comparison.verdict.is_empty()
}

/// Whether a comparison names a difference.
pub(crate) fn is_difference(comparison: &Comparison) -> bool {
    let verdict = &comparison.verdict;
    let words = ["faster", "slower", "takes less", "takes more"];
    is_decided(comparison) && words.iter().any(|word| verdict.contains(word))
}

/// Whether it names its second variant as the better one.
pub(crate) fn is_for_b(comparison: &Comparison) -> bool {
    ["faster", "takes less"].iter().any(|word| comparison.verdict.contains(word))
}

/// Whether it is of CPU time, of which less is cheaper and not faster.
fn is_cpu(comparison: &Comparison) -> bool {
    let metric = Metric::named(&comparison.metric);
    metric.is_some_and(|metric| metric.unit == Unit::CpuNanoseconds)
}

/// What a variant is that is told apart: faster or slower, or of CPU time what it takes. Documents
/// of old say faster of that too.
pub(crate) fn way(comparison: &Comparison) -> &'static str {
    match (is_cpu(comparison), is_for_b(comparison)) {
        (true, true) => "less CPU",
        (true, false) => "more CPU",
        (false, true) => "faster",
        (false, false) => "slower",
    }
}

/// Whether the two are known to differ by less than matters.
pub(crate) fn is_alike(comparison: &Comparison) -> bool {
    is_decided(comparison) && comparison.verdict.starts_with("the same within")
}

/// The verdict in a cell: which variant is faster or slower, or that none is known to be.
pub(crate) fn short(comparison: &Comparison, b: &str) -> String {
    if !is_decided(comparison) {
        return String::from("not compared");
    }
    if is_difference(comparison) {
        let verb = if is_cpu(comparison) { "takes" } else { "is" };
        return format!("{b} {verb} {}", way(comparison));
    }
    if is_alike(comparison) {
        return comparison.verdict.clone();
    }
    let effect = comparison.min_detectable_effect.filter(|effect| effect.is_finite());
    let seen = effect.map(|effect| format!(", {} would be seen", percent(effect)));
    format!("none detected{}", seen.unwrap_or_default())
}

/// The sentence on a comparison without a verdict: the reason, if the document has one.
pub(crate) fn undecided(comparison: &Comparison) -> &str {
    let verdict = comparison.verdict.as_str();
    if verdict.starts_with("not compared") { verdict } else { "not compared" }
}

/// The interval that decides, and how wide it is in words.
fn interval(comparison: &Comparison) -> String {
    let (width, [low, high]) = match (comparison.ci99, comparison.ci95) {
        (Some(interval), _) => ("99 %", interval),
        (None, Some(interval)) => ("95 %", interval),
        (None, None) => return String::from("no interval: too few rounds"),
    };
    format!("{width} interval {} to {}", ratio(low), ratio(high))
}

fn verdict(comparison: &Comparison, a: &str, b: &str, values: Option<(f64, f64)>) -> Verdict {
    let metric = Metric::named(&comparison.metric);
    let name = metric.map_or(comparison.metric.as_str(), |metric| metric.title);
    let Some(quotient) = comparison.ratio else {
        let text = format!("{name} of {a} and {b}: {}.", undecided(comparison));
        return Verdict { tone: Tone::Plain, text };
    };
    let figures = format!("[ratio {}, {}]", ratio(quotient), interval(comparison));
    if !is_decided(comparison) {
        let text = format!("{name} of {a} and {b}: {} {figures}.", undecided(comparison));
        return Verdict { tone: Tone::Plain, text };
    }
    if !is_difference(comparison) {
        let verdict = comparison.verdict.as_str();
        let seen = comparison.min_detectable_effect.filter(|effect| effect.is_finite());
        let seen = seen.map(|effect| format!("; {} would have been seen", percent(effect)));
        let text = format!("{name}, {a} and {b}: {verdict}{} {figures}.", seen.unwrap_or_default());
        return Verdict { tone: Tone::Same, text };
    }
    let more = quotient >= 1.0;
    let better = metric.map_or(is_for_b(comparison), |metric| more == metric.more_is_better);
    let size = percent(quotient - 1.0);
    let change = match metric {
        Some(metric) if metric.name == IOPS => {
            format!("{b} is {size} {} than {a}: IOPS", if more { "faster" } else { "slower" })
        }
        Some(metric) if metric.name == MAKESPAN => {
            format!("{b} takes {size} {} to finish than {a}:", if more { "longer" } else { "less" })
        }
        Some(metric) if metric.unit == Unit::CpuNanoseconds => {
            let of = if metric.name == CPU { "CPU per I/O" } else { metric.title };
            format!("{b} takes {size} {} {of} than {a}:", if more { "more" } else { "less" })
        }
        Some(metric) if metric.unit == Unit::PerSecond => {
            format!("{b} has {size} {} {name} than {a}:", if more { "more" } else { "fewer" })
        }
        _ => format!("{b} has {size} {} {name} than {a}:", if more { "higher" } else { "lower" }),
    };
    let values = values.zip(metric).map(|((before, after), metric)| {
        format!(" {} → {}", shown(metric, before), shown(metric, after))
    });
    let tone = if better { Tone::Better } else { Tone::Worse };
    Verdict { tone, text: format!("{change}{} {figures}.", values.unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_trace::document::{Estimate, Variant};

    fn variant(name: &str, options: serde_json::Value, iops: f64) -> Variant {
        let iops =
            Estimate { mean: iops, ci95: Some([iops * 0.99, iops * 1.01]), ..Estimate::default() };
        Variant { name: name.into(), options, iops, ..Variant::default() }
    }

    fn compared(metric: &str, ratio: f64, verdict: &str) -> Compare {
        Compare {
            variants: vec![
                variant("a", json!({"queue_mode": "sq"}), 12_000.0),
                variant("b", json!({"queue_mode": "mq"}), 14_800.0),
            ],
            comparisons: vec![Comparison {
                a: "a".into(),
                b: "b".into(),
                metric: metric.into(),
                ratio: Some(ratio),
                ci95: Some([ratio * 0.99, ratio * 1.01]),
                ci99: Some([ratio * 0.98, ratio * 1.02]),
                min_detectable_effect: Some(0.03),
                second_run: None,
                verdict: verdict.into(),
            }],
            ..Compare::default()
        }
    }

    #[test]
    fn a_difference_is_named_with_its_size_its_figures_and_its_interval() {
        let found = verdicts(&compared("iops", 14_800.0 / 12_000.0, "b is faster"));
        assert_eq!(found[0].tone, Tone::Better);
        assert_eq!(
            found[0].text,
            "mq is 23 % faster than sq: IOPS 12,000 → 14,800 [ratio 1.233, 99 % interval 1.209 to \
             1.258]."
        );
        let slower = verdicts(&compared("latency_p99_ns", 1.5, "b is slower"));
        assert_eq!(slower[0].tone, Tone::Worse);
        assert!(slower[0].text.starts_with("mq has 50 % higher p99 latency than sq:"));
        let sooner = verdicts(&compared("makespan_ns", 0.5, "b is faster"));
        assert_eq!(sooner[0].tone, Tone::Better);
        assert!(sooner[0].text.starts_with("mq takes 50 % less to finish than sq:"));
        let lower = verdicts(&compared("cpu_ns_per_io", 0.8, "b is faster"));
        assert_eq!(lower[0].tone, Tone::Better);
        assert!(lower[0].text.starts_with("mq takes 20 % less CPU per I/O than sq:"));
        for (verdict, ratio, tone) in
            [("b takes less CPU", 0.8, Tone::Better), ("b takes more CPU", 1.2, Tone::Worse)]
        {
            assert_eq!(verdicts(&compared("cpu_ns_per_io", ratio, verdict))[0].tone, tone);
        }
    }

    #[test]
    fn figures_beside_a_change_have_its_ratio_or_are_left_out() {
        let text = |compare: &Compare| verdicts(compare)[0].text.clone();
        // The means of the rounds say 23 %, the rounds themselves 9 %.
        let mut compare = compared("iops", 1.09, "b is faster");
        assert!(text(&compare).starts_with("mq is 9.0 % faster than sq: IOPS [ratio 1.09"));
        for (variant, gmean) in compare.variants.iter_mut().zip([10_000.0, 10_900.0]) {
            variant.iops.gmean = Some(gmean);
        }
        assert!(text(&compare).starts_with("mq is 9.0 % faster than sq: IOPS 10,000 → 10,900 ["));
    }

    #[test]
    fn without_a_difference_the_words_say_so_and_what_would_have_been_seen() {
        // The ratio is large, and all the same the verdict stands.
        let found = verdicts(&compared("iops", 1.4, "no detectable difference"));
        assert_eq!(found[0].tone, Tone::Same);
        let start =
            "IOPS, sq and mq: no detectable difference; 3.0 % would have been seen [ratio 1.4";
        assert!(found[0].text.starts_with(start), "{}", found[0].text);
    }

    #[test]
    fn what_could_not_be_compared_is_said_and_not_judged() {
        let mut compare = compared("iops", 1.0, "");
        compare.comparisons[0].ratio = None;
        assert_eq!(verdicts(&compare)[0].text, "IOPS of sq and mq: not compared.");
        compare.comparisons[0] =
            Comparison { a: "x".into(), ratio: Some(2.0), ..Default::default() };
        assert!(verdicts(&compare)[0].text.contains("too few rounds"));
        // A document with a verdict and without an interval to decide by: it has no verdict.
        for verdict in ["no detectable difference", "b is slower"] {
            let mut compare = compared("iops", 4.2, verdict);
            (compare.comparisons[0].ci95, compare.comparisons[0].ci99) = (None, None);
            let found = verdicts(&compare);
            assert_eq!(found[0].tone, Tone::Plain);
            assert!(found[0].text.starts_with("IOPS of sq and mq: not compared ["), "{found:?}");
            assert_eq!(short(&compare.comparisons[0], "mq"), "not compared");
        }
        compare.comparisons[0].verdict = "not compared: too few rounds count (1 of 9)".into();
        let found = verdicts(&compare);
        assert!(found[0].text.contains("not compared: too few rounds count (1 of 9)"), "{found:?}");
    }

    #[test]
    fn a_cell_says_which_variant_is_faster_or_slower() {
        let cell = |verdict| short(&compared("iops", 1.5, verdict).comparisons[0], "mq");
        assert_eq!(cell("b is faster"), "mq is faster");
        assert_eq!(cell("b is slower"), "mq is slower");
        assert_eq!(cell("no detectable difference"), "none detected, 3.0 % would be seen");
        assert_eq!(cell("the same within 1 %"), "the same within 1 %");
        // Also of an older document, which calls it faster.
        for verdict in ["b takes less CPU", "b is faster"] {
            let found = compared("cpu_ns_per_io", 0.5, verdict);
            assert_eq!(short(&found.comparisons[0], "mq"), "mq takes less CPU");
        }
        let found = compared("cpu_ns_per_io", 1.5, "b takes more CPU");
        assert_eq!(short(&found.comparisons[0], "mq"), "mq takes more CPU");
    }
}

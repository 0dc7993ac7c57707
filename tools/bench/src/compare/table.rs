//! A comparison as text: a table for each pair, verdicts last.

use std::fmt::Write;

use weir_trace::document::{Compare, Comparison, Estimate, Inference, Run, Variant};

use weir_trace::metric::{METRICS, Metric};

use super::summary::{by_primary, differs, is_decided, unsettled};
use super::variant::in_effect;

/// The tables of a comparison, and what is to be known about it.
#[must_use]
pub fn table(compare: &Compare) -> String {
    let mut text = String::new();
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for Comparison { a, b, .. } in &compare.comparisons {
        if !pairs.contains(&(a, b)) {
            pairs.push((a, b));
        }
    }
    for (a, b) in pairs {
        let find = |name: &str| compare.variants.iter().find(|variant| variant.name == name);
        if let (Some(a), Some(b)) = (find(a), find(b)) {
            pair(&mut text, compare, a, b);
        }
    }
    text
}

fn pair(text: &mut String, compare: &Compare, a: &Variant, b: &Variant) {
    for variant in [a, b] {
        let (name, count) = (&variant.name, variant.rounds.len());
        let options = options(&variant.options);
        let effect = in_effect(variant).map(|effect| format!("{effect}; ")).unwrap_or_default();
        line(text, format_args!("{name}: {options} ({effect}{count} rounds)"));
    }
    let ratio = format!("{} / {}", b.name, a.name);
    let mut rows = vec![[
        String::new(),
        a.name.clone(),
        b.name.clone(),
        ratio,
        String::from("99 % interval"),
        String::from("visible from"),
        String::from("verdict"),
    ]];
    for metric in &METRICS {
        let of_pair = |c: &&Comparison| {
            (c.a.as_str(), c.b.as_str(), c.metric.as_str()) == (&a.name, &b.name, metric.name)
        };
        let Some(comparison) = compare.comparisons.iter().find(of_pair) else { continue };
        let time = metric.name.contains("_ns");
        let shown =
            |variant| estimate(variant, metric).map_or(String::from("-"), |e| value(&e, time));
        let or_dash = |shown: Option<String>| shown.unwrap_or_else(|| String::from("-"));
        rows.push([
            String::from(metric.title),
            shown(a),
            shown(b),
            or_dash(comparison.ratio.map(|ratio| format!("{ratio:.3}"))),
            or_dash(comparison.ci99.map(interval)),
            or_dash(comparison.min_detectable_effect.map(effect)),
            comparison.verdict.clone(),
        ]);
    }
    aligned(text, &rows);
    text.push('\n');
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{arguments}");
}

/// First and last column to the left, the others to the right.
fn aligned<const COLUMNS: usize>(text: &mut String, rows: &[[String; COLUMNS]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| width(column).unwrap_or_default());
    for row in rows {
        let mut shown = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                0 => write!(shown, "{cell:<width$}"),
                last if last == COLUMNS - 1 => write!(shown, "  {cell}"),
                _ => write!(shown, "  {cell:>width$}"),
            };
        }
        line(text, format_args!("{}", shown.trim_end()));
    }
}

fn estimate(variant: &Variant, metric: &Metric) -> Option<Estimate> {
    metric.of_variant(variant).filter(|known| known.mean > 0.0)
}

/// A mean with half the width of its interval, as a part of it.
fn value(estimate: &Estimate, time: bool) -> String {
    let Estimate { mean, ci95, .. } = *estimate;
    let mean_shown = match mean {
        ns if time && ns >= 1e9 => format!("{:.2} s", ns / 1e9),
        ns if time && ns >= 1e6 => format!("{:.2} ms", ns / 1e6),
        ns if time && ns >= 1e3 => format!("{:.2} us", ns / 1e3),
        ns if time => format!("{ns:.0} ns"),
        rate if rate < 100.0 => format!("{rate:.2}"),
        rate => format!("{rate:.0}"),
    };
    match ci95 {
        Some([low, high]) => {
            format!("{mean_shown} ±{:.1} %", (high - low) / 2.0 / mean * 100.0)
        }
        None => mean_shown,
    }
}

/// The interval of a ratio; what is larger than everything is not told to a thousandth.
fn interval([low, high]: [f64; 2]) -> String {
    if high < 1000.0 { format!("{low:.3} .. {high:.3}") } else { format!("{low:.3} .. > 1000") }
}

/// The least visible difference, likewise.
fn effect(least: f64) -> String {
    let share = if least <= 10.0 { format!("{:.1}", least * 100.0) } else { "> 1000".into() };
    format!("{share} %")
}

fn options(options: &serde_json::Value) -> String {
    let pairs = options.as_object().into_iter().flatten();
    let shown = pairs.map(|(name, value)| match value.as_str() {
        Some(value) => format!("{name}={value}"),
        None => format!("{name}={value}"),
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { String::from("the target as it is") } else { shown.join(",") }
}

/// The verdicts in sentences, and what the columns beside them mean.
#[must_use]
pub fn verdicts(compare: &Compare) -> String {
    let count = compare.comparisons.iter().filter(|found| is_decided(found)).count();
    let different = compare.comparisons.iter().filter(|found| differs(found)).count();
    let without = compare.comparisons.len() - count;
    let without = if without == 0 { String::new() } else { format!("; {without} not compared") };
    let any_time = match compare.inference {
        Inference::Fixed => "",
        Inference::Anytime => " Intervals hold however often\nthey were looked at.",
    };
    format!(
        "{different} of {count} verdicts name a difference{without}. One does where the whole 99 % \
         interval of the ratio lies\nto one side of 1; without a difference the primary metric has \
         one in one comparison of a hundred at\nmost, and any of the others together in \
         another.{any_time} \"visible from\": a difference of this size\nwould be seen in four of \
         five such comparisons, smaller ones less often."
    )
}

/// What the primary metric says, a line for each pair of variants; and what is to be known of the
/// order of runs.
#[must_use]
pub fn answer(compare: &Compare) -> String {
    let mut text = String::new();
    for found in by_primary(compare) {
        let change = found.ratio.zip(found.ci99).map(|known| format!(": {}", changed(known)));
        let (of, change) = (of(found), change.unwrap_or_default());
        line(&mut text, format_args!("{}. {of}{change}", found.verdict));
    }
    let effects = compare
        .variants
        .iter()
        .filter_map(|variant| Some(format!("{}: {}", variant.name, in_effect(variant)?)));
    let effects = effects.collect::<Vec<_>>().join("; ");
    if !effects.is_empty() {
        line(&mut text, format_args!("{effects}"));
    }
    for found in by_primary(compare) {
        let second = found.second_run.and_then(|known| Some((known.mean, known.ci99?)));
        if let Some(known) = second {
            let change = changed(known);
            let Comparison { a, b, .. } = found;
            line(
                &mut text,
                format_args!(
                    "note: of {a} and {b} the one that ran second in a round had other {}: \
                     {change}; this is not in the ratio",
                    title(found)
                ),
            );
        }
    }
    text
}

/// What the primary metric says after the rounds so far, in a line; of several pairs of variants
/// the first that is not settled, or the last.
#[must_use]
pub fn so_far(compare: &Compare) -> String {
    let found = unsettled(compare).or_else(|| by_primary(compare).last());
    let known = found.and_then(|found| Some((found, found.ratio?)));
    let Some((found, ratio)) = known else { return String::new() };
    let Comparison { a, b, .. } = found;
    match found.ci99 {
        Some(interval) => format!("{b} / {a} {}", changed((ratio, interval))),
        None => format!("{b} / {a} {}", change(ratio)),
    }
}

/// The name of its metric in tables.
fn title(found: &Comparison) -> &str {
    let metric = Metric::named(&found.metric);
    metric.map_or(found.metric.as_str(), |metric| metric.title)
}

/// Of what a comparison is.
fn of(found: &Comparison) -> String {
    let Comparison { a, b, .. } = found;
    format!("{}, {b} against {a}", title(found))
}

/// A ratio as a change, with its interval.
fn changed((ratio, [low, high]): (f64, [f64; 2])) -> String {
    let [ratio, low, high] = [ratio, low, high].map(change);
    format!("{ratio} (99 % interval {low} to {high})")
}

/// A ratio as a change.
fn change(ratio: f64) -> String {
    if ratio < 10.0 { format!("{:+.1} %", (ratio - 1.0) * 100.0) } else { format!("{ratio:.1}x") }
}

/// The runs that do not count, each with its reason.
#[must_use]
pub fn voided(runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        if let Some(why) = &run.voided {
            line(&mut text, format_args!("voided: round {} of {}: {why}", run.round, run.variant));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::run;
    use super::super::summary::{Judging, summary};
    use super::*;
    use weir_trace::document::CompareEnvironment;

    #[test]
    fn a_comparison_is_a_table_with_its_verdicts() {
        let mut runs: Vec<Run> = (1..=10)
            .flat_map(|n| {
                let noise = 1.0 + f64::from(n % 3) * 0.001;
                [run("a", n, 1000.0), run("b", n, 900.0 * noise)]
            })
            .collect();
        runs[3].voided = Some(String::from("disturbed"));
        let variants = [("a", "mq"), ("b", "sq")]
            .map(|(name, mode)| (String::from(name), serde_json::json!({"queue_mode": mode})));
        let compare = summary(&variants, &runs, CompareEnvironment::default(), Judging::default());
        let text = table(&compare);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "a: queue_mode=mq (10 rounds)");
        assert_eq!(rows[1], "b: queue_mode=sq (9 rounds)");
        assert!(rows[3].contains(" 0.901  ") && rows[3].ends_with("b is slower"), "{text}");
        assert!(rows[4].contains("1.00 ms") && rows[4].ends_with("b is slower"), "{text}");
        assert!(rows.iter().any(|row| row.ends_with("no detectable difference")), "{text}");
        assert!(text.contains("99 % interval") && !text.contains("95 %"), "{text}");
        let p50 = rows[5].split("  ").collect::<Vec<_>>();
        assert!(p50.iter().any(|cell| cell.contains("1.10") && cell.contains(" .. ")), "{text}");
        let answer = answer(&compare);
        let first = "b is slower. IOPS, b against a: -9.9 % (99 % interval -10.0 %";
        assert!(answer.starts_with(first) && answer.lines().count() == 1, "{answer}");
        let said = verdicts(&compare);
        assert!(said.starts_with("3 of 4 verdicts name a difference; 1 not compared"), "{said}");
        assert!(said.contains("visible from"), "{said}");
        assert_eq!(voided(&runs), "voided: round 2 of b: disturbed\n");
    }

    #[test]
    fn what_is_larger_than_everything_is_not_told_to_a_thousandth() {
        assert_eq!(interval([0.0, 1.6e28]), "0.000 .. > 1000");
        assert_eq!(interval([0.5, 1.25]), "0.500 .. 1.250");
        assert_eq!((effect(9.99), effect(10.5)), ("999.0 %".into(), "> 1000 %".into()));
    }
}

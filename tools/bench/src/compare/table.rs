//! What a comparison says while it runs, and the runs of it that do not count, in lines.

use std::fmt::Write;

use weir_trace::document::{Compare, Comparison, Run};

use super::summary::{by_primary, unsettled};

/// What the primary metric says after the rounds so far, in a line; of several pairs of variants
/// the first that is not settled, or the last. `label` is what a variant is called.
#[must_use]
pub fn so_far(compare: &Compare, label: &dyn Fn(&str) -> String) -> String {
    let found = unsettled(compare).or_else(|| by_primary(compare).last());
    let known = found.and_then(|found| Some((found, found.ratio?)));
    let Some((found, ratio)) = known else { return String::new() };
    let Comparison { a, b, .. } = found;
    let pair = format!("{} / {}", label(b), label(a));
    match found.ci99 {
        Some(interval) => {
            let [low, high] = interval.map(change);
            format!("{pair} {} (99 % interval {low} to {high})", change(ratio))
        }
        None => format!("{pair} {}", change(ratio)),
    }
}

/// A ratio as a change.
fn change(ratio: f64) -> String {
    if ratio < 10.0 { format!("{:+.1} %", (ratio - 1.0) * 100.0) } else { format!("{ratio:.1}x") }
}

/// The runs that do not count, each with its reason.
#[must_use]
pub fn voided(runs: &[Run], label: &dyn Fn(&str) -> String) -> String {
    let mut text = String::new();
    for run in runs {
        if let Some(why) = &run.voided {
            let variant = label(&run.variant);
            // Writing to a string does not fail.
            let _ = writeln!(text, "voided: round {} of {variant}: {why}", run.round);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::run;
    use super::*;

    #[test]
    fn what_is_known_so_far_and_what_does_not_count_have_the_names_of_variants() {
        let label = |name: &str| String::from(if name == "a" { "sq" } else { "mq" });
        let mut of = Comparison { metric: "iops".into(), ..Comparison::default() };
        (of.a, of.b, of.ratio) = ("a".into(), "b".into(), Some(1.25));
        let compare = |of: &Comparison| Compare {
            comparisons: vec![of.clone()],
            metric: "iops".into(),
            ..Compare::default()
        };
        assert_eq!(so_far(&compare(&of), &label), "mq / sq +25.0 %");
        of.ci99 = Some([0.5, 12.0]);
        let said = "mq / sq +25.0 % (99 % interval -50.0 % to 12.0x)";
        assert_eq!(so_far(&compare(&of), &label), said);
        let mut runs = vec![run("a", 1, 1.0), run("b", 2, 1.0)];
        runs[1].voided = Some(String::from("disturbed"));
        assert_eq!(voided(&runs, &label), "voided: round 2 of mq: disturbed\n");
    }
}

//! The chart of what each variant is against the first: a change and its interval in each row.

use super::WIDTH;
use super::svg::{Anchor, Svg, colour, shortened};
use crate::page::Chart;

/// One variant by one metric.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) label: String,
    /// Its place among the variants, which gives it its colour.
    pub(crate) variant: usize,
    pub(crate) ratio: f64,
    pub(crate) interval: [f64; 2],
    /// Whether it is told apart, and for the better.
    pub(crate) is_better: Option<bool>,
    /// The change in words, at the end of its row.
    pub(crate) shown: String,
}

/// Where the names end and the plot begins, and where that ends.
const LEFT: f64 = 112.0;
const RIGHT: f64 = 284.0;
const ROW: f64 = 17.0;
const HEAD: f64 = 19.0;

/// The farthest ends that are drawn, as ratios: what is beyond is said in figures.
const FARTHEST: f64 = 8.0;

/// Rows under the name of each metric, on one axis that gives halving and doubling the same room;
/// none without a row.
pub(crate) fn ratios(title: &str, note: &str, metrics: &[(String, Vec<Change>)]) -> Option<Chart> {
    let all = || metrics.iter().flat_map(|(_, changes)| changes);
    let means = all().map(|one| one.ratio).filter(|ratio| ratio.is_finite() && *ratio > 0.0);
    let ends = all().flat_map(|one| one.interval).filter(|end| end.is_finite());
    let ends = ends.map(|end| end.clamp(1.0 / FARTHEST, FARTHEST));
    // At least a per cent to each side, or chance alone would fill the plot.
    let values: Vec<f64> = means.chain(ends).chain([0.99, 1.01]).map(f64::ln).collect();
    all().next()?;
    let (low, high) = values
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
    let room = (high - low) * 0.04;
    let (low, high) = (low - room, high + room);
    let at = |ratio: f64| {
        let share = (ratio.max(f64::MIN_POSITIVE).ln().clamp(low, high) - low) / (high - low);
        LEFT + share * (RIGHT - LEFT)
    };
    let rows: usize = metrics.iter().map(|(_, changes)| changes.len()).sum();
    let top = 4.0;
    let bottom = top + rows as f64 * ROW + metrics.len() as f64 * HEAD;
    let mut svg = Svg::new(bottom + 22.0);
    axis(&mut svg, &at, (low.exp(), high.exp()), (top, bottom));
    let mut y = top;
    for (name, changes) in metrics {
        svg.text((0.0, y + 14.0), Anchor::Start, "h s", name);
        y += HEAD;
        for change in changes {
            row(&mut svg, change, &at, y + ROW / 2.0);
            y += ROW;
        }
    }
    let spoken: Vec<String> = metrics
        .iter()
        .flat_map(|(name, changes)| {
            changes.iter().map(move |one| format!("{name}, {}: {}", one.label, one.shown))
        })
        .collect();
    let label = format!("{title}: {}", spoken.join("; "));
    Some(Chart { caption: String::from(note), svg: svg.finish(&label), table: None })
}

fn row(svg: &mut Svg, change: &Change, at: &dyn Fn(f64) -> f64, y: f64) {
    let class = colour(change.variant);
    svg.text((0.0, y + 4.0), Anchor::Start, "t", &shortened(&change.label, 15));
    let [low, high] = change.interval;
    svg.line((at(low), y), (at(high), y), &format!("range {class}"));
    for (end, is_beyond) in [(low, low < 1.0 / FARTHEST), (high, high > FARTHEST)] {
        // An end that is further off has no stop.
        if !is_beyond {
            svg.line((at(end), y - 4.0), (at(end), y + 4.0), &format!("range {class}"));
        }
    }
    let told = if change.is_better.is_some() { "m" } else { "dot" };
    svg.marker((at(change.ratio), y), 3.6, change.variant, &format!("{told} {class}"));
    let (sign, tone) = match change.is_better {
        Some(true) => ("▲ ", "better"),
        Some(false) => ("▼ ", "worse"),
        None => ("", "a"),
    };
    svg.text((WIDTH, y + 4.0), Anchor::End, tone, &format!("{sign}{}", change.shown));
}

/// Changes that have a line where they are within the axis, per cent or times.
const TICKS: [(f64, &str); 21] = [
    (0.01, "÷ 100"),
    (0.1, "÷ 10"),
    (0.25, "÷ 4"),
    (0.5, "−50 %"),
    (0.75, "−25 %"),
    (0.8, "−20 %"),
    (0.9, "−10 %"),
    (0.95, "−5 %"),
    (0.98, "−2 %"),
    (0.99, "−1 %"),
    (1.0, "same"),
    (1.01, "+1 %"),
    (1.02, "+2 %"),
    (1.05, "+5 %"),
    (1.1, "+10 %"),
    (1.25, "+25 %"),
    (1.5, "+50 %"),
    (2.0, "× 2"),
    (4.0, "× 4"),
    (10.0, "× 10"),
    (100.0, "× 100"),
];

/// The least room between two ticks.
const APART: f64 = 40.0;

fn axis(
    svg: &mut Svg,
    at: &dyn Fn(f64) -> f64,
    (low, high): (f64, f64),
    (top, bottom): (f64, f64),
) {
    let mut taken = vec![at(1.0)];
    svg.line((at(1.0), top), (at(1.0), bottom), "one");
    svg.text((at(1.0), bottom + 15.0), Anchor::Middle, "a", "same");
    // The farthest first: they say most of how long the axis is.
    let far = |ratio: &f64| -ratio.ln().abs();
    let mut ticks: Vec<&(f64, &str)> = TICKS.iter().collect();
    ticks.sort_by(|(one, _), (other, _)| far(one).total_cmp(&far(other)));
    for (ratio, name) in ticks.into_iter().filter(|(ratio, _)| (low..=high).contains(ratio)) {
        let place = at(*ratio);
        if taken.iter().all(|other| (other - place).abs() >= APART) {
            svg.line((place, top), (place, bottom), "g");
            svg.text((place, bottom + 15.0), Anchor::Middle, "a", name);
            taken.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(ratio: f64, interval: [f64; 2]) -> Change {
        Change {
            label: String::from("mq"),
            variant: 1,
            ratio,
            interval,
            is_better: (interval[0] > 1.0).then_some(true),
            shown: String::from("+28.5 %"),
        }
    }

    fn svg(changes: Vec<Change>) -> String {
        ratios("Against sq", "", &[(String::from("IOPS"), changes)]).expect("a chart").svg
    }

    #[test]
    fn a_row_has_its_change_its_interval_and_whether_it_is_for_the_better() {
        let drawn = svg(vec![change(1.28, [1.16, 1.42])]);
        assert!(drawn.contains(">▲ +28.5 %</text>") && drawn.contains(">same</text>"), "{drawn}");
        assert_eq!(drawn.matches("class=\"range v1\"").count(), 3, "a line and two stops");
        assert!(drawn.contains("class=\"m v1\""), "told apart: full");
        let drawn = svg(vec![change(1.28, [0.9, 1.42])]);
        assert!(!drawn.contains('▲') && drawn.contains("class=\"dot v1\""), "hollow: {drawn}");
    }

    #[test]
    fn what_is_farther_than_the_plot_has_no_stop_there_and_nothing_leaves_it() {
        let drawn = svg(vec![change(2.0, [0.0, 1.6e28]), change(0.001, [0.0005, 0.002])]);
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        for number in drawn.split("x1=\"").skip(1).chain(drawn.split("x2=\"").skip(1)) {
            let x: f64 = number.split('"').next().expect("a number").parse().expect("a number");
            assert!((LEFT..=RIGHT).contains(&x), "{x}: {drawn}");
        }
        assert_eq!(drawn.matches("class=\"range v1\"").count(), 3, "one end is near enough");
        assert!(ratios("", "", &[]).is_none());
    }
}

//! Charts of curves: over time, over the share of I/Os, over a swept value.

use super::axis::Axis;
use super::svg::{Anchor, Svg, colour, shortened};
use super::{DRAWN_MOST, WIDTH, thinned};
use crate::numbers::{NONE, time};
use crate::page::{Chart, Table};

/// A variant's times: how many I/Os took at most how long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Curve {
    pub(crate) label: String,
    /// A share of I/Os below 1 or at it, and the time that they did not exceed, nanoseconds.
    pub(crate) quantiles: Vec<(f64, f64)>,
}

/// A variant's values over time or over a sweep, each perhaps with an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct Points {
    pub(crate) label: String,
    /// One line for each run of it; the first is drawn strongly.
    pub(crate) lines: Vec<Vec<(f64, f64)>>,
    /// Around the points of the first line.
    pub(crate) intervals: Vec<Option<[f64; 2]>>,
    /// Points of others beside the line: those of a source.
    pub(crate) beside: Vec<(f64, f64)>,
}

const LEFT: f64 = 54.0;
const PLOT: f64 = 170.0;

/// How many faint lines a variant has, and how many samples of the strong one are in the table.
const LINES_MOST: usize = 12;
const SAMPLES_MOST: usize = 4;

/// The width of a letter of an axis, about.
const LETTER: f64 = 6.9;

/// The farthest share that has a place: 99.9999 %.
const TAIL_MAX: f64 = 6.0;

/// Where a share stands on an axis that gives each further nine the same room.
fn tail(share: f64) -> f64 {
    if share >= 1.0 { TAIL_MAX } else { (-(1.0 - share).log10()).min(TAIL_MAX) }
}

/// The latency below which each share of I/Os stayed, the tail drawn out.
pub(crate) fn percentiles(title: &str, note: &str, curves: &[Curve]) -> Option<Chart> {
    let mut svg = Svg::new(0.0);
    let labels: Vec<String> = curves.iter().map(|curve| curve.label.clone()).collect();
    svg.text((0.0, 12.0), Anchor::Start, "h", title);
    let top = svg.legend(30.0, &labels, "m") + 10.0;
    let bottom = top + PLOT;
    let times = curves.iter().flat_map(|curve| curve.quantiles.iter().map(|point| point.1));
    let y = Axis::log(times, (bottom, top))?;
    let inner = curves.iter().flat_map(|curve| curve.quantiles.iter().map(|point| point.0));
    let farthest = inner.filter(|share| *share < 1.0).map(tail).fold(2.0, f64::max);
    let place = |share: f64| LEFT + tail(share).min(farthest) / farthest * (WIDTH - LEFT - 10.0);
    for tick in y.ticks(7) {
        svg.line((LEFT, y.at(tick)), (WIDTH, y.at(tick)), "g");
        svg.text((LEFT - 5.0, y.at(tick) + 4.0), Anchor::End, "a", &time(tick));
    }
    let shares = [(0.5, "50 %"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")];
    let last = [(0.99999, "99.999"), (0.999_999, "6 nines")];
    let all = shares.into_iter().chain(last);
    let mut free = 0.0;
    for (share, name) in all.filter(|(s, _)| tail(*s) <= farthest + 0.01) {
        svg.line((place(share), top), (place(share), bottom), "g");
        let half = name.len() as f64 * LETTER / 2.0;
        let middle = place(share).min(WIDTH - half);
        // A line without its name can be counted; names in each other cannot be read.
        if middle - half >= free {
            svg.text((middle, bottom + 15.0), Anchor::Middle, "a", name);
            free = middle + half + LETTER;
        }
    }
    for (variant, curve) in curves.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            curve.quantiles.iter().map(|(share, ns)| (place(*share), y.at(*ns))).collect();
        let class = colour(variant);
        svg.path(&points, &format!("curve {class}"));
        for point in points.iter().step_by((points.len() / 6).max(1)) {
            svg.marker(*point, 3.0, variant, &format!("m {class}"));
        }
    }
    svg.text((LEFT, bottom + 30.0), Anchor::Start, "a", "share of I/Os that took no longer");
    svg.set_height(bottom + 36.0);
    let label = format!("{title}: latency over the share of I/Os");
    let table = Some(quantiles(curves, farthest));
    Some(Chart { caption: String::from(note), svg: svg.finish(&label), table })
}

/// The latencies of all curves at the shares that have names.
fn quantiles(curves: &[Curve], farthest: f64) -> Table {
    let all =
        [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];
    let shares = || all.iter().filter(|(share, _)| tail(*share) <= farthest + 0.01);
    let mut table = Table::new("", [""]);
    table.head.extend(shares().map(|(_, name)| String::from(*name)));
    for curve in curves {
        let cell = |(share, _): &(f64, &str)| {
            let found = curve.quantiles.iter().find(|(known, _)| known >= share);
            found.map_or(NONE.into(), |(_, ns)| time(*ns))
        };
        table.rows.push(std::iter::once(curve.label.clone()).chain(shares().map(cell)).collect());
    }
    table
}

/// Values over the seconds of the measured time.
pub(crate) fn series(
    title: &str,
    note: &str,
    all: &[Points],
    show: &dyn Fn(f64) -> String,
) -> Option<Chart> {
    let mut svg = Svg::new(0.0);
    let labels: Vec<String> = all.iter().map(|points| points.label.clone()).collect();
    svg.text((0.0, 12.0), Anchor::Start, "h", title);
    let top = svg.legend(30.0, &labels, "m") + 10.0;
    let bottom = top + PLOT * 0.8;
    let samples = || all.iter().flat_map(|points| points.lines.iter().flatten());
    let y = Axis::linear(samples().map(|point| point.1), true, (bottom, top))?;
    let x = Axis::linear(samples().map(|point| point.0).chain([0.0]), true, (LEFT, WIDTH))?;
    ordinates(&mut svg, &y, show);
    for tick in x.ticks(5) {
        // The first stands clear of the values beside it.
        match tick > 0.0 {
            true => {
                let place = (x.at(tick).min(WIDTH - 14.0), bottom + 17.0);
                svg.text(place, Anchor::Middle, "a", &time(tick * 1e9));
            }
            false => svg.text((x.at(tick), bottom + 17.0), Anchor::Start, "a", "0 s"),
        }
    }
    for (variant, points) in all.iter().enumerate() {
        let class = colour(variant);
        let first = points.lines.iter().take(1).cloned();
        let rest = thinned(points.lines.get(1..).unwrap_or_default(), LINES_MOST);
        let lines: Vec<_> = first.chain(rest).collect();
        for (index, line) in lines.iter().enumerate().rev() {
            let line = thinned(line, DRAWN_MOST * 4);
            let line: Vec<_> = line.iter().map(|(at, value)| (x.at(*at), y.at(*value))).collect();
            let strength = if index == 0 { "curve" } else { "faint" };
            svg.path(&line, &format!("{strength} {class}"));
            if index == 0 {
                for point in line.iter().skip(variant * 3).step_by((line.len() / 6).max(1)) {
                    svg.marker(*point, 3.0, variant, &format!("m {class}"));
                }
            }
        }
    }
    svg.set_height(bottom + 24.0);
    let table = Some(over_time(all, show));
    let label = format!("{title} over time");
    Some(Chart { caption: String::from(note), svg: svg.finish(&label), table })
}

/// The strong line of each, at a few of its samples.
fn over_time(all: &[Points], show: &dyn Fn(f64) -> String) -> Table {
    let lines = || all.iter().filter_map(|points| points.lines.first());
    let longest = lines().max_by_key(|line| line.len()).cloned().unwrap_or_default();
    let places = thinned(&(0..longest.len()).collect::<Vec<_>>(), SAMPLES_MOST);
    let mut table = Table::new("", [""]);
    table.head.extend(places.iter().map(|at| time(longest[*at].0 * 1e9)));
    for points in all {
        let Some(line) = points.lines.first() else { continue };
        let cell = |at: &usize| line.get(*at).map_or(NONE.into(), |(_, value)| show(*value));
        table
            .rows
            .push(std::iter::once(points.label.clone()).chain(places.iter().map(cell)).collect());
    }
    table
}

fn ordinates(svg: &mut Svg, y: &Axis, show: &dyn Fn(f64) -> String) {
    for tick in y.ticks(4) {
        svg.line((LEFT, y.at(tick)), (WIDTH, y.at(tick)), "g");
        svg.text((LEFT - 5.0, y.at(tick) + 4.0), Anchor::End, "a", &show(tick));
    }
}

/// Values over a swept one, which has a place for each of `values` in turn. They are rates and
/// times, so what of an interval lies below 0 is not drawn.
pub(crate) fn sweep(
    title: &str,
    note: &str,
    name: &str,
    values: &[String],
    all: &[Points],
    show: &dyn Fn(f64) -> String,
) -> Option<Chart> {
    let mut svg = Svg::new(0.0);
    let labels: Vec<String> = all.iter().map(|points| points.label.clone()).collect();
    svg.text((0.0, 12.0), Anchor::Start, "h", title);
    let top = svg.legend(30.0, &labels, "m") + 10.0;
    let bottom = top + PLOT;
    let means = all.iter().flat_map(|points| points.lines.iter().flatten().map(|point| point.1));
    let ends = all.iter().flat_map(|points| points.intervals.iter().flatten().flatten().copied());
    let ends = ends.map(|end| end.max(0.0));
    let beside = all.iter().flat_map(|points| points.beside.iter().map(|point| point.1));
    let y = Axis::linear(means.chain(ends).chain(beside), true, (bottom, top))?;
    ordinates(&mut svg, &y, show);
    let step = (WIDTH - LEFT - 40.0) / values.len().saturating_sub(1).max(1) as f64;
    let place = |index: f64| LEFT + 20.0 + index * step;
    let room = ((step / 6.9) as usize).clamp(3, 16);
    for (index, value) in values.iter().enumerate() {
        let at = (place(index as f64), bottom + 15.0);
        svg.text(at, Anchor::Middle, "a", &shortened(value, room));
    }
    svg.text((WIDTH, bottom + 30.0), Anchor::End, "a", &shortened(name, 40));
    for (variant, points) in all.iter().enumerate() {
        let class = colour(variant);
        let Some(line) = points.lines.first() else { continue };
        let line: Vec<_> = line.iter().map(|(at, value)| (place(*at), y.at(*value))).collect();
        svg.path(&line, &format!("curve {class}"));
        for (point, interval) in line.iter().zip(&points.intervals) {
            if let Some([low, high]) = interval {
                let [low, high] = [low, high].map(|end| (point.0, y.at(end.max(0.0))));
                svg.line(low, high, &format!("bar {class}"));
            }
            svg.marker(*point, 3.6, variant, &format!("m {class}"));
        }
        for (at, value) in &points.beside {
            svg.cross((place(*at), y.at(*value)), 4.5, &format!("beside {class}"));
        }
    }
    svg.set_height(bottom + 36.0);
    let label = format!("{title} over {name}");
    let mut table = Table::new("", [name]);
    table.head.extend(values.iter().cloned());
    for points in all {
        let line = points.lines.first();
        let cell = |at: usize| {
            let found = line.into_iter().flatten().find(|(place, _)| *place == at as f64);
            found.map_or(NONE.into(), |(_, value)| show(*value))
        };
        let cells = (0..values.len()).map(cell);
        table.rows.push(std::iter::once(points.label.clone()).chain(cells).collect());
    }
    Some(Chart { caption: String::from(note), svg: svg.finish(&label), table: Some(table) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number behind this attribute.
    fn numbers(svg: &str, attribute: &str) -> Vec<f64> {
        let before = format!(" {attribute}=\"");
        let all = svg.split(before.as_str()).skip(1);
        all.map(|rest| rest.split('"').next().and_then(|n| n.parse().ok()).expect("a number"))
            .collect()
    }

    #[test]
    fn a_bar_of_a_time_ends_at_0_and_not_below_it() {
        let points = Points {
            label: String::from("a"),
            lines: vec![vec![(0.0, 10.0), (1.0, 20.0)]],
            intervals: vec![Some([-500.0, 520.0]), Some([15.0, 25.0])],
            ..Points::default()
        };
        let values = [String::from("1"), String::from("2")];
        let chart = sweep("CPU", "", "iodepth", &values, &[points], &crate::numbers::count);
        let svg = chart.expect("a chart").svg;
        let bars: String = svg.split('<').filter(|e| e.contains("class=\"bar")).collect();
        let (lowest, floor) = (numbers(&bars, "y1")[0], 40.0 + PLOT);
        assert!((lowest - floor).abs() < 0.1, "{lowest} is not {floor}: {bars}");
    }

    #[test]
    fn the_names_of_shares_do_not_overlap_however_long_the_tail() {
        for share in [0.99, 0.999, 0.9999, 0.99999, 0.999_996, 0.999_999, 1.0] {
            let quantiles = vec![(0.0, 1e3), (0.5, 1e4), (share, 1e6)];
            let curve = Curve { label: String::from("a"), quantiles };
            let svg = percentiles("Latency", "", &[curve]).expect("a chart").svg;
            let mut free = 0.0;
            for name in ["50 %", "90", "99", "99.9", "99.99", "99.999", "6 nines"] {
                let Some(end) = svg.find(&format!(">{name}</text>")) else { continue };
                let start = svg[..end].rfind("<text").expect("an element");
                let (_, rest) = svg[start..end].split_once("x=\"").expect("a place");
                let x: f64 = rest.split('"').next().expect("a number").parse().expect("a number");
                let half = name.len() as f64 * LETTER / 2.0;
                assert!(x - half >= free && x + half <= WIDTH + 0.1, "{share}: {name} at {x}");
                free = x + half;
            }
        }
    }
}

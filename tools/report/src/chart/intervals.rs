//! Charts of rounds and means: each round a dot, each mean a bar of its interval.

use super::axis::Axis;
use super::svg::{Anchor, Svg, colour, shortened};
use super::{DRAWN_MOST, WIDTH, thinned};
use crate::numbers::NONE;
use crate::page::{Chart, Table};

/// A variant in a chart of one metric.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) mean: f64,
    pub(crate) interval: Option<[f64; 2]>,
    /// Each round, and whether it counts.
    pub(crate) rounds: Vec<(f64, bool)>,
}

/// A bar of two parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) parts: [f64; 2],
}

/// Rows with a dot for each round, and mean and interval above; none without a number. They are
/// rates and times, so an interval goes down to 0 at most.
pub(crate) fn intervals(
    title: &str,
    note: &str,
    rows: &[Row],
    show: &dyn Fn(f64) -> String,
) -> Option<Chart> {
    let cut = |row: &Row| row.interval.map(|ends| ends.map(|end| end.max(0.0)));
    let values = rows.iter().flat_map(|row| {
        let ends = cut(row).unwrap_or([row.mean; 2]);
        row.rounds.iter().map(|(value, _)| *value).chain([row.mean]).chain(ends)
    });
    let axis = Axis::linear(values, false, (8.0, WIDTH - 8.0))?;
    let bottom = 24.0 + rows.len() as f64 * 50.0;
    let mut svg = Svg::new(bottom + 24.0);
    svg.text((0.0, 12.0), Anchor::Start, "h", title);
    for tick in axis.ticks(4) {
        svg.line((axis.at(tick), 20.0), (axis.at(tick), bottom), "g");
        let place = axis.at(tick).clamp(16.0, WIDTH - 20.0);
        svg.text((place, bottom + 15.0), Anchor::Middle, "a", &show(tick));
    }
    for (variant, row) in rows.iter().enumerate() {
        let top = 24.0 + variant as f64 * 50.0;
        let value = match cut(row) {
            Some([low, high]) => format!("{} [{} to {}]", show(row.mean), show(low), show(high)),
            None => show(row.mean),
        };
        let value_width = value.chars().count() as f64 * 6.9;
        let room = ((WIDTH - value_width - 12.0) / 7.0).max(4.0) as usize;
        svg.text((0.0, top + 13.0), Anchor::Start, "t", &shortened(&row.label, room));
        svg.text((WIDTH, top + 13.0), Anchor::End, "a", &value);
        let row = Row { interval: cut(row), ..row.clone() };
        draw_row(&mut svg, &axis, &row, variant, top + 32.0);
    }
    let label = format!("{title}: {}", spoken(rows, show));
    let caption = format!("{note}{}", axis.begin(show));
    let mut table = Table::new("", ["", "mean", "interval", "rounds"]);
    for row in rows {
        let interval = cut(row).map(|ends| ends.map(show).join(" to "));
        table.row([
            row.label.clone(),
            show(row.mean),
            interval.unwrap_or_else(|| NONE.into()),
            row.rounds.iter().filter(|(_, counts)| *counts).count().to_string(),
        ]);
    }
    Some(Chart { caption, svg: svg.finish(&label), table: Some(table) })
}

fn draw_row(svg: &mut Svg, axis: &Axis, row: &Row, variant: usize, y: f64) {
    let class = colour(variant);
    if let Some([low, high]) = row.interval {
        svg.rect(
            (axis.at(low), y - 8.0),
            axis.at(high) - axis.at(low),
            16.0,
            &format!("ci {class}"),
        );
    }
    svg.line(
        (axis.at(row.mean), y - 11.0),
        (axis.at(row.mean), y + 11.0),
        &format!("mean {class}"),
    );
    for (index, (value, counts)) in thinned(&row.rounds, DRAWN_MOST).iter().enumerate() {
        // Dots of equal rounds stand beside each other and not on each other.
        let place = (axis.at(*value), y + (index % 3) as f64 * 5.0 - 5.0);
        match counts {
            true => svg.marker(place, 2.8, variant, &format!("dot {class}")),
            false => svg.cross(place, 3.2, "void"),
        }
    }
}

fn spoken(rows: &[Row], show: &dyn Fn(f64) -> String) -> String {
    let row = |row: &Row| format!("{} {}", row.label, show(row.mean));
    rows.iter().map(row).collect::<Vec<_>>().join(", ")
}

/// Runs in the order in which they were made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    pub(crate) title: &'a str,
    pub(crate) note: &'a str,
    pub(crate) labels: &'a [String],
    /// Its variant, its value, and whether it counts.
    pub(crate) runs: &'a [(usize, f64, bool)],
    /// Whether the axis begins at 0.
    pub(crate) zero: bool,
}

/// Every run in the order in which it was made: a drift shows, and what was voided.
pub(crate) fn order(chart: &Order<'_>, show: &dyn Fn(f64) -> String) -> Option<Chart> {
    let Order { title, note, labels, runs, zero } = *chart;
    let mut svg = Svg::new(0.0);
    svg.text((0.0, 12.0), Anchor::Start, "h", title);
    let top = svg.legend(30.0, labels, "dot") + 10.0;
    let (left, bottom) = (54.0, top + 130.0);
    let axis = Axis::linear(runs.iter().map(|run| run.1), zero, (bottom, top + 4.0))?;
    for tick in axis.ticks(4) {
        svg.line((left, axis.at(tick)), (WIDTH, axis.at(tick)), "g");
        svg.text((left - 5.0, axis.at(tick) + 4.0), Anchor::End, "a", &show(tick));
    }
    let drawn = thinned(runs, DRAWN_MOST * 6);
    let step = (WIDTH - left - 16.0) / (drawn.len().max(2) - 1) as f64;
    for (index, (variant, value, counts)) in drawn.iter().enumerate() {
        let place = (left + 8.0 + index as f64 * step, axis.at(*value));
        match counts {
            true => svg.marker(place, 3.4, *variant, &format!("dot {}", colour(*variant))),
            false => svg.cross(place, 4.0, "void"),
        }
    }
    svg.text((left, bottom + 16.0), Anchor::Start, "a", "first run");
    svg.text((WIDTH, bottom + 16.0), Anchor::End, "a", "last run");
    svg.set_height(bottom + 24.0);
    let caption = format!("{note}{}", axis.begin(show));
    let mut table = Table::new("", ["", "runs", "least", "middle", "most"]);
    for (variant, label) in labels.iter().enumerate() {
        let own = runs.iter().filter(|run| run.0 == variant && run.2 && run.1.is_finite());
        let mut values: Vec<f64> = own.map(|run| run.1).collect();
        values.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (values.first(), values.last()) else { continue };
        let middle = values[values.len() / 2];
        let count = values.len().to_string();
        table.row([label.clone(), count, show(*least), show(middle), show(*most)]);
    }
    let table = Some(table).filter(|table| !table.rows.is_empty());
    Some(Chart { caption, svg: svg.finish(title), table })
}

/// Bars of two parts, each with its value; `names` are those of the parts.
pub(crate) fn stacked(
    title: &str,
    note: &str,
    names: [&str; 2],
    bars: &[Bar],
    show: &dyn Fn(f64) -> String,
) -> Option<Chart> {
    let longest = bars.iter().map(|bar| bar.parts[0] + bar.parts[1]).fold(0.0, f64::max);
    if !(longest > 0.0 && longest.is_finite()) {
        return None;
    }
    let bottom = 44.0 + bars.len() as f64 * 44.0;
    let mut svg = Svg::new(bottom + 4.0);
    svg.text((0.0, 12.0), Anchor::Start, "h", title);
    svg.rect((0.0, 22.0), 12.0, 10.0, "wait");
    svg.text((17.0, 31.0), Anchor::Start, "t", names[0]);
    let second = 34.0 + names[0].chars().count() as f64 * 7.0;
    svg.rect((second, 22.0), 12.0, 10.0, "device");
    svg.text((second + 17.0, 31.0), Anchor::Start, "t", names[1]);
    for (index, bar) in bars.iter().enumerate() {
        let top = 44.0 + index as f64 * 44.0;
        let [wait, device] = bar.parts;
        let value = format!("{} + {}", show(wait), show(device));
        let room = ((WIDTH - value.chars().count() as f64 * 6.9 - 12.0) / 7.0).max(4.0) as usize;
        svg.text((0.0, top + 11.0), Anchor::Start, "t", &shortened(&bar.label, room));
        svg.text((WIDTH, top + 11.0), Anchor::End, "a", &value);
        let [wait, device] = [wait, device].map(|part| part / longest * WIDTH);
        svg.rect((0.0, top + 16.0), wait, 16.0, "wait");
        svg.rect((wait, top + 16.0), device, 16.0, "device");
    }
    let mut table = Table::new("", ["", names[0], names[1]]);
    bars.iter().for_each(|bar| {
        table.row([bar.label.clone(), show(bar.parts[0]), show(bar.parts[1])]);
    });
    Some(Chart { caption: String::from(note), svg: svg.finish(title), table: Some(table) })
}

//! Cases of a scene in virtual time: curves over what was varied, the source's figures beside them,
//! and where the time went.

use std::collections::BTreeSet;

use super::warning;
use crate::chart::{Bar, Points, stacked, sweep};
use crate::numbers::{NONE, count, time};
use crate::page::{Chart, Page, Section, Table};
use crate::tone::{Tone, Verdict};
use weir_trace::document::{SimChecked, SimDocument, SimRow};

/// Lines in a chart at most: there are so many colours and dashes.
const LINES_MAX: usize = 6;

/// Adds what was simulated; its title.
pub(crate) fn compose(page: &mut Page, document: &SimDocument) -> String {
    page.verdicts.extend(answer(document));
    let partial = document.partial.then(|| String::from("It was broken off: cases are missing."));
    page.verdicts.extend(partial.map(warning));
    page.verdicts.extend(document.notices.iter().map(|notice| warning(notice.clone())));
    page.sections.push(figures(document));
    page.sections.push(times(document));
    let mut section = Section::new("How it was simulated");
    let settings = document.settings.iter();
    let settings = settings.map(|(name, value)| format!("{name}={}", crate::numbers::words(value)));
    section.notes(vec![
        format!("settings: {}", settings.collect::<Vec<_>>().join(" ")),
        format!("seed: {}", document.seed),
        format!(
            "{} I/Os, {:.3} s of simulated time, in {:.1} s",
            count(document.requests as f64),
            document.simulated_s,
            document.wall_s
        ),
    ]);
    page.sections.push(section);
    format!("{}, simulated", document.scene)
}

/// How our figures stand to the source's.
fn answer(document: &SimDocument) -> Option<Verdict> {
    let checked: Vec<&SimChecked> =
        document.rows.iter().filter_map(|row| row.checked.as_ref()).collect();
    let sourced = checked.iter().filter(|one| one.source.is_some()).count();
    if sourced == 0 {
        return None;
    }
    let bounded = checked.iter().filter(|one| one.within.is_some()).count();
    let within = checked.iter().filter(|one| one.within == Some(true)).count();
    let predicted = checked.iter().filter(|one| one.fitted == Some(false)).count();
    Some(Verdict {
        tone: if within == bounded { Tone::Plain } else { Tone::Warning },
        text: format!(
            "{sourced} figures of the source: {within} of {bounded} that have a bound are within \
             it; {predicted} of all were predicted, the others fitted."
        ),
    })
}

/// The parts of a case's name, `NAME=VALUE` each; what is none has no name.
fn parts(case: &str) -> impl Iterator<Item = (&str, &str)> {
    case.split(' ').map(|part| part.split_once('=').unwrap_or(("", part)))
}

/// The case without one of its parts.
fn without(case: &str, name: &str) -> String {
    let kept = parts(case).filter(|(of, _)| *of != name);
    let shown = |(name, value): (&str, &str)| match name {
        "" => value.to_owned(),
        _ => format!("{name}={value}"),
    };
    kept.map(shown).collect::<Vec<_>>().join(" ")
}

/// The number that was varied most among these rows, if any has several values.
fn varied<'a>(rows: &[&'a SimRow]) -> Option<&'a str> {
    let names: BTreeSet<&str> =
        rows.iter().flat_map(|row| parts(&row.case).map(|(name, _)| name)).collect();
    let values = |name: &str| -> Option<usize> {
        let of = |row: &&'a SimRow| parts(&row.case).find(|(of, _)| *of == name);
        let all: Option<BTreeSet<&str>> =
            rows.iter().map(|row| of(row).map(|(_, value)| value)).collect();
        let all = all.filter(|all| all.iter().all(|value| value.parse::<f64>().is_ok()))?;
        Some(all.len())
    };
    let counted = names.into_iter().filter_map(|name| Some((values(name)?, name)));
    counted.filter(|(count, _)| *count > 1).max_by_key(|(count, _)| *count).map(|(_, name)| name)
}

/// How a metric is shown: its unit is in its name.
fn shown(metric: &str) -> impl Fn(f64) -> String + use<> {
    let unit = [("_us", 1e3), ("_ms", 1e6), ("_s", 1e9)];
    let rate = metric.ends_with("_per_s");
    let ns = unit.into_iter().find(|(end, _)| !rate && metric.ends_with(end)).map(|(_, ns)| ns);
    let is_share = metric.ends_with("_pct");
    move |value| match ns {
        Some(ns) => time(value * ns),
        None if is_share => format!("{} %", count(value)),
        None => count(value),
    }
}

fn figures(document: &SimDocument) -> Section {
    let mut section = Section::new("Figures");
    let mut metrics: Vec<&str> = Vec::new();
    for row in &document.rows {
        if !metrics.contains(&row.metric.as_str()) {
            metrics.push(&row.metric);
        }
    }
    section.charts(metrics.iter().map(|metric| chart(document, metric)));
    section.table(table(document));
    section.table(raw(document));
    section
}

/// What the source has, and nothing of ours is beside.
fn raw(document: &SimDocument) -> Table {
    let head = ["of the source", "before", "after", "change", "why it is compared with nothing"];
    let mut table = Table::new("Of the source, compared with nothing", head);
    for one in &document.raw {
        let [before, after] = [one.before, one.after].map(|value| value.to_string());
        let change = format!("{:+.1} %", one.change_pct);
        table.rows.push(vec![one.what.clone(), before, after, change, one.why.clone()]);
    }
    table
}

/// Every figure, with the source's beside it where there is one.
fn table(document: &SimDocument) -> Table {
    let is_checked = document.rows.iter().any(|row| source(row).is_some());
    let mut table = Table::new("Every figure", ["case", "metric", "ours"]);
    if is_checked {
        table.head.extend(["source", "error", "bound", ""].map(String::from));
    }
    for row in &document.rows {
        let show = shown(&row.metric);
        let mut cells = vec![row.case.clone(), row.metric.clone(), show(row.value)];
        if is_checked {
            let checked = row.checked.as_ref();
            let of = |text: Option<String>| text.unwrap_or_else(|| NONE.into());
            let how = match checked.and_then(|one| one.fitted) {
                Some(true) => "fitted",
                Some(false) => "predicted",
                None => "",
            };
            let off = match checked.map(|one| (one.within, one.known_miss)) {
                Some((Some(false), Some(true))) => ", off, as is known",
                Some((Some(false), _)) => ", off",
                _ => "",
            };
            cells.extend([
                of(source(row).map(&show)),
                of(checked.and_then(|one| one.error_pct).map(|pct| format!("{pct:+.1} %"))),
                of(checked.and_then(|one| one.bound.clone())),
                format!("{how}{off}"),
            ]);
        }
        table.rows.push(cells);
    }
    table
}

fn source(row: &SimRow) -> Option<f64> {
    row.checked.as_ref().and_then(|checked| checked.source)
}

/// A metric over the number that was varied, a line for each choice of the rest.
fn chart(document: &SimDocument, metric: &str) -> Option<Chart> {
    let rows: Vec<&SimRow> = document.rows.iter().filter(|row| row.metric == metric).collect();
    let name = varied(&rows)?;
    let value = |row: &&SimRow| {
        parts(&row.case).find(|(of, _)| *of == name).map_or("", |(_, value)| value).to_owned()
    };
    let mut values: Vec<String> = rows.iter().map(value).collect();
    let number = |text: &String| text.parse::<f64>().unwrap_or_default();
    values.sort_by(|a, b| number(a).total_cmp(&number(b)));
    values.dedup();
    let mut lines: Vec<(String, Points)> = Vec::new();
    for row in &rows {
        let label = without(&row.case, name);
        let at = match lines.iter().position(|(known, _)| *known == label) {
            Some(at) => at,
            None => {
                let points = Points { lines: vec![Vec::new()], ..Points::default() };
                lines.push((label, points));
                lines.len() - 1
            }
        };
        let own = value(row);
        let place = values.iter().position(|known| *known == own).unwrap_or_default() as f64;
        let points = &mut lines[at].1;
        points.lines[0].push((place, row.value));
        points.intervals.push(None);
        points.beside.extend(source(row).map(|source| (place, source)));
    }
    lines.iter_mut().for_each(|(_, points)| {
        points.lines[0].sort_by(|a, b| a.0.total_cmp(&b.0));
    });
    let left_out = lines.len().saturating_sub(LINES_MAX);
    if left_out > 0 {
        // What the source has a figure of is what a check is read for.
        lines.sort_by_key(|(_, points)| points.beside.is_empty());
    }
    lines.truncate(LINES_MAX);
    let (labels, lines): (Vec<String>, Vec<Points>) = lines.into_iter().unzip();
    let shared = shared(&labels.iter().map(String::as_str).collect::<Vec<_>>());
    let label = |label: &str| {
        let own = parts(label).filter(|part| !shared.contains(part));
        own.map(|(_, value)| value).collect::<Vec<_>>().join(" ")
    };
    let has_source = lines.iter().any(|points| !points.beside.is_empty());
    let named = labels.iter().zip(lines);
    let all: Vec<Points> =
        named.map(|(name, points)| Points { label: label(name), ..points }).collect();
    let mut note = String::from(match has_source {
        true => "A mark is simulated; a cross is the source's figure.",
        false => "Simulated.",
    });
    if left_out > 0 {
        note.push_str(&format!(" {left_out} further lines are in the table alone."));
    }
    sweep(metric, &note, name, &values, &all, &shown(metric))
}

/// The parts that all of these cases have.
fn shared<'a>(cases: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let Some((first, rest)) = cases.split_first() else { return Vec::new() };
    let in_all = |part: &(&str, &str)| rest.iter().all(|case| parts(case).any(|of| of == *part));
    match rest {
        [] => Vec::new(),
        _ => parts(first).filter(in_all).collect(),
    }
}

/// Where the time of processors and of I/Os went.
fn times(document: &SimDocument) -> Section {
    let mut section = Section::new("Where the time went");
    let head = ["case", "processes", "system", "waiting for locks", "idle", "to the driver"];
    let mut table = Table::new("Of all processors' time, and of the mean latency", head);
    table.head.extend(["at the device", "back to the process"].map(String::from));
    for one in &document.times {
        let mut cells = vec![one.case.clone()];
        let shares = [one.user_pct, one.system_pct, one.waiting_pct, one.idle_pct];
        cells.extend(shares.map(|share| format!("{share:.1} %")));
        cells.extend([one.queue_wait_ns, one.device_ns, one.return_ns].map(time));
        table.rows.push(cells);
    }
    let bar = |one: &weir_trace::document::SimTimes| Bar {
        label: one.case.clone(),
        parts: [one.queue_wait_ns, one.device_ns + one.return_ns],
    };
    let bars: Vec<Bar> = document.times.iter().map(bar).collect();
    let names = ["until the driver had it", "from then on"];
    let note = "Mean latency, and its part before the driver: queue, scheduler, locks.";
    section.charts([stacked("Mean latency, where it went", note, names, &bars, &time)]);
    section.table(table);
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &str, metric: &str, value: f64, source: Option<f64>) -> SimRow {
        let checked = source.map(|source| SimChecked {
            source: Some(source),
            error_pct: Some((value / source - 1.0) * 100.0),
            fitted: Some(false),
            bound: Some("5 %".into()),
            known_miss: Some(false),
            within: Some(true),
        });
        SimRow { case: case.into(), metric: metric.into(), value, checked }
    }

    #[test]
    fn curves_are_over_the_number_with_most_values_and_crosses_are_the_sources() {
        let mut document = SimDocument::default();
        for (scheduler, each) in [("none", 10.0), ("bfq", 4.0)] {
            for processes in [10, 2, 4] {
                let case = format!("scheduler={scheduler} processes={processes} ssds=1");
                let source = (processes == 4).then_some(5.0);
                document.rows.push(row(&case, "iops", each * f64::from(processes), source));
            }
        }
        let rows: Vec<&SimRow> = document.rows.iter().collect();
        assert_eq!(varied(&rows), Some("processes"));
        let svg = chart(&document, "iops").expect("a chart").svg;
        let at = |text: &str| svg.find(&format!(">{text}<")).unwrap_or_else(|| panic!("{text}"));
        assert!(at("2") < at("4") && at("4") < at("10"), "in their order as numbers: {svg}");
        assert!(svg.contains(">none<") && svg.contains(">bfq<"), "{svg}");
        assert_eq!(svg.matches("class=\"beside").count(), 4, "two crosses: {svg}");
        assert!(chart(&document, "latency_us").is_none(), "no such metric");
        document.rows.truncate(1);
        assert!(chart(&document, "iops").is_none(), "one value is no curve");
    }

    #[test]
    fn the_lines_of_a_full_chart_are_first_those_that_the_source_has_a_figure_of() {
        let mut document = SimDocument::default();
        for kind in 1..=8 {
            for processes in [1, 2] {
                let case = format!("kind=k{kind} processes={processes}");
                document.rows.push(row(&case, "iops", 5.0, (kind >= 7).then_some(5.0)));
            }
        }
        let svg = chart(&document, "iops").expect("a chart").svg;
        let has = |kind: &str| svg.contains(&format!(">{kind}<"));
        assert_eq!(
            [1, 4, 5, 7, 8].map(|kind| has(&format!("k{kind}"))),
            [true, true, false, true, true]
        );
        let note = chart(&document, "iops").expect("a chart");
        assert!(note.svg.contains("2 further lines") || note.caption.contains("2 further lines"));
        // Where all have a place they keep their order.
        document.rows.retain(|row| !["k2", "k3"].iter().any(|kind| row.case.contains(kind)));
        let svg = chart(&document, "iops").expect("a chart").svg;
        let at = |text: &str| svg.find(&format!(">{text}<")).unwrap_or_else(|| panic!("{text}"));
        assert!(at("k1") < at("k7"), "{svg}");
    }

    #[test]
    fn what_nothing_is_compared_with_is_a_table_of_its_own() {
        let raw = weir_trace::document::SimRaw {
            what: "tps".into(),
            before: 64.5,
            after: 112.42,
            change_pct: 74.3,
            why: "An average since boot.".into(),
        };
        let document = SimDocument { raw: vec![raw], ..SimDocument::default() };
        let cells = ["tps", "64.5", "112.42", "+74.3 %", "An average since boot."];
        assert_eq!(super::raw(&document).rows, [cells.map(String::from).to_vec()]);
    }

    #[test]
    fn a_unit_is_the_end_of_a_name_and_rates_have_none() {
        assert_eq!(shown("latency_us")(1500.0), "1.5 ms");
        assert_eq!(shown("makespan_s")(2.0), "2 s");
        assert_eq!(shown("mib_per_s")(2.0), "2");
        assert_eq!(shown("lock_wait_pct")(2.5), "2.50 %");
    }
}

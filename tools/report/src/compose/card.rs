//! The card that a page opens with, and what stands under it: each variant against the first in
//! one chart, and all of them in one matrix.

use weir_trace::document::{Compare, CompareDocument};
use weir_trace::metric::{METRICS, Metric, primary};

use super::jobs;
use super::variants::ground;
use crate::answer::answer;
use crate::chart::{Change, ratios};
use crate::numbers::{NONE, change, percent, shown};
use crate::page::{Card, Chart, Section, Table};
use crate::rank::{Place, against, between, places};
use crate::terminal::order;
use crate::verdict::{capital, short};

/// The answer, with where and when it was found.
pub(super) fn card(document: &CompareDocument) -> Card {
    Card { about: String::new(), answer: answer(&document.compare), facts: facts(document) }
}

fn facts(document: &CompareDocument) -> Vec<(&'static str, String)> {
    let compare = &document.compare;
    let first = document.runs.first().map(|run| &run.document.environment);
    let model = first.map(|one| one.cpu_model.as_str()).unwrap_or_default();
    let cpus = compare.environment.cpus;
    let kernel = &compare.environment.kernel;
    let simulated = kernel == "simulated";
    let machine = match (cpus, simulated) {
        (0, _) => String::new(),
        (_, true) => format!("{cpus} processors, simulated"),
        _ => format!("{cpus} × {model}, Linux {kernel}"),
    };
    let date = document.started_at.replace('T', " ").replace('Z', " UTC");
    let rounds = compare.variants.iter().map(|variant| variant.rounds.len()).max().unwrap_or(0);
    let facts = [
        ("machine", machine),
        ("disk", ground(document)),
        ("job", jobs::name(&document.job)),
        ("date", date),
        ("rounds", if rounds > 0 { rounds.to_string() } else { String::new() }),
    ];
    facts.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// The metrics that were compared, the primary one first.
fn compared(document: &CompareDocument) -> Vec<&'static Metric> {
    let compare = &document.compare;
    let name = primary(compare);
    let is_there =
        |metric: &&Metric| compare.comparisons.iter().any(|found| found.metric == metric.name);
    let mut metrics: Vec<&Metric> = METRICS.iter().filter(is_there).collect();
    metrics.sort_by_key(|metric| metric.name != name);
    metrics
}

/// All variants against the first by all metrics: a chart, and the table of its figures.
pub(super) fn against_first(document: &CompareDocument, labels: &[String]) -> Option<Section> {
    let first = labels.first()?;
    let compare = &document.compare;
    let metrics = compared(document);
    let rows = metrics.iter().map(|metric| {
        let of = |at: usize| {
            let found = against(compare, metric, 0, at)?;
            Some(Change {
                label: labels[at].clone(),
                variant: at,
                ratio: found.ratio,
                interval: found.interval,
                is_better: found.is_better(metric),
                shown: shown_change(found.ratio),
            })
        };
        let better = if metric.more_is_better { "more is better" } else { "less is better" };
        let name = format!("{} ({better})", capital(metric.title));
        (name, (1..labels.len()).filter_map(of).collect::<Vec<_>>())
    });
    let rows: Vec<(String, Vec<Change>)> =
        rows.filter(|(_, changes)| !changes.is_empty()).collect();
    let mut section = Section::new(format!("Every metric against {first}"));
    let note = format!(
        "The change and its {} interval, which the verdicts go by: a full mark is a difference, ▲ \
         for the better, ▼ for the worse, and a hollow mark is none that was seen.",
        level(compare)
    );
    let figures = table(document, labels, &metrics);
    match ratios(&format!("Change against {first}"), &note, &rows) {
        Some(chart) => section.charts([Some(Chart { table: Some(figures), ..chart })]),
        None => section.table(figures),
    }
    (!section.blocks.is_empty()).then_some(section)
}

/// A change in per cent, or as a multiple.
fn shown_change(of: f64) -> String {
    match of {
        _ if of < 10.0 => change(1.0, of),
        _ if of <= 1000.0 => format!("{of:.1} ×"),
        _ => String::from("> 1,000 ×"),
    }
}

/// The level of the intervals that the verdicts go by: documents of the first version have no other
/// than those of 95 %.
fn level(compare: &Compare) -> &'static str {
    let has_none = compare.comparisons.iter().all(|found| found.ci99.is_none());
    let has_95 = compare.comparisons.iter().any(|found| found.ci95.is_some());
    if has_none && has_95 { "95 %" } else { "99 %" }
}

fn table(document: &CompareDocument, labels: &[String], metrics: &[&'static Metric]) -> Table {
    let compare = &document.compare;
    let interval = format!("{} interval", level(compare));
    let head = ["metric", "variant", "change", &interval, "verdict", "visible from"];
    let mut table = Table::new("", head);
    for metric in metrics {
        for (at, label) in labels.iter().enumerate().skip(1) {
            let Some(found) = between(compare, metric, 0, at) else { continue };
            let known = against(compare, metric, 0, at);
            let interval = known.map(|known| {
                let [low, high] = known.interval;
                format!("{} to {}", shown_change(low), shown_change(high))
            });
            let seen = found.min_detectable_effect.filter(|effect| effect.is_finite());
            table.row([
                capital(metric.title),
                label.clone(),
                known.map_or(NONE.into(), |known| shown_change(known.ratio)),
                interval.unwrap_or_else(|| NONE.into()),
                match found.verdict.starts_with("not compared") {
                    true => found.verdict.clone(),
                    false => short(found, label).split(',').next().unwrap_or_default().into(),
                },
                seen.map_or(NONE.into(), percent),
            ]);
        }
    }
    table
}

/// The most variants that stand beside each other, so that a page of paper holds them.
const BESIDE_MOST: usize = 6;

/// Three variants and more, best first, by every metric: a column for each variant, or a row where
/// they are many.
pub(super) fn matrix(document: &CompareDocument, labels: &[String]) -> Option<Section> {
    if labels.len() < 3 {
        return None;
    }
    let compare = &document.compare;
    let metrics = compared(document);
    let order = order(&places(compare, metrics.first()?));
    let names = || order.iter().map(|at| labels[*at].clone());
    let titles = || metrics.iter().map(|metric| capital(metric.title));
    // A row for each metric, without its name.
    let cells: Vec<Vec<String>> = metrics
        .iter()
        .map(|metric| {
            let places = places(compare, metric);
            order.iter().map(|at| cell(document, metric, *at, places[*at])).collect()
        })
        .collect();
    let caption = "★ the best; ★= not told apart from the best; others with their rank";
    let mut table = Table::new(caption, [""]);
    if labels.len() <= BESIDE_MOST {
        table.head.extend(names());
        let rows = titles().zip(cells);
        table.rows.extend(rows.map(|(title, row)| std::iter::once(title).chain(row).collect()));
    } else {
        table.head.extend(titles());
        table.rows.extend(names().enumerate().map(|(at, name)| {
            let own = cells.iter().map(|row| row[at].clone());
            std::iter::once(name).chain(own).collect()
        }));
    }
    let mut section = Section::new("All variants");
    section.table(table);
    Some(section)
}

/// A variant by a metric: its value, with its place before it.
fn cell(document: &CompareDocument, metric: &Metric, at: usize, place: Option<Place>) -> String {
    let estimate = metric.of_variant(&document.compare.variants[at]);
    let value = estimate.map(|known| shown(metric, known.gmean.unwrap_or(known.mean)));
    let value = value.unwrap_or_else(|| NONE.into());
    match place {
        Some(Place { rank: 1, is_head: true, .. }) => format!("★ {value}"),
        Some(Place { rank: 1, .. }) => format!("★= {value}"),
        Some(Place { rank, .. }) => format!("{rank}. {value}"),
        None => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::tests::{add, of};
    use weir_trace::metric::{CPU, IOPS};

    fn table_of(values: &[(&str, f64)]) -> Table {
        let mut compare = of(IOPS, values);
        add(&mut compare, CPU, &values.iter().map(|(_, value)| *value).collect::<Vec<_>>());
        let labels = crate::verdict::labels(&compare);
        let document = CompareDocument { compare, ..CompareDocument::default() };
        let section = matrix(&document, &labels).expect("a matrix");
        let [crate::page::Block::Table(table)] = &section.blocks[..] else { panic!("a table") };
        table.clone()
    }

    #[test]
    fn a_few_variants_stand_beside_each_other_and_many_below() {
        let few = [("none", 100.0), ("bfq", 50.0), ("kyber", 104.0)];
        let table = table_of(&few);
        assert_eq!(table.head, ["", "kyber", "none", "bfq"]);
        assert_eq!(table.rows[0], ["IOPS", "★ 104", "★= 100", "3. 50"]);
        assert_eq!(table.rows[1], ["CPU per I/O", "2. 104 ns", "2. 100 ns", "★ 50 ns"]);
        let many = [("a", 1.0), ("b", 2.0), ("c", 4.0), ("d", 8.0), ("e", 16.0), ("f", 32.0)];
        let table = table_of(&[&many[..], &[("g", 64.0)]].concat());
        assert_eq!(table.head, ["", "IOPS", "CPU per I/O"]);
        assert_eq!(table.rows[0], ["g", "★ 64", "7. 64 ns"]);
        assert_eq!(table.rows.len(), 7);
    }
}

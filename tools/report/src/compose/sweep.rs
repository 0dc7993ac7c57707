//! A comparison for each of several values: the table of the documents, and curves.

use super::bench::{own_figure, share_pct};
use super::compare::{broken, ends, estimate, machine, told, unequal};
use super::merged::mean;
use super::rounds::benches;
use super::{card, jobs, repeat, variants, warning};
use crate::chart::{Points, sweep};
use crate::numbers::{NONE, change, shown, words};
use crate::page::{Block, Card, Chart, Page, Section, Table};
use crate::sources;
use crate::tone::{Tone, Verdict};
use crate::verdict::{self, capital, is_alike, is_decided, is_difference, labels, verdicts};
use weir_trace::document::{Compare, CompareDocument, Comparison, SweepDocument, Variant};
use weir_trace::metric::{METRICS, Metric};

/// Adds a sweep; its title.
pub(crate) fn compose(page: &mut Page, document: &SweepDocument) -> String {
    let Some(first) = document.points.first().map(|point| &point.document) else {
        page.verdicts.push(warning(format!("The sweep over {} has no point.", document.name)));
        return format!("a sweep over {}", document.name);
    };
    let labels = labels(&first.compare);
    page.cards.extend(document.points.iter().map(|point| {
        let about = format!("{}={}", document.name, point.value);
        Card { about, facts: Vec::new(), ..card::card(&point.document) }
    }));
    if let (Some(last), Some(of)) = (page.cards.last_mut(), document.points.last()) {
        last.facts = card::card(&of.document).facts;
    }
    for point in &document.points {
        let told = told(&point.document).into_iter().chain(broken(&point.document));
        let told = told.chain(unequal(&point.document));
        page.verdicts.extend(told.map(|verdict| Verdict {
            text: format!("{}={}: {}", document.name, point.value, verdict.text),
            ..verdict
        }));
    }
    page.verdicts.extend(unreached(document));
    page.sections.push(results(document, &labels));
    let along = summary(document, &labels);
    if !along.is_empty() {
        let mut section = Section::new("Along the sweep").folded();
        section.blocks.push(Block::Verdicts { verdicts: along });
        page.sections.push(section);
    }
    page.sections.push(variants::section(first, &labels).folded());
    for point in &document.points {
        let found = verdicts(&point.document.compare);
        if !found.is_empty() {
            let mut section =
                Section::new(format!("Verdicts at {}={}", document.name, point.value)).folded();
            section.blocks.push(Block::Verdicts { verdicts: found });
            page.sections.push(section);
        }
    }
    page.sections.extend(published(document, &labels).map(Section::folded));
    let voided: u64 =
        document.points.iter().map(|point| point.document.compare.environment.voided_rounds).sum();
    let mut facts = vec![("target", variants::ground(first))];
    facts.extend(jobs::facts_of_all(&first.job, &document.name));
    let environments = document.points.iter().map(|point| &point.document.compare.environment);
    let steal = environments.map(|environment| environment.steal_pct).fold(0.0, f64::max);
    facts.extend(machine(first).into_iter().filter(|(name, _)| *name != "steal time"));
    facts.extend([
        ("most steal time at a point", format!("{steal:.1} %")),
        ("rounds voided", voided.to_string()),
        ("began", first.started_at.clone()),
    ]);
    let variants = first.compare.variants.iter();
    facts.extend(
        variants
            .map(|variant| ("variant", format!("{}: {}", variant.name, words(&variant.options)))),
    );
    page.sections.push(repeat(&first.command, &facts));
    let what = labels.join(" against ");
    let ground = variants::ground(first);
    format!("{what} over {}: {} on {ground}", document.name, jobs::name(&first.job))
}

/// Values that the command line asks for and that have no point.
fn unreached(document: &SweepDocument) -> Option<Verdict> {
    let command = &document.points.first()?.document.command;
    let after = command.iter().position(|word| word == "--sweep").map(|at| at + 1);
    let given = after.and_then(|at| command.get(at)).map(String::as_str);
    let joined = || command.iter().find_map(|word| word.strip_prefix("--sweep="));
    let (name, values) = given.or_else(joined)?.split_once('=')?;
    let is_there = |value: &str| document.points.iter().any(|point| point.value == value);
    let missing: Vec<&str> = values.split(',').filter(|value| !is_there(value)).collect();
    (name == document.name && !missing.is_empty()).then(|| {
        warning(format!("The sweep broke off: nothing was run at {name}={}.", missing.join(", ")))
    })
}

/// Where along the sweep each metric differs, in one sentence for each pair.
fn summary(document: &SweepDocument, labels: &[String]) -> Vec<Verdict> {
    let pairs = (0..labels.len()).flat_map(|a| (a + 1..labels.len()).map(move |b| (a, b)));
    let pairs: Vec<_> = pairs.collect();
    let of = |metric| pairs.iter().filter_map(move |pair| along(document, labels, metric, *pair));
    METRICS.iter().flat_map(of).collect()
}

/// One metric of one pair over all values; none where it was never compared.
fn along(
    document: &SweepDocument,
    labels: &[String],
    metric: &Metric,
    (a, b): (usize, usize),
) -> Option<Verdict> {
    let (mut seen, mut undecided, mut compared) = (Vec::new(), Vec::new(), 0);
    let mut tones: Vec<Tone> = Vec::new();
    for point in &document.points {
        let Some(comparison) = pair(&point.document, metric, (a, b)) else { continue };
        compared += 1;
        if !is_decided(comparison) {
            undecided.push(point.value.as_str());
        }
        if let Some(ratio) = comparison.ratio.filter(|_| is_difference(comparison)) {
            seen.push(format!("{} at {}", change(1.0, ratio), point.value));
            let better = (ratio >= 1.0) == metric.more_is_better;
            tones.push(if better { Tone::Better } else { Tone::Worse });
        }
    }
    if compared == 0 {
        return None;
    }
    // Better here and worse there is neither.
    let tone = match tones.first() {
        None => Tone::Same,
        Some(first) if tones.iter().all(|tone| tone == first) => *first,
        Some(_) => Tone::Plain,
    };
    let pair = format!("{}, {} against {}", metric.title, labels[b], labels[a]);
    let found = match seen.is_empty() {
        _ if undecided.len() == compared => String::from("not compared"),
        true => format!("no detectable difference at any {}", document.name),
        false => format!("{} ({})", seen.join(", "), document.name),
    };
    let rest = match undecided.is_empty() || undecided.len() == compared {
        true => String::new(),
        false => format!("; not compared at {}", undecided.join(", ")),
    };
    let tone = if undecided.len() == compared { Tone::Plain } else { tone };
    Some(Verdict { tone, text: format!("{pair}: {found}{rest}.") })
}

/// The comparison of a metric of two variants at a point.
fn pair<'a>(
    point: &'a CompareDocument,
    metric: &Metric,
    (a, b): (usize, usize),
) -> Option<&'a Comparison> {
    let Compare { variants, comparisons, .. } = &point.compare;
    let (a, b) = (&variants.get(a)?.name, &variants.get(b)?.name);
    comparisons.iter().find(|c| c.metric == metric.name && c.a == *a && c.b == *b)
}

fn results(document: &SweepDocument, labels: &[String]) -> Section {
    let mut section = Section::new("Before and after");
    section.table(table(document, labels));
    section.charts(METRICS.iter().map(|metric| chart(document, labels, metric)));
    section
}

fn means(document: &SweepDocument, metric: &Metric, at: usize) -> Vec<Option<f64>> {
    let mean = |point: &CompareDocument| {
        let variant = point.compare.variants.get(at)?;
        estimate(point, metric, variant).map(|estimate| estimate.mean)
    };
    document.points.iter().map(|point| mean(&point.document)).collect()
}

/// The table in the form of the documents: values across, a row for each variant and the gain.
fn table(document: &SweepDocument, labels: &[String]) -> Table {
    let mut table = Table::new("", [document.name.as_str()]);
    table.head.extend(document.points.iter().map(|point| point.value.clone()));
    for metric in &METRICS {
        let rows: Vec<_> = (0..labels.len()).map(|at| means(document, metric, at)).collect();
        if rows.iter().flatten().all(Option::is_none) {
            continue;
        }
        for (label, row) in labels.iter().zip(&rows) {
            let cells = row.iter().map(|mean| mean.map_or(NONE.into(), |mean| shown(metric, mean)));
            let name = format!("{}, {label}", metric.title);
            table.rows.push(std::iter::once(name).chain(cells).collect());
        }
        for (at, label) in labels.iter().enumerate().skip(1) {
            let gain = document.points.iter().enumerate().map(|(index, point)| {
                let means = rows[0][index].zip(rows[at][index]);
                let of_means = means.map(|(before, after)| change(before, after));
                let of_pairs = pair(&point.document, metric, (0, at)).and_then(|found| found.ratio);
                let of_pairs = of_pairs.map(|ratio| change(1.0, ratio));
                of_pairs.or(of_means).unwrap_or_else(|| String::from(NONE))
            });
            let name = if labels.len() > 2 { format!("change, {label}") } else { "change".into() };
            table.rows.push(std::iter::once(name).chain(gain).collect());
            let verdicts = document
                .points
                .iter()
                .map(|point| pair(&point.document, metric, (0, at)).map_or(NONE, way).to_owned());
            let name =
                if labels.len() > 2 { format!("verdict, {label}") } else { "verdict".into() };
            table.rows.push(std::iter::once(name).chain(verdicts).collect());
        }
    }
    table
}

/// A verdict in a word.
fn way(comparison: &Comparison) -> &'static str {
    match is_difference(comparison) {
        _ if !is_decided(comparison) => "not compared",
        true => verdict::way(comparison),
        false if is_alike(comparison) => "the same",
        false => "none detected",
    }
}

fn chart(document: &SweepDocument, labels: &[String], metric: &Metric) -> Option<Chart> {
    let values: Vec<String> = document.points.iter().map(|point| point.value.clone()).collect();
    let mut is_wide = false;
    let points = labels.iter().enumerate().map(|(at, label)| {
        let known = document.points.iter().enumerate().filter_map(|(index, point)| {
            let variant = point.document.compare.variants.get(at)?;
            let estimate = estimate(&point.document, metric, variant)?;
            Some((index as f64, estimate))
        });
        let known: Vec<_> = known.collect();
        is_wide |= known.iter().any(|(_, estimate)| estimate.ci99.is_some());
        let line = known.iter().map(|(index, estimate)| (*index, estimate.mean)).collect();
        let intervals = known.iter().map(|(_, estimate)| estimate.ci99.or(estimate.ci95)).collect();
        Points { label: label.clone(), lines: vec![line], intervals, ..Points::default() }
    });
    let points: Vec<Points> = points.collect();
    let show: &dyn Fn(f64) -> String = &|value| shown(metric, value);
    let better = if metric.more_is_better { "more is better" } else { "less is better" };
    let all = || points.iter().flat_map(|points| &points.intervals);
    let note = match is_wide {
        _ if all().all(Option::is_none) => "Means of the rounds; too few for an interval.",
        true => "Means of the rounds; the bars are their 99 % intervals.",
        false => "Means of the rounds; the bars are their 95 % intervals.",
    };
    let title = format!("{} ({better})", capital(metric.title));
    sweep(&title, note, &document.name, &values, &points, show)
}

fn published(document: &SweepDocument, labels: &[String]) -> Option<Section> {
    let first = document.points.first().map(|point| &point.document)?;
    let preset = sources::preset(&first.job)?;
    // Depth is another thing, and runs that go through all numbers of threads themselves have none
    // of their own.
    let has_stages = first.job.get("jobs").is_some();
    let by_threads = ["threads", "numjobs"].contains(&document.name.as_str()) && !has_stages;
    let ours = |key: &str| {
        let (what, threads) = key.split_once(' ')?;
        let point = document.points.iter().find(|point| by_threads && point.value == threads)?;
        let variants = &point.document.compare.variants;
        let of = |variant: &Variant| {
            let rounds = benches(&point.document, variant);
            mean(rounds, |bench| match what {
                "iops" => Some(bench.figures.iops),
                "sys_pct" => share_pct(bench, |core| core.sys_s),
                _ => Some(bench.figures.latency_ns.mean / 1e6),
            })
        };
        let last = variants.last().filter(|_| variants.len() > 1);
        Some([variants.first().and_then(of), last.and_then(of)])
    };
    // One value alone: what its runs say of themselves.
    let only = |key: &str| {
        let variants = &first.compare.variants;
        let of = |variant: &Variant| mean(benches(first, variant), |bench| own_figure(bench, key));
        let found = [variants.first().and_then(of), variants.last().and_then(of)];
        found.iter().any(Option::is_some).then_some(found)
    };
    let names = ends(labels);
    Some(match document.points.len() {
        1 => sources::section(preset, &names, &only),
        _ => sources::section(preset, &names, &ours),
    })
}

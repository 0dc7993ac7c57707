//! A comparison for each of several values: the table of the documents, and curves.

use super::bench::own_figure;
use super::compare::{benches, estimate, unequal};
use super::merged::mean;
use super::{job_name, repeat, warning};
use crate::chart::{Points, sweep};
use crate::numbers::{NONE, change, count, words};
use crate::page::{Block, Chart, Page, Section, Table, Tone, Verdict};
use crate::sources;
use crate::verdict::{METRICS, Metric, Unit, is_difference, labels, verdicts};
use weir_trace::document::{Compare, CompareDocument, SweepDocument, Variant};

/// Adds a sweep; its title.
pub(crate) fn compose(page: &mut Page, document: &SweepDocument) -> String {
    let Some(first) = document.points.first().map(|point| &point.document) else {
        page.verdicts.push(warning(format!("The sweep over {} has no point.", document.name)));
        return format!("a sweep over {}", document.name);
    };
    let labels = labels(&first.compare);
    page.verdicts.extend(summary(document, &labels));
    for point in &document.points {
        page.verdicts.extend(unequal(&point.document).map(|verdict| Verdict {
            text: format!("{}={}: {}", document.name, point.value, verdict.text),
            ..verdict
        }));
    }
    page.sections.push(results(document, &labels));
    for point in &document.points {
        let found = verdicts(&point.document.compare);
        if !found.is_empty() {
            let mut section =
                Section::new(format!("Verdicts at {}={}", document.name, point.value));
            section.blocks.push(Block::Verdicts { verdicts: found });
            page.sections.push(section);
        }
    }
    if let Some(section) = published(document, &labels) {
        page.sections.push(section);
    }
    let environment = &first.compare.environment;
    let voided: u64 =
        document.points.iter().map(|point| point.document.compare.environment.voided_rounds).sum();
    let mut facts = vec![
        ("target", first.target.clone()),
        ("job", words(&first.job)),
        ("machine", format!("{} CPUs", environment.cpus)),
        ("kernel", environment.kernel.clone()),
        ("rounds voided", voided.to_string()),
        ("began", first.started_at.clone()),
    ];
    let variants = first.compare.variants.iter();
    facts.extend(
        variants
            .map(|variant| ("variant", format!("{}: {}", variant.name, words(&variant.options)))),
    );
    page.sections.push(repeat(&first.command, &facts));
    let what = labels.join(" against ");
    format!("{what} over {}: {} on {}", document.name, job_name(&first.job), first.target)
}

/// Where along the sweep each metric differs, in one sentence.
fn summary(document: &SweepDocument, labels: &[String]) -> Vec<Verdict> {
    let mut found = Vec::new();
    for metric in &METRICS {
        for (at, label) in labels.iter().enumerate().skip(1) {
            let name = |point: &CompareDocument, at: usize| {
                point.compare.variants.get(at).map(|variant| variant.name.clone())
            };
            let mut told = (Vec::new(), 0, Tone::Same);
            for point in &document.points {
                let (a, b) = (name(&point.document, 0), name(&point.document, at));
                let of_metric = point.document.compare.comparisons.iter().find(|comparison| {
                    let pair = (Some(&comparison.a), Some(&comparison.b));
                    comparison.metric == metric.key && pair == (a.as_ref(), b.as_ref())
                });
                let Some(comparison) = of_metric else { continue };
                told.1 += 1;
                if let Some(ratio) = comparison.ratio.filter(|_| is_difference(comparison)) {
                    told.0.push(format!("{} at {}", change(1.0, ratio), point.value));
                    let better = (ratio >= 1.0) == metric.more_is_better;
                    told.2 = if better { Tone::Better } else { Tone::Worse };
                }
            }
            let pair = format!("{}, {label} against {}", metric.name, labels[0]);
            match told {
                (_, 0, _) => {}
                (seen, _, _) if seen.is_empty() => found.push(Verdict {
                    tone: Tone::Same,
                    text: format!("{pair}: no detectable difference at any {}.", document.name),
                }),
                (seen, _, tone) => {
                    let text = format!("{pair}: {} ({}).", seen.join(", "), document.name);
                    found.push(Verdict { tone, text });
                }
            }
        }
    }
    found
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
            let cells = row.iter().map(|mean| mean.map_or(NONE.into(), |mean| metric.show(mean)));
            let name = format!("{}, {label}", metric.name);
            table.rows.push(std::iter::once(name).chain(cells).collect());
        }
        for (at, label) in labels.iter().enumerate().skip(1) {
            let gain = document.points.iter().enumerate().map(|(index, point)| {
                let means = rows[0][index].zip(rows[at][index]);
                let of_means = means.map(|(before, after)| change(before, after));
                let of_pairs = paired_ratio(&point.document, metric, at);
                let of_pairs = of_pairs.map(|ratio| change(1.0, ratio));
                of_pairs.or(of_means).unwrap_or_else(|| String::from(NONE))
            });
            let name = if labels.len() > 2 { format!("change, {label}") } else { "change".into() };
            table.rows.push(std::iter::once(name).chain(gain).collect());
        }
    }
    table
}

/// What the comparison says of the first variant and this one; see its table.
fn paired_ratio(point: &CompareDocument, metric: &Metric, at: usize) -> Option<f64> {
    let Compare { variants, comparisons, .. } = &point.compare;
    let (a, b) = (&variants.first()?.name, &variants.get(at)?.name);
    let mut comparisons = comparisons.iter();
    comparisons.find(|c| c.metric == metric.key && c.a == *a && c.b == *b)?.ratio
}

fn chart(document: &SweepDocument, labels: &[String], metric: &Metric) -> Option<Chart> {
    let values: Vec<String> = document.points.iter().map(|point| point.value.clone()).collect();
    let points = labels.iter().enumerate().map(|(at, label)| {
        let known = document.points.iter().enumerate().filter_map(|(index, point)| {
            let variant = point.document.compare.variants.get(at)?;
            let estimate = estimate(&point.document, metric, variant)?;
            Some((index as f64, estimate))
        });
        let known: Vec<_> = known.collect();
        let line = known.iter().map(|(index, estimate)| (*index, estimate.mean)).collect();
        let intervals = known.iter().map(|(_, estimate)| estimate.ci99.or(estimate.ci95)).collect();
        Points { label: label.clone(), lines: vec![line], intervals }
    });
    let points: Vec<Points> = points.collect();
    let show: &dyn Fn(f64) -> String = match metric.unit {
        Unit::PerSecond => &count,
        Unit::Nanoseconds => &crate::numbers::time,
    };
    sweep(metric.name, &document.name, &values, &points, show)
}

fn published(document: &SweepDocument, labels: &[String]) -> Option<Section> {
    let first = document.points.first().map(|point| &point.document)?;
    let preset = sources::preset(&first.job, &first.command)?;
    let by_threads = ["threads", "numjobs", "iodepth"].contains(&document.name.as_str());
    let ours = |key: &str| {
        let (what, threads) = key.split_once(' ')?;
        let point = document.points.iter().find(|point| by_threads && point.value == threads)?;
        let variants = &point.document.compare.variants;
        let of = |variant: &Variant| {
            let rounds = benches(&point.document, variant);
            mean(rounds, |bench| match what {
                "iops" => Some(bench.figures.iops),
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
    let names = [labels.first()?.as_str(), labels.last()?.as_str()];
    Some(match document.points.len() {
        1 => sources::section(preset, names, &only),
        _ => sources::section(preset, names, &ours),
    })
}

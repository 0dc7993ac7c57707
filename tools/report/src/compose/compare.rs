//! Variants in turn.

use super::bench::{group_name, latency, own_figure, rate};
use super::merged::{curve, mean, percentile_curve};
use super::rounds::{benches, counted};
use super::{card, cores, jobs, notices, queues, repeat, variants, warning};
use crate::chart::{
    Bar, Curve, Order, Points, Row, intervals, order, percentiles, series, stacked,
};
use crate::numbers::{NONE, byte_rate, change, count, ratio, shown, time, words};
use crate::page::{Block, Chart, Page, Section, Table};
use crate::sources;
use crate::verdict::{capital, labels, short, verdicts};
use crate::windows;
use weir_trace::document::{Bench, BenchDocument, CompareDocument, Estimate, Inference, Variant};
use weir_trace::labels::jobs_differ;
use weir_trace::metric::{METRICS, Metric};

/// Adds a comparison; its title.
pub(crate) fn compose(page: &mut Page, document: &CompareDocument) -> String {
    let labels = labels(&document.compare);
    page.cards.push(card::card(document));
    if document.compare.comparisons.is_empty() {
        let what = "Nothing was compared: a verdict takes two variants with rounds that count.";
        page.verdicts.push(warning(String::from(what)));
    }
    page.verdicts.extend(told(document));
    page.verdicts.extend(broken(document));
    page.verdicts.extend(unequal(document));
    page.sections.extend(card::against_first(document, &labels));
    page.sections.extend(card::matrix(document, &labels));
    let found = verdicts(&document.compare);
    if !found.is_empty() {
        let mut section = Section::new("Every two variants by every metric").folded();
        section.blocks.push(Block::Verdicts { verdicts: found });
        page.sections.push(section);
    }
    page.sections.push(variants::section(document, &labels).folded());
    page.sections.push(results(document, &labels).folded());
    // A command has no latencies of its own.
    let details = details(document, &labels).folded();
    page.sections.extend(Some(details).filter(|section| !section.blocks.is_empty()));
    page.sections.extend(published(document, &labels).map(Section::folded));
    page.sections.push(rounds(document, &labels).folded());
    page.sections.push(repeat(&document.command, &facts(document, &labels)));
    let what = labels.join(" against ");
    format!("{what}: {} on {}", jobs::name(&document.job), variants::ground(document))
}

/// The notices of the runs, with their variants where not all runs have them.
pub(super) fn told(document: &CompareDocument) -> Vec<crate::tone::Verdict> {
    let all = notices(document.runs.iter().map(|run| &run.document));
    let variants = &document.compare.variants;
    let say = |variant: &&Variant, text: &String| {
        let mut own = document.runs.iter().filter(|run| run.variant == variant.name);
        own.any(|run| run.document.notices.contains(text))
    };
    let by = |notice: crate::tone::Verdict| {
        let who: Vec<&str> = variants
            .iter()
            .filter(|variant| say(variant, &notice.text))
            .map(|variant| variant.name.as_str())
            .collect();
        match who.len() == variants.len() {
            true => notice,
            false => warning(format!("{}: {}", who.join(", "), notice.text)),
        }
    };
    all.into_iter().map(by).collect()
}

/// Runs that broke off, and the whole comparison where it ended early.
pub(super) fn broken(document: &CompareDocument) -> Vec<crate::tone::Verdict> {
    let partial = document.runs.iter().filter(|run| run.document.partial);
    let told = partial.map(|run| {
        let why = run.document.failure.as_deref().unwrap_or("nobody said why");
        warning(format!("Round {} of {} broke off: {why}.", run.round, run.variant))
    });
    let failure = document.compare.environment.other.get("failure").and_then(|why| why.as_str());
    let early = failure.map(|why| warning(format!("Partial: the comparison ended early: {why}.")));
    told.chain(early).collect()
}

/// Windows that were not of one length.
pub(crate) fn unequal(document: &CompareDocument) -> Option<crate::tone::Verdict> {
    let which = windows::of_comparison(document)?;
    Some(warning(format!("Windows of unequal length: {which}. Do not rely on the verdicts.")))
}

/// The value of a metric in a run of which nothing but its figures was kept.
fn value(metric: &Metric, bench: &Bench) -> Option<f64> {
    metric.of_run(&BenchDocument { bench: bench.clone(), ..BenchDocument::default() })
}

/// The estimate of a metric: that of the comparison, or the mean of the rounds.
pub(crate) fn estimate(
    document: &CompareDocument,
    metric: &Metric,
    variant: &Variant,
) -> Option<Estimate> {
    metric.of_variant(variant).or_else(|| {
        if metric.is_of_one_kind {
            // An older document, which does not compare by it.
            return None;
        }
        let rounds = benches(document, variant);
        let mean = mean(rounds, |bench| value(metric, bench)).filter(|mean| *mean != 0.0)?;
        Some(Estimate { mean, ..Estimate::default() })
    })
}

fn results(document: &CompareDocument, labels: &[String]) -> Section {
    let mut section = Section::new("Before and after");
    section.table(before_after(document, labels));
    section.table(groups(document, labels));
    let runs = compare_columns(document, labels);
    section.table(cores::table(&runs));
    section.table(queues::table(&runs));
    section.charts(METRICS.iter().map(|metric| metric_chart(document, labels, metric)));
    section
}

/// The table in the form of the documents: a row for each metric, and the gain.
fn before_after(document: &CompareDocument, labels: &[String]) -> Table {
    let compare = &document.compare;
    let mut table =
        Table::new("Means over rounds; the change is the mean of that within each round", [""]);
    table.head.extend(labels.iter().cloned());
    let pairs: Vec<(usize, usize)> = (1..compare.variants.len()).map(|to| (0, to)).collect();
    for (_, to) in &pairs {
        let of = if pairs.len() > 1 { format!("{}: change", labels[*to]) } else { "change".into() };
        table.head.extend([of, String::from("verdict")]);
    }
    for metric in &METRICS {
        let means = compare.variants.iter().map(|variant| estimate(document, metric, variant));
        let means: Vec<_> = means.map(|estimate| estimate.map(|estimate| estimate.mean)).collect();
        if means.iter().all(Option::is_none) {
            continue;
        }
        let mut row = vec![String::from(metric.title)];
        row.extend(means.iter().map(|mean| mean.map_or(NONE.into(), |mean| shown(metric, mean))));
        for (from, to) in &pairs {
            let (a, b) = (&compare.variants[*from].name, &compare.variants[*to].name);
            let found = compare.comparisons.iter().find(|comparison| {
                comparison.metric == metric.name && comparison.a == *a && comparison.b == *b
            });
            // The comparison's ratio is of pairs, and the verdict speaks of that; the ratio of the
            // means is another number.
            let gain = means[*from].zip(means[*to]).map(|(before, after)| change(before, after));
            let of_pairs = found.and_then(|found| found.ratio).map(|ratio| change(1.0, ratio));
            row.push(of_pairs.or(gain).unwrap_or_else(|| NONE.into()));
            row.push(found.map_or(NONE.into(), |found| short(found, &labels[*to])));
        }
        table.rows.push(row);
    }
    table
}

/// The runs of each variant that count, under its label.
fn compare_columns<'a>(
    document: &'a CompareDocument,
    labels: &[String],
) -> Vec<(String, Vec<&'a BenchDocument>)> {
    let variants = document.compare.variants.iter().zip(labels);
    variants.map(|(variant, label)| (label.clone(), counted(document, variant))).collect()
}

/// Groups that several variants have: reads, writes, the steps of transactions.
fn groups(document: &CompareDocument, labels: &[String]) -> Table {
    let variants = &document.compare.variants;
    let mut names: Vec<(String, String)> = Vec::new();
    for bench in variants.iter().flat_map(|variant| benches(document, variant)) {
        for group in &bench.groups {
            let name = (group.name.clone(), group.op.clone());
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let mut table = Table::new("By group: I/Os (or steps) per second at which mean latency", [""]);
    table.head.extend(labels.iter().cloned());
    if names.len() < 2 {
        return table;
    }
    for (name, op) in names {
        let cells = variants.iter().map(|variant| {
            let of = |pick: fn(&weir_trace::document::Figures) -> f64| {
                mean(benches(document, variant), |bench| {
                    let mut groups = bench.groups.iter();
                    let found = groups.find(|group| group.name == name && group.op == op);
                    found.map(|group| pick(&group.figures))
                })
            };
            let rate = of(|figures| figures.iops);
            let latency = of(|figures| figures.latency_ns.mean);
            match rate.zip(latency) {
                Some((rate, latency)) => format!("{}/s at {}", count(rate), time(latency)),
                None => String::from(NONE),
            }
        });
        table.rows.push(std::iter::once(group_name(&name, &op)).chain(cells).collect());
    }
    table
}

fn metric_chart(document: &CompareDocument, labels: &[String], metric: &Metric) -> Option<Chart> {
    let mut is_wide = false;
    let rows = document.compare.variants.iter().zip(labels).map(|(variant, label)| {
        let estimate = estimate(document, metric, variant)?;
        is_wide |= estimate.ci99.is_some();
        let runs = document.runs.iter().filter(|run| run.variant == variant.name);
        let mut rounds: Vec<(f64, bool)> = runs
            .filter_map(|run| {
                let counts = run.voided.is_none() && !run.document.partial;
                metric.of_run(&run.document).map(|value| (value, counts))
            })
            .collect();
        if rounds.is_empty() {
            let known = variant.rounds.iter().filter_map(|bench| value(metric, bench));
            rounds = known.map(|value| (value, true)).collect();
        }
        let interval = estimate.ci99.or(estimate.ci95);
        Some(Row { label: label.clone(), mean: estimate.mean, interval, rounds })
    });
    let rows = rows.collect::<Option<Vec<_>>>().filter(|rows| !rows.is_empty())?;
    let width = if is_wide { "99 %" } else { "95 %" };
    let void = rows.iter().flat_map(|row| &row.rounds).any(|(_, counts)| !counts);
    let void = if void { "; × a round that does not count" } else { "" };
    let note = match rows.iter().any(|row| row.interval.is_some()) {
        true => {
            format!("A mark is a round, the line the mean, the band its {width} interval{void}.")
        }
        false => {
            format!("A mark is a round, the line the mean; too few rounds for an interval{void}.")
        }
    };
    let better = if metric.more_is_better { "more is better" } else { "less is better" };
    let title = format!("{} ({better})", capital(metric.title));
    intervals(&title, &note, &rows, &|value| shown(metric, value))
}

fn details(document: &CompareDocument, labels: &[String]) -> Section {
    let mut section = Section::new("Latency, time, and where it went");
    let variants = || document.compare.variants.iter().zip(labels);
    let curves: Vec<Curve> = variants()
        .map(|(variant, label)| {
            let found = curve(label, ("all", "all"), &counted(document, variant));
            if !found.quantiles.is_empty() {
                return found;
            }
            let rounds = benches(document, variant);
            let latencies: Vec<_> = rounds.iter().map(|bench| bench.figures.latency_ns).collect();
            percentile_curve(label, &latencies)
        })
        .collect();
    let over_time = |of: fn(&BenchDocument) -> Points| {
        variants()
            .map(|(variant, label)| {
                let runs = counted(document, variant);
                let lines: Vec<_> = runs.into_iter().flat_map(|run| of(run).lines).collect();
                let first = mean_line(&lines);
                let lines = std::iter::once(first).chain(lines).collect();
                Points { label: label.clone(), lines, ..Points::default() }
            })
            .collect::<Vec<_>>()
    };
    let bars: Vec<Bar> = variants()
        .map(|(variant, label)| {
            let of = |pick: fn(&Bench) -> f64| {
                mean(benches(document, variant), |bench| Some(pick(bench))).unwrap_or(0.0)
            };
            let wait = of(|bench| bench.figures.queue_wait_ns.mean);
            Bar { label: label.clone(), parts: [wait, of(|bench| bench.figures.device_ns.mean)] }
        })
        .collect();
    let note = "Mean of an I/O: until the driver had it, and until the driver answered.";
    let faint = "Faint: each round. Strong: their mean.";
    section.charts([
        percentiles("Latency percentiles", "All rounds that count, together.", &curves),
        stacked("Where the time went", note, ["queue wait", "device"], &bars, &time),
        series("IOPS", faint, &over_time(rate), &count),
        series("Mean latency", faint, &over_time(latency), &time),
    ]);
    section
}

/// The mean of lines, sample by sample, as far as all of them go.
fn mean_line(lines: &[Vec<(f64, f64)>]) -> Vec<(f64, f64)> {
    let shortest = lines.iter().map(Vec::len).min().unwrap_or(0);
    let sample = |at: usize| {
        let sum =
            lines.iter().fold((0.0, 0.0), |sum, line| (sum.0 + line[at].0, sum.1 + line[at].1));
        (sum.0 / lines.len() as f64, sum.1 / lines.len() as f64)
    };
    (0..shortest).map(sample).collect()
}

/// The first and the last of several, for a table that has places for two.
pub(super) fn ends(labels: &[String]) -> Vec<&str> {
    match labels {
        [first, .., last] => vec![first, last],
        few => few.iter().map(String::as_str).collect(),
    }
}

fn published(document: &CompareDocument, labels: &[String]) -> Option<Section> {
    let preset = sources::preset(&document.job)?;
    let variants = &document.compare.variants;
    let (first, last) = (variants.first()?, variants.last()?);
    let of = |variant: &Variant, key: &str| {
        mean(benches(document, variant), |bench| own_figure(bench, key))
    };
    let ours = |key: &str| {
        let last = if variants.len() > 1 { of(last, key) } else { None };
        let found = [of(first, key), last];
        found.iter().any(Option::is_some).then_some(found)
    };
    Some(sources::section(preset, &ends(labels), &ours))
}

fn rounds(document: &CompareDocument, labels: &[String]) -> Section {
    let mut section = Section::new("Every round");
    let place = |name: &str| {
        document.compare.variants.iter().position(|variant| variant.name == name).unwrap_or(0)
    };
    let runs: Vec<(usize, f64, bool)> = document
        .runs
        .iter()
        .map(|run| {
            let counts = run.voided.is_none() && !run.document.partial;
            (place(&run.variant), run.document.bench.figures.iops, counts)
        })
        .collect();
    let note = "In the order in which they ran; × does not count.";
    let chart = Order { title: "IOPS of every run", note, labels, runs: &runs, zero: true };
    section.charts([order(&chart, &count), control(document)]);
    let head = ["run", "variant", "round", "counts", "IOPS", "rate", "mean", "p99", "CPU per I/O"];
    let mut table = Table::new("", head);
    // The counters of a kernel's disk have no percentiles.
    let of_all = |ns: f64| Some(ns).filter(|ns| *ns > 0.0);
    for (index, run) in document.runs.iter().take(RUNS_MOST).enumerate() {
        let figures = &run.document.bench.figures;
        let voided = run.voided.as_ref().map(|why| format!("no: {why}"));
        let broken = run
            .document
            .partial
            .then(|| format!("no: {}", run.document.failure.as_deref().unwrap_or("it broke off")));
        table.row([
            (index + 1).to_string(),
            labels.get(place(&run.variant)).unwrap_or(&run.variant).clone(),
            run.round.to_string(),
            voided.or(broken).unwrap_or_else(|| String::from("yes")),
            count(figures.iops),
            byte_rate(figures.bytes_per_s),
            time(figures.latency_ns.mean),
            of_all(figures.latency_ns.p99 as f64).map_or(NONE.into(), time),
            run.document.bench.cpu.ns_per_io.map_or(NONE.into(), time),
        ]);
    }
    section.table(table);
    if document.runs.len() > RUNS_MOST {
        let rest = document.runs.len() - RUNS_MOST;
        section.notes(vec![format!("{rest} further runs are in the raw data.")]);
    }
    section
}

/// The most runs that have a row of their own.
const RUNS_MOST: usize = 200;

/// The figures of the control: a machine that changed under the rounds shows here.
fn control(document: &CompareDocument) -> Option<Chart> {
    let first = document.control.first().filter(|first| first.ns > 0.0)?;
    let runs: Vec<(usize, f64, bool)> =
        document.control.iter().map(|control| (0, control.ns / first.ns, true)).collect();
    let steal = document.control.iter().map(|control| control.steal_pct).fold(0.0, f64::max);
    let note = format!(
        "How many times as long as the first time a fixed piece of work took, around each round. \
         Most steal time: {steal:.1} %."
    );
    let labels = [String::from("control")];
    let chart = Order {
        title: "The machine itself (times the first)",
        note: &note,
        labels: &labels,
        runs: &runs,
        zero: true,
    };
    order(&chart, &|value| format!("{} ×", ratio(value)))
}

/// The job, or that of each variant where they differ.
fn jobs_of(document: &CompareDocument, labels: &[String]) -> Vec<(&'static str, String)> {
    let variants = &document.compare.variants;
    if !jobs_differ(variants.iter().map(|variant| &variant.options)) {
        return jobs::facts_of_all(&document.job, "");
    }
    let of = |(variant, label): (&Variant, &String)| {
        let job = benches(document, variant).first().map(|bench| bench.job.clone());
        let facts = jobs::facts_of_all(&job.unwrap_or_default(), "");
        facts.into_iter().map(|(name, fact)| (name, format!("{label}: {fact}"))).collect::<Vec<_>>()
    };
    variants.iter().zip(labels).flat_map(of).collect()
}

fn facts(document: &CompareDocument, labels: &[String]) -> Vec<(&'static str, String)> {
    let mut facts = vec![("target", variants::ground(document))];
    facts.extend(jobs_of(document, labels));
    facts.extend(machine(document));
    let voided = document.compare.environment.voided_rounds.to_string();
    let hold = match document.compare.inference {
        Inference::Fixed => "for rounds whose number was given before",
        Inference::Anytime => "at every round at once: more rounds may be added",
    };
    facts.extend([("rounds voided", voided), ("intervals hold", String::from(hold))]);
    facts.push(("began", document.started_at.clone()));
    let named = document.compare.variants.iter().zip(labels);
    facts.extend(named.map(|(variant, label)| {
        let options = words(&variant.options);
        let name = if *label == variant.name { String::new() } else { format!(" ({label})") };
        ("variant", format!("{}{name}: {options}", variant.name))
    }));
    facts
}

/// The machine, and how much of it was there.
pub(super) fn machine(document: &CompareDocument) -> [(&'static str, String); 5] {
    let first = document.runs.first().map(|run| &run.document);
    let of = |pick: fn(&BenchDocument) -> String| first.map_or_else(String::new, pick);
    let environment = &document.compare.environment;
    let model = of(|run| run.environment.cpu_model.clone());
    let window = of(|run| match run.bench.duration_s {
        seconds if seconds > 0.0 => format!("{seconds:.2} s"),
        _ => String::new(),
    });
    [
        ("measured in each run for", window),
        ("machine", format!("{} CPUs {model}", environment.cpus)),
        ("kernel", environment.kernel.clone()),
        ("weir", of(|run| run.bench.weir.clone())),
        ("steal time", format!("{:.1} %", environment.steal_pct)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::document::{Compare, Comparison};

    #[test]
    fn the_change_is_that_of_the_verdict_and_not_of_the_means() {
        let variant = |name: &str, mean: f64| {
            let iops = Estimate { mean, ..Estimate::default() };
            Variant { name: name.into(), iops, ..Variant::default() }
        };
        let found = |ratio| Comparison {
            a: "a".into(),
            b: "b".into(),
            metric: "iops".into(),
            ratio,
            verdict: "b is faster".into(),
            ..Comparison::default()
        };
        let change_of = |comparisons: Vec<Comparison>| {
            let variants = vec![variant("a", 1000.0), variant("b", 2877.0)];
            let compare = Compare { variants, comparisons, ..Compare::default() };
            let document = CompareDocument { compare, ..CompareDocument::default() };
            let table = before_after(&document, &["a".into(), "b".into()]);
            table.rows[0][3].clone()
        };
        assert_eq!(change_of(vec![found(Some(2.75))]), "+175.0 %");
        assert_eq!(change_of(vec![found(None)]), "+187.7 %");
        assert_eq!(change_of(Vec::new()), "+187.7 %");
    }
}

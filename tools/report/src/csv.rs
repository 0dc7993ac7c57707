//! Every figure of every run, one to a line.

use weir_trace::document::{Bench, BenchDocument, Core, Document, LatencyNs};

/// The header; columns are only ever added behind it.
const HEADER: &str = "result,sweep,value,variant,round,voided,group,op,metric,number\r\n";

/// Where a run stands among the results.
#[derive(Clone, Copy, Debug, Default)]
struct Place<'a> {
    result: usize,
    sweep: &'a str,
    value: &'a str,
    variant: &'a str,
    round: u32,
    voided: &'a str,
}

pub(crate) fn write(documents: &[Document]) -> String {
    let mut text = String::from(HEADER);
    for (index, document) in documents.iter().enumerate() {
        let place = Place { result: index + 1, ..Place::default() };
        match document {
            Document::Bench(bench) => one(&mut text, place, bench),
            Document::Compare(compare) => runs(&mut text, place, compare),
            Document::Sweep(sweep) => {
                for point in &sweep.points {
                    let place = Place { sweep: &sweep.name, value: &point.value, ..place };
                    runs(&mut text, place, &point.document);
                }
            }
            Document::Iostat(iostat) => {
                for (round, report) in iostat.reports.iter().enumerate() {
                    let voided = if report.since_start { "average since the start" } else { "" };
                    let place = Place { round: round as u32 + 1, voided, ..place };
                    for disk in &report.disks {
                        for (name, value) in &disk.columns {
                            line(&mut text, place, (&disk.name, ""), name, &value.to_string());
                        }
                    }
                }
            }
        }
    }
    text
}

fn runs(text: &mut String, place: Place<'_>, compare: &weir_trace::document::CompareDocument) {
    for run in &compare.runs {
        let voided = run.voided.as_deref().unwrap_or_default();
        let place = Place { variant: &run.variant, round: run.round, voided, ..place };
        one(text, place, &run.document);
    }
    if compare.runs.is_empty() {
        for variant in &compare.compare.variants {
            for (index, bench) in variant.rounds.iter().enumerate() {
                let place = Place { variant: &variant.name, round: index as u32 + 1, ..place };
                figures(text, place, bench);
            }
        }
    }
}

fn one(text: &mut String, place: Place<'_>, document: &BenchDocument) {
    let broken = document.failure.as_deref().unwrap_or("partial");
    let voided = match document.partial && place.voided.is_empty() {
        true => broken,
        false => place.voided,
    };
    let place = Place { voided, ..place };
    figures(text, place, &document.bench);
    for Core { cpu, user_s, sys_s, idle_s, steal_s } in &document.cores {
        let parts = [("user", user_s), ("sys", sys_s), ("idle", idle_s), ("steal", steal_s)];
        for (part, seconds) in parts {
            number(text, place, ("all", "all"), &format!("cpu{cpu}_{part}_s"), *seconds);
        }
    }
}

fn figures(text: &mut String, place: Place<'_>, bench: &Bench) {
    let all = ("all", "all");
    number(text, place, all, "duration_s", bench.duration_s);
    if let Some(ns) = bench.makespan_ns {
        line(text, place, all, "makespan_ns", &ns.to_string());
    }
    number(text, place, all, "errors", bench.errors as f64);
    number(text, place, all, "cpu_user_s", bench.cpu.user_s);
    number(text, place, all, "cpu_sys_s", bench.cpu.sys_s);
    if let Some(ns) = bench.cpu.ns_per_io {
        number(text, place, all, "cpu_ns_per_io", ns);
    }
    if let Some(transactions) = &bench.transactions {
        number(text, place, all, "executions_per_s", transactions.executions_per_s);
        number(text, place, all, "commits_per_s", transactions.commits_per_s);
    }
    let groups = bench.groups.iter().map(|group| ((&*group.name, &*group.op), &group.figures));
    for (group, figures) in std::iter::once((all, &bench.figures)).chain(groups) {
        number(text, place, group, "ios", figures.ios as f64);
        number(text, place, group, "bytes", figures.bytes as f64);
        number(text, place, group, "iops", figures.iops);
        number(text, place, group, "bytes_per_s", figures.bytes_per_s);
        latencies(text, place, group, "latency", &figures.latency_ns);
        latencies(text, place, group, "queue_wait", &figures.queue_wait_ns);
        latencies(text, place, group, "device", &figures.device_ns);
    }
}

fn latencies(
    text: &mut String,
    place: Place<'_>,
    group: (&str, &str),
    what: &str,
    from: &LatencyNs,
) {
    let whole = [
        ("p50", from.p50),
        ("p90", from.p90),
        ("p95", from.p95),
        ("p99", from.p99),
        ("p999", from.p999),
        ("max", from.max),
    ];
    number(text, place, group, &format!("{what}_mean_ns"), from.mean);
    for (name, ns) in whole {
        line(text, place, group, &format!("{what}_{name}_ns"), &ns.to_string());
    }
}

fn number(text: &mut String, place: Place<'_>, group: (&str, &str), metric: &str, value: f64) {
    let value = if value.is_finite() { value.to_string() } else { String::new() };
    line(text, place, group, metric, &value);
}

fn line(text: &mut String, place: Place<'_>, group: (&str, &str), metric: &str, number: &str) {
    let round = if place.round == 0 { String::new() } else { place.round.to_string() };
    let result = place.result.to_string();
    let fields = [
        result.as_str(),
        place.sweep,
        place.value,
        place.variant,
        &round,
        place.voided,
        group.0,
        group.1,
        metric,
        number,
    ];
    text.push_str(&fields.map(quoted).join(","));
    text.push_str("\r\n");
}

/// A field as RFC 4180 has it; one that a spreadsheet would take for a formula is led by a quote.
fn quoted(field: &str) -> String {
    let number = field.parse::<f64>().is_ok();
    let formula = !number && field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let field = if formula { format!("'{field}") } else { String::from(field) };
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_cannot_end_its_line_nor_become_a_formula() {
        let fields = ["plain", "a,b", "say \"x\"", "=SUM(A1)", "-5", "1e-9", "two\r\nlines"];
        assert_eq!(
            fields.map(quoted),
            [
                "plain",
                "\"a,b\"",
                "\"say \"\"x\"\"\"",
                "'=SUM(A1)",
                "-5",
                "1e-9",
                "\"two\r\nlines\""
            ]
        );
    }

    #[test]
    fn a_broken_run_is_marked_in_each_of_its_lines() {
        let document = BenchDocument {
            partial: true,
            failure: Some("the target is gone".into()),
            ..BenchDocument::default()
        };
        let text = write(&[Document::Bench(Box::new(document))]);
        assert!(text.lines().skip(1).all(|line| line.contains(",the target is gone,")), "{text}");
        assert!(text.contains("1,,,,,the target is gone,all,all,iops,0\r\n"), "{text}");
    }
}

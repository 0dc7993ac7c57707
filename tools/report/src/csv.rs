//! Every figure of every run, one to a line.

use std::borrow::Cow;

use csv::Terminator;
use weir_trace::document::{Bench, BenchDocument, Core, Document, LatencyNs};

/// The header; columns are only ever added behind it.
const HEADER: [&str; 10] =
    ["result", "sweep", "value", "variant", "round", "voided", "group", "op", "metric", "number"];

/// RFC 4180: a field with a comma, a quote or the end of a line in it is quoted.
type Table = csv::Writer<Vec<u8>>;

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
    let mut table = csv::WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    add(&mut table, HEADER);
    for (index, document) in documents.iter().enumerate() {
        let place = Place { result: index + 1, ..Place::default() };
        match document {
            Document::Bench(bench) => one(&mut table, place, bench),
            Document::Compare(compare) => runs(&mut table, place, compare),
            Document::Sweep(sweep) => {
                for point in &sweep.points {
                    let place = Place { sweep: &sweep.name, value: &point.value, ..place };
                    runs(&mut table, place, &point.document);
                }
            }
            Document::Sim(sim) => {
                for row in &sim.rows {
                    let value = row.value.to_string();
                    line(&mut table, place, (&row.case, ""), &row.metric, &value);
                }
            }
            Document::Iostat(iostat) => {
                for (round, report) in iostat.reports.iter().enumerate() {
                    let voided = if report.since_start { "average since the start" } else { "" };
                    let place = Place { round: round as u32 + 1, voided, ..place };
                    for disk in &report.disks {
                        for (name, value) in &disk.columns {
                            line(&mut table, place, (&disk.name, ""), name, &value.to_string());
                        }
                    }
                }
            }
        }
    }
    let bytes = table.into_inner().expect("memory takes all that is written to it");
    String::from_utf8(bytes).expect("fields are text")
}

fn add<'a>(table: &mut Table, fields: impl IntoIterator<Item = &'a str>) {
    table.write_record(fields).expect("memory takes all that is written to it");
}

fn runs(table: &mut Table, place: Place<'_>, compare: &weir_trace::document::CompareDocument) {
    for run in &compare.runs {
        let voided = run.voided.as_deref().unwrap_or_default();
        let place = Place { variant: &run.variant, round: run.round, voided, ..place };
        one(table, place, &run.document);
    }
    if compare.runs.is_empty() {
        for variant in &compare.compare.variants {
            for (index, bench) in variant.rounds.iter().enumerate() {
                let place = Place { variant: &variant.name, round: index as u32 + 1, ..place };
                figures(table, place, bench);
            }
        }
    }
}

fn one(table: &mut Table, place: Place<'_>, document: &BenchDocument) {
    let broken = document.failure.as_deref().unwrap_or("partial");
    let voided = match document.partial && place.voided.is_empty() {
        true => broken,
        false => place.voided,
    };
    let place = Place { voided, ..place };
    figures(table, place, &document.bench);
    for Core { cpu, user_s, sys_s, idle_s, steal_s } in &document.cores {
        let parts = [("user", user_s), ("sys", sys_s), ("idle", idle_s), ("steal", steal_s)];
        for (part, seconds) in parts {
            number(table, place, ("all", "all"), &format!("cpu{cpu}_{part}_s"), *seconds);
        }
    }
}

fn figures(table: &mut Table, place: Place<'_>, bench: &Bench) {
    let all = ("all", "all");
    number(table, place, all, "duration_s", bench.duration_s);
    if let Some(ns) = bench.makespan_ns {
        line(table, place, all, "makespan_ns", &ns.to_string());
    }
    number(table, place, all, "errors", bench.errors as f64);
    number(table, place, all, "cpu_user_s", bench.cpu.user_s);
    number(table, place, all, "cpu_sys_s", bench.cpu.sys_s);
    if let Some(ns) = bench.cpu.ns_per_io {
        number(table, place, all, "cpu_ns_per_io", ns);
    }
    if let Some(transactions) = &bench.transactions {
        number(table, place, all, "executions_per_s", transactions.executions_per_s);
        number(table, place, all, "commits_per_s", transactions.commits_per_s);
    }
    let groups = bench.groups.iter().map(|group| ((&*group.name, &*group.op), &group.figures));
    for (group, figures) in std::iter::once((all, &bench.figures)).chain(groups) {
        number(table, place, group, "ios", figures.ios as f64);
        number(table, place, group, "bytes", figures.bytes as f64);
        number(table, place, group, "iops", figures.iops);
        number(table, place, group, "bytes_per_s", figures.bytes_per_s);
        latencies(table, place, group, "latency", &figures.latency_ns);
        latencies(table, place, group, "queue_wait", &figures.queue_wait_ns);
        latencies(table, place, group, "device", &figures.device_ns);
    }
}

fn latencies(
    table: &mut Table,
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
    number(table, place, group, &format!("{what}_mean_ns"), from.mean);
    for (name, ns) in whole {
        line(table, place, group, &format!("{what}_{name}_ns"), &ns.to_string());
    }
}

fn number(table: &mut Table, place: Place<'_>, group: (&str, &str), metric: &str, value: f64) {
    let value = if value.is_finite() { value.to_string() } else { String::new() };
    line(table, place, group, metric, &value);
}

fn line(table: &mut Table, place: Place<'_>, group: (&str, &str), metric: &str, number: &str) {
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
    let fields = fields.map(plain);
    add(table, fields.iter().map(|field| &**field));
}

/// A field that a spreadsheet would take for a formula is led by a quote.
fn plain(field: &str) -> Cow<'_, str> {
    let number = field.parse::<f64>().is_ok();
    match !number && field.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => Cow::Owned(format!("'{field}")),
        false => Cow::Borrowed(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_cannot_end_its_line_nor_become_a_formula() {
        for (name, field) in [
            ("plain", ",plain,"),
            ("a,b", ",\"a,b\","),
            ("say \"x\"", ",\"say \"\"x\"\"\","),
            ("=SUM(A1)", ",'=SUM(A1),"),
            ("-5", ",-5,"),
            ("1e-9", ",1e-9,"),
            ("two\r\nlines", ",\"two\r\nlines\","),
        ] {
            let failure = Some(String::from(name));
            let document = BenchDocument { partial: true, failure, ..BenchDocument::default() };
            let text = write(&[Document::Bench(Box::new(document))]);
            assert!(text.contains(&format!("{field}all,all,iops,0\r\n")), "{name}: {text}");
        }
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

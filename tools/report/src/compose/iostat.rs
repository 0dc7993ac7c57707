//! The I/O of a running daemon's disks.

use serde_json::Value;

use crate::numbers::{NONE, change, count};
use crate::page::{Page, Section, Table};
use crate::tone::{Tone, Verdict};
use weir_trace::document::{Document, IostatDocument};

/// The columns that stand in the tables, in their order.
const COLUMNS: [&str; 10] =
    ["r/s", "rkB/s", "r_await", "w/s", "wkB/s", "w_await", "f/s", "f_await", "aqu-sz", "%util"];

/// Adds readings; their title.
pub(crate) fn compose(page: &mut Page, document: &IostatDocument) -> String {
    let intervals = document.reports.iter().filter(|report| !report.since_start).count();
    let text = match intervals {
        0 => String::from("Averages since the start alone: they cannot be compared with anything."),
        1 => format!("One interval of {:.1} s.", document.seconds()),
        _ => format!("{intervals} intervals, {:.1} s in all.", document.seconds()),
    };
    page.verdicts.push(Verdict { tone: Tone::Plain, text });
    let mut section = Section::new("Disks");
    let caption = match intervals {
        0 => "Averages over all time since each disk was there",
        _ => "Means over the intervals, weighted by their length",
    };
    let mut table = Table::new(caption, ["disk"]);
    table.head.extend(COLUMNS.map(String::from));
    for disk in disks(document) {
        let value = |column| match intervals {
            0 => since_start(document, &disk, column),
            _ => mean(document, &disk, column),
        };
        let cells = COLUMNS.map(|column| shown(value(column)));
        table.rows.push(std::iter::once(disk).chain(cells).collect());
    }
    section.table(table);
    page.sections.push(section);
    String::from("iostat")
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| String::from(NONE), count)
}

/// The disks of a document in the order in which they first appear.
fn disks(document: &IostatDocument) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for disk in document.reports.iter().flat_map(|report| &report.disks) {
        if !names.contains(&disk.name) {
            names.push(disk.name.clone());
        }
    }
    names
}

/// The average since the start, where it was told.
fn since_start(document: &IostatDocument, disk: &str, column: &str) -> Option<f64> {
    let report = document.reports.iter().find(|report| report.since_start)?;
    let row = report.disks.iter().find(|row| row.name == disk)?;
    row.columns.get(column).and_then(Value::as_f64)
}

/// The mean of a column over the intervals; the average since the start is none.
fn mean(document: &IostatDocument, disk: &str, column: &str) -> Option<f64> {
    let (mut sum, mut seconds) = (0.0, 0.0);
    for report in document.reports.iter().filter(|report| !report.since_start) {
        let found = report.disks.iter().find(|row| row.name == disk);
        let value = found.and_then(|row| row.columns.get(column)).and_then(Value::as_f64);
        if let Some(value) = value {
            sum += value * report.interval_s;
            seconds += report.interval_s;
        }
    }
    (seconds > 0.0).then(|| sum / seconds)
}

/// Two readings side by side, for the disks that both have.
pub(crate) fn beside(page: &mut Page, documents: &[Document]) {
    let readings: Vec<&IostatDocument> = documents
        .iter()
        .filter_map(|document| match document {
            Document::Iostat(iostat) => Some(&**iostat),
            _ => None,
        })
        .collect();
    let [first, .., last] = readings.as_slice() else { return };
    let mut section = Section::new("The first reading and the last");
    section.prose("Equal intervals, one reading each: what was seen, and no verdict.");
    let mut table = Table::new("", ["disk", "column", "first", "last", "change"]);
    let both = disks(first).into_iter().filter(|disk| disks(last).contains(disk));
    for disk in both {
        for column in COLUMNS {
            let (before, after) = (mean(first, &disk, column), mean(last, &disk, column));
            let gain = before.zip(after).map_or(NONE.into(), |(a, b)| change(a, b));
            let column = String::from(column);
            table.row([disk.clone(), column, shown(before), shown(after), gain]);
        }
    }
    section.table(table);
    page.sections.insert(0, section);
}

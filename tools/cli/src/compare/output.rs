//! What `weir compare` says: progress, tables, the saved document.

use std::io::{IsTerminal, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use weir_bench::compare::{self, summary, table};
use weir_trace::document::{Compare, CompareDocument, Document, Point};

use crate::Failure;

/// A line on standard error that is written over.
pub(super) struct Progress {
    /// What it begins with; none where nobody looks.
    head: Option<String>,
    shown: bool,
}

impl Progress {
    /// `value` is what is swept now, if anything.
    pub(super) fn new(quiet: bool, value: &str) -> Progress {
        let seen = !quiet && std::io::stderr().is_terminal();
        let head = if value.is_empty() { String::new() } else { format!("{value}: ") };
        Progress { head: seen.then_some(head), shown: false }
    }

    pub(super) fn show(&mut self, now: &compare::Progress<'_>) {
        let Some(head) = &self.head else { return };
        let left = now.planned.saturating_sub(now.made);
        let left_s = f64::from(left) * now.run_s;
        let compare::Progress { variant, round, made, planned, .. } = now;
        let text = format!(
            "\r\x1b[Kweir: {head}round {round}, variant {variant}: {made} of {planned} runs, some \
             {left_s:.0} s left"
        );
        // Progress that cannot be shown is no failure.
        let _ = std::io::stderr().write_all(text.as_bytes());
        self.shown = true;
    }

    /// Leaves an empty line behind.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// How many verdicts name a difference.
pub(super) fn differences(compare: &Compare) -> usize {
    compare.comparisons.iter().filter(|found| summary::differs(found)).count()
}

/// The tables of one comparison, for people.
pub(super) fn print(swept: Option<(&String, &String)>, document: &CompareDocument) {
    if let Some((name, value)) = swept {
        println!("{name}={value}\n");
    }
    print!("{}", table::table(&document.compare));
    print!("{}", table::voided(&document.runs));
    let environment = &document.compare.environment;
    println!(
        "{} of {} runs voided; the host kept {:.1} % of the CPUs for others",
        environment.voided_rounds,
        document.runs.len(),
        environment.steal_pct
    );
    if let Some(why) = environment.other.get("failure").and_then(Value::as_str) {
        println!("partial: {why}");
    }
    println!("{}\n", table::verdicts(&document.compare));
}

/// The document that `--json` promises: of a sweep, one for each value.
pub(super) fn print_json(document: &Document) -> Result<(), Failure> {
    let text = match document {
        Document::Compare(compare) => serde_json::to_string_pretty(&compare.compare),
        Document::Sweep(sweep) => {
            let compared = |point: &Point| Compared {
                value: point.value.clone(),
                compare: point.document.compare.clone(),
            };
            let points = sweep.points.iter().map(compared).collect();
            serde_json::to_string_pretty(&Swept { sweep: sweep.name.clone(), points })
        }
        other @ (Document::Bench(_) | Document::Iostat(_)) => serde_json::to_string_pretty(other),
    };
    println!("{}", text.map_err(|error| error.to_string())?);
    Ok(())
}

/// A sweep as `--json` prints it.
#[derive(Serialize)]
struct Swept {
    sweep: String,
    points: Vec<Compared>,
}

/// The comparison at one value.
#[derive(Serialize)]
struct Compared {
    value: String,
    compare: Compare,
}

/// Writes a document whole or not at all.
pub(super) fn save(path: &Path, document: &Document) -> Result<(), Failure> {
    let text = serde_json::to_vec(document).map_err(|e| e.to_string())?;
    write_file(path, &text)
}

/// Writes a file whole or not at all.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let written = std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| {
        // What is half written is nobody's.
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })?;
    Ok(())
}

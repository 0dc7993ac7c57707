//! `weir report`: saved results as a page, as Markdown and as CSV.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use weir_access::save;
use weir_report::{Document, csv, html, html_of_files, markdown};

use crate::Failure;

/// Draws saved results: one HTML page that needs no network, Markdown and CSV.
///
/// Takes what `weir bench --save` and `weir compare --save` write, and what `weir iostat --json`,
/// `weir sim run --json` and `weir sim check --json` print. Results whose windows differ in length,
/// and averages since a start, are not compared.
///
/// Example: weir report weir-data/compare-*.json -o report.html --markdown report.md
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Report {
    /// Saved results.
    #[arg(required = true, value_name = "RESULT.json")]
    results: Vec<PathBuf>,
    /// Write the page to this file.
    #[arg(short, long, value_name = "FILE.html", required_unless_present_any = ["markdown", "csv"])]
    output: Option<PathBuf>,
    /// Write words and tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the figures of every run as CSV to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl Report {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let read = self.results.iter().map(|path| read(path));
        let (files, documents): (Vec<_>, Vec<_>) =
            read.collect::<Result<Vec<_>, Failure>>()?.into_iter().flatten().unzip();
        if let Some(page) = &self.output {
            put(page, html_of_files(&files))?;
        }
        write(&documents, None, self.markdown.as_deref(), self.csv.as_deref())
    }
}

/// The document of a file, as a value and as a type; of a file with a list each.
fn read(path: &Path) -> Result<Vec<(Value, Document)>, Failure> {
    let bad = |why: String| Failure::Bad(format!("{}: {why}", path.display()));
    let text = fs::read(path).map_err(|error| bad(error.to_string()))?;
    let file: Value = serde_json::from_slice(&text)
        .map_err(|error| bad(format!("{}: {error}", of_text(&text))))?;
    let all = match file {
        Value::Array(all) => all,
        one => vec![one],
    };
    let typed = |file: Value| match Document::deserialize(&file) {
        Ok(document) => Ok((file, document)),
        Err(error) => Err(bad(match of_value(&file) {
            Some(other) => format!("{other}, no result of weir"),
            None => error.to_string(),
        })),
    };
    all.into_iter().map(typed).collect()
}

/// What a file is that is no JSON, by its first bytes.
fn of_text(text: &[u8]) -> &'static str {
    let begins = |with: &str| text.trim_ascii_start().starts_with(with.as_bytes());
    match () {
        () if text.trim_ascii().is_empty() => "an empty file, no result of weir",
        () if begins("<!") || begins("<html") => {
            "a page as weir report draws it: give it the results themselves"
        }
        () if begins("#") || begins("scheduler ") => {
            "words and no JSON: a recording is for weir replay, a configuration for weir serve -c"
        }
        () if begins("{") || begins("[") => "JSON that is not whole",
        () => "no JSON, and no result of weir",
    }
}

/// What another program's JSON is; `None`: it may be a result of weir that is damaged.
fn of_value(file: &Value) -> Option<String> {
    let Value::Object(fields) = file else {
        return Some(String::from("JSON without fields"));
    };
    if fields.contains_key("kind") {
        return None;
    }
    if fields.contains_key("fio version") {
        return Some(String::from("a result of fio"));
    }
    if fields.contains_key("sysstat") {
        return Some(String::from("figures of sysstat"));
    }
    let mut names: Vec<&str> = fields.keys().map(String::as_str).take(4).collect();
    if fields.len() > names.len() {
        names.push("...");
    }
    Some(format!("JSON with the fields {}", names.join(", ")))
}

/// Writes documents to the files that are named.
pub(crate) fn write(
    documents: &[Document],
    page: Option<&Path>,
    words: Option<&Path>,
    table: Option<&Path>,
) -> Result<(), Failure> {
    type Draw = fn(&[Document]) -> Result<String, weir_report::Error>;
    let outputs: [(Option<&Path>, Draw); 3] = [(page, html), (words, markdown), (table, csv)];
    for (path, draw) in outputs {
        let Some(path) = path else { continue };
        put(path, draw(documents))?;
    }
    Ok(())
}

fn put(path: &Path, drawn: Result<String, weir_report::Error>) -> Result<(), Failure> {
    let text = drawn.map_err(|error| Failure::Bad(error.to_string()))?;
    let written = save::save(path, text.as_bytes());
    written.map_err(|error| Failure::Bad(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_that_is_no_result_is_named_for_what_it_is() {
        for (text, wanted) in [
            ("", "an empty file"),
            ("<!DOCTYPE html>", "a page as weir report draws it"),
            ("# kyber\nscheduler kyber", "words and no JSON: a recording"),
            ("{\"kind\": \"bench\",", "JSON that is not whole"),
            ("hello", "no JSON"),
        ] {
            assert!(of_text(text.as_bytes()).starts_with(wanted), "{text:?}");
        }
        for (file, wanted) in [
            (json!({ "fio version": "fio-3.36", "jobs": [] }), Some("a result of fio")),
            (json!({ "sysstat": {} }), Some("figures of sysstat")),
            (json!({ "a": 1, "b": 2 }), Some("JSON with the fields a, b")),
            (
                json!({ "a": 1, "b": 2, "c": 3, "d": 4, "e": 5 }),
                Some("JSON with the fields a, b, c, d, ..."),
            ),
            (json!(7), Some("JSON without fields")),
            (json!({ "kind": "bench" }), None),
        ] {
            assert_eq!(of_value(&file).as_deref(), wanted, "{file}");
        }
    }
}

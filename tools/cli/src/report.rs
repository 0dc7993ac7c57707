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
    let file: Value = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    let all = match file {
        Value::Array(all) => all,
        one => vec![one],
    };
    let typed = |file: Value| match Document::deserialize(&file) {
        Ok(document) => Ok((file, document)),
        Err(error) => Err(bad(error.to_string())),
    };
    all.into_iter().map(typed).collect()
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

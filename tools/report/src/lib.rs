//! Results drawn: what `weir bench` and `weir compare` save, and what people are shown of it.
//!
//! It measures nothing and judges nothing: verdicts and intervals stand in the documents it reads.
//! One page is composed of them (`compose`), and written as HTML with charts or as Markdown; CSV
//! has the figures of every run.

#![forbid(unsafe_code)]

mod answer;
mod chart;
mod compose;
mod csv;
mod download;
mod html;
mod markdown;
mod numbers;
mod page;
mod rank;
mod sources;
pub mod terminal;
mod tone;
mod verdict;
mod windows;

use std::fmt;

use serde::Deserialize;
pub use weir_trace::document::Document;

/// Why results are not drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is nothing to draw.
    Nothing,
    /// A value is no document: why.
    Unreadable(String),
    /// Figures of windows of unequal length stand side by side: which, and how long they are.
    UnequalWindows(String),
    /// An average over the time since a disk was attached stands among compared figures: where.
    SinceStart(String),
    /// The page's template could not be filled in.
    Template(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Nothing => f.write_str("no result to draw"),
            Error::Unreadable(why) => write!(f, "no result that can be read: {why}"),
            Error::UnequalWindows(which) => write!(
                f,
                "windows of unequal length cannot be compared: {which}; measure both for the same \
                 time"
            ),
            Error::SinceStart(which) => write!(
                f,
                "an average since the start cannot be compared: {which}; take the difference of \
                 two readings"
            ),
            Error::Template(why) => write!(f, "the page's template: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// One self-contained HTML page of all results: no script, and nothing that is fetched.
///
/// # Errors
/// No result, or figures that cannot be compared; see [`Error`].
///
/// # Panics
/// Never: documents have string keys and no foreign serialisers, so they are JSON.
pub fn html(documents: &[Document]) -> Result<String, Error> {
    let raw = documents.iter().map(|document| {
        serde_json::to_value(document).expect("string keys and no foreign serialisers")
    });
    html::write(&compose::page(documents)?, raw.collect())
}

/// The same of what files hold: its raw data has every field of them, also those that nothing here
/// knows.
///
/// # Errors
/// As [`html`], and what is no document.
pub fn html_of_files(files: &[serde_json::Value]) -> Result<String, Error> {
    let read = |file: &serde_json::Value| Document::deserialize(file);
    let documents = files.iter().map(read).collect::<Result<Vec<_>, _>>();
    let documents = documents.map_err(|error| Error::Unreadable(error.to_string()))?;
    html::write(&compose::page(&documents)?, files.to_vec())
}

/// The same words and tables as Markdown; charts stay out.
///
/// # Errors
/// As [`html`].
pub fn markdown(documents: &[Document]) -> Result<String, Error> {
    Ok(markdown::write(&compose::page(documents)?))
}

/// The figures of every run as CSV (RFC 4180, with a header): one line for each run and metric.
///
/// # Errors
/// As [`html`].
pub fn csv(documents: &[Document]) -> Result<String, Error> {
    windows::check(documents)?;
    Ok(csv::write(documents))
}

//! What is said of results, and in which order: verdicts first.

mod bench;
mod compare;
mod iostat;
mod merged;
mod sweep;

use serde_json::Value;

use crate::numbers::{command_line, words};
use crate::page::{Block, Page, Section, Tone, Verdict};
use crate::{Error, windows};
use weir_trace::document::Document;

/// The page of all results.
pub(crate) fn page(documents: &[Document]) -> Result<Page, Error> {
    windows::check(documents)?;
    let mut page = Page::default();
    for (index, document) in documents.iter().enumerate() {
        let prefix = match documents.len() {
            1 => String::new(),
            _ => format!("{}. ", index + 1),
        };
        let before = (page.verdicts.len(), page.sections.len());
        let title = match document {
            Document::Bench(document) => bench::compose(&mut page, document),
            Document::Compare(document) => compare::compose(&mut page, document),
            Document::Sweep(document) => sweep::compose(&mut page, document),
            Document::Iostat(document) => iostat::compose(&mut page, document),
        };
        page.verdicts[before.0..]
            .iter_mut()
            .for_each(|verdict| verdict.text.insert_str(0, &prefix));
        page.sections[before.1..]
            .iter_mut()
            .for_each(|section| section.title.insert_str(0, &prefix));
        page.title = if index == 0 { title } else { format!("{}; {title}", page.title) };
    }
    bench::beside(&mut page, documents);
    iostat::beside(&mut page, documents);
    Ok(page)
}

/// What a job is called: its preset, or its options.
fn job_name(job: &Value) -> String {
    let named = ["preset", "name"].iter().find_map(|field| job.get(field).and_then(Value::as_str));
    match (named, job) {
        (Some(name), _) => String::from(name),
        (None, Value::String(name)) => name.clone(),
        (None, Value::Object(fields)) => match fields.get("rw").and_then(Value::as_str) {
            Some(rw) => {
                let bytes = fields.get("bs").map(words).unwrap_or_default();
                format!("{rw} {}", size_name(&bytes)).trim_end().into()
            }
            None => String::from("a job"),
        },
        _ => String::from("a job"),
    }
}

/// Bytes of a block as people say them: 4096 is `4k`.
fn size_name(bytes: &str) -> String {
    match bytes.parse::<u64>() {
        Ok(bytes) if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        Ok(bytes) if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => String::from(bytes),
    }
}

fn warning(text: String) -> Verdict {
    Verdict { tone: Tone::Warning, text }
}

/// How to do it again.
fn repeat(command: &[String], facts: &[(&str, String)]) -> Section {
    let mut section = Section::new("How to repeat it, and where it ran");
    if !command.is_empty() {
        section.blocks.push(Block::Code { text: command_line(command) });
    }
    let facts = facts.iter().filter(|(_, value)| !value.is_empty());
    section.notes(facts.map(|(name, value)| format!("{name}: {value}")).collect());
    section
}

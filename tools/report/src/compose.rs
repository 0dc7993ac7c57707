//! The content of a report and its order: verdicts first.

mod bench;
mod card;
mod compare;
mod cores;
mod iostat;
mod jobs;
mod merged;
mod queues;
mod rounds;
mod sim;
mod sweep;
mod variants;

use crate::numbers::command_line;
use crate::page::{Block, Page, Section};
use crate::tone::{Tone, Verdict};
use crate::{Error, windows};
use weir_trace::document::{BenchDocument, Document};

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
        let cards = page.cards.len();
        let title = match document {
            Document::Bench(document) => bench::compose(&mut page, document),
            Document::Compare(document) => compare::compose(&mut page, document),
            Document::Sweep(document) => sweep::compose(&mut page, document),
            Document::Iostat(document) => iostat::compose(&mut page, document),
            Document::Sim(document) => sim::compose(&mut page, document),
        };
        page.verdicts[before.0..]
            .iter_mut()
            .for_each(|verdict| verdict.text.insert_str(0, &prefix));
        page.sections[before.1..]
            .iter_mut()
            .for_each(|section| section.title.insert_str(0, &prefix));
        page.cards[cards..].iter_mut().for_each(|card| card.about.insert_str(0, &prefix));
        let title = format!("{prefix}{title}");
        page.title = if index == 0 { title } else { format!("{}; {title}", page.title) };
    }
    bench::beside(&mut page, documents);
    iostat::beside(&mut page, documents);
    Ok(page)
}

fn warning(text: String) -> Verdict {
    Verdict { tone: Tone::Warning, text }
}

/// The notices of runs, each once, in the order of the runs.
fn notices<'a>(runs: impl IntoIterator<Item = &'a BenchDocument>) -> Vec<Verdict> {
    let mut told: Vec<&str> = Vec::new();
    for notice in runs.into_iter().flat_map(|run| &run.notices) {
        if !told.contains(&notice.as_str()) {
            told.push(notice);
        }
    }
    told.into_iter().map(|notice| warning(String::from(notice))).collect()
}

/// How to do it again.
fn repeat(command: &[String], facts: &[(&str, String)]) -> Section {
    let mut section = Section::new("How to repeat it, and where it ran");
    if !command.is_empty() {
        section.blocks.push(Block::Code { text: command_line(command) });
    }
    let facts = facts.iter().filter(|(_, value)| !value.is_empty());
    section.notes(facts.map(|(name, value)| format!("{name}: {value}")).collect());
    section.folded()
}

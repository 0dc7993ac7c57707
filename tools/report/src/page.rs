//! A page, independent of the format it is written in.

use serde::Serialize;

use crate::answer::Answer;
use crate::tone::Verdict;

/// Everything there is to say.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Page {
    pub(crate) title: String,
    /// The answers, before everything else.
    pub(crate) cards: Vec<Card>,
    /// What is to be said before the sections.
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) sections: Vec<Section>,
}

/// An answer, and what it is of.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Card {
    /// Which of several answers it is; empty for the only one.
    pub(crate) about: String,
    pub(crate) answer: Answer,
    /// Machine, disk, date: names and values.
    pub(crate) facts: Vec<(&'static str, String)>,
}

/// The parts under one heading.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Section {
    pub(crate) title: String,
    /// Whether it is closed until it is opened: what answers no first question.
    pub(crate) is_folded: bool,
    pub(crate) blocks: Vec<Block>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub(crate) enum Block {
    Prose { text: String },
    Verdicts { verdicts: Vec<Verdict> },
    Table(Table),
    Charts { charts: Vec<Chart> },
    Code { text: String },
    Notes { notes: Vec<String> },
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Table {
    pub(crate) caption: String,
    /// The heading of the first column is that of row names.
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A chart, drawn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Chart {
    pub(crate) caption: String,
    /// SVG in which every text is escaped.
    pub(crate) svg: String,
    /// Its figures, where they stand in no table beside it.
    pub(crate) table: Option<Table>,
}

impl Section {
    pub(crate) fn new(title: impl Into<String>) -> Section {
        Section { title: title.into(), is_folded: false, blocks: Vec::new() }
    }

    pub(crate) fn folded(self) -> Section {
        Section { is_folded: true, ..self }
    }

    pub(crate) fn prose(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Prose { text: text.into() });
    }

    /// Adds a table that has rows.
    pub(crate) fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.blocks.push(Block::Table(table));
        }
    }

    /// Adds the charts that could be drawn.
    pub(crate) fn charts(&mut self, charts: impl IntoIterator<Item = Option<Chart>>) {
        let charts: Vec<_> = charts.into_iter().flatten().collect();
        if !charts.is_empty() {
            self.blocks.push(Block::Charts { charts });
        }
    }

    pub(crate) fn notes(&mut self, notes: Vec<String>) {
        if !notes.is_empty() {
            self.blocks.push(Block::Notes { notes });
        }
    }
}

impl Table {
    pub(crate) fn new<const N: usize>(caption: &str, head: [&str; N]) -> Table {
        Table {
            caption: String::from(caption),
            head: head.map(String::from).into(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

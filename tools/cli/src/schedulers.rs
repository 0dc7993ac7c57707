//! `weir schedulers`: what can be chosen and tuned.

use clap::Args;
use serde_json::{Value, json};
use weir_control::document;
use weir_sched::{Entry, Family, SCHEDULERS, Tunable};

use crate::output::{print, print_line};
use crate::{Failure, completion};

/// Lists the schedulers with their tunables: unit, default, range, meaning.
///
/// Example: weir schedulers none
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Schedulers {
    /// A scheduler's name; all if not given.
    #[arg(add = completion::schedulers())]
    name: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Print docs/tunables.md, which has every file of a disk as well.
    #[arg(long, conflicts_with_all = ["json", "name"])]
    markdown: bool,
}

impl Schedulers {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if self.markdown {
            return print(&document::markdown());
        }
        let chosen = self.chosen()?;
        if self.json {
            let entries: Vec<_> = chosen.iter().map(|entry| as_json(entry)).collect();
            return print_line(&json!(entries).to_string());
        }
        let entries: Vec<_> = chosen.into_iter().map(as_text).collect();
        print(&entries.join("\n"))
    }

    fn chosen(&self) -> Result<Vec<&'static Entry>, Failure> {
        let Some(name) = &self.name else { return Ok(SCHEDULERS.iter().collect()) };
        if let Some(entry) = SCHEDULERS.iter().find(|entry| entry.name == name) {
            return Ok(vec![entry]);
        }
        let names: Vec<_> = SCHEDULERS.iter().map(|entry| entry.name).collect();
        Err(Failure::Bad(format!("no scheduler {name:?}; there are {}", names.join(", "))))
    }
}

fn path_of(entry: &Entry) -> &'static str {
    match entry.family {
        Family::Multi => "mq",
        Family::Legacy => "sq",
    }
}

fn as_json(entry: &Entry) -> Value {
    let tunable = |row: &Tunable| {
        json!({
            "name": row.name,
            "unit": row.unit.to_string(),
            "default": number(row.default),
            "least": number(row.least),
            "most": number(row.most),
            "holds": row.when.to_string(),
            "meaning": row.meaning,
        })
    };
    let level = |(level, changes): &(&str, &str)| json!({ "compat": level, "changes": changes });
    json!({
        "name": entry.name,
        "queue_mode": path_of(entry),
        "counterpart": entry.counterpart,
        "compat": entry.compat,
        "levels": entry.levels.iter().map(level).collect::<Vec<_>>(),
        "tunables": entry.tunables.iter().map(tunable).collect::<Vec<_>>(),
    })
}

/// Tunables have 64 bits, with or without a sign.
fn number(value: i128) -> Value {
    match (i64::try_from(value), u64::try_from(value)) {
        (Ok(value), _) => json!(value),
        (_, Ok(value)) => json!(value),
        _ => Value::Null,
    }
}

fn as_text(entry: &Entry) -> String {
    let mut text = format!(
        "{} (queue_mode={}, counterpart {}, compat {})\n",
        entry.name,
        path_of(entry),
        entry.counterpart,
        entry.compat.join(" or ")
    );
    for (level, change) in entry.levels {
        text.push_str(&format!("  compat={level}: {change}\n"));
    }
    let head = ["tunable", "unit", "default", "range", "holds", "meaning"].map(String::from);
    let row = |row: &Tunable| {
        [
            String::from(row.name),
            row.unit.to_string(),
            row.default.to_string(),
            document::range(row),
            row.when.to_string(),
            String::from(row.meaning),
        ]
    };
    let rows: Vec<_> = std::iter::once(head).chain(entry.tunables.iter().map(row)).collect();
    if rows.len() == 1 {
        text.push_str("  no tunables\n");
        return text;
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3), width(4)];
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str("  ");
        text.push_str(&cells.collect::<Vec<_>>().join("  "));
        text.push_str("  ");
        text.push_str(&row[5]);
        text.push('\n');
    }
    text
}

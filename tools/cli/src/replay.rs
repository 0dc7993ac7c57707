//! `weir replay`: a recording of a scheduler, given to one of weir's.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use weir_sched::replay::{Decision, Line, Options, Outcome, Range, Recording, replay, tick_of};

use crate::Failure;

/// Gives a scheduler what another was given, and shows or compares what it chooses.
///
/// Prints each dispatch, or with --follow each decision that differs from the recorded one; exit
/// status 1 if one does.
///
/// Example: weir replay --follow core/sched/tests/golden/mq-deadline-random.replay
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Replay {
    /// The recording.
    file: PathBuf,
    /// The scheduler, in place of the recorded one.
    #[arg(long)]
    scheduler: Option<String>,
    /// A tunable of the scheduler; may be given several times.
    #[arg(long = "set", value_name = "TUNABLE=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// The clock tick that deadlines and ages are compared in, in place of the recorded one.
    #[arg(long, value_name = "N", value_parser = tick_of)]
    tick_us: Option<u64>,
    /// Compares each choice with the recorded one, and goes on with the recorded one.
    #[arg(long)]
    follow: bool,
    /// One JSON document on standard output and nothing else.
    #[arg(long)]
    json: bool,
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("not TUNABLE=VALUE".to_owned()),
    }
}

impl Replay {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let file = self.file.display().to_string();
        let bad = |what: String| Failure::Bad(format!("{file}: {what}"));
        let bytes = std::fs::read(&self.file).map_err(|error| bad(error.to_string()))?;
        let recording = Recording::read(&bytes).map_err(|error| bad(error.to_string()))?;
        let options = Options {
            scheduler: self.scheduler,
            settings: self.settings,
            tick_us: self.tick_us,
            follow: self.follow,
        };
        let outcome = replay(&recording, &options).map_err(|error| bad(error.to_string()))?;
        let written = if self.json { write_json(&file, &outcome) } else { write_lines(&outcome) };
        // The reader may have seen enough.
        if let Err(error) = written
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            return Err(Failure::Bad(format!("standard output: {error}")));
        }
        match outcome.differences {
            None | Some(0) => Ok(()),
            Some(1) => Err(Failure::No(format!("{file}: 1 decision differs"))),
            Some(count) => Err(Failure::No(format!("{file}: {count} decisions differ"))),
        }
    }
}

fn write_lines(outcome: &Outcome) -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in &outcome.lines {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{outcome}")?;
    out.flush()
}

fn write_json(file: &str, outcome: &Outcome) -> std::io::Result<()> {
    let lines: Vec<Value> = outcome.lines.iter().map(line_json).collect();
    let mut document = json!({
        "file": file,
        "scheduler": outcome.scheduler,
        "tick_us": outcome.tick_us,
        "dispatches": outcome.dispatches,
    });
    match outcome.differences {
        None => document["order"] = Value::from(lines),
        Some(count) => {
            document["matched"] = Value::from(outcome.matched());
            document["percent"] = Value::from(outcome.hundredths() as f64 / 100.0);
            document["different"] = Value::from(count);
            document["differences"] = Value::from(lines);
        }
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{document:#}")
}

fn line_json(line: &Line) -> Value {
    match line {
        Line::Dispatched { time_us, range } => {
            json!({ "time_us": time_us, "request": range.as_ref().map(range_json) })
        }
        Line::Differs { time_us, recorded, chose } => json!({
            "time_us": time_us,
            "recorded": decision_json(recorded),
            "chose": decision_json(chose),
        }),
    }
}

/// A dispatch is kind `D`, as in the file; nothing chosen is null.
fn decision_json(decision: &Decision) -> Value {
    let (kind, range) = match decision {
        Decision::Nothing => return Value::Null,
        Decision::Dispatch(range) => ("D".to_owned(), range),
        Decision::Arrival(kind, range) => (kind.to_string(), range),
    };
    let mut value = range_json(range);
    value["kind"] = Value::from(kind);
    value
}

fn range_json(range: &Range) -> Value {
    json!({ "op": range.letter(), "sector": range.sector, "sectors": range.sectors })
}

//! The output of `weir compare`: progress, tables, the saved document.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use weir_access::{folder, save};
use weir_bench::compare::{self, table};
use weir_report::terminal;
use weir_trace::document::{Compare, CompareDocument, Document, Point};
use weir_trace::labels::labels;

use crate::Failure;
use crate::progress::{Line, SHOWN_FROM_S, bar};

/// How far a comparison is.
pub(super) struct Progress {
    /// The text it has before the round.
    head: String,
    line: Line,
    /// What the variants are called, by name.
    labels: Vec<(String, String)>,
}

impl Progress {
    /// `value` is what is swept now, if anything.
    pub(super) fn new(quiet: bool, value: &str, variants: &[compare::Variant]) -> Progress {
        let head = if value.is_empty() { String::new() } else { format!("{value}: ") };
        let told: Vec<_> = variants.iter().map(|one| (one.name.as_str(), &one.options)).collect();
        let names = variants.iter().map(|variant| variant.name.clone());
        let labels = names.zip(labels(&told)).collect();
        Progress { head, line: Line::new(quiet), labels }
    }

    pub(super) fn show(&mut self, now: &compare::Progress<'_>) {
        let named = self.labels.iter().find(|(name, _)| name == now.variant);
        let variant = named.map_or(now.variant, |(_, label)| label);
        if let Some(line) = line(&self.head, &compare::Progress { variant, ..*now }) {
            self.line.show(&line);
        }
    }

    /// Leaves an empty line behind.
    pub(super) fn end(&mut self) {
        self.line.end();
    }
}

/// The progress line of a comparison; nothing of one that does not take long.
fn line(head: &str, now: &compare::Progress<'_>) -> Option<String> {
    let compare::Progress { variant, round, made, planned, run_s, known } = *now;
    // Runs that are made again come on top of what was planned.
    let all = planned.max(made + 1);
    if f64::from(all) * run_s <= SHOWN_FROM_S {
        return None;
    }
    let left_s = f64::from(all - made) * run_s;
    let bar = bar(made.into(), all.into());
    let known = if known.is_empty() { String::new() } else { format!("; so far {known}") };
    Some(format!("{bar}  {head}round {round}, {variant}, some {left_s:.0} s left{known}"))
}

/// One comparison for people: the answer first, then its figures, then what is to be known about
/// it.
pub(super) fn tables(text: &mut String, swept: Option<(&str, &str)>, document: &CompareDocument) {
    let columns = columns();
    let mut say = |line: &str| text.push_str(&terminal::wrapped(line, columns));
    if let Some((name, value)) = swept {
        say(&format!("{name}={value}"));
        say("");
    }
    text.push_str(&terminal::tables(&document.compare, columns));
    if let Some(of_device) = compare::command::table::table(&document.compare) {
        text.push_str(&format!("\n{of_device}\n"));
    }
    let mut say = |line: &str| text.push_str(&terminal::wrapped(line, columns));
    for notice in compare::notices(document) {
        say(&format!("note: {notice}"));
    }
    let environment = &document.compare.environment;
    let other = |name: &str| environment.other.get(name);
    let number = |name: &str| other(name).and_then(Value::as_f64);
    if let Some((requests, took)) = number("requests").zip(number("wall_s")) {
        let simulated = number("simulated_s").unwrap_or_default();
        let runs = document.runs.len();
        say(&format!("{runs} runs, {requests} I/Os: {simulated:.2} s simulated in {took:.1} s"));
    } else {
        table::voided(&document.runs, &|name| label(&document.compare, name))
            .lines()
            .for_each(&mut say);
        let voided = other("voided_runs").and_then(Value::as_u64).unwrap_or_default();
        let rounds = match environment.voided_rounds {
            0 => String::new(),
            1 => String::from(", in 1 round"),
            rounds => format!(", in {rounds} rounds"),
        };
        say(&format!(
            "{voided} of {} runs voided{rounds}; the host kept {:.1} % of the CPUs for others",
            document.runs.len(),
            environment.steal_pct
        ));
    }
    if let Some(seed) = other("seed") {
        say(&format!("--randseed {seed} gives the same order and the same I/O again"));
    }
    if let Some(why) = other("failure").and_then(Value::as_str) {
        // What its command printed is told with the failure, at the end.
        say(&format!("partial: {}", why.lines().next().unwrap_or_default()));
    }
    text.push_str(&terminal::legend(&document.compare, columns));
    text.push('\n');
}

/// What a variant is called.
fn label(compare: &Compare, name: &str) -> String {
    let told: Vec<(&str, &Value)> =
        compare.variants.iter().map(|one| (one.name.as_str(), &one.options)).collect();
    let at = told.iter().position(|(known, _)| *known == name);
    at.map_or_else(|| String::from(name), |at| labels(&told).swap_remove(at))
}

/// How wide the output is: as `COLUMNS` says, or the terminal, or as wide as it may be.
fn columns() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|told| told.trim().parse::<usize>().ok());
    let terminal = || rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let told = told.or_else(|| terminal().map(|size| usize::from(size.ws_col)));
    told.filter(|columns| *columns > 0).unwrap_or(terminal::COLUMNS_MOST)
}

/// Says where a file is, if it could be written.
pub(super) fn written(text: &mut String, what: &str, path: &Path, done: &Result<(), Failure>) {
    if done.is_ok() {
        text.push_str(&format!("{what}: {}\n", path.display()));
    }
}

/// The document that `--json` promises: of a sweep, one for each value.
pub(super) fn json(document: &Document) -> Result<String, Failure> {
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
        other @ (Document::Bench(_) | Document::Iostat(_) | Document::Sim(_)) => {
            serde_json::to_string_pretty(other)
        }
    };
    Ok(text.map_err(|error| error.to_string())? + "\n")
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

/// Sees that a file can be written, and makes its folder: found out before the work rather than
/// behind it. A file that is there stays as it is.
pub(super) fn probe(path: PathBuf) -> Result<(), Failure> {
    make_folder(&path)?;
    Ok(save::probe(&path).map_err(|error| format!("{}: {error}", path.display()))?)
}

/// Makes the folder of a file. The default folder must belong to this user.
fn make_folder(path: &Path) -> Result<(), Failure> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    if folder == Path::new(super::FOLDER) {
        return Ok(folder::own(folder)?);
    }
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(())
}

/// Writes a file whole or not at all.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    make_folder(path)?;
    Ok(save::save(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_bar_and_only_of_what_takes_longer_than_two_seconds() {
        let now = |made, run_s| compare::Progress {
            variant: "b",
            round: 3,
            made,
            planned: 20,
            run_s,
            known: "",
        };
        assert_eq!(line("", &now(5, 0.1)), None);
        let bar = line("8: ", &now(5, 2.5)).expect("it takes long");
        let expected = "[#####...............]  25 %  8: round 3, b, some 38 s left";
        assert_eq!(bar, expected);
        let late = line("", &now(24, 2.5)).expect("it takes long");
        assert!(late.starts_with("[###################.]  96 %"), "{late}");
    }
}

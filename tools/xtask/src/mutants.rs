//! `cargo xtask mutants`: whether the tests of the schedulers notice when a decision is changed.
//!
//! All mutations are built into one copy of the code, each behind a switch; a trial runs those unit
//! tests, tables and scenes that come by the mutation, one after the other, until one fails. A
//! mutation that no test notices is a survivor, and has a reason in the list of `known.rs` or fails
//! the run. Outcomes are noted, so a run that was stopped goes on where it ended.

mod known;
mod points;
mod tree;
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use self::tree::{Numbered, Tree};
use self::trial::{Outcome, Tests};
use crate::workspace::{Error, Workspace};

/// Code that decides: what the schedulers do, not how it is told or replayed.
const DECISIONS: [&str; 8] = [
    "core/sched/src/mq/bfq/",
    "core/sched/src/legacy/cfq/",
    "core/sched/src/mq/deadline.rs",
    "core/sched/src/legacy/deadline.rs",
    "core/sched/src/deadline.rs",
    "core/sched/src/mq/kyber.rs",
    "core/sched/src/mq/kyber/",
    "core/sched/src/fair/",
];

/// Among it, what only shows the state.
const VIEWS: [&str; 1] = ["core/sched/src/mq/bfq/state.rs"];

/// Where outcomes are noted, in the workspace.
const NOTES: &str = "target/mutants/outcomes.txt";

/// Which mutations are tried.
#[derive(Debug, clap::Args)]
pub struct Settings {
    /// Files with one of these words in their path, as in `bfq,cfq`; all decision code otherwise.
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    of: Vec<String>,
    /// So many of them, drawn by the seed; 0 is all.
    #[arg(long, value_name = "COUNT", default_value_t = 400)]
    sample: usize,
    /// Draws the sample.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Those in lines that have changed since this revision.
    #[arg(long, value_name = "REVISION")]
    since: Option<String>,
    /// Those that this file names, each on a line of its own and as they are told here: survivors
    /// of an earlier run, say.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["of", "since"])]
    named: Option<PathBuf>,
    /// No trial begins after so long, building included; what was not tried is told.
    #[arg(long)]
    seconds: Option<u64>,
    /// Trials at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// Runs the trials; whether each survivor is known and each entry of the list names a mutation.
pub fn run(workspace: &Workspace, settings: &Settings) -> Result<bool, Error> {
    let start = Instant::now();
    let root = &workspace.root;
    let changed = match &settings.since {
        Some(since) => Some(changed_lines(root, since)?),
        None => None,
    };
    if changed.as_ref().is_some_and(|changed| !changed.keys().any(|path| decides(path))) {
        println!("mutants: skipped: no decision code has changed");
        return Ok(true);
    }
    let reasons = known::list(root)?;
    // What is said of survivors changes none of them.
    let mut tree = Tree::of(root, known::LIST, decides)?;
    let programs = tree.build()?;
    let viable = tree.viable();
    let names: BTreeMap<usize, String> =
        viable.iter().map(|one| one.number).zip(known::names(&viable)).collect();
    let chosen = match &settings.named {
        Some(file) => {
            let text = fs::read_to_string(file);
            let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
            named(&viable, &names, &text)
        }
        None => choose(&viable, settings, changed.as_ref()),
    };
    println!(
        "mutants: seed {}, {} of {} mutations that compile ({} do not), {}",
        settings.seed,
        chosen.len(),
        viable.len(),
        tree.unviable(),
        seconds(start.elapsed())
    );
    let tests = Tests::of(&programs, &tree.folder)?;
    println!("mutants: {} tests take {:.1} s without one", tests.len(), tests.seconds());
    let until = settings.seconds.map(|seconds| start + Duration::from_secs(seconds));
    let notes = Notes::of(&root.join(NOTES), tree.hash)?;
    let outcomes = attempt_all(&chosen, &names, &tests, &notes, settings.jobs, until)?;
    let all: BTreeSet<&str> = names.values().map(String::as_str).collect();
    let stale = reasons.keys().filter(|name| !all.contains(name.as_str()));
    let stale: Vec<&String> = stale.collect();
    let lines: BTreeMap<&str, usize> =
        viable.iter().map(|one| (names[&one.number].as_str(), one.mutation.line)).collect();
    let fine = report(&outcomes, &reasons, &lines);
    for name in &stale {
        println!("mutants: {}: no such mutation any more: {name}", known::LIST);
    }
    let left = chosen.len() - outcomes.len();
    if left > 0 {
        println!("mutants: {left} were not tried: the time is over");
    }
    println!("mutants: {}", seconds(start.elapsed()));
    Ok(fine && stale.is_empty())
}

fn decides(path: &str) -> bool {
    let of_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
    !of_tests && !VIEWS.contains(&path) && DECISIONS.iter().any(|part| path.starts_with(part))
}

fn seconds(took: Duration) -> String {
    format!("{} s", took.as_secs_f64().round())
}

fn choose<'a>(
    viable: &'a [Numbered],
    settings: &Settings,
    changed: Option<&Changed>,
) -> Vec<&'a Numbered> {
    let takes = |one: &&Numbered| {
        let named = settings.of.is_empty() || settings.of.iter().any(|of| one.path.contains(of));
        let lines = changed.map(|changed| changed.get(&one.path));
        named && lines.is_none_or(|lines| lines.is_some_and(|l| l.contains(&one.mutation.line)))
    };
    let mut chosen: Vec<&Numbered> = viable.iter().filter(takes).collect();
    let mut state = settings.seed;
    for at in (1..chosen.len()).rev() {
        chosen.swap(at, (splitmix(&mut state) % (at as u64 + 1)) as usize);
    }
    if settings.sample > 0 {
        chosen.truncate(settings.sample);
    }
    // Mutations of one function are mostly noticed by the same test, which is then tried first.
    chosen.sort_by_key(|one| one.number);
    chosen
}

/// Those whose names are lines of `text`.
fn named<'a>(
    viable: &'a [Numbered],
    names: &BTreeMap<usize, String>,
    text: &str,
) -> Vec<&'a Numbered> {
    let wanted: BTreeSet<&str> = text.lines().map(str::trim).collect();
    viable.iter().filter(|one| wanted.contains(names[&one.number].as_str())).collect()
}

/// The generator splitmix64 of Steele, Lea and Flood.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Outcome by the name of a mutation, with the test that noticed it.
type Outcomes = BTreeMap<String, (Outcome, String)>;

fn attempt_all(
    chosen: &[&Numbered],
    names: &BTreeMap<usize, String>,
    tests: &Tests,
    notes: &Notes,
    jobs: usize,
    until: Option<Instant>,
) -> Result<Outcomes, Error> {
    let next = Mutex::new(chosen.iter());
    let outcomes = Mutex::new(Outcomes::new());
    let noticed: Mutex<BTreeMap<&str, usize>> = Mutex::new(BTreeMap::new());
    let work = || -> Result<(), Error> {
        loop {
            let taken = next.lock().expect("no trial panics").next();
            let Some(one) = taken else { return Ok(()) };
            let name = &names[&one.number];
            let outcome = match notes.known.get(name) {
                Some(known) => known.clone(),
                None if until.is_some_and(|until| Instant::now() > until) => return Ok(()),
                None => {
                    let function = one.mutation.function.as_str();
                    let first = noticed.lock().expect("no trial panics").get(function).copied();
                    let (outcome, test) = tests.attempt(one.number, first)?;
                    if let Some(test) = test {
                        noticed.lock().expect("no trial panics").insert(function, test);
                    }
                    let test = test.map_or("-", |test| tests.name(test)).to_owned();
                    notes.add(name, outcome, &test)?;
                    (outcome, test)
                }
            };
            outcomes.lock().expect("no trial panics").insert(name.clone(), outcome);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| worker.join().expect("no trial panics"));
        ends.collect::<Result<Vec<()>, Error>>()
    })?;
    Ok(outcomes.into_inner().expect("no trial panics"))
}

/// Prints what was found; whether each survivor has its reason.
fn report(
    outcomes: &Outcomes,
    reasons: &BTreeMap<String, String>,
    lines: &BTreeMap<&str, usize>,
) -> bool {
    let count = |is: Outcome| outcomes.values().filter(|(outcome, _)| *outcome == is).count();
    let mut fine = true;
    for (name, (outcome, test)) in outcomes {
        let line = lines.get(name.as_str()).copied().unwrap_or(0);
        match (outcome, reasons.get(name)) {
            (Outcome::Timeout, _) => println!("mutants: timeout of {test} (line {line}): {name}"),
            (Outcome::Caught, Some(_)) => {
                println!("mutants: caught, strike it from {}: {name}", known::LIST);
            }
            (Outcome::Caught, None) => {}
            (Outcome::Survived | Outcome::Unreached, Some(reason)) => {
                println!("mutants: known survivor: {name}: {reason}");
            }
            (Outcome::Survived | Outcome::Unreached, None) => {
                let how = if *outcome == Outcome::Survived { "SURVIVED" } else { "UNREACHED" };
                println!("mutants: {how} (line {line}): {name}");
                fine = false;
            }
        }
    }
    let caught = count(Outcome::Caught) + count(Outcome::Timeout);
    println!(
        "mutants: {caught} of {} caught ({:.1} %), {} by a timeout; {} survived, {} unreached",
        outcomes.len(),
        100.0 * caught as f64 / outcomes.len().max(1) as f64,
        count(Outcome::Timeout),
        count(Outcome::Survived),
        count(Outcome::Unreached)
    );
    fine
}

/// Outcomes of an earlier run on the same code and tests, and the file where more are added.
struct Notes {
    known: Outcomes,
    file: Mutex<fs::File>,
}

impl Notes {
    fn of(path: &Path, hash: u64) -> Result<Notes, Error> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).unwrap_or_default();
        let title = format!("code {hash:016x}");
        let known = read_notes(&text, &title);
        if known.is_empty() {
            fs::write(path, format!("{title}\n")).map_err(failed)?;
        } else {
            println!("mutants: {} outcomes are noted", known.len());
        }
        let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        Ok(Notes { known, file: Mutex::new(file) })
    }

    fn add(&self, name: &str, outcome: Outcome, test: &str) -> Result<(), Error> {
        let word = WORDS.iter().find(|(_, known)| *known == outcome).map_or("", |(word, _)| word);
        let mut file = self.file.lock().expect("no trial panics");
        writeln!(file, "{word}\t{test}\t{name}").map_err(|error| format!("{NOTES}: {error}"))
    }
}

const WORDS: [(&str, Outcome); 4] = [
    ("caught", Outcome::Caught),
    ("timeout", Outcome::Timeout),
    ("survived", Outcome::Survived),
    ("unreached", Outcome::Unreached),
];

fn read_notes(text: &str, title: &str) -> Outcomes {
    let mut lines = text.lines();
    if lines.next() != Some(title) {
        return Outcomes::new();
    }
    let one = |line: &str| {
        let mut parts = line.splitn(3, '\t');
        let (word, test, name) = (parts.next()?, parts.next()?, parts.next()?);
        let (_, outcome) = WORDS.iter().find(|(known, _)| *known == word)?;
        Some((name.to_owned(), (*outcome, test.to_owned())))
    };
    lines.filter_map(one).collect()
}

/// Changed lines by file.
type Changed = BTreeMap<String, BTreeSet<usize>>;

fn changed_lines(root: &Path, since: &str) -> Result<Changed, Error> {
    let mut command = Command::new("git");
    command.args(["diff", "--unified=0", "--no-ext-diff", since, "--", "core/sched/src"]);
    let output = command.current_dir(root).output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("git diff {since}: {said}"));
    }
    Ok(read_changes(&String::from_utf8_lossy(&output.stdout)))
}

fn read_changes(diff: &str) -> Changed {
    let mut changed = Changed::new();
    let mut path = None;
    for line in diff.lines() {
        if let Some(named) = line.strip_prefix("+++ ") {
            path = named.strip_prefix("b/");
        }
        let hunk = line.strip_prefix("@@ ").and_then(|rest| rest.split(" @@").next());
        let added = hunk.and_then(|hunk| hunk.split('+').nth(1));
        if let (Some(path), Some(added)) = (path, added) {
            let mut numbers = added.split(',').map(|number| number.parse().unwrap_or(0));
            let (from, count) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(1));
            changed.entry(path.to_owned()).or_default().extend(from..from + count);
        }
    }
    changed
}

#[cfg(test)]
mod tests;

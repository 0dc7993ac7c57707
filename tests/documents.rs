//! docs/documents.md: each of its commands is run in the order in which they stand there, and what
//! they say is held against what is printed there.
//!
//! A block `console` is held line by line; `...` stands for any lines. A block `text` has figures
//! of one run: there the command succeeds, each line of the page begins as one that the command
//! says, and without a line `...` each line that it says as one of the page, but for those that
//! another machine may have otherwise ([`is_of_the_machine`]). What a comparison finds is its own:
//! of it the lines are held that say what was compared.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use daemon::outside::mortal;
use daemon::program::{Ended, Running, program};
use daemon::{Daemon, Folder, WEIR};

/// What begins the headings of the sections with commands.
const SECTIONS: [&str; 5] = ["1 ", "2 ", "3 ", "4 ", "5 "];

/// Beginnings of lines that depend on the machine: its CPUs, its memory, its notices, and I/Os that
/// are few beside others, so that a busy one may have done none.
const OF_THE_MACHINE: [&str; 6] = ["CPU", "ram:", "file:", "weir:", "metadata", "missed:"];
/// What says how I/O was spread: a disk has a hard queue for each CPU unless it states how many.
const SPREAD: &str = "requests of the hard queues";
/// Beginnings of lines that the page has to have where a command says them. Others may be there on
/// a busy machine alone.
const TOLD: [&str; 4] = [SPREAD, "The document", "document,", "computed,"];
/// And of those that say what was compared.
const VARIANTS: [&str; 2] = ["a, ", "b, "];

struct Step {
    /// The place in the page, counted from 1.
    line: usize,
    command: String,
    is_exact: bool,
    shown: Vec<String>,
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/documents.md");
    fs::read_to_string(path).expect("the page")
}

/// The commands of each section with its heading.
fn sections(page: &str) -> Vec<(String, Vec<Step>)> {
    let mut sections: Vec<(String, Vec<Step>)> = Vec::new();
    // Within a block, whether it is exact.
    let mut block = None;
    let mut goes_on = false;
    for (number, line) in page.lines().enumerate() {
        match (block, line) {
            (None, "```console") => block = Some(true),
            (None, "```text") => block = Some(false),
            (None, line) => {
                assert!(!line.starts_with("$ "), "line {}: outside a block", number + 1);
                if let Some(heading) = line.strip_prefix("## ") {
                    sections.push((String::from(heading), Vec::new()));
                }
            }
            (Some(_), "```") => (block, goes_on) = (None, false),
            (Some(is_exact), line) => {
                let steps = &mut sections.last_mut().expect("a section").1;
                if let Some(command) = line.strip_prefix("$ ") {
                    let command = String::from(command);
                    steps.push(Step { line: number + 1, command, is_exact, shown: Vec::new() });
                } else if goes_on {
                    let step = steps.last_mut().expect("a command");
                    step.command = format!("{}\n{line}", step.command);
                } else {
                    let step = steps.last_mut();
                    step.expect("a block begins with a command").shown.push(line.trim_end().into());
                }
                let begins = line.starts_with("$ ") || goes_on;
                goes_on = begins && line.ends_with('\\');
            }
        }
    }
    sections
}

/// The same in a shell, whose `weir` is the built one and whose folder is the test's.
fn at_home(mut shell: Command, folder: &Folder, script: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let built = Path::new(WEIR).parent().expect("a folder").display().to_string();
    shell.args(["-c", script]).current_dir(folder.path());
    shell.stdin(Stdio::null()).stdout(Stdio::null());
    shell.env("PATH", format!("{built}:{path}:/usr/sbin:/sbin")).env("TMPDIR", folder.path());
    for name in ["WEIR_LOG", "WEIR_CONTROL", "XDG_RUNTIME_DIR", "COLUMNS"] {
        shell.env_remove(name);
    }
    shell
}

/// Whether the lines are those that are shown, where `...` is any number of them.
fn are_shown(said: &[&str], shown: &[String]) -> bool {
    match (said.split_first(), shown.split_first()) {
        (_, Some((any, rest))) if any == "..." => {
            (0..=said.len()).any(|from| are_shown(&said[from..], rest))
        }
        (Some((line, said)), Some((wanted, shown))) => {
            line.trim_end() == wanted && are_shown(said, shown)
        }
        (None, None) => true,
        _ => false,
    }
}

/// A line without its first word if that is a figure, up to the next one or to where a column ends.
fn beginning(line: &str) -> &str {
    let is_figure = |c: char| c.is_ascii_digit() || c == '.';
    let line = line.trim_start().trim_start_matches(is_figure).trim_start();
    let figure = line.find(|c: char| c.is_ascii_digit()).unwrap_or(line.len());
    let column = line.find("  ").unwrap_or(line.len());
    line[..figure.min(column)].trim_end()
}

/// Whether another machine, or this one when it is busy, may have the line or not.
fn is_of_the_machine(command: &str, line: &str) -> bool {
    let line = line.trim_start();
    OF_THE_MACHINE.iter().any(|begins| line.starts_with(begins))
        || line.contains(": latencies of ")
        || line.contains(" flush ")
        || (line.starts_with(SPREAD) && !command.contains("queues="))
}

/// The first line of the page that was not said, or one that was said and the page has to have.
fn apart(command: &str, said: &[&str], shown: &[String]) -> Option<String> {
    let lacks = |lines: &[&str], line: &str| {
        let is_alike = |other: &&str| beginning(other) == beginning(line);
        !is_of_the_machine(command, line) && !lines.iter().any(is_alike)
    };
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    if let Some(line) = shown.iter().find(|line| **line != "..." && lacks(said, line)) {
        return Some(format!("has no line {line:?}"));
    }
    let is_told = |line: &str| TOLD.iter().any(|begins| line.trim_start().starts_with(begins));
    let mut told = said.iter().filter(|line| is_told(line) && !shown.contains(&"..."));
    let more = told.find(|line| lacks(&shown, line));
    more.map(|line| format!("has a line that the page does not have: {line:?}"))
}

fn run(folder: &Folder, step: &Step) {
    let Step { line, command, is_exact, shown } = step;
    let script = format!("exec 2>&1\n{command}");
    let Ended { code, stdout, .. } = Running::start(at_home(program("sh"), folder, &script)).end();
    // Empty lines at the end are not shown.
    let said: Vec<&str> = stdout.trim_end().lines().collect();
    if *is_exact {
        let wanted = shown.join("\n");
        assert!(are_shown(&said, shown), "line {line}: {command}\n{stdout}\ninstead of\n{wanted}");
        return;
    }
    let is_comparison = command.starts_with("weir compare");
    // Of a machine that is busy too few rounds may count.
    let is_undecided = is_comparison && code == Some(2) && stdout.contains("not compared: ");
    assert!(code == Some(0) || is_undecided, "line {line}: {command}\n{stdout}");
    if !is_comparison {
        let apart = apart(command, &said, shown);
        assert!(apart.is_none(), "line {line}: {command}\n{stdout}\n{}", apart.unwrap_or_default());
        return;
    }
    let of_variants = |line: &&str| VARIANTS.iter().any(|variant| line.starts_with(variant));
    for wanted in shown.iter().map(|line| beginning(line)).filter(of_variants) {
        let is_there = said.iter().any(|line| line.trim_start().starts_with(wanted));
        assert!(is_there, "line {line}: {command}\n{stdout}\nhas no line {wanted:?}");
    }
}

/// Runs all commands of the section whose heading begins so.
fn hold(number: &str) {
    let sections = sections(&page());
    let mut steps = sections.iter().filter(|(heading, _)| heading.starts_with(number));
    let (Some((_, steps)), None) = (steps.next(), steps.next()) else {
        panic!("there is no one section {number:?}")
    };
    assert!(steps.len() >= 3, "a document that nothing is done with");
    let folder = Folder::new();
    let mut daemon: Option<Daemon> = None;
    for step in steps {
        let Some(serve) = step.command.strip_suffix('&') else {
            run(&folder, step);
            continue;
        };
        assert!(step.shown.is_empty(), "line {}: a daemon has a log", step.line);
        daemon.take().map(Daemon::stop);
        // What it says until it is ready goes through the test, which waits for that.
        let to_log = serve.trim_end().strip_suffix("2> log");
        let script = format!("exec {}", to_log.unwrap_or(serve));
        let started = Daemon::spawn(at_home(mortal("sh"), &folder, &script));
        if to_log.is_some() {
            fs::write(folder.near("log"), started.said()).expect("a log");
        }
        daemon = Some(started);
    }
    daemon.map(Daemon::stop);
}

#[test]
fn the_comparison_of_both_paths_under_a_database_is_done_as_the_page_says() {
    hold(SECTIONS[0]);
}

#[test]
fn the_note_on_a_small_computer_is_done_as_the_page_says() {
    hold(SECTIONS[1]);
}

#[test]
fn the_tuning_guide_is_done_as_the_page_says() {
    hold(SECTIONS[2]);
}

#[test]
fn the_issue_on_several_queues_is_done_as_the_page_says() {
    hold(SECTIONS[3]);
}

#[test]
fn the_paper_on_efficiency_is_done_as_the_page_says() {
    hold(SECTIONS[4]);
}

#[test]
fn no_section_has_commands_that_no_test_runs() {
    for (heading, steps) in sections(&page()) {
        let is_run = SECTIONS.iter().any(|number| heading.starts_with(number));
        assert!(is_run || steps.is_empty(), "{heading}");
    }
}

#[test]
fn lines_are_held_whole_and_beginnings_up_to_the_first_figure() {
    let shown = |lines: &[&str]| lines.iter().map(|line| String::from(*line)).collect::<Vec<_>>();
    assert!(are_shown(&["a", "b", "c"], &shown(&["a", "...", "c"])));
    assert!(are_shown(&["a"], &shown(&["a", "..."])));
    assert!(!are_shown(&["a", "b"], &shown(&["a"])));
    assert!(!are_shown(&[], &shown(&["a"])));
    assert_eq!(beginning("  here, low_latency=1   4.2"), "here, low_latency=");
    assert_eq!(beginning("16 threads read   1   4.2"), "threads read");
    assert_eq!(beginning("   4.056    4.083"), "");
    assert_eq!(beginning("read bandwidth, GB/s: here 1"), "read bandwidth, GB/s: here");
}

#[test]
fn a_line_that_only_the_page_or_only_the_command_has_is_found() {
    let page = |lines: &[&str]| lines.iter().map(|line| String::from(*line)).collect::<Vec<_>>();
    let both = ["read  1", "all  2"];
    assert_eq!(apart("weir bench", &both, &page(&["read  7", "all  8"])), None);
    let missing = apart("weir bench", &both[..1], &page(&both));
    assert_eq!(missing.as_deref(), Some("has no line \"all  2\""));
    let told = ["read  1", "computed, % reduction  2"];
    let more = apart("weir bench", &told, &page(&told[..1]));
    assert!(more.is_some_and(|more| more.contains("page does not have: \"computed,")));
    // A row that only a slow machine has.
    assert_eq!(apart("weir bench", &both, &page(&both[..1])), None);
    assert_eq!(apart("weir bench", &both, &page(&[both[0], both[1], "data flush  3"])), None);
    assert_eq!(apart("weir bench", &both, &page(&["read  1", "..."])), None);
    let spread = [&both[..], &["requests of the hard queues of ram:1M: 1 2"]].concat();
    assert_eq!(apart("weir bench", &spread, &page(&both)), None, "it has one for each CPU");
    assert!(apart("weir bench --target ram:1M,queues=2", &spread, &page(&both)).is_some());
    let busy = [&both[..], &["CPU 0: user 1 %", "data: latencies of write from p99 on"]].concat();
    assert_eq!(apart("weir bench", &busy, &page(&both)), None);
}

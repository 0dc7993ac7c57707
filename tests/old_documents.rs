//! Documents that an earlier weir saved still draw, and a comparison of it is gone on with or
//! refused with the reason.
//!
//! `tests/saved` has one of `weir bench` and one of `weir compare`, as the commit 891fba29 wrote
//! them: without I/Os that had not ended, the times of the CPUs, and metrics of one kind of I/O.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::Path;

use daemon::program::{Ended, Running};
use daemon::words::expect_refused;
use daemon::{Folder, weir};
use serde_json::Value;

const COMPARED: &str = include_str!("saved/compare-before.json");
const BENCHED: &str = include_str!("saved/bench-before.json");

fn run(folder: &Folder, words: &[&str]) -> Ended {
    let mut command = weir(folder);
    command.args(words);
    Running::start(command).end()
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Draws a saved document; the page, the words and the table.
#[track_caller]
fn drawn(document: &str) -> [String; 3] {
    let folder = Folder::new();
    fs::write(folder.near("saved.json"), document).expect("a file");
    let words = ["report", "saved.json", "-o", "a.html", "--markdown", "a.md", "--csv", "a.csv"];
    let ended = run(&folder, &words);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ["a.html", "a.md", "a.csv"].map(|name| read(&folder.near(name)))
}

#[test]
fn an_old_comparison_is_drawn_with_its_figures_and_verdicts() {
    let [page, words, table] = drawn(COMPARED);
    for verdict in ["no detectable difference", "too few rounds count (5 of 5)"] {
        assert!(COMPARED.contains(verdict), "{verdict}");
    }
    for text in ["nomerges=0", "nomerges=2"] {
        assert!(page.contains(text) && words.contains(text), "{text}: {words}");
    }
    assert!(page.contains("<svg"), "a chart");
    // The ratio that was saved: 1.231.
    let ratio = json(COMPARED)["compare"]["comparisons"][0]["ratio"].as_f64().expect("a ratio");
    let change = format!("{:+.1} %", (ratio - 1.0) * 100.0);
    assert_eq!(change, "+23.1 %");
    assert!(page.contains(&change) && words.contains(&change), "{words}");
    let runs = json(COMPARED)["runs"].as_array().map(Vec::len).expect("runs");
    let rows = table.lines().filter(|line| line.contains(",all,all,errors,")).count();
    assert_eq!(rows, runs, "{table}");
}

#[test]
fn an_old_run_is_drawn_with_its_figures() {
    let [page, words, table] = drawn(BENCHED);
    assert!(page.contains("<svg"), "a chart");
    for text in [&page, &words, &table] {
        assert!(text.contains("26320") || text.contains("26,320"), "I/Os a second: {text}");
    }
    assert_eq!(json(BENCHED)["bench"]["iops"].as_f64(), Some(26320.0));
}

#[test]
fn an_old_comparison_is_gone_on_with_on_its_machine_and_on_no_other() {
    let folder = Folder::new();
    let with = |environment: &Value| {
        let mut document = json(COMPARED);
        for run in document["runs"].as_array_mut().expect("runs") {
            run["document"]["environment"] = environment.clone();
        }
        fs::write(folder.near("before.json"), document.to_string()).expect("a file");
    };
    let other = serde_json::json!({"cpus": 3, "cpu_model": "Another", "kernel": "1.2.3"});
    with(&other);
    let parts = ["before.json", "measured with 3 CPUs Another, Linux 1.2.3"];
    expect_refused(&folder, &["compare", "--continue", "before.json"], &parts);
    // This machine's, as a run on it has it.
    let short = ["--target", "null:1MiB", "--rw", "read", "--runtime", "10ms", "--quiet"];
    let ended = run(&folder, &[&["bench"], &short[..], &["--save", "now.json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    with(&json(&read(&folder.near("now.json")))["environment"]);
    let words = ["compare", "--continue", "before.json", "--max-rounds", "5", "--quiet"];
    let ended =
        run(&folder, &[&words[..], &["--save", "more.json", "--report", "m.html"]].concat());
    assert!(matches!(ended.code, Some(0 | 2)), "{ended:?}");
    // The table of the terminal, of old runs and new ones together.
    for text in ["nomerges=0", "nomerges=2", "IOPS", "Mean latency", "CPU per I/O"] {
        assert!(ended.stdout.contains(text), "{text}: {ended:?}");
    }
    let more = json(&read(&folder.near("more.json")));
    let (old, new) = (json(COMPARED), &more["runs"]);
    let count = old["runs"].as_array().map(Vec::len).expect("runs");
    let new = new.as_array().expect("runs");
    assert!(new.len() >= count + 10, "five rounds more: {}", new.len());
    let ios = |run: &Value| run["document"]["bench"]["ios"].clone();
    assert!(old["runs"].as_array().into_iter().flatten().map(ios).eq(new[..count].iter().map(ios)));
    assert!(read(&folder.near("m.html")).contains("<svg"));
}

//! `weir replay` as people and scripts meet it: what it prints, how it ends, what it refuses.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// A recording in a file of its own.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: impl AsRef<[u8]>) -> File {
        let name = format!("{}-{name}.replay", std::process::id());
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, content).expect("a file");
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn weir(words: &[&str]) -> Ended {
    let weir = env!("CARGO_BIN_EXE_weir");
    let output = Command::new(weir).arg("replay").args(words).output().expect("the command runs");
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// Exit status 2, nothing on standard output, one line that names all of `parts`.
#[track_caller]
fn expect_refused(words: &[&str], parts: &[&str]) {
    let Ended { code, stdout, stderr } = weir(words);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "weir replay {words:?}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "weir replay {words:?} does not say {part:?} but {stderr}");
    }
}

const FIFO: &str = "# three, in another order than they came\nscheduler noop\ntick_us 4000\n\
                    0 I R 80 8 0 0\n1 I W 0 8 0 0\n2 I R 40 8 0 0\n5 D R 40 8 - -\n\
                    6 C R 40 8 - -\n7 D R 80 8 - -\n8 D W 0 8 - -\n";

#[test]
fn it_prints_what_is_dispatched_and_ends_with_0() {
    let file = File::new("prints", FIFO);
    let Ended { code, stdout, stderr } = weir(&[file.path()]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(stdout, "5 R 80 8\n7 W 0 8\n8 R 40 8\nreplay: 3 dispatches\n");
    assert_eq!(stderr, "");
}

#[test]
fn followed_it_says_where_it_differs_and_ends_with_1() {
    let file = File::new("differs", FIFO);
    let Ended { code, stdout, stderr } = weir(&["--follow", file.path()]);
    assert_eq!(code, Some(1), "{stderr}");
    let expected = "differs at 5: recorded R 40 8, chose R 80 8\n\
                    replay: 2 of 3 dispatches match (66.66 %)\n";
    assert_eq!(stdout, expected);
    assert!(stderr.contains(file.path()) && stderr.contains("1 decision differs"), "{stderr}");
}

#[test]
fn followed_it_ends_with_0_when_everything_matches() {
    let file = File::new("matches", "scheduler noop\n0 I R 8 8 0 0\n1 D R 8 8 - -\n");
    let Ended { code, stdout, .. } = weir(&["--follow", file.path()]);
    assert_eq!(code, Some(0));
    assert_eq!(stdout, "replay: 1 of 1 dispatches match (100.00 %)\n");
}

#[test]
fn its_json_is_one_document_with_the_same_content() {
    let file = File::new("json", FIFO);
    let Ended { code, stdout, .. } = weir(&["--json", "--follow", file.path()]);
    let document: Value = serde_json::from_str(&stdout).expect("one document");
    assert_eq!(code, Some(1));
    assert_eq!(document["scheduler"], "noop");
    assert_eq!((&document["matched"], &document["dispatches"]), (&2.into(), &3.into()));
    assert_eq!(document["percent"], 66.66);
    let difference = &document["differences"][0];
    assert_eq!((&difference["time_us"], &difference["chose"]["sector"]), (&5.into(), &80.into()));
    assert_eq!(difference["recorded"]["kind"], "D");
    let Ended { code, stdout, .. } = weir(&["--json", file.path()]);
    let document: Value = serde_json::from_str(&stdout).expect("one document");
    assert_eq!(code, Some(0));
    assert_eq!(document["order"].as_array().map(Vec::len), Some(3));
    assert_eq!(document["order"][1]["request"]["op"], "W");
}

#[test]
fn a_file_that_cannot_be_read_is_refused_with_its_name_the_line_and_the_reason() {
    for (name, text, parts) in [
        ("kind", "scheduler noop\n0 Q R 0 8 0 0", &["line 2", "KIND \"Q\"", "I, M, F, D, C"][..]),
        ("op", "scheduler noop\n\n0 I X 0 8 0 0", &["line 3", "OP \"X\"", "R, W, F, D"]),
        ("time", "scheduler noop\n9 I R 0 8 0 0\n8 I R 8 8 0 0", &["line 3", "8", "9"]),
        ("few", "scheduler noop\n0 I R 0 8", &["line 2", "5 fields", "7"]),
        ("class", "scheduler noop\n0 I R 0 8 4 0", &["line 2", "CLASS \"4\"", "0..=3"]),
        ("level", "scheduler noop\n0 I R 0 8 2 8", &["line 2", "LEVEL \"8\"", "0..=7"]),
        ("unqueued", "scheduler noop\n0 D R 0 8 - -", &["line 2", "R 0 8", "queued"]),
        ("unflown", "scheduler noop\n0 C R 0 8 - -", &["line 2", "R 0 8", "in flight"]),
        ("scheduler", "scheduler frob\n", &["line 1", "\"frob\"", "noop"]),
        ("unnamed", "0 I R 0 8 0 0\n", &["scheduler"]),
        ("tick", "scheduler noop\ntick_us x\n", &["line 2", "tick_us \"x\"", "1000000"]),
        ("set", "scheduler noop\nset fifo_batch 1\n", &["line 2", "fifo_batch", "none"]),
        ("late", "scheduler noop\n0 I R 0 8 0 0\ntick_us 1\n", &["line 3", "first event"]),
    ] {
        let file = File::new(name, text);
        for words in [&[file.path()][..], &["--follow", file.path()]] {
            expect_refused(words, &[&[file.path()], parts].concat());
        }
    }
    let file = File::new("binary", b"scheduler noop\n\xff\xfe");
    expect_refused(&[file.path()], &[file.path(), "line 2", "UTF-8"]);
    expect_refused(&["missing.replay"], &["missing.replay", "No such file"]);
}

#[test]
fn flags_go_before_the_header_and_what_they_cannot_mean_is_refused() {
    let file = File::new("flags", "scheduler frob\ntick_us 4000\nset frob 1\n0 I R 0 8 0 0\n");
    let Ended { code, stdout, .. } = weir(&["--scheduler", "noop", "--tick-us", "1", file.path()]);
    assert_eq!((code, stdout.as_str()), (Some(0), "replay: 0 dispatches\n"));
    for (words, parts) in [
        (&["--scheduler", "frob"][..], &["frob", "noop"][..]),
        (&["--scheduler", "none"], &["none", "noop"]),
        (&["--scheduler", "noop", "--set", "a=1"], &["\"a\"", "none"]),
        (&["--set", "a"], &["'a'", "--set", "TUNABLE=VALUE"]),
        (&["--set", "=1"], &["'=1'", "--set", "TUNABLE=VALUE"]),
        (&["--tick-us", "0"], &["'0'", "--tick-us", "1..=1000000"]),
        (&["--tick-us", "x"], &["'x'", "--tick-us", "1000000"]),
        (&["--frob"], &["--frob"]),
    ] {
        expect_refused(&[words, &[file.path()]].concat(), parts);
    }
    expect_refused(&[], &["FILE"]);
}

//! Recordings of a real kernel (`golden/`, described in `docs/fidelity.md`): weir's schedulers
//! make every decision as it did.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use weir_sched::replay::{Options, Outcome, Recording, replay};

const RECORDINGS: [&str; 4] =
    ["kyber-random", "mq-deadline-merging", "mq-deadline-random", "mq-deadline-write-starvation"];

fn recording(name: &str) -> Recording {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bytes = std::fs::read(folder.join(format!("{name}.replay"))).expect("a recording");
    Recording::read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn follow(recording: &Recording, settings: &[(&str, &str)], tick_us: Option<u64>) -> Outcome {
    let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
    let settings = settings.collect();
    let options = Options { settings, tick_us, follow: true, ..Options::default() };
    replay(recording, &options).expect("a recording that can be replayed")
}

#[track_caller]
fn expect_all(name: &str) {
    let outcome = follow(&recording(name), &[], None);
    for line in outcome.lines.iter().take(20) {
        eprintln!("{name}: {line}");
    }
    assert_eq!(outcome.hundredths(), 10_000, "{name}: {outcome}");
    assert!(outcome.dispatches > 900, "{name}: {outcome}");
}

#[test]
fn every_decision_is_the_kernels() {
    for name in RECORDINGS {
        expect_all(name);
    }
}

#[test]
fn every_recording_that_is_there_is_followed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let names = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name in UTF-8"));
    let mut names: Vec<_> =
        names.filter_map(|name| name.strip_suffix(".replay").map(str::to_owned)).collect();
    names.sort();
    assert_eq!(names, RECORDINGS);
}

#[test]
fn other_tunables_make_other_decisions() {
    for (name, tunable, value) in [
        ("mq-deadline-random", "fifo_batch", "1"),
        ("mq-deadline-random", "writes_starved", "1"),
        ("mq-deadline-random", "read_expire", "10"),
        ("mq-deadline-write-starvation", "writes_starved", "4"),
    ] {
        let outcome = follow(&recording(name), &[(tunable, value)], None);
        assert!(outcome.hundredths() < 10_000, "{name} with {tunable}={value}: {outcome}");
    }
}

#[test]
fn another_scheduler_makes_other_decisions_and_still_can_follow() {
    for name in RECORDINGS {
        let recording = recording(name);
        let options =
            Options { scheduler: Some("noop".to_owned()), follow: true, ..Options::default() };
        let outcome = replay(&recording, &options).expect("a replay");
        assert!(outcome.hundredths() < 10_000, "{name}: {outcome}");
        let alone = Options { follow: false, ..options };
        let alone = replay(&recording, &alone).expect("a replay");
        assert_eq!(alone.dispatches, outcome.dispatches);
    }
}

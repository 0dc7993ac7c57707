//! How many rounds `weir compare` makes: until it knows, as many as it was told, and more of what
//! was saved.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;

use daemon::program::{Ended, Running};
use daemon::words::expect_refused;
use daemon::{Folder, weir};
use serde_json::Value;

/// Two delays of which one is five times the other: a difference that any machine sees.
const APART: [&str; 10] = [
    "--target",
    "null:1GiB",
    "--a",
    "latency_us=200",
    "--b",
    "latency_us=1000",
    "--rw",
    "randread",
    "--runtime",
    "100ms",
];

/// A variant and itself.
const ALIKE: [&str; 11] = [
    "--target",
    "null:1GiB,latency_us=200",
    "--a",
    "nomerges=0",
    "--b",
    "nomerges=0",
    "--same",
    "--rw",
    "randread",
    "--runtime",
    "60ms",
];

fn compare(folder: &Folder, words: &[&str]) -> Ended {
    let mut command = weir(folder);
    command.args(["compare", "--quiet", "--ramp-time", "5ms"]).args(words);
    Running::start(command).end()
}

fn go_on(folder: &Folder, words: &[&str]) -> Ended {
    let mut command = weir(folder);
    command.args(["compare", "--quiet", "--continue"]).args(words);
    Running::start(command).end()
}

fn saved(folder: &Folder, name: &str) -> Value {
    let text = fs::read_to_string(folder.near(name)).expect("it is saved");
    serde_json::from_str(&text).expect("JSON")
}

/// The rounds of a document in the order of its runs, each once.
fn rounds(document: &Value) -> Vec<u64> {
    let runs = document["runs"].as_array().expect("runs");
    let mut rounds: Vec<u64> = runs.iter().filter_map(|run| run["round"].as_u64()).collect();
    rounds.dedup();
    rounds
}

fn verdict<'a>(document: &'a Value, metric: &str) -> &'a str {
    let all = document["compare"]["comparisons"].as_array().expect("comparisons");
    let found = all.iter().find(|found| found["metric"] == metric).expect("the metric");
    found["verdict"].as_str().expect("a verdict")
}

#[test]
fn a_plain_difference_ends_a_comparison_by_itself() {
    let folder = Folder::new();
    // Without an end of its own it would go on until the test gives up on it.
    let also = ["--max-time", "1d", "--save", "runs.json"];
    let ended = compare(&folder, &[&APART[..], &also].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let document = saved(&folder, "runs.json");
    assert_eq!(document["compare"]["inference"], "anytime");
    assert_eq!(verdict(&document, "iops"), "b is slower", "{}", ended.stdout);
    assert!(rounds(&document).len() >= 5, "{}", ended.stdout);
    assert!(!ended.stdout.contains("--continue"), "it is decided: {}", ended.stdout);
    assert!(ended.stdout.contains("Intervals hold"), "{}", ended.stdout);
}

#[test]
fn the_rounds_that_were_asked_for_are_made_whatever_they_say() {
    let folder = Folder::new();
    let ended = compare(&folder, &[&APART[..], &["--rounds", "9", "--save", "runs.json"]].concat());
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    let document = saved(&folder, "runs.json");
    assert_eq!(document["compare"]["inference"], "fixed");
    // Cold first rounds, two at most, are made up for.
    assert!((9..=11).contains(&rounds(&document).len()), "{:?}", rounds(&document));
    assert!(!ended.stdout.contains("--continue"), "{}", ended.stdout);
}

#[test]
fn a_comparison_that_has_not_decided_is_gone_on_with() {
    let folder = Folder::new();
    let first = [&ALIKE[..], &["--max-rounds", "5", "--save", "first.json"]].concat();
    let ended = compare(&folder, &first);
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    let before = saved(&folder, "first.json");
    assert_eq!(rounds(&before), [1, 2, 3, 4, 5]);
    let told = "more rounds: weir compare --continue first.json";
    assert!(ended.stdout.contains(told), "{}", ended.stdout);

    let ended = go_on(&folder, &["first.json", "--max-rounds", "6", "--save", "both.json"]);
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    let both = saved(&folder, "both.json");
    let all = rounds(&both);
    assert_eq!(all[..10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "five more for sure");
    assert!(all.len() <= 11, "{all:?}");
    let count = before["runs"].as_array().expect("runs").len();
    let (earlier, more) = both["runs"].as_array().expect("runs").split_at(count);
    assert_eq!(earlier, before["runs"].as_array().expect("runs"));
    let job = |run: &Value| {
        let mut job = run["document"]["bench"]["job"].clone();
        let seed = job["randseed"].take();
        (job, seed)
    };
    assert_eq!(job(&earlier[0]).0, job(&more[0]).0, "the same job");
    let seeds = |runs: &[Value]| runs.iter().map(|run| job(run).1).collect::<Vec<_>>();
    assert!(!seeds(earlier).contains(&job(&more[0]).1), "rounds of their own");
    for field in ["command", "target", "job"] {
        assert_eq!(both[field], before[field], "{field}");
    }
    assert_eq!(both["compare"]["environment"]["seed"], before["compare"]["environment"]["seed"]);
    assert_eq!(both["control"].as_array().map(Vec::len), Some(count + more.len()));
    // And once more, from what that has saved.
    let ended = go_on(&folder, &["both.json", "--max-time", "1s", "--save", "all.json"]);
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    assert!(rounds(&saved(&folder, "all.json")).len() >= all.len() + 5);
}

#[test]
fn time_that_is_up_ends_a_comparison_that_has_not_decided() {
    let folder = Folder::new();
    let ended = compare(&folder, &[&ALIKE[..], &["--max-time", "2s", "--save", "a.json"]].concat());
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    // Each run takes 60 ms and more, so that two seconds are no more than sixteen rounds.
    let made = rounds(&saved(&folder, "a.json")).len();
    assert!((5..=16).contains(&made), "{made} rounds");
}

#[test]
fn what_would_make_another_comparison_of_it_is_refused() {
    let folder = Folder::new();
    let first = [&ALIKE[..], &["--rounds", "3", "--save", "first.json"]].concat();
    compare(&folder, &first);
    let of = |words: &[&'static str]| [&["compare", "--continue", "first.json"], words].concat();
    for (words, parts) in [
        (&["--rounds", "4"][..], &["--continue", "--rounds"][..]),
        (&["--target", "null:1GiB"], &["--continue", "--target"]),
        (&["--metric", "iops"], &["--continue", "--metric"]),
        (&["--iodepth", "4"], &["--iodepth", "would change what is compared"]),
        (&["--a", "nomerges=2"], &["--a", "would change what is compared"]),
        (&["--max-rounds", "2"], &["--max-rounds", "3..=1000"]),
        (&["--sim", "icpe24"], &["--continue", "--sim"]),
    ] {
        expect_refused(&folder, &of(words), parts);
    }
    let refuse = |name: &str, parts: &[&str]| {
        expect_refused(&folder, &["compare", "--continue", name], parts);
    };
    refuse("nothing.json", &["nothing.json", "No such file"]);
    fs::write(folder.near("text.json"), "{}").expect("a file");
    refuse("text.json", &["text.json", "no comparison"]);
    let change = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut document = saved(&folder, "first.json");
        change(&mut document);
        fs::write(folder.near(name), document.to_string()).expect("a file");
    };
    change("other.json", &|document| {
        document["runs"][1]["document"]["environment"]["kernel"] = "1.2.3".into();
    });
    refuse("other.json", &["other.json", "measured with", "Linux 1.2.3"]);
    change("none.json", &|document| document["runs"] = Value::Array(Vec::new()));
    refuse("none.json", &["none.json", "no runs"]);
    change("far.json", &|document| document["runs"][0]["round"] = u32::MAX.into());
    refuse("far.json", &["far.json", "round=4294967295 is above 1000000"]);
    change("bench.json", &|document| document["command"] = serde_json::json!(["weir", "bench"]));
    refuse("bench.json", &["bench.json", "none of weir compare"]);
    let simulated = ["compare", "--sim=icpe24", "--set=processes=1", "--a=cores=2", "--b=cores=3"];
    let also = ["--set=scheduler=none", "--rounds=3", "--quiet", "--save=sim.json"];
    let mut command = weir(&folder);
    command.args([&simulated[..], &also].concat());
    assert_eq!(Running::start(command).end().code, Some(0));
    refuse("sim.json", &["sim.json", "simulated"]);
    let swept = [&ALIKE[..], &["--rounds", "3", "--sweep", "iodepth=1,2", "--save", "swept.json"]];
    compare(&folder, &swept.concat());
    refuse("swept.json", &["swept.json", "sweep"]);
}

#[test]
fn what_came_onto_the_disk_since_is_not_written_over_because_it_once_might_be() {
    let folder = Folder::new();
    fs::write(folder.near("disk.img"), vec![b'x'; 4 << 20]).expect("a file");
    let words = ["--target", "file:disk.img", "--a", "nomerges=0", "--b", "nomerges=2"];
    let job = ["--rw", "randwrite", "--runtime", "20ms", "--rounds", "3", "--save", "first.json"];
    let ended = compare(&folder, &[&words[..], &job, &["--destroy"]].concat());
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    assert_eq!(rounds(&saved(&folder, "first.json")).first(), Some(&1), "{ended:?}");
    fs::write(folder.near("disk.img"), vec![b'y'; 4 << 20]).expect("a file");
    let on = ["compare", "--continue", "first.json", "--max-rounds", "3"];
    expect_refused(&folder, &on, &["disk.img", "--destroy"]);
    assert!(fs::read(folder.near("disk.img")).expect("a file").iter().all(|byte| *byte == b'y'));
    let ended = go_on(&folder, &["first.json", "--max-rounds", "3", "--destroy"]);
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    assert!(fs::read(folder.near("disk.img")).expect("a file").iter().any(|byte| *byte != b'y'));
}

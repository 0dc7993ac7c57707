//! `weir compare` as people and tools meet it: its JSON, its order, what it refuses, what is left
//! when it is interrupted, and the kernel's schedulers as it found them.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::{Path, PathBuf};

use daemon::loop_device::Loop;
use daemon::program::{Ended, Running};
use daemon::words::expect_refused;
use daemon::{Folder, weir};
use rustix::process::Signal;
use serde_json::Value;

/// Rounds as short as they can be told apart.
const SHORT: [&str; 6] = ["--rounds", "3", "--runtime", "20ms", "--ramp-time", "5ms"];

fn compare(folder: &Folder, words: &[&str]) -> Ended {
    let mut command = weir(folder);
    command.arg("compare").args(words);
    Running::start(command).end()
}

/// The only report in the default folder: its name has the time.
#[track_caller]
fn page(folder: &Folder) -> PathBuf {
    let all = fs::read_dir(folder.near("weir-data")).expect("a folder");
    let mut pages = all
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "html"));
    let page = pages.next().expect("a report");
    assert_eq!(pages.next(), None, "one comparison was made");
    let name = page.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(name.starts_with("compare-2") && name.ends_with("Z.html"), "{name}");
    page
}

/// That it came to its end. On a busy machine too few rounds may count for a verdict.
#[track_caller]
fn expect_answer(ended: &Ended) {
    let is_undecided = ended.code == Some(2) && ended.stderr.contains("not compared: ");
    assert!(ended.code == Some(0) || is_undecided, "{ended:?}");
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn the_json_has_the_fields_it_promises() {
    let folder = Folder::new();
    // A target that takes time, so that every figure has a value.
    let target = "null:16MiB,latency_us=200";
    let words = ["--target", target, "--a", "queue_mode=sq", "--b", "queue_mode=mq,queues=1"];
    let length = ["--rounds", "6", "--runtime", "250ms", "--ramp-time", "5ms"];
    let also = ["--json", "--bs", "8k", "--save", "runs.json"];
    let ended = compare(&folder, &[&words[..], &length, &also].concat());
    expect_answer(&ended);
    let answer = json(&ended.stdout);
    assert_eq!(keys(&answer), ["comparisons", "environment", "inference", "metric", "variants"]);
    let variants = answer["variants"].as_array().expect("a list");
    assert_eq!(variants.len(), 2);
    let (mut counted, mut idle) = (0, 0);
    for (variant, options) in variants.iter().zip([
        r#"{"queue_mode":"sq"}"#,
        r#"{"queue_mode":"mq","queues":"1","scheduler":"mq-deadline"}"#,
    ]) {
        assert_eq!(variant["options"], json(options));
        let rounds = variant["rounds"].as_array().expect("a list");
        counted += rounds.len();
        idle += rounds.iter().filter(|round| round["ios"] == 0).count();
        assert!(rounds.iter().all(|round| round["job"]["bs"] == 8192), "{variant}");
        for metric in
            ["iops", "latency_mean_ns", "latency_p50_ns", "latency_p99_ns", "cpu_ns_per_io"]
        {
            // On a busy machine there may be fewer than two rounds that count.
            let Value::Array(ci95) = &variant[metric]["ci95"] else {
                assert!(variant[metric]["ci95"].is_null() && rounds.len() < 2, "{variant}");
                continue;
            };
            let mean = variant[metric]["mean"].as_f64().expect("a mean");
            let [low, high] = [&ci95[0], &ci95[1]].map(|end| end.as_f64().expect("an end"));
            assert!(low <= mean && mean <= high && mean > 0.0, "{metric}: {variant}");
        }
    }
    let mut pairs = 0;
    for comparison in answer["comparisons"].as_array().expect("a list") {
        assert_eq!((&comparison["a"], &comparison["b"]), (&"a".into(), &"b".into()));
        let verdict = comparison["verdict"].as_str().expect("words");
        let words = match comparison["metric"].as_str() {
            Some("cpu_ns_per_io") => ["b takes less CPU", "b takes more CPU"],
            _ => ["b is faster", "b is slower"],
        };
        let words = [words[0], words[1], "no detectable difference"];
        let is_decided = comparison["ci99"].is_array();
        assert_eq!(words.contains(&verdict), is_decided, "{comparison}");
        assert_eq!(verdict.starts_with("not compared: "), !is_decided, "{comparison}");
        let known = comparison["ratio"].is_f64();
        assert!(known || comparison["ratio"].is_null(), "{comparison}");
        let known = comparison["ci95"][1].is_f64();
        assert_eq!(comparison["min_detectable_effect"].is_f64(), known, "{comparison}");
        assert!(known || comparison["ci95"].is_null(), "{comparison}");
        pairs += usize::from(known);
        assert_eq!(verdict.contains("did no I/O in"), idle > 0, "{idle} rounds: {comparison}");
    }
    let environment = &answer["environment"];
    assert!(environment["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{environment}");
    assert!(environment["kernel"].is_string() && environment["steal_pct"].is_f64());
    assert!(environment.get("partial").is_none(), "{environment}");
    let [rounds, voided] =
        ["voided_rounds", "voided_runs"].map(|name| environment[name].as_u64().expect("a count"));
    assert!(rounds <= voided && rounds <= 8, "of six rounds and two more: {environment}");
    assert!(environment["seed"].is_u64(), "{environment}");
    assert!(counted as u64 + voided >= 12, "{counted} and {voided}: six rounds of two");
    assert!(counted < 12 || idle > 0 || pairs >= 3, "{answer}");
    let saved = json(&fs::read_to_string(folder.near("runs.json")).expect("it is saved"));
    expect_no_stall(saved["runs"].as_array().expect("runs"));
}

/// That most runs of each variant, counted or not, had I/O up to the end of their windows. A
/// machine that pauses may leave nothing of one or two; a variant that stalls does in all.
#[track_caller]
fn expect_no_stall(runs: &[Value]) {
    let late = |sample: &Value| sample["at_s"].as_f64().is_some_and(|at| at > 0.15);
    for name in ["a", "b"] {
        let own = || runs.iter().filter(|run| run["variant"] == name);
        let goes_on = |run: &&Value| {
            let series = run["document"]["series"].as_array().expect("a list");
            series.iter().any(|sample| late(sample) && sample["ios"] != 0)
        };
        let (all, went_on) = (own().count(), own().filter(goes_on).count());
        assert!(2 * went_on > all, "{name} stood still in all but {went_on} of {all} runs");
    }
}

#[test]
fn every_run_is_saved_and_the_same_seed_gives_the_same_order() {
    let folder = Folder::new();
    let order = |name: &str, seed: &str| {
        let words = ["--target", "null:1GiB", "--a", "nomerges=0", "--b", "nomerges=2"];
        let also = ["--save", name, "--randseed", seed, "--rounds", "6", "--quiet"];
        let ended = compare(&folder, &[&words[..], &SHORT[2..], &also].concat());
        expect_answer(&ended);
        assert!(ended.stdout.contains("99 % interval"), "{}", ended.stdout);
        assert!(ended.stdout.contains("report: weir-data/compare-2"), "{}", ended.stdout);
        let saved = json(&fs::read_to_string(folder.near(name)).expect("it is saved"));
        assert_eq!((&saved["kind"], &saved["target"]), (&"compare".into(), &"null:1GiB".into()));
        let runs = saved["runs"].as_array().expect("runs").clone();
        assert_eq!(saved["control"].as_array().map(Vec::len), Some(runs.len()));
        // The kernel ticks twice in a run, or a little less.
        let has_cores =
            |run: &Value| run["document"]["cores"].as_array().is_some_and(|c| !c.is_empty());
        assert!(runs.iter().any(has_cores), "no run knows what its CPUs did");
        let mut counted = std::collections::BTreeSet::new();
        for run in runs.iter().filter(|run| run["voided"].is_null()) {
            let place = (run["round"].to_string(), run["variant"].to_string());
            assert!(counted.insert(place), "one run at most of each: {run}");
        }
        let mut seen = std::collections::BTreeSet::new();
        // Runs made again have no planned order.
        let first = runs
            .iter()
            .filter(|run| seen.insert((run["round"].to_string(), run["variant"].to_string())));
        let first =
            first.map(|run| (run["variant"].to_string(), run["document"]["bench"]["seed"].clone()));
        first.take(12).collect::<Vec<_>>()
    };
    let one = order("one.json", "1");
    assert_eq!(one, order("again.json", "1"));
    let two = order("two.json", "2");
    let names = |runs: &[(String, Value)]| runs.iter().map(|run| run.0.clone()).collect::<Vec<_>>();
    assert_ne!(names(&one), names(&two), "the order is drawn from the seed");
    assert_ne!(one[0].1, two[0].1, "and so is the I/O");
    assert_eq!(one[0].1, one[1].1, "the variants of a round do the same I/O");
}

#[test]
fn work_that_ends_is_compared_by_the_time_it_takes() {
    let folder = Folder::new();
    // 256 reads, one after the other.
    fs::write(folder.near("done.fio"), "[done]\nrw=randread\nbs=4k\nsize=1m\n").expect("a file");
    let [one, two] = ["null:1MiB,latency_us=1000", "null:1MiB,latency_us=2000"];
    let words = ["done.fio", "--target", "null:1MiB", "--a", one, "--b", two, "--rounds", "3"];
    let ended = compare(&folder, &[&words[..], &["--save", "done.json", "--json"]].concat());
    expect_answer(&ended);
    let saved = json(&fs::read_to_string(folder.near("done.json")).expect("it is saved"));
    for run in saved["runs"].as_array().expect("runs") {
        let least = if run["variant"] == "a" { 256_000_000 } else { 512_000_000 };
        let bench = &run["document"]["bench"];
        // All of its work, none of it in a ramp, and no more than that.
        assert_eq!(bench["ios"], 256, "{bench}");
        assert!(bench["makespan_ns"].as_u64().is_some_and(|ns| ns >= least), "{bench}");
    }
    let answer = json(&ended.stdout);
    let of = |metric: &str| {
        let mut all = answer["comparisons"].as_array().expect("a list").iter();
        all.any(|comparison| comparison["metric"] == metric)
    };
    assert!(of("makespan_ns") && of("latency_mean_ns") && !of("iops"), "{answer}");
    let page = fs::read_to_string(page(&folder)).expect("a report");
    for words in ["time to finish", "Each CPU of the machine"] {
        assert!(page.contains(words), "{words:?} is not in the report");
    }
    // For so long, and again and again: throughput is what there is to be compared.
    let timed = [&words[..], &["--json", "--runtime", "20ms", "--ramp-time", "0"]].concat();
    let ended = compare(&folder, &timed);
    let answer = json(&ended.stdout);
    let metrics: Vec<_> = answer["comparisons"].as_array().expect("a list").iter().collect();
    assert!(metrics.iter().any(|found| found["metric"] == "iops"), "{answer}");
    assert!(!metrics.iter().any(|found| found["metric"] == "makespan_ns"), "{answer}");
}

#[test]
fn every_disk_of_a_group_is_varied_and_the_redo_stays_as_it_is() {
    let folder = Folder::new();
    let group = ["oltp", "--target", "ram:32MiB", "--target", "ram:33MiB", "--redo", "ram:16MiB"];
    let variants = ["--a", "queue_mode=sq", "--b", "queue_mode=mq,scheduler=bfq"];
    let also = ["--save", "kept.json", "--quiet"];
    let ended = compare(&folder, &[&group[..], &variants, &SHORT[..], &also].concat());
    expect_answer(&ended);
    let saved = json(&fs::read_to_string(folder.near("kept.json")).expect("it is saved"));
    assert_eq!(saved["target"], "ram:32MiB ram:33MiB");
    let mut seen = std::collections::BTreeSet::new();
    for run in saved["runs"].as_array().expect("runs") {
        let job = &run["document"]["bench"]["job"];
        let modes = job["data_disks"].as_array().expect("two disks").iter();
        let modes: Vec<_> = modes.map(|disk| disk["options"]["queue_mode"].clone()).collect();
        let expected = if run["variant"] == "a" { "sq" } else { "mq" };
        assert_eq!(modes, [expected, expected], "{job}");
        assert_eq!(job["redo_disks"][0]["options"]["queue_mode"], "mq");
        seen.insert(expected);
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn redo_on_the_disk_of_its_data_is_varied_with_it_and_one_that_is_missing_is_refused_first() {
    let folder = Folder::new();
    let disk = format!("file:{},size=32MiB", folder.image("disk").display());
    let words = ["oltp", "--target", &disk, "--a", "queue_mode=sq", "--b", "queue_mode=mq"];
    let also = ["--redo", &disk, "--save", "kept.json", "--quiet"];
    expect_answer(&compare(&folder, &[&words[..], &also, &SHORT].concat()));
    let saved = json(&fs::read_to_string(folder.near("kept.json")).expect("it is saved"));
    let runs = saved["runs"].as_array().expect("runs");
    assert!(!runs.is_empty());
    for run in runs {
        let bench = &run["document"]["bench"];
        let expected = if run["variant"] == "a" { "sq" } else { "mq" };
        assert_eq!(bench["options"]["queue_mode"], expected, "{bench}");
        assert!(bench["job"]["redo"].is_null(), "it is at the end of the data: {bench}");
    }
    let missing = format!("file:{}", folder.image("missing").display());
    let also = ["--redo", &missing, "--save", "none.json", "--quiet"];
    let refused = compare(&folder, &[&words[..], &also, &SHORT].concat());
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let Ended { stderr, .. } = &refused;
    assert!(stderr.contains(&missing) && stderr.contains("variant a: "), "{stderr}");
    assert!(!stderr.contains("round") && !folder.near("none.json").exists(), "{stderr}");
}

#[test]
fn a_sweep_has_a_comparison_for_each_value() {
    let folder = Folder::new();
    let words = ["--target", "ram:16MiB", "--a", "nomerges=0", "--b", "nomerges=2"];
    for (sweep, of_round) in [
        ("iodepth=1,4", "/job/iodepth"),
        ("threads=1,2", "/job/numjobs"),
        ("nr_requests=64,128", "/options/nr_requests"),
    ] {
        let also = ["--sweep", sweep, "--json", "--save", "sweep.json", "--report", "sweep.html"];
        let ended = compare(&folder, &[&words[..], &SHORT, &also].concat());
        expect_answer(&ended);
        let (name, values) = sweep.split_once('=').expect("a sweep");
        let saved = json(&fs::read_to_string(folder.near("sweep.json")).expect("it is saved"));
        assert_eq!((&saved["kind"], &saved["name"]), (&"sweep".into(), &name.into()));
        let points = saved["points"].as_array().expect("points");
        for (point, value) in points.iter().zip(values.split(',')) {
            assert_eq!(point["value"], value);
            let round = &point["document"]["runs"][0]["document"]["bench"];
            assert_eq!(round.pointer(of_round).map(Value::to_string).as_deref(), Some(value));
        }
        assert_eq!(points.len(), 2);
        assert_eq!(json(&ended.stdout)["sweep"], name);
        let page = fs::read_to_string(folder.near("sweep.html")).expect("a report");
        assert!(page.contains(name) && !folder.near("weir-data").exists());
    }
}

#[test]
fn what_makes_no_comparison_is_refused_with_its_name() {
    let folder = Folder::new();
    let ram = ["compare", "--target", "ram:1MiB"];
    for (words, parts) in [
        (&["--a", "frob=1", "--b", ""][..], &["variant a", "\"frob\"", "valid:"][..]),
        (&["--a", "nomerges=0", "--b", "nomerges=0"], &["a and b", "same", "nomerges=0"]),
        (&["--a", "nomerges=0"], &["--a alone"]),
        (&["--a", "disk:1M", "--b", ""], &["variant a", "disk:1M", "ram:SIZE"]),
        (&["--rounds", "0"], &["--rounds", "3..=1000"]),
        (&["--rounds", "1"], &["--rounds", "3..=1000"]),
        (&["--rounds", "2"], &["--rounds", "3..=1000"]),
        (&["--metric", "speed"], &["--metric", "speed", "latency_p99_ns"]),
        (&["--rw", "read", "--metric", "commits_per_s"], &["--metric commits_per_s", "oltp"]),
        (&["--rw", "read", "--metric", "makespan_ns"], &["--metric makespan_ns", "by itself"]),
        (&["--rw", "randrw", "--metric", "commit_latency_mean_ns"], &["commit_latency", "oltp"]),
        (&["--rw", "randread", "--metric", "write_iops"], &["--metric write_iops", "one kind"]),
        (&["--within", "0%"], &["--within", "0%", "100%"]),
        (&["--fail-if", "faster"], &["--fail-if", "slower", "different"]),
        (&["--sweep", "iodepth"], &["NAME=V1,V2"]),
        (&["--sweep", "iodepth=0,1"], &["iodepth", "1..=4096"]),
        (&["--sweep", "frob=0,1"], &["--sweep frob", "\"frob\""]),
        (&["--kernel-scheduler", "none,bfq"], &["ram:1MiB", "block device"]),
        (&["--kernel-scheduler", "none"], &["none", "one scheduler"]),
        (&["--kernel-scheduler", "none,bfq", "--a", "x"], &["--a", "--kernel-scheduler"]),
        (&["--put-back", "nothing.json"], &["--put-back"]),
        (&["--sweep", "queue_mode=sq,mq"], &["--sweep queue_mode", "a says queue_mode=sq"]),
        (
            &["--a", "scheduler=none", "--b", "scheduler=bfq", "--sweep", "scheduler=none,bfq"],
            &["--sweep scheduler", "variant a says scheduler=none"],
        ),
        (
            &["--a", "scheduler=none", "--b", "scheduler=bqf"],
            &["variant b", "bqf", "is bfq meant?"],
        ),
        (&["otlp"], &["'otlp'", "is oltp meant?"]),
        (&["--metric", "iosp"], &["iosp", "'iops'"]),
        (&["--a", "", "--b", "file:missing.img"], &["variant b", "missing.img"]),
    ] {
        expect_refused(&folder, &[&ram[..], words].concat(), parts);
    }
    expect_refused(&folder, &["compare", "--put-back", "nothing.json"], &["nothing.json"]);
    let results = fs::read_dir(folder.near("weir-data")).map_or(0, Iterator::count);
    assert_eq!(results, 0, "refused before anything was run");
    fs::write(folder.near("plain"), [0; 4096]).expect("a file");
    // Found out before the runs, whose figures would be lost otherwise.
    for flag in ["--save", "--report", "--markdown", "--csv"] {
        let words = [&ram[..], &["--runtime", "1d", flag, "plain/result"]].concat();
        expect_refused(&folder, &words, &["plain/result"]);
    }
    let plain = ["compare", "--target", "file:plain", "--kernel-scheduler", "none,bfq"];
    expect_refused(&folder, &plain, &["plain", "no block device"]);
}

#[test]
fn a_run_that_fails_says_why_in_its_own_words() {
    let folder = Folder::new();
    let words = ["--target", "ram:1MiB", "--a", "nomerges=0", "--b", "nomerges=2"];
    let ended = compare(&folder, &[&words[..], &SHORT, &["--size", "2MiB"]].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("variant") && ended.stderr.contains("round 1"), "{ended:?}");
    assert!(ended.stderr.contains("beyond the target's 1048576 bytes"), "{ended:?}");
}

#[test]
fn what_was_measured_before_a_failure_is_kept_and_marked() {
    let folder = Folder::new();
    // Both can be opened, and the job is too large for the second.
    let words = ["--target", "ram:4MiB", "--a", "", "--b", "ram:1MiB", "--size", "2MiB"];
    let run = |seed: u32| {
        let seed = seed.to_string();
        let also = ["--save", "part.json", "--rounds", "8", "--randseed", &seed];
        compare(&folder, &[&words[..], &SHORT[2..], &also].concat())
    };
    // The first that has a run before b.
    let runs = (1..=16).map(run).inspect(|ended| assert_eq!(ended.code, Some(2), "{ended:?}"));
    let ended = runs.into_iter().find(|_| folder.near("part.json").exists());
    let ended = ended.expect("a is first with one of sixteen seeds");
    assert!(ended.stderr.contains("variant b") && ended.stderr.contains("beyond the target's"));
    let saved = json(&fs::read_to_string(folder.near("part.json")).expect("it is saved"));
    assert_eq!(saved["compare"]["environment"]["partial"], true);
    assert!(saved["compare"]["environment"]["failure"].as_str().is_some());
    assert_eq!(saved["runs"][0]["variant"], "a");
    assert!(ended.stdout.contains("partial: variant b"), "{}", ended.stdout);
    let page = fs::read_to_string(page(&folder)).expect("a report");
    assert!(page.contains("Partial: the comparison ended early: variant b"));
}

/// Two delays of which one is five times the other: a difference that any machine sees.
const APART: [&str; 8] = [
    "--target",
    "null:1GiB",
    "--a",
    "latency_us=200",
    "--b",
    "latency_us=1000",
    "--rw",
    "randread",
];

#[test]
fn a_difference_is_an_answer_and_a_failure_only_where_it_is_asked_to_be() {
    let folder = Folder::new();
    // Longer runs than SHORT, so that each has I/O on a busy machine.
    let length = ["--rounds", "8", "--runtime", "100ms", "--ramp-time", "5ms", "--quiet"];
    let fails = |also: &[&str]| {
        let ended = compare(&folder, &[&APART[..], &length, also].concat());
        let is_undecided = ended.code == Some(2) && ended.stderr.contains("not compared: ");
        (ended, is_undecided)
    };
    let by_latency = ["--metric", "latency_mean_ns"];
    for (also, code) in [
        (&[][..], 0),
        (&["--fail-if", "slower"], 1),
        (&["--fail-if", "different"], 1),
        (&["--fail-if", "different", "--within", "95%"], 1),
    ] {
        let (ended, is_undecided) = fails(&[also, &by_latency].concat());
        assert!(ended.code == Some(code) || is_undecided, "{also:?}: {ended:?}");
        let first = ended.stdout.lines().next().unwrap_or_default();
        let says = first.starts_with("Keep `latency_us=200`: `latency_us=1000` has ");
        assert!(says || is_undecided, "{first}");
        let why = "b is slower (latency_mean_ns, b against a)";
        assert!(is_undecided || (code == 1) == ended.stderr.contains(why), "{ended:?}");
    }
    // The other way round it is faster, which is different and not slower.
    let mut turned = APART;
    turned.swap(3, 5);
    for (what, code) in [("slower", 0), ("different", 1)] {
        let words = [&turned[..], &length, &by_latency, &["--fail-if", what]].concat();
        let ended = compare(&folder, &words);
        let is_undecided = ended.code == Some(2) && ended.stderr.contains("not compared: ");
        assert!(ended.code == Some(code) || is_undecided, "{what}: {ended:?}");
    }
}

#[test]
fn a_variant_that_loses_what_it_acknowledged_is_named_once_in_all_that_is_said() {
    let folder = Folder::new();
    let words = ["--target", "file:disk.img,size=16MiB", "--a", "", "--b", "barriers=off"];
    let also = ["--rw", "randwrite", "--fsync", "1", "--quiet", "--markdown", "words.md"];
    let ended = compare(&folder, &[&words[..], &SHORT, &also].concat());
    expect_answer(&ended);
    let told = "barriers are off: durability disabled";
    let said = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("note: b: file:disk.img"), "{said}");
    assert_eq!(said.matches(told).count(), 1, "{}", ended.stdout);
    let words = fs::read_to_string(folder.near("words.md")).expect("words");
    assert!(words.contains(told), "{words}");
}

#[test]
fn the_file_that_a_job_names_is_what_is_compared() {
    let folder = Folder::new();
    fs::write(folder.near("disk.img"), vec![0; 1 << 20]).expect("a file");
    let job = "[read]\nrw=randread\ntime_based=1\nruntime=1\nfilename=disk.img\n";
    fs::write(folder.near("c.fio"), job).expect("a file");
    let words = ["c.fio", "--a", "nomerges=0", "--b", "nomerges=2", "--save", "c.json"];
    expect_answer(&compare(&folder, &[&words[..], &SHORT].concat()));
    let saved = json(&fs::read_to_string(folder.near("c.json")).expect("it is saved"));
    assert_eq!(saved["target"], "file:disk.img");
    let target = saved["runs"][0]["document"]["bench"]["target"].as_str().expect("a target");
    assert!(target.starts_with("file:disk.img"), "{target}");
    fs::write(folder.near("d.fio"), format!("{job}[b]\nfilename=other.img\n")).expect("a file");
    expect_refused(&folder, &["compare", "d.fio"], &["d.fio", "disk.img, other.img", "--target"]);
}

#[test]
fn results_are_saved_also_where_nobody_reads_what_is_printed() {
    let folder = Folder::new();
    let words = ["--target", "null:1GiB", "--a", "nomerges=0", "--b", "nomerges=2"];
    let mut command = weir(&folder);
    command.arg("compare").args(words).args(SHORT).args(["--save", "kept.json"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut child = command.stdout(writer).spawn().expect("it starts");
    drop(command);
    let status = daemon::wait(&mut child, daemon::PATIENCE).expect("it ends");
    assert!(matches!(status.code(), Some(0..=2)), "{status}");
    assert!(folder.near("kept.json").exists() && page(&folder).exists());
}

/// Starts a comparison that would take long.
fn begun(folder: &Folder, words: &[&str]) -> Running {
    let mut command = weir(folder);
    command.arg("compare").args(words).args(["--runtime", "20ms", "--rounds", "1000"]);
    command.args(["--save", "part.json"]);
    Running::start(command)
}

#[test]
fn an_interrupted_comparison_keeps_what_it_has_and_says_so() {
    let folder = Folder::new();
    let words = ["--target", "null:1GiB", "--a", "nomerges=0", "--b", "nomerges=2"];
    let running = begun(&folder, &words);
    wait_for_children(&running, 4);
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("interrupted in round"), "{ended:?}");
    assert!(ended.stderr.contains("part.json"), "{ended:?}");
    let saved = json(&fs::read_to_string(folder.near("part.json")).expect("it is saved"));
    assert_eq!(saved["compare"]["environment"]["partial"], true);
    assert!(saved["runs"].as_array().is_some_and(|runs| runs.len() >= 2), "{saved}");
}

/// Until so many children of a program have come and gone.
fn wait_for_children(running: &Running, count: usize) {
    let pid = running.pid().as_raw_nonzero();
    let path = format!("/proc/{pid}/task/{pid}/children");
    let mut seen = std::collections::BTreeSet::new();
    let began = std::time::Instant::now();
    while seen.len() < count {
        assert!(began.elapsed() < daemon::PATIENCE, "{count} runs in {:?}", daemon::PATIENCE);
        let children = fs::read_to_string(&path).unwrap_or_default();
        seen.extend(children.split_whitespace().map(String::from));
        std::thread::yield_now();
    }
}

#[test]
fn no_target_and_no_path_is_in_the_list_of_processes_but_of_the_comparison() {
    let folder = Folder::new();
    let words =
        ["--target", "file:private.img,size=1MiB", "--a", "nomerges=0", "--b", "nomerges=2"];
    let running = begun(&folder, &words);
    let pid = running.pid().as_raw_nonzero();
    let path = format!("/proc/{pid}/task/{pid}/children");
    let (mut seen, began) = (std::collections::BTreeSet::new(), std::time::Instant::now());
    while seen.len() < 3 {
        assert!(began.elapsed() < daemon::PATIENCE, "3 runs in {:?}", daemon::PATIENCE);
        for child in fs::read_to_string(&path).unwrap_or_default().split_whitespace() {
            let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            let line = String::from_utf8(line).expect("words");
            // Until it has become the run, a child has the words of the comparison, and for a
            // moment the beginning of its own: all words end with a zero.
            let of_a_run =
                |(_, words): &(&str, &str)| !words.starts_with("compare") && words.ends_with('\0');
            let Some((_, words)) = line.split_once('\0').filter(of_a_run) else { continue };
            assert_eq!(words, "bench\0--spec-on-stdin\0");
            assert!(!line.contains("private"), "{line}");
            seen.insert(String::from(child));
        }
        std::thread::yield_now();
    }
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(2));
}

#[test]
fn what_the_job_has_no_use_for_is_refused_before_anything_runs() {
    let folder = Folder::new();
    fs::write(folder.near("bad.fio"), "[a]\nrw=sideways\n").expect("a file");
    for (words, parts) in [
        (&["streams", "--users", "3"][..], &["--users is for the preset oltp alone"][..]),
        (&["--bs", "4k", "--redo", "ram:1MiB"], &["--redo is for the preset oltp alone"]),
        (&["oltp", "--iodepth", "3"], &["--iodepth is not for the preset oltp"]),
        (&["bad.fio"], &["bad.fio:2:", "rw=sideways", "randrw"]),
        (&["frob"], &["'frob' is neither a preset (oltp, ", "nor a job file"]),
    ] {
        let words = [&["compare", "--target", "ram:1MiB"][..], words].concat();
        expect_refused(&folder, &words, parts);
        assert!(!folder.near("weir-data").exists(), "refused before anything was run");
    }
}

const KERNELS: &str = "none,mq-deadline,kyber,bfq";

#[test]
fn the_kernels_schedulers_are_compared_and_the_device_is_left_as_it_was() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder) else { return };
    let (before, target) = (device.state(), device.target());
    let words = ["--target", &target, "--kernel-scheduler", KERNELS, "--json"];
    let also = ["--rw", "randread", "--save", "kernels.json"];
    let ended = compare(&folder, &[&words[..], &SHORT, &also].concat());
    expect_answer(&ended);
    let answer = json(&ended.stdout);
    let names: Vec<&str> = answer["variants"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|v| v["name"].as_str())
        .collect();
    assert_eq!(names.join(","), KERNELS);
    assert_eq!(answer["variants"][3]["options"]["kernel_scheduler"], "bfq");
    let saved = json(&fs::read_to_string(folder.near("kernels.json")).expect("it is saved"));
    for run in saved["runs"].as_array().expect("runs") {
        assert_eq!(run["document"]["bench"]["options"]["scheduler"], "none", "weir's own");
    }
    assert_eq!(device.state(), before);
    // The same twice: runs of one are not runs of the other.
    let words = ["--target", &target, "--kernel-scheduler", "none,none", "--same", "--json"];
    let ended = compare(&folder, &[&words[..], &SHORT, &["--rw", "randread"]].concat());
    expect_answer(&ended);
    let answer = json(&ended.stdout);
    for (variant, name) in
        answer["variants"].as_array().expect("a list").iter().zip(["none", "none-2"])
    {
        assert_eq!(
            (&variant["name"], &variant["options"]["kernel_scheduler"]),
            (&name.into(), &"none".into())
        );
        assert!(variant["rounds"].as_array().is_some_and(|rounds| rounds.len() <= 3), "{variant}");
    }
    assert_eq!(device.state(), before);
    let unknown = ["compare", "--target", &target, "--kernel-scheduler", "none,frob"];
    expect_refused(&folder, &unknown, &["\"frob\"", "mq-deadline"]);
    assert_eq!(device.state(), before);
}

#[test]
fn the_kernels_scheduler_is_put_back_after_a_signal_and_after_being_killed() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder) else { return };
    let (before, target) = (device.state(), device.target());
    let words = ["--target", &target, "--kernel-scheduler", "none,bfq", "--rw", "randread"];
    for signal in [Signal::INT, Signal::TERM, Signal::QUIT, Signal::USR1] {
        let running = begun(&folder, &words);
        wait_for_children(&running, 2);
        running.signal(signal);
        assert_eq!(running.end().code, Some(2), "{signal:?}");
        assert_eq!(device.state(), before, "{signal:?}");
    }
    let running = begun(&folder, &words);
    wait_for_children(&running, 2);
    running.signal(Signal::KILL);
    let _ = running.end();
    assert!(!device.read("scheduler").contains("[mq-deadline]"), "nobody has put it back");
    let state = device.state_file();
    assert!(Path::new(&state).exists(), "{state}");
    // The run that was under way has the device until it ends by itself.
    let ended = compare(&folder, &["--put-back", &state]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(device.state(), before);
    assert!(!Path::new(&state).exists());
}

#[test]
fn variants_may_have_jobs_of_their_own_and_are_told_to_have_them() {
    let folder = Folder::new();
    let words = ["--a", "queue_mode=sq,job.threads=4", "--b", "queue_mode=mq,job.threads=2"];
    let more = ["oltp", "--target", "ram:16MiB", "--users", "3", "--save", "runs.json"];
    let ended = compare(&folder, &[&words[..], &more, &SHORT].concat());
    expect_answer(&ended);
    for name in ["job.threads=4 sq", "job.threads=2 "] {
        assert!(ended.stdout.contains(name), "{name}: {ended:?}");
    }
    let text = fs::read_to_string(folder.near("runs.json")).expect("a document");
    let saved = json(&text);
    let compared = &saved["compare"];
    assert_eq!(compared["environment"]["jobs_differ"], true);
    for (variant, threads) in [(0, 4), (1, 2)] {
        let options = &compared["variants"][variant]["options"];
        assert_eq!(options["job.threads"], threads.to_string());
    }
    let runs = saved["runs"].as_array().expect("runs");
    assert!(!runs.is_empty());
    for run in runs {
        let threads = if run["variant"] == "a" { 4 } else { 2 };
        let job = &run["document"]["bench"]["job"];
        assert_eq!((&job["threads"], &job["users"]), (&threads.into(), &3.into()));
    }
    let page = fs::read_to_string(page(&folder)).expect("a report");
    assert!(page.contains("job.threads=4"), "{page}");
    for (options, why) in [
        ("job.frob=4", "variant b: job.frob: the job has no such flag"),
        ("job.threads=65", "variant b: job.threads: "),
        ("job.threads", "variant b: \"job.threads\" is not job.FLAG=VALUE"),
        ("job.redo=ram:1MiB", "says where"),
        ("job.runtime=1s", "variant b: job.runtime: the job has no such flag"),
    ] {
        let words = ["compare", "oltp", "--target", "ram:16MiB", "--a", "", "--b", options];
        expect_refused(&folder, &words, &[why]);
    }
    let ends = ["compare", "--target", "ram:16MiB", "--time-based=0", "--a", ""];
    let ends = [&ends[..], &["--b", "job.time_based=1"]].concat();
    expect_refused(&folder, &ends, &["one ends by itself and the other does not"]);
    let swept = ["compare", "--target", "ram:16MiB", "--a", "", "--b", "job.iodepth=4"];
    let swept = [&swept[..], &["--sweep", "iodepth=1,2"]].concat();
    expect_refused(&folder, &swept, &["variant b: job.iodepth=4 is said, and --sweep varies it"]);
}

#[test]
fn the_load_of_a_file_system_is_compared_by_the_latency_of_its_writes() {
    let folder = Folder::new();
    let words = ["hpc", "--target", "ram:64MiB", "--a", "queue_mode=sq", "--b", "queue_mode=mq"];
    let long = ["--rounds", "3", "--runtime", "250ms", "--ramp-time", "5ms", "--json"];
    let ended = compare(&folder, &[&words[..], &long].concat());
    expect_answer(&ended);
    assert_eq!(json(&ended.stdout)["metric"], "write_latency_mean_ns");
    let other = [&words[..], &long, &["--metric", "iops"]].concat();
    assert_eq!(json(&compare(&folder, &other).stdout)["metric"], "iops");
}

#[test]
fn the_dd_experiment_is_compared_on_the_disk_of_its_document() {
    let folder = Folder::new();
    let words = ["dd32", "--size", "16m", "--rounds", "3", "--save", "runs.json", "--quiet"];
    let of = |level: &str| format!("queue_mode=sq,scheduler=cfq,low_latency={level}");
    let ended = compare(&folder, &[&words[..], &["--a", &of("1"), "--b", &of("0")]].concat());
    expect_answer(&ended);
    let saved = json(&fs::read_to_string(folder.near("runs.json")).expect("a document"));
    assert_eq!(saved["target"], "model:dd32,size=1GiB,depth=2");
    assert_eq!(saved["compare"]["metric"], "makespan_ns");
}

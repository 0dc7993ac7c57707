//! The document by which `weir compare` gives `weir bench` a run, on its standard input: each field
//! counts, what is wrong in it is named, and half of one is no run.

#![forbid(unsafe_code)]

mod daemon;

use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::Duration;

use daemon::program::{Ended, Running};
use daemon::{Folder, weir};
use serde_json::{Value, json};
use weir_bench::compare::child::WORDS;
use weir_bench::workload::spec::{Oltp, RunSpec, Workload};
use weir_load::presets::Stage;
use weir_load::{Access, Amount, Direction, Job, Zone};

/// Runs it with such a document.
#[track_caller]
fn run(folder: &Folder, document: &str) -> Ended {
    let mut file: File =
        rustix::fs::memfd_create(c"run", rustix::fs::MemfdFlags::CLOEXEC).expect("memory").into();
    file.write_all(document.as_bytes()).expect("memory");
    file.rewind().expect("memory");
    let mut command = weir(folder);
    command.args(WORDS).stdin(file);
    Running::start(command).end()
}

#[track_caller]
fn value(spec: &RunSpec) -> Value {
    serde_json::from_str(&spec.document().expect("text")).expect("JSON")
}

/// 16 I/Os on memory.
fn stream() -> RunSpec {
    let job = Job {
        target: Some(String::from("ram:1MiB")),
        access: Access::Random,
        direction: Direction::Mixed,
        size: Some(Amount::Bytes(65536)),
        ..Job::default()
    };
    RunSpec::of(Workload::Stages(vec![Stage { name: None, jobs: vec![job] }]))
}

fn transactions() -> RunSpec {
    let hot = Zone { access: 80, size: 20 };
    let data = vec![String::from("ram:64MiB")];
    let oltp = Oltp { users: 2, threads: 2, update_percent: 25, hot, data, redo: Vec::new() };
    let runtime = Some(Duration::from_millis(1));
    RunSpec { runtime, ..RunSpec::of(Workload::Oltp(oltp)) }
}

/// The part of an answer that follows from the document alone: no time is in it, and no count of a
/// job whose end is a time.
fn fingerprint(folder: &Folder, spec: &Value) -> String {
    let Ended { code, stdout, stderr } = run(folder, &spec.to_string());
    let Ok(mut saved) = serde_json::from_str::<Value>(&stdout) else {
        return format!("{code:?} {stderr}");
    };
    let bench = saved["bench"].take();
    let ends = bench["makespan_ns"].is_u64();
    let counts = |figures: &Value| ends.then(|| [figures["ios"].clone(), figures["bytes"].clone()]);
    // What is under way when a time is up is a matter of time, and so is what is said of it.
    let is_said = |notice: &&Value| {
        ends || !notice.as_str().is_some_and(|notice| notice.contains("when the time was up"))
    };
    let notices = saved["notices"].take();
    let notices: Vec<&Value> = notices.as_array().into_iter().flatten().filter(is_said).collect();
    // Which of them there are is a matter of time too.
    let groups = bench["groups"].as_array().filter(|_| ends).into_iter().flatten();
    let groups = groups.map(|group| json!([group["name"], group["op"], counts(group)]));
    json!({
        "code": code, "said": stderr, "target": bench["target"], "options": bench["options"],
        "job": bench["job"], "seed": bench["seed"], "groups": groups.collect::<Vec<_>>(),
        "all": counts(&bench), "verified": bench["verified_blocks"],
        "command": saved["command"], "notices": notices,
    })
    .to_string()
}

/// The paths of all that has a value of its own.
fn leaves(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves(value, format!("{path}/{name}"), found));
        }
        // A list of words is one value; others are of what has fields.
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let items = items.iter().enumerate();
            items.for_each(|(n, value)| leaves(value, format!("{path}/{n}"), found));
        }
        _ => found.push(path),
    }
}

/// One field, another value for it, and values of others with which it counts.
type Row = (&'static str, Value, Vec<(&'static str, Value)>);

#[track_caller]
fn expect_each_to_count(base: &RunSpec, prefix: &str, rows: Vec<Row>) {
    let folder = Folder::new();
    let notes = File::create(folder.near("notes.img")).expect("a file");
    notes.set_len(65 << 20).and_then(|()| notes.write_all_at(b"of others", 0)).expect("notes");
    let base = value(base);
    let with = |base: &Value, path: &str, new: &Value| {
        let mut varied = base.clone();
        let place = varied.pointer_mut(path).unwrap_or_else(|| panic!("{path} in {base}"));
        assert_ne!(place, new, "{path} has another value");
        *place = new.clone();
        varied
    };
    let full = |path: &str| match path.strip_prefix('.') {
        Some(inner) => format!("{prefix}/{inner}"),
        None => format!("/{path}"),
    };
    let twice = [&base, &base].map(|spec| fingerprint(&folder, spec));
    assert_eq!(twice[0], twice[1], "the same document is the same run");
    let mut told = Vec::new();
    leaves(&base, String::new(), &mut told);
    for path in &told {
        assert!(rows.iter().any(|row| path.starts_with(&full(row.0))), "{path} has no row");
    }
    for (path, new, others) in rows {
        let set =
            others.iter().fold(base.clone(), |base, (path, new)| with(&base, &full(path), new));
        let [one, two] =
            [&set, &with(&set, &full(path), &new)].map(|spec| fingerprint(&folder, spec));
        assert_ne!(one, two, "{path}={new} changes nothing");
    }
}

/// The fields of a run that are not its job's.
fn of_whole_run() -> Vec<Row> {
    let time = |ms: u32| json!({"secs": 0, "nanos": ms * 1_000_000});
    vec![
        ("workload/stages/0/name", json!("first"), vec![]),
        ("target", json!("ram:2MiB"), vec![]),
        ("runtime", time(1), vec![(".time_based", json!(true))]),
        ("ramp", json!({"secs": 600, "nanos": 0}), vec![]),
        ("seed", json!(7), vec![]),
        (
            "destroy",
            json!(true),
            vec![("target", json!("file:notes.img")), (".direction", json!("write"))],
        ),
        ("prepare", json!("no"), vec![]),
        ("notes", json!(["a note"]), vec![]),
        ("command", json!(["weir", "compare"]), vec![]),
    ]
}

/// Those of what a job writes, of what it checks and tells, and of its share.
fn of_content() -> Vec<Row> {
    let verifies = || vec![(".verify", json!("crc32c"))];
    let logs = || vec![(".logs/latency", json!("log"))];
    vec![
        (".urgent/0/percent", json!(50), vec![]),
        (".urgent/0/ioprio", json!([3, 0]), vec![(".urgent/0/percent", json!(50))]),
        (".urgent/1/percent", json!(50), vec![]),
        (".urgent/1/ioprio", json!([3, 0]), vec![(".urgent/1/percent", json!(50))]),
        (".verify_interval", json!(512), verifies()),
        (".verify_backlog", json!([4, 0]), verifies()),
        (".verify_backlog", json!([4, 2]), vec![(".verify_backlog", json!([4, 0]))]),
        (".pattern", json!([1, 2]), vec![(".direction", json!("write"))]),
        (".serialize_overlap", json!(true), vec![]),
        (".flow/weight", json!(2), vec![]),
        (".flow/id", json!(7), vec![(".flow/weight", json!(2))]),
        (".flow/sleep_ns", json!(9), vec![(".flow/weight", json!(2))]),
        (".replay", json!("there-is-none"), vec![]),
        (".trace", json!("trace"), vec![]),
        (".must_exist", json!(true), vec![(".target", json!("none/there.img"))]),
        (".logs/latency", json!("log"), vec![]),
        (".logs/bandwidth", json!("log"), vec![]),
        (".logs/iops", json!("log"), vec![]),
        (".logs/window_ns", json!(1_000_000), logs()),
        (".logs/told", json!("both"), logs()),
        (".logs/offset", json!(true), logs()),
        (".logs/priority", json!(true), logs()),
        (".logs/issue_time", json!(true), logs()),
        (".logs/shared", json!(true), logs()),
        (".logs/first", json!(3), logs()),
    ]
}

#[test]
fn each_field_of_a_stream_changes_what_the_run_does() {
    let clones = || vec![(".clones", json!(20))];
    let mut rows = [of_whole_run(), of_content()].concat();
    rows.extend([
        (".name", json!("other"), vec![]),
        (".target", json!("ram:2MiB"), vec![]),
        (".access", json!("sequential"), vec![]),
        (".distribution", json!("zipf:1.3"), vec![]),
        (".direction", json!("write"), vec![]),
        (".read_percent", json!(51), vec![]),
        (".sizes", json!(["8192", "4096", "4096"]), vec![]),
        (".sizes", json!(["4096", "8192", "4096"]), vec![]),
        (".sizes", json!(["4096", "4096", "8192"]), vec![(".direction", json!("trim"))]),
        (".offset", json!({"bytes": 4096}), vec![]),
        (".size", json!({"percent": 5}), vec![]),
        (".depth", json!(2), vec![]),
        (".clones", json!(2), vec![]),
        (".parted", json!(true), clones()),
        (".runtime_ns", json!(1_000_000), vec![(".time_based", json!(true))]),
        (".time_based", json!(true), vec![]),
        (".ramp_ns", json!(600_000_000_000_u64), vec![]),
        (".rate", json!([900_000, 0, 0]), vec![]),
        (".rate", json!([0, 900_000, 0]), vec![]),
        (".rate", json!([0, 0, 900_000]), vec![]),
        (".arrival", json!("poisson"), vec![(".rate", json!([900_000, 0, 0]))]),
        (".map", json!(true), vec![]),
        (".align", json!(8192), vec![]),
        (".step", json!(4096), vec![(".access", json!("sequential"))]),
        (".strides", json!({"bytes": 8192, "range": 8192, "skip": 8192}), vec![]),
        (".io_size", json!({"bytes": 8192}), vec![]),
        (".loops", json!(2), vec![]),
        (".offset_increment", json!({"bytes": 4096}), clones()),
        (".batching/submit", json!(2), vec![(".depth", json!(8))]),
        (".batching/complete", json!(2), vec![(".depth", json!(8))]),
        (".batching/low", json!(2), vec![(".depth", json!(8))]),
        (".batching/at_once", json!(true), vec![(".depth", json!(8))]),
        (".poll", json!(true), vec![]),
        (".start_delay_ns", json!([1, 1]), vec![]),
        (".thinking/ns", json!(1), vec![]),
        (".thinking/ios", json!(2), vec![]),
        (".thinking/io_ns", json!(2), vec![]),
        (".thinking/from_issue", json!(true), vec![]),
        (".read_back", json!(false), vec![(".verify", json!("crc32c"))]),
        (".buffered", json!(false), vec![]),
        (".durable", json!(true), vec![]),
        (".flush_every", json!(2), vec![]),
        (".seed", json!(2), vec![]),
        (".ioprio", json!([2, 0]), vec![]),
        (".ioprio", json!([2, 5]), vec![(".ioprio", json!([2, 0]))]),
        (".verify", json!("crc32c"), vec![]),
        (".background", json!(true), vec![]),
        // Holes are no matter where the page cache answers.
        (
            ".cached",
            json!(true),
            vec![("target", json!("file:holes.img,size=1MiB")), (".direction", json!("read"))],
        ),
    ]);
    expect_each_to_count(&stream(), "/workload/stages/0/jobs/0", rows);
}

#[test]
fn each_field_of_transactions_changes_what_the_run_does() {
    let rows = vec![
        ("target", json!("ram:2MiB"), vec![]),
        ("runtime", json!(null), vec![]),
        ("ramp", json!({"secs": 0, "nanos": 1}), vec![]),
        ("seed", json!(7), vec![]),
        ("destroy", json!(true), vec![(".data", json!(["file:notes.img"]))]),
        ("prepare", json!("no"), vec![]),
        ("notes", json!(["a note"]), vec![]),
        ("command", json!(["weir", "compare"]), vec![]),
        (".users", json!(3), vec![]),
        (".threads", json!(3), vec![]),
        (".update_percent", json!(26), vec![]),
        (".hot/access", json!(81), vec![]),
        (".hot/size", json!(21), vec![]),
        (".data", json!(["ram:65MiB"]), vec![]),
        (".redo", json!(["ram:16MiB"]), vec![]),
    ];
    expect_each_to_count(&transactions(), "/workload/oltp", rows);
}

/// That it is refused with these parts in what is said, and nothing was opened.
#[track_caller]
fn expect_refused(folder: &Folder, ended: &Ended, parts: &[&str]) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    let begins = "weir: the run's document on standard input: ";
    assert!(ended.stderr.starts_with(begins), "{ended:?}");
    for part in parts {
        assert!(ended.stderr.contains(part), "{part:?} is not in {ended:?}");
    }
    assert!(!folder.near("disk.img").exists(), "nothing was opened");
}

/// A run that would make a file.
fn on_a_file() -> RunSpec {
    RunSpec { target: Some(String::from("file:disk.img,size=1MiB")), ..stream() }
}

#[test]
fn a_document_that_was_cut_off_is_no_run() {
    let folder = Folder::new();
    let whole = on_a_file().document().expect("text");
    for length in [0, 1, whole.len() / 3, whole.len() / 2, whole.len() - 1] {
        let mut command = weir(&folder);
        command.args(WORDS).stdin(Stdio::piped());
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut writer = child.stdin.take().expect("a pipe");
        writer.write_all(&whole.as_bytes()[..length]).expect("it is read");
        // As of a process that died while it wrote.
        drop(writer);
        let read = |from: &mut dyn std::io::Read, to: &mut Vec<u8>| {
            std::io::Read::read_to_end(from, to).expect("a pipe");
        };
        read(&mut child.stdout.take().expect("a pipe"), &mut output);
        read(&mut child.stderr.take().expect("a pipe"), &mut errors);
        let code = child.wait().expect("it ends").code();
        let [stdout, stderr] = [output, errors].map(|all| String::from_utf8(all).expect("text"));
        let column = String::from("EOF while parsing");
        let place = format!("line 1 column {length}");
        expect_refused(&folder, &Ended { code, stdout, stderr }, &[&column, &place]);
    }
}

#[test]
fn what_is_wrong_in_a_document_is_named_with_its_place_and_value() {
    let folder = Folder::new();
    let job = "/workload/stages/0/jobs/0";
    let base = value(&on_a_file());
    for (path, name, new, parts) in [
        ("", "frob", json!(1), &["unknown field `frob`", "`workload`", "line 1 column "][..]),
        ("/workload/stages/0", "frob", json!(1), &["unknown field `frob`", "line 1 column "]),
        (job, "frob", json!(1), &["unknown field `frob`", "line 1 column "]),
        ("", "seed", json!(-1), &["integer `-1`", "u64", "line 1 column "]),
        ("", "seed", json!("1"), &["string \"1\"", "u64"]),
        ("", "workload", json!({"frob": []}), &["unknown variant `frob`", "stages"]),
        ("", "runtime", json!({"secs": 0, "nanos": 1}), &["runtime=1ns", "1ms..=2592000s"]),
        ("", "ramp", json!({"secs": 3_000_000, "nanos": 0}), &["ramp=3000000s", "0ns..=2592000s"]),
        (job, "depth", json!(0), &["job job: depth=0", "1..=4096"]),
        (job, "depth", json!(70_000), &["`70000`", "u16"]),
        (job, "clones", json!(257), &["clones=257", "1..=256"]),
        (job, "read_percent", json!(101), &["read_percent=101", "0..=100"]),
        (job, "rate", json!([0, 0, 100_000_001]), &["rate=100000001", "0..=100000000"]),
        (job, "rate", json!([0, 0]), &["array of length 3"]),
        (job, "size", json!({"percent": 0}), &["size=0", "1..=100"]),
        (job, "offset", json!({"percent": 101}), &["offset=101", "1..=100"]),
        (job, "runtime_ns", json!(5), &["runtime_ns=5", "1000000..=2592000000000000"]),
        (job, "ramp_ns", json!(u64::MAX), &["ramp_ns=18446744073709551615"]),
        (job, "ioprio", json!([4, 0]), &["ioprio=[4,0]"]),
        (job, "ioprio", json!([1, 8]), &["ioprio=[1,8]"]),
        (job, "sizes", json!(["4k", "0", "4k"]), &["size \"0\" is below 512"]),
        (job, "distribution", json!("zipf:1"), &["zipf:1: a number above 0"]),
        (job, "direction", json!("up"), &["unknown variant `up`", "`read`"]),
    ] {
        let mut wrong = base.clone();
        wrong.pointer_mut(path).expect("an object")[name] = new;
        expect_refused(&folder, &run(&folder, &wrong.to_string()), parts);
    }
    let oltp = value(&transactions());
    for (name, new, parts) in [
        ("users", json!(1001), &["oltp: users=1001", "1..=1000"]),
        ("threads", json!(65), &["threads=65", "1..=64"]),
        ("update_percent", json!(101), &["update_percent=101", "0..=100"]),
        ("hot", json!({"access": 0, "size": 1}), &["hot.access=0", "1..=100"]),
        ("hot", json!({"access": 1, "size": 101}), &["hot.size=101", "1..=100"]),
    ] {
        let mut wrong = oltp.clone();
        wrong["workload"]["oltp"][name] = new;
        expect_refused(&folder, &run(&folder, &wrong.to_string()), parts);
    }
    for wrong in [format!("{base} {{}}"), String::from("[]"), String::from("no JSON")] {
        expect_refused(&folder, &run(&folder, &wrong), &["line 1 column "]);
    }
}

#[test]
fn a_field_that_is_missing_is_named_also_where_it_may_be_null() {
    let folder = Folder::new();
    let base = value(&on_a_file());
    for path in ["", "/workload/stages/0", "/workload/stages/0/jobs/0"] {
        let object = base.pointer(path).and_then(Value::as_object).expect("an object");
        for name in object.keys() {
            let mut less = base.clone();
            let object = less.pointer_mut(path).and_then(Value::as_object_mut).expect("it");
            object.remove(name);
            let what = format!("missing field `{name}`");
            expect_refused(&folder, &run(&folder, &less.to_string()), &[&what]);
        }
    }
}

#[test]
fn a_document_of_a_thousand_targets_is_one_run() {
    let folder = Folder::new();
    let one = |n: usize| Job {
        name: format!("job {n}"),
        target: Some(format!("null:{}KiB,queues=1", 1024 + 4 * n)),
        size: Some(Amount::Bytes(4096)),
        ..Job::default()
    };
    let jobs = (0..1000).map(one).collect();
    let spec = RunSpec::of(Workload::Stages(vec![Stage { name: None, jobs }]));
    let document = spec.document().expect("text");
    assert!(document.len() > 1 << 18, "longer than any pipe holds: {}", document.len());
    let ended = run(&folder, &document);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let saved: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(saved["bench"]["ios"], 1000);
    let jobs = saved["bench"]["job"]["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 1000);
    assert_eq!(jobs[999]["target"], "null:5020KiB,queues=1");
}

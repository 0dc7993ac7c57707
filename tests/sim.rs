//! `weir sim`: the same seed gives the same bytes whatever the number of threads, and what is not
//! a scene, a setting or a value is refused with what would be.

#![forbid(unsafe_code)]

mod daemon;

use daemon::program::{Ended, Running};
use daemon::{Folder, weir};
use rustix::process::Signal;

fn sim(arguments: &[&str]) -> Ended {
    let folder = Folder::new();
    let mut command = weir(&folder);
    command.arg("sim").args(arguments);
    Running::start(command).end()
}

#[track_caller]
fn told(arguments: &[&str]) -> String {
    let Ended { code, stdout, stderr } = sim(arguments);
    assert_eq!(code, Some(0), "{arguments:?}\n{stdout}\n{stderr}");
    stdout
}

const BUSY: [&str; 6] =
    ["run", "icpe24", "--set", "scheduler=mq-deadline,bfq", "--set", "processes=1,3"];

/// What a run says as JSON, but for how long it took.
fn document(seed: &str, threads: &str) -> serde_json::Value {
    let mut arguments = BUSY.to_vec();
    // The older name of --randseed.
    arguments.extend(["--json", "--seed", seed, "--threads", threads]);
    let text = told(&arguments);
    let mut document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let fields = document.as_object_mut().expect("an object");
    let wall = fields.remove("wall_s").and_then(|wall| wall.as_f64());
    assert!(wall.is_some_and(|wall| wall > 0.0), "{text}");
    assert!(fields.remove("requests_per_wall_s").is_some(), "{text}");
    assert_eq!(fields.remove("threads"), Some(threads.parse::<u64>().expect("a number").into()));
    document
}

#[test]
fn a_seed_gives_the_same_figures_three_times_and_by_one_and_two_threads() {
    let first = document("7", "1");
    assert_eq!(first["scene"], "icpe24");
    // Four cases of 50 ms, each after 10 ms to warm up.
    assert_eq!((&first["seed"], &first["simulated_s"]), (&7.into(), &0.24.into()));
    assert_eq!(first["settings"]["ssds"], "1");
    let rows = first["rows"].as_array().expect("rows");
    let iops = rows.iter().filter(|row| row["metric"] == "iops").count();
    assert_eq!(iops, 4, "one of each case: {rows:?}");
    for threads in ["1", "2", "2"] {
        assert_eq!(document("7", threads).to_string(), first.to_string(), "{threads} threads");
    }
    assert_ne!(document("8", "2")["rows"], first["rows"]);
}

#[test]
fn the_table_has_the_same_bytes_by_one_and_two_threads() {
    let table = |threads: &str| told(&[&BUSY[..], &["--quiet", "--threads", threads]].concat());
    let first = table("1");
    assert!(first.contains("scheduler=bfq processes=3 ssds=1"), "{first}");
    assert_eq!(table("2"), first);
}

#[test]
fn what_is_none_is_refused_with_what_there_is() {
    let why = |arguments: &[&str]| {
        let Ended { code, stdout, stderr } = sim(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        stderr
    };
    let scene = why(&["run", "no-such"]);
    assert!(scene.contains("no scene \"no-such\"; there are illumos-11827, icpe24"), "{scene}");
    let setting = why(&["run", "icpe24", "--set", "disks=2"]);
    assert!(setting.contains("no setting \"disks\"; there are scheduler, processes"), "{setting}");
    let value = why(&["run", "icpe24", "--set", "ssds=17"]);
    assert!(value.contains("ssds=17 is outside 1..=16"), "{value}");
    let word = why(&["run", "icpe24", "--set", "scheduler=cfq"]);
    assert!(word.contains("scheduler=cfq is none of none, kyber, mq-deadline, bfq"), "{word}");
}

#[test]
fn the_list_names_each_scene_and_setting() {
    let list = told(&["list"]);
    let names = [
        "illumos-11827",
        "icpe24",
        "dell-slob",
        "linux-outcomes",
        "suse-dd32",
        "lustre-scsi-mq",
        "x205ta-hdparm",
        "processes",
        "ssds",
        "queues_after",
        "FILE.toml",
        "process.NAME.depth",
    ];
    assert!(names.iter().all(|name| list.contains(name)), "{list}");
    let text = told(&["list", "--json"]);
    let scenes: serde_json::Value = serde_json::from_str(&text).expect("one document");
    assert_eq!(scenes[1]["settings"][0]["name"], "scheduler", "{text}");
}

#[test]
fn a_check_says_of_each_figure_what_the_source_has_and_whether_it_was_fitted() {
    let text = told(&["check", "icpe24", "--json", "--quiet"]);
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let rows = document["rows"].as_array().expect("rows");
    let (of_source, own): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["source"].is_f64());
    assert_eq!((of_source.len(), own.len()), (30, 56), "each row of a run is there");
    assert!(own.iter().all(|row| row["within"].is_null() && row["value"].is_f64()), "{own:?}");
    let first = &rows[0];
    assert_eq!((&first["source"], &first["fitted"]), (&381_000.0.into(), &true.into()));
    let error = first["value"].as_f64().expect("a figure") / 381_000.0 - 1.0;
    let told = first["error_pct"].as_f64().expect("an error");
    assert!((error * 100.0 - told).abs() < 1e-6, "{first}");
    assert!(of_source.iter().all(|row| row["within"] == true), "{rows:?}");
}

#[test]
fn a_check_tells_bounds_of_one_side_and_what_is_known_to_be_off_and_does_not_fail_for_that() {
    let text = told(&["check", "linux-outcomes", "--json", "--quiet"]);
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let rows = document["rows"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["within"] != false), "{rows:?}");
    let of = |metric: &str| rows.iter().find(|row| row["metric"] == metric).expect("a row");
    assert_eq!(of("last_end_s")["bound"], "<= 6.49");
    let unbound = of("first_end_s");
    assert!(unbound["within"].is_null() && unbound["bound"] == "none", "{unbound}");
    let dd = told(&["check", "suse-dd32", "--quiet"]);
    assert!(dd.contains("1.32..1.52") && dd.contains(">= 4.00"), "{dd}");
    let table = told(&["check", "dell-slob", "--quiet"]);
    assert_eq!(table.matches("off, as is known").count(), 3, "{table}");
    assert!(!table.contains("inf %"), "{table}");
}

#[test]
fn what_a_source_has_and_nothing_of_ours_is_beside_is_shown_with_the_reason() {
    let table = told(&["check", "x205ta-hdparm", "--quiet"]);
    for line in ["hdparm -T, cached reads, MB/s", "[1] It is a copy out of the page cache"] {
        assert!(table.contains(line), "{table}");
    }
    let text = told(&["check", "x205ta-hdparm", "--quiet", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let tps = document["raw"].as_array().expect("raw rows");
    let tps = tps.iter().find(|raw| raw["what"] == "iostat mmcblk0, tps").expect("a row");
    assert_eq!((&tps["before"], &tps["after"]), (&64.5.into(), &112.42.into()));
    assert!(tps["why"].as_str().is_some_and(|why| why.contains("15,469")), "{tps}");
    let rows = document["rows"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["within"].is_null()), "no bound holds trivially: {rows:?}");
}

const HOST: &str = r#"
about = "two kinds of processes"
[host]
cores = [1, 2]
[disk.model.fixed]
units = 4
latency = "100us"
[queue]
mode = ["mq", "sq"]
scheduler = ["mq-deadline"]
[process.readers]
count = 2
depth = [2, 4]
[process.writer]
direction = "write"
pause = "1ms"
[run]
time = "20ms"
"#;

#[test]
fn a_file_is_a_host_with_a_case_for_each_choice_from_its_lists_whatever_the_number_of_threads() {
    let folder = Folder::new();
    let path = folder.near("host.toml");
    std::fs::write(&path, HOST).expect("a file");
    let file = path.to_str().expect("a path in UTF-8");
    let set = ["--set", "queue.mode=mq", "--set", "process.readers.count=3"];
    let run = |threads: &str, seed: &str| {
        let how = ["--json", "--threads", threads, "--randseed", seed];
        let text = told(&[&["run", file], &set[..], &how].concat());
        let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
        document
    };
    let first = run("1", "3");
    assert_eq!(
        (&first["settings"]["host.cores"], &first["notices"][0]),
        (&"1,2".into(), &"two kinds of processes".into())
    );
    assert_eq!(first["settings"]["queue.mode"], "mq");
    let rows = first["rows"].as_array().expect("rows");
    let of = |case: &str, metric: &str| {
        let is_it = |row: &&serde_json::Value| row["case"] == case && row["metric"] == metric;
        rows.iter().find(is_it).unwrap_or_else(|| panic!("{case} {metric}: {rows:?}"))["value"]
            .clone()
    };
    let case = "host.cores=2 process.readers.depth=4";
    assert!(of(case, "iops").as_f64() > Some(20_000.0));
    // A pause of 1 ms and some 0.1 ms of the disk.
    let writer = of(&format!("{case} process=writer"), "iops").as_f64().expect("a figure");
    assert!((600.0..=910.0).contains(&writer), "{writer}");
    assert!(of(&format!("{case} process=readers"), "least_iops").is_f64());
    assert_eq!(run("2", "3")["rows"], first["rows"]);
    assert_ne!(run("1", "4")["rows"], first["rows"]);
    let table = told(&["run", file, "--quiet", "--set", "queue.mode=mq"]);
    assert!(table.ends_with("note: two kinds of processes\n"), "{table}");
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_its_line_and_what_is_set_with_its_bound() {
    let folder = Folder::new();
    let path = folder.near("host.toml");
    let file = path.to_str().expect("a path in UTF-8");
    let why = |text: &str, set: &[&str]| {
        std::fs::write(&path, text).expect("a file");
        let Ended { code, stdout, stderr } = sim(&[&["run", file], set].concat());
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{text}");
        stderr
    };
    let line = why(&HOST.replace("pause", "pauses"), &[]);
    assert!(line.contains("host.toml:16: no setting \"process.writer.pauses\""), "{line}");
    let set = why(HOST, &["--set", "host.cores=0"]);
    assert!(set.contains("host.cores=0 is outside 1..=256"), "{set}");
    // mq-deadline is of the other path.
    let case = why(HOST, &[]);
    assert!(case.contains("queue.mode=sq") && case.contains("mq-deadline"), "{case}");
    std::fs::remove_file(&path).expect("a file");
    let none = sim(&["run", file]);
    assert!(none.code == Some(2) && none.stderr.contains("host.toml: "), "{}", none.stderr);
}

#[test]
fn what_is_no_regular_file_or_is_too_long_is_refused_and_not_waited_for() {
    let folder = Folder::new();
    let why = |name: &str| {
        let path = folder.near(name);
        let Ended { code, stdout, stderr } = sim(&["run", path.to_str().expect("UTF-8")]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{name}: {stderr}");
        stderr
    };
    let (mode, fifo) =
        (rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR, rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(rustix::fs::CWD, folder.near("pipe.toml"), fifo, mode, 0).expect("a FIFO");
    std::os::unix::fs::symlink("/dev/zero", folder.near("zero.toml")).expect("a link");
    std::fs::create_dir(folder.near("folder.toml")).expect("a folder");
    for name in ["pipe.toml", "zero.toml", "folder.toml"] {
        assert!(why(name).contains(&format!("{name}: it is not a regular file")), "{}", why(name));
    }
    std::fs::write(folder.near("long.toml"), "#".repeat((1 << 20) + 1)).expect("a file");
    let long = why("long.toml");
    assert!(long.contains("long.toml: it has more than 1048576 bytes"), "{long}");
    let most = format!("{HOST}{}", " ".repeat((1 << 20) - HOST.len()));
    std::fs::write(folder.near("most.toml"), most).expect("a file");
    let file = folder.near("most.toml");
    told(&["run", file.to_str().expect("UTF-8"), "--set", "queue.mode=mq", "--quiet"]);
}

/// Starts a command that would take long, and interrupts it once it listens to signals.
fn interrupted(arguments: &[&str]) -> (String, serde_json::Value) {
    let folder = Folder::new();
    let mut command = weir(&folder);
    command.arg("sim").args(arguments).args(["--json", "--quiet"]);
    let mut running = Running::start(command);
    let status = format!("/proc/{}/status", running.pid().as_raw_nonzero());
    let listens = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        // All three have been asked for.
        [Signal::HUP, Signal::INT, Signal::TERM]
            .iter()
            .all(|signal| caught.unwrap_or(0) >> (signal.as_raw() - 1) & 1 == 1)
    };
    let began = std::time::Instant::now();
    while !listens() {
        assert!(running.is_running(), "{arguments:?} ended by itself");
        assert!(began.elapsed() < daemon::PATIENCE, "{arguments:?} listens to no signal");
        std::thread::yield_now();
    }
    running.signal(Signal::INT);
    let Ended { code, stdout, stderr } = running.end();
    assert_eq!(code, Some(2), "{arguments:?}\n{stdout}\n{stderr}");
    (stderr, serde_json::from_str(&stdout).expect("one document"))
}

#[test]
fn an_interrupted_run_check_or_hunt_prints_what_it_has_and_says_so() {
    let folder = Folder::new();
    let path = folder.near("host.toml");
    std::fs::write(&path, HOST.replace("20ms", "1000s")).expect("a file");
    let file = path.to_str().expect("UTF-8");
    let (why, run) = interrupted(&["run", file, "--set", "queue.mode=mq"]);
    assert!(why.contains("interrupted; the figures are partial, of 0 of 4 cases"), "{why}");
    assert_eq!((&run["partial"], &run["rows"]), (&true.into(), &serde_json::json!([])));
    let (why, check) = interrupted(&["check", "dell-slob", "--threads", "1"]);
    assert!(why.contains("interrupted; the figures are partial, of "), "{why}");
    assert_eq!(check["partial"], true);
    let (why, hunt) = interrupted(&["fuzz", "--seconds", "3600", "--threads", "1"]);
    assert!(why.contains("interrupted; ") && why.contains(" broke no law"), "{why}");
    assert_eq!((&hunt["partial"], &hunt["findings"]), (&true.into(), &serde_json::json!([])));
}

/// What a fuzz of so many lives says as JSON, but for how long it took.
fn fuzzed(lives: &str, threads: &str) -> serde_json::Value {
    let text = told(&["fuzz", "--randseed", "3", "--lives", lives, "--threads", threads, "--json"]);
    let mut document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    assert!(document["wall_s"].as_f64().is_some_and(|wall| wall > 0.0), "{text}");
    document["wall_s"].take();
    document
}

#[test]
fn a_few_hundred_lives_break_no_law_and_are_the_same_by_one_and_two_threads() {
    let first = fuzzed("300", "1");
    assert_eq!((&first["lives"], &first["findings"]), (&300.into(), &serde_json::json!([])));
    let kinds = first["kinds"].as_object().expect("kinds");
    assert_eq!(kinds.len(), 7, "{first}");
    assert_eq!(fuzzed("300", "2"), first);
    let text = told(&["fuzz", "--randseed", "3", "--lives", "1", "--quiet"]);
    assert!(text.starts_with("1 lives (") && text.ends_with(": 0 found\n"), "{text}");
}

#[test]
fn what_a_check_prints_is_drawn_with_the_sources_points_and_a_list_of_checks_too() {
    let folder = Folder::new();
    let text = told(&["check", "icpe24", "--json", "--quiet"]);
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    assert_eq!(document["kind"], "sim");
    let times = document["times"].as_array().expect("times");
    assert_eq!(times.len(), 28, "one of each case");
    for one in times {
        let share = |name: &str| one[name].as_f64().expect(name);
        let all = ["user_pct", "system_pct", "waiting_pct", "idle_pct"].map(share);
        // A wait that began before the measured time is counted in it whole.
        assert!((all.iter().sum::<f64>() - 100.0).abs() < 0.1, "{one}");
        assert!(all.iter().all(|share| *share >= 0.0), "{one}");
        assert!(share("device_ns") > 0.0 && share("queue_wait_ns") >= 0.0, "{one}");
    }
    let draw = |name: &str, text: &str| {
        let (file, page) = (folder.path().join(name), folder.path().join("page.html"));
        std::fs::write(&file, text).expect("a file");
        let mut command = weir(&folder);
        command.arg("report").arg(&file).arg("-o").arg(&page);
        let Ended { code, stderr, .. } = Running::start(command).end();
        assert_eq!(code, Some(0), "{stderr}");
        std::fs::read_to_string(page).expect("a page")
    };
    let page = draw("one.json", &text);
    assert!(page.contains("figures of the source"), "it begins with how they stand");
    // Two strokes for each of 28 figures.
    assert_eq!(page.matches("class=\"beside").count(), 56);
    let both = draw("two.json", &format!("[{text},{text}]"));
    assert!(both.contains("1. icpe24, simulated; 2. icpe24, simulated"), "both are drawn");
}

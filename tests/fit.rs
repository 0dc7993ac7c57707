//! `weir sim fit`: a live disk is recorded, a model fitted to the recording, and simulated; what
//! was not seen is refused, and so is a recording that is no whole one.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::time::{Duration, Instant};

use daemon::program::Running;
use daemon::words::{expect_refused, told};
use daemon::{Daemon, Folder, PATIENCE, weir};
use rustix::process::Signal;

/// A disk that takes 300 to 400 us for a read, however many there are.
const DISK: &str = "depth = 64\n[fixed]\nunits = 64\nlatency = \"300us\"\nspread = \"100us\"\n";

/// Between two looks whether a file is there.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A folder with `live.replay`, recorded of random reads of 4 KiB with a depth of 1 and then of 8.
fn recorded() -> Folder {
    let folder = Folder::new();
    fs::write(folder.near("disk.toml"), DISK).expect("a file");
    let disk = format!(
        "sda=model:{},size=64MiB,scheduler=mq-deadline,queues=1",
        folder.near("disk.toml").display()
    );
    let daemon = Daemon::start(&folder, &[&disk]);
    let mut command = weir(&folder);
    command.args(["record", "sda", "-o", "live.replay"]);
    let mut recording = Running::start(command);
    let began = Instant::now();
    while !folder.near("live.replay").exists() {
        assert!(recording.is_running() && began.elapsed() < PATIENCE, "no recording");
        std::thread::sleep(LOOK_AGAIN);
    }
    for depth in ["1", "8"] {
        let words = ["--rw", "randread", "--bs", "4k", "--runtime", "3s", "--ramp-time", "0"];
        let uri = folder.uri("sda");
        let target = ["bench", "--quiet", "--target", &uri, "--iodepth", depth];
        told(&folder, &[&target[..], &words].concat());
    }
    recording.signal(Signal::INT);
    let ended = recording.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    daemon.stop();
    folder
}

#[test]
fn a_recorded_disk_is_fitted_and_simulated_within_what_was_seen() {
    let folder = recorded();
    let text = told(&folder, &["sim", "fit", "live.replay", "-o", "model.toml", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let seen = &document["seen"];
    assert_eq!((&seen["sizes"], &seen["access"]), (&[4096, 4096].into(), &"random".into()));
    assert_eq!(seen["read_percent"], serde_json::json!([100, 100]));
    let depths: Vec<u64> =
        seen["in_flight"].as_array().expect("a list").iter().filter_map(|n| n.as_u64()).collect();
    // Of eight that a client keeps under way the disk has as many at once, or not quite.
    let most = depths.last().copied().unwrap_or_default();
    assert!(depths.contains(&1) && (5..=8).contains(&most), "{depths:?}");
    let rows = document["rows"].as_array().expect("rows");
    let alone = rows.iter().find(|row| row["in_flight"] == 1 && row["metric"] == "p50_us");
    let source = alone.and_then(|row| row["source"].as_f64()).expect("the median of one alone");
    // What the driver is asked may come late, and never early.
    assert!(source >= 300.0, "{source}");
    let model = fs::read_to_string(folder.near("model.toml")).expect("the model");
    assert_eq!(document["model"], model);
    assert!(model.starts_with("# Fitted by weir sim fit to the recording live.replay."), "{model}");

    let run = ["sim", "run", "model.toml", "--json"];
    let depths = format!("process.job.depth=1,4,{most}");
    let others = ["--set", "queue.scheduler=none,bfq", "--set", &depths];
    let text = told(&folder, &[&run[..], &others].concat());
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let rows = document["rows"].as_array().expect("rows");
    let medians: Vec<f64> = rows
        .iter()
        .filter(|row| row["metric"] == "p50_us")
        .filter_map(|row| row["value"].as_f64())
        .collect();
    assert_eq!(medians.len(), 6, "{rows:?}");
    assert!(medians.iter().all(|us| *us >= 300.0), "{medians:?}");

    let nine = format!("commands at once=9 is outside 1..={most}");
    for (set, what) in [
        ("process.job.depth=9", nine.as_str()),
        ("process.job.count=3", &nine),
        ("process.job.size=8KiB", "bytes of a command=8 KiB is outside 4 KiB..=4 KiB"),
        ("process.job.direction=write", "reads=0 % is outside 100..=100 %"),
        ("process.job.direction=mixed", "reads=50 % is outside 100..=100 %"),
        ("process.job.access=sequential", "access=sequential is not random"),
        ("process.job.flush_every=1", "flushes=yes is not no"),
    ] {
        // Three that keep three under way each are nine.
        let depth = if set.contains("count") { "process.job.depth=3" } else { set };
        let words = ["sim", "run", "model.toml", "--set", set, "--set", depth];
        expect_refused(&folder, &words, &["process job: ", what]);
    }
    // A number that no value holds, in a file that was changed by hand.
    let beyond = model.replace("jump = \"0ns\"", "jump = 9223372036854775808");
    assert_ne!(beyond, model);
    fs::write(folder.near("beyond.toml"), beyond).expect("a file");
    expect_refused(&folder, &["sim", "run", "beyond.toml"], &["beyond.toml:"]);
    // More than was seen at once waits for its turn where a disk has no more tags than that.
    let tags = format!("disk.depth={most}");
    let deep = ["--set", "process.job.depth=64", "--set", &tags];
    told(&folder, &[&run[..], &deep, &["--set", "queue.queues=1"]].concat());
    // Live, it is a disk that is read.
    let live = ["bench", "--quiet", "--target", "model:model.toml", "--runtime", "50ms"];
    told(&folder, &live);
    expect_refused(&folder, &[&live[..], &["--rw", "randwrite"]].concat(), &["read-only"]);
}

#[test]
fn a_recording_that_is_empty_cut_or_contradicts_itself_is_refused_with_its_line() {
    let folder = Folder::new();
    let whole: String = (0..20)
        .map(|n| {
            let (at, sector) = (n * 1000, n * 64);
            format!("{at} I R {sector} 8 0 0\n{at} D R {sector} 8 - -\n{at} C R {sector} 8 - -\n")
        })
        .collect();
    let whole = format!("scheduler noop\n{whole}");
    for (name, text, parts) in [
        ("empty", String::new(), vec!["empty: ", "nothing to fit"]),
        ("header", String::from("scheduler noop\n"), vec!["nothing to fit"]),
        ("words", String::from("scheduler noop\nhello\n"), vec!["line 2: 1 fields"]),
        ("back", format!("{whole}0 I R 0 8 0 0\n"), vec!["line 62: TIME_US 0 is before"]),
        ("ghost", format!("{whole}90000 C R 0 8 - -\n"), vec!["line 62: C R 0 8", "in flight"]),
        ("cut", whole[..whole.len() - 8].to_owned(), vec!["line 61: 4 fields"]),
    ] {
        fs::write(folder.near(name), text).expect("a file");
        expect_refused(&folder, &["sim", "fit", name, "-o", "model.toml"], &parts);
        assert!(!folder.near("model.toml").exists(), "{name}");
    }
    fs::write(folder.near("few"), whole).expect("a file");
    expect_refused(&folder, &["sim", "fit", "few"], &["few: "]);
    expect_refused(&folder, &["sim", "fit", "nowhere"], &["nowhere: "]);
    expect_refused(&folder, &["sim", "fit"], &["--target"]);
    expect_refused(&folder, &["sim", "fit", "few", "-o", "model"], &["ends in .toml"]);
    expect_refused(&folder, &["sim", "fit", "few", "--depth", "3"], &["--depth is of jobs"]);
}

#[test]
fn jobs_on_a_target_give_a_model_with_prices() {
    let folder = Folder::new();
    let jobs = ["--depth", "1,4,8", "--rounds", "2", "--runtime", "100ms"];
    let fit = ["sim", "fit", "--quiet", "--target", "ram:16MiB", "-o", "model.toml"];
    let text = told(&folder, &[&fit[..], &jobs].concat());
    assert!(text.contains("held back") && text.contains("the model is in model.toml"), "{text}");
    let model = fs::read_to_string(folder.near("model.toml")).expect("the model");
    for part in ["[host.path]", "[host.scheduler.bfq]", "in_flight = 8", "ram:16MiB"] {
        assert!(model.contains(part), "{part}: {model}");
    }
    told(&folder, &["sim", "run", "model.toml", "--set", "process.job.depth=1,2,8"]);
    let deep = ["sim", "run", "model.toml", "--set", "process.job.depth=9"];
    expect_refused(&folder, &deep, &["commands at once=9 is outside 1..=8"]);
    for (target, what) in [
        ("ram:16MiB,scheduler=bfq", "scheduler=bfq"),
        ("ram:16MiB,queue_mode=sq", "queue_mode=sq"),
        ("ram:0", "ram:0"),
    ] {
        expect_refused(&folder, &["sim", "fit", "--target", target], &[what]);
    }
    let small = ["sim", "fit", "--target", "ram:16MiB", "--bs", "512"];
    expect_refused(&folder, &small, &["--bs=512 is below 4096"]);
    // Nothing is written, so nothing is made.
    let new = ["sim", "fit", "--target", "file:new.img,size=16MiB"];
    expect_refused(&folder, &new, &["new.img"]);
    assert!(!folder.near("new.img").exists());
    fs::File::create(folder.near("holes.img")).and_then(|file| file.set_len(16 << 20)).unwrap();
    let words = ["sim", "fit", "--target", "file:holes.img", "--rounds", "2", "--depth", "1"];
    let mut command = weir(&folder);
    command.args([&words[..], &["--runtime", "100ms"]].concat());
    let ended = Running::start(command).end();
    assert!(ended.stderr.contains("100 % of the bytes of file:holes.img"), "{ended:?}");
    let others = ["--predict", "bfq,none", "--predict-depth", "2"];
    let fit = ["sim", "fit", "--quiet", "--json", "--target", "ram:16MiB"];
    let text = told(&folder, &[&fit[..], &jobs, &others].concat());
    let document: serde_json::Value = serde_json::from_str(&text).expect("one document");
    let rows = document["rows"].as_array().expect("rows");
    let of = |scheduler: serde_json::Value| {
        rows.iter().filter(|row| row["scheduler"] == scheduler && row["in_flight"] == 2).count()
    };
    assert_eq!([of("bfq".into()), of("none".into()), of(serde_json::Value::Null)], [3, 3, 0]);
    assert_eq!(rows.len(), 15, "three depths that were held back, and two predictions");
    assert!(document["model"].as_str().is_some_and(|text| text.contains("\npaces = [")), "{text}");
    let beyond = [&fit[..], &jobs, &["--predict", "bfq", "--predict-depth", "9"]].concat();
    expect_refused(&folder, &beyond, &["--predict-depth=9 is outside the 1..=8 of --depth"]);
    let depth = ["sim", "fit", "--target", "ram:16MiB", "--depth", "256"];
    expect_refused(&folder, &depth, &["--depth=256 is above the 128"]);
}

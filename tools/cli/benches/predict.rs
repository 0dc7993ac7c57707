//! What `weir sim fit` predicts of a disk, against `weir bench` on it in the same run: a `file:`
//! disk with direct I/O and a `ram:` disk, by random reads of 4 KiB of one thread.
//!
//! The model is fitted to some depths without a scheduler. Predicted are four depths, of which two
//! were not fitted, under schedulers that were not: IOPS, the median and the 99th percentile of the
//! latency. Each round fits anew, measures and predicts, as a shared machine is at one speed now
//! and at another in a minute; compared are the medians of the rounds. Exit status 1: a figure is
//! further off than its bound.
//!
//! cargo bench -p weir-cli --bench predict [-- --rounds 7 --milliseconds 250 --mib 256
//!     --folder DIR]

#![forbid(unsafe_code)]

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, ExitCode};

use serde_json::Value;
use weir_bench::rounds::{Arguments, machine};
use weir_bio::{Buf, Prng};

/// How far a prediction may be off, percent; and how far it is to be.
const BOUND: f64 = 15.0;
const AIM: f64 = 8.0;

/// Depths that the model is fitted to.
const FITTED: &str = "1,4,16,64";

/// Depths that are predicted, and schedulers: none of these was fitted, of those two.
const DEPTHS: [&str; 4] = ["1", "8", "16", "32"];
const SCHEDULERS: [&str; 2] = ["mq-deadline", "bfq"];

/// What is predicted, by the names that `weir sim run` and `weir bench` have for it.
const METRICS: [&str; 3] = ["iops", "p50_us", "p99_us"];

struct Setup {
    folder: PathBuf,
    rounds: u32,
    milliseconds: u32,
    mib: u64,
}

struct RemovedAtEnd(PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        // A file that cannot be removed is in the build's own folder.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::of_process();
    let folder = arguments
        .word("--folder")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let setup = Setup {
        rounds: arguments.number("--rounds", 7, 1),
        milliseconds: arguments.number("--milliseconds", 250, 50),
        mib: u64::from(arguments.number("--mib", 256, 1)),
        folder,
    };
    let image = RemovedAtEnd(setup.folder.join(format!("weir-predict-{}.img", std::process::id())));
    fill(&image.0, setup.mib << 20);
    let file = format!("file:{}", image.0.display());
    let ram = format!("ram:{}MiB", setup.mib);
    println!("{}", machine());
    println!(
        "fitted at depths {FITTED} with none; {} rounds of {} ms",
        setup.rounds, setup.milliseconds
    );
    println!(
        "target scheduler depth metric: measured (least..most), predicted (least..most), error"
    );
    let mut worst = [0.0_f64; 2];
    for (at, (name, target)) in [("file", &file), ("ram", &ram)].into_iter().enumerate() {
        worst[at] = compare(&setup, name, target);
    }
    println!(
        "the worst: file {:.1} %, ram {:.1} %; bound {BOUND} %, aim {AIM} %",
        worst[0], worst[1]
    );
    // A short run shows that the bench still runs, and nothing else.
    let is_short = setup.rounds < 3;
    match worst.iter().any(|worst| *worst > BOUND) && !is_short {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Writes the file whole, past the page cache: a hole is no read from a device.
fn fill(path: &Path, bytes: u64) {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(direct)
        .open(path)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut prng = Prng::new(1);
    let piece = Buf::filled(1 << 20, |bytes| prng.fill(bytes));
    for _ in 0..bytes >> 20 {
        file.write_all(&piece).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    file.sync_all().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// A command of weir's, which has to succeed; its output.
fn weir(words: &[&str]) -> String {
    let output = Program::new(env!("CARGO_BIN_EXE_weir")).args(words).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "weir {words:?}: {told}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(words: &[&str]) -> Value {
    serde_json::from_str(&weir(words)).expect("a document")
}

/// A scheduler, a depth, and the three metrics of all rounds: measured, predicted.
struct Cell {
    scheduler: &'static str,
    depth: &'static str,
    rounds: [[Vec<f64>; 2]; 3],
}

/// Fits, measures and predicts; how far the worst prediction is off, percent.
fn compare(setup: &Setup, name: &str, target: &str) -> f64 {
    let model = format!("predict-{}-{name}.toml", std::process::id());
    let model = RemovedAtEnd(setup.folder.join(model));
    let path = model.0.display().to_string();
    let cell = |scheduler| move |depth| Cell { scheduler, depth, rounds: Default::default() };
    let mut cells: Vec<Cell> =
        SCHEDULERS.into_iter().flat_map(|scheduler| DEPTHS.map(cell(scheduler))).collect();
    let runtime = format!("{}ms", setup.milliseconds);
    for round in 0..setup.rounds {
        let fit = ["sim", "fit", "--target", target, "--depth", FITTED, "--quiet"];
        weir(&[&fit[..], &["--rounds", "2", "--runtime", &runtime, "-o", &path]].concat());
        let seed = (round + 1).to_string();
        for Cell { scheduler, depth, rounds } in &mut cells {
            let target = format!("{target},scheduler={scheduler}");
            let figures = bench(&target, depth, &runtime, &seed);
            rounds.iter_mut().zip(figures).for_each(|([measured, _], one)| measured.push(one));
        }
        predict(&path, &mut cells);
    }
    cells.iter_mut().map(|cell| cell.tell(name)).fold(0.0, f64::max)
}

/// Simulates all cells on the model.
fn predict(model: &str, cells: &mut [Cell]) {
    let sets = [
        format!("queue.scheduler={}", SCHEDULERS.join(",")),
        format!("process.job.depth={}", DEPTHS.join(",")),
        String::from("queue.queues=1"),
        String::from("run.time=200ms"),
    ];
    let mut run = vec!["sim", "run", model, "--json", "--quiet"];
    sets.iter().for_each(|set| run.extend(["--set", set.as_str()]));
    let document = json(&run);
    let rows = document["rows"].as_array().expect("rows");
    for Cell { scheduler, depth, rounds } in cells {
        let case = format!("queue.scheduler={scheduler} process.job.depth={depth} process=job");
        for (metric, [_, predicted]) in METRICS.iter().zip(rounds) {
            let row = rows.iter().find(|row| row["case"] == case && row["metric"] == *metric);
            let value = row.and_then(|row| row["value"].as_f64());
            predicted.push(value.unwrap_or_else(|| panic!("no {metric} of {case}: {rows:?}")));
        }
    }
}

impl Cell {
    /// Prints its lines; how far the worst is off, percent.
    fn tell(&mut self, name: &str) -> f64 {
        let Cell { scheduler, depth, rounds } = self;
        let mut worst = 0.0_f64;
        for (metric, pair) in METRICS.iter().zip(rounds) {
            let told = pair.each_mut().map(|all| {
                all.sort_by(f64::total_cmp);
                let median = all[all.len() / 2];
                (median, format!("{median:.1} ({:.1}..{:.1})", all[0], all[all.len() - 1]))
            });
            let [(measured, of_bench), (predicted, of_model)] = told;
            let off = (predicted / measured - 1.0) * 100.0;
            let mark = if off.abs() > BOUND { " OFF" } else { "" };
            println!(
                "{name:5} {scheduler:11} {depth:>3} {metric:7} {of_bench:>32} {of_model:>32} \
                 {off:>+6.1} %{mark}"
            );
            worst = worst.max(off.abs());
        }
        worst
    }
}

/// One run of `weir bench`: IOPS, median and 99th percentile in us.
fn bench(target: &str, depth: &str, runtime: &str, seed: &str) -> [f64; 3] {
    let job = ["--rw", "randread", "--bs", "4k", "--iodepth", depth, "--randseed", seed];
    let how = ["--runtime", runtime, "--ramp-time", "100ms", "--json", "--quiet"];
    let document = json(&[&["bench", "--target", target][..], &job, &how].concat());
    let number = |value: &Value| value.as_f64().expect("a number");
    let latency = &document["latency_ns"];
    [number(&document["iops"]), number(&latency["p50"]) / 1e3, number(&latency["p99"]) / 1e3]
}

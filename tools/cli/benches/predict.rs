//! What `weir sim fit` predicts of a disk, against jobs of `weir bench`'s engine on it in the same
//! run: a `file:` disk with direct I/O and a `ram:` disk, by random reads of 4 KiB of one thread.
//!
//! The model is fitted to some depths without a scheduler. Predicted are four depths, of which two
//! were not fitted, under schedulers that were not: IOPS, the median and the 99th percentile of the
//! latency. All jobs are measured in turn, in short rounds, as a shared machine is at one speed now
//! and at another in a moment. Exit status 1: a figure is further off than its bound.
//!
//! cargo bench -p weir-cli --bench predict [-- --rounds 20 --milliseconds 100 --mib 256
//!     --folder DIR]

#![forbid(unsafe_code)]

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, ExitCode};

use serde_json::Value;
use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::rounds::machine;
use weir_bio::{Buf, Prng};

/// How far a prediction may be off, percent; and how far it is to be.
const BOUND: f64 = 15.0;
const AIM: f64 = 8.0;

/// Depths that the model is fitted to.
const FITTED: &str = "1,4,16,64";

/// Depths that are predicted, and schedulers: none of these was fitted, of those two.
const DEPTHS: &str = "1,8,16,32";
const SCHEDULERS: &str = "mq-deadline,bfq";

struct RemovedAtEnd(PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        // A file that cannot be removed is in the build's own folder.
        let _ = std::fs::remove_file(&self.0);
    }
}

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "How well a fitted disk model predicts depths and schedulers.",
    parameters: &[
        Parameter::number("--rounds", (20, 2), "rounds of each comparison"),
        Parameter::number("--milliseconds", (100, 200), "of a measurement"),
        Parameter::number("--mib", (256, 1), "MiB of the file and of the memory"),
        Parameter::word("--folder", "DIR", "where its files lie [the folder of the build]"),
    ],
};

fn main() -> ExitCode {
    let arguments = Arguments::of_process(&USAGE);
    let folder = arguments
        .word("--folder")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let rounds: u32 = arguments.number("--rounds");
    let milliseconds: u32 = arguments.number("--milliseconds");
    let mib = u64::from(arguments.number("--mib"));
    let image = RemovedAtEnd(folder.join(format!("weir-predict-{}.img", std::process::id())));
    fill(&image.0, mib << 20);
    println!("{}", machine());
    println!("fitted at depths {FITTED} with none; {rounds} rounds of {milliseconds} ms");
    println!("target scheduler depth metric: measured, predicted, error");
    let runs = [rounds.to_string(), format!("{milliseconds}ms")];
    let file = compare("file", &format!("file:{}", image.0.display()), &runs);
    let ram = compare("ram", &format!("ram:{mib}MiB"), &runs);
    println!("the worst: file {file:.1} %, ram {ram:.1} %; bound {BOUND} %, aim {AIM} %");
    // A short run shows that the bench still runs, and nothing else.
    let is_short = rounds < 3;
    match file.max(ram) > BOUND && !is_short {
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

/// Fits, measures and predicts; how far the worst prediction is off, percent.
fn compare(name: &str, target: &str, [rounds, runtime]: &[String; 2]) -> f64 {
    let fit = ["sim", "fit", "--target", target, "--depth", FITTED, "--quiet", "--json"];
    let runs = ["--rounds", rounds, "--runtime", runtime];
    let others = ["--predict", SCHEDULERS, "--predict-depth", DEPTHS];
    let words = [&fit[..], &runs, &others].concat();
    let output = Program::new(env!("CARGO_BIN_EXE_weir")).args(&words).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "weir {words:?}: {told}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let rows = document["rows"].as_array().expect("rows");
    let predicted: Vec<&Value> = rows.iter().filter(|row| row["scheduler"].is_string()).collect();
    assert_eq!(predicted.len(), 24, "two schedulers, four depths, three figures");
    let off = |row: &&Value| {
        let figure = |name: &str| row[name].as_f64().expect("a number");
        let (scheduler, metric) = (row["scheduler"].as_str(), row["metric"].as_str());
        let off = figure("error_pct");
        println!(
            "{name:5} {:11} {:>3} {:7} {:>12.1} {:>12.1} {off:>+6.1} %{}",
            scheduler.unwrap_or_default(),
            figure("in_flight"),
            metric.unwrap_or_default(),
            figure("source"),
            figure("value"),
            if off.abs() > BOUND { " OFF" } else { "" }
        );
        off.abs()
    };
    predicted.iter().map(off).fold(0.0, f64::max)
}

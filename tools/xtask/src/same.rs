//! `cargo xtask same-variants`: comparisons of a variant with itself on disks that are written, and
//! how often they see a difference.
//!
//! Each is a `weir compare --same` of its own, with the default inference, which ends when it has
//! decided or its time is up; its document, with every run, is kept. How many are wrong is counted
//! by `tools/bench/examples/verdicts`, which has the code that judged; this program has none of it.

mod disks;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use self::disks::{Disk, Kind};
use crate::workspace::{Error, Workspace, cargo};

/// Where documents are kept, in the workspace.
const FOLDER: &str = "target/same-variants";

/// Comparisons that are resampled from the rounds of each disk: 10,000 of four disks.
const RESAMPLED: u32 = 2500;

/// Beyond its own limit a comparison has the round that it is in, and what follows the last.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many comparisons, of what length, on which disks.
#[derive(Debug, clap::Args)]
pub struct Settings {
    /// Comparisons on each disk.
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    comparisons: u32,
    /// The longest that each may take to decide, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How long each run of them measures, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500,
          value_parser = clap::value_parser!(u32).range(20..=60_000))]
    run_ms: u32,
    /// On these disks.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "file,ram,nbd,loop")]
    disks: Vec<Kind>,
    /// Seed of the first comparison; that of each other is one more. Drawn from the clock if not
    /// given.
    #[arg(long, value_name = "SEED")]
    randseed: Option<u64>,
    /// The weir that compares; if not given it is built in this profile.
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    program: Option<PathBuf>,
    /// The profile that weir is built in.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// Where the documents are kept; target/same-variants if not given.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Makes them, counts what they found, and prints how to check it further; whether every comparison
/// ended well and no more of them are wrong than chance allows.
pub fn run(workspace: &Workspace, settings: &Settings) -> Result<bool, Error> {
    let folder = match &settings.folder {
        Some(folder) => std::path::absolute(folder).map_err(|error| failed(folder, &error))?,
        None => workspace.root.join(FOLDER),
    };
    fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
    let seed = settings.randseed.unwrap_or_else(from_clock);
    let Settings { comparisons, seconds, run_ms, .. } = settings;
    println!(
        "same-variants: {comparisons} comparisons of at most {seconds} s on each disk, runs of \
         {run_ms} ms, --randseed {seed}, in {}",
        folder.display()
    );
    let program = match &settings.program {
        Some(program) => std::path::absolute(program).map_err(|error| failed(program, &error))?,
        None => build(workspace, &settings.profile)?,
    };
    let mut all_ended = true;
    let mut made = BTreeSet::new();
    for kind in settings.disks.iter().copied().collect::<BTreeSet<Kind>>() {
        let name = kind.name();
        let own = folder.join(name);
        start_afresh(&own)?;
        let disk = match Disk::of(kind, &program, &own)? {
            Ok(disk) => disk,
            Err(why) => {
                println!("same-variants: {name}: skipped: {why}");
                continue;
            }
        };
        let began = Instant::now();
        for number in 0..*comparisons {
            let seed = seed.wrapping_add(u64::from(number));
            if let Err(why) = compare(&program, &disk, settings, number, seed, &own) {
                println!("same-variants: {name}, comparison {number}, --randseed {seed}: {why}");
                all_ended = false;
            }
        }
        made.insert(name);
        let took = began.elapsed().as_secs();
        println!("same-variants: {name}: {comparisons} comparisons made ({took} s)");
    }
    if made.is_empty() {
        println!("same-variants: no disk to compare on");
        return Ok(all_ended);
    }
    let is_bounded = tell(workspace, &folder, seed)?;
    Ok(all_ended && is_bounded)
}

/// Counts the verdicts, and prints the commands that go on from there; whether no more are wrong
/// than there may be.
fn tell(workspace: &Workspace, folder: &Path, seed: u64) -> Result<bool, Error> {
    let verdicts = ["run", "--quiet", "--package", "weir-bench", "--example", "verdicts", "--"];
    let folder = folder.display().to_string();
    let count = [&verdicts[..], &["count", &folder]].concat();
    let status = Command::new(cargo()).args(&count).current_dir(&workspace.root).status();
    let status = status.map_err(|error| format!("{}: {error}", cargo()))?;
    println!("\nThe same again, and what else these rounds say:");
    let resampled = RESAMPLED.to_string();
    let seed = seed.to_string();
    for more in [
        vec!["count", &folder],
        vec!["resample", &folder, "--comparisons", &resampled, "--randseed", &seed],
        vec!["plant", &folder, "--randseed", &seed],
    ] {
        println!("  cargo {}", [&verdicts[..], &more].concat().join(" "));
    }
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => Err(format!("the verdicts were not counted: {status}")),
    }
}

/// One comparison, whose document is kept.
fn compare(
    program: &Path,
    disk: &Disk,
    settings: &Settings,
    number: u32,
    seed: u64,
    folder: &Path,
) -> Result<(), Error> {
    let [document, page, said] =
        ["json", "html", "log"].map(|kind| folder.join(format!("{number:04}.{kind}")));
    let log = OpenOptions::new().create(true).write(true).truncate(true).open(&said);
    let log = log.map_err(|error| failed(&said, &error))?;
    let mut command = Command::new(program);
    command.args(["compare", "--same", "--quiet"]).args(disk.variants());
    command.args(["--rw", "randrw", "--rwmixread", "70", "--bs", "4k", "--iodepth", "16"]);
    command.args(["--runtime", &format!("{}ms", settings.run_ms)]);
    command.args(["--ramp-time", &format!("{}ms", settings.run_ms / 5)]);
    command.args(["--max-time", &format!("{}s", settings.seconds)]);
    command.args(["--randseed", &seed.to_string()]);
    command.arg("--save").arg(&document).arg("--report").arg(&page);
    let out = log.try_clone().map_err(|error| failed(&said, &error))?;
    command.stdin(Stdio::null()).stdout(out).stderr(log);
    let limit = Duration::from_secs(u64::from(settings.seconds)) + PATIENCE;
    let code = within(&mut command, limit)?;
    let _ = fs::remove_file(&page);
    // 2 is also that of too few rounds that count, as on a machine that is busy: no verdict, and
    // so none that is wrong.
    match (code, document.exists()) {
        (Some(0 | 2), true) => Ok(()),
        _ => Err(format!("no comparison (status {code:?}); see {}", said.display())),
    }
}

/// Runs a command; its exit status, none where a signal ended it.
fn within(command: &mut Command, limit: Duration) -> Result<Option<i32>, Error> {
    let name = command.get_program().display().to_string();
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status.code());
        }
        if began.elapsed() > limit {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Err(format!("{name} had not ended after {} s and was killed", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Takes the documents of an earlier run out of the way: verdicts are counted of one run.
fn start_afresh(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let entries = fs::read_dir(folder).map_err(|error| failed(folder, &error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let kind = path.extension().and_then(|kind| kind.to_str());
        if matches!(kind, Some("json" | "log" | "html")) {
            fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
        }
    }
    Ok(())
}

/// The program that compares, as `cargo build` makes it.
fn build(workspace: &Workspace, profile: &str) -> Result<PathBuf, Error> {
    let mut command = Command::new(cargo());
    command.args([
        "build",
        "--quiet",
        "--package",
        "weir-cli",
        "--bin",
        "weir",
        "--profile",
        profile,
    ]);
    command.arg("--message-format=json").current_dir(&workspace.root).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{}: {error}", cargo()))?;
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let messages = lines.filter_map(|line| serde_json::from_slice(line).ok());
    let program = |message: serde_json::Value| message["executable"].as_str().map(PathBuf::from);
    match messages.filter_map(program).next_back() {
        Some(program) if output.status.success() => Ok(program),
        _ => Err(format!("weir was not built: {}", output.status)),
    }
}

fn from_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs()
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_killed_and_named() {
        let mut endless = Command::new("sleep");
        let why = within(endless.arg("3600"), Duration::from_millis(1)).expect_err("it sleeps");
        assert!(why.contains("sleep") && why.contains("killed"), "{why}");
        let mut fails = Command::new("sh");
        assert_eq!(within(fails.args(["-c", "exit 2"]), PATIENCE), Ok(Some(2)));
    }

    #[test]
    fn an_earlier_run_leaves_no_document_among_those_that_are_counted() {
        let folder = std::env::temp_dir().join(format!("xtask-same-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for name in ["0000.json", "0000.log", "disk.img"] {
            fs::write(folder.join(name), "").unwrap();
        }
        start_afresh(&folder).unwrap();
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, ["disk.img"]);
    }
}

//! `cargo xtask ci long`: what takes hours, one step after the other, and goes on where it ended.
//!
//! Each step that has ended is noted in `target/ci-long.txt`. A later run of the same commit leaves
//! out the steps that are noted as ok there. A tree with changes has no name by which a note could
//! be known again, so such a run starts afresh.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::{Choice, End, Stage, Step, Work, library, sanitize, seconds, summary, words};
use crate::workspace::{Error, Workspace};

/// Where the steps that have ended are noted, in the workspace.
const NOTES: &str = "target/ci-long.txt";

/// The word behind the commit in the notes of a tree with changes.
const CHANGED: &str = " with changes";

const SERVERS: [&str; 2] = ["nbdkit", "qemu-nbd"];
const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];

/// Outages of the server below, each under every scheduler: stops within and beyond the 30 s of
/// `io_timeout`, and a restart within the 30 s of `reconnect`.
const OUTAGES: [&str; 3] = ["stop=5", "stop=40", "kill=3"];

/// Outages beyond `io_timeout` and `reconnect` together, under the first two schedulers.
const LONG_OUTAGES: [&str; 2] = ["stop=100", "kill=40"];

/// An outage of nbdkit after which new writes could overtake older ones, under every scheduler.
const SLOW_OUTAGE: &str = "stop=40,slow=20";

/// Stops of the server of a FUSE file, under every scheduler.
const FILE_OUTAGES: [&str; 2] = ["stop=5", "stop=40"];

const OUTAGE_TEST: &str = "the_outage_that_the_environment_names_costs_no_more_than_it_may";

/// 16 paths with silent drivers: more than 10,000 seeds together.
const LAW_SEEDS: &str = "700";

/// Lives of each scheduler under each of its laws; the tests run 30 to 10,000.
const SCHEDULER_LIVES: &str = "100000";

/// Runs of each law of multipath; the tests run some hundred.
const MULTIPATH_SEEDS: &str = "10000";

/// Scenes of each path on real threads; the tests run 12.
const STRESS_SEEDS: &str = "100";

/// Switches of schedulers over iSCSI and over paths that fail; the tests make 60.
const SAN_SWITCHES: &str = "500";

/// Hostile clients beside the one whose latency is looked at.
const STORM_CLIENTS: &str = "10000";

/// Failures of paths under each grouping; the tests have 30 under one.
const PATH_FAILURES: &str = "200";

/// Failures of a path beside which the latency of another disk is looked at.
const PATH_WINDOWS: &str = "15";

/// Of the soak, seconds, unless the environment says otherwise.
const SOAK_SECONDS: &str = "3600";

/// Mutations of the schedulers, in two runs: their names, the words in the paths of their files.
const MUTANTS: [(&str, &str); 2] =
    [("bfq and cfq", "bfq,cfq"), ("deadline and kyber", "deadline,kyber,fair")];

/// Fuzz targets: the folders of `tools/fuzz/corpus`.
const FUZZ_TARGETS: [&str; 14] = [
    "nbd_server",
    "nbd_client",
    "iscsi_initiator",
    "iscsi_session",
    "iscsi_port",
    "scsi",
    "control",
    "config",
    "jobs",
    "rules",
    "replays",
    "schedulers",
    "targets",
    "addresses",
];

/// The whole-program tests, and the soak.
const WHOLE: &str = "test --package weir-cli --tests --no-fail-fast -- --ignored";
const SOAK: &str = "test --workspace --release --test soak -- --ignored --nocapture";

/// Of lives of the core from seeds, seconds, unless the environment says otherwise; and the first
/// seed, behind those that the tests live.
const LIVES_SECONDS: &str = "3600";
const LIVES_SEED: &str = "1000000";

/// Comparisons of a variant with itself on each disk, and how long each may take, seconds, unless
/// the environment says otherwise.
const SAME_COMPARISONS: &str = "50";
const SAME_SECONDS: &str = "30";

/// Of each fuzz target, seconds, unless the environment says otherwise; and of the first, which
/// reads what any client sends.
const FUZZ_SECONDS: &str = "600";
const FUZZ_SECONDS_FIRST: &str = "3600";

/// Every crate that a program of another project may use, packed and built from what was packed.
const PACKAGES: &str = "package --quiet --workspace --exclude weir-bench --exclude weir-cli \
    --exclude weir-fuzz --exclude weir-load --exclude weir-report --exclude weir-sim \
    --exclude weir-xtask";

/// Flags by which libFuzzer learns the code an input reaches and the values it compares; stable
/// Rust knows them all.
const FUZZ_FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

pub(super) fn steps(workspace: &Workspace) -> Vec<Step> {
    let laws = Step::tests("laws, silent drivers", "test --workspace --test laws -- silent");
    let lives = Step::tests("laws, schedulers", "test --package weir-sched --test laws");
    let shares = "test --package weir-sched --test shares -- --nocapture --test-threads 1";
    let multipath = Step::tests("laws, multipath", "test --workspace --test multipath_laws");
    let scsi = Step::tests("laws, scsi", "test --package weir-block --test scsi_sim_laws");
    let stress = Step::tests("stress", "test --workspace --test stress");
    let mut steps = vec![
        laws.with("LAW_SEEDS", LAW_SEEDS.to_owned()),
        lives.with("LAWS_SEQUENCES", SCHEDULER_LIVES.to_owned()),
        Step::tests("shares", shares).with("WEIR_SHARES", "all".to_owned()),
        multipath.with("MULTIPATH_SEEDS", MULTIPATH_SEEDS.to_owned()),
        scsi.with("SCSI_SEEDS", MULTIPATH_SEEDS.to_owned()),
        stress.with("STRESS_SEEDS", STRESS_SEEDS.to_owned()),
    ];
    for server in SERVERS {
        let with = |outages: &[&str], schedulers: &[&str]| -> Vec<Step> {
            let each = |outage: &&str| {
                let cases = schedulers.iter().map(|by| outage_step(server, by, outage));
                cases.collect::<Vec<_>>()
            };
            outages.iter().flat_map(each).collect()
        };
        steps.extend(with(&OUTAGES, &SCHEDULERS));
        steps.extend(with(&LONG_OUTAGES, &SCHEDULERS[..2]));
    }
    steps.extend(SCHEDULERS.iter().map(|by| outage_step(SERVERS[0], by, SLOW_OUTAGE)));
    for outage in FILE_OUTAGES {
        steps.extend(SCHEDULERS.iter().map(|by| outage_step("fuse", by, outage)));
    }
    steps.extend(MUTANTS.map(|(name, words)| {
        let line = format!("run --package weir-xtask -- mutants --of {words}");
        Step::cargo(&format!("mutants of {name}"), &line)
    }));
    steps.push(Step::cargo("packages", PACKAGES));
    steps.push(library::oldest_rust(workspace));
    steps.push(library::compatibility(&workspace.root));
    steps.extend(library::shared());
    steps.push(lives_step());
    steps.push(same_step());
    steps.push(Step::cargo("planted bugs", "run --package weir-xtask -- planted"));
    steps.extend(FUZZ_TARGETS.map(|target| fuzz_step(&workspace.root, target)));
    steps.push(sanitize::long());
    steps.push(san_step());
    steps.push(storm_step());
    steps.push(paths_step());
    steps.push(paths_latency_step());
    steps.push(soak_step());
    steps.push(without_uring("tests", "test --workspace --no-fail-fast"));
    steps.push(without_uring("whole programs", WHOLE));
    steps.push(without_uring("soak", SOAK).with("WEIR_SOAK", soak_seconds()));
    steps.extend(["adaptive", "always"].map(polling_step));
    steps
}

/// Lives of all schedulers, mappers and faults, with the assertions of a build for tests.
fn lives_step() -> Step {
    let seconds = std::env::var("WEIR_LIVES_SECONDS").unwrap_or_else(|_| LIVES_SECONDS.to_owned());
    let line = format!("sim fuzz --randseed {LIVES_SEED} --seconds {seconds}");
    Step::cargo("lives", &format!("run --bin weir -- {line}"))
}

/// As it is released, unless the environment names another profile: what is compared is then more
/// of the disk and less of weir.
fn same_step() -> Step {
    let [comparisons, seconds, profile] = [
        ("WEIR_SAME_COMPARISONS", SAME_COMPARISONS),
        ("WEIR_SAME_SECONDS", SAME_SECONDS),
        ("WEIR_SAME_PROFILE", "release"),
    ]
    .map(|(name, usual)| std::env::var(name).unwrap_or_else(|_| usual.to_owned()));
    let line = format!("--comparisons {comparisons} --seconds {seconds} --profile {profile}");
    Step::cargo("same-variants", &format!("run --package weir-xtask -- same-variants {line}"))
}

/// One fuzz target, led by libFuzzer. The inputs it finds stay in `target/fuzz-corpus`, from where
/// the next run goes on.
fn fuzz_step(root: &Path, target: &str) -> Step {
    let seconds = std::env::var("WEIR_FUZZ_SECONDS").unwrap_or_else(|_| {
        if target == FUZZ_TARGETS[0] { FUZZ_SECONDS_FIRST } else { FUZZ_SECONDS }.to_owned()
    });
    let [learnt, found] = ["fuzz-corpus", "fuzz-found"].map(|name| root.join("target").join(name));
    let learnt = learnt.join(target);
    let mut line = words(
        "run --package weir-fuzz --release --target x86_64-unknown-linux-gnu \
         --target-dir target/fuzz -- -max_len=4096 -timeout=60 -rss_limit_mb=2048 \
         -print_final_stats=1",
    );
    line.push(format!("-max_total_time={seconds}"));
    line.push(format!("-artifact_prefix={}/{target}-", found.display()));
    line.push(learnt.display().to_string());
    line.push(format!("tools/fuzz/corpus/{target}"));
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let work = Work::Guided { line, environment: Vec::new(), folders: vec![learnt, found] };
    Step { name: format!("fuzz {target}"), work }
        .with("RUSTFLAGS", format!("{flags} {FUZZ_FLAGS}").trim().to_owned())
        .with("WEIR_FUZZ", target.to_owned())
        .with("CARGO_PROFILE_RELEASE_LTO", "off".to_owned())
        .with("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16".to_owned())
        .with("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true".to_owned())
        .with("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true".to_owned())
}

/// All schedulers over a storage network that fails.
fn san_step() -> Step {
    let line = "test --workspace --test san_switches -- --ignored --nocapture";
    Step::tests("switches over a SAN", line)
        .with("WEIR_SAN_SWITCHES", SAN_SWITCHES.to_owned())
        .with("WEIR_TEST_PROGRAMS", "installed".to_owned())
}

/// As it is released: latency is judged there.
fn storm_step() -> Step {
    let test = "a_storm_at_most_doubles_the_latency_of_another_client";
    let line = "test --workspace --release --test hostile_clients -- --ignored --nocapture --exact";
    Step::tests("hostile clients", &format!("{line} {test}"))
        .with("WEIR_STORM", STORM_CLIENTS.to_owned())
        .with("WEIR_TEST_PROGRAMS", "installed".to_owned())
}

fn paths_step() -> Step {
    let line = "test --workspace --test paths_at_random -- --ignored --nocapture";
    Step::tests("paths at random", line)
        .with("WEIR_PATHS", PATH_FAILURES.to_owned())
        .with("WEIR_TEST_PROGRAMS", "installed".to_owned())
}

/// As it is released: latency is judged there.
fn paths_latency_step() -> Step {
    let line = "test --workspace --release --test paths_latency -- --ignored --nocapture";
    Step::tests("paths, latency beside", line)
        .with("WEIR_PATHS_WINDOWS", PATH_WINDOWS.to_owned())
        .with("WEIR_TEST_PROGRAMS", "installed".to_owned())
}

/// As it is released: memory is judged there.
fn soak_step() -> Step {
    Step::tests("soak", SOAK)
        .with("WEIR_SOAK", soak_seconds())
        .with("WEIR_TEST_PROGRAMS", "installed".to_owned())
}

fn soak_seconds() -> String {
    std::env::var("WEIR_SOAK").unwrap_or_else(|_| SOAK_SECONDS.to_owned())
}

/// Tests to which the kernel refuses io_uring: files are read and written by threads.
fn without_uring(name: &str, line: &str) -> Step {
    let line = format!("run --package weir-xtask -- without-uring cargo {line}");
    Step::tests(&format!("without io_uring, {name}"), &line)
        .with("WEIR_TEST_PROGRAMS", "installed".to_owned())
}

/// The whole-program tests with daemons whose reactors poll.
fn polling_step(mode: &str) -> Step {
    Step::tests(&format!("polling, {mode}"), WHOLE)
        .with("WEIR_TEST_POLL", mode.to_owned())
        .with("WEIR_TEST_PROGRAMS", "installed".to_owned())
}

fn outage_step(server: &str, scheduler: &str, outage: &str) -> Step {
    let case = format!("{server}:{scheduler}:{outage}");
    let line = format!("test --workspace --test outages -- --ignored --exact {OUTAGE_TEST}");
    Step::tests(&format!("outage {case}"), &line)
        .with("WEIR_OUTAGE", case)
        .with("WEIR_TEST_PROGRAMS", "installed".to_owned())
}

/// Runs the chosen steps that are not noted as ok; whether none failed.
pub(super) fn run(workspace: &Workspace, choice: &Choice) -> Result<bool, Error> {
    let start = Instant::now();
    let steps: Vec<Step> =
        steps(workspace).into_iter().filter(|step| choice.takes(&step.name)).collect();
    if steps.is_empty() {
        println!("xtask ci: no step of stage long has a name with {:?}", choice.only);
        return Ok(false);
    }
    let tree = tree(&workspace.root)?;
    let path = workspace.root.join(NOTES);
    let mut notes = Notes::of(&fs::read_to_string(&path).unwrap_or_default(), &tree);
    if choice.again {
        notes.ok.retain(|note| !choice.takes(name(note)));
    } else if let Some(why) = &notes.afresh {
        println!("xtask ci: stage long starts afresh: {why}");
    }
    notes.write(&path, &tree)?;
    let mut ends = Vec::new();
    for step in steps {
        if let Some(note) = notes.ok.iter().find(|note| name(note) == step.name) {
            println!("xtask ci: {note}, noted before");
            ends.push(End::Ok);
            continue;
        }
        let start = Instant::now();
        let end = step.run(workspace)?;
        let note = format!("{} {end} ({})", step.name, seconds(start.elapsed()));
        println!("xtask ci: {note}");
        append(&path, &note)?;
        ends.push(end);
    }
    println!("xtask ci: {}", summary(Stage::Long, &ends, start.elapsed()));
    Ok(!ends.iter().any(|end| matches!(end, End::Failed(_))))
}

/// The steps that are noted as ok for this tree.
#[derive(Debug, PartialEq, Eq)]
struct Notes {
    ok: Vec<String>,
    /// Why earlier notes do not count.
    afresh: Option<String>,
}

impl Notes {
    fn of(text: &str, tree: &str) -> Notes {
        let mut lines = text.lines();
        let noted = lines.next();
        let afresh = match noted {
            _ if tree.ends_with(CHANGED) => Some("the tree has changes".to_owned()),
            None => Some(format!("{NOTES} has no notes")),
            Some(noted) if noted != tree => Some(format!("the notes are of {noted}")),
            Some(_) => None,
        };
        let mut ok = Vec::new();
        if afresh.is_none() {
            ok.extend(lines.filter(|line| !name(line).is_empty()).map(str::to_owned));
        }
        Notes { ok, afresh }
    }

    fn write(&self, path: &Path, tree: &str) -> Result<(), Error> {
        let lines = [tree].into_iter().chain(self.ok.iter().map(String::as_str));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let written = fs::create_dir_all(path.parent().unwrap_or(path));
        written.and_then(|()| fs::write(path, text)).map_err(|error| failed(path, &error))
    }
}

/// The name of the step in a note that says ok, or else nothing.
fn name(note: &str) -> &str {
    note.rsplit_once(" ok (").map_or("", |(name, _)| name)
}

fn append(path: &Path, note: &str) -> Result<(), Error> {
    let file = OpenOptions::new().append(true).open(path);
    let written = file.and_then(|mut file| writeln!(file, "{note}"));
    written.map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    format!("{}: {error}", path.display())
}

/// The commit that is checked out, and whether the tree is another.
fn tree(root: &Path) -> Result<String, Error> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output();
        let output = output.map_err(|error| format!("git: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let line = arguments.join(" ");
        if output.status.success() { Ok(said) } else { Err(format!("git {line} failed")) }
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = if git(&["status", "--porcelain"])?.is_empty() { "" } else { CHANGED };
    Ok(format!("commit {commit}{changed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_name_of_its_own() {
        let workspace = Workspace { root: "/w".into(), packages: Vec::new() };
        let mut names: Vec<String> = steps(&workspace).into_iter().map(|step| step.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (85, 85));
        assert!(names.contains(&"outage qemu-nbd:bfq:stop=40".to_owned()), "{names:?}");
        assert!(!names.contains(&"outage nbdkit:bfq:stop=100".to_owned()), "{names:?}");
    }

    #[test]
    fn every_corpus_of_a_fuzz_target_has_a_step() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        let folders = fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap());
        let folders = folders.filter(|entry| entry.file_type().unwrap().is_dir());
        let mut found: Vec<_> = folders.map(|entry| entry.file_name()).collect();
        let mut steps = FUZZ_TARGETS.map(std::ffi::OsString::from).to_vec();
        found.sort();
        steps.sort();
        assert_eq!(found, steps);
        let step = fuzz_step(Path::new("/w"), "jobs");
        let Work::Guided { line, folders, .. } = step.work else { panic!("no fuzzer") };
        assert!(line.contains(&"/w/target/fuzz-corpus/jobs".to_owned()), "{line:?}");
        assert_eq!(folders[1], Path::new("/w/target/fuzz-found"));
    }

    #[test]
    fn only_what_ended_well_on_this_commit_is_left_out() {
        let text = "commit a\nstress ok (12 s)\nlaws FAILED, exit status: 101 (3 s)\nlaws";
        let notes = Notes::of(text, "commit a");
        assert_eq!(notes, Notes { ok: vec!["stress ok (12 s)".to_owned()], afresh: None });
        assert_eq!(name(&notes.ok[0]), "stress");
        for (text, tree, why) in [
            (text, "commit b", "the notes are of commit a"),
            (text, "commit a with changes", "the tree has changes"),
            ("commit a with changes\nstress ok (1 s)", "commit a", "of commit a with changes"),
            ("", "commit a", "no notes"),
        ] {
            let notes = Notes::of(text, tree);
            assert!(notes.afresh.is_some_and(|said| said.contains(why)), "{tree}: {why}");
            assert!(notes.ok.is_empty(), "{tree}: {:?}", notes.ok);
        }
    }

    #[test]
    fn notes_are_read_as_they_were_written() {
        let folder = std::env::temp_dir().join(format!("xtask-notes-{}", std::process::id()));
        let path = folder.join("ci-long.txt");
        let notes = Notes { ok: vec!["stress ok (1 s)".to_owned()], afresh: None };
        notes.write(&path, "commit a").unwrap();
        append(&path, "laws ok (2 s)").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(Notes::of(&text, "commit a").ok, ["stress ok (1 s)", "laws ok (2 s)"]);
    }
}

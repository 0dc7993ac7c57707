//! `cargo xtask ci STAGE`: what continuous integration runs, runnable on any machine.
//!
//! A stage is a list of steps. A step that fails does not stop the ones after it: one run shows
//! everything that is wrong. Each step ends with one line `xtask ci: NAME ok (12 s)`, and
//! `.ci/run` collects these lines.

mod library;
mod long;
mod sanitize;

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::tidy;
use crate::workspace::{Error, Package, Workspace, cargo};

/// The stages of continuous integration, from quick to slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// Formatting, house limits, lints, documentation, build.
    Smoke,
    /// Unit, law and documentation tests, then the whole program against real clients.
    Test,
    /// The small protocols between threads under every interleaving that loom finds.
    Loom,
    /// Threads under the thread sanitizer, `unsafe` under Miri where that is installed.
    Sanitize,
    /// Every bench, run small.
    Bench,
    /// Law suites with many seeds, an hour of lives, planted bugs, mutations of the schedulers,
    /// fuzz targets, outages of the server below, a soak; goes on where it ended.
    Long,
}

/// The steps of stage `long` to run.
#[derive(Debug, Default, clap::Args)]
pub struct Choice {
    /// Stage long: run also what ended well before.
    #[arg(long)]
    again: bool,
    /// Stage long: run the steps with this text in their name.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

impl Choice {
    fn takes(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
    }
}

/// Preemptions per execution that loom explores, unless the environment says otherwise.
/// Loom's own guide recommends 2 or 3; 3 finds more and still ends within minutes.
const LOOM_PREEMPTIONS_MAX: &str = "3";

/// For mutations of what has changed, seconds: enough for the lines of a usual commit.
const MUTANTS_SECONDS: u64 = 120;

/// Of the bugs that lives of the core have to find, two; stage long plants all.
const PLANTED: &str = "fua-not-sent,domain-starves";

/// Benches that are a command and no bench target: what the command is told.
const BENCH_COMMANDS: &[&str] = &[
    "bench core --runtime 500ms",
    "bench core --runtime 500ms --threads 2",
    "bench core --runtime 500ms --queue-mode sq",
    "bench --target ram:64MiB --runtime 500ms --quiet",
];

/// One thing to run.
struct Step {
    name: String,
    work: Work,
}

enum Work {
    /// Cargo with arguments and additions to the environment.
    Cargo(Vec<String>, Vec<(&'static str, String)>),
    /// The same for tests, of which at least one has to have run.
    Tests(Vec<String>, Vec<(&'static str, String)>),
    /// Cargo with arguments, and words that it has to print.
    Says(Vec<String>, String),
    /// Cargo for a fuzzer, which keeps what it learns and finds in folders that are made first.
    Guided { line: Vec<String>, environment: Vec<(&'static str, String)>, folders: Vec<PathBuf> },
    /// The house limits, judged by this program itself.
    Tidy,
    /// Nothing to run, and why: a stage that finds none of its work has failed, for it would go
    /// on finding none however broken the work is.
    Nothing(String),
    /// A program or a part of the toolchain that is no part of this repository's needs is missing:
    /// which, and how to install it.
    Skipped(String),
}

/// How a step ended.
#[derive(Debug)]
enum End {
    Ok,
    Failed(String),
    Skipped(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Ok => f.write_str("ok"),
            End::Failed(how) => write!(f, "FAILED, {how}"),
            End::Skipped(why) => write!(f, "skipped: {why}"),
        }
    }
}

/// Runs the steps of a stage and answers whether none failed.
pub fn run(workspace: &Workspace, stage: Stage, choice: &Choice) -> Result<bool, Error> {
    if stage == Stage::Long {
        return long::run(workspace, choice);
    }
    if choice.again || choice.only.is_some() {
        return Err("--again and --only are for stage long".to_owned());
    }
    let start = Instant::now();
    let mut ends = Vec::new();
    for step in steps(workspace, stage) {
        let start = Instant::now();
        let end = step.run(workspace)?;
        println!("xtask ci: {} {end} ({})", step.name, seconds(start.elapsed()));
        ends.push(end);
    }
    println!("xtask ci: {}", summary(stage, &ends, start.elapsed()));
    Ok(!ends.iter().any(|end| matches!(end, End::Failed(_))))
}

fn summary(stage: Stage, ends: &[End], took: Duration) -> String {
    let count = |is: fn(&End) -> bool| ends.iter().filter(|end| is(end)).count();
    let ok = count(|end| matches!(end, End::Ok));
    let failed = count(|end| matches!(end, End::Failed(_)));
    let skipped = match count(|end| matches!(end, End::Skipped(_))) {
        0 => String::new(),
        some => format!(", {some} skipped"),
    };
    let name = stage.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    let took = seconds(took);
    format!("stage {name}: {ok} ok, {failed} failed{skipped} ({took})")
}

fn seconds(took: Duration) -> String {
    format!("{} s", took.as_secs_f64().round())
}

fn steps(workspace: &Workspace, stage: Stage) -> Vec<Step> {
    match stage {
        Stage::Smoke => smoke(workspace),
        Stage::Test => test(workspace),
        Stage::Loom => loom(workspace),
        Stage::Sanitize => sanitize::steps(workspace),
        Stage::Bench => bench(workspace),
        Stage::Long => long::steps(workspace),
    }
}

fn smoke(workspace: &Workspace) -> Vec<Step> {
    let mut steps = vec![
        Step::cargo("fmt", "fmt --all --check"),
        Step { name: "tidy".to_owned(), work: Work::Tidy },
        Step::cargo("clippy", "clippy --workspace --all-targets -- -D warnings"),
        // Libraries only: the library and the command share the name `weir`, and so would the
        // folder of their pages.
        Step::cargo("rustdoc", "doc --workspace --no-deps --lib")
            .with("RUSTDOCFLAGS", "-D warnings".to_owned()),
        Step::cargo("build", "build --workspace --all-targets"),
        Step::cargo("build without top", "check --package weir-cli --bins --no-default-features"),
    ];
    steps.extend(library::features(workspace));
    steps
}

fn test(workspace: &Workspace) -> Vec<Step> {
    // Whole-program tests are test targets of weir-cli. Those that need programs from outside
    // (fio, qemu, nbdkit) are marked `ignore`, so that `cargo test` alone needs only Rust; they
    // are selected by name, because selecting the package would change the features of its
    // dependencies and build them again.
    let mut programs = Vec::new();
    for name in workspace.member("weir-cli").into_iter().flat_map(|cli| cli.targets_of("test")) {
        programs.extend(["--test", name]);
    }
    let programs = if programs.is_empty() {
        Step::nothing("whole-program", "weir-cli has no test target")
    } else {
        let selected = format!("test --workspace --no-fail-fast {}", programs.join(" "));
        Step::tests("whole-program", &format!("{selected} -- --ignored"))
    };
    // Alone, `cargo test` leaves out what it lacks a program for. Here all are installed, and a
    // test that cannot start one fails.
    let steps = [Step::tests("test", "test --workspace --no-fail-fast"), programs];
    let steps = steps.map(|step| step.with("WEIR_TEST_PROGRAMS", "installed".to_owned()));
    let planted = format!("run --package weir-xtask -- planted --of {PLANTED}");
    let planted = Step::cargo("planted bugs", &planted);
    let alike = "run --package weir-xtask -- alike";
    let alike = Step::cargo("debug and release simulate alike", alike);
    steps.into_iter().chain([planted, alike, changed_decisions(&workspace.root)]).collect()
}

/// Mutations of those decisions of the schedulers that the last commit changed, or the tree since.
fn changed_decisions(root: &Path) -> Step {
    let name = "mutants of what has changed";
    let git = Command::new("git").args(["cat-file", "-e", "HEAD~1"]).current_dir(root).output();
    if !git.is_ok_and(|output| output.status.success()) {
        return Step::skipped(name, "git knows no commit before this one");
    }
    let line = "run --package weir-xtask -- mutants --since HEAD~1 --sample 0";
    Step::cargo(name, &format!("{line} --seconds {MUTANTS_SECONDS}"))
}

fn loom(workspace: &Workspace) -> Vec<Step> {
    let is_model = |package: &&Package| package.targets_of("test").any(|t| t.starts_with("loom"));
    let preemptions =
        std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| LOOM_PREEMPTIONS_MAX.to_owned());
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let flags = format!("{flags} --cfg loom").trim().to_owned();
    let models = workspace.members().filter(is_model).map(|package| {
        let name = &package.name;
        // A target folder of its own: other flags would otherwise build the workspace anew at every
        // change between stages. The dependencies that take long to build and make no model faster
        // are left out.
        let line = format!("test --package {name} --release --target-dir target/loom --test loom*");
        Step::tests(&format!("loom {name}"), &line)
            .with("RUSTFLAGS", flags.clone())
            .with("LOOM_MAX_PREEMPTIONS", preemptions.clone())
            .with("CARGO_PROFILE_RELEASE_LTO", "off".to_owned())
            .with("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16".to_owned())
            .with("CARGO_PROFILE_RELEASE_DEBUG", "false".to_owned())
    });
    let models: Vec<Step> = models.collect();
    if models.is_empty() {
        return vec![Step::nothing("loom", "no crate has a test target named loom*")];
    }
    models
}

fn bench(workspace: &Workspace) -> Vec<Step> {
    let mut found = Vec::new();
    for package in workspace.members() {
        for target in package.targets_of("bench") {
            // Selecting the package would change the features of what it depends on.
            let line = format!("bench --workspace --profile dev --bench {target}");
            found.push(Step::cargo(&format!("bench {target}"), &line));
            let help = format!("{line} -- --help");
            let help = Work::Says(words(&help), format!("cargo bench -p {}", package.name));
            found.push(Step { name: format!("help of bench {target}"), work: help });
        }
    }
    if found.is_empty() {
        found.push(Step::nothing("bench", "no crate has a bench target"));
    }
    for command in BENCH_COMMANDS {
        found.push(Step::cargo(command, &format!("run --bin weir -- {command}")));
    }
    // Small, and as the tests were built: it shows that a bench still runs. Figures are taken by
    // hand on a quiet machine, and a build for them takes minutes.
    found.into_iter().map(|step| step.with("WEIR_BENCH", "small".to_owned())).collect()
}

impl Step {
    fn cargo(name: &str, line: &str) -> Step {
        Step { name: name.to_owned(), work: Work::Cargo(words(line), Vec::new()) }
    }

    fn tests(name: &str, line: &str) -> Step {
        Step { name: name.to_owned(), work: Work::Tests(words(line), Vec::new()) }
    }

    fn nothing(name: &str, why: &str) -> Step {
        Step { name: name.to_owned(), work: Work::Nothing(why.to_owned()) }
    }

    fn skipped(name: &str, why: &str) -> Step {
        Step { name: name.to_owned(), work: Work::Skipped(why.to_owned()) }
    }

    fn with(mut self, key: &'static str, value: String) -> Step {
        if let Work::Cargo(_, environment)
        | Work::Tests(_, environment)
        | Work::Guided { environment, .. } = &mut self.work
        {
            environment.push((key, value));
        }
        self
    }

    fn run(&self, workspace: &Workspace) -> Result<End, Error> {
        let (arguments, environment) = match &self.work {
            Work::Nothing(why) => return Ok(End::Failed(why.clone())),
            Work::Skipped(why) => return Ok(End::Skipped(why.clone())),
            Work::Tidy if tidy::run(workspace)? => return Ok(End::Ok),
            Work::Tidy => return Ok(End::Failed("findings above".to_owned())),
            Work::Cargo(arguments, environment) | Work::Tests(arguments, environment) => {
                (arguments, environment)
            }
            Work::Says(line, wanted) => return says(workspace, line, wanted),
            Work::Guided { line, environment, folders } => {
                for folder in folders {
                    let made = std::fs::create_dir_all(folder);
                    made.map_err(|error| format!("{}: {error}", folder.display()))?;
                }
                (line, environment)
            }
        };
        eprintln!("xtask: cargo {}", arguments.join(" "));
        let mut command = Command::new(cargo());
        command.args(arguments).current_dir(&workspace.root);
        command.envs(environment.iter().map(|(key, value)| (key, value)));
        let failed = |error| format!("{}: {error}", cargo());
        let (status, tests) = match &self.work {
            Work::Tests(..) => {
                let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
                let output = child.stdout.take().expect("piped");
                let tests = pass_on(BufReader::new(output)).map_err(failed)?;
                (child.wait().map_err(failed)?, Some(tests))
            }
            _ => (command.status().map_err(failed)?, None),
        };
        Ok(match tests {
            _ if !status.success() => End::Failed(status.to_string()),
            Some(0) => End::Failed("no test ran".to_owned()),
            _ => End::Ok,
        })
    }
}

/// Runs cargo, and fails unless it prints these words.
fn says(workspace: &Workspace, line: &[String], wanted: &str) -> Result<End, Error> {
    eprintln!("xtask: cargo {}", line.join(" "));
    let mut command = Command::new(cargo());
    command.args(line).current_dir(&workspace.root).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{}: {error}", cargo()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    Ok(match said.contains(wanted) {
        _ if !output.status.success() => End::Failed(output.status.to_string()),
        false => End::Failed(format!("it does not say \"{wanted}\"")),
        true => End::Ok,
    })
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Prints what tests say, line by line, and counts those that passed.
fn pass_on(said: impl BufRead) -> std::io::Result<u64> {
    let mut tests = 0;
    for line in said.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        let Some(counts) = line.strip_prefix("test result: ") else { continue };
        let passed = counts.split_once(" passed").and_then(|(before, _)| before.rsplit(' ').next());
        tests += passed.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(tests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Target;

    fn workspace(packages: &[(&str, &str, &str)]) -> Workspace {
        let packages = packages.iter().map(|&(package, kind, target)| Package {
            name: package.to_owned(),
            member: true,
            targets: vec![Target {
                name: target.to_owned(),
                kind: kind.to_owned(),
                root: "a.rs".into(),
            }],
            ..Package::default()
        });
        Workspace { root: "/w".into(), packages: packages.collect() }
    }

    fn lines(workspace: &Workspace, stage: Stage) -> Vec<String> {
        let line = |step: Step| match step.work {
            Work::Cargo(line, _)
            | Work::Tests(line, _)
            | Work::Says(line, _)
            | Work::Guided { line, .. } => line.join(" "),
            Work::Tidy => "tidy".to_owned(),
            Work::Nothing(why) => format!("nothing: {why}"),
            Work::Skipped(why) => format!("skipped: {why}"),
        };
        steps(workspace, stage).into_iter().map(line).collect()
    }

    #[test]
    fn smoke_denies_every_warning() {
        let found = lines(&workspace(&[]), Stage::Smoke);
        assert!(found.contains(&"clippy --workspace --all-targets -- -D warnings".to_owned()));
        let steps = smoke(&workspace(&[]));
        let rustdoc = steps.iter().find(|step| step.name == "rustdoc").unwrap();
        let Work::Cargo(_, environment) = &rustdoc.work else { panic!("rustdoc is not cargo") };
        assert_eq!(environment, &[("RUSTDOCFLAGS", "-D warnings".to_owned())]);
    }

    #[test]
    fn whole_program_tests_are_those_of_the_command_and_run_though_ignored() {
        let one = workspace(&[("weir-cli", "test", "nbd_clients"), ("weir", "test", "laws")]);
        let found = lines(&one, Stage::Test);
        let ignored = "test --workspace --no-fail-fast --test nbd_clients -- --ignored";
        assert_eq!(found[..2], ["test --workspace --no-fail-fast", ignored]);
        assert!(found[2].starts_with("run --package weir-xtask -- planted --of "), "{found:?}");
        let last =
            ["run --package weir-xtask -- alike", "skipped: git knows no commit before this one"];
        assert_eq!(found[3..], last);
    }

    #[test]
    fn a_program_that_tests_need_may_not_be_missing() {
        for step in steps(&workspace(&[("weir-cli", "test", "nbd_clients")]), Stage::Test)
            .into_iter()
            .take(2)
        {
            let Work::Tests(_, environment) = &step.work else { panic!("{} runs none", step.name) };
            assert_eq!(environment, &[("WEIR_TEST_PROGRAMS", "installed".to_owned())]);
        }
    }

    #[test]
    fn loom_runs_each_crate_that_has_models() {
        let one = workspace(&[("weir-ring", "test", "loom_tags"), ("weir-bio", "test", "limits")]);
        let found = lines(&one, Stage::Loom);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("test --package weir-ring --release"), "{found:?}");
    }

    #[test]
    fn a_stage_that_finds_none_of_its_work_fails() {
        let nothing = workspace(&[("weir-bio", "lib", "weir_bio")]);
        for stage in [Stage::Test, Stage::Loom, Stage::Bench] {
            let found = steps(&nothing, stage);
            let missing = found.iter().find(|step| matches!(step.work, Work::Nothing(_)));
            let end = missing.expect("a step without work").run(&nothing).unwrap();
            assert!(end.to_string().starts_with("FAILED, "), "{stage:?}: {end}");
        }
    }

    #[test]
    fn tests_that_ran_are_counted_in_what_they_say() {
        let said = b"running 2 tests\ntest result: ok. 2 passed; 0 failed; 1 ignored\n\xff\n\
            test result: FAILED. 11 passed; 1 failed; 0 ignored\n";
        assert_eq!(pass_on(&said[..]).unwrap(), 13);
        assert_eq!(pass_on(&b"test result: ok. 0 passed; 0 failed\n"[..]).unwrap(), 0);
    }

    #[test]
    fn every_bench_is_run() {
        let found = lines(&workspace(&[("weir-queue", "bench", "plug")]), Stage::Bench);
        let line = "bench --workspace --profile dev --bench plug";
        assert_eq!(found[..2], [line.to_owned(), format!("{line} -- --help")]);
        assert_eq!(found.len(), 2 + BENCH_COMMANDS.len());
    }

    #[test]
    fn the_summary_counts_how_steps_ended() {
        let ends = [End::Ok, End::Failed("exit status: 1".into()), End::Ok];
        let line = summary(Stage::Smoke, &ends, Duration::from_millis(12_600));
        assert_eq!(line, "stage smoke: 2 ok, 1 failed (13 s)");
        assert_eq!(ends[1].to_string(), "FAILED, exit status: 1");
        let ends = [End::Ok, End::Skipped("no miri".into())];
        let line = summary(Stage::Sanitize, &ends, Duration::from_secs(3));
        assert_eq!(line, "stage sanitize: 1 ok, 0 failed, 1 skipped (3 s)");
        let end = Step::skipped("miri", "no miri").run(&workspace(&[])).unwrap();
        assert_eq!(end.to_string(), "skipped: no miri");
    }
}

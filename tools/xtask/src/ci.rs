//! `cargo xtask ci STAGE`: what continuous integration runs, runnable on any machine.
//!
//! A stage is a list of steps. A step that fails does not stop the ones after it: one run shows
//! everything that is wrong. Each step ends with one line `xtask ci: NAME ok (12 s)`, and
//! `.ci/run` collects these lines.

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::tidy;
use crate::workspace::{Error, Package, Workspace, cargo};

/// What continuous integration runs, from quick to slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// Formatting, house limits, lints, documentation, build.
    Smoke,
    /// Unit, law and documentation tests, then the whole program against real clients.
    Test,
    /// The small protocols between threads under every interleaving that loom finds.
    Loom,
    /// Every bench, run small.
    Bench,
}

/// Preemptions per execution that loom explores, unless the environment says otherwise.
/// Loom's own guide recommends 2 or 3; 3 finds more and still ends within minutes.
const LOOM_PREEMPTIONS_MAX: &str = "3";

/// Benches that are a command and no bench target: the package and what cargo is told after
/// `run --release --package PACKAGE`. A row whose package does not exist is left out.
const BENCH_COMMANDS: &[(&str, &[&str])] = &[
    ("weir-cli", &["--bin", "weir", "--", "bench", "core", "--runtime", "500ms"]),
    ("weir-cli", &["--bin", "weir", "--", "bench", "core", "--runtime", "500ms", "--threads", "2"]),
    (
        "weir-cli",
        &["--bin", "weir", "--", "bench", "core", "--runtime", "500ms", "--queue-mode", "sq"],
    ),
    (
        "weir-cli",
        &["--bin", "weir", "--", "bench", "--target", "ram:64MiB", "--runtime", "500ms", "--quiet"],
    ),
];

/// One thing to run.
struct Step {
    name: String,
    work: Work,
}

enum Work {
    /// Cargo with arguments and additions to the environment.
    Cargo(Vec<String>, Vec<(&'static str, String)>),
    /// The house limits, judged by this program itself.
    Tidy,
    /// Nothing to run, and why.
    Nothing(String),
}

/// How a step ended.
enum End {
    Ok,
    Skipped(String),
    Failed(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Ok => f.write_str("ok"),
            End::Skipped(why) => write!(f, "skipped, {why}"),
            End::Failed(how) => write!(f, "FAILED, {how}"),
        }
    }
}

/// Runs every step of a stage and answers whether none failed.
pub fn run(workspace: &Workspace, stage: Stage) -> Result<bool, Error> {
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
    let skipped = count(|end| matches!(end, End::Skipped(_)));
    let failed = count(|end| matches!(end, End::Failed(_)));
    let name = stage.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    let took = seconds(took);
    format!("stage {name}: {ok} ok, {skipped} skipped, {failed} failed ({took})")
}

fn seconds(took: Duration) -> String {
    format!("{} s", took.as_secs_f64().round())
}

fn steps(workspace: &Workspace, stage: Stage) -> Vec<Step> {
    match stage {
        Stage::Smoke => smoke(),
        Stage::Test => test(workspace),
        Stage::Loom => loom(workspace),
        Stage::Bench => bench(workspace),
    }
}

fn smoke() -> Vec<Step> {
    vec![
        Step::cargo("fmt", "fmt --all --check"),
        Step { name: "tidy".to_owned(), work: Work::Tidy },
        Step::cargo("clippy", "clippy --workspace --all-targets -- -D warnings"),
        // Libraries only: the library and the command share the name `weir`, and so would the
        // folder of their pages.
        Step::cargo("rustdoc", "doc --workspace --no-deps --lib")
            .with("RUSTDOCFLAGS", "-D warnings".to_owned()),
        Step::cargo("build", "build --workspace --all-targets"),
    ]
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
        Step::cargo("whole-program", &format!("{selected} -- --ignored"))
    };
    // Alone, `cargo test` leaves out what it lacks a program for. Here all are installed, and a
    // test that cannot start one fails.
    let steps = [Step::cargo("test", "test --workspace --no-fail-fast"), programs];
    steps.map(|step| step.with("WEIR_TEST_PROGRAMS", "installed".to_owned())).into()
}

fn loom(workspace: &Workspace) -> Vec<Step> {
    let is_model = |package: &&Package| package.targets_of("test").any(|t| t.starts_with("loom"));
    let preemptions =
        std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| LOOM_PREEMPTIONS_MAX.to_owned());
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let flags = format!("{flags} --cfg loom").trim().to_owned();
    let models = workspace.members().filter(is_model).map(|package| {
        let name = &package.name;
        // A target folder of its own: other flags would otherwise build the workspace anew at
        // every change between stages. Link-time optimisation buys nothing here.
        let line = format!("test --package {name} --release --target-dir target/loom --test loom*");
        Step::cargo(&format!("loom {name}"), &line)
            .with("RUSTFLAGS", flags.clone())
            .with("LOOM_MAX_PREEMPTIONS", preemptions.clone())
            .with("CARGO_PROFILE_RELEASE_LTO", "off".to_owned())
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
            let line = format!("bench --package {} --bench {target}", package.name);
            found.push(Step::cargo(&format!("bench {target}"), &line));
        }
    }
    for (package, arguments) in BENCH_COMMANDS {
        if workspace.member(package).is_some() {
            let line = format!("run --release --package {package} {}", arguments.join(" "));
            found.push(Step::cargo(&format!("bench {}", arguments.join(" ")), &line));
        }
    }
    if found.is_empty() {
        return vec![Step::nothing("bench", "no crate has a bench target")];
    }
    // Small: it shows that a bench still runs; figures are taken by hand on a quiet machine.
    found.into_iter().map(|step| step.with("WEIR_BENCH", "small".to_owned())).collect()
}

impl Step {
    fn cargo(name: &str, line: &str) -> Step {
        let arguments = line.split_whitespace().map(str::to_owned).collect();
        Step { name: name.to_owned(), work: Work::Cargo(arguments, Vec::new()) }
    }

    fn nothing(name: &str, why: &str) -> Step {
        Step { name: name.to_owned(), work: Work::Nothing(why.to_owned()) }
    }

    fn with(mut self, key: &'static str, value: String) -> Step {
        if let Work::Cargo(_, environment) = &mut self.work {
            environment.push((key, value));
        }
        self
    }

    fn run(&self, workspace: &Workspace) -> Result<End, Error> {
        match &self.work {
            Work::Nothing(why) => Ok(End::Skipped(why.clone())),
            Work::Tidy if tidy::run(workspace)? => Ok(End::Ok),
            Work::Tidy => Ok(End::Failed("findings above".to_owned())),
            Work::Cargo(arguments, environment) => {
                eprintln!("xtask: cargo {}", arguments.join(" "));
                let status = Command::new(cargo())
                    .args(arguments)
                    .envs(environment.iter().map(|(key, value)| (key, value)))
                    .current_dir(&workspace.root)
                    .status()
                    .map_err(|error| format!("cannot start {}: {error}", cargo()))?;
                Ok(if status.success() { End::Ok } else { End::Failed(status.to_string()) })
            }
        }
    }
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
            Work::Cargo(arguments, _) => arguments.join(" "),
            Work::Tidy => "tidy".to_owned(),
            Work::Nothing(why) => format!("nothing: {why}"),
        };
        steps(workspace, stage).into_iter().map(line).collect()
    }

    #[test]
    fn smoke_denies_every_warning() {
        let found = lines(&workspace(&[]), Stage::Smoke);
        assert!(found.contains(&"clippy --workspace --all-targets -- -D warnings".to_owned()));
        let steps = smoke();
        let rustdoc = steps.iter().find(|step| step.name == "rustdoc").unwrap();
        let Work::Cargo(_, environment) = &rustdoc.work else { panic!("rustdoc is not cargo") };
        assert_eq!(environment, &[("RUSTDOCFLAGS", "-D warnings".to_owned())]);
    }

    #[test]
    fn whole_program_tests_are_those_of_the_command_and_run_though_ignored() {
        let one = workspace(&[("weir-cli", "test", "nbd_clients"), ("weir", "test", "laws")]);
        let found = lines(&one, Stage::Test);
        let ignored = "test --workspace --no-fail-fast --test nbd_clients -- --ignored";
        assert_eq!(found, ["test --workspace --no-fail-fast", ignored]);
    }

    #[test]
    fn a_program_that_tests_need_may_not_be_missing() {
        for step in steps(&workspace(&[("weir-cli", "test", "nbd_clients")]), Stage::Test) {
            let Work::Cargo(_, environment) = &step.work else {
                panic!("{} is not cargo", step.name)
            };
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
    fn what_is_not_there_is_skipped_and_says_so() {
        for stage in [Stage::Loom, Stage::Bench] {
            let found = lines(&workspace(&[("weir-bio", "lib", "weir_bio")]), stage);
            assert_eq!(found.len(), 1, "{stage:?}");
            assert!(found[0].starts_with("nothing: no crate has a"), "{found:?}");
        }
    }

    #[test]
    fn every_bench_target_is_run() {
        let found = lines(&workspace(&[("weir-queue", "bench", "plug")]), Stage::Bench);
        assert_eq!(found, ["bench --package weir-queue --bench plug"]);
    }

    #[test]
    fn the_summary_counts_how_steps_ended() {
        let ends = [End::Ok, End::Failed("exit status: 1".into()), End::Skipped("a".into())];
        let line = summary(Stage::Smoke, &ends, Duration::from_millis(12_600));
        assert_eq!(line, "stage smoke: 1 ok, 1 skipped, 1 failed (13 s)");
        assert_eq!(ends[1].to_string(), "FAILED, exit status: 1");
    }
}

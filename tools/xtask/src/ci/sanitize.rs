//! The stage that watches threads and memory while tests run: the thread sanitizer and Miri.
//!
//! The sanitizer comes with stable Rust, whose compiler takes its flag if it is told to be lenient.
//! With the source of the standard library at hand that library is built with it too: then locks,
//! condition variables and channels order what they order, and nothing is suppressed. Without it
//! only `core/ring` can be judged, which has protocols of its own making and few of the library's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Step;
use crate::workspace::{Workspace, cargo};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The crates whose threads are watched; built together, so that they share what they depend on.
const WATCHED: &str = "--package weir-ring --package weir-queue --package weir-front-nbd";

/// Tests of the server that are quick enough for each run. Those of `hostile` hold the memory of
/// the process against a bound, and the sanitizer's shadow of it counts with it.
const SERVER: &str = "--test connections --test effects";

/// Scenes of each path in the stress test of 8 submitters; the tests alone run 12.
const STRESS_SEEDS: &str = "1";

/// How to get the standard library's source.
const NO_SOURCE: &str = "the standard library's source is not installed, and without it locks \
    order nothing for the sanitizer; install it with: rustup component add rust-src";

const NO_MIRI: &str = "it is not installed; it comes with nightly Rust: \
    rustup component add --toolchain nightly miri rust-src";

pub(super) fn steps(workspace: &Workspace) -> Vec<Step> {
    let mut steps = threads(workspace, source().as_deref());
    steps.push(miri(miri_command()));
    steps
}

/// The thread sanitizer, as far as the source of the standard library allows.
fn threads(workspace: &Workspace, source: Option<&Path>) -> Vec<Step> {
    if source.is_none() {
        let suppressed = workspace.root.join("tools/xtask/src/ci/sanitize.supp");
        let ring =
            sanitized("thread sanitizer, core/ring", "--package weir-ring --test stress", "")
                .with("TSAN_OPTIONS", format!("suppressions={}", suppressed.display()));
        return vec![ring, Step::skipped("thread sanitizer", NO_SOURCE)];
    }
    vec![
        watched("thread sanitizer, stress", "--test stress", STRESS_SEEDS),
        watched("thread sanitizer, front/nbd", SERVER, STRESS_SEEDS),
    ]
}

/// The longer run of `ci long`: every scene, and the server's longer tests.
pub(super) fn long() -> Step {
    if source().is_none() {
        return Step::skipped("thread sanitizer, all", NO_SOURCE);
    }
    let tests = format!("--test stress --test commands {SERVER}");
    watched("thread sanitizer, all", &tests, "12")
}

fn watched(name: &str, tests: &str, seeds: &str) -> Step {
    sanitized(name, &format!("{WATCHED} {tests}"), " -Zbuild-std")
        .with("STRESS_SEEDS", seeds.to_owned())
}

fn sanitized(name: &str, tests: &str, std: &str) -> Step {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let sanitizer = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    // A folder for each: with and without the library's source everything is built otherwise.
    let folder = if std.is_empty() { "sanitize-plain" } else { "sanitize" };
    let line = format!("test{std} {tests} --target {TRIPLE} --target-dir target/{folder}");
    Step::tests(name, &line)
        .with("RUSTC_BOOTSTRAP", "1".to_owned())
        .with("RUSTFLAGS", format!("{flags} {sanitizer}").trim().to_owned())
        .with("RUST_TEST_THREADS", "1".to_owned())
}

/// The standard library's source, where it is installed.
fn source() -> Option<PathBuf> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/Cargo.lock");
    source.is_file().then_some(source)
}

/// Miri over the two rooms of `core` that may use `unsafe`.
fn miri(toolchain: Option<&'static str>) -> Step {
    let Some(toolchain) = toolchain else { return Step::skipped("miri", NO_MIRI) };
    let line = "miri test --package weir-bio --package weir-ring --lib --target-dir target/miri";
    let step = Step::tests("miri", line);
    if toolchain.is_empty() { step } else { step.with("RUSTUP_TOOLCHAIN", toolchain.to_owned()) }
}

/// The toolchain that has Miri: the one in use, else nightly.
fn miri_command() -> Option<&'static str> {
    let works = |toolchain: &str| {
        let mut command = Command::new(cargo());
        if !toolchain.is_empty() {
            command.env("RUSTUP_TOOLCHAIN", toolchain);
        }
        command.args(["miri", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["", "nightly"].into_iter().find(|toolchain| works(toolchain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::{End, Work};

    fn workspace() -> Workspace {
        Workspace { root: "/w".into(), packages: Vec::new() }
    }

    fn line(step: &Step) -> String {
        let Work::Tests(arguments, _) = &step.work else { panic!("{} runs none", step.name) };
        arguments.join(" ")
    }

    #[test]
    fn with_the_library_s_source_nothing_is_suppressed_and_the_server_is_watched() {
        let steps = threads(&workspace(), Some(Path::new("/s")));
        assert_eq!(steps.len(), 2);
        for step in &steps {
            assert!(
                line(step).starts_with("test -Zbuild-std --package weir-ring"),
                "{}",
                step.name
            );
            let Work::Tests(_, environment) = &step.work else { panic!("no tests") };
            assert!(environment.iter().all(|(key, _)| *key != "TSAN_OPTIONS"), "{environment:?}");
        }
        assert!(line(&steps[0]).contains("--package weir-queue"), "{}", line(&steps[0]));
        assert!(line(&steps[1]).contains("--test connections"), "{}", line(&steps[1]));
    }

    #[test]
    fn what_is_missing_is_told_as_skipped_and_not_as_ok() {
        let steps = threads(&workspace(), None);
        assert!(!line(&steps[0]).contains("-Zbuild-std"), "{}", line(&steps[0]));
        for (step, part) in [(&steps[1], "rustup component add rust-src"), (&miri(None), "miri")] {
            let end = step.run(&workspace()).unwrap();
            assert!(matches!(&end, End::Skipped(why) if why.contains(part)), "{end}");
        }
        assert!(line(&miri(Some(""))).starts_with("miri test"));
    }

    #[test]
    fn every_suppression_has_its_reason_above_it() {
        let lines: Vec<_> = include_str!("sanitize.supp").lines().collect();
        let suppressed = |line: &&str| !line.is_empty() && !line.starts_with('#');
        assert!(lines.iter().any(suppressed), "{lines:?}");
        for (above, line) in lines.iter().zip(&lines[1..]) {
            assert!(!suppressed(line) || above.starts_with("# "), "{line}");
        }
    }
}

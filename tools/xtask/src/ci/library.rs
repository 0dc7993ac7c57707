//! What users of the library rely on beside its behaviour: features, the oldest Rust, and an
//! interface that does not break unnoticed.

use std::path::Path;
use std::process::{Command, Stdio};

use super::Step;
use crate::workspace::{Workspace, cargo};

/// The package of the library.
const LIBRARY: &str = "weir-block";

/// The packages whose items the library hands on by `pub use`: what they promise it promises.
const HANDED_ON: [&str; 12] = [
    "weir-access",
    "weir-bio",
    "weir-blocking",
    "weir-driver-iscsi",
    "weir-front-nbd",
    "weir-live",
    "weir-local",
    "weir-queue",
    "weir-ring",
    "weir-sched",
    "weir-sim-target",
    "weir-tls",
];

/// The package of its tests without features: no part of the workspace, in which the library has
/// all of them.
const BARE: &str = "tests/bare/Cargo.toml";

/// The commit whose interface the library keeps: that of the last release, or the last one that
/// broke it on purpose. It is moved by the commit that breaks it, with a line in CHANGELOG.md.
const BASELINE: &str = "e70aeeaa";

/// A build of the library without features, and one with each: a part that is named outside its
/// feature is found in no build with all of them.
pub(super) fn features(workspace: &Workspace) -> Vec<Step> {
    let Some(library) = workspace.member(LIBRARY) else {
        return vec![Step::nothing("library without features", "the workspace has no library")];
    };
    let check = format!("clippy --package {LIBRARY} --lib --no-default-features");
    let step = |name: &str, more: &str| Step::cargo(name, &format!("{check}{more} -- -D warnings"));
    let each = library.features.iter().filter(|feature| *feature != "default").map(|feature| {
        step(&format!("library with feature {feature}"), &format!(" --features {feature}"))
    });
    std::iter::once(step("library without features", "")).chain(each).chain(bare()).collect()
}

/// The tests of the library without features, and with the one whose targets may lack another.
fn bare() -> [Step; 2] {
    let line = format!("test --locked --manifest-path {BARE} --target-dir target/bare");
    [
        Step::tests("tests of the library without features", &line),
        Step::tests("tests of the library with feature nbd", &format!("{line} --features nbd")),
    ]
}

/// A build of everything with the oldest Rust that the library promises to be built with.
/// `clippy::incompatible_msrv` sees what of the standard library is younger, with any Rust.
pub(super) fn oldest_rust(workspace: &Workspace) -> Step {
    let name = "oldest Rust";
    let promised = workspace.member(LIBRARY).and_then(|library| library.rust_version.as_deref());
    let Some(version) = promised else {
        return Step::nothing(name, "the library does not say which Rust it needs");
    };
    let full = if version.matches('.').count() > 1 { version } else { &format!("{version}.0") };
    if !works(Command::new("rustup").args(["run", full, "rustc", "--version"])) {
        let install = format!("rustup toolchain install {full} --profile minimal");
        return Step::skipped(name, &format!("there is no Rust {full}: {install}"));
    }
    // Which cargo a program is, is decided by the environment, where rustup runs it. A target
    // folder of its own keeps what another Rust has built.
    Step::cargo(name, "check --workspace --all-targets --target-dir target/oldest")
        .with("RUSTUP_TOOLCHAIN", full.to_owned())
}

/// The interface of the library against the one of [`BASELINE`]. What it hands on from other
/// packages is looked at in each of those: the tool reads one package at a time, and of a foreign
/// item it knows the name alone.
pub(super) fn compatibility(root: &Path) -> Step {
    let name = "interface of the library";
    if !works(Command::new(cargo()).args(["semver-checks", "--version"])) {
        let install = "cargo install --locked cargo-semver-checks";
        return Step::skipped(name, &format!("there is no cargo-semver-checks: {install}"));
    }
    let commit = format!("{BASELINE}^{{commit}}");
    if !works(Command::new("git").args(["cat-file", "-e", &commit]).current_dir(root)) {
        return Step::skipped(name, &format!("git knows no commit {BASELINE} here"));
    }
    let packages: Vec<String> =
        [LIBRARY].iter().chain(&HANDED_ON).map(|package| format!("--package {package}")).collect();
    let packages = packages.join(" ");
    let line = format!("semver-checks {packages} --all-features --baseline-rev {BASELINE}");
    Step::cargo(name, &line)
}

/// The shared library as it is installed, and its symbols: two steps, as its tests are built
/// otherwise.
pub(super) fn shared() -> [Step; 2] {
    let build = "rustc --release --package weir-capi --lib --crate-type cdylib";
    let test = "test --package weir-capi --test c -- exports";
    [
        Step::cargo("shared library", build),
        Step::tests("symbols of the shared library", test)
            .with("WEIR_LIBRARY", "target/release/libweir_capi.so".to_owned()),
    ]
}

fn works(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci::Work;
    use crate::workspace::Package;

    fn library(features: &[&str], rust_version: Option<&str>) -> Workspace {
        let library = Package {
            name: LIBRARY.to_owned(),
            member: true,
            features: features.iter().map(|feature| (*feature).to_owned()).collect(),
            rust_version: rust_version.map(str::to_owned),
            ..Package::default()
        };
        Workspace { root: "/w".into(), packages: vec![library] }
    }

    #[test]
    fn the_library_is_checked_without_features_and_with_each() {
        let steps = features(&library(&["default", "nbd", "tls"], None));
        let lines: Vec<String> = steps
            .iter()
            .map(|step| match &step.work {
                Work::Cargo(line, _) | Work::Tests(line, _) => line.join(" "),
                _ => panic!("{} is not cargo", step.name),
            })
            .collect();
        let check = "clippy --package weir-block --lib --no-default-features";
        let checks = ["", " --features nbd", " --features tls"]
            .map(|more| format!("{check}{more} -- -D warnings"));
        let test = format!("test --locked --manifest-path {BARE} --target-dir target/bare");
        let tests = ["", " --features nbd"].map(|more| format!("{test}{more}"));
        assert_eq!(lines, [&checks[..], &tests].concat());
    }

    #[test]
    fn each_package_that_the_library_hands_items_on_from_is_compared() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (mut sources, mut found) = (Vec::new(), Vec::new());
        crate::files::below(&root, Path::new("front/inproc/src"), &mut sources).unwrap();
        for path in sources {
            let text = std::fs::read_to_string(root.join(path)).expect("a source");
            for line in text.lines() {
                let Some(rest) = line.strip_prefix("pub use weir_") else { continue };
                let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next();
                found.push(format!("weir-{}", name.unwrap_or_default().replace('_', "-")));
            }
        }
        assert!(found.len() > 8, "{found:?}");
        for package in found {
            assert!(HANDED_ON.contains(&&*package), "{package} is handed on, and not compared");
        }
    }

    #[test]
    fn a_rust_that_is_not_installed_is_skipped_with_the_line_that_installs_it() {
        let step = oldest_rust(&library(&[], Some("1.3")));
        let Work::Skipped(why) = &step.work else { panic!("Rust 1.3 is here") };
        assert!(why.ends_with("rustup toolchain install 1.3.0 --profile minimal"), "{why}");
        assert!(matches!(oldest_rust(&library(&[], None)).work, Work::Nothing(_)));
    }
}

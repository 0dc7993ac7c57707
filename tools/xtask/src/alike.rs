//! `cargo xtask alike`: whether a program with debug assertions and overflow checks simulates, to
//! the last bit, what a program as it is released does.
//!
//! Equal seeds are to give equal results in every build. Both print what a few cases of each scene
//! come to (`sim/examples/outcomes.rs`); their bytes are compared.

use std::process::{Command, Stdio};

use crate::workspace::{Error, Workspace, cargo};

/// With debug assertions and overflow checks, and as released but for the optimisation over crates,
/// which takes minutes.
const PROFILES: [&str; 2] = ["dev", "quick"];

/// Whether both simulate the same.
pub fn run(workspace: &Workspace) -> Result<bool, Error> {
    let [debug, release] = PROFILES.map(|profile| simulate(workspace, profile));
    let (debug, release) = (debug?, release?);
    match difference(&debug, &release) {
        None => println!("alike: {} lines of outcomes, the same in both", debug.lines().count()),
        Some(ref what) => println!("alike: {what}"),
    }
    Ok(debug == release)
}

/// What a program of this profile prints.
fn simulate(workspace: &Workspace, profile: &str) -> Result<String, Error> {
    let mut command = Command::new(cargo());
    command.args(["run", "--package", "weir-sim", "--example", "outcomes", "--profile", profile]);
    command.current_dir(&workspace.root).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{}: {error}", cargo()))?;
    let printed = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    match output.status.success() && !printed.is_empty() {
        true => Ok(printed),
        false => Err(format!("the outcomes of profile {profile}: {}", output.status)),
    }
}

/// The first line in which they differ, as both have it; `None` if none does.
fn difference(debug: &str, release: &str) -> Option<String> {
    if debug == release {
        return None;
    }
    let (mut one, mut other) = (debug.lines(), release.lines());
    loop {
        let (one, other) = (one.next(), other.next());
        if one == other && one.is_some() {
            continue;
        }
        let [one, other] = [one, other].map(|line| line.unwrap_or("nothing"));
        return Some(format!("with debug assertions {one:?}, as released {other:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_told_as_both_have_it() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        let told = |one, other| difference(one, other).expect("a difference");
        assert!(told("a\nb\nc\n", "a\nd\ne\n").contains(r#""b", as released "d""#));
        assert!(told("a\n", "a\nb\n").contains(r#""nothing", as released "b""#));
        assert!(told("a\nb\n", "a\n").contains(r#""b", as released "nothing""#));
        assert!(told("a\n", "a").contains("nothing"), "bytes that no line shows");
    }
}

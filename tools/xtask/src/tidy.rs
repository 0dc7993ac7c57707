//! `cargo xtask tidy`: the house limits, held against every file and every dependency.
//!
//! Each check is a pure function from what it reads to findings, so that a failing sample can be
//! put under every one of them. The file of a check says what it measures and where its bound comes
//! from.

mod banned;
mod circles;
mod citations;
mod doors;
mod licences;
mod papers;
mod prose;
mod rooms;
mod sizes;
mod source;
mod stubs;
mod unsafety;
mod unused;
mod vague;

use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::workspace::{Error, Workspace};
use source::Source;

/// One breach of a house limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the workspace root, with `/` between folders.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The quantity measured, its value and its bound.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Runs every check, prints the findings and answers whether there were none.
pub fn run(workspace: &Workspace) -> Result<bool, Error> {
    let sources = read_tree(&workspace.root)?;
    let findings = check(workspace, &sources);
    for finding in &findings {
        println!("{finding}");
    }
    let counted = format!("{} files, {} packages", sources.len(), workspace.packages.len());
    match findings.len() {
        0 => println!("xtask tidy: {counted}, nothing found"),
        1 => println!("xtask tidy: {counted}, 1 finding"),
        many => println!("xtask tidy: {counted}, {many} findings"),
    }
    Ok(findings.is_empty())
}

/// Every finding in the tree, in the order of files and lines.
fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let mut findings = rooms::check(workspace, sources);
    findings.extend(rooms::check_told(workspace, sources));
    findings.extend(circles::check(workspace, sources));
    findings.extend(unsafety::check_roots(workspace, sources));
    findings.extend(licences::check(workspace, sources));
    findings.extend(doors::check(workspace, sources));
    findings.extend(unused::check(workspace, sources));
    findings.extend(papers::check_readme(sources));
    findings.extend(citations::check(sources));
    for source in sources {
        findings.extend(stubs::check(source));
        findings.extend(vague::check(source));
        findings.extend(banned::check_path(&source.path));
        findings.extend(papers::check_machine_paths(source));
        if source.is_rust() {
            findings.extend(sizes::check(source));
            findings.extend(unsafety::check(source));
            findings.extend(banned::check_names(source));
            findings.extend(banned::check_prints(source));
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Reads every text file that git tracks or would track; binary files are passed over.
fn read_tree(root: &Path) -> Result<Vec<Source>, Error> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cannot start git, which names the files to judge: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git ls-files: {}\n{said}", output.status));
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut sources = Vec::with_capacity(paths.len());
    for path in paths {
        // A file that is deleted but still in the index, or a symbolic link to a folder, has no
        // text of its own to judge.
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            sources.push(Source::new(path, text));
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_file_line_and_what() {
        let finding = Finding { file: "a.rs".into(), line: 7, what: "line, 101, 100".into() };
        assert_eq!(finding.to_string(), "a.rs:7: line, 101, 100");
    }

    #[test]
    fn one_tree_is_judged_by_every_check() {
        let workspace = Workspace { root: "/w".into(), packages: Vec::new() };
        let long = "x".repeat(101);
        let text =
            format!("fn get_it() {{ }} unsafe fn a() {{ }}\n// {} {long}\n", ["TO", "DO"].concat());
        let found = check(&workspace, &[Source::new("core/queue/src/util.rs", text)]);
        let all: Vec<String> = found.iter().map(Finding::to_string).collect();
        for what in ["`util`", "get_it", "unsafe", "columns", "stub", "README.md"] {
            assert!(all.iter().any(|line| line.contains(what)), "{what} is not in {all:#?}");
        }
    }
}

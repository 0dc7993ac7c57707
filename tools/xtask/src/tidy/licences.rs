//! The licences a dependency may be used under, and the places it may come from.
//!
//! The list holds the permissive licences and MPL-2.0, whose copyleft ends at its own files. No
//! GPL, LGPL or AGPL: weir is MIT OR Apache-2.0, for its users as well as for us.

use std::path::Path;

use super::source::Source;
use spdx::{Expression, ParseMode};

use super::Finding;
use crate::workspace::{Package, Workspace};

/// The SPDX identifiers a dependency may offer.
const LICENCES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "CC0-1.0",
    "0BSD",
    "MPL-2.0",
    "Unlicense",
    "BSL-1.0",
    // The University of Illinois' terms, those of MIT and BSD together: libFuzzer.
    "NCSA",
];

/// The two spellings of crates.io, cargo's default registry.
const REGISTRIES: [&str; 2] =
    ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

/// Holds every package of the dependency graph against both lists.
pub fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let lock = sources.iter().find(|source| source.path == "Cargo.lock");
    let mut findings = Vec::new();
    for package in &workspace.packages {
        for what in [licence(package), origin(package)].into_iter().flatten() {
            let line = lock.map_or(1, |lock| line_of(lock, package));
            findings.push(Finding { file: "Cargo.lock".to_owned(), line, what });
        }
    }
    findings
}

fn licence(package: &Package) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    let allowed = LICENCES.join(", ");
    let Some(expression) = &package.licence else {
        return Some(format!("licence of `{name}` is not stated, allowed are {allowed}"));
    };
    // Lax: crates of long ago write `A/B` for `A OR B`.
    match Expression::parse_mode(expression, ParseMode::LAX) {
        Ok(read) if read.evaluate(|asked| LICENCES.contains(&&*asked.to_string())) => None,
        Ok(_) => Some(format!("licence of `{name}` is `{expression}`, allowed are {allowed}")),
        Err(error) => {
            let why = error.reason;
            Some(format!("licence of `{name}` is `{expression}`, unreadable: {why}"))
        }
    }
}

fn origin(package: &Package) -> Option<String> {
    let name = format!("{} {}", package.name, package.version);
    match package.source.as_deref() {
        Some(source) if REGISTRIES.contains(&source) => None,
        Some(source) => Some(format!("source of `{name}` is `{source}`, allowed is crates.io")),
        // Folders inside the workspace were made relative when the metadata was read.
        None if package.folder == Path::new("") || package.folder.is_relative() => None,
        None => Some(format!("source of `{name}` is a folder outside the workspace")),
    }
}

fn line_of(lock: &Source, package: &Package) -> usize {
    let name = format!("name = \"{}\"", package.name);
    let version = format!("version = \"{}\"", package.version);
    let lines: Vec<&str> = lock.text.lines().collect();
    lines.windows(2).position(|pair| pair == [&name, &version]).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(licence: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: "a".into(),
            version: "1.2.3".into(),
            licence: licence.map(str::to_owned),
            source: source.map(str::to_owned),
            folder: "/elsewhere/a".into(),
            ..Package::default()
        }
    }

    fn whats(package: Package) -> Vec<String> {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"a\"\nversion = \"1.2.3\"\n";
        let workspace = Workspace { root: "/w".into(), packages: vec![package] };
        let found = check(&workspace, &[Source::new("Cargo.lock", lock)]);
        found.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_listed_licence_from_the_registry_passes() {
        for source in REGISTRIES {
            assert!(whats(package(Some("MIT/GPL-3.0"), Some(source))).is_empty());
        }
    }

    #[test]
    fn a_licence_outside_the_list_is_found_at_its_line_of_the_lock_file() {
        let found = whats(package(Some("AGPL-3.0-only"), Some(REGISTRIES[0])));
        assert_eq!(found.len(), 1);
        let start = "Cargo.lock:6: licence of `a 1.2.3` is `AGPL-3.0-only`, allowed are MIT,";
        assert!(found[0].starts_with(start), "{found:?}");
    }

    #[test]
    fn no_licence_and_an_unreadable_one_are_found() {
        assert!(whats(package(None, Some(REGISTRIES[0])))[0].contains("is not stated"));
        let found = whats(package(Some("MIT or so"), Some(REGISTRIES[0])));
        assert!(found[0].contains("unreadable"), "{found:?}");
    }

    #[test]
    fn another_registry_a_git_source_and_a_folder_outside_are_found() {
        for source in [Some("git+https://example.org/a"), Some("registry+https://a.example"), None]
        {
            assert_eq!(whats(package(Some("MIT"), source)).len(), 1, "{source:?}");
        }
        let inside = Package { folder: "core/a".into(), ..package(Some("MIT"), None) };
        assert!(whats(inside).is_empty());
    }
}

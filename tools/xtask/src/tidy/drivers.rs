//! Drivers are known by name in their own crates and in one list. Whatever else names one has to be
//! changed for each driver that is added.

use super::Finding;
use super::source::Source;
use crate::workspace::Workspace;

/// The list of kinds of target.
const LIST: &str = "front/inproc/src/drivers.rs";

/// Files that measure the queue core in front of one driver on purpose.
const MEASURES: [&str; 1] = ["tools/bench/src/core.rs"];

/// Looks for the libraries of drivers in what is neither theirs nor a test, a bench or an example.
pub fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let rooms = workspace.members().filter(|package| package.folder.starts_with("drivers"));
    let libraries: Vec<String> = rooms.map(|package| package.name.replace('-', "_")).collect();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust() && is_bound(&source.path)) {
        let end = source.text.find("#[cfg(test)]").unwrap_or(source.text.len());
        for library in &libraries {
            let found = source.words(library).into_iter().filter(|at| *at < end);
            findings.extend(found.map(|at| Finding {
                file: source.path.clone(),
                line: source.line_at(at),
                what: format!("`{library}` is named outside the drivers and {LIST}"),
            }));
        }
    }
    findings
}

fn is_bound(path: &str) -> bool {
    let tested = ["tests", "benches", "examples"];
    let in_test = path.split('/').any(|part| tested.contains(&part)) || path.ends_with("tests.rs");
    !(in_test || path.starts_with("drivers/") || path == LIST || MEASURES.contains(&path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    #[test]
    fn a_driver_that_is_named_elsewhere_is_found_and_its_crate_the_list_and_tests_are_not() {
        let driver = Package {
            name: "weir-tape".into(),
            folder: "drivers/tape".into(),
            member: true,
            ..Package::default()
        };
        let workspace = Workspace { root: "/w".into(), packages: vec![driver] };
        let uses = "\nuse weir_tape::Tape;\n";
        let tested = format!("// weir_tape\n#[cfg(test)]\nmod tests {{{uses}}}");
        let sources = [
            Source::new("drivers/tape/src/reel.rs", uses),
            Source::new(LIST, uses),
            Source::new("tests/reels.rs", uses),
            Source::new("front/inproc/src/disk.rs", tested),
            Source::new("tools/bench/src/run.rs", uses),
        ];
        let found = check(&workspace, &sources);
        let found: Vec<String> = found.iter().map(Finding::to_string).collect();
        let what = "`weir_tape` is named outside the drivers and front/inproc/src/drivers.rs";
        assert_eq!(found, [format!("tools/bench/src/run.rs:2: {what}")]);
    }
}

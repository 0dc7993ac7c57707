//! Drivers and fronts are known by name in their own crates and in one list each. Whatever else
//! names one has to be changed for each that is added.

use super::Finding;
use super::source::Source;
use crate::workspace::Workspace;

/// A kind of crates that one list knows.
struct Door {
    /// Where they are.
    folder: &'static str,
    /// The crate there that is none of them.
    other: &'static str,
    list: &'static str,
    /// Files that name one on purpose.
    exempt: &'static [&'static str],
}

const DOORS: [Door; 2] = [
    Door {
        folder: "drivers",
        other: "",
        list: "front/inproc/src/drivers.rs",
        exempt: &[
            // It measures the queue core in front of one driver.
            "tools/bench/src/core.rs",
            // Its disk loses its power.
            "core/laws/src/outage.rs",
            // What the simulator turns below its paths.
            "sim/src/midlayer.rs",
            // A transport of the SCSI mid-layer, which no other crate may bring together with a
            // simulated target.
            "front/inproc/src/scsi_sim/kind.rs",
            "front/inproc/src/scsi_sim/link.rs",
            "front/inproc/src/scsi_sim/port.rs",
            "front/inproc/src/scsi_sim/session.rs",
            "front/inproc/src/scsi_sim/shared.rs",
            "front/inproc/src/scsi_sim/transport.rs",
        ],
    },
    Door {
        folder: "front",
        other: "front/inproc",
        list: "tools/cli/src/fronts.rs",
        exempt: &[
            // It feeds the section of one front.
            "tools/fuzz/src/config.rs",
            // The server that a program has in itself.
            "front/inproc/src/nbd.rs",
        ],
    },
];

/// Looks for the libraries of each door in what is neither theirs nor a test, a bench or an
/// example.
pub fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    DOORS.iter().flat_map(|door| door.check(workspace, sources)).collect()
}

impl Door {
    fn check(&self, workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
        let Door { folder, other, list, .. } = self;
        let rooms = workspace.members().filter(|package| package.folder.starts_with(folder));
        let rooms = rooms.filter(|package| package.folder != std::path::Path::new(other));
        let libraries: Vec<String> = rooms.map(|package| package.name.replace('-', "_")).collect();
        let mut findings = Vec::new();
        for source in sources.iter().filter(|source| source.is_rust() && self.binds(&source.path)) {
            let end = source.text.find("#[cfg(test)]").unwrap_or(source.text.len());
            for library in &libraries {
                let found = source.words(library).into_iter().filter(|at| *at < end);
                findings.extend(found.map(|at| Finding {
                    file: source.path.clone(),
                    line: source.line_at(at),
                    what: format!("`{library}` is named outside `{folder}` and {list}"),
                }));
            }
        }
        findings
    }

    fn binds(&self, path: &str) -> bool {
        let tested = ["tests", "benches", "examples"];
        let in_test =
            path.split('/').any(|part| tested.contains(&part)) || path.ends_with("tests.rs");
        let own = std::path::Path::new(path).starts_with(self.folder) && !self.is_other(path);
        !(in_test || own || path == self.list || self.exempt.contains(&path))
    }

    fn is_other(&self, path: &str) -> bool {
        !self.other.is_empty() && std::path::Path::new(path).starts_with(self.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn found(crates: &[(&str, &str)], sources: &[Source]) -> Vec<String> {
        let package = |&(name, folder): &(&str, &str)| Package {
            name: name.into(),
            folder: folder.into(),
            member: true,
            ..Package::default()
        };
        let packages = crates.iter().map(package).collect();
        let found = check(&Workspace { root: "/w".into(), packages }, sources);
        found.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_driver_that_is_named_elsewhere_is_found_and_its_crate_the_list_and_tests_are_not() {
        let uses = "\nuse weir_tape::Tape;\n";
        let tested = format!("// weir_tape\n#[cfg(test)]\nmod tests {{{uses}}}");
        let sources = [
            Source::new("drivers/tape/src/reel.rs", uses),
            Source::new("front/inproc/src/drivers.rs", uses),
            Source::new("tests/reels.rs", uses),
            Source::new("front/inproc/src/disk.rs", tested),
            Source::new("tools/bench/src/run.rs", uses),
        ];
        let what = "`weir_tape` is named outside `drivers` and front/inproc/src/drivers.rs";
        let found = found(&[("weir-tape", "drivers/tape")], &sources);
        assert_eq!(found, [format!("tools/bench/src/run.rs:2: {what}")]);
    }

    #[test]
    fn a_front_that_is_named_elsewhere_is_found_and_the_library_is_none() {
        let uses = "\nuse weir_pipe::KIND;\n";
        let sources = [
            Source::new("front/pipe/src/front.rs", uses),
            Source::new("tools/cli/src/fronts.rs", uses),
            Source::new("tools/cli/src/serve.rs", uses),
            Source::new("front/inproc/src/disk.rs", uses),
            Source::new("tools/bench/src/run.rs", "\nuse weir::Disk;\n"),
        ];
        let what = "`weir_pipe` is named outside `front` and tools/cli/src/fronts.rs";
        let found = found(&[("weir-pipe", "front/pipe"), ("weir", "front/inproc")], &sources);
        let lines = ["tools/cli/src/serve.rs", "front/inproc/src/disk.rs"];
        assert_eq!(found, lines.map(|file| format!("{file}:2: {what}")));
    }
}

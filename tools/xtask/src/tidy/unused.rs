//! Dependencies that a crate asks for and never names: each is built by all who build weir.
//!
//! A crate is named in code by its library's name. The names are looked for in the sources of the
//! package, of its targets that lie outside its folder, of all below these, and in files that these
//! take in by `#[path]`.

use std::path::Path;

use super::Finding;
use super::source::Source;
use crate::workspace::{Package, Workspace, plain};

/// Looks through every member.
pub fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace.members() {
        let folders: Vec<&Path> = std::iter::once(&*package.folder)
            .chain(package.targets.iter().filter_map(|target| target.root.parent()))
            .collect();
        let lies_in = |path: &str| folders.iter().any(|folder| Path::new(path).starts_with(folder));
        let rust = || sources.iter().filter(|source| source.is_rust());
        let mut own: Vec<&Source> = rust().filter(|source| lies_in(&source.path)).collect();
        let taken_in: Vec<String> = own.iter().flat_map(|source| taken_in(source)).collect();
        own.extend(rust().filter(|source| taken_in.contains(&source.path)));
        for dependency in &package.dependencies {
            let name = library_of(workspace, &dependency.name);
            if own.iter().any(|source| !source.words(&name).is_empty()) {
                continue;
            }
            let asked = &dependency.name;
            findings.push(Finding {
                file: package.folder.join("Cargo.toml").display().to_string(),
                line: line_of(package, sources, asked),
                what: format!("dependency `{asked}` is not used: no source names `{name}`"),
            });
        }
    }
    findings
}

/// The files that a file takes in by `#[path = "..."]`.
fn taken_in(source: &Source) -> Vec<String> {
    let folder = Path::new(&source.path).parent().unwrap_or(Path::new(""));
    let attributes = source.text.split("#[path = \"").skip(1);
    let paths = attributes.filter_map(|rest| rest.split('"').next());
    paths.map(|path| plain(&folder.join(path)).display().to_string()).collect()
}

/// The name by which code knows a package.
fn library_of(workspace: &Workspace, package: &str) -> String {
    let found = workspace.packages.iter().find(|other| other.name == package);
    let kinds = ["lib", "rlib", "proc-macro"];
    let library =
        found.and_then(|found| found.targets.iter().find(|target| kinds.contains(&&*target.kind)));
    library.map_or(package, |library| &library.name).replace('-', "_")
}

fn line_of(package: &Package, sources: &[Source], dependency: &str) -> usize {
    let manifest = package.folder.join("Cargo.toml").display().to_string();
    let manifest = sources.iter().find(|source| source.path == manifest);
    let starts = |line: &str| line.split(['.', ' ', '=']).next() == Some(dependency);
    let line = manifest.and_then(|manifest| manifest.text.lines().position(starts));
    line.map_or(1, |line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Dependency, Kind, Target};

    fn found(code: &str, elsewhere: &str) -> Vec<String> {
        let target = |name: &str, kind: &str, root: &str| Target {
            name: name.to_owned(),
            kind: kind.to_owned(),
            root: root.into(),
        };
        let asks = |name: &str, kind| Dependency { name: name.to_owned(), kind };
        let a = Package {
            name: "weir-a".into(),
            member: true,
            folder: "core/a".into(),
            dependencies: vec![asks("rustls-webpki", Kind::Normal), asks("weir-b", Kind::Dev)],
            targets: vec![target("t", "test", "tests/t.rs")],
            ..Package::default()
        };
        let webpki = Package {
            name: "rustls-webpki".into(),
            targets: vec![target("webpki", "lib", "/registry/webpki/src/lib.rs")],
            ..Package::default()
        };
        let workspace = Workspace { root: "/w".into(), packages: vec![a, webpki] };
        let manifest = "[dependencies]\nrustls-webpki.workspace = true\nweir-b.workspace = true\n";
        let sources = [
            Source::new("core/a/Cargo.toml", manifest),
            Source::new("core/a/src/lib.rs", code),
            Source::new("tests/t.rs", elsewhere),
            Source::new("core/b/src/lib.rs", "use weir_b::Other;"),
            Source::new("core/c/both.rs", "use {webpki, weir_b};"),
        ];
        check(&workspace, &sources).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_dependency_counts_as_used_by_its_librarys_name_in_any_target() {
        assert_eq!(found("use webpki::Error;", "use weir_b::Bed;"), [""; 0]);
        assert_eq!(found("", "#[path = \"../core/c/both.rs\"] mod both;"), [""; 0]);
    }

    #[test]
    fn a_dependency_that_only_a_comment_or_another_crate_names_is_found_at_its_line() {
        let found = found("// webpki\nfn webpki_like() {}", "fn weir() {}");
        let line = |line, asked, named| {
            let what = format!("dependency `{asked}` is not used: no source names `{named}`");
            format!("core/a/Cargo.toml:{line}: {what}")
        };
        assert_eq!(found, [line(2, "rustls-webpki", "webpki"), line(3, "weir-b", "weir_b")]);
    }
}

//! The workspace as `cargo metadata` describes it: packages, their targets and dependencies.
//!
//! Only the fields the chores ask for are kept. The JSON is version 1 of cargo's stable format.

use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Why a chore could not run at all, as a sentence for the person who started it.
pub type Error = String;

/// Every package in the dependency graph, and where the workspace stands.
#[derive(Debug)]
pub struct Workspace {
    /// The folder of the root `Cargo.toml`.
    pub root: PathBuf,
    /// Members and everything they depend on, on every platform.
    pub packages: Vec<Package>,
}

/// One package of the dependency graph.
#[derive(Clone, Debug, Default)]
pub struct Package {
    /// The name in its manifest.
    pub name: String,
    /// The version, as text.
    pub version: String,
    /// The SPDX expression of its manifest, if it has one.
    pub licence: Option<String>,
    /// Where it comes from; `None` is a path on this disk.
    pub source: Option<String>,
    /// Its folder, relative to the workspace root where it is inside.
    pub folder: PathBuf,
    /// Whether it is a member of the workspace.
    pub member: bool,
    /// The dependencies its manifest asks for.
    pub dependencies: Vec<Dependency>,
    /// The targets it builds.
    pub targets: Vec<Target>,
    /// Its features, with those that optional dependencies are by themselves.
    pub features: Vec<String>,
    /// The oldest Rust it is built with, if it says so.
    pub rust_version: Option<String>,
}

/// One line of a `[dependencies]` table.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// The package's name, not the name it may be renamed to.
    pub name: String,
    /// Which table it stands in.
    pub kind: Kind,
}

/// Which table a dependency stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `[dependencies]`
    Normal,
    /// `[dev-dependencies]`
    Dev,
    /// `[build-dependencies]`
    Build,
}

/// One library, binary, test, bench or example of a package.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Cargo's word for what it is: `lib`, `bin`, `test`, `bench`, `example`, `custom-build`.
    pub kind: String,
    /// Its root source file, relative to the workspace root where it is inside.
    pub root: PathBuf,
}

impl Workspace {
    /// Asks cargo about the workspace the current folder belongs to.
    pub fn here() -> Result<Workspace, Error> {
        let output = Command::new(cargo())
            .args(["metadata", "--format-version", "1", "--all-features"])
            .output()
            .map_err(|error| format!("cannot start {}: {error}", cargo()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("cargo metadata: {}\n{said}", output.status));
        }
        let json: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("cargo metadata wrote unreadable JSON: {error}"))?;
        Workspace::read(&json)
    }

    /// Reads the JSON of `cargo metadata --format-version 1`.
    pub fn read(json: &Value) -> Result<Workspace, Error> {
        let root = PathBuf::from(text(json, "workspace_root")?);
        let members: Vec<&str> =
            list(json, "workspace_members")?.iter().filter_map(Value::as_str).collect();
        let packages = list(json, "packages")?
            .iter()
            .map(|package| Package::read(package, &root, &members))
            .collect::<Result<_, _>>()?;
        Ok(Workspace { root, packages })
    }

    /// The packages of this repository.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.member)
    }

    /// The member of that name, if the workspace has it by now.
    pub fn member(&self, name: &str) -> Option<&Package> {
        self.members().find(|package| package.name == name)
    }
}

impl Package {
    fn read(json: &Value, root: &Path, members: &[&str]) -> Result<Package, Error> {
        let manifest = PathBuf::from(text(json, "manifest_path")?);
        let folder = manifest.parent().unwrap_or(&manifest);
        Ok(Package {
            name: text(json, "name")?.to_owned(),
            version: text(json, "version")?.to_owned(),
            licence: json["license"].as_str().map(str::to_owned),
            source: json["source"].as_str().map(str::to_owned),
            folder: inside(folder, root),
            member: members.contains(&text(json, "id")?),
            dependencies: list(json, "dependencies")?
                .iter()
                .map(|dependency| {
                    let kind = match dependency["kind"].as_str() {
                        Some("dev") => Kind::Dev,
                        Some("build") => Kind::Build,
                        _ => Kind::Normal,
                    };
                    Ok(Dependency { name: text(dependency, "name")?.to_owned(), kind })
                })
                .collect::<Result<_, Error>>()?,
            targets: list(json, "targets")?
                .iter()
                .map(|target| {
                    let kind = list(target, "kind")?.first().and_then(Value::as_str);
                    Ok(Target {
                        name: text(target, "name")?.to_owned(),
                        kind: kind.unwrap_or("lib").to_owned(),
                        root: inside(Path::new(text(target, "src_path")?), root),
                    })
                })
                .collect::<Result<_, Error>>()?,
            features: json["features"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(k, _)| k.clone())
                .collect(),
            rust_version: json["rust_version"].as_str().map(str::to_owned),
        })
    }

    /// The names of its targets of one kind, in the order of the manifest.
    pub fn targets_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a str> {
        self.targets.iter().filter(move |target| target.kind == kind).map(|t| t.name.as_str())
    }
}

/// The cargo that started this chore, so that a toolchain override reaches every step.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn inside(path: &Path, root: &Path) -> PathBuf {
    plain(path.strip_prefix(root).unwrap_or(path))
}

/// A path without `..`.
pub fn plain(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts
}

fn text<'a>(json: &'a Value, key: &str) -> Result<&'a str, Error> {
    json[key].as_str().ok_or_else(|| format!("cargo metadata has no text under `{key}`"))
}

fn list<'a>(json: &'a Value, key: &str) -> Result<&'a Vec<Value>, Error> {
    json[key].as_array().ok_or_else(|| format!("cargo metadata has no list under `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Value {
        json!({
            "workspace_root": "/w",
            "workspace_members": ["path+file:///w/core/ring#weir-ring@0.1.0"],
            "packages": [{
                "id": "path+file:///w/core/ring#weir-ring@0.1.0",
                "name": "weir-ring", "version": "0.1.0", "license": "MIT", "source": null,
                "manifest_path": "/w/core/ring/Cargo.toml",
                "dependencies": [{ "name": "loom", "kind": "dev" }, { "name": "a", "kind": null }],
                "targets": [
                    { "name": "weir_ring", "kind": ["lib"], "src_path": "/w/core/ring/src/lib.rs" },
                    {
                        "name": "loom_tags", "kind": ["test"],
                        "src_path": "/w/core/ring/../../tests/t.rs"
                    }
                ]
            }]
        })
    }

    #[test]
    fn members_have_folders_relative_to_the_root_and_typed_dependencies() {
        let workspace = Workspace::read(&sample()).unwrap();
        let ring = workspace.member("weir-ring").expect("a member");
        assert_eq!(ring.folder, Path::new("core/ring"));
        assert_eq!(ring.dependencies[0].kind, Kind::Dev);
        assert_eq!(ring.dependencies[1].kind, Kind::Normal);
        assert_eq!(ring.targets_of("test").collect::<Vec<_>>(), ["loom_tags"]);
        assert_eq!(ring.targets[1].root, Path::new("tests/t.rs"));
        assert!(workspace.member("weir-cli").is_none());
    }

    #[test]
    fn a_missing_key_is_named() {
        let mut json = sample();
        json["packages"][0].as_object_mut().unwrap().remove("version");
        assert!(Workspace::read(&json).unwrap_err().contains("`version`"));
    }
}

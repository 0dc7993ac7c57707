//! Import circles: files of one crate that import each other, directly or by way of others. The
//! files of a circle can only be understood, tested and moved together.
//!
//! A module's file and the files of its submodules are read as one where a submodule reaches up: it
//! may use what its ancestors have, because it is a part of them. Siblings may not form a circle.
//! Paths are followed through `use` declarations, so that a name counts where it is defined. Tests
//! are left out, and so is what stands inside the tokens of a macro call.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

use super::Finding;
use super::source::Source;
use crate::workspace::Workspace;

/// How deep one name is followed from `use` to `use`.
const STEPS_MAX: usize = 16;

/// A module by its path from the crate's root.
type Path = Vec<String>;

/// The modules of a crate that have a file of their own.
#[derive(Default)]
struct Crate {
    files: BTreeMap<Path, Module>,
}

#[derive(Default)]
struct Module {
    file: String,
    /// The names its `use` declarations bind: name to path, as written.
    bound: BTreeMap<String, Path>,
    /// Paths it names, as written.
    named: Vec<Path>,
}

/// Looks for circles in the sources of every member, tests apart.
pub fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace.members() {
        let is_ours = |kind: &str| ["lib", "bin", "proc-macro"].contains(&kind);
        let roots = package.targets.iter().filter(|target| is_ours(&target.kind));
        let roots = roots.map(|target| target.root.display().to_string());
        findings.extend(roots.flat_map(|root| match Crate::read(&root, sources) {
            Ok(read) => read.circles(),
            Err(finding) => vec![finding],
        }));
    }
    findings
}

impl Crate {
    fn read(root: &str, sources: &[Source]) -> Result<Crate, Finding> {
        let mut read = Crate::default();
        read.take(Vec::new(), root, sources)?;
        Ok(read)
    }

    /// Reads a module's file, and those of its submodules.
    fn take(&mut self, path: Path, file: &str, sources: &[Source]) -> Result<(), Finding> {
        let Some(source) = sources.iter().find(|source| source.path == file) else { return Ok(()) };
        let parsed = syn::parse_file(&source.text).map_err(|error| Finding {
            file: file.to_owned(),
            line: 1,
            what: format!("does not parse: {error}"),
        })?;
        let mut reader = Reader::default();
        reader.visit_file(&parsed);
        let Reader { bound, named, children } = reader;
        self.files.insert(path.clone(), Module { file: file.to_owned(), bound, named });
        let folder = folder_of(file, path.is_empty());
        for child in children {
            let below = [path.clone(), vec![child.clone()]].concat();
            let places = [format!("{folder}/{child}.rs"), format!("{folder}/{child}/mod.rs")];
            for place in places {
                self.take(below.clone(), &place, sources)?;
            }
        }
        Ok(())
    }

    /// The module in which a path ends that stands in module `at`.
    fn resolve(&self, at: &Path, written: &[String], steps: usize) -> Option<&Path> {
        let (first, mut rest) = written.split_first()?;
        let mut here = match first.as_str() {
            "crate" => Vec::new(),
            "self" => at.clone(),
            "super" => at[..at.len().checked_sub(1)?].to_vec(),
            _ => {
                rest = written;
                at.clone()
            }
        };
        while let Some((name, behind)) = rest.split_first() {
            if name == "super" {
                here.pop()?;
            } else {
                let below = [here.clone(), vec![name.clone()]].concat();
                if !self.files.contains_key(&below) {
                    break;
                }
                here = below;
            }
            rest = behind;
        }
        let (found, module) = self.files.get_key_value(&here)?;
        let Some((name, behind)) = rest.split_first() else { return Some(found) };
        match module.bound.get(name).filter(|_| steps < STEPS_MAX) {
            // A name that is bound here and leads out of the crate is nothing to this crate.
            Some(bound) => {
                let further = [bound.as_slice(), behind].concat();
                self.resolve(found, &further, steps + 1)
            }
            None if here == *at && first != "self" && first != "crate" => None,
            None => Some(found),
        }
    }

    /// Which modules each module imports from, itself and its ancestors left out.
    fn arrows(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let arrows = self.files.iter().map(|(at, module)| {
            let found = module.named.iter().filter_map(|written| self.resolve(at, written, 0));
            (at, found.filter(|to| !at.starts_with(to)).collect())
        });
        arrows.collect()
    }

    fn circles(&self) -> Vec<Finding> {
        let arrows = self.arrows();
        let reached: BTreeMap<&Path, BTreeSet<&Path>> =
            arrows.keys().map(|from| (*from, reachable(&arrows, from))).collect();
        let mut seen = BTreeSet::new();
        let mut findings = Vec::new();
        for (from, reach) in &reached {
            if !reach.contains(from) || !seen.insert(*from) {
                continue;
            }
            let circle: Vec<&Path> =
                reach.iter().copied().filter(|to| reached[to].contains(from)).collect();
            seen.extend(&circle);
            let ties = circle.iter().flat_map(|from| {
                let inside = arrows[from].iter().filter(|to| circle.contains(to));
                inside.map(|to| format!("{} -> {}", name_of(from), name_of(to)))
            });
            let ties: Vec<String> = ties.collect();
            let (count, ties) = (circle.len(), ties.join(", "));
            let what = format!("import circle of {count} files: {ties}; the bound is none");
            findings.push(Finding { file: self.files[*from].file.clone(), line: 1, what });
        }
        findings
    }
}

/// All that can be reached by one arrow or more.
fn reachable<'a>(
    arrows: &BTreeMap<&'a Path, BTreeSet<&'a Path>>,
    from: &Path,
) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Path> = arrows[from].iter().copied().collect();
    while let Some(to) = next.pop() {
        if reached.insert(to) {
            next.extend(&arrows[to]);
        }
    }
    reached
}

fn name_of(path: &[String]) -> String {
    if path.is_empty() { "the root".to_owned() } else { path.join("::") }
}

/// Where the submodules of a file stand.
fn folder_of(file: &str, is_root: bool) -> String {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name {
        _ if is_root => folder.to_owned(),
        "mod.rs" => folder.to_owned(),
        _ => format!("{folder}/{}", name.trim_end_matches(".rs")),
    }
}

/// The imports, paths and submodules of one file.
#[derive(Default)]
struct Reader {
    bound: BTreeMap<String, Path>,
    named: Vec<Path>,
    children: Vec<String>,
}

impl Reader {
    fn take_use(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.take_use(&path.tree, &with(path.ident.to_string())),
            UseTree::Name(name) if name.ident == "self" => {
                self.bind(before.last().cloned().unwrap_or_default(), before.to_vec());
            }
            UseTree::Name(name) => self.bind(name.ident.to_string(), with(name.ident.to_string())),
            UseTree::Rename(name) => {
                self.bind(name.rename.to_string(), with(name.ident.to_string()));
            }
            UseTree::Glob(_) => self.named.push(before.to_vec()),
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.take_use(tree, before));
            }
        }
    }

    fn bind(&mut self, name: String, path: Path) {
        self.named.push(path.clone());
        self.bound.insert(name, path);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        match &module.content {
            None => self.children.push(module.ident.to_string()),
            Some(_) => visit::visit_item_mod(self, module),
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.take_use(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let written: Path = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if written.len() > 1 {
            self.named.push(written);
        }
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether it is there in tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new(path, (*text).to_owned())).collect();
        let read = Crate::read("src/lib.rs", &sources);
        read.unwrap_or_else(|finding| panic!("{finding}"))
            .circles()
            .iter()
            .map(Finding::to_string)
            .collect()
    }

    #[test]
    fn siblings_that_import_each_other_are_found_however_the_path_is_written() {
        for back in [
            "use crate::a::A;",
            "use super::a::A;",
            "use super::A;",
            "use crate::{A, d};",
            "fn f() { crate::a::g(); }",
            "type T = super::a::A;",
        ] {
            let found = circles(&[
                ("src/lib.rs", "mod a; mod b; mod c; pub use a::A;"),
                ("src/a.rs", "use crate::b::B; pub struct A;"),
                ("src/b.rs", back),
                ("src/c.rs", "use crate::a::A;"),
            ]);
            assert_eq!(found.len(), 1, "{back}: {found:?}");
            assert!(found[0].contains("of 2 files: a -> b, b -> a"), "{back}: {found:?}");
        }
    }

    #[test]
    fn a_circle_by_way_of_others_is_one_finding() {
        let found = circles(&[
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "use crate::b::x;"),
            ("src/b.rs", "use crate::c::y; pub fn x() {}"),
            ("src/c.rs", "fn f() { crate::a::z() }"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("of 3 files"), "{found:?}");
    }

    #[test]
    fn a_submodule_may_use_its_parent_and_what_that_imports_is_its_own_import() {
        let parts = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "mod part; use crate::b::B; pub struct A; use part::P;"),
            ("src/a/part.rs", "use super::A; impl A {} pub struct P;"),
        ];
        let alone = [&parts[..], &[("src/b.rs", "pub struct B;")]].concat();
        assert_eq!(circles(&alone), [""; 0]);
        let through = [&parts[..], &[("src/b.rs", "use crate::a::part::P;")]].concat();
        let through = [&through[..], &[("src/a/part.rs", "")]].concat();
        assert_eq!(circles(&through).len(), 0, "the part imports nothing of b");
        let through = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "mod part; use crate::b::B;"),
            ("src/a/part.rs", "use super::B;"),
            ("src/b.rs", "use crate::a::part::P;"),
        ];
        assert_eq!(circles(&through).len(), 1);
    }

    #[test]
    fn tests_and_other_crates_make_no_circle() {
        let found = circles(&[
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", "use b::B; use crate::b::B as C; use std::fmt;"),
            ("src/b.rs", "use fmt::Write; #[cfg(test)] mod tests { use crate::a::A; }"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}

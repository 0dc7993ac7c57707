//! Names that say nothing, banned by the house style: a file, a module or a function is named after
//! what it is about. And macros that end the process when their output is not read.

use super::Finding;
use super::source::{Source, words};

/// Names a file, a folder or a module may not have.
const PLACES: [&str; 6] = ["util", "utils", "common", "helper", "helpers", "manager"];
/// The prefix that no function's name may have: a question is named by its answer.
const FUNCTION_PREFIX: &str = "get_";

/// They panic where standard output or error is closed or full.
const PRINTS: [&str; 4] = ["print", "println", "eprint", "eprintln"];

/// Looks at what a Rust file prints outside its tests. The chores of the repository may.
pub fn check_prints(source: &Source) -> Vec<Finding> {
    let path = &source.path;
    let stem = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    let tests = stem.ends_with("tests") || path.split('/').any(|part| part == "tests");
    if tests || !path.contains("/src/") || path.starts_with("tools/xtask/") {
        return Vec::new();
    }
    let end = source.text.find("#[cfg(test)]").unwrap_or(source.text.len());
    let code = source.code.get(..end).unwrap_or(&source.code);
    let printed =
        PRINTS.iter().flat_map(|name| words(code, name).into_iter().map(move |at| (at, name)));
    let found = printed.filter(|(at, name)| code[at + name.len()..].starts_with('!'));
    let what = |name| format!("`{name}!` panics where nobody reads it; `write!` tells of it");
    let found = found.map(|(at, name)| (source.line_at(at), what(name)));
    found.map(|(line, what)| Finding { file: path.clone(), line, what }).collect()
}

/// Looks at every folder of a path and at the file's name without what follows its first dot.
pub fn check_path(path: &str) -> Vec<Finding> {
    let banned = path.split('/').filter_map(|part| {
        let stem = part.split('.').next().unwrap_or(part);
        PLACES.contains(&stem).then(|| finding(path, 1, "file or folder", stem))
    });
    banned.collect()
}

/// Looks at the modules and the functions a Rust file declares.
pub fn check_names(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for at in source.words("mod") {
        let name = name_after(&source.code[at + "mod".len()..]);
        if PLACES.contains(&name) {
            findings.push(finding(&source.path, source.line_at(at), "module", name));
        }
    }
    for at in source.words("fn") {
        let name = name_after(&source.code[at + "fn".len()..]);
        if name.starts_with(FUNCTION_PREFIX) {
            findings.push(finding(&source.path, source.line_at(at), "function", name));
        }
    }
    findings
}

fn name_after(code: &str) -> &str {
    let rest = code.trim_start();
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    &rest[..end]
}

fn finding(path: &str, line: usize, place: &str, name: &str) -> Finding {
    let banned = format!("{}, fn {FUNCTION_PREFIX}*", PLACES.join(", "));
    let what = format!("name of {place} `{name}` says nothing, banned are {banned}");
    Finding { file: path.to_owned(), line, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_banned_place_is_found_as_file_folder_and_module() {
        for place in PLACES {
            assert_eq!(check_path(&format!("core/queue/src/{place}.rs")).len(), 1, "{place}");
            assert_eq!(check_path(&format!("tests/{place}/mod.rs")).len(), 1, "{place}");
            let source = Source::new("a.rs", format!("\npub mod {place};"));
            assert_eq!(check_names(&source)[0].line, 2, "{place}");
        }
        assert!(check_path("core/queue/src/utility_free.rs").is_empty());
    }

    #[test]
    fn what_is_printed_outside_tests_and_chores_is_found() {
        let text = "println(1);\n// eprintln!(1)\neprintln!(1)\n#[cfg(test)]\nprint!(1)";
        let found = check_prints(&Source::new("host/live/src/a.rs", text));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].line, 3);
        for path in ["tools/xtask/src/a.rs", "tools/cli/benches/a.rs", "core/a/src/b/a_tests.rs"] {
            assert!(check_prints(&Source::new(path, text)).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_function_is_not_named_get() {
        let source = Source::new("a.rs", "fn getter() {}\n// fn get_a() {}\nfn  get_b() {}");
        let found = check_names(&source);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].line, 3);
        assert!(found[0].what.contains("`get_b`"));
    }
}

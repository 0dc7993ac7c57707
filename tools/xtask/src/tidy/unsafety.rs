//! Where `unsafe` may stand, and what has to stand above it.
//!
//! The rooms that may use it are marked in the room table. There each block and each
//! implementation has its `// SAFETY:` note just above; every other crate forbids it at its root.

use std::path::Path;

use super::source::Source;
use super::{Finding, rooms};
use crate::workspace::Workspace;

/// How far above an `unsafe` the comment with its reason may end, in lines.
const NOTE_LINES_MAX: usize = 3;

/// Holds every `unsafe` of one file against the list of rooms and asks for its note.
pub fn check(source: &Source) -> Vec<Finding> {
    let allowed = rooms::of(&source.path).is_some_and(|room| room.unsafe_code);
    let mut findings = Vec::new();
    for at in source.words("unsafe") {
        let line = source.line_at(at);
        let what = if !allowed {
            format!("`unsafe` outside the rooms that may use it: {}", rooms::unsafe_rooms())
        } else if needs_note(&source.code[at..]) && !has_note(&source.text, line) {
            format!("`unsafe` without a `// SAFETY:` comment in the {NOTE_LINES_MAX} lines above")
        } else {
            continue;
        };
        findings.push(Finding { file: source.path.clone(), line, what });
    }
    findings
}

/// Asks every crate that may not use `unsafe` to say so at its root.
pub fn check_roots(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace.members() {
        let room = rooms::at(&package.folder);
        if room.is_some_and(|room| room.unsafe_code) {
            continue;
        }
        for target in &package.targets {
            let is_crate = matches!(target.kind.as_str(), "lib" | "rlib" | "bin" | "proc-macro");
            let root = sources.iter().find(|source| Path::new(&source.path) == target.root);
            let Some(root) = root.filter(|_| is_crate) else { continue };
            let code: String = root.code.split_whitespace().collect();
            if !code.contains("#![forbid(unsafe_code)]") {
                let what = format!("crate `{}` lacks `#![forbid(unsafe_code)]`", target.name);
                findings.push(Finding { file: root.path.clone(), line: 1, what });
            }
        }
    }
    findings
}

/// A block and an implementation claim that something holds; `unsafe fn` and `unsafe trait` only
/// ask for it, and rustc and clippy see to their `# Safety` sections.
fn needs_note(code: &str) -> bool {
    let after = code["unsafe".len()..].trim_start();
    after.starts_with('{') || after.starts_with("impl")
}

/// A comment block counts as a whole: it is its end that has to be near.
fn has_note(text: &str, line: usize) -> bool {
    let is_note = |line: &str| line.starts_with("// SAFETY:");
    let mut above: Vec<&str> = text.lines().take(line).map(str::trim).collect();
    if above.pop().is_some_and(|own| own.contains("// SAFETY:")) {
        return true;
    }
    above.reverse();
    (0..NOTE_LINES_MAX.min(above.len())).any(|start| {
        above[start..].iter().take_while(|line| line.starts_with("//")).any(|line| is_note(line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Package, Target};

    // Samples are put together here so that no line of this file looks like the real thing.
    fn sample(note: &str, between: &str) -> String {
        format!("fn a() {{\n{note}{between}    let b = {} {{ c() }};\n}}\n", "unsafe")
    }

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_room_that_is_not_listed_may_not_use_it_even_with_a_note() {
        let text = sample("    // SAFETY: it is fine.\n", "");
        for path in ["core/queue/src/lib.rs", "core/ring2/src/lib.rs", "tests/a.rs"] {
            assert!(found(path, &text)[0].contains("outside the rooms"), "{path}");
        }
        assert!(found("core/ring/src/lib.rs", &text).is_empty());
    }

    #[test]
    fn the_note_ends_within_three_lines_above() {
        let path = "core/ring/src/a.rs";
        let note = "    // SAFETY: one,\n    // two,\n    // three,\n    // four,\n    // five.\n";
        assert!(found(path, &sample(note, "")).is_empty());
        assert!(found(path, &sample(note, "    a();\n    b();\n")).is_empty());
        assert_eq!(found(path, &sample(note, "    a();\n    b();\n    c();\n")).len(), 1);
        assert_eq!(found(path, &sample("", "")).len(), 1);
        assert_eq!(found(path, &sample("    // Safe.\n", "")).len(), 1);
    }

    #[test]
    fn an_implementation_needs_a_note_and_a_declaration_does_not() {
        let path = "drivers/local/src/a.rs";
        assert_eq!(found(path, &format!("{} impl Send for A {{}}", "unsafe")).len(), 1);
        assert!(found(path, &format!("pub {} fn a() {{}}", "unsafe")).is_empty());
    }

    #[test]
    fn a_word_in_a_comment_or_a_string_is_not_code() {
        assert!(found("core/queue/src/a.rs", "// unsafe fn\nlet a = \"unsafe\";").is_empty());
    }

    #[test]
    fn a_crate_root_without_the_ban_is_found() {
        let target = |kind: &str, root: &str| Target {
            name: "t".into(),
            kind: kind.into(),
            root: root.into(),
        };
        let package = |folder: &str, targets| Package {
            folder: folder.into(),
            member: true,
            targets,
            ..Package::default()
        };
        let workspace = Workspace {
            root: "/w".into(),
            packages: vec![
                package(
                    "core/queue",
                    vec![
                        target("lib", "core/queue/src/lib.rs"),
                        target("test", "core/queue/tests/a.rs"),
                    ],
                ),
                package("core/ring", vec![target("lib", "core/ring/src/lib.rs")]),
                package("core/sched", vec![target("lib", "core/sched/src/lib.rs")]),
            ],
        };
        let sources = [
            Source::new("core/queue/src/lib.rs", "// #![forbid(unsafe_code)]\n"),
            Source::new("core/queue/tests/a.rs", ""),
            Source::new("core/ring/src/lib.rs", ""),
            Source::new("core/sched/src/lib.rs", "#![forbid(unsafe_code)]\n"),
        ];
        let found = check_roots(&workspace, &sources);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].file, "core/queue/src/lib.rs");
    }
}

//! The list of survivors that are known, with the reason of each.
//!
//! An entry names file, function and change, and no line: code may move. It is a line
//! `FILE | FUNCTION | CHANGE`, with ` | 2` for the second of the same in one function, and under
//! it, indented, its reason, which begins with `equivalent:` or `cost:`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::tree::Numbered;
use crate::workspace::Error;

/// Where the list stands.
pub const LIST: &str = "core/sched/mutants.txt";

/// First words of a reason.
const KINDS: [&str; 2] = ["equivalent: ", "cost: "];

/// The names of mutations, in their order. Equal ones of one function are counted.
pub fn names(all: &[Numbered]) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let name = |one: &Numbered| {
        let mutation = &one.mutation;
        let name = format!("{} | {} | {}", one.path, mutation.function, mutation.change);
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name} | {count}") }
    };
    all.iter().map(name).collect()
}

/// The reasons by name.
pub fn list(root: &Path) -> Result<BTreeMap<String, String>, Error> {
    match fs::read_to_string(root.join(LIST)) {
        Ok(text) => read(&text),
        Err(error) => Err(format!("{LIST}: {error}")),
    }
}

fn read(text: &str) -> Result<BTreeMap<String, String>, Error> {
    let mut entries: Vec<(String, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let fault = |what: &str| Err(format!("{LIST}:{}: {what}", at + 1));
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match (line.strip_prefix("    "), entries.last_mut()) {
            (Some(reason), Some((_, whole))) if !whole.is_empty() => {
                whole.push(' ');
                whole.push_str(reason.trim());
            }
            (Some(reason), Some((_, whole))) => {
                if !KINDS.iter().any(|kind| reason.starts_with(kind)) {
                    return fault("a reason begins with `equivalent: ` or `cost: `");
                }
                whole.push_str(reason.trim());
            }
            (Some(_), None) => return fault("a reason stands under its mutation"),
            (None, Some((name, reason))) if reason.is_empty() => {
                return fault(&format!("no reason for {name}"));
            }
            (None, _) => entries.push((line.trim().to_owned(), String::new())),
        }
    }
    match entries.last() {
        Some((name, reason)) if reason.is_empty() => Err(format!("{LIST}: no reason for {name}")),
        _ => Ok(entries.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::points::Mutation;

    #[test]
    fn a_name_has_no_line_and_equal_changes_of_a_function_are_counted() {
        let one = |line: usize, function: &str| Numbered {
            number: line,
            path: "a.rs".to_owned(),
            mutation: Mutation {
                function: function.to_owned(),
                change: "a < b: < becomes <=".to_owned(),
                line,
            },
        };
        let found = names(&[one(3, "f"), one(7, "f"), one(9, "g")]);
        let name = "a.rs | f | a < b: < becomes <=";
        assert_eq!(found[..2], [name.to_owned(), format!("{name} | 2")]);
        assert_eq!(found[2], "a.rs | g | a < b: < becomes <=");
    }

    #[test]
    fn an_entry_without_a_reason_of_a_known_kind_is_refused() {
        let text = "# why\n\na | f | x\n    equivalent: one\n    two\nb | g | y\n    cost: three\n";
        let known = read(text).unwrap();
        assert_eq!(known["a | f | x"], "equivalent: one two");
        assert_eq!(known["b | g | y"], "cost: three");
        for (text, fault) in [
            ("a\n", "no reason for a"),
            ("a\nb\n    cost: x\n", "mutants.txt:2: no reason for a"),
            ("a\n    because\n", "mutants.txt:2: a reason begins"),
            ("    cost: x\n", "mutants.txt:1: a reason stands under"),
        ] {
            assert!(read(text).is_err_and(|said| said.contains(fault)), "{text}");
        }
    }
}

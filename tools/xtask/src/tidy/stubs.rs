//! Work left for later: macros that panic where code should stand, and notes to oneself.
//!
//! The patterns are put together from halves, so that this file does not find itself.

use super::Finding;
use super::source::{Source, words};

/// Macros that say "not written yet". Looked for in code only.
const MACROS: [(&str, &str); 2] = [("to", "do"), ("unimple", "mented")];
/// Words that say "come back here". Looked for everywhere, comments and documents included.
const NOTES: [(&str, &str); 3] = [("XX", "X"), ("TO", "DO"), ("FIX", "ME")];

/// Looks for both in one file of any kind; lock files are other people's text.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if source.path.ends_with(".lock") {
        return findings;
    }
    let mut find = |line, stub: String| {
        let what = format!("stub `{stub}`, finish it or leave it out, the bound is 0");
        findings.push(Finding { file: source.path.clone(), line, what });
    };
    for (head, tail) in MACROS {
        let name = [head, tail].concat();
        for at in source.words(&name) {
            if source.code[at + name.len()..].trim_start().starts_with('!') {
                find(source.line_at(at), format!("{name}!"));
            }
        }
    }
    for (index, line) in source.text.lines().enumerate() {
        for (head, tail) in NOTES {
            let note = [head, tail].concat();
            if !words(line, &note).is_empty() {
                find(index + 1, note);
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&Source::new(path, text)).len()
    }

    #[test]
    fn every_macro_and_every_note_is_found() {
        for (head, tail) in MACROS {
            assert_eq!(found("a.rs", &format!("fn a() {{ {head}{tail}!() }}")), 1, "{head}{tail}");
            assert_eq!(found("a.rs", &format!("fn a() {{ {head}{tail} !() }}")), 1);
            assert_eq!(found("a.rs", &format!("// not a {head}{tail}!() in a comment")), 0);
        }
        for (head, tail) in NOTES {
            assert_eq!(found("a.rs", &format!("// {head}{tail}: later")), 1, "{head}{tail}");
            assert_eq!(found("docs/a.md", &format!("a\n{head}{tail}\n")), 1);
        }
    }

    #[test]
    fn a_part_of_a_longer_word_is_no_stub() {
        assert_eq!(found("a.sh", "mktemp weir.XXXXXX"), 0);
        assert_eq!(found("Cargo.lock", &["XX", "X"].concat()), 0);
    }
}

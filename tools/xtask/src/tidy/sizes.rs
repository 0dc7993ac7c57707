//! Sizes a reader can hold: a file, a function, a line.
//!
//! The bounds are the house style's: file 600 lines without tests, function 70 lines, line 100
//! columns. Files of integration tests and benches may be as long as their subject asks for.

use super::Finding;
use super::source::{Source, closing_brace};

/// Lines of a file, not counting its test modules.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, from the one with `fn` to the one with its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Characters of a line.
const LINE_COLUMNS_MAX: usize = 100;

/// Holds one Rust file against the three bounds.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line, what: &str, value: usize, unit: &str, bound: usize| {
        if value > bound {
            let what = format!("{what} has {value} {unit}, the bound is {bound}");
            findings.push(Finding { file: source.path.clone(), line, what });
        }
    };
    if !is_test_file(&source.path) {
        let lines = source.text.lines().count() - test_lines(source);
        find(1, "file", lines, "lines without tests", FILE_LINES_MAX);
    }
    for function in functions(source) {
        let what = format!("function `{}`", function.name);
        find(function.line, &what, function.lines, "lines", FUNCTION_LINES_MAX);
    }
    for (index, line) in source.text.lines().enumerate() {
        find(index + 1, "line", line.chars().count(), "columns", LINE_COLUMNS_MAX);
    }
    findings
}

fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// How many lines stand in inline modules that are compiled for tests only.
fn test_lines(source: &Source) -> usize {
    let code = &source.code;
    let mut lines = 0;
    let mut counted_to = 0;
    for (at, _) in code.match_indices("#[cfg(") {
        let condition = &code[at + "#[cfg(".len()..];
        let is_test = condition.starts_with("test)") || condition.starts_with("all(test,");
        if at < counted_to || !is_test {
            continue;
        }
        if let Some(open) = module_brace(code, at) {
            counted_to = closing_brace(code, open);
            lines += source.line_at(counted_to) - source.line_at(at) + 1;
        }
    }
    lines
}

/// The brace that opens the inline module whose attributes start at `at`.
fn module_brace(code: &str, at: usize) -> Option<usize> {
    let mut rest = code[at..].trim_start();
    while rest.starts_with('#') {
        rest = rest[rest.find(']')? + 1..].trim_start();
    }
    let name = rest.trim_start_matches("pub ").strip_prefix("mod ")?;
    let after = name.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
    after.starts_with('{').then(|| code.len() - after.len())
}

struct Function<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
}

fn functions(source: &Source) -> Vec<Function<'_>> {
    let code = &source.code;
    let named = source.words("fn").into_iter().filter_map(|at| {
        let rest = code[at + 2..].trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && !"_#$".contains(c))?;
        // `fn(u8) -> u8` is a type; a declaration in a trait ends before any brace opens.
        let name = &rest[..end];
        let open = if name.is_empty() { None } else { body(code, at) }?;
        let line = source.line_at(at);
        let lines = source.line_at(closing_brace(code, open)) - line + 1;
        Some(Function { name, line, lines })
    });
    named.collect()
}

/// Where the body of the function at `at` opens, if it has one.
fn body(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (here, byte) in code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(here),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_file_of_601_lines_is_one_too_many_and_its_test_module_does_not_count() {
        let code = "//\n".repeat(600);
        let tests = "#[cfg(test)]\n#[allow(unused)]\nmod tests {\n    // }\n\n}\n";
        assert!(whats("a/src/b.rs", &format!("{code}{tests}")).is_empty());
        assert!(whats("a/tests/b.rs", &format!("{code}//\n")).is_empty());
        let found = whats("a/src/b.rs", &format!("{code}//\n{tests}"));
        assert_eq!(found, ["a/src/b.rs:1: file has 601 lines without tests, the bound is 600"]);
    }

    #[test]
    fn code_behind_a_test_import_or_behind_the_tests_still_counts() {
        let text = format!("#[cfg(test)]\nuse a::b;\n{}", "//\n".repeat(600));
        assert_eq!(whats("a.rs", &text).len(), 1);
        let text = format!("#[cfg(all(test, not(loom)))]\nmod t {{\n}}\n{}", "//\n".repeat(601));
        assert_eq!(whats("a.rs", &text).len(), 1);
    }

    #[test]
    fn a_function_of_71_lines_is_one_too_many() {
        let of = |lines: usize| {
            format!(
                "impl A {{\n    fn b<'a>(\n        c: [u8; {{ 4 }}],\n    ) {{\n{}    }}\n}}\n",
                "        '}';\n".repeat(lines - 4)
            )
        };
        assert!(whats("a.rs", &of(70)).is_empty());
        assert_eq!(whats("a.rs", &of(71)), ["a.rs:2: function `b` has 71 lines, the bound is 70"]);
    }

    #[test]
    fn a_declaration_and_a_function_type_have_no_body() {
        let text = format!("trait A {{ fn b(&self); }}\ntype C = fn(u8);\n{}", "//\n".repeat(80));
        assert!(whats("a.rs", &text).is_empty());
    }

    #[test]
    fn a_line_of_101_columns_is_one_too_many_and_columns_are_characters() {
        assert!(whats("a.rs", &"ä".repeat(100)).is_empty());
        let found = whats("a.rs", &format!("\n{}", "x".repeat(101)));
        assert_eq!(found, ["a.rs:2: line has 101 columns, the bound is 100"]);
    }
}

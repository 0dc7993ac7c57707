//! Citations in comments and documents: the document has to be in the repository, and the section
//! in the document.
//!
//! A citation is the path of the document, a comma, and then the number behind the word, as in
//! docs/behaviour/block-layer.md, section 4.2; several numbers are joined by commas or `and`.
//! Between documents a link takes the place of the path. A section cited in a comment without a
//! document is found as well, unless it is one of an RFC. In docs/behaviour it is one of the same
//! document.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::prose::passages;
use super::source::Source;

/// The numbers of the headings of each document, by path.
type Sections = BTreeMap<String, BTreeSet<String>>;

/// Documents whose own sections may be cited without a path.
const NUMBERED: &str = "docs/behaviour/";

/// Looks up every document and section that is cited in the tree.
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let documents = sources.iter().filter(|source| source.path.ends_with(".md"));
    let sections: Sections =
        documents.map(|source| (source.path.clone(), headings(&source.text))).collect();
    let paths: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    sources.iter().flat_map(|source| check_one(source, &sections, &paths)).collect()
}

fn check_one(source: &Source, sections: &Sections, paths: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for passage in passages(source) {
        let text = passage.joined();
        let mut find = |at: usize, what: String| {
            let (file, line) = (source.path.clone(), passage.line_at(at));
            findings.push(Finding { file, line, what });
        };
        for (at, path) in documents(&text, &source.path) {
            if !exists(&path, paths) {
                find(at, format!("`{path}` is cited and not in the repository"));
            }
        }
        for (at, numbers) in section_lists(&text) {
            let document = match document_before(&text[..at], &source.path) {
                Some(path) => path,
                None if source.path.starts_with(NUMBERED) => source.path.clone(),
                None if is_rfc(&text[..at]) => continue,
                None if !source.is_rust() => continue,
                None => {
                    find(at, String::from("a section is cited, and no document before it"));
                    continue;
                }
            };
            let Some(known) = sections.get(&document) else { continue };
            for number in numbers.iter().filter(|number| !known.contains(*number)) {
                find(at, format!("section {number} is cited and not in `{document}`"));
            }
        }
    }
    findings
}

/// Whether a file of this path is tracked, or a folder with files in it.
fn exists(path: &str, paths: &BTreeSet<&str>) -> bool {
    let below = format!("{}/", path.trim_end_matches('/'));
    paths.contains(path)
        || paths.range(below.as_str()..).next().is_some_and(|p| p.starts_with(&below))
}

/// The numbers at the front of a document's headings, as `4` of `## 4 Merging`.
fn headings(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let words = headings.filter_map(|line| line.trim_start_matches('#').split_whitespace().next());
    words.filter(|word| is_number(word)).map(|word| word.trim_end_matches('.').into()).collect()
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Documents that are named in a text, with the position of each: paths below `docs/`, and in a
/// document the targets of links that lead to a file.
fn documents(text: &str, file: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("docs/") {
        let apart = !text[..at].ends_with(|c: char| c.is_alphanumeric() || "/._-".contains(c));
        let path = path_at(&text[at..]);
        if apart && path.ends_with(".md") {
            found.push((at, String::from(path)));
        }
    }
    if file.ends_with(".md") {
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains(':') {
                found.push((at, resolved(target, file)));
            }
        }
    }
    found
}

fn path_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c));
    text[..end.unwrap_or(text.len())].trim_end_matches('.')
}

/// A link's target, seen from the root of the repository.
fn resolved(target: &str, file: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The document that ends right before a section is named.
fn document_before(text: &str, file: &str) -> Option<String> {
    let text = text.trim_end().strip_suffix(',')?;
    let text = text.strip_suffix('`').unwrap_or(text);
    if let Some(link) = text.strip_suffix(')') {
        let target = &link[link.rfind("](")? + 2..];
        return Some(resolved(target, file));
    }
    let start = text.rfind(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c));
    let path = &text[start.map_or(0, |at| at + 1)..];
    path.ends_with(".md").then(|| String::from(path))
}

fn is_rfc(text: &str) -> bool {
    let text = text.trim_end().trim_end_matches(',').trim_end_matches(|c: char| c.is_ascii_digit());
    text.ends_with("RFC ")
}

/// Every place of a text that names sections by number: its position and the numbers.
fn section_lists(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut lists = Vec::new();
    for (at, _) in text.match_indices("section") {
        if text[..at].ends_with(char::is_alphanumeric) {
            continue;
        }
        let rest = &text[at + "section".len()..];
        let mut numbers = Vec::new();
        for word in rest.strip_prefix('s').unwrap_or(rest).split_whitespace() {
            let bare = word.trim_end_matches([',', '.', ';', ':', ')', '`']);
            if is_number(bare) {
                numbers.push(String::from(bare));
            } else if numbers.is_empty() || !matches!(word, "and" | "to" | "or") {
                break;
            }
            if word.ends_with(['.', ';', ':', ')']) {
                break;
            }
        }
        if !numbers.is_empty() {
            lists.push((at, numbers));
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let cited = "# A\n\n## 1 One\n\n### 1.2 Two\n\n## 3. Three\n";
        let mut sources = vec![Source::new("docs/a.md", cited), Source::new(path, text)];
        sources.push(Source::new("core/queue/src/lib.rs", ""));
        check(&sources).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_document_that_is_not_there_is_found_in_comments_and_links() {
        assert!(found("b.rs", "// As docs/a.md says.").is_empty());
        assert!(found("b.rs", "// As docs/b.md\n// says.")[0].starts_with("b.rs:1: `docs/b.md`"));
        assert!(
            found("docs/b.md", "[a](a.md) [r](../core/queue/) [w](https://a.b/c.md)").is_empty()
        );
        assert_eq!(
            found("docs/b.md", "one\n[b](c/b.md)"),
            ["docs/b.md:2: `docs/c/b.md` is cited and not in the repository"]
        );
    }

    #[test]
    fn a_section_that_is_not_there_is_found_wherever_the_line_breaks() {
        assert!(found("b.rs", "// docs/a.md, sections 1, 1.2 and 3.").is_empty());
        let line = "/// Rule of docs/a.md,\n/// section 1.3 and no other.";
        assert_eq!(found("b.rs", line), ["b.rs:2: section 1.3 is cited and not in `docs/a.md`"]);
        assert_eq!(found("b.rs", "// docs/a.md, sections 1 to 2)").len(), 1);
        assert_eq!(found("docs/b.md", "[a](a.md), section 2").len(), 1);
    }

    #[test]
    fn a_section_of_no_document_is_found() {
        assert_eq!(found("b.rs", "// As in block-core section 7.").len(), 1);
        assert!(found("b.rs", "// RFC 4648, section 10. And this section.").is_empty());
        assert_eq!(found("docs/behaviour/b.md", "## 1 A\n\nas section 2 says").len(), 1);
        assert!(found("docs/behaviour/b.md", "## 1 A\n\nas section 1 says").is_empty());
    }
}

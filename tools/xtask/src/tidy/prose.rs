//! The sentences of a file: comments of Rust files and paragraphs of documents, line by line.

use super::source::Source;

/// Lines of prose that belong together: a block of comment lines, or a paragraph.
#[derive(Debug, Default)]
pub struct Passage {
    /// The number of the first line, counted from 1.
    pub first: usize,
    /// Its lines without comment marks and blanks around them.
    pub lines: Vec<String>,
}

impl Passage {
    /// All of it on one line.
    pub fn joined(&self) -> String {
        self.lines.join(" ")
    }

    /// The line, counted from 1, of a byte position in [`joined`](Passage::joined).
    pub fn line_at(&self, position: usize) -> usize {
        let mut end = 0;
        let before = self.lines.iter().take_while(|line| {
            end += line.len() + 1;
            end <= position
        });
        self.first + before.count()
    }
}

/// The passages of a Rust file or a document; of other files none.
pub fn passages(source: &Source) -> Vec<Passage> {
    let mut passages: Vec<Passage> = Vec::new();
    let mut open = false;
    let mut fenced = false;
    let codes = source.code.lines().map(Some).chain(std::iter::repeat(None));
    for (index, (line, code)) in source.text.lines().zip(codes).enumerate() {
        let said = match code {
            Some(code) if source.is_rust() => comment(line, code),
            _ if source.path.ends_with(".md") => {
                let fence = line.trim_start().starts_with("```");
                fenced ^= fence;
                (!fence && !fenced && !line.trim().is_empty()).then(|| line.trim())
            }
            _ => None,
        };
        let Some(said) = said else {
            open = false;
            continue;
        };
        // A remark behind code stands alone.
        let alone = source.is_rust() && !line.trim_start().starts_with("//");
        if !open || alone {
            passages.push(Passage { first: index + 1, lines: Vec::new() });
        }
        passages.last_mut().expect("one was pushed").lines.push(String::from(said));
        open = !alone;
    }
    passages
}

/// The comment of a line, whose `code` has blanks where comments and literals are.
fn comment<'a>(line: &'a str, code: &str) -> Option<&'a str> {
    let starts = line.match_indices("//").map(|(at, _)| at);
    let is_comment = |at: &usize| {
        // Literals are blank in the code as well, but close before the comment begins.
        code.get(*at..).is_some_and(|rest| rest.trim().is_empty())
            && line[..*at].matches('"').count().is_multiple_of(2)
            && !line[..*at].ends_with(':')
    };
    let at = starts.into_iter().find(is_comment)?;
    Some(line[at..].trim_start_matches(['/', '!']).trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> Vec<(usize, String)> {
        let passages = passages(&Source::new(path, text));
        passages.iter().map(|passage| (passage.first, passage.joined())).collect()
    }

    #[test]
    fn comments_are_passages_and_code_and_literals_are_not() {
        let text = "//! One\n//! two.\nlet a = \"// b\"; // three\n/// four\nfn f() {}\n";
        let expected = [(1, "One two."), (3, "three"), (4, "four")];
        assert_eq!(of("a.rs", text), expected.map(|(line, said)| (line, String::from(said))));
    }

    #[test]
    fn paragraphs_are_passages_and_fenced_code_is_not() {
        let text = "# One\n\ntwo\n  three\n\n```sh\nfour\n```\nfive\n";
        let expected = [(1, "# One"), (3, "two three"), (9, "five")];
        assert_eq!(of("a.md", text), expected.map(|(line, said)| (line, String::from(said))));
        assert!(of("a.toml", text).is_empty());
    }

    #[test]
    fn a_position_is_on_the_line_it_came_from() {
        let passage = Passage { first: 7, lines: vec!["ab".into(), "cd".into()] };
        assert_eq!([0, 2, 3, 4].map(|at| passage.line_at(at)), [7, 7, 8, 8]);
    }
}

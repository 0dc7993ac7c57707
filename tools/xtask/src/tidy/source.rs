//! A file of the tree, and the same file with comments and literals blanked out.
//!
//! The blanking is a small scanner for Rust's comments, strings and characters; it is no parser.
//! It keeps every newline, so that a position in the blanked text has the same line as in the file.

/// One text file of the tree.
#[derive(Debug)]
pub struct Source {
    /// Relative to the workspace root, with `/` between folders.
    pub path: String,
    /// The file as it is.
    pub text: String,
    /// For Rust files: `text` with comments, strings and characters replaced by blanks.
    pub code: String,
}

impl Source {
    /// Takes a file's content; only a Rust file gets its code blanked.
    pub fn new(path: &str, text: impl Into<String>) -> Source {
        let text = text.into();
        let code = if path.ends_with(".rs") { blank(&text) } else { String::new() };
        Source { path: path.to_owned(), text, code }
    }

    /// Whether it is a Rust source file.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The line of the first line of text holding `needle`, else 1.
    pub fn line_with(&self, needle: &str) -> usize {
        self.text.lines().position(|line| line.contains(needle)).map_or(1, |index| index + 1)
    }

    /// Byte positions in the code where `word` stands alone, not as a part of a longer name.
    pub fn words(&self, word: &str) -> Vec<usize> {
        words(&self.code, word)
    }

    /// The line, counted from 1, of a byte position in the code.
    pub fn line_at(&self, position: usize) -> usize {
        1 + self.code[..position].matches('\n').count()
    }
}

/// Byte positions where `word` stands alone in `text`.
pub fn words(text: &str, word: &str) -> Vec<usize> {
    let apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    text.match_indices(word)
        .filter(|(at, _)| {
            apart(text[..*at].chars().next_back()) && apart(text[at + word.len()..].chars().next())
        })
        .map(|(at, _)| at)
        .collect()
}

/// The byte position after the brace that closes the one at `open`, or the end of the text.
pub fn closing_brace(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

fn blank(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        match literal_end(&chars, at) {
            Some(end) => {
                code.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
                at = end;
            }
            None => {
                code.push(chars[at]);
                at += 1;
            }
        }
    }
    code
}

/// Where the comment or literal that starts at `at` ends, or `None` if none starts there.
fn literal_end(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1);
    match chars[at] {
        '/' if next == Some(&'/') => Some(position(chars, at, |c| c == '\n')),
        '/' if next == Some(&'*') => Some(block_comment_end(chars, at)),
        '"' => Some(string_end(chars, at)),
        '\'' => character_end(chars, at),
        'r' | 'b' | 'c' if at == 0 || !is_name(chars[at - 1]) => raw_string_end(chars, at),
        _ => None,
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn position(chars: &[char], from: usize, stop: impl Fn(char) -> bool) -> usize {
    (from..chars.len()).find(|&at| stop(chars[at])).unwrap_or(chars.len())
}

// Block comments nest in Rust.
fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut here = at;
    while here + 1 < chars.len() {
        match (chars[here], chars[here + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                here += 1;
                continue;
            }
        }
        here += 2;
        if depth == 0 {
            return here;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut here = at + 1;
    while here < chars.len() {
        match chars[here] {
            '\\' => here += 2,
            '"' => return here + 1,
            _ => here += 1,
        }
    }
    chars.len()
}

// `'a'` and `'\n'` are characters; `'a` without a closing quote is a lifetime or a label.
fn character_end(chars: &[char], at: usize) -> Option<usize> {
    if chars.get(at + 1) == Some(&'\\') {
        Some((position(chars, at + 3, |c| c == '\'') + 1).min(chars.len()))
    } else {
        (chars.get(at + 2) == Some(&'\'')).then_some(at + 3)
    }
}

// r"..", r#".."#, br"..", cr"..": no escapes inside, and the hashes must be matched.
fn raw_string_end(chars: &[char], at: usize) -> Option<usize> {
    let r = if chars[at] == 'r' { at } else { at + 1 };
    if chars.get(r) != Some(&'r') {
        return None;
    }
    let quote = position(chars, r + 1, |c| c != '#');
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    let hashes = quote - r - 1;
    let mut here = quote + 1;
    loop {
        here = position(chars, here, |c| c == '"') + 1;
        if here >= chars.len() {
            return Some(chars.len());
        }
        if position(chars, here, |c| c != '#') - here >= hashes {
            return Some(here + hashes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn blanks(text: &str, code: &str) {
        assert_eq!(blank(text), code, "of {text}");
    }

    #[test]
    fn comments_and_literals_become_blanks_and_code_stays() {
        blanks("a // b\nc", "a     \nc");
        blanks("a /* b /* c */ d */ e", "a                   e");
        blanks(r#"a("{\"}", b)"#, "a(      , b)");
        blanks(r##"a(r#"{"}"#, b)"##, "a(        , b)");
        blanks("(br\"\\\", b'\\'', '{', c\"}\")", "(     , b    ,    , c   )");
    }

    #[test]
    fn lifetimes_labels_and_raw_names_are_code() {
        let code = "fn r#type<'a>(b: &'a str) { 'outer: loop { break 'outer; } }";
        blanks(code, code);
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_file() {
        for text in ["\"abc", "r#\"abc\"", "/* abc", "'\\", "r\"", "// abc", "'", "\"a\\"] {
            assert_eq!(blank(text).len(), text.len(), "of {text}");
        }
    }

    #[test]
    fn a_word_is_not_found_inside_a_longer_name() {
        let source = Source::new("a.rs", "unsafe_code unsafe fn \"unsafe\"\nnot_unsafe; unsafe");
        let lines: Vec<usize> =
            source.words("unsafe").into_iter().map(|at| source.line_at(at)).collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn a_brace_is_closed_by_its_own_partner() {
        let code = "fn a() { { } } fn b() { }";
        assert_eq!(&code[..closing_brace(code, 7)], "fn a() { { } }");
        assert_eq!(closing_brace("{ {", 0), 3);
    }
}

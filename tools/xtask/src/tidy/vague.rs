//! Words that hide the subject of a sentence, banned in comments and documents: a rule names the
//! thread, the lane, the client or the user that it is about. Text in backquotes is code.

use super::Finding;
use super::prose::passages;
use super::source::{Source, words};

/// Words for persons that are none.
const WORDS: [&str; 4] = ["whoever", "somebody", "nobody", "someone"];
/// Comments that only point elsewhere.
const PHRASES: [&str; 2] = ["see the module", "see the file"];

/// Looks at the sentences of a Rust file or a document.
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for passage in passages(source) {
        let text = without_code(&passage.joined()).to_lowercase();
        let named = WORDS.iter().flat_map(|word| at_each(words(&text, word), word));
        let phrases = PHRASES.iter().flat_map(|phrase| {
            at_each(text.match_indices(phrase).map(|(at, _)| at).collect(), phrase)
        });
        for (at, word) in named.chain(phrases) {
            let what = format!("`{word}` hides what the sentence is about, name it");
            findings.push(Finding { file: source.path.clone(), line: passage.line_at(at), what });
        }
    }
    findings
}

fn at_each(places: Vec<usize>, word: &str) -> impl Iterator<Item = (usize, &str)> {
    places.into_iter().map(move |at| (at, word))
}

/// The text with blanks in the place of code between backquotes.
fn without_code(text: &str) -> String {
    let mut code = false;
    let blank = |c: char| {
        code ^= c == '`';
        if code && c.is_ascii() { ' ' } else { c }
    };
    text.chars().map(blank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let found = check(&Source::new(path, text));
        found.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn every_word_and_phrase_is_found_in_comments_and_documents() {
        let banned = ["whoever", "somebody", "nobody", "someone", "see the module", "see the file"];
        for word in banned {
            assert_eq!(found("a.rs", &format!("fn a() {{}}\n/// One {word} two.")), [2], "{word}");
            let capital = word[..1].to_uppercase() + &word[1..];
            assert_eq!(found("a.rs", &format!("let a = 1; // {capital}.")), [1], "{word}");
            assert_eq!(found("docs/a.md", &format!("# A\n\none\n{word}'s two")), [4], "{word}");
        }
        assert_eq!(found("a.rs", "// As a reader will see the\n// module says."), [1]);
    }

    #[test]
    fn code_literals_and_longer_words_are_left_alone() {
        let text = "/// The user `nobody`, and a busybody.\nlet nobody = \"whoever\";";
        assert!(found("a.rs", text).is_empty());
        assert!(found("a.md", "```sh\nsu nobody\n```\n").is_empty());
    }
}

//! Checks that every parser of text has to pass.

/// Lines of a text, at least one: an error at the end of an empty file is of its first line.
pub(crate) fn lines(text: &str) -> usize {
    text.split('\n').count()
}

/// Asserts that a message begins with `before`, a line within the text and a colon.
pub(crate) fn names_a_line(what: &str, before: &str, text: &str) {
    let number = what.strip_prefix(before).and_then(|rest| rest.split_once(": "));
    let line = number.and_then(|(number, _)| number.parse().ok()).unwrap_or(0);
    assert!((1..=lines(text)).contains(&line), "{what:?} names no line of {}", lines(text));
}

//! The words of a table line, and numbers among them with their bounds.

use std::ops::RangeInclusive;
use std::str::SplitAsciiWhitespace;

/// Words separated by blanks, taken one by one.
pub(super) struct Words<'a>(std::iter::Peekable<SplitAsciiWhitespace<'a>>);

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Words<'a> {
        Words(text.split_ascii_whitespace().peekable())
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    pub(super) fn is_empty(&mut self) -> bool {
        self.0.peek().is_none()
    }

    /// The next word as a number.
    pub(super) fn number(&mut self, name: &str, range: RangeInclusive<u32>) -> Result<u32, String> {
        number(name, self.next(), range)
    }

    /// A count, and so many words.
    pub(super) fn list(&mut self, name: &str, most: u32) -> Result<Vec<String>, String> {
        let count = self.number(name, 0..=most)?;
        let words: Vec<String> = (0..count).map_while(|_| self.next()).map(str::to_owned).collect();
        if words.len() < count as usize {
            return Err(format!("{name}={count}, and {} follow", words.len()));
        }
        Ok(words)
    }
}

/// A word as a number within bounds.
pub(super) fn number(
    name: &str,
    word: Option<&str>,
    range: RangeInclusive<u32>,
) -> Result<u32, String> {
    let (least, most) = (range.start(), range.end());
    let Some(word) = word else {
        return Err(format!("{name} is missing: a number in {least}..={most}"));
    };
    match word.parse::<u32>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("{name}={word} is outside {least}..={most}")),
    }
}

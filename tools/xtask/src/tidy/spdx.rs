//! A small evaluator of SPDX licence expressions.
//!
//! Grammar and precedence are those of the SPDX specification, annex "SPDX licence expressions":
//! `+` binds tightest, then WITH, AND, OR; parentheses group. The form `A/B` that crates.io took
//! before it asked for SPDX means `A OR B`.

/// Whether the terms of `expression` can be met by choosing among licences that `allows`.
///
/// `allows` is asked about one licence at a time, with its exception where it has one
/// (`Apache-2.0 WITH LLVM-exception`). The error says what cannot be read.
pub fn satisfied(expression: &str, allows: impl Fn(&str) -> bool) -> Result<bool, String> {
    let spaced = ["(", ")", "/"]
        .iter()
        .fold(expression.to_owned(), |text, mark| text.replace(mark, &format!(" {mark} ")));
    let mut reader = Reader { words: spaced.split_whitespace().collect(), at: 0, allows };
    let answer = reader.choice()?;
    match reader.peek() {
        None => Ok(answer),
        Some(word) => Err(format!("`{word}` follows a complete expression")),
    }
}

struct Reader<'a, F> {
    words: Vec<&'a str>,
    at: usize,
    allows: F,
}

impl<'a, F: Fn(&str) -> bool> Reader<'a, F> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let found = self.peek().is_some_and(|word| wanted.contains(&word));
        self.at += usize::from(found);
        found
    }

    // Both sides are read before they are joined: a short circuit would leave words unread.
    fn choice(&mut self) -> Result<bool, String> {
        let mut answer = self.conjunction()?;
        while self.take(&["OR", "/"]) {
            answer |= self.conjunction()?;
        }
        Ok(answer)
    }

    fn conjunction(&mut self) -> Result<bool, String> {
        let mut answer = self.term()?;
        while self.take(&["AND"]) {
            answer &= self.term()?;
        }
        Ok(answer)
    }

    fn term(&mut self) -> Result<bool, String> {
        if self.take(&["("]) {
            let answer = self.choice()?;
            return if self.take(&[")"]) { Ok(answer) } else { Err("`)` is missing".to_owned()) };
        }
        let licence = self.identifier()?;
        if self.take(&["WITH"]) {
            let exception = self.identifier()?;
            return Ok((self.allows)(&format!("{licence} WITH {exception}")));
        }
        // `A+` offers A itself among others, so allowing A is enough.
        Ok((self.allows)(licence.strip_suffix('+').unwrap_or(licence)))
    }

    fn identifier(&mut self) -> Result<&'a str, String> {
        let word = self.peek().ok_or("a licence is missing at the end")?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-+:".contains(c);
        if matches!(word, "AND" | "OR" | "WITH") || !word.chars().all(is_name) {
            return Err(format!("`{word}` stands where a licence should"));
        }
        self.at += 1;
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(licence: &str) -> bool {
        ["MIT", "Zlib", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].contains(&licence)
    }

    #[track_caller]
    fn judge(expression: &str, expected: bool) {
        assert_eq!(satisfied(expression, allows), Ok(expected), "of {expression}");
    }

    #[test]
    fn one_allowed_side_satisfies_or_and_both_are_needed_for_and() {
        judge("MIT", true);
        judge("GPL-3.0-only", false);
        judge("MIT OR GPL-3.0-only", true);
        judge("GPL-3.0-only OR MIT", true);
        judge("MIT AND GPL-3.0-only", false);
        judge("MIT AND Zlib", true);
    }

    #[test]
    fn and_binds_tighter_than_or_and_parentheses_overrule_it() {
        judge("MIT OR GPL-3.0-only AND AGPL-3.0-only", true);
        judge("(MIT OR GPL-3.0-only) AND AGPL-3.0-only", false);
        judge("AGPL-3.0-only AND GPL-3.0-only OR MIT", true);
        judge("AGPL-3.0-only AND (GPL-3.0-only OR MIT)", false);
        judge("(MIT OR Apache-2.0) AND ((Zlib))", true);
    }

    #[test]
    fn the_old_slash_is_a_choice() {
        judge("MIT/Apache-2.0", true);
        judge("GPL-3.0 / MIT", true);
        judge("GPL-3.0/AGPL-3.0", false);
    }

    #[test]
    fn an_exception_is_judged_with_its_licence() {
        judge("Apache-2.0 WITH LLVM-exception", true);
        judge("MIT WITH LLVM-exception", false);
        judge("GPL-2.0-only WITH Classpath-exception-2.0 OR MIT", true);
        judge("Apache-2.0 WITH LLVM-exception AND GPL-2.0-only", false);
    }

    #[test]
    fn or_later_includes_the_version_itself() {
        judge("Apache-2.0+", true);
        judge("GPL-2.0+", false);
    }

    #[test]
    fn an_expression_that_cannot_be_read_is_an_error_and_not_an_answer() {
        for bad in ["", "MIT OR", "OR MIT", "(MIT", "MIT)", "MIT Zlib", "MIT, Zlib", "MIT WITH"] {
            assert!(satisfied(bad, allows).is_err(), "{bad:?} was read");
        }
        let error = satisfied("MIT Zlib", allows).unwrap_err();
        assert_eq!(error, "`Zlib` follows a complete expression");
    }
}

//! Patterns of rules: `*`, `?`, `[a-z]`, `[!a]` and alternatives with `|`, held against a whole
//! text.

/// Whether one of the alternatives of `pattern` is all of `text`.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    pattern.split('|').any(|one| {
        let one: Vec<char> = one.chars().collect();
        matches_one(&one, &text)
    })
}

/// Whether a pattern of a shell is all of a name: as in a rule, without alternatives.
#[must_use]
pub fn matches_name(pattern: &str, name: &str) -> bool {
    let [pattern, name] = [pattern, name].map(|text| text.chars().collect::<Vec<char>>());
    matches_one(&pattern, &name)
}

/// Goes back to the last star only: an earlier one can take no more than that one can.
fn matches_one(pattern: &[char], text: &[char]) -> bool {
    let (mut at, mut here) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&'*') {
            star = Some((at + 1, here));
            at += 1;
            continue;
        }
        if here == text.len() && at == pattern.len() {
            return true;
        }
        let step = text.get(here).and_then(|&c| one_char(&pattern[at..], c));
        match (step, star) {
            (Some(length), _) => (at, here) = (at + length, here + 1),
            (None, Some((after, from))) if from < text.len() => {
                star = Some((after, from + 1));
                (at, here) = (after, from + 1);
            }
            (None, _) => return false,
        }
    }
}

/// How many characters of the pattern stand for `c`; `None` if it does not match.
fn one_char(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => match class(pattern, c) {
            Some((true, length)) => Some(length),
            Some((false, _)) => None,
            // A bracket that is not closed stands for itself.
            None => (c == '[').then_some(1),
        },
        '\\' if pattern.len() > 1 => (pattern[1] == c).then_some(2),
        &plain => (plain == c).then_some(1),
    }
}

/// Whether `c` is in the class the pattern begins with, and how long that is.
fn class(pattern: &[char], c: char) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(1), Some('!' | '^'));
    let first = if negated { 2 } else { 1 };
    // A closing bracket at the first place is one of the class.
    let end = first + 1 + pattern.get(first + 1..)?.iter().position(|&c| c == ']')?;
    let (mut at, mut found) = (first, false);
    while at < end {
        match pattern[at..end] {
            [low, '-', high, ..] => {
                found |= (low..=high).contains(&c);
                at += 3;
            }
            _ => {
                found |= pattern[at] == c;
                at += 1;
            }
        }
    }
    Some((found != negated, end + 1))
}

#[cfg(test)]
mod tests {
    use super::{matches, matches_name};

    #[test]
    fn a_pattern_is_held_against_the_whole_text() {
        for (pattern, text, expected) in [
            ("sda", "sda", true),
            ("sd", "sda", false),
            ("sda", "sd", false),
            ("sd[a-z]*", "sda", true),
            ("sd[a-z]*", "sdab1", true),
            ("sd[a-z]*", "sd1", false),
            ("sd[a-z]*|mmcblk[0-9]*", "mmcblk0", true),
            ("nvme[0-9]*n[0-9]*", "nvme0n1", true),
            ("nvme[0-9]*n[0-9]*", "nvme0", false),
            ("[!s]da", "sda", false),
            ("[!s]da", "vda", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[", "[", true),
            ("?*", "", false),
            ("*", "", true),
            ("", "", true),
            ("|a", "", true),
            ("a|b", "c", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxbxxaxxc", false),
            (r"\*", "*", true),
            (r"\*", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern:?} and {text:?}");
        }
    }

    #[test]
    fn a_pattern_of_a_shell_has_no_alternatives() {
        assert!(matches_name("sd[ab]", "sdb") && matches_name("a|b", "a|b"));
        assert!(!matches_name("a|b", "b"));
    }

    #[test]
    fn a_hostile_pattern_takes_no_time_to_speak_of() {
        // Would take 2^60 steps if every star were tried at every place.
        assert!(!matches(&"*a".repeat(60), &"a".repeat(59)));
    }
}

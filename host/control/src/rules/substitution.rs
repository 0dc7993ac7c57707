//! Substitutions: `$` and `%` in the value of a rule, as in udev.

/// The names behind `$long` and `%short`; a name that begins like another comes first.
const SUBSTITUTIONS: &[(&str, &str)] = &[
    ("kernel", "k"),
    ("number", "n"),
    ("devpath", "p"),
    ("devnode", "N"),
    ("id", "b"),
    ("attr", "s"),
    ("env", "E"),
    ("major", "M"),
    ("minor", "m"),
    // These two have no short form; no text begins with a NUL.
    ("name", "\0"),
    ("links", "\0"),
    ("root", "r"),
    ("sys", "S"),
];

/// The meaning of a `$` or `%` in a value.
pub(super) enum Found<'a> {
    /// Itself: it was written twice.
    Sign(&'a str),
    /// The long name of what it stands for, and what stands in braces behind it.
    Known { what: &'static str, argument: &'a str },
    /// Nothing; the text from there on.
    Nothing(&'a str),
}

/// The first substitution of a text: what is before it, what it is, and what is behind it.
pub(super) fn substitution(text: &str) -> Option<(&str, Found<'_>, &str)> {
    let (before, from) = text.split_at(text.find(['$', '%'])?);
    let (sign, after) = from.split_at(1);
    if let Some(behind) = after.strip_prefix(sign) {
        return Some((before, Found::Sign(sign), behind));
    }
    let known = SUBSTITUTIONS.iter().find_map(|(long, short)| {
        let word = if sign == "$" { *long } else { *short };
        after.strip_prefix(word).map(|behind| (*long, behind))
    });
    Some(match known {
        Some((what, behind)) => {
            let (argument, behind) = braces(behind);
            (before, Found::Known { what, argument }, behind)
        }
        None => (before, Found::Nothing(from), after),
    })
}

/// The first `$` or `%` of a value that stands for nothing, with what follows it.
pub(super) fn meaningless(value: &str) -> Option<&str> {
    let mut rest = value;
    while let Some((_, found, behind)) = substitution(rest) {
        if let Found::Nothing(from) = found {
            return Some(from);
        }
        rest = behind;
    }
    None
}

/// The text in braces at the beginning, and the text behind.
fn braces(text: &str) -> (&str, &str) {
    let inner = text.strip_prefix('{').and_then(|inner| inner.split_once('}'));
    inner.unwrap_or(("", text))
}

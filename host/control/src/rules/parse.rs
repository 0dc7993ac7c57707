//! The text of a rule file: lines of comma separated `KEY op "value"` (udev(7)).

use super::{RuleError, Warning};

/// What stands between a key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Equal,
    Unequal,
    Set,
    Add,
    Remove,
    Final,
}

const OPS: [(&str, Op); 6] = [
    ("==", Op::Equal),
    ("!=", Op::Unequal),
    ("+=", Op::Add),
    ("-=", Op::Remove),
    (":=", Op::Final),
    ("=", Op::Set),
];

/// One `KEY{attribute} op "value"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) key: String,
    pub(super) attribute: String,
    pub(super) op: Op,
    pub(super) value: String,
}

impl Term {
    pub(super) fn is_match(&self) -> bool {
        matches!(self.op, Op::Equal | Op::Unequal)
    }
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Where it stands: the file, and the line it begins on.
    pub(super) file: String,
    pub(super) line: usize,
    /// The rule as written, on one line.
    pub(super) text: String,
    pub(super) terms: Vec<Term>,
    /// The place in its file to go on at when it matches, counted from the first rule.
    pub(super) goto: Option<usize>,
}

/// Keys whose rules are told of and do nothing.
pub(super) const IGNORED: &[&str] = &["OPTIONS", "IMPORT", "NAME", "SECLABEL", "SYSCTL"];

/// What an operator may do to a key: `m` match, `a` assign with `=` and `:=`, `+` and `-` lists;
/// and whether it takes an attribute in braces.
const KEYS: &[(&str, &str, bool)] = &[
    ("ACTION", "m", false),
    ("KERNEL", "m", false),
    ("KERNELS", "m", false),
    ("SUBSYSTEM", "m", false),
    ("SUBSYSTEMS", "m", false),
    ("DRIVER", "m", false),
    ("DRIVERS", "m", false),
    ("DEVPATH", "m", false),
    ("ATTR", "ma+", true),
    ("ATTRS", "m", true),
    ("ENV", "ma+", true),
    ("CONST", "m", true),
    ("TEST", "m", false),
    ("TAG", "ma+-", false),
    ("SYMLINK", "a+-", false),
    ("OWNER", "a", false),
    ("GROUP", "a", false),
    ("MODE", "a", false),
    ("RUN", "a+", false),
    ("GOTO", "a", false),
    ("LABEL", "a", false),
];

/// The rules of a file; what is wrong with a line is told, and the line left out.
pub(super) fn file(name: &str, text: &str, told: &mut Told) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for (line, text) in joined(text) {
        let error = |what: String| RuleError { file: String::from(name), line, what };
        match terms(&text).and_then(|terms| check(&terms).map(|()| terms)) {
            Ok(terms) => {
                for term in terms.iter().filter(|term| IGNORED.contains(&term.key.as_str())) {
                    let what = format!("{} is passed over", term.key);
                    told.warnings.push(error(what));
                }
                rules.push(Rule { file: name.into(), line, text, terms, goto: None });
            }
            Err(what) => told.errors.push(error(what)),
        }
    }
    resolve(&mut rules, told);
    rules
}

/// What reading brought to light.
#[derive(Default)]
pub(super) struct Told {
    pub(super) errors: Vec<RuleError>,
    pub(super) warnings: Vec<Warning>,
}

/// Lines that are rules, with the number of the first line each stands on.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut rules: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        let start = line.trim_start();
        // A comment also stands between the lines of a rule.
        if start.starts_with('#') {
            continue;
        }
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match rules.last_mut().filter(|_| open) {
            Some((_, rule)) => rule.push_str(part),
            None => rules.push((index + 1, String::from(part))),
        }
        open = goes_on;
    }
    rules.iter_mut().for_each(|(_, rule)| *rule = String::from(rule.trim()));
    rules.retain(|(_, rule)| !rule.is_empty());
    rules
}

fn terms(text: &str) -> Result<Vec<Term>, String> {
    let mut terms = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return Ok(terms);
        }
        let (term, left) = term(rest)?;
        terms.push(term);
        if !left.is_empty() && !left.starts_with([' ', '\t', ',']) {
            let shown: String = left.chars().take(20).collect();
            return Err(format!("{shown:?} where a comma should be"));
        }
        rest = left;
    }
}

/// The first term of a text that is not empty, and what follows it.
fn term(text: &str) -> Result<(Term, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(text.len());
    let (key, mut rest) = text.split_at(end);
    if key.is_empty() {
        let shown: String = text.chars().take(20).collect();
        return Err(format!("{shown:?} where a key should be"));
    }
    let mut attribute = "";
    if let Some(inner) = rest.strip_prefix('{') {
        let close = inner.find('}').ok_or_else(|| format!("{key}{{ without a closing brace"))?;
        (attribute, rest) = (&inner[..close], &inner[close + 1..]);
    }
    rest = rest.trim_start();
    let found = OPS.iter().find_map(|(sign, op)| Some((*op, rest.strip_prefix(sign)?)));
    let (op, rest) =
        found.ok_or_else(|| format!("{key} is not followed by one of ==, !=, =, +=, -= and :="))?;
    let (value, rest) = value(key, rest.trim_start())?;
    let term = Term { key: key.into(), attribute: attribute.into(), op, value };
    Ok((term, rest))
}

fn value<'a>(key: &str, text: &'a str) -> Result<(String, &'a str), String> {
    let (escapes, inner) = match (text.strip_prefix('"'), text.strip_prefix("e\"")) {
        (Some(inner), _) => (false, inner),
        (None, Some(inner)) => (true, inner),
        (None, None) => return Err(format!("the value of {key} is not in double quotes")),
    };
    let mut value = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &inner[at + 1..])),
            '\\' => match chars.next() {
                Some((_, '"')) => value.push('"'),
                Some((_, c)) if escapes => value.push(escape(key, c, &mut chars)?),
                Some((_, c)) => value.extend(['\\', c]),
                None => break,
            },
            c => value.push(c),
        }
    }
    Err(format!("the value of {key} has no closing quote"))
}

/// What a C escape stands for: its letter was read, digits follow for `x`.
fn escape(key: &str, letter: char, rest: &mut std::str::CharIndices) -> Result<char, String> {
    Ok(match letter {
        'a' => '\x07',
        'b' => '\x08',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        's' => ' ',
        '\\' | '\'' => letter,
        'x' => {
            let digits: String = rest.by_ref().take(2).map(|(_, c)| c).collect();
            let code = u8::from_str_radix(&digits, 16).ok().filter(|&code| code != 0);
            let code = code.filter(|_| digits.len() == 2 && !digits.starts_with('+'));
            char::from(code.ok_or_else(|| format!("\\x{digits} in the value of {key}"))?)
        }
        _ => return Err(format!("\\{letter} in the value of {key} is no escape")),
    })
}

fn check(terms: &[Term]) -> Result<(), String> {
    for Term { key, attribute, op, value: _ } in terms {
        if IGNORED.contains(&key.as_str()) {
            continue;
        }
        if matches!(key.as_str(), "PROGRAM" | "RESULT") {
            return Err(format!("{key} is refused: weir runs no programs for its rules"));
        }
        let Some((_, may, braces)) = KEYS.iter().find(|(known, ..)| known == key) else {
            let known: Vec<&str> = KEYS.iter().map(|(known, ..)| *known).collect();
            return Err(format!("unknown key {key}; known are {}", known.join(", ")));
        };
        if *braces && attribute.is_empty() {
            return Err(format!("{key} needs a name in braces, as in {key}{{...}}"));
        }
        if key == "ATTR" && attribute.split('/').any(|part| part == "..") {
            return Err(format!("ATTR{{{attribute}}} leaves the disk's folder"));
        }
        let needed = match op {
            Op::Equal | Op::Unequal => 'm',
            Op::Set | Op::Final => 'a',
            Op::Add => '+',
            Op::Remove => '-',
        };
        if !may.contains(needed) {
            let sign = OPS.iter().find(|(_, known)| known == op).map_or("", |(sign, _)| sign);
            return Err(format!("{key} does not take {sign}"));
        }
    }
    Ok(())
}

/// Finds the rule each GOTO of the file goes on at; labels lie ahead, so rules come to an end.
fn resolve(rules: &mut [Rule], told: &mut Told) {
    let word = |rule: &Rule, key: &str| {
        rule.terms.iter().find(|term| term.key == key).map(|term| term.value.clone())
    };
    for at in 0..rules.len() {
        let Some(label) = word(&rules[at], "GOTO") else { continue };
        let ahead = |rule: &Rule| word(rule, "LABEL").as_ref() == Some(&label);
        rules[at].goto = rules[at + 1..].iter().position(ahead).map(|after| at + 1 + after);
        if rules[at].goto.is_none() {
            let Rule { file, line, .. } = &rules[at];
            let what = format!("GOTO={label:?}: there is no such label further on in the file");
            told.errors.push(RuleError { file: file.clone(), line: *line, what });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Vec<Rule>, Vec<String>) {
        let mut told = Told::default();
        let rules = file("60-x.rules", text, &mut told);
        let shown = told.errors.iter().chain(&told.warnings).map(ToString::to_string);
        (rules, shown.collect())
    }

    #[test]
    fn lines_are_joined_and_comments_left_out() {
        let text =
            "# first\n\nACTION==\"add\", \\\n  # between\n  KERNEL==\"sda\"\n\n ENV{A}=\"b\"\n";
        let (rules, told) = parse(text);
        assert!(told.is_empty(), "{told:?}");
        let lines: Vec<_> = rules.iter().map(|rule| (rule.line, rule.terms.len())).collect();
        assert_eq!(lines, [(3, 2), (7, 1)]);
    }

    #[test]
    fn values_are_read_with_their_escapes() {
        for (text, value) in [
            (r#"ENV{A}="plain""#, "plain"),
            (r#"ENV{A}="a \"b\" \n""#, r#"a "b" \n"#),
            (r#"ENV{A}=e"a\tb\x41\n\"""#, "a\tbA\n\""),
            (r#"ENV{A} = "x, y" ,"#, "x, y"),
            (r#"ENV{A}="""#, ""),
        ] {
            let (rules, told) = parse(text);
            assert!(told.is_empty(), "{text}: {told:?}");
            assert_eq!(rules[0].terms[0].value, value, "{text}");
        }
    }

    #[test]
    fn a_bad_line_is_named_and_the_others_hold() {
        for (line, told) in [
            (r#"KERNEL="sda""#, "KERNEL does not take ="),
            (r#"RUN=="x""#, "RUN does not take =="),
            (r#"ATTR{queue/scheduler}-="x""#, "ATTR does not take -="),
            (r#"ATTR=="x""#, "ATTR needs a name in braces"),
            (r#"ATTR{../sdb/ro}="x""#, "leaves the disk's folder"),
            (r#"FROB=="x""#, "unknown key FROB; known are ACTION"),
            (r#"PROGRAM=="/bin/true""#, "PROGRAM is refused"),
            (r#"KERNEL"#, "KERNEL is not followed by"),
            (r#"KERNEL==sda"#, "not in double quotes"),
            (r#"KERNEL=="sda"#, "no closing quote"),
            (r#"ATTR{x=="1""#, "without a closing brace"),
            (r#"kernel=="sda""#, "where a key should be"),
            (r#"KERNEL=="a"ENV{A}="b""#, "where a comma should be"),
            (r#"ENV{A}=e"\q""#, "\\q in the value of ENV is no escape"),
            (r#"ENV{A}=e"\x0z""#, "\\x0z in the value of ENV"),
            (r#"GOTO="nowhere""#, "GOTO=\"nowhere\": there is no such label"),
            (r#"IMPORT{builtin}="path_id""#, "IMPORT is passed over"),
        ] {
            let (rules, all) = parse(&format!("ENV{{A}}=\"1\"\n{line}\nENV{{B}}=\"2\""));
            assert_eq!(all.len(), 1, "{line}: {all:?}");
            assert!(all[0].starts_with("60-x.rules:2: "), "{all:?}");
            assert!(all[0].contains(told), "{line}: {all:?}");
            assert_eq!(rules.last().map(|rule| rule.line), Some(3), "{line}");
        }
    }

    #[test]
    fn a_goto_leads_ahead_only() {
        let (rules, told) = parse("LABEL=\"a\"\nGOTO=\"b\"\nGOTO=\"a\"\nLABEL=\"b\"\n");
        assert_eq!(rules[1].goto, Some(3));
        assert_eq!((rules[2].goto, told.len()), (None, 1), "{told:?}");
    }
}

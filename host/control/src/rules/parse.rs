//! The text of a rule file: lines of comma separated `KEY op "value"` (udev(7)).

use std::collections::BTreeMap;

use super::substitution::meaningless;
use super::{RuleError, Warning};

/// The operator between a key and its value.
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
        matches!(self.op, Op::Equal | Op::Unequal) && !self.is_import()
    }

    /// Whether it takes a boot parameter over: it holds if there is one, whatever its operator but
    /// `!=`.
    pub(super) fn is_import(&self) -> bool {
        self.key == "IMPORT" && self.attribute == CMDLINE
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

/// The one source of IMPORT that there is here.
const CMDLINE: &str = "cmdline";

/// Keys whose rules are told of and do nothing: IMPORT from all but the boot parameters.
pub(super) const IGNORED: &[&str] = &["OPTIONS", "IMPORT", "NAME", "SECLABEL", "SYSCTL"];

/// The text that may stand in braces behind a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Braces {
    /// Nothing.
    None,
    /// A name, always.
    Name,
    /// The path of a file of the disk, always.
    Path,
    /// One of these words, always.
    Word(&'static [&'static str]),
    /// One of these words, or no braces.
    MayWord(&'static [&'static str]),
    /// Permissions in octal digits, or no braces.
    MayMode,
}

/// The keys, and the operators that each takes: `m` match, `a` assign with `=` and `:=`, `+` and
/// `-` lists; and what stands in its braces.
const KEYS: &[(&str, &str, Braces)] = &[
    ("ACTION", "m", Braces::None),
    ("KERNEL", "m", Braces::None),
    ("KERNELS", "m", Braces::None),
    ("SUBSYSTEM", "m", Braces::None),
    ("SUBSYSTEMS", "m", Braces::None),
    ("DRIVER", "m", Braces::None),
    ("DRIVERS", "m", Braces::None),
    ("DEVPATH", "m", Braces::None),
    ("ATTR", "ma+", Braces::Path),
    ("ATTRS", "m", Braces::Path),
    ("ENV", "ma+", Braces::Name),
    ("CONST", "m", Braces::Word(&["arch", "virt"])),
    ("TEST", "m", Braces::MayMode),
    ("TAG", "ma+-", Braces::None),
    ("SYMLINK", "a+-", Braces::None),
    ("OWNER", "a", Braces::None),
    ("GROUP", "a", Braces::None),
    ("MODE", "a", Braces::None),
    ("RUN", "a+", Braces::MayWord(&["program", "builtin"])),
    ("GOTO", "a", Braces::None),
    ("LABEL", "a", Braces::None),
];

/// The permissions a file can have.
const MODE_MAX: u16 = 0o7777;

/// The rules of a file; what is wrong with a line is told, and the line left out.
pub(super) fn file(name: &str, text: &str, told: &mut Told) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for (line, text) in joined(text) {
        let error = |what: String| RuleError { file: String::from(name), line, what };
        match terms(&text).and_then(checked) {
            Ok(mut terms) => {
                terms.retain(|term| match passed_over(term) {
                    Some(what) => {
                        told.warnings.push(error(what));
                        false
                    }
                    None => true,
                });
                rules.push(Rule { file: name.into(), line, text, terms, goto: None });
            }
            Err(what) => told.errors.push(error(what)),
        }
    }
    resolve(&mut rules, told);
    rules
}

/// Errors and warnings found while reading.
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

/// The character of a C escape: its letter was read, digits follow for `x`.
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

/// Terms that may stand in a rule, with the paths in their braces made plain.
fn checked(mut terms: Vec<Term>) -> Result<Vec<Term>, String> {
    for term in &mut terms {
        let (key, op) = (term.key.as_str(), term.op);
        if term.is_import() {
            import(term)?;
            continue;
        }
        if IGNORED.contains(&key) {
            continue;
        }
        if matches!(key, "PROGRAM" | "RESULT") {
            return Err(format!("{key} is refused: weir runs no programs for its rules"));
        }
        let Some((_, may, braces)) = KEYS.iter().find(|(known, ..)| *known == key) else {
            let known: Vec<&str> = KEYS.iter().map(|(known, ..)| *known).collect();
            return Err(format!("unknown key {key}; known are {}", known.join(", ")));
        };
        let attribute = in_braces(key, &term.attribute, *braces)?;
        let needed = match op {
            Op::Equal | Op::Unequal => 'm',
            Op::Set | Op::Final => 'a',
            Op::Add => '+',
            Op::Remove => '-',
        };
        if !may.contains(needed) {
            let sign = OPS.iter().find(|(_, known)| *known == op).map_or("", |(sign, _)| sign);
            return Err(format!("{key} does not take {sign}"));
        }
        if let ("TEST", Some(at)) = (key, meaningless(&term.value)) {
            let shown: String = at.chars().take(12).collect();
            return Err(format!("{shown:?} in the value of TEST stands for nothing"));
        }
        term.attribute = attribute;
    }
    Ok(terms)
}

/// Whether IMPORT{cmdline} names a parameter, and with which operator: it matches, also with `=`.
fn import(term: &Term) -> Result<(), String> {
    if matches!(term.op, Op::Add | Op::Remove | Op::Final) {
        return Err(format!("IMPORT{{{CMDLINE}}} takes =, == and != alone"));
    }
    match term.value.is_empty() {
        true => Err(format!("IMPORT{{{CMDLINE}}} names no parameter")),
        false => Ok(()),
    }
}

/// The text in the braces of a key, if it may stand there; an empty text for no braces.
fn in_braces(key: &str, text: &str, may: Braces) -> Result<String, String> {
    let refused = |what: String| Err(format!("{key}{{{text}}}: {what}"));
    match may {
        Braces::None if text.is_empty() => {}
        Braces::None => return refused(format!("{key} takes no braces")),
        Braces::MayWord(_) | Braces::MayMode if text.is_empty() => {}
        _ if text.is_empty() => {
            return Err(format!("{key} needs a name in braces, as in {key}{{...}}"));
        }
        Braces::Name => {}
        Braces::Path => return path(key, text),
        Braces::Word(words) | Braces::MayWord(words) => {
            if !words.contains(&text) {
                return refused(format!("known are {}", words.join(" and ")));
            }
        }
        Braces::MayMode => match u16::from_str_radix(text, 8) {
            Ok(mode) if mode <= MODE_MAX && !text.starts_with('+') => {}
            _ => return refused(format!("no octal number in 0..={MODE_MAX:o}")),
        },
    }
    Ok(String::from(text))
}

/// A path as the tree names it: what else leads to the same file would pass for another one.
fn path(key: &str, text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(format!("{key}{{{text}}} leaves the disk's folder"));
    }
    match parts.is_empty() {
        true => Err(format!("{key}{{{text}}} names no file")),
        false => Ok(parts.join("/")),
    }
}

/// Why a term of a rule that holds otherwise does nothing, if that is so.
fn passed_over(term: &Term) -> Option<String> {
    let key = term.key.as_str();
    if term.is_import() {
        return None;
    }
    if IGNORED.contains(&key) {
        return Some(format!("{key} is passed over"));
    }
    // A label is a word, and nothing is filled into it.
    if term.is_match() || matches!(key, "GOTO" | "LABEL") {
        return None;
    }
    let at = meaningless(&term.value)?;
    let shown: String = at.chars().take(12).collect();
    Some(format!("{shown:?} in the value of {key} stands for nothing: {key} is passed over"))
}

/// Finds the rule each GOTO of the file goes on at; labels lie ahead, so rules come to an end.
fn resolve(rules: &mut [Rule], told: &mut Told) {
    let word = |rule: &Rule, key: &str| {
        rule.terms.iter().find(|term| term.key == key).map(|term| term.value.clone())
    };
    // From the end on: what is known of a label is the next rule that has it.
    let (mut labels, mut missing) = (BTreeMap::new(), Vec::new());
    for (at, rule) in rules.iter_mut().enumerate().rev() {
        if let Some(label) = word(rule, "GOTO") {
            rule.goto = labels.get(&label).copied();
            if rule.goto.is_none() {
                // As udev does: what else the line says holds.
                let what = format!(
                    "GOTO={label:?} is passed over: there is no such label further on in the file"
                );
                missing.push(RuleError { file: rule.file.clone(), line: rule.line, what });
            }
        }
        if let Some(label) = word(rule, "LABEL") {
            labels.insert(label, at);
        }
    }
    told.warnings.extend(missing.into_iter().rev());
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
            (r#"KERNEL{x}=="sda""#, "KERNEL{x}: KERNEL takes no braces"),
            (r#"SYMLINK{x}+="sda""#, "SYMLINK{x}: SYMLINK takes no braces"),
            (r#"TEST{zzz}=="queue""#, "TEST{zzz}: no octal number in 0..=7777"),
            (r#"TEST{10000}=="queue""#, "TEST{10000}: no octal number"),
            (r#"CONST{os}=="x""#, "CONST{os}: known are arch and virt"),
            (r#"RUN{shell}+="x""#, "RUN{shell}: known are program and builtin"),
            (r#"ATTR{queue/../../sdb}=="1""#, "leaves the disk's folder"),
            (r#"ATTR{/}="1""#, "ATTR{/} names no file"),
            (r#"IMPORT{cmdline}+="elevator""#, "IMPORT{cmdline} takes =, == and != alone"),
            (r#"IMPORT{cmdline}="""#, "IMPORT{cmdline} names no parameter"),
            (r#"TEST=="%S%P/mq""#, "\"%P/mq\" in the value of TEST stands for nothing"),
        ] {
            let mut told_of = Told::default();
            let text = format!("ENV{{A}}=\"1\"\nATTR{{ro}}=\"1\", {line}\nENV{{B}}=\"2\"");
            let rules = file("60-x.rules", &text, &mut told_of);
            let all: Vec<String> = told_of.errors.iter().map(ToString::to_string).collect();
            assert_eq!((all.len(), told_of.warnings.len()), (1, 0), "{line}: {all:?}");
            assert!(all[0].starts_with("60-x.rules:2: "), "{all:?}");
            assert!(all[0].contains(told), "{line}: {all:?}");
            let lines: Vec<_> = rules.iter().map(|rule| rule.line).collect();
            assert_eq!(lines, [1, 3], "{line}: it is left out");
        }
    }

    #[test]
    fn a_part_that_means_nothing_is_named_and_the_rest_of_its_line_holds() {
        for (part, told) in [
            (r#"GOTO="nowhere""#, "GOTO=\"nowhere\" is passed over: there is no such label"),
            (r#"IMPORT{builtin}="path_id""#, "IMPORT is passed over"),
            (r#"ATTR{range}="$parent/x""#, "\"$parent/x\" in the value of ATTR stands for nothing"),
            (r#"ATTR{range}="5%""#, "\"%\" in the value of ATTR stands for nothing"),
            (r#"RUN+="a $$ $kernel %c""#, "\"%c\" in the value of RUN stands for nothing"),
        ] {
            let mut told_of = Told::default();
            let text = format!("{part}, ATTR{{ro}}=\"1\"\n");
            let rules = file("60-x.rules", &text, &mut told_of);
            let all: Vec<String> = told_of.warnings.iter().map(ToString::to_string).collect();
            assert_eq!((all.len(), told_of.errors.len()), (1, 0), "{part}: {all:?}");
            assert!(all[0].starts_with("60-x.rules:1: ") && all[0].contains(told), "{all:?}");
            let attributes: Vec<_> = rules[0].terms.iter().map(|term| &*term.attribute).collect();
            assert!(attributes.contains(&"ro") && !attributes.contains(&"range"), "{part}");
            assert_eq!(rules[0].goto, None);
        }
    }

    #[test]
    fn a_file_has_one_name_however_its_path_is_written() {
        for path in
            ["queue/scheduler", "queue//scheduler", "./queue/scheduler", "/queue/scheduler/"]
        {
            let (rules, told) = parse(&format!("ATTR{{{path}}}=\"bfq\""));
            assert_eq!(told, [""; 0], "{path}");
            assert_eq!(rules[0].terms[0].attribute, "queue/scheduler", "{path}");
        }
    }

    #[test]
    fn a_goto_leads_ahead_only() {
        let (rules, told) = parse("LABEL=\"a\"\nGOTO=\"b\"\nGOTO=\"a\"\nLABEL=\"b\"\n");
        assert_eq!(rules[1].goto, Some(3));
        assert_eq!((rules[2].goto, told.len()), (None, 1), "{told:?}");
    }
}

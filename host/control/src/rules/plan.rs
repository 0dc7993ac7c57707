//! Which rules match a disk, and what they come to.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use weir_bio::cmdline;

use super::parse::{Op, Rule, Term};
use super::substitution::{Found, substitution};
use super::{RuleError, Rules, Warning, glob};
use crate::tree::{Node, Tree};

/// The most bytes of a value that a rule assigns, as in udev.
pub const VALUE_MAX: usize = 1024;

/// The most bytes of all links, programs or tags together, with a blank between them.
pub const LIST_MAX: usize = 16 * 1024;

/// A disk as rules ask about it. Files are named from its folder, as `queue/rotational`.
pub trait Subject {
    /// Its name.
    fn name(&self) -> &str;

    /// The text of one of its files; `None` if there is none that can be read.
    fn read(&self, file: &str) -> Option<String>;

    /// The permissions of one of its files or directories; `None` if there is none.
    fn mode(&self, file: &str) -> Option<u16>;

    /// The permissions of what is elsewhere in the tree, by its path there, as `block/sdb`.
    fn mode_elsewhere(&self, path: &str) -> Option<u16>;
}

/// A disk of a tree, for rules.
pub struct TreeDisk<'a> {
    /// The tree.
    pub tree: &'a Tree,
    /// The disk's name.
    pub name: &'a str,
}

impl Subject for TreeDisk<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn read(&self, file: &str) -> Option<String> {
        self.tree.read(&format!("block/{}/{file}", self.name)).ok()
    }

    fn mode(&self, file: &str) -> Option<u16> {
        self.mode_elsewhere(&format!("block/{}/{file}", self.name))
    }

    fn mode_elsewhere(&self, path: &str) -> Option<u16> {
        self.tree.look_up(path).ok().map(Node::mode)
    }
}

/// The event of the disk: ACTION in a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Event {
    /// It is new.
    #[default]
    Add,
    /// Something about it has changed, or rules shall be applied again.
    Change,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::Add => "add",
            Event::Change => "change",
        })
    }
}

/// One value that a rule assigns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its target: a file of the disk, or a variable.
    pub name: String,
    /// The value.
    pub value: String,
    /// The rule that says so, as `60-disks.rules:3`.
    pub rule: String,
    /// `:=`: no later rule may change it.
    settled: bool,
}

impl Planned {
    /// Whether the rules behind see it: a variable or tags.
    #[must_use]
    pub fn is_for_rules(&self) -> bool {
        self.name == "TAG" || self.name.starts_with("ENV{")
    }
}

/// The outcome of rules for a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The rules that match, as `60-disks.rules:3`, each with its text.
    pub matched: Vec<(String, String)>,
    /// Files of the disk to be written, in this order.
    pub writes: Vec<Planned>,
    /// Everything else that is assigned: ENV and TAG, which the rules behind see, and what changes
    /// nothing here: SYMLINK, OWNER, GROUP, MODE and RUN (recorded, never run).
    pub others: Vec<Planned>,
    /// Values that are left out.
    pub warnings: Vec<Warning>,
}

impl Rules {
    /// The outcome of the rules for `disk` at this event. Nothing is written.
    #[must_use]
    pub fn plan(&self, disk: &dyn Subject, event: Event) -> Plan {
        let mut turn = Turn::new(disk, event);
        for file in &self.files {
            let mut at = 0;
            while let Some(rule) = file.get(at) {
                at += 1;
                if turn.matches(rule) && turn.import(rule) {
                    turn.apply(rule);
                    at = rule.goto.unwrap_or(at);
                }
            }
        }
        // A stable order: the others stay as they were.
        turn.plan.writes.sort_by_key(|write| turn_of(&write.name));
        turn.plan
    }
}

/// Which writes to files of a disk are made before others, the least first: another number of
/// queues resets what depends on the scheduler, and so does another scheduler; `nr_requests` resets
/// depths among its tunables.
#[must_use]
pub fn turn_of(file: &str) -> u8 {
    match file {
        "weir/queues" => 0,
        "queue/scheduler" => 1,
        "queue/nr_requests" => 2,
        _ => 3,
    }
}

/// Rules on their way over one disk.
struct Turn<'a> {
    disk: &'a dyn Subject,
    event: Event,
    env: BTreeMap<String, String>,
    tags: BTreeSet<String>,
    links: Vec<String>,
    /// Files that were asked for: each is read once.
    read: RefCell<BTreeMap<String, Option<String>>>,
    plan: Plan,
    /// Where a name stands in the plan: whether in its writes, and which it is there.
    places: BTreeMap<(bool, String), usize>,
}

impl<'a> Turn<'a> {
    fn new(disk: &'a dyn Subject, event: Event) -> Turn<'a> {
        let mut turn = Turn {
            disk,
            event,
            env: BTreeMap::new(),
            tags: BTreeSet::new(),
            links: Vec::new(),
            read: RefCell::default(),
            plan: Plan::default(),
            places: BTreeMap::new(),
        };
        let sequence = turn.attribute("diskseq").unwrap_or_default();
        let (major, minor) = turn.numbers();
        turn.env = BTreeMap::from(
            [
                ("ACTION", event.to_string()),
                ("DEVNAME", format!("/dev/{}", disk.name())),
                ("DEVPATH", turn.path()),
                ("DEVTYPE", String::from("disk")),
                ("DISKSEQ", sequence),
                ("MAJOR", major),
                ("MINOR", minor),
                ("SUBSYSTEM", String::from("block")),
            ]
            .map(|(name, value)| (String::from(name), value)),
        );
        turn
    }

    fn path(&self) -> String {
        format!("/block/{}", self.disk.name())
    }

    /// Its numbers, as the tree's file has them.
    fn numbers(&self) -> (String, String) {
        let numbers = self.attribute("dev").unwrap_or_default();
        let (major, minor) = numbers.split_once(':').unwrap_or(("0", "0"));
        (String::from(major), String::from(minor))
    }

    /// A file's text without the newline at its end.
    fn attribute(&self, file: &str) -> Option<String> {
        let mut read = self.read.borrow_mut();
        let entry = read.entry(String::from(file)).or_insert_with(|| self.disk.read(file));
        entry.as_ref().map(|text| String::from(text.strip_suffix('\n').unwrap_or(text)))
    }

    fn matches(&self, rule: &Rule) -> bool {
        rule.terms.iter().filter(|term| term.is_match()).all(|term| self.holds(term))
    }

    fn holds(&self, term: &Term) -> bool {
        let is = |text: &str| glob::matches(&term.value, text);
        let found = match term.key.as_str() {
            "ACTION" => is(&self.event.to_string()),
            // weir's disks have nothing above them, and a search upwards begins with the disk.
            "KERNEL" | "KERNELS" => is(self.disk.name()),
            "SUBSYSTEM" | "SUBSYSTEMS" => is("block"),
            "DRIVER" | "DRIVERS" => is(""),
            "DEVPATH" => is(&self.path()),
            "ATTR" | "ATTRS" => match self.attribute(&term.attribute) {
                Some(text) => is(trimmed(&term.value, &text)),
                // A file that is not there is neither equal nor unequal, as udev has it.
                None => return false,
            },
            "ENV" => is(self.env.get(&term.attribute).map_or("", String::as_str)),
            "CONST" => is(constant(&term.attribute)),
            "TAG" => self.tags.iter().any(|tag| is(tag)),
            "TEST" => self.test(term),
            _ => unreachable!("{} is no key that matches", term.key),
        };
        found == (term.op == Op::Equal)
    }

    /// Whether there is such a file, with one of the permissions in braces if any are given.
    fn test(&self, term: &Term) -> bool {
        let mask = match term.attribute.as_str() {
            "" => None,
            octal => Some(u16::from_str_radix(octal, 8).expect("it was read as octal")),
        };
        let mode = self.substitute(&term.value).and_then(|path| self.mode(&path));
        mode.is_some_and(|mode| mask.is_none_or(|mask| mode & mask != 0))
    }

    /// The permissions at a path: of the disk's folder, or behind `/sys` of the tree. No other part
    /// of the machine is looked at.
    fn mode(&self, path: &str) -> Option<u16> {
        if !path.starts_with('/') {
            return self.disk.mode(path);
        }
        let inside = path.trim_start_matches('/').strip_prefix("sys/")?;
        let mut names: Vec<&str> =
            inside.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        if names.contains(&"..") {
            return None;
        }
        if names.starts_with(&["class", "block"]) {
            names.remove(0);
        }
        match names.split_first() {
            Some((&"block", [disk, rest @ ..])) if *disk == self.disk.name() => {
                self.disk.mode(&rest.join("/"))
            }
            _ => self.disk.mode_elsewhere(&names.join("/")),
        }
    }

    /// Takes the boot parameters over that a rule asks for, the keys that match being held already;
    /// whether they are as it says.
    fn import(&mut self, rule: &Rule) -> bool {
        let place = format!("{}:{}", rule.file, rule.line);
        for term in rule.terms.iter().filter(|term| term.is_import()) {
            let line = self.attribute("weir/kernel_cmdline").unwrap_or_default();
            let value = boot_parameter(&line, &term.value);
            if value.is_some() != (term.op != Op::Unequal) {
                return false;
            }
            if let Some(value) = value {
                // Nothing is filled into it.
                let value = value.replace('$', "$$").replace('%', "%%");
                let (key, attribute) = (String::from("ENV"), term.value.clone());
                let taken = Term { key, attribute, op: Op::Set, value };
                self.assign_or_warn(&taken, rule, &place);
            }
        }
        true
    }

    fn apply(&mut self, rule: &Rule) {
        let place = format!("{}:{}", rule.file, rule.line);
        self.plan.matched.push((place.clone(), rule.text.clone()));
        for term in rule.terms.iter().filter(|term| !term.is_match() && !term.is_import()) {
            let key = term.key.as_str();
            if matches!(key, "GOTO" | "LABEL") {
                continue;
            }
            self.assign_or_warn(term, rule, &place);
        }
    }

    fn assign_or_warn(&mut self, term: &Term, rule: &Rule, place: &str) {
        if let Err(what) = self.assign(term, place) {
            let file = rule.file.clone();
            self.plan.warnings.push(RuleError { file, line: rule.line, what });
        }
    }

    /// Assigns a value unless an earlier rule settled that name, or the value is too long.
    fn assign(&mut self, term: &Term, place: &str) -> Result<(), String> {
        let (settled, rule) = (term.op == Op::Final, String::from(place));
        let (list, name) = match (term.key.as_str(), term.attribute.as_str()) {
            ("ATTR", attribute) => (&self.plan.writes, String::from(attribute)),
            (key, "") => (&self.plan.others, String::from(key)),
            (key, attribute) => (&self.plan.others, format!("{key}{{{attribute}}}")),
        };
        let at = (term.key == "ATTR", name);
        let known = self.places.get(&at).map(|&place| &list[place]);
        if known.is_some_and(|known| known.settled) {
            return Ok(());
        }
        let too_long = |bytes: String, most: usize| {
            let name = if at.0 { format!("ATTR{{{}}}", at.1) } else { at.1.clone() };
            Err(format!("{name} would have {bytes} bytes; the most is {most}, it is left out"))
        };
        let Some(value) = self.substitute(&term.value) else {
            return too_long(format!("more than {VALUE_MAX}"), VALUE_MAX);
        };
        let known = known.map_or("", |known| known.value.as_str());
        let (value, most) = self.joined(term, known, value);
        if value.len() > most {
            return too_long(value.len().to_string(), most);
        }
        match term.key.as_str() {
            "ENV" => {
                self.env.insert(term.attribute.clone(), value.clone());
            }
            "TAG" => {
                let tags = value.split(' ').filter(|tag| !tag.is_empty());
                self.tags = tags.map(String::from).collect();
            }
            "SYMLINK" => self.links = value.split(' ').map(String::from).collect(),
            _ => {}
        }
        let new = Planned { name: at.1.clone(), value, rule, settled };
        let list = if at.0 { &mut self.plan.writes } else { &mut self.plan.others };
        match self.places.get(&at) {
            Some(&place) => list[place] = new,
            None => {
                self.places.insert(at, list.len());
                list.push(new);
            }
        }
        Ok(())
    }

    /// The value that a term makes of the `known` one, and how long it may be.
    fn joined(&self, term: &Term, known: &str, value: String) -> (String, usize) {
        let with_blank = |known: &str, value: String| match known {
            "" => value,
            known => format!("{known} {value}"),
        };
        match (term.key.as_str(), term.op) {
            ("ENV", Op::Add) => {
                let known = self.env.get(&term.attribute).map_or("", String::as_str);
                (with_blank(known, value), VALUE_MAX)
            }
            // Tags are a set.
            ("TAG", Op::Add) if self.tags.contains(&value) => (String::from(known), LIST_MAX),
            ("TAG" | "SYMLINK" | "RUN", Op::Add) => (with_blank(known, value), LIST_MAX),
            ("TAG" | "SYMLINK", Op::Remove) => {
                let left: Vec<&str> = known.split(' ').filter(|one| *one != value).collect();
                (left.join(" "), LIST_MAX)
            }
            _ => (value, VALUE_MAX),
        }
    }

    /// An assigned value with what `$name` and `%k` stand for; `None` for a longer one than
    /// [`VALUE_MAX`].
    fn substitute(&self, value: &str) -> Option<String> {
        let (mut text, mut rest) = (String::new(), value);
        while text.len() <= VALUE_MAX
            && let Some((before, found, behind)) = substitution(rest)
        {
            text.push_str(before);
            match found {
                Found::Sign(sign) => text.push_str(sign),
                Found::Known { what, argument } => text.push_str(&self.meaning(what, argument)),
                Found::Nothing(_) => unreachable!("{value:?} was checked when it was read"),
            }
            rest = behind;
        }
        text.push_str(rest);
        (text.len() <= VALUE_MAX).then_some(text)
    }

    fn meaning(&self, what: &str, argument: &str) -> String {
        let name = self.disk.name();
        match what {
            "kernel" | "name" | "id" => String::from(name),
            "number" => {
                let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
                String::from(&name[letters.len()..])
            }
            "devpath" => self.path(),
            "devnode" => format!("/dev/{name}"),
            "root" => String::from("/dev"),
            "sys" => String::from("/sys"),
            "attr" => self.attribute(argument).unwrap_or_default().trim_end().into(),
            "env" => self.env.get(argument).cloned().unwrap_or_default(),
            "links" => self.links.join(" "),
            "major" => self.numbers().0,
            _ => self.numbers().1,
        }
    }
}

/// Blanks at the end of a file do not count unless the pattern has some.
fn trimmed<'a>(pattern: &str, text: &'a str) -> &'a str {
    match pattern.ends_with(char::is_whitespace) {
        true => text,
        false => text.trim_end(),
    }
}

/// The value of a parameter of a kernel's command line: the last of that name, and `1` of a flag.
fn boot_parameter(line: &str, name: &str) -> Option<String> {
    let last = cmdline::parameters(line).filter(|parameter| parameter.is(name)).last();
    last.map(|parameter| String::from(parameter.value.unwrap_or("1")))
}

/// CONST: facts of the machine, in udev's words.
fn constant(name: &str) -> &'static str {
    match (name, std::env::consts::ARCH) {
        ("arch", "x86_64") => "x86-64",
        ("arch", "aarch64") => "arm64",
        ("arch", other) => other,
        ("virt", _) => "none",
        _ => "",
    }
}

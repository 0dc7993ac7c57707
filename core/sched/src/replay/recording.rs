//! Recordings of a block scheduler as text: what it was given and what it chose.
//!
//! Header lines (`scheduler`, `tick_us`, `set`), then one event a line; a recording that
//! contradicts itself is refused with the line where it does.

use std::collections::BTreeMap;
use std::fmt;

use weir_bio::{Class, IoPrio, Op};

use super::details::{Details, attribute, number};

/// Why something cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayError {
    /// The line of the recording, counted from 1; `None` when it is not about a line.
    pub line: Option<usize>,
    /// The fault, with the value and its bound.
    pub what: String,
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for ReplayError {}

/// The kind of an event, by its letter in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `I`: a request was inserted into the scheduler.
    Inserted,
    /// `M`: a bio was merged at the back of a queued request.
    MergedBack,
    /// `F`: a bio was merged at the front of a queued request.
    MergedFront,
    /// `D`: the scheduler handed the request to the driver.
    Dispatched,
    /// `C`: the device completed it.
    Completed,
    /// `T`: the scheduler's timer fired.
    Fired,
    /// `N`: a hard queue asked and was given nothing.
    Denied,
    /// `B`: requests of a context belong to a hard queue from now on.
    ContextBegun,
    /// `E`: a context sends nothing more.
    ContextGone,
    /// `P`: a group stands below another.
    GroupPlaced,
    /// `G`: a group has this weight.
    GroupWeighed,
}

impl Kind {
    const LETTERS: [(&'static str, Kind); 11] = [
        ("I", Kind::Inserted),
        ("M", Kind::MergedBack),
        ("F", Kind::MergedFront),
        ("D", Kind::Dispatched),
        ("C", Kind::Completed),
        ("T", Kind::Fired),
        ("N", Kind::Denied),
        ("B", Kind::ContextBegun),
        ("E", Kind::ContextGone),
        ("P", Kind::GroupPlaced),
        ("G", Kind::GroupWeighed),
    ];

    /// Whether something arrives at the scheduler.
    #[must_use]
    pub fn is_arrival(self) -> bool {
        matches!(self, Kind::Inserted | Kind::MergedBack | Kind::MergedFront)
    }

    /// Whether it is about a request, and not about the scheduler as a whole.
    #[must_use]
    pub fn has_range(self) -> bool {
        self.is_arrival() || matches!(self, Kind::Dispatched | Kind::Completed)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = Kind::LETTERS.iter().find(|(_, kind)| kind == self);
        f.write_str(letter.expect("every kind has a letter").0)
    }
}

const OPS: [(&str, Op); 7] = [
    ("R", Op::Read),
    ("W", Op::Write),
    ("F", Op::Flush),
    ("D", Op::Discard),
    ("Z", Op::WriteZeroes),
    ("S", Op::SecureErase),
    ("P", Op::Prefetch),
];

/// A request as a line of the file names it: op, first sector, sectors of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// Its op.
    pub op: Op,
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
}

impl Range {
    /// The sector after the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }

    /// The letter of its op.
    #[must_use]
    pub fn letter(&self) -> &'static str {
        OPS.iter().find(|(_, op)| *op == self.op).map_or("?", |(letter, _)| letter)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.letter(), self.sector, self.sectors)
    }
}

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The line it stands on, counted from 1.
    pub line: usize,
    /// Microseconds since the first event.
    pub time_us: u64,
    /// The kind of event.
    pub kind: Kind,
    /// To which part of the disk; an empty flush where the kind [has none](Kind::has_range).
    pub range: Range,
    /// The submitter's priority; not set for what leaves and ends.
    pub ioprio: IoPrio,
    /// The fields behind the seventh.
    pub details: Details,
}

/// A header line that sets something: its value and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated<T> {
    /// The line it stands on, counted from 1.
    pub line: usize,
    /// The stated value.
    pub value: T,
}

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The scheduler that was recorded.
    pub scheduler: Option<Stated<String>>,
    /// The recorded kernel's clock tick, microseconds.
    pub tick_us: Option<Stated<u64>>,
    /// The scheduler's clock at the first event, microseconds.
    pub clock_us: Option<Stated<u64>>,
    /// `calls all`: every call of the scheduler is an event, and a replay makes no other.
    pub has_all_calls: bool,
    /// Whose behaviour the scheduler had.
    pub compat: Option<Stated<String>>,
    /// The setting the scheduler was made in: attribute and value.
    pub queue: Vec<Stated<(String, u64)>>,
    /// Tunables that were not at their default: name and value.
    pub settings: Vec<Stated<(String, String)>>,
    /// The events in the order of the file.
    pub events: Vec<Event>,
}

impl Recording {
    /// Reads a recording.
    ///
    /// # Errors
    /// The first line that is not as the format says, or that contradicts those before it: time
    /// going back, the dispatch of what was not queued, the completion of what was not in flight.
    pub fn read(bytes: &[u8]) -> Result<Recording, ReplayError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            ReplayError { line: Some(line), what: "not UTF-8 text".to_owned() }
        })?;
        let mut recording = Recording::default();
        let mut books = Books::default();
        for (index, text) in text.lines().enumerate() {
            let line = index + 1;
            let items = text.split('#').next().unwrap_or_default();
            let fields: Vec<&str> = items.split_whitespace().collect();
            let taken = match fields.as_slice() {
                [] => Ok(()),
                [word, values @ ..] if HEADER.contains(word) => {
                    recording.header(line, word, values)
                }
                fields => recording.event(line, fields, &mut books),
            };
            taken.map_err(|what| ReplayError { line: Some(line), what })?;
        }
        Ok(recording)
    }

    fn header(&mut self, line: usize, word: &str, values: &[&str]) -> Result<(), String> {
        if !self.events.is_empty() {
            return Err(format!("`{word}` stands behind the first event; header lines come first"));
        }
        match (word, values) {
            ("scheduler", [name]) => {
                once(word, &self.scheduler)?;
                self.scheduler = Some(Stated { line, value: (*name).to_owned() });
            }
            ("tick_us", [text]) => {
                once(word, &self.tick_us)?;
                let value = tick_of(text)?;
                self.tick_us = Some(Stated { line, value });
            }
            ("clock_us", [text]) => {
                once(word, &self.clock_us)?;
                let value = number(word, text, u64::MAX / 2000)?;
                self.clock_us = Some(Stated { line, value });
            }
            ("compat", [name]) => {
                once(word, &self.compat)?;
                self.compat = Some(Stated { line, value: (*name).to_owned() });
            }
            ("calls", ["all"]) => self.has_all_calls = true,
            ("calls", [value]) => return Err(format!("calls {value:?} is not `all`")),
            ("queue", [name, text]) => {
                let value = (attribute(name)?.name.to_owned(), number(name, text, u64::MAX)?);
                self.queue.push(Stated { line, value });
            }
            ("queue", _) => return Err("`queue` takes an attribute and a value".to_owned()),
            ("set", [name, value]) => {
                let value = ((*name).to_owned(), (*value).to_owned());
                self.settings.push(Stated { line, value });
            }
            ("set", _) => return Err("`set` takes a tunable and a value".to_owned()),
            _ => return Err(format!("`{word}` takes one value, not {}", values.len())),
        }
        Ok(())
    }

    fn event(&mut self, line: usize, fields: &[&str], books: &mut Books) -> Result<(), String> {
        let [time, kind, op, sector, sectors, class, level, details @ ..] = fields else {
            return Err(format!(
                "{} fields; an event has 7: TIME_US KIND OP SECTOR SECTORS CLASS LEVEL \
                 (header lines begin with {})",
                fields.len(),
                HEADER.join(", ")
            ));
        };
        let time_us = number("TIME_US", time, u64::MAX / 2000)?;
        let last = self.events.last().map_or(0, |event| event.time_us);
        if time_us < last {
            return Err(format!("TIME_US {time_us} is before the {last} of the event above"));
        }
        let kind = letter("KIND", kind, &Kind::LETTERS)?;
        let range = if kind.has_range() {
            range(op, sector, sectors)?
        } else if [*op, *sector, *sectors] == ["-"; 3] {
            Range { op: Op::Flush, sector: 0, sectors: 0 }
        } else {
            return Err(format!("{op} {sector} {sectors}: `- - -` stands on {kind}"));
        };
        let ioprio = match (kind.is_arrival(), *class, *level) {
            (false, "-", "-") => IoPrio::NONE,
            (false, ..) => return Err(format!("{class} {level}: `- -` stands on {kind}")),
            (true, class, level) => priority(class, level)?,
        };
        let details = Details::read(details)?;
        let event = Event { line, time_us, kind, range, ioprio, details };
        books.enter(&event)?;
        self.events.push(event);
        Ok(())
    }
}

/// The words that header lines begin with.
const HEADER: [&str; 7] = ["scheduler", "tick_us", "clock_us", "calls", "compat", "queue", "set"];

fn range(op: &str, sector: &str, sectors: &str) -> Result<Range, String> {
    let op = letter("OP", op, &OPS)?;
    let sectors = number("SECTORS", sectors, u64::from(u32::MAX))? as u32;
    let sector = number("SECTOR", sector, u64::MAX - u64::from(u32::MAX))?;
    if sectors == 0 && op != Op::Flush {
        return Err("SECTORS 0: only a flush has none".to_owned());
    }
    Ok(Range { op, sector, sectors })
}

fn once<T>(word: &str, stated: &Option<Stated<T>>) -> Result<(), String> {
    match stated {
        Some(Stated { line, .. }) => Err(format!("`{word}` stands on line {line} already")),
        None => Ok(()),
    }
}

/// A clock tick from text: whole microseconds, at most a second.
///
/// # Errors
/// A sentence with the value and the bounds.
pub fn tick_of(text: &str) -> Result<u64, String> {
    let tick = number("tick_us", text, 1_000_000)?;
    if tick == 0 { Err("tick_us 0 is outside 1..=1000000".to_owned()) } else { Ok(tick) }
}

fn letter<T: Copy>(name: &str, text: &str, letters: &[(&'static str, T)]) -> Result<T, String> {
    let found = letters.iter().find(|(letter, _)| *letter == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<_> = letters.iter().map(|(letter, _)| *letter).collect();
        format!("{name} {text:?} is none of {}", known.join(", "))
    })
}

fn priority(class: &str, level: &str) -> Result<IoPrio, String> {
    const CLASSES: [Class; 4] = [Class::None, Class::RealTime, Class::BestEffort, Class::Idle];
    let class = CLASSES[number("CLASS", class, 3)? as usize];
    Ok(IoPrio::new(class, number("LEVEL", level, 7)? as u8))
}

/// The requests queued and in flight while a recording is read, so that each of its events can be
/// held against those before it.
///
/// Which bios a dispatched request is made of cannot always be told, as several may cover the same
/// sectors; how often each sector is covered can.
#[derive(Default)]
struct Books {
    /// By op and sector: how many more bios cover this sector than the one before it.
    steps: BTreeMap<(Op, u64), i64>,
    in_flight: BTreeMap<Range, usize>,
    /// By group: the one above it. The root, 0, has none, and is above all others.
    parents: BTreeMap<u32, u32>,
}

impl Books {
    fn enter(&mut self, event: &Event) -> Result<(), String> {
        let Event { kind, range, .. } = *event;
        let is_flush = range.op == Op::Flush;
        match kind {
            Kind::MergedBack | Kind::MergedFront if is_flush => {
                return Err(format!("{kind} {range}: a flush is never merged"));
            }
            Kind::MergedBack if !self.is_covered(range.op, range.sector.wrapping_sub(1), 1) => {
                return Err(format!("M {range}: nothing that is queued ends there"));
            }
            Kind::MergedFront if !self.is_covered(range.op, range.end(), 1) => {
                return Err(format!("F {range}: nothing that is queued starts where it ends"));
            }
            Kind::Inserted | Kind::MergedBack | Kind::MergedFront => self.cover(range, 1),
            Kind::Dispatched => {
                // A flush passes the scheduler by and may come unannounced.
                if !is_flush && !self.is_covered(range.op, range.sector, range.sectors) {
                    return Err(format!("D {range}: no such request is queued"));
                }
                self.cover(range, -1);
                *self.in_flight.entry(range).or_default() += 1;
            }
            Kind::Fired | Kind::Denied | Kind::ContextBegun | Kind::ContextGone => {}
            Kind::GroupPlaced => return self.place(event.details.group, event.details.parent),
            Kind::GroupWeighed if event.details.weight == 0 => {
                return Err("G without a weight in 1..=1000".to_owned());
            }
            Kind::GroupWeighed => {}
            Kind::Completed => {
                let left = self.in_flight.get_mut(&range).filter(|count| **count > 0);
                let left =
                    left.ok_or_else(|| format!("C {range}: no such request is in flight"))?;
                *left -= 1;
                if *left == 0 {
                    self.in_flight.remove(&range);
                }
            }
        }
        Ok(())
    }

    /// A group stands below another, and not below itself.
    fn place(&mut self, group: u32, parent: u32) -> Result<(), String> {
        let mut above = Some(parent);
        while let Some(at) = above {
            if at == group {
                return Err(format!("P group={group} parent={parent}: it would be above itself"));
            }
            above = self.parents.get(&at).copied().or((at != 0).then_some(0));
        }
        self.parents.insert(group, parent);
        Ok(())
    }

    fn step(&mut self, op: Op, sector: u64, by: i64) {
        let step = self.steps.entry((op, sector)).or_default();
        *step += by;
        if *step == 0 {
            self.steps.remove(&(op, sector));
        }
    }

    fn cover(&mut self, range: Range, by: i64) {
        if range.op != Op::Flush {
            self.step(range.op, range.sector, by);
            self.step(range.op, range.end(), -by);
        }
    }

    /// Whether a queued bio covers each of these sectors.
    fn is_covered(&self, op: Op, from: u64, sectors: u32) -> bool {
        let Some(to) = from.checked_add(u64::from(sectors)) else { return false };
        let mut depth: i64 = self.steps.range((op, 0)..=(op, from)).map(|(_, by)| by).sum();
        let within = self.steps.range((op, from + 1)..(op, to));
        let mut least = depth;
        for (_, by) in within {
            depth += by;
            least = least.min(depth);
        }
        least > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Recording, String> {
        Recording::read(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn comments_and_blank_lines_are_passed_over_and_everything_else_is_kept() {
        let text = "# a disk\n\nscheduler kyber # as it was\ntick_us 4000\nset read_lat_nsec 5\n\
                    0 I R 8 8 1 7\r\n5 M R 16 8 1 7\n9 D R 8 16 - -\n9 C R 8 16 - -\n";
        let recording = read(text).unwrap();
        assert_eq!(recording.scheduler, Some(Stated { line: 3, value: "kyber".to_owned() }));
        assert_eq!(recording.tick_us, Some(Stated { line: 4, value: 4000 }));
        assert_eq!(recording.settings[0].value, ("read_lat_nsec".to_owned(), "5".to_owned()));
        assert_eq!(recording.events.len(), 4);
        let first = recording.events[0];
        assert_eq!((first.line, first.range.to_string()), (6, "R 8 8".to_owned()));
        assert_eq!(first.ioprio, IoPrio::new(Class::RealTime, 7));
    }

    #[test]
    fn what_is_not_as_the_format_says_is_refused_with_its_line_and_the_reason() {
        for (text, line, part) in [
            ("scheduler", 1, "takes one value"),
            ("scheduler a b", 1, "takes one value, not 2"),
            ("scheduler a\nscheduler b", 2, "on line 1 already"),
            ("tick_us 0", 1, "1..=1000000"),
            ("tick_us 4ms", 1, "\"4ms\""),
            ("set fifo_batch", 1, "a tunable and a value"),
            ("0 I R 0 8 0 0\nset a 1", 2, "header lines come first"),
            ("0 I R 0 8 0", 1, "6 fields"),
            ("hello", 1, "1 fields"),
            ("x I R 0 8 0 0", 1, "TIME_US \"x\""),
            ("-1 I R 0 8 0 0", 1, "TIME_US \"-1\""),
            ("+1 I R 0 8 0 0", 1, "TIME_US \"+1\""),
            ("5 I R 0 8 0 0\n4 I R 8 8 0 0", 2, "before the 5"),
            ("0 X R 0 8 0 0", 1, "KIND \"X\" is none of I, M, F, D, C"),
            ("0 I X 0 8 0 0", 1, "OP \"X\" is none of R, W, F, D"),
            ("0 I R 18446744073709551615 8 0 0", 1, "SECTOR "),
            ("0 I R 0 4294967296 0 0", 1, "SECTORS \"4294967296\""),
            ("0 I R 0 0 0 0", 1, "only a flush"),
            ("0 I R 0 8 4 0", 1, "CLASS \"4\" is not a whole number in 0..=3"),
            ("0 I R 0 8 0 8", 1, "LEVEL \"8\" is not a whole number in 0..=7"),
            ("0 I R 0 8 - -", 1, "CLASS \"-\""),
            ("0 I R 0 8 0 0\n0 D R 0 8 0 0", 2, "`- -`"),
            ("0 N R 0 8 - -", 1, "`- - -`"),
            ("0 T - - - 0 0", 1, "`- -`"),
            ("0 I R 0 8 0 0 3", 1, "\"3\" behind LEVEL is not NAME=VALUE"),
            ("0 I R 0 8 0 0 frob=3", 1, "\"frob\" is none of ctx, hq"),
            ("0 I R 0 8 0 0 ctx=4096", 1, "0..=4095"),
            ("0 I R 0 8 0 0 flags=sync+frob", 1, "flags \"frob\" is none of sync"),
            ("0 C R 0 8 - - done=x", 1, "done \"x\""),
            ("0 G - - - - - group=1", 1, "a weight in 1..=1000"),
            ("0 P - - - - - group=0 parent=1", 1, "above itself"),
            ("0 P - - - - - group=1 parent=2\n0 P - - - - - group=2 parent=1", 2, "above itself"),
            ("calls some", 1, "is not `all`"),
            ("queue nr_requests", 1, "an attribute and a value"),
            ("clock_us 1\nclock_us 2", 2, "on line 1 already"),
            ("compat 1\ncompat 2", 2, "on line 1 already"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(&format!("line {line}: ")), "{text:?}: {error}");
            assert!(error.contains(part), "{text:?}: {error}");
        }
        let error = Recording::read(b"# fine\n\xff\n").unwrap_err().to_string();
        assert_eq!(error, "line 2: not UTF-8 text");
    }

    #[test]
    fn what_contradicts_the_lines_before_it_is_refused() {
        for (text, part) in [
            ("0 D R 0 8 - -", "no such request is queued"),
            ("0 I R 0 8 0 0\n0 D W 0 8 - -", "no such request is queued"),
            ("0 I R 0 8 0 0\n0 D R 0 16 - -", "no such request is queued"),
            ("0 I R 0 8 0 0\n0 C R 0 8 - -", "no such request is in flight"),
            ("0 I R 0 8 0 0\n0 D R 0 8 - -\n0 D R 0 8 - -", "no such request is queued"),
            ("0 I R 0 8 0 0\n0 M R 16 8 0 0", "nothing that is queued ends there"),
            ("0 I R 0 8 0 0\n0 M W 8 8 0 0", "nothing that is queued ends there"),
            ("0 I R 16 8 0 0\n0 F R 0 8 0 0", "starts where it ends"),
            ("0 M F 0 0 0 0", "a flush is never merged"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_dispatched_request_may_be_made_of_bios_that_cover_the_same_sectors() {
        // Which two of the three became one can only be told by what is left.
        for rest in ["R 0 16", "R 0 8"] {
            let (joined, end) = if rest == "R 0 16" { ("R 0 24", 24) } else { ("R 0 32", 32) };
            let text = format!(
                "0 I R 0 16 0 0\n0 I R 0 8 0 0\n0 M R {} 16 0 0\n1 D {joined} - -\n\
                 2 D {rest} - -\n3 C {joined} - -\n3 C {rest} - -",
                end - 16
            );
            assert_eq!(read(&text).map(|recording| recording.events.len()), Ok(7), "{text}");
            let once_more = read(&format!("{text}\n4 D {rest} - -")).unwrap_err();
            assert!(once_more.contains("line 8"), "{once_more}");
        }
    }

    #[test]
    fn a_flush_passes_the_scheduler_by() {
        assert!(read("0 D F 0 0 - -\n1 C F 0 0 - -").is_ok());
        assert!(read("0 I F 0 0 0 0\n0 D F 0 0 - -\n1 C F 0 0 - -").is_ok());
        assert!(read("0 C F 0 0 - -").is_err());
    }
}

//! The constructor line of dm's multipath target, as text in and out: features, hardware handler,
//! priority groups, and in each a selector with its paths. Nothing is opened here.
//!
//! Bounds are those of the kernel's constructor. A path is named as the configuration names disks,
//! where dm prints `major:minor` (docs/behaviour/multipath.md, section 7).

use std::fmt;

use super::words::Words;

/// Most priority groups, and most paths of one.
pub const MANY_MAX: u32 = 1024;

/// Delay of a repeated activation if none is stated, ms.
pub const PG_INIT_DELAY_DEFAULT_MS: u32 = 2000;

/// The way in which requests reach the paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Bios, without a queue above.
    Bio,
    /// Requests of the legacy queue. The default: a table names the mode only if it is another.
    #[default]
    Rq,
    /// Requests of the multi-queue path.
    Mq,
}

impl Mode {
    /// The word of the table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Mode::Bio => "bio",
            Mode::Rq => "rq",
            Mode::Mq => "mq",
        }
    }
}

/// The features of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// I/O waits while no path is left.
    pub queue_if_no_path: bool,
    /// A handler that the device already has stays. Always so since Linux 4.3; kept for the text.
    pub retain_attached_hw_handler: bool,
    /// Repeated activations of a group; 0: none is repeated.
    pub pg_init_retries: u32,
    /// Delay before one, ms.
    pub pg_init_delay_msecs: u32,
    /// The mode, if the table states one.
    pub queue_mode: Option<Mode>,
}

impl Default for Features {
    fn default() -> Features {
        Features {
            queue_if_no_path: false,
            retain_attached_hw_handler: false,
            pg_init_retries: 0,
            pg_init_delay_msecs: PG_INIT_DELAY_DEFAULT_MS,
            queue_mode: None,
        }
    }
}

/// A path selector with the arguments of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each path in its turn.
    RoundRobin,
    /// The path with the fewest requests under way.
    QueueLength,
    /// The path that would be through first, by bytes under way and relative throughput.
    ServiceTime,
    /// The same, by the service times seen.
    HistoricalServiceTime {
        /// Weight of the past for a service of no time, in 1/1024.
        base_weight: u32,
        /// How many times as slow a path has to be before times count; 0: always.
        threshold_multiplier: u32,
    },
    /// The path of the submitting CPU.
    IoAffinity,
}

impl Policy {
    /// Historical service time as it is without arguments.
    pub const HISTORICAL: Policy =
        Policy::HistoricalServiceTime { base_weight: 972, threshold_multiplier: 0 };

    /// The name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round-robin",
            Policy::QueueLength => "queue-length",
            Policy::ServiceTime => "service-time",
            Policy::HistoricalServiceTime { .. } => "historical-service-time",
            Policy::IoAffinity => "io-affinity",
        }
    }

    /// Arguments of a path in the table's text.
    fn path_args(self) -> usize {
        if self == Policy::ServiceTime { 2 } else { 1 }
    }
}

/// A path of a group, with the arguments of its selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLine {
    /// The device's name.
    pub device: String,
    /// Requests in a row: 0 or 1. More were taken once; since Linux 4.6 they are 1, with a warning.
    pub repeat_count: u32,
    /// The line asked for more.
    pub was_repeated: bool,
    /// Service time: throughput relative to the other paths; 0: only if no other is left.
    pub relative_throughput: u32,
    /// IO affinity: the CPUs whose I/O it carries, one bit each.
    pub cpus: u128,
}

impl PathLine {
    /// A path with nothing special about it.
    #[must_use]
    pub fn plain(device: &str) -> PathLine {
        PathLine {
            device: device.to_owned(),
            repeat_count: 1,
            was_repeated: false,
            relative_throughput: 1,
            cpus: u128::MAX,
        }
    }
}

/// A priority group of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLine {
    /// Its selector.
    pub policy: Policy,
    /// Its paths.
    pub paths: Vec<PathLine>,
}

/// The arguments of the multipath target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The features.
    pub features: Features,
    /// Name and arguments of the hardware handler.
    pub handler: Vec<String>,
    /// The priority groups, most wanted first.
    pub groups: Vec<GroupLine>,
    /// The group to begin with, counted from 1; 0 with no groups.
    pub initial: u32,
}

impl Table {
    /// One group of these paths under `policy`.
    #[must_use]
    pub fn of_paths<'a>(policy: Policy, devices: impl IntoIterator<Item = &'a str>) -> Table {
        let paths = devices.into_iter().map(PathLine::plain).collect();
        Table { groups: vec![GroupLine { policy, paths }], initial: 1, ..Table::default() }
    }

    /// The paths of all groups, in their order.
    pub fn paths(&self) -> impl Iterator<Item = &PathLine> {
        self.groups.iter().flat_map(|group| &group.paths)
    }

    /// Drops the other paths, and groups that have none left. If the group to begin with goes, the
    /// one before it is begun with, or else the first.
    pub fn keep_paths(&mut self, keeps: impl Fn(&str) -> bool) {
        let (mut number, mut initial) = (0, 0);
        self.groups.retain_mut(|group| {
            number += 1;
            group.paths.retain(|path| keeps(&path.device));
            let stays = !group.paths.is_empty();
            initial += u32::from(stays && number <= self.initial);
            stays
        });
        self.initial = initial.max(u32::from(!self.groups.is_empty()));
    }

    /// Reads the arguments behind `START LENGTH multipath`.
    ///
    /// # Errors
    /// A sentence with name, value and bound.
    pub fn parse(text: &str) -> Result<Table, String> {
        let mut words = Words::new(text);
        let features = parse_features(&mut words)?;
        let handler = words.list("hw handler args", MANY_MAX)?;
        if features.queue_mode == Some(Mode::Bio) && !handler.is_empty() {
            return Err(format!(
                "queue_mode bio takes no hw handler: hw handler args={}, at most 0",
                handler.len()
            ));
        }
        let count = words.number("PGs", 0..=MANY_MAX)?;
        let initial = words.number("initial PG", 0..=MANY_MAX)?;
        if (count == 0) != (initial == 0) || initial > count {
            let least = u32::from(count > 0);
            return Err(format!("initial PG={initial} is outside {least}..={count}"));
        }
        let mut groups = Vec::new();
        while !words.is_empty() {
            groups.push(parse_group(&mut words)?);
        }
        if groups.len() != count as usize {
            return Err(format!(
                "priority group count mismatch: PGs={count}, and {} are described",
                groups.len()
            ));
        }
        let table = Table { features, handler, groups, initial };
        table.refuse_doubles()?;
        Ok(table)
    }

    /// A path twice would be failed once and used still.
    fn refuse_doubles(&self) -> Result<(), String> {
        let mut names: Vec<&str> = self.paths().map(|path| path.device.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("path {} is named twice", pair[0])),
            None => Ok(()),
        }
    }
}

fn parse_features(words: &mut Words<'_>) -> Result<Features, String> {
    let mut list = words.list("feature args", 8)?.into_iter();
    let mut features = Features::default();
    while let Some(word) = list.next() {
        let mut number = |range| super::words::number(&word, list.next().as_deref(), range);
        match word.to_ascii_lowercase().as_str() {
            "queue_if_no_path" => features.queue_if_no_path = true,
            "retain_attached_hw_handler" => features.retain_attached_hw_handler = true,
            "pg_init_retries" => features.pg_init_retries = number(1..=50)?,
            "pg_init_delay_msecs" => features.pg_init_delay_msecs = number(0..=60_000)?,
            "queue_mode" => features.queue_mode = Some(parse_mode(list.next().as_deref())?),
            _ => return Err(format!("unknown multipath feature {word:?}; known are {FEATURES}")),
        }
    }
    Ok(features)
}

const FEATURES: &str = "queue_if_no_path, retain_attached_hw_handler, pg_init_retries N, \
                        pg_init_delay_msecs N, queue_mode bio|rq|mq";

fn parse_mode(word: Option<&str>) -> Result<Mode, String> {
    match word.unwrap_or_default().to_ascii_lowercase().as_str() {
        "bio" => Ok(Mode::Bio),
        "rq" => Ok(Mode::Rq),
        "mq" => Ok(Mode::Mq),
        other => Err(format!("queue_mode={other:?} is none of bio, rq, mq")),
    }
}

fn parse_group(words: &mut Words<'_>) -> Result<GroupLine, String> {
    let policy = parse_policy(words)?;
    let paths = words.number("paths", 1..=MANY_MAX)?;
    let args = words.number("args per path", 0..=MANY_MAX)? as usize;
    let missing = || format!("not enough path parameters: {paths} paths with {args} args each");
    let mut group = GroupLine { policy, paths: Vec::new() };
    for _ in 0..paths {
        let device = words.next().ok_or_else(missing)?;
        let mut given = Vec::new();
        for _ in 0..args {
            given.push(words.next().ok_or_else(missing)?);
        }
        group.paths.push(parse_path(policy, device, &given)?);
    }
    Ok(group)
}

fn parse_policy(words: &mut Words<'_>) -> Result<Policy, String> {
    let name = words.next().ok_or("a priority group begins with the name of its selector")?;
    let policy = match name {
        "round-robin" => Policy::RoundRobin,
        "queue-length" => Policy::QueueLength,
        "service-time" => Policy::ServiceTime,
        "historical-service-time" => Policy::HISTORICAL,
        "io-affinity" => Policy::IoAffinity,
        other => {
            return Err(format!(
                "unknown path selector {other:?}; known are round-robin, queue-length, \
                 service-time, historical-service-time, io-affinity"
            ));
        }
    };
    let most = if policy == Policy::HISTORICAL { 2 } else { 0 };
    let args = words.list(&format!("{name} args"), most)?;
    if policy != Policy::HISTORICAL {
        return Ok(policy);
    }
    let number = |index: usize, name, default, max| match args.get(index) {
        None => Ok(default),
        Some(word) => super::words::number(name, Some(word), 0..=max),
    };
    Ok(Policy::HistoricalServiceTime {
        base_weight: number(0, "base_weight", 972, 1023)?,
        threshold_multiplier: number(1, "threshold_multiplier", 0, MULTIPLIER_MAX)?,
    })
}

/// Largest multiplier: a product with a service time still fits.
const MULTIPLIER_MAX: u32 = 1024;

fn parse_path(policy: Policy, device: &str, args: &[&str]) -> Result<PathLine, String> {
    let mut path = PathLine::plain(device);
    let most = policy.path_args();
    if args.len() > most || (policy == Policy::IoAffinity && args.is_empty()) {
        let least = usize::from(policy == Policy::IoAffinity);
        let (name, given) = (policy.name(), args.len());
        return Err(format!("{name}: args per path={given} is outside {least}..={most}"));
    }
    let in_path = |error: String| format!("path {device}: {error}");
    if policy == Policy::IoAffinity {
        path.cpus = parse_cpus(args[0]).map_err(in_path)?;
        return Ok(path);
    }
    if let Some(word) = args.first() {
        let count =
            super::words::number("repeat_count", Some(word), 0..=u32::MAX).map_err(in_path)?;
        path.repeat_count = count.min(1);
        path.was_repeated = count > 1;
    }
    if let Some(word) = args.get(1) {
        path.relative_throughput =
            super::words::number("relative_throughput", Some(word), 0..=100).map_err(in_path)?;
    }
    Ok(path)
}

/// A CPU mask: hexadecimal digits, in groups of eight with commas between as Linux prints it.
fn parse_cpus(word: &str) -> Result<u128, String> {
    let digits: String = word.trim_start_matches("0x").chars().filter(|c| *c != ',').collect();
    let significant = digits.trim_start_matches('0');
    match u128::from_str_radix(if significant.is_empty() { "0" } else { significant }, 16) {
        Ok(0) => Err(format!("CPU mask {word:?} names no CPU")),
        Ok(cpus) if !digits.is_empty() => Ok(cpus),
        _ => Err(format!("CPU mask {word:?} is no hexadecimal number of up to 128 bits")),
    }
}

fn cpus_text(cpus: u128) -> String {
    let digits = format!("{cpus:x}");
    let first = digits.len() % 8;
    let (head, rest) = digits.split_at(first);
    let mut parts: Vec<&str> = if head.is_empty() { Vec::new() } else { vec![head] };
    parts.extend(rest.as_bytes().chunks(8).map(|part| std::str::from_utf8(part).unwrap_or("")));
    parts.join(",")
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        let mut say = |is_set: bool, name: &str, value: Option<String>| {
            if is_set {
                words.push(name.to_owned());
                words.extend(value);
            }
        };
        let delay = self.pg_init_delay_msecs;
        say(self.queue_if_no_path, "queue_if_no_path", None);
        say(self.pg_init_retries > 0, "pg_init_retries", Some(self.pg_init_retries.to_string()));
        let other_delay = delay != PG_INIT_DELAY_DEFAULT_MS;
        say(other_delay, "pg_init_delay_msecs", Some(delay.to_string()));
        say(self.retain_attached_hw_handler, "retain_attached_hw_handler", None);
        let mode = self.queue_mode.filter(|mode| *mode != Mode::Rq);
        say(mode.is_some(), "queue_mode", mode.map(|mode| mode.word().to_owned()));
        write_list(f, &words)
    }
}

/// A count and so many words.
fn write_list(f: &mut fmt::Formatter<'_>, words: &[String]) -> fmt::Result {
    write!(f, "{}", words.len())?;
    words.iter().try_for_each(|word| write!(f, " {word}"))
}

impl fmt::Display for GroupLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.policy.name(), PolicyArgs(self.policy))?;
        write!(f, " {} {}", self.paths.len(), self.policy.path_args())?;
        for path in &self.paths {
            write!(f, " {}", path.device)?;
            match self.policy {
                Policy::IoAffinity => write!(f, " {}", cpus_text(path.cpus))?,
                Policy::ServiceTime => {
                    write!(f, " {} {}", path.repeat_count, path.relative_throughput)?;
                }
                _ => write!(f, " {}", path.repeat_count)?,
            }
        }
        Ok(())
    }
}

/// The count and the arguments of a selector, as table and status line have them.
pub(super) struct PolicyArgs(pub(super) Policy);

impl fmt::Display for PolicyArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Policy::HistoricalServiceTime { base_weight, threshold_multiplier } => {
                write!(f, "2 {base_weight} {threshold_multiplier}")
            }
            _ => f.write_str("0"),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.features)?;
        write_list(f, &self.handler)?;
        write!(f, " {} {}", self.groups.len(), self.initial)?;
        self.groups.iter().try_for_each(|group| write!(f, " {group}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_are_dropped_take_their_groups_along_and_the_first_group_stays_one_of_those_left()
    {
        let text = "0 0 3 2 round-robin 0 1 0 a service-time 0 2 0 b c round-robin 0 1 0 d";
        for (dropped, left) in [
            ("", text),
            ("c", "0 0 3 2 round-robin 0 1 0 a service-time 0 1 0 b round-robin 0 1 0 d"),
            ("bc", "0 0 2 1 round-robin 0 1 0 a round-robin 0 1 0 d"),
            ("a", "0 0 2 1 service-time 0 2 0 b c round-robin 0 1 0 d"),
            ("abc", "0 0 1 1 round-robin 0 1 0 d"),
            ("abcd", "0 0 0 0"),
        ] {
            let mut table = Table::parse(text).expect("a table");
            table.keep_paths(|name| !dropped.contains(name));
            assert_eq!(table, Table::parse(left).expect("a table"), "without {dropped:?}");
        }
    }
}

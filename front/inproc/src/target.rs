//! The one parser of target strings: `KIND:REST[,OPTION=VALUE]...`.
//!
//! A comma inside a path is written `\,`, a plus `\+`, a backslash `\\`; those in the value of an
//! option that stands in double quotes need nothing. So are those of a target that stands in
//! another in the place of a disk's name. The result is checked as far as text can be; the rest is
//! up to the driver.

mod made;

use weir_bio::units::{parse_number, parse_switch, parse_time_ns};
use weir_queue::{Backing, Config, Identity, QueueMode, Spread, TargetOption, WbtTarget, Written};
use weir_sched::{SCHEDULERS, nearest};

use crate::cmdline::Cmdline;
use crate::drivers::{feature_of, kind_of, kinds, lies_on_others};
use crate::stated::{LOGICAL_BLOCK, PHYSICAL_BLOCK, Stated};

/// A target, [parsed](Target::parse) or [made piece by piece](Target::file).
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the bytes go.
    pub backing: Box<dyn Backing>,
    /// How the queues in front of it are built; `queues` counts only if
    /// [`queues_given`](Target::queues_given).
    pub config: Config,
    /// Whether the number of hard queues was stated.
    pub queues_given: bool,
    /// Whether the queue mode was stated.
    pub mode_given: bool,
    /// The boot parameters for this disk alone.
    pub cmdline: Cmdline,
    /// The attributes of `queue` in the tree that were stated, each as its file there takes it;
    /// the last of a name counts.
    pub attributes: Vec<(&'static str, u64)>,
    /// What is stated of the device itself.
    pub stated: Stated,
}

/// An option that every target has.
struct Known {
    option: TargetOption,
    kind: Kind,
}

/// What an option sets.
enum Kind {
    /// What the call does with its value.
    Setting(fn(&mut Target, &str) -> Result<(), String>),
    /// A number in `queue` of the tree.
    Attribute(Attribute),
}
use Kind::Setting;

/// An option that is a file of `queue` in the tree as well, with the number as the file takes it.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// The least it may be.
    pub least: u64,
    /// The most it may be.
    pub most: u64,
    /// Puts a number into a configuration.
    pub set: fn(&mut Config, u64),
    /// The number that a configuration has; `None` for one that the disk sets.
    pub of: fn(&Config) -> Option<u64>,
}

/// The attributes of `queue` that a target may state, by name.
pub fn attributes() -> impl Iterator<Item = (&'static str, &'static Attribute)> {
    OPTIONS.iter().filter_map(|known| match &known.kind {
        Kind::Attribute(attribute) => Some((known.option.name, attribute)),
        Setting(_) => None,
    })
}

const OPTIONS: &[Known] = &[
    Known {
        option: TargetOption {
            name: "queue_mode",
            values: "sq|mq",
            default: "mq",
            doc: "The legacy single-queue path or the multi-queue path.",
        },
        kind: Setting(set_queue_mode),
    },
    Known {
        option: TargetOption {
            name: "queues",
            values: "1 to 64",
            default: "one for each reactor",
            doc: "Hard queues; `queue_mode=sq` and a rotational disk of this machine have 1, an \
                  `nbd` target one for each connection.",
        },
        kind: Setting(set_queues),
    },
    Known {
        option: TargetOption {
            name: "spread",
            values: "submitter|round-robin",
            default: "submitter",
            doc: "How I/O is spread over hard queues: each submitter has its own, or one shared \
                  counter.",
        },
        kind: Setting(set_spread),
    },
    Known {
        option: TargetOption {
            name: "scheduler",
            values: "NAME",
            default: "as Linux picks",
            doc: "The scheduler; `weir schedulers` lists them.",
        },
        kind: Setting(|target, value| {
            target.config.scheduler = Some(String::from(value));
            Ok(())
        }),
    },
    Known {
        option: TargetOption {
            name: "compat",
            values: "RELEASE",
            default: "6.18",
            doc: "The release whose behaviour the scheduler has.",
        },
        kind: Setting(|target, value| {
            target.config.compat = Some(String::from(value));
            Ok(())
        }),
    },
    Known {
        option: TargetOption {
            name: "nr_requests",
            values: "4 to 2048",
            default: "as the scheduler says",
            doc: "Requests that the queue holds.",
        },
        kind: Kind::Attribute(Attribute {
            least: 4,
            most: 2048,
            set: |config, count| config.nr_requests = Some(count as u16),
            of: |config| config.nr_requests.map(u64::from),
        }),
    },
    Known {
        option: TargetOption {
            name: "nomerges",
            values: "0 to 2",
            default: "0",
            doc: "0 merges everything, 1 only what is cheap to find, 2 nothing.",
        },
        kind: Kind::Attribute(Attribute {
            least: 0,
            most: 2,
            set: |config, which| config.nomerges = which as u8,
            of: |config| Some(config.nomerges.into()),
        }),
    },
    Known {
        option: TargetOption {
            name: "wbt_lat_usec",
            values: "0 to 18446744073709551",
            default: "2000; 75000 if rotational",
            doc: "Latency that reads are kept to by throttling background writes, us; 0 throttles \
                  none.",
        },
        kind: Kind::Attribute(Attribute {
            least: 0,
            most: WbtTarget::US_MAX,
            set: |config, us| config.wbt_lat_us = Some(us),
            of: |config| config.wbt_lat_us,
        }),
    },
    Known {
        option: TargetOption {
            name: "max_sectors_kb",
            values: "4 to 1048576",
            default: "driver, at most 4096",
            doc: "Largest request, KiB.",
        },
        kind: Kind::Attribute(Attribute {
            least: 4,
            most: 1 << 20,
            set: |config, kib| config.max_user_sectors = kib as u32 * 2,
            of: |config| Some(u64::from(config.max_user_sectors / 2)),
        }),
    },
    Known {
        option: TargetOption {
            name: "io_timeout",
            values: "1 to 4294967295",
            default: "30000",
            doc: "Time that a request has for its answer, ms.",
        },
        kind: Kind::Attribute(Attribute {
            least: 1,
            most: u32::MAX as u64,
            set: |config, ms| config.timeout_ns = ms * NS_PER_MS,
            of: |config| Some(config.timeout_ns / NS_PER_MS),
        }),
    },
    Known {
        option: TargetOption {
            name: "rotational",
            values: "0|1",
            default: "driver",
            doc: "Whether seeks cost time; the default scheduler follows it.",
        },
        kind: Setting(|target, value| {
            target.stated.rotational = Some(parse_number("rotational", value, 0, 1)? == 1);
            Ok(())
        }),
    },
    Known {
        option: TargetOption {
            name: "logical_block_size",
            values: "512|1024|2048|4096",
            default: "driver",
            doc: "Smallest addressable unit, bytes; no less than the device has, and its size is a \
                  multiple.",
        },
        kind: Setting(|target, value| {
            let bytes = parse_block("logical_block_size", value, LOGICAL_BLOCK)?;
            target.stated.logical_block_size = Some(bytes);
            Ok(())
        }),
    },
    Known {
        option: TargetOption {
            name: "physical_block_size",
            values: "512 to 65536",
            default: "driver",
            doc: "Unit written without reading first, bytes: a power of two, and no less than the \
                  logical block.",
        },
        kind: Setting(|target, value| {
            let bytes = parse_block("physical_block_size", value, PHYSICAL_BLOCK)?;
            target.stated.physical_block_size = Some(bytes);
            Ok(())
        }),
    },
    Known {
        option: TargetOption {
            name: "barriers",
            values: "on|off",
            default: "on",
            doc: "`off` gives durability up: flushes and FUA cost nothing and mean nothing.",
        },
        kind: Setting(|target, value| {
            target.config.barriers = parse_switch("barriers", value)?;
            Ok(())
        }),
    },
    Known {
        option: TargetOption {
            name: "readonly",
            values: "on|off",
            default: "off",
            doc: "Writes are refused; the name alone means `on`.",
        },
        kind: Setting(|target, value| {
            target.config.read_only = parse_switch("readonly", value)?;
            Ok(())
        }),
    },
    Known {
        option: TargetOption {
            name: "kernel_cmdline",
            values: "\"PARAMETERS\"",
            default: "none",
            doc: "Boot parameters for this disk alone.",
        },
        kind: Setting(|target, value| {
            let line = match value.strip_prefix('"') {
                None => value,
                Some(rest) => rest.strip_suffix('"').ok_or_else(|| {
                    format!("kernel_cmdline={value} has no closing quote before the next option")
                })?,
            };
            target.cmdline = Cmdline::parse(line)?;
            Ok(())
        }),
    },
];

const NS_PER_MS: u64 = 1_000_000;

/// In how many others a target stands at most.
const NESTED_MAX: usize = 8;

/// The options that every target has.
pub fn options() -> impl Iterator<Item = &'static TargetOption> {
    OPTIONS.iter().map(|known| &known.option)
}

impl Target {
    /// Parses a target string.
    ///
    /// # Errors
    /// A sentence naming the part that is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Target, String> {
        Target::parse_within(text, 0)
    }

    /// One that stands in so many others, each in the next.
    fn parse_within(text: &str, others: usize) -> Result<Target, String> {
        let kind = text.split_once(':').and_then(|(name, _)| kind_of(name));
        let head = if kind.is_some_and(lies_on_others) { Head::OfOthers } else { Head::Plain };
        let mut parts = split(text, head).into_iter();
        let head = parts.next().unwrap_or_default();
        let known =
            head.split_once(':').and_then(|(name, rest)| Some((name, rest, kind_of(name)?)));
        let text = &*shown(text);
        let (name, rest, kind) = known.ok_or_else(|| kind_error(text))?;
        let backing = (kind.parse)(&Written { name, rest, text })?;
        let mut target = Target::over(backing);
        for option in parts {
            target.apply(&option)?;
        }
        target.check(text)?;
        target.nested_within(others + 1)?;
        Ok(target)
    }

    /// A target that states nothing beside its backing.
    fn over(backing: Box<dyn Backing>) -> Target {
        let own_mode = backing.queue_mode();
        let config = Config { mode: own_mode.unwrap_or_default(), ..Config::default() };
        let (queues_given, mode_given) = (false, own_mode.is_some());
        let (cmdline, attributes) = (Cmdline::default(), Vec::new());
        let stated = Stated::default();
        Target { backing, config, queues_given, mode_given, cmdline, attributes, stated }
    }

    /// The targets that stand in this one in the place of disks' names: each with what it is called
    /// among the legs of the backing.
    ///
    /// # Errors
    /// The fault of one of them; two that are one device, unless they are paths to it.
    pub fn nested(&self) -> Result<Vec<(String, Target)>, String> {
        self.nested_within(1)
    }

    fn nested_within(&self, others: usize) -> Result<Vec<(String, Target)>, String> {
        let mut nested: Vec<(String, Target)> = Vec::new();
        for leg in self.backing.legs() {
            let Some(text) = self.backing.leg_target(&leg) else { continue };
            if others > NESTED_MAX {
                return Err(format!("target {text:?} stands in more than {NESTED_MAX} others"));
            }
            let known = shown(text);
            if known != text {
                return Err(format!(
                    "target {known:?} stands in another, whose status shows it: give it \
                     secret_file=FILE in the place of the secret"
                ));
            }
            let target = Target::parse_within(text, others)?;
            let identity = target.backing.identity();
            let is_same = |(_, other): &&(String, Target)| {
                identity != Identity::Own && other.backing.identity() == identity
            };
            if let Some((other, _)) =
                nested.iter().find(is_same).filter(|_| !self.backing.has_paths())
            {
                return Err(format!("{other} and {text} are one device: each leg is another"));
            }
            nested.push((leg, target));
        }
        Ok(nested)
    }

    fn apply(&mut self, option: &str) -> Result<(), String> {
        // `readonly` alone means `readonly=on`.
        let (name, value) = option.split_once('=').unwrap_or((option, "on"));
        let kind = self.backing.kind();
        let of_all = OPTIONS.iter().find(|known| known.option.name == name);
        let of_kind = kind.options.iter().any(|known| known.name == name);
        if of_all.is_none() && !of_kind {
            let tunables = SCHEDULERS.iter().flat_map(|entry| entry.tunables);
            if tunables.clone().any(|tunable| tunable.name == name) && option.contains('=') {
                self.config.tunables.push((String::from(name), String::from(value)));
                return Ok(());
            }
            let valid = options().map(|option| option.name);
            let valid: Vec<_> = valid.chain(kind.options.iter().map(|known| known.name)).collect();
            let hint = match nearest(name, valid.iter().copied()) {
                Some(meant) => format!(" (is {meant} meant?)"),
                None if option.contains('=') => String::new(),
                None => String::from(" (a comma that parts no options is written `\\,`)"),
            };
            return Err(format!(
                "unknown option {name:?} of a {} target{hint}; valid: {}, and the tunables of its \
                 scheduler",
                kind.names[0],
                valid.join(", ")
            ));
        }
        if !option.contains('=') && name != "readonly" {
            return Err(format!("option {name} needs a value, as in {name}=..."));
        }
        match of_all {
            Some(Known { kind: Setting(set), .. }) => set(self, value),
            Some(Known { kind: Kind::Attribute(attribute), option }) => {
                self.state(option.name, attribute, value)
            }
            None => self.backing.set(name, value),
        }
    }

    /// Sets an attribute, and keeps that it was stated.
    fn state(
        &mut self,
        name: &'static str,
        attribute: &Attribute,
        text: &str,
    ) -> Result<(), String> {
        let value = parse_number(name, text, attribute.least, attribute.most)?;
        self.attributes.retain(|(known, _)| *known != name);
        self.attributes.push((name, value));
        (attribute.set)(&mut self.config, value);
        Ok(())
    }

    fn check(&self, text: &str) -> Result<(), String> {
        let config = &self.config;
        if self.backing.queue_mode().is_some_and(|mode| mode != config.mode) {
            return Err(format!("queue_mode in {text:?}: its table says another"));
        }
        if config.mode == QueueMode::Sq && self.queues_given && config.queues != 1 {
            return Err(format!("queues={} in {text:?}: queue_mode=sq has 1", config.queues));
        }
        if config.mode == QueueMode::Sq && config.spread == Spread::RoundRobin {
            return Err(format!(
                "spread=round-robin in {text:?}: queue_mode=sq has one list and nothing to spread"
            ));
        }
        self.stated.check().map_err(|why| format!("{why} in {text:?}"))?;
        self.backing.check(config, self.queues_given, text)
    }
}

/// A target as messages and documents show it: without a secret in front of its host, as in
/// `iscsi://USER%SECRET@HOST`.
#[must_use]
pub fn shown(text: &str) -> String {
    let hidden = || {
        let start = text.find(':').filter(|_| !text.starts_with("file:"))?;
        let end = text.rfind('@').filter(|end| *end > start)?;
        let secret = start + text[start..end].find('%')?;
        Some(format!("{}%...{}", &text[..secret], &text[end..]))
    };
    hidden().unwrap_or_else(|| String::from(text))
}

fn kind_error(text: &str) -> String {
    if let Some((name, _)) = text.split_once(':')
        && let Some(feature) = feature_of(name)
    {
        return format!("target {text:?}: {name}: takes the feature `{feature}` of weir-block");
    }
    let kinds = kinds();
    let known: Vec<&str> = kinds.iter().flat_map(|kind| kind.syntax).copied().collect();
    let names = kinds.iter().flat_map(|kind| kind.names).copied();
    let hint = match text.split_once(':') {
        Some((name, _)) => nearest(name, names).map(|meant| format!("; is {meant}: meant?")),
        None => Some(String::from("; a file is file:PATH")),
    };
    let hint = hint.unwrap_or_default();
    format!("target {text:?} does not start with {}{hint}", known.join(", "))
}

/// Cuts a target string at commas that neither a backslash nor quotes protect, and takes the
/// backslashes away: the kind with its rest, then the options.
#[must_use]
pub fn split_at_commas(text: &str) -> Vec<String> {
    split(text, Head::Plain)
}

/// The part of a target before its options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    Plain,
    /// Names parted by pluses: what protects a plus, or a backslash, stays for the kind to read.
    OfOthers,
}

fn split(text: &str, head: Head) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let options = parts.len() > 1;
        let part = parts.last_mut().expect("one part");
        match c {
            '\\' => match chars.next() {
                Some(c @ ('+' | '\\')) if head == Head::OfOthers && !options => {
                    part.extend(['\\', c]);
                }
                Some(c @ (',' | '+' | '\\')) => part.push(c),
                Some(c) => part.extend(['\\', c]),
                None => part.push('\\'),
            },
            ',' if !quoted => parts.push(String::new()),
            // Quotes open behind the first `=` of an option and close before the next option: those
            // between, as in a boot parameter, are part of the value.
            '"' if quoted => {
                quoted = !matches!(chars.as_str().chars().next(), None | Some(','));
                part.push(c);
            }
            '"' => {
                let opens = part.find('=').is_some_and(|at| at + 1 == part.len());
                quoted = options && opens && closes(chars.as_str());
                part.push(c);
            }
            c => part.push(c),
        }
    }
    parts
}

/// Whether quotes that were opened close further on.
fn closes(text: &str) -> bool {
    text.ends_with('"') || text.contains("\",")
}

fn set_queue_mode(target: &mut Target, value: &str) -> Result<(), String> {
    target.config.mode = match value {
        "sq" => QueueMode::Sq,
        "mq" => QueueMode::Mq,
        _ => return Err(format!("queue_mode={value} is neither sq nor mq")),
    };
    target.mode_given = true;
    Ok(())
}

/// A size of a block, bytes.
fn parse_block(name: &str, text: &str, (least, most): (u64, u64)) -> Result<u32, String> {
    let bytes = parse_number(name, text, least, most)?;
    match bytes.is_power_of_two() {
        true => Ok(bytes as u32),
        false => Err(format!("{name}={bytes} is no power of two in {least}..={most}")),
    }
}

fn set_queues(target: &mut Target, value: &str) -> Result<(), String> {
    target.config.queues = parse_number("queues", value, 1, 64)? as u16;
    target.queues_given = true;
    Ok(())
}

fn set_spread(target: &mut Target, value: &str) -> Result<(), String> {
    target.config.spread = match value {
        "submitter" => Spread::Submitter,
        "round-robin" => Spread::RoundRobin,
        _ => return Err(format!("spread={value} is neither submitter nor round-robin")),
    };
    Ok(())
}

/// A time option of a command, for callers that have no target to set.
///
/// # Errors
/// See [`parse_time_ns`].
pub fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    parse_time_ns(text).map(std::time::Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that a backing is made of, as text.
    fn backing(text: &str) -> String {
        format!("{:?}", Target::parse(text).unwrap().backing)
    }

    fn error(text: &str) -> String {
        Target::parse(text).unwrap_err()
    }

    #[test]
    fn a_secret_in_a_target_is_in_no_message_and_no_text_of_it() {
        let whole = r"iscsi://weir%s/e@c,r%e\,t@10.0.0.1:3260/iqn.2024-01.test:t1/1";
        assert_eq!(shown(whole), "iscsi://weir%...@10.0.0.1:3260/iqn.2024-01.test:t1/1");
        for same in ["ram:1G", "file:/a%b@c", "iscsi://10.0.0.1/iqn.2024-01.test:t1/1", "nbd://h"] {
            assert_eq!(shown(same), same);
        }
        let target = "iscsi://weir%weirsecret123@h/iqn.2024-01.test:t1/1";
        let of = |options: &str| format!("{target}{options}");
        let parsed = Target::parse(target).unwrap();
        let texts = format!("{parsed:?} {parsed:#?} {}", parsed.backing.settings());
        assert!(!texts.contains("weirsecret") && !texts.contains("119, 101, 105, 114"), "{texts}");
        assert_ne!(texts, format!("{:?}", Target::parse(&target.replace("123", "124")).unwrap()));
        for wrong in [
            of("/2"),
            of("x"),
            of(",queues=3"),
            of(",queue_mode=sq,queues=2"),
            of(",queue_mode=sq,spread=round-robin"),
            of(",secret_file=/s"),
            of(",target_user=out"),
            of(",header_digest=md5"),
            of(",sessions=0"),
            of(",nosuch=1"),
            target.replace("iscsi", "iscsy"),
            target.replace("//", "/"),
            target.replace("iqn", "iqm"),
            target.replace("@h", "@h:0"),
        ] {
            let why = error(&wrong);
            assert!(!why.contains("weirsecret"), "{why}");
        }
    }

    #[test]
    fn a_disk_over_iscsi_is_understood_and_what_is_wrong_with_one_is_named() {
        for (text, parts) in [
            ("iscsi://h/iqn.2024-01.test:t/0", &["host: \"h\", port: 3260", "lun: 0"][..]),
            ("iscsi://[::1]:21260/IQN.2024-01.test:t/70000", &["\"::1\", port: 21260", "70000"]),
            ("iscsi://u@h/eui.02004567a425678d/1,secret_file=/s", &["Some(\"u\")", "\"/s\""]),
            ("iscsi://h/iqn.2024-01.test:t/1,sessions=4,queues=4", &["sessions: 4"]),
            ("iscsi://h/iqn.2024-01.test:t/1,replacement_timeout=-1", &["replacement_s: None"]),
            ("iscsi://h/iqn.2024-01.test:t/1,data_digest=CRC32C", &["data_digest: Require"]),
            ("iscsi://h/iqn.2024-01.test:t/1,portals=i:1+[::2]", &["\"i\", port: 1", "\"::2\""]),
        ] {
            let shown = backing(text);
            for part in parts {
                assert!(shown.contains(part), "{text}: {shown} lacks {part}");
            }
        }
        for (text, words) in [
            ("iscsi:h/iqn.2024-01.test:t/0", "no //"),
            ("iscsi://h/iqn.2024-01.test:t", "number of the unit"),
            ("iscsi://h/iqn.2024-01.test:t/x", "LUN=x"),
            ("iscsi://h/iqn.2024-01.test:t/16777216", "0..=16777215"),
            ("iscsi:///iqn.2024-01.test:t/0", "no host"),
            ("iscsi://h/disk/0", "begins with none of iqn."),
            ("iscsi://@h/iqn.2024-01.test:t/0", "no user"),
            ("iscsi://u@h/iqn.2024-01.test:t/0", "secret_file=FILE"),
            ("iscsi://h/iqn.2024-01.test:t/0,secret_file=/s", "USER@HOST"),
            ("iscsi://u%s@h/iqn.2024-01.test:t/0,secret_file=/s", "a secret and a secret_file"),
            ("iscsi://u%s@h/iqn.2024-01.test:t/0,target_user=o", "go together"),
            (
                "iscsi://h/iqn.2024-01.test:t/0,target_user=o,target_secret_file=/s",
                "only to a user",
            ),
            ("iscsi://h/iqn.2024-01.test:t/0,sessions=65", "sessions=65 is not a number in 1..=64"),
            ("iscsi://h/iqn.2024-01.test:t/0,sessions=2,queues=3", "sessions=2"),
            ("iscsi://h/iqn.2024-01.test:t/0,header_digest=md5", "neither none nor crc32c"),
            ("iscsi://h/iqn.2024-01.test:t/0,login_timeout=0", "in 1..=86400"),
            ("iscsi://h/iqn.2024-01.test:t/0,replacement_timeout=-2", "replacement_timeout=-2"),
            ("iscsi://h/iqn.2024-01.test:t/0,portals=", "portals"),
            ("iscsi://h/iqn.2024-01.test:t/0,initiator=me", "initiator"),
        ] {
            let why = error(text);
            assert!(why.contains(words), "{text}: {why} lacks {words}");
        }
    }

    #[test]
    fn each_kind_is_understood() {
        for (text, parts) in [
            ("null:1G", &["Null", "bytes: 1073741824", "latency_ns: 0"][..]),
            ("null:1G,latency_us=5", &["latency_ns: 5000"]),
            ("ram:64MiB", &["Ram", "bytes: 67108864"]),
            (r"file:/a\,b.img,size=1M", &["File", r#""/a,b.img""#, "Some(1048576)", "Auto"]),
            ("file:/a", &["size: None", "direct: true", "follow: true"]),
            ("file:/a,cache=none", &["direct: true"]),
            ("file:/a,cache=writeback", &["direct: false"]),
            ("file:/a,follow=off", &["follow: false"]),
            ("file:/a,io=threads", &["io: Threads"]),
            ("file:/a,io=uring", &["io: Uring"]),
        ] {
            let shown = backing(text);
            for part in parts {
                assert!(shown.contains(part), "{text}: {shown} lacks {part}");
            }
        }
        let why = Target::parse("file:/a,cache=unsafe").unwrap_err();
        assert!(why.contains("cache=unsafe is neither none nor writeback"), "{why}");
        assert!(Target::parse("ram:1M,cache=none").is_err());
    }

    #[test]
    fn equal_backings_are_those_of_which_the_same_is_said() {
        let parse = |text| Target::parse(text).unwrap().backing;
        assert!(parse("file:/a,io=auto") == parse("file:/a"));
        for other in ["file:/b", "file:/a,io=threads", "ram:1M", "null:1M"] {
            assert!(parse("file:/a") != parse(other), "{other}");
        }
        assert!(parse("file:/a").settings() == parse("file:/b,size=1M").settings());
        assert!(parse("file:/a").settings() != parse("file:/a,cache=writeback").settings());
        assert!(parse("nbd:h:1").settings() != parse("nbd:h:1,connections=2").settings());
        assert!(parse("nbd:h:1").settings() == parse("nbd:i:1").settings());
    }

    #[test]
    fn an_option_that_begins_with_a_quote_is_an_error_like_any_other() {
        assert_eq!(split_at_commas("ram:1M,\"a,b\""), ["ram:1M", "\"a", "b\""]);
        assert!(error("ram:1M,\"").starts_with("unknown option \"\\\"\" of a ram target"));
    }

    #[test]
    fn commas_in_quotes_belong_to_the_value() {
        for (text, elevator, others) in [
            (
                r#"ram:1M,kernel_cmdline="console=ttyS0,115200 elevator=noop",nomerges=2"#,
                Some("noop"),
                &["console=ttyS0,115200"][..],
            ),
            (
                r#"ram:1M,kernel_cmdline="foo="a, b" elevator=noop",nomerges=2"#,
                Some("noop"),
                &[r#"foo="a, b""#],
            ),
            (
                r#"ram:1M,kernel_cmdline=console=ttyS0\,115200,nomerges=2"#,
                None,
                &["console=ttyS0,115200"],
            ),
            (r#"ram:1M,nomerges=2,kernel_cmdline="a,b""#, None, &["a,b"]),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.cmdline.elevator.as_deref(), elevator, "{text}");
            assert_eq!(target.cmdline.others, others, "{text}");
            assert_eq!(target.config.nomerges, 2, "{text}: the options behind it hold");
        }
        let path = backing(r#"file:/a"b,size=1M"#);
        assert!(path.contains(r#"/a\"b"#), "{path}");
    }

    #[test]
    fn a_server_over_tls_has_a_folder_of_certificates_and_perhaps_a_name() {
        for (text, certificates, name) in [
            ("nbds://host,tls-certificates=/c", "/c", None),
            ("nbds://host:1/x?tls-certificates=/c&tls-hostname=h", "/c", Some("h")),
            ("nbds:host:1/x,tls-certificates=/c,tls-hostname=h", "/c", Some("h")),
            ("nbds+unix:///x?socket=/s&tls-certificates=/c", "/c", None),
            ("nbds+unix:/s?x,tls-certificates=/c", "/c", None),
        ] {
            let shown = backing(text);
            let tls = format!("certificates: {certificates:?}, hostname: {name:?}");
            assert!(shown.contains(&tls), "{text}: {shown}");
            assert_eq!(shown.matches("tls").count(), 1, "{text}: {shown}");
        }
        for (text, words) in [
            ("nbds://host", "tls-certificates=DIR"),
            ("nbds://host?tls-psk-file=/k", "tls-psk-file"),
            ("nbd://host,tls-certificates=/c", "begins with nbds"),
        ] {
            let why = Target::parse(text).expect_err(text);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn nbd_servers_are_named_in_four_ways() {
        let tcp = |host, port| format!("Tcp {{ host: {host:?}, port: {port} }}");
        let unix = |path| format!("Unix({path:?})");
        for (text, server, export) in [
            ("nbd:localhost:20000/a", tcp("localhost", 20000), "a"),
            ("nbd:[::1]:20000", tcp("::1", 20000), ""),
            ("nbd://host", tcp("host", 10809), ""),
            ("nbd://host:1/x", tcp("host", 1), "x"),
            ("nbd+unix:/s.sock?disk", unix("/s.sock"), "disk"),
            ("nbd+unix:///e?socket=/s", unix("/s"), "e"),
            ("nbd+unix://?socket=s.sock", unix("s.sock"), ""),
        ] {
            let shown = backing(text);
            let expected = format!("server: {server}, export: {export:?}, connections: 1");
            assert!(shown.contains(&expected), "{text}: {shown}");
        }
    }

    #[test]
    fn a_server_is_waited_for_as_long_as_is_stated() {
        for (text, expected) in [("nbd:h:1", "None"), ("nbd:h:1,reconnect=0", "Some(0)")] {
            assert!(backing(text).contains(&format!("reconnect_s: {expected}")), "{text}");
        }
    }

    #[test]
    fn the_page_of_with_has_a_row_for_each_option_of_every_target() {
        let page = include_str!("target/made.rs");
        for option in options() {
            let row = format!("/// | `{}` |", option.name);
            assert!(page.contains(&row), "no row for {}", option.name);
        }
    }

    #[test]
    fn options_reach_the_configuration() {
        let target = Target::parse(
            "ram:1M,queue_mode=sq,scheduler=noop,nr_requests=64,nomerges=2,barriers=off,readonly,\
             max_sectors_kb=64,io_timeout=500",
        )
        .unwrap();
        let config = target.config;
        assert_eq!(config.mode, QueueMode::Sq);
        assert_eq!((config.nr_requests, config.nomerges), (Some(64), 2));
        assert!(!config.barriers && config.read_only);
        assert_eq!((config.max_user_sectors, config.timeout_ns), (128, 500_000_000));
        let stated = [("nr_requests", 64), ("nomerges", 2), ("max_sectors_kb", 64)];
        assert_eq!(target.attributes[..3], stated);
        let twice = Target::parse("ram:1M,nr_requests=8,nr_requests=064").unwrap();
        assert_eq!(twice.attributes, [("nr_requests", 64)]);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (text, part) in [
            ("disk:1G", "does not start with"),
            ("ram", "does not start with"),
            ("ram:1000", "multiple of 512"),
            ("ram:1G,latency_us=1", "valid: queue_mode"),
            ("ram:1G,nr_requests=3", "nr_requests=3 is not a number in 4..=2048"),
            ("ram:1G,queue_mode=xq", "neither sq nor mq"),
            ("ram:1G,queue_mode=sq,queues=2", "queue_mode=sq has 1"),
            ("ram:1G,queue_mode=sq,spread=round-robin", "spread=round-robin in"),
            ("ram:1G,nomerges", "needs a value"),
            ("ram:1G,rotational=2", "rotational=2 is not a number in 0..=1"),
            ("ram:1G,logical_block_size=8192", "logical_block_size=8192 is not a number in 512..="),
            ("ram:1G,logical_block_size=3000", "logical_block_size=3000 is no power of two in 512"),
            ("ram:1G,physical_block_size=131072", "=131072 is not a number in 512..=65536"),
            (
                "ram:1G,physical_block_size=512,logical_block_size=4096",
                "physical_block_size=512 is below logical_block_size=4096 in \"ram:1G,",
            ),
            ("ram:1G,kernel_cmdline=\"dm_mod.use_blk_mq=maybe\"", "dm_mod.use_blk_mq=maybe"),
            ("ram:1G,kernel_cmdline=\"quiet", "has no closing quote"),
            ("ram:1G,kernel_cmdline=\"", "has no closing quote"),
            ("nbd:host", "names no port"),
            ("nbd:host:99999", "99999"),
            ("nbd:h:1,connections=2,queues=3", "connections=2"),
            ("nbd:h:1,reconnect=soon", "reconnect=soon is not a number in 0..=4294967"),
            ("ram:1M,reconnect=1", "unknown option \"reconnect\""),
            ("nbd+unix:", "names no socket"),
            ("file:", "names no file"),
            ("file:/a,io=aio", "neither auto, uring nor threads"),
            ("ram:1M,io=uring", "unknown option \"io\""),
        ] {
            assert!(error(text).contains(part), "{text}: {}", error(text));
        }
    }
}

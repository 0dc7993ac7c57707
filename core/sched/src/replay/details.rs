//! The optional part of a recording, which weir's own have: the setting of the scheduler in header
//! lines, and fields `NAME=VALUE` behind the seven of an event.

use weir_bio::{Flags, Op};

use crate::contract::Setup;

/// A `queue NAME VALUE` line: part of the setting a scheduler is made in.
pub(crate) struct Attribute {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its value in a setting.
    pub(crate) get: fn(&Setup) -> u64,
    /// Puts a value that another setting had.
    pub(crate) set: fn(&mut Setup, u64),
}

/// All that schedulers and merge rules look at.
pub(crate) const QUEUE: [Attribute; 12] = [
    Attribute {
        name: "nr_requests",
        get: |setup| u64::from(setup.nr_requests),
        set: |setup, value| setup.nr_requests = value as u16,
    },
    Attribute {
        name: "hard_queues",
        get: |setup| u64::from(setup.hard_queues),
        set: |setup, value| setup.hard_queues = value as u16,
    },
    Attribute {
        name: "nomerges",
        get: |setup| u64::from(setup.nomerges),
        set: |setup, value| setup.nomerges = value as u8,
    },
    Attribute {
        name: "rotational",
        get: |setup| u64::from(setup.limits.rotational),
        set: |setup, value| setup.limits.rotational = value != 0,
    },
    Attribute {
        name: "max_sectors",
        get: |setup| u64::from(setup.limits.max_sectors()),
        set: |setup, value| {
            setup.limits.max_hw_sectors = value as u32;
            setup.limits.max_user_sectors = value as u32;
        },
    },
    Attribute {
        name: "max_segments",
        get: |setup| u64::from(setup.limits.max_segments),
        set: |setup, value| setup.limits.max_segments = value as u16,
    },
    Attribute {
        name: "max_discard_sectors",
        get: |setup| u64::from(setup.limits.max_discard_sectors()),
        set: |setup, value| setup.limits.max_hw_discard_sectors = value as u32,
    },
    Attribute {
        name: "max_secure_erase_sectors",
        get: |setup| u64::from(setup.limits.max_secure_erase_sectors),
        set: |setup, value| setup.limits.max_secure_erase_sectors = value as u32,
    },
    Attribute {
        name: "chunk_sectors",
        get: |setup| u64::from(setup.limits.chunk_sectors),
        set: |setup, value| setup.limits.chunk_sectors = value as u32,
    },
    Attribute {
        name: "virt_boundary_mask",
        get: |setup| setup.limits.virt_boundary_mask,
        set: |setup, value| setup.limits.virt_boundary_mask = value,
    },
    Attribute {
        name: "atomic_write_unit_max_sectors",
        get: |setup| u64::from(setup.limits.atomic_write_unit_max_sectors),
        set: |setup, value| setup.limits.atomic_write_unit_max_sectors = value as u32,
    },
    Attribute {
        name: "atomic_write_boundary_sectors",
        get: |setup| u64::from(setup.limits.atomic_write_boundary_sectors),
        set: |setup, value| setup.limits.atomic_write_boundary_sectors = value as u32,
    },
];

/// The attribute of this name.
pub(crate) fn attribute(name: &str) -> Result<&'static Attribute, String> {
    QUEUE.iter().find(|row| row.name == name).ok_or_else(|| {
        let known: Vec<_> = QUEUE.iter().map(|row| row.name).collect();
        format!("queue {name:?} is none of {}", known.join(", "))
    })
}

/// The fields of an event behind the seventh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// `ctx`: the issuing context.
    pub context: Option<u16>,
    /// `hq`: the hard queue that asked, or to which a context belongs.
    pub hard_queue: u16,
    /// `group`: the group of a bio, or the one that is placed or weighed.
    pub group: u32,
    /// `parent`: the group above it.
    pub parent: u32,
    /// `weight`: its weight.
    pub weight: u16,
    /// `hint`: the write lifetime hint.
    pub hint: u16,
    /// `segments`: memory segments.
    pub segments: u8,
    /// `flags`: how the bio is to be treated; `None`: as direct I/O is.
    pub flags: Option<Flags>,
    /// `accepted`, `issued`, `done`: when the block layer took what has ended, when the driver took
    /// it and when it answered, microseconds since the first event.
    pub times_us: [Option<i64>; 3],
    /// `handed_back`: the driver did not carry it out; it is sent again without the scheduler.
    pub handed_back: bool,
}

/// The names of the times.
pub(crate) const TIMES: [&str; 3] = ["accepted", "issued", "done"];

/// The highest number of a context.
const CONTEXT_MAX: u64 = 0xfff;

/// The highest number of a group: a disk has 1,024 of them at most.
const GROUP_MAX: u64 = 1023;

/// Flags by name, joined by `+` in a file.
const FLAGS: [(&str, Flags); 17] = [
    ("sync", Flags::SYNC),
    ("meta", Flags::META),
    ("prio", Flags::PRIO),
    ("idle", Flags::IDLE),
    ("background", Flags::BACKGROUND),
    ("rahead", Flags::RAHEAD),
    ("preflush", Flags::PREFLUSH),
    ("fua", Flags::FUA),
    ("nowait", Flags::NOWAIT),
    ("polled", Flags::POLLED),
    ("nomerge", Flags::NOMERGE),
    ("atomic", Flags::ATOMIC),
    ("failfast_dev", Flags::FAILFAST_DEV),
    ("failfast_transport", Flags::FAILFAST_TRANSPORT),
    ("failfast_driver", Flags::FAILFAST_DRIVER),
    ("nounmap", Flags::NOUNMAP),
    ("nofallback", Flags::NOFALLBACK),
];

/// The flags of a bio for which a recording states none: those of direct I/O.
pub(crate) fn direct(op: Op) -> Flags {
    if op == Op::Write { Flags::SYNC | Flags::IDLE } else { Flags::NONE }
}

/// Flags as a file names them.
pub(crate) fn flags_text(flags: Flags) -> String {
    let names = FLAGS.iter().filter(|(_, flag)| flags.has(*flag)).map(|(name, _)| *name);
    let names: Vec<_> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join("+") }
}

fn flags_of(text: &str) -> Result<Flags, String> {
    if text == "none" {
        return Ok(Flags::NONE);
    }
    text.split('+').try_fold(Flags::NONE, |flags, name| {
        let found = FLAGS.iter().find(|(known, _)| *known == name);
        let (_, flag) = found.ok_or_else(|| {
            let known: Vec<_> = FLAGS.iter().map(|(name, _)| *name).collect();
            format!("flags {name:?} is none of {}", known.join(", "))
        })?;
        Ok(flags | *flag)
    })
}

pub(super) fn number(name: &str, text: &str, most: u64) -> Result<u64, String> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|value| is_digits && *value <= most);
    value.ok_or_else(|| format!("{name} {text:?} is not a whole number in 0..={most}"))
}

fn moment(name: &str, text: &str) -> Result<i64, String> {
    let most = i64::MAX / 2000;
    let moment = text.parse().ok().filter(|moment| (-most..=most).contains(moment));
    moment.ok_or_else(|| format!("{name} {text:?} is not a whole number in -{most}..={most}"))
}

impl Details {
    /// Reads the fields behind the seventh.
    pub(crate) fn read(fields: &[&str]) -> Result<Details, String> {
        let mut details = Details::default();
        for field in fields {
            let (name, text) = field
                .split_once('=')
                .ok_or_else(|| format!("{field:?} behind LEVEL is not NAME=VALUE"))?;
            details.put(name, text)?;
        }
        Ok(details)
    }

    fn put(&mut self, name: &str, text: &str) -> Result<(), String> {
        match name {
            "ctx" => self.context = Some(number(name, text, CONTEXT_MAX)? as u16),
            "hq" => self.hard_queue = number(name, text, 63)? as u16,
            "group" => self.group = number(name, text, GROUP_MAX)? as u32,
            "parent" => self.parent = number(name, text, GROUP_MAX)? as u32,
            "weight" => self.weight = number(name, text, 1000)? as u16,
            "hint" => self.hint = number(name, text, u64::from(u16::MAX))? as u16,
            "segments" => self.segments = number(name, text, 255)? as u8,
            "flags" => self.flags = Some(flags_of(text)?),
            "handed_back" => self.handed_back = number(name, text, 1)? != 0,
            _ => match TIMES.iter().position(|time| *time == name) {
                Some(at) => self.times_us[at] = Some(moment(name, text)?),
                None => {
                    return Err(format!(
                        "{name:?} is none of ctx, hq, group, parent, weight, hint, segments, \
                         flags, handed_back, {}",
                        TIMES.join(", ")
                    ));
                }
            },
        }
        Ok(())
    }
}

//! The properties of a disk: one table, by which they are read, set and told of in errors.

use std::ffi::CString;
use std::fmt;
use std::time::Duration;

use weir::{Disk, Limits};

use crate::call::{Failure, Outcome, text, words};
use crate::disk::{QUEUES_MAX, State};
use crate::queue::{RANGE_MAX, SEGMENTS_MAX, TRANSFER_MAX};

/// The value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Bool(bool),
    Int(i32),
    Uint64(u64),
    Str(CString),
}

/// A property.
struct Row {
    name: &'static str,
    read: Read,
    /// `None`: it is read only.
    set: Option<fn(&mut State, &Value) -> Outcome<()>>,
}

/// Where its value comes from.
enum Read {
    /// The handle, at any time.
    Always(fn(&State) -> Value),
    /// The disk, once it is connected.
    Connected(fn(&Disk) -> Value),
    /// Nowhere: it can be set only.
    Never,
}
use Read::{Always, Connected, Never};

const fn row(name: &'static str, read: Read) -> Row {
    Row { name, read, set: None }
}

impl Row {
    const fn set(self, set: fn(&mut State, &Value) -> Outcome<()>) -> Row {
        Row { set: Some(set), ..self }
    }
}

/// Every property, but for the options of targets. docs/library.md has the same table.
const ROWS: &[Row] = &[
    row("driver", Always(|state| Value::Str(text(&state.driver)))),
    row("address", Never).set(|state, value| state.set_address(value.as_str("address")?)),
    row("name", Always(|state| Value::Str(text(&state.name)))).set(|state, value| {
        state.check_unconnected("name")?;
        state.name = words("name", value.as_str("name")?)?.to_owned();
        Ok(())
    }),
    row("connected", Always(|state| Value::Bool(state.disk.is_some()))),
    row("started", Always(|state| Value::Bool(state.is_started()))),
    row("notices", Connected(|disk| Value::Str(text(&disk.notices().join("\n"))))),
    row("read-only", Connected(|disk| Value::Bool(disk.limits().read_only))).set(|state, value| {
        let value = if value.as_bool("read-only")? { "on" } else { "off" };
        state.set_option("readonly", value)
    }),
    row("capacity", Connected(|disk| Value::Uint64(disk.limits().capacity * 512))),
    row("request-alignment", Connected(|disk| int(disk.limits().logical_block_size))),
    row("optimal-io-alignment", Connected(|disk| int(disk.limits().io_min))),
    row("optimal-io-size", Connected(|disk| int(disk.limits().io_opt))),
    row("buf-alignment", Connected(|_| Value::Int(1))),
    row("optimal-buf-alignment", Connected(|disk| int(disk.limits().dma_alignment + 1))),
    row("max-transfer", Connected(|_| Value::Uint64(TRANSFER_MAX))),
    row("max-segments", Connected(|_| Value::Int(SEGMENTS_MAX as i32))),
    row("max-discard-len", Connected(|_| Value::Uint64(RANGE_MAX))),
    row("max-write-zeroes-len", Connected(|_| Value::Uint64(RANGE_MAX))),
    row("discard-alignment", Connected(|disk| int(discard(&disk.limits())))),
    row("flush-needed", Connected(|disk| Value::Bool(disk.limits().volatile_cache))),
    row("supports-fua-natively", Connected(|disk| Value::Bool(disk.limits().fua))),
    row("needs-mem-regions", Connected(|_| Value::Bool(false))),
    row("hard-queues", Connected(|disk| Value::Int(i32::from(disk.device().queues())))),
    row("active-scheduler", Connected(|disk| Value::Str(text(disk.device().scheduler())))),
    row("max-queues", Always(|_| Value::Int(QUEUES_MAX as i32))),
    row("num-queues", Always(|state| Value::Int(state.queues_count as i32))).set(|state, value| {
        state.check_unstarted("num-queues")?;
        state.queues_count = value.as_count("num-queues", QUEUES_MAX)?;
        Ok(())
    }),
    row("num-entries", Always(|state| Value::Int(state.entries as i32))).set(|state, value| {
        state.check_unstarted("num-entries")?;
        state.entries = value.as_count("num-entries", 1 << 20)?;
        Ok(())
    }),
    row("close-limit-ms", Always(|state| Value::Int(state.close_limit.as_millis() as i32))).set(
        |state, value| {
            state.check_unconnected("close-limit-ms")?;
            let ms = value.as_count("close-limit-ms", i32::MAX as usize)?;
            state.close_limit = Duration::from_millis(ms as u64);
            Ok(())
        },
    ),
    row("memory-held", Always(|state| Value::Int(state.held.count() as i32))),
];

fn int(value: u32) -> Value {
    Value::Int(i32::try_from(value).unwrap_or(i32::MAX))
}

fn discard(limits: &Limits) -> u32 {
    if limits.max_hw_discard_sectors == 0 { 0 } else { limits.discard_granularity }
}

/// The value of a property.
pub(crate) fn get(state: &State, name: &str) -> Outcome<Value> {
    let row = ROWS.iter().find(|row| row.name == name);
    let Some(row) = row else {
        let what = format!("no property {name:?} can be read; there are {}", readable());
        return Err(Failure::new(libc::ENOENT, what));
    };
    match row.read {
        Always(read) => Ok(read(state)),
        Connected(read) => Ok(read(state.connected(name)?)),
        Never => Err(Failure::new(libc::EACCES, format!("property {name} can be set only"))),
    }
}

/// Sets a property, or an option of the target.
pub(crate) fn set(state: &mut State, name: &str, value: &Value) -> Outcome<()> {
    match ROWS.iter().find(|row| row.name == name) {
        Some(Row { set: Some(set), .. }) => set(state, value),
        Some(_) => Err(Failure::new(libc::EACCES, format!("property {name} can be read only"))),
        None => {
            let value = match value {
                Value::Bool(value) => String::from(if *value { "on" } else { "off" }),
                Value::Str(value) => words(name, value)?.to_owned(),
                number => number.to_string(),
            };
            state.set_option(name, &value)
        }
    }
}

fn readable() -> String {
    let rows = ROWS.iter().filter(|row| !matches!(row.read, Never)).map(|row| row.name);
    rows.collect::<Vec<_>>().join(", ")
}

impl Value {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint64(_) => "uint64",
            Value::Str(_) => "str",
        }
    }

    /// Its type is not the one of the call.
    pub(crate) fn mismatch(&self, name: &str, asked: &str) -> Failure {
        let what = format!("property {name} is of the type {}, not {asked}", self.kind());
        Failure::new(libc::ENOTTY, what)
    }

    fn wrong(&self, name: &str, must: &str) -> Failure {
        let what =
            format!("{name}={self}: the property is of the type {must}, not {}", self.kind());
        Failure::new(libc::ENOTTY, what)
    }

    fn as_bool(&self, name: &str) -> Outcome<bool> {
        if let Value::Bool(value) = self { Ok(*value) } else { Err(self.wrong(name, "bool")) }
    }

    fn as_str(&self, name: &str) -> Outcome<&CString> {
        if let Value::Str(value) = self { Ok(value) } else { Err(self.wrong(name, "str")) }
    }

    fn as_count(&self, name: &str, most: usize) -> Outcome<usize> {
        let Value::Int(value) = *self else { return Err(self.wrong(name, "int")) };
        let count = usize::try_from(value).ok().filter(|count| (1..=most).contains(count));
        count.ok_or_else(|| Failure::invalid(format!("{name}={value} is outside 1..={most}")))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => value.fmt(f),
            Value::Int(value) => value.fmt(f),
            Value::Uint64(value) => value.fmt(f),
            Value::Str(value) => value.to_string_lossy().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a text has of each property: `start` in front of its name, `end` behind it.
    fn missing(text: &str, start: &str, end: &str) -> Vec<&'static str> {
        let is_told = |row: &&Row| !text.contains(&format!("{start}{}{end}", row.name));
        ROWS.iter().filter(is_told).map(|row| row.name).collect()
    }

    #[test]
    fn every_property_stands_in_the_document_and_in_the_header() {
        let document = include_str!("../../../docs/library.md");
        assert_eq!(missing(document, "| `", "` |"), [""; 0]);
        let header = include_str!("../include/weir.h");
        assert_eq!(missing(header, " *   ", " "), [""; 0]);
    }

    #[test]
    fn no_property_has_the_name_of_another_or_of_an_option() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..at].iter().all(|other| other.name != row.name), "{}", row.name);
            let mut options = weir::target::options().map(|option| option.name);
            let kinds = weir::drivers::kinds();
            let own = kinds.iter().flat_map(|kind| kind.options).map(|option| option.name);
            assert!(options.all(|name| name != row.name), "{}", row.name);
            assert!(own.into_iter().all(|name| name != row.name), "{}", row.name);
        }
    }
}

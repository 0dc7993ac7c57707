//! Values of a spec's TOML, and the lines they stand in.

use serde::de::{Deserialize, Deserializer, Error};
use weir_bio::units::{parse_size, parse_time_ns};
use weir_proto_scsi::alua::AccessState;

/// A time as text.
pub(crate) fn time<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    parse_time_ns(&String::deserialize(from)?).map_err(Error::custom)
}

/// A time as text that may be left out.
pub(crate) fn time_if_any<'a, D: Deserializer<'a>>(from: D) -> Result<Option<u64>, D::Error> {
    time(from).map(Some)
}

/// A size as text.
pub(crate) fn size<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    parse_size(&String::deserialize(from)?).map_err(Error::custom)
}

/// A number of commands.
pub(crate) fn depth<'a, D: Deserializer<'a>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        depth @ 1..=65_536 => Ok(depth),
        depth => Err(Error::custom(format!("queue_depth={depth} is outside 1..=65536"))),
    }
}

/// A logical block.
pub(crate) fn block<'a, D: Deserializer<'a>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        block @ (512 | 4096) => Ok(block),
        block => Err(Error::custom(format!("block={block} is not 512 or 4096"))),
    }
}

/// A percentage.
pub(crate) fn percent<'a, D: Deserializer<'a>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        percent @ 0..=100 => Ok(percent),
        percent => Err(Error::custom(format!("{percent} percent is outside 0..=100"))),
    }
}

/// A state of a target port group by its name.
pub(crate) fn state<'a, D: Deserializer<'a>>(from: D) -> Result<AccessState, D::Error> {
    let name = String::deserialize(from)?;
    let states = (0..16).map(AccessState::from_bits).filter(|state| state.name() != "reserved");
    let found = states.clone().find(|state| state.name() == name);
    found.ok_or_else(|| {
        let names = states.map(AccessState::name).collect::<Vec<_>>().join(", ");
        Error::custom(format!("state={name:?} is none of: {names}"))
    })
}

/// The line of a byte, from 1.
pub(crate) fn line_at(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

/// The line of a field in the table of that name and index, or that of the table's head; of the
/// first table of the file, which has no head, by an empty name.
pub(crate) fn line_of(text: &str, table: &str, index: usize, field: &str) -> Option<usize> {
    let head = format!("[[{table}]]");
    let lines = || text.lines().map(str::trim).zip(1..);
    let begin = match table {
        "" => 0,
        _ => lines().filter(|(line, _)| line.starts_with(&head)).nth(index)?.1,
    };
    let inside = lines().skip(begin).take_while(|(line, _)| !line.starts_with("[["));
    let named = |line: &str| line.split('=').next().is_some_and(|name| name.trim() == field);
    let line = inside.into_iter().find(|(line, _)| named(line)).map(|(_, number)| number);
    line.or((begin > 0).then_some(begin))
}

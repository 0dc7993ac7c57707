//! Values of a model's TOML.

use serde::de::{Deserialize, Deserializer, Error};
use weir_bio::units::{parse_size, parse_time_ns};

/// A time as text.
pub(crate) fn time<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    parse_time_ns(&String::deserialize(from)?).map_err(Error::custom)
}

/// A time as text that may be left out.
pub(crate) fn time_if_any<'a, D: Deserializer<'a>>(from: D) -> Result<Option<u64>, D::Error> {
    time(from).map(Some)
}

/// Times as text.
pub(crate) fn time_list<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u64>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| parse_time_ns(text).map_err(Error::custom)).collect()
}

/// A size as text, or a rate in bytes a second.
pub(crate) fn size<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    parse_size(&String::deserialize(from)?).map_err(Error::custom)
}

/// The longest time of a disk, ns: a thousand seconds, as that of a process. So the few times of
/// one step of a command do not overflow when they are added up.
const TIME_MAX: u64 = 1_000_000_000_000;

/// Whether each time is within its bound; a sentence with the first that is not.
pub(crate) fn times<const N: usize>(times: [(&str, u64); N]) -> Result<(), String> {
    times.into_iter().try_for_each(|(name, ns)| between(name, ns, 0, TIME_MAX))
}

/// Whether a value is within its bounds; a sentence if not.
pub(crate) fn between(name: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(format!("{name}={value} is outside {least}..={most}")),
    }
}

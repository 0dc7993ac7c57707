//! Values of the file: held to their bounds while it is read, because then their lines are known.

use std::fmt;
use std::num::NonZeroU64;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use weir_access::Listen;
use weir_bio::units::{parse_size, show_size};
use weir_queue::{WEIGHT_MAX, WEIGHT_MIN};

/// Seconds of unused allowance at most.
pub(super) const BURST_MAX: f64 = 3600.0;

/// The largest minimum block that the NBD protocol knows, bytes.
const MINIMUM_BLOCK_MAX: u32 = 1 << 16;

/// Reads a minimum block, bytes.
///
/// # Errors
/// It is no power of two up to 65536.
pub fn parse_minimum_block(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(is_minimum_block).ok_or_else(|| refused_minimum_block(text))
}

fn is_minimum_block(bytes: &u32) -> bool {
    bytes.is_power_of_two() && *bytes <= MINIMUM_BLOCK_MAX
}

fn refused_minimum_block(value: impl fmt::Display) -> String {
    format!("minimum_block={value} is no power of two in 1..={MINIMUM_BLOCK_MAX}")
}

/// Reads a minimum block of a file.
///
/// # Errors
/// It is no power of two up to 65536.
pub fn minimum_block<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let value = i64::deserialize(from)?;
    let bytes = u32::try_from(value).ok().filter(is_minimum_block);
    bytes.map(Some).ok_or_else(|| serde::de::Error::custom(refused_minimum_block(value)))
}

pub(super) fn weight<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    within("weight", i64::deserialize(from)?, WEIGHT_MIN.into(), WEIGHT_MAX.into())
}

pub(super) fn level<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    within("level", i64::deserialize(from)?, 0, 7)
}

/// Bytes a second, as a number or as a size.
pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    from.deserialize_any(Rate).map(Some)
}

/// Reads bytes a second.
struct Rate;

impl Visitor<'_> for Rate {
    type Value = NonZeroU64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes a second from 1 on, or a size as in \"50MiB\"")
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<NonZeroU64, E> {
        let rate = u64::try_from(value).ok().and_then(NonZeroU64::new);
        rate.ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<NonZeroU64, E> {
        let bytes = parse_size(text).map_err(E::custom)?;
        NonZeroU64::new(bytes).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// Where an export begins, bytes, as a number or as a size.
pub(super) fn place<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Bytes("offset"))
}

/// How long an export is, bytes, as a number or as a size.
pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    let bytes = from.deserialize_any(Bytes("size"))?;
    let size = NonZeroU64::new(bytes).ok_or_else(|| {
        serde::de::Error::custom("size=0 is no size: without `size` an export ends with its disk")
    });
    size.map(Some)
}

/// Reads bytes of this key.
struct Bytes(&'static str);

impl Visitor<'_> for Bytes {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a size as in \"50MiB\"")
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<u64, E> {
        let refused = |_| E::custom(format!("{}={value} is below 0", self.0));
        u64::try_from(value).map_err(refused)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<u64, E> {
        parse_size(text).map_err(|why| E::custom(format!("{}: {why}", self.0)))
    }
}

pub(super) fn burst<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    within("burst", f64::deserialize(from)?, 0.0, BURST_MAX)
}

pub(super) fn addresses<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Listen>, D::Error> {
    let addresses = Vec::<Listen>::deserialize(from)?;
    if addresses.is_empty() {
        let why = "listen=[] serves the export nowhere; without `listen` it is served everywhere";
        return Err(serde::de::Error::custom(why));
    }
    Ok(addresses)
}

/// The least that all clients together may be allowed to hold, bytes.
pub const MEMORY_MIN: u64 = 64 << 20;

/// Reads what all clients together may hold.
///
/// # Errors
/// It is no size, or less than the least.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < MEMORY_MIN {
        let least = show_size(MEMORY_MIN);
        return Err(format!("memory={text:?} is below {least}, what two large requests take"));
    }
    Ok(bytes)
}

/// The same of a configuration file, for a front's section.
///
/// # Errors
/// As [`parse_memory`].
pub fn memory_of<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    parse_memory(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

/// The most connections there are.
pub const CLIENTS_MAX: u16 = 1024;

pub(super) fn within<T: PartialOrd + fmt::Display, E: serde::de::Error>(
    name: &str,
    value: T,
    least: T,
    most: T,
) -> Result<Option<T>, E> {
    match value >= least && value <= most {
        true => Ok(Some(value)),
        false => Err(E::custom(format!("{name}={value} is outside {least}..={most}"))),
    }
}

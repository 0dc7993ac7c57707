//! Sizes, times, shares and counts as fio's job files write them.
//!
//! Powers of 1024 throughout. fio itself reads `KiB` as 1000 bytes unless it is told otherwise;
//! here it is what it says.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Bytes, or a share of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the whole.
    Percent(u8),
}

impl Amount {
    /// The bytes of a target of `whole` bytes, cut to whole blocks of `grain` bytes if it is a
    /// share.
    #[must_use]
    pub fn of(self, whole: u64, grain: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => {
                let share = (u128::from(whole) * u128::from(percent) / 100) as u64;
                share - share % grain.max(1)
            }
        }
    }
}

/// Cuts digits from what follows them.
fn split_digits(text: &str) -> (&str, &str) {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    text.split_at(text.len() - rest.len())
}

/// Bytes: digits and `k M G T P`, or these with `b`, `i` or `ib` behind them; case does not count.
///
/// # Errors
/// The text, and what is accepted.
pub fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = split_digits(text);
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit) {
        "" if unit != "ib" => Some(0),
        "k" | "ki" => Some(10),
        "m" | "mi" => Some(20),
        "g" | "gi" => Some(30),
        "t" | "ti" => Some(40),
        "p" | "pi" => Some(50),
        _ => None,
    };
    let (Some(shift), false) = (shift, digits.is_empty()) else {
        return Err(format!(
            "{text:?} is not a size: digits with k, M, G or T (or KiB, MiB, GiB, TiB), as in 64MiB"
        ));
    };
    // Digits alone can only be too many.
    let bytes = digits.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| *bytes <= i64::MAX as u64)
        .ok_or_else(|| format!("size {text:?} is above {} bytes", i64::MAX))
}

/// Bytes, or `N%` of the target.
///
/// # Errors
/// The text, and what is accepted.
pub fn amount(text: &str) -> Result<Amount, String> {
    match text.strip_suffix('%') {
        Some(percent) => Ok(Amount::Percent(whole(percent, 1..=100)? as u8)),
        None => Ok(Amount::Bytes(size(text)?)),
    }
}

/// Nanoseconds: digits with `d h m s ms us ns`, or `unit_ns` each if there is no unit.
///
/// # Errors
/// The text, and what is accepted.
pub fn time(text: &str, unit_ns: u64) -> Result<u64, String> {
    let (digits, unit) = split_digits(text);
    let scale = match unit {
        "" => Some(unit_ns),
        "ns" | "nsec" => Some(1),
        "us" | "usec" => Some(1_000),
        "ms" | "msec" => Some(1_000_000),
        "s" | "sec" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        "d" => Some(86_400_000_000_000),
        _ => None,
    };
    let (Some(scale), false) = (scale, digits.is_empty()) else {
        return Err(format!(
            "{text:?} is not a time: digits with ns, us, ms, s, m, h or d, as in 10s"
        ));
    };
    // Digits alone can only be too many.
    let time = digits.parse().ok().and_then(|number: u64| number.checked_mul(scale));
    time.ok_or_else(|| format!("time {text:?} is above {} s", u64::MAX / 1_000_000_000))
}

/// A whole number within bounds.
///
/// # Errors
/// The bounds.
pub fn whole(text: &str, bounds: RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| bounds.contains(number));
    number.ok_or_else(|| format!("not a whole number in {}..={}", bounds.start(), bounds.end()))
}

/// Yes or no: `1`, `0`, or nothing, which means yes.
///
/// # Errors
/// The accepted values.
pub fn yes(text: &str) -> Result<bool, String> {
    match text {
        "" | "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(String::from("takes 1 or 0, or no value for 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_in_every_spelling() {
        for text in ["4k", "4K", "4kb", "4KiB", "4ki", "4096", "4096b"] {
            assert_eq!(size(text), Ok(4096), "{text}");
        }
        for text in ["", "k", "4 k", "-1", "1.5G", "4kx", "4ib", "4bb"] {
            assert!(size(text).unwrap_err().contains("GiB"), "{text}");
        }
        assert!(size("99999999999999999999").unwrap_err().contains("above 9223372036854775807"));
    }

    #[test]
    fn a_share_of_a_target_is_cut_to_its_grain() {
        assert_eq!(amount("25%").unwrap().of(1_000_000, 4096), 249_856);
        assert_eq!(amount("100%").unwrap().of(1 << 20, 4096), 1 << 20);
        assert_eq!(amount("1m").unwrap().of(5, 4096), 1 << 20);
        assert!(amount("0%").is_err() && amount("101%").is_err() && amount("%").is_err());
    }

    #[test]
    fn a_time_without_unit_is_in_that_of_its_option() {
        assert_eq!(time("10", 1_000_000_000), Ok(10_000_000_000));
        assert_eq!(time("10", 1_000), Ok(10_000));
        assert_eq!(time("2m", 1), Ok(120_000_000_000));
        assert!(time("10y", 1).unwrap_err().contains("as in 10s"));
        assert!(time("99999999999s", 1).unwrap_err().contains("above 18446744073 s"));
    }
}

//! Sizes and times as people write them.

/// A size in bytes: digits with an optional `k M G T` or `KiB MiB GiB TiB` (all powers of 1024).
///
/// # Errors
/// A sentence naming the text and what is accepted.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "k" | "K" | "KiB" => 10,
        "m" | "M" | "MiB" => 20,
        "g" | "G" | "GiB" => 30,
        "t" | "T" | "TiB" => 40,
        _ => return Err(size_error(text)),
    };
    if number.is_empty() {
        return Err(size_error(text));
    }
    // Digits alone can only be too many.
    let bytes = number.parse().ok().and_then(|number: u64| number.checked_mul(1 << shift));
    bytes
        .filter(|bytes| *bytes <= i64::MAX as u64)
        .ok_or_else(|| format!("size {text:?} is above {} bytes", i64::MAX))
}

fn size_error(text: &str) -> String {
    format!("{text:?} is not a size: digits with k, M, G or T (or KiB, MiB, GiB, TiB), as in 64MiB")
}

/// A time in nanoseconds: digits with `ns us ms s`, or `s` if there is no unit.
///
/// # Errors
/// A sentence naming the text and what is accepted.
pub fn parse_time_ns(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let error = || format!("{text:?} is not a time: digits with ns, us, ms or s, as in 10s");
    let scale = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" | "" => 1_000_000_000,
        _ => return Err(error()),
    };
    if number.is_empty() {
        return Err(error());
    }
    // Digits alone can only be too many.
    let time = number.parse().ok().and_then(|number: u64| number.checked_mul(scale));
    time.ok_or_else(|| format!("time {text:?} is above {} s", u64::MAX / 1_000_000_000))
}

/// A number in a range, as the value of `name`.
///
/// # Errors
/// A sentence with name, value and range.
pub fn parse_number(name: &str, text: &str, least: u64, most: u64) -> Result<u64, String> {
    let error = || format!("{name}={text} is not a number in {least}..={most}");
    let value: u64 = text.parse().map_err(|_| error())?;
    if (least..=most).contains(&value) { Ok(value) } else { Err(error()) }
}

/// On or off, as the value of `name`.
///
/// # Errors
/// A sentence with name and value.
pub fn parse_switch(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "on" | "1" | "true" | "yes" => Ok(true),
        "off" | "0" | "false" | "no" => Ok(false),
        _ => Err(format!("{name}={text} is neither on nor off")),
    }
}

/// A size as people read it.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("1M", 1 << 20),
            ("1GiB", 1 << 30),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["", "k", "4KB", "-1", "1.5G", "99999999T", "4 k"] {
            assert!(parse_size(text).unwrap_err().contains(text), "{text}");
        }
    }

    #[test]
    fn times_know_their_units() {
        assert_eq!(parse_time_ns("10s"), Ok(10_000_000_000));
        assert_eq!(parse_time_ns("3"), Ok(3_000_000_000));
        assert_eq!(parse_time_ns("250us"), Ok(250_000));
        assert!(parse_time_ns("10m").is_err() && parse_time_ns("s").is_err());
    }

    #[test]
    fn too_many_digits_are_too_much_and_not_no_number() {
        for text in ["99999999T", "99999999999999999999"] {
            assert!(parse_size(text).unwrap_err().contains("above 9223372036854775807 bytes"));
        }
        for text in ["18446744074s", "99999999999999999999ns"] {
            assert!(parse_time_ns(text).unwrap_err().contains("above 18446744073 s"));
        }
    }
}

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
    let number: u64 = number.parse().map_err(|_| size_error(text))?;
    number
        .checked_mul(1 << shift)
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
    let number: u64 = number.parse().map_err(|_| error())?;
    number.checked_mul(scale).ok_or_else(error)
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
        assert!(parse_time_ns("10m").is_err());
    }
}

//! How a write to an attribute is read: Linux's parsers (docs/behaviour/block-layer.md, section
//! 15.2, held against a real kernel in `tests/kernel.rs`).

use crate::errno::{Errno, Failure};

/// The text of a write for a store: up to the first NUL.
pub(crate) fn text_of(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// A whole number without a sign, decimal, of at most 32 bits.
pub(crate) fn unsigned(name: &str, text: &str) -> Result<u32, Failure> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let digits = line.strip_prefix('+').unwrap_or(line);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match plain.then(|| digits.parse::<u32>().ok()).flatten() {
        Some(number) => Ok(number),
        None => {
            Failure::invalid(format!("{} is not a number in 0..={}", shown(name, text), u32::MAX))
        }
    }
}

/// A whole number of at most 63 bits and a sign, decimal. One of more digits is out of range,
/// whatever stands behind them.
pub(crate) fn signed(name: &str, text: &str) -> Result<i64, Failure> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let (sign, digits) = match (line.strip_prefix('-'), line.strip_prefix('+')) {
        (Some(digits), _) => (-1, digits),
        (None, digits) => (1, digits.unwrap_or(line)),
    };
    let end = digits.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let bounds = || format!("{} is not a number in {}..={}", shown(name, text), i64::MIN, i64::MAX);
    let number = match digits[..end].parse::<u64>() {
        Err(_) if end > 0 => return Err(Failure::new(Errno::Range, bounds())),
        Ok(number) if end == digits.len() => sign * i128::from(number),
        _ => return Failure::invalid(bounds()),
    };
    i64::try_from(number).map_err(|_| Failure::new(Errno::Range, bounds()))
}

/// 0, or any other number for 1.
pub(crate) fn boolean(name: &str, text: &str) -> Result<bool, Failure> {
    unsigned(name, text).map(|number| number != 0)
}

/// A whole number without a sign, of at most 64 bits: decimal, or hexadecimal behind 0x, or octal
/// behind 0, as the kernel reads weights.
pub(crate) fn any_base(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (base, digits) = match hex {
        Some(hex) => (16, hex),
        None if text.len() > 1 && text.starts_with('0') => (8, &text[1..]),
        None => (10, text),
    };
    // from_str_radix would take a sign.
    let plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(base));
    // A text longer than any number is larger than any bound.
    plain.then(|| u64::from_str_radix(digits, base).unwrap_or(u64::MAX))
}

/// A name and what was written, for a message. The text is cut, because it may be long.
pub(crate) fn shown(name: &str, text: &str) -> String {
    let text: String = text.trim_end_matches('\n').chars().take(40).collect();
    format!("{name} {text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_digits_and_at_most_one_newline() {
        for (text, number) in
            [("0", 0), ("7\n", 7), ("+7", 7), ("007", 7), ("4294967295", u32::MAX)]
        {
            assert_eq!(unsigned("a", text), Ok(number), "{text:?}");
        }
        let long = "9".repeat(4096);
        for text in ["", "\n", "7\n\n", " 7", "7 ", "-1", "++1", "0x10", "1e3", "4294967296", &long]
        {
            let failure = unsigned("a", text).unwrap_err();
            assert!(failure.to_string().len() < 120, "{failure}");
        }
    }

    #[test]
    fn a_signed_number_beyond_64_bits_is_out_of_range() {
        for (text, number) in [
            ("0", 0),
            ("-0", 0),
            ("-1\n", -1),
            ("+7", 7),
            ("010", 10),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(signed("a", text), Ok(number), "{text:?}");
        }
        let long = "9".repeat(4096);
        for (texts, errno) in [
            (&["", "-", "+", "--1", "-+1", " 1", "1 ", "1\n\n", "0x10", "x"][..], Errno::Invalid),
            (&["9223372036854775808", "-9223372036854775809", &long, "18446744073709551616x"], {
                Errno::Range
            }),
        ] {
            for text in texts {
                let failure = signed("a", text).unwrap_err();
                assert_eq!(failure.errno, errno, "{failure}");
                assert!(failure.to_string().len() < 130, "{failure}");
            }
        }
    }

    #[test]
    fn what_follows_a_nul_was_not_written() {
        assert_eq!(text_of(b"5\0junk"), "5");
        assert_eq!(text_of(b"5"), "5");
    }
}

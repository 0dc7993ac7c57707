//! Text keys: `Key=value` pairs, each with a NUL behind it, in any number of PDUs.
//!
//! A pair may be cut by the end of a PDU if the C bit says that the text goes on. Whole pairs are
//! handed on as they come, so no more than one pair is ever held.
//!
//! Source: RFC 7143, section 6.1.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::{self, Write};

/// Bytes of the longest key.
pub const KEY_MAX: usize = 63;
/// Bytes of the longest pair that is accepted: a key, and a challenge of 1024 bytes in hexadecimal.
pub const PAIR_MAX: usize = 4096;
/// Bytes of the longest binary value.
pub const BINARY_MAX: usize = 1024;

/// Why some bytes are no text. Values are not told: some answer for a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextError {
    /// A pair of more than [`PAIR_MAX`] bytes, or with no end at all.
    TooLong,
    /// A pair without `=`.
    NoValue,
    /// A key that is empty, longer than [`KEY_MAX`], or has another character than the standard
    /// allows.
    Key,
    /// A value that is not UTF-8; its key.
    Value(String),
    /// The text ends within a pair.
    Cut,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "a text pair is longer than {PAIR_MAX} bytes"),
            Self::NoValue => f.write_str("a text pair has no ="),
            Self::Key => {
                write!(f, "a text key is not 1 to {KEY_MAX} of the characters A-Z a-z 0-9 .-+@_#")
            }
            Self::Value(key) => write!(f, "the value of {key} is not UTF-8"),
            Self::Cut => f.write_str("the text ends within a pair"),
        }
    }
}

impl std::error::Error for TextError {}

/// The reader of one text.
#[derive(Default)]
pub struct Text {
    /// The start of a pair whose end has not come.
    held: Vec<u8>,
}

impl Text {
    /// A reader at the start of a text.
    #[must_use]
    pub const fn new() -> Self {
        Self { held: Vec::new() }
    }

    /// Takes a data segment in, and hands on the pairs that are whole.
    ///
    /// # Errors
    /// A [`TextError`], or the error of `each`.
    pub fn take<E: From<TextError>>(
        &mut self,
        mut data: &[u8],
        mut each: impl FnMut(&str, &str) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(end) = data.iter().position(|&byte| byte == 0) {
            let (bytes, rest) = (&data[..end], &data[end + 1..]);
            data = rest;
            if self.held.len() + bytes.len() > PAIR_MAX {
                return Err(TextError::TooLong.into());
            }
            if self.held.is_empty() {
                // Some targets fill a segment up with NULs.
                if !bytes.is_empty() {
                    let (key, value) = pair(bytes)?;
                    each(key, value)?;
                }
            } else {
                self.held.extend_from_slice(bytes);
                let (key, value) = pair(&self.held)?;
                each(key, value)?;
                self.held.clear();
            }
        }
        if self.held.len() + data.len() > PAIR_MAX {
            return Err(TextError::TooLong.into());
        }
        self.held.extend_from_slice(data);
        Ok(())
    }

    /// Ends the text.
    ///
    /// # Errors
    /// [`TextError::Cut`] within a pair.
    pub const fn end(&self) -> Result<(), TextError> {
        if self.held.is_empty() { Ok(()) } else { Err(TextError::Cut) }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes held)", self.held.len())
    }
}

/// Reads one pair.
///
/// # Errors
/// A [`TextError`].
pub fn pair(bytes: &[u8]) -> Result<(&str, &str), TextError> {
    let equals = bytes.iter().position(|&byte| byte == b'=').ok_or(TextError::NoValue)?;
    let (key, value) = (&bytes[..equals], &bytes[equals + 1..]);
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b".-+@_#".contains(byte);
    let key = std::str::from_utf8(key)
        .ok()
        .filter(|key| (1..=KEY_MAX).contains(&key.len()) && key.as_bytes().iter().all(fits))
        .ok_or(TextError::Key)?;
    let value = std::str::from_utf8(value).map_err(|_| TextError::Value(key.to_owned()))?;
    Ok((key, value))
}

/// Appends a pair.
pub fn put(out: &mut Vec<u8>, key: &str, value: impl fmt::Display) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    std::io::Write::write_fmt(out, format_args!("{value}")).expect("memory is written to");
    out.push(0);
}

/// A number, decimal or with 0x before it hexadecimal.
#[must_use]
pub fn number(value: &str) -> Option<u32> {
    let digits = |text: &str, radix| {
        // `from_str_radix` takes a sign.
        text.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
        u32::from_str_radix(text, radix).ok()
    };
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(text) => digits(text, 16),
        None => digits(value, 10),
    }
}

/// `Yes` or `No`.
#[must_use]
pub fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// A binary value: hexadecimal behind 0x or base64 behind 0b, of 1 to [`BINARY_MAX`] bytes.
#[must_use]
pub fn binary(value: &str) -> Option<Vec<u8>> {
    let (prefix, text) = value.split_at_checked(2)?;
    let bytes = match prefix {
        "0x" | "0X" => unhex(text)?,
        "0b" | "0B" => STANDARD.decode(text).ok()?,
        _ => return None,
    };
    (1..=BINARY_MAX).contains(&bytes.len()).then_some(bytes)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() > BINARY_MAX * 2 {
        return None;
    }
    let digit =
        |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits = text.as_bytes().iter().map(digit).collect::<Option<Vec<u8>>>()?;
    let (odd, whole) = digits.split_at(digits.len() % 2);
    Some(odd.iter().copied().chain(whole.chunks(2).map(|two| two[0] << 4 | two[1])).collect())
}

/// Bytes as a binary value in hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    bytes.iter().for_each(|byte| write!(text, "{byte:02x}").expect("memory is written to"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_or_hexadecimal_and_have_no_sign() {
        assert_eq!((number("10"), number("0x10"), number("0XfF")), (Some(10), Some(16), Some(255)));
        for bad in ["", "+1", "-1", "0x", "0x+1", "1a", "4294967296", " 1", "0x100000000"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }

    #[test]
    fn binary_values_are_read_in_both_forms_and_bounded() {
        assert_eq!(binary("0x0aFF"), Some(vec![0x0a, 0xff]));
        assert_eq!(binary("0xaff"), Some(vec![0x0a, 0xff]));
        assert_eq!(binary("0bCv8="), Some(vec![0x0a, 0xff]));
        assert_eq!(binary(&hex(&[1; BINARY_MAX])), Some(vec![1; BINARY_MAX]));
        assert_eq!(binary(&hex(&[1; BINARY_MAX + 1])), None);
        for bad in ["", "0", "0x", "0b", "12", "0xzz", "0b!", "é"] {
            assert_eq!(binary(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_has_the_characters_and_the_length_of_the_standard() {
        assert_eq!(pair(b"X-a.b@c_1+#=a=b"), Ok(("X-a.b@c_1+#", "a=b")));
        let long = [&[b'A'; KEY_MAX][..], b"="].concat();
        assert!(pair(&long).is_ok());
        assert_eq!(pair(&[b"A", &long[..]].concat()), Err(TextError::Key));
        assert_eq!(pair(b"=a"), Err(TextError::Key));
        assert_eq!(pair(b"a b=c"), Err(TextError::Key));
        assert_eq!(pair(b"abc"), Err(TextError::NoValue));
        assert_eq!(pair(b"a=\xff"), Err(TextError::Value("a".to_owned())));
    }
}

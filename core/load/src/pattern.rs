//! The bytes that a job fills its blocks with, as fio's job files write them: numbers, text between
//! double quotes, the content of a file between single quotes, one behind the other.

use std::io::Read;

/// The longest pattern, bytes.
const BYTES_MAX: usize = 64 << 10;

/// Reads a pattern. Hexadecimal digits are bytes in the order in which they are written; a decimal
/// number is as few bytes as hold it, the least significant first.
///
/// # Errors
/// The part that is none of these; a file that cannot be read; more bytes than there may be.
pub(crate) fn parse(text: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        rest = part(rest, &mut bytes)?;
        if bytes.len() > BYTES_MAX {
            return Err(format!("it is above {BYTES_MAX} bytes"));
        }
    }
    match bytes.is_empty() {
        true => Err(String::from("it has no bytes")),
        false => Ok(bytes),
    }
}

/// The bytes of the first part; what stands behind it.
fn part<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    for (quote, is_file) in [('"', false), ('\'', true)] {
        let Some(quoted) = text.strip_prefix(quote) else { continue };
        let (inner, behind) =
            quoted.split_once(quote).ok_or_else(|| format!("{text:?} has no second {quote}"))?;
        match is_file {
            true => bytes.extend(content(inner)?),
            false => bytes.extend(inner.as_bytes()),
        }
        return Ok(behind);
    }
    if let Some(digits) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        let (digits, behind) = digits.split_at(end);
        if digits.is_empty() {
            return Err(format!("{text:?} has no hexadecimal digit"));
        }
        // An odd digit is the first one's: a nought is before it.
        let digits = if digits.len() % 2 == 1 { format!("0{digits}") } else { digits.into() };
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
        bytes.extend((0..digits.len()).step_by(2).map(byte));
        return Ok(behind);
    }
    number(text, bytes)
}

fn number<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Result<&'a str, String> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let mut end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
    if unsigned[end..].starts_with(['x', 'X']) && unsigned[..end].ends_with('0') {
        // The last nought begins a hexadecimal number.
        end -= 1;
    }
    if end == 0 {
        let known = "a number, \"TEXT\" or 'FILE'";
        return Err(match text.starts_with("%o") {
            true => String::from("%o, the place of the block, is in the header of each anyway"),
            false => format!("{text:?} does not begin with {known}"),
        });
    }
    let (digits, behind) = text.split_at(text.len() - unsigned.len() + end);
    let value: i64 =
        digits.parse().ok().filter(|value| *value >= i32::MIN.into()).ok_or_else(|| {
            format!("{digits} is outside {}..={}: 0x takes any", i32::MIN, u32::MAX)
        })?;
    if value > u32::MAX.into() {
        return Err(format!("{digits} is outside {}..={}: 0x takes any", i32::MIN, u32::MAX));
    }
    let all = value.to_le_bytes();
    let fits = |count: &usize| match value {
        0.. => value < 1 << (8 * count),
        _ => value >= -(1 << (8 * count - 1)),
    };
    let count = (1..=4).find(fits).unwrap_or(4);
    bytes.extend(&all[..count]);
    Ok(behind)
}

/// The content of a file that is no device, pipe or folder.
fn content(name: &str) -> Result<Vec<u8>, String> {
    let failed = |why: String| format!("file {name}: {why}");
    let about = std::fs::metadata(name).map_err(|error| failed(error.to_string()))?;
    if !about.is_file() {
        return Err(failed(String::from("it is no regular file")));
    }
    let file = std::fs::File::open(name).map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| failed(error.to_string()))?;
    Ok(bytes)
}

/// Fills memory with a pattern, from its start again and again.
pub(crate) fn fill(pattern: &[u8], bytes: &mut [u8]) {
    let mut filled = pattern.len().min(bytes.len());
    bytes[..filled].copy_from_slice(&pattern[..filled]);
    while filled < bytes.len() {
        let more = filled.min(bytes.len() - filled);
        bytes.copy_within(..more, filled);
        filled += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_bytes() {
        for (text, wanted) in [
            ("0xdeadface", &[0xde, 0xad, 0xfa, 0xce][..]),
            ("0XaAa", &[0x0a, 0xaa]),
            ("\"a0\"", b"a0"),
            ("7", &[7]),
            ("-12", &[0xf4]),
            ("-129", &[0x7f, 0xff]),
            ("256", &[0, 1]),
            ("4294967295", &[0xff; 4]),
            ("\"abcd\"-120xdeadface", b"abcd\xf4\xde\xad\xfa\xce"),
            ("0xff\"x\"1", b"\xffx\x01"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(wanted), "{text}");
        }
        for (text, why) in [
            ("", "no bytes"),
            ("0x", "no hexadecimal digit"),
            ("0xffg", "\"g\" does not begin with a number"),
            ("\"abc", "no second"),
            ("%o", "header"),
            ("4294967296", "outside"),
            ("-2147483649", "outside"),
            ("'/dev/null'", "no regular file"),
            ("'/no/such/file'", "file /no/such/file: "),
        ] {
            let told = parse(text).expect_err(text);
            assert!(told.contains(why), "{text}: {told}");
        }
        let long = format!("0x{}", "00".repeat(BYTES_MAX + 1));
        assert!(parse(&long).is_err_and(|why| why.contains("above 65536")));
    }

    #[test]
    fn memory_is_filled_from_its_start() {
        let mut bytes = [0; 7];
        fill(b"abc", &mut bytes);
        assert_eq!(&bytes, b"abcabca");
    }
}

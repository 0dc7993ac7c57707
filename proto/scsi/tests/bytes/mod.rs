//! Bytes as people write them.

/// Reads hex digits; blanks between them do not count.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hex digit") as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2), "an odd digit in {text}");
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

//! Secrets: kept in memory that is cleared when they go, and never shown.

use std::fmt;
use zeroize::Zeroizing;

/// Shorter secrets than this many bytes can be guessed: RFC 7143, section 12.1.3, asks for 96 bits.
pub const SECRET_MIN: usize = 12;

/// The secret of one side.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes a secret over, with the memory it lies in.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Whether it is shorter than [`SECRET_MIN`] bytes.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.0.len() < SECRET_MIN
    }

    /// Whether both are the same. The time it takes tells only the lengths.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        equal(&self.0, &other.0)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whether the bytes are equal, in a time that does not depend on where they differ.
pub(crate) fn equal(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differ) == 0
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::{Secret, equal};

    #[test]
    fn a_secret_is_not_shown_and_is_compared_whole() {
        let secret = Secret::new(b"weirsecret12".to_vec());
        assert_eq!(format!("{secret:?}"), "Secret");
        assert!(!secret.is_short() && Secret::new(b"weirsecret1".to_vec()).is_short());
        assert!(secret.is(&secret.clone()) && !secret.is(&Secret::new(b"weirsecret".to_vec())));
        assert!(equal(b"", b"") && !equal(b"ab", b"ac") && !equal(b"ab", b"cb"));
    }
}

//! CHAP: each side proves that it has a secret, and tells no secret. RFC 1994, and RFC 7143,
//! section 12.1.3.
//!
//! The response is the hash of the identifier, the secret and the challenge.

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;
use sha3::Sha3_256;
use std::fmt;

use crate::secret::equal;
use crate::{Secret, text};

/// Bytes of the longest user name.
pub const USER_MAX: usize = 255;
/// Bytes of our challenge.
pub const CHALLENGE_LEN: usize = 32;

/// A hash for CHAP, by the number that IANA gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// 5, which every side has.
    Md5,
    /// 7.
    Sha1,
    /// 8.
    Sha256,
    /// 9, SHA3-256.
    Sha3,
}

impl Algorithm {
    /// Every algorithm, the best first: the order in which they are offered.
    pub const ALL: [Self; 4] = [Self::Sha3, Self::Sha256, Self::Sha1, Self::Md5];

    /// The number in CHAP_A.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Md5 => 5,
            Self::Sha1 => 7,
            Self::Sha256 => 8,
            Self::Sha3 => 9,
        }
    }

    /// The algorithm of a number.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.number() == number)
    }
}

/// A user and its secret.
#[derive(Clone, Debug)]
pub struct Credentials {
    user: String,
    secret: Secret,
}

/// Why a user cannot be named on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserError {
    /// Bytes of the name.
    pub length: usize,
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.length;
        write!(f, "CHAP user of {length} bytes is not 1 to {USER_MAX} bytes without NUL")
    }
}

impl std::error::Error for UserError {}

impl Credentials {
    /// The credentials of a user.
    ///
    /// # Errors
    /// If the user's name is empty, longer than [`USER_MAX`] bytes, or has a NUL.
    pub fn new(user: &str, secret: Secret) -> Result<Self, UserError> {
        if user.is_empty() || user.len() > USER_MAX || user.contains('\0') {
            return Err(UserError { length: user.len() });
        }
        Ok(Self { user: user.to_owned(), secret })
    }

    /// The user's name.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The secret.
    #[must_use]
    pub const fn secret(&self) -> &Secret {
        &self.secret
    }
}

/// What one side asks the other to answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Challenge {
    /// CHAP_I.
    pub id: u8,
    /// CHAP_C.
    pub bytes: Vec<u8>,
}

impl Challenge {
    /// Reads CHAP_I and CHAP_C.
    #[must_use]
    pub fn parse(id: &str, challenge: &str) -> Option<Self> {
        let id = u8::try_from(text::number(id)?).ok()?;
        Some(Self { id, bytes: text::binary(challenge)? })
    }

    /// The answer of a side that has the secret.
    #[must_use]
    pub fn answer(&self, algorithm: Algorithm, secret: &Secret) -> Vec<u8> {
        match algorithm {
            Algorithm::Md5 => self.hash::<Md5>(secret),
            Algorithm::Sha1 => self.hash::<Sha1>(secret),
            Algorithm::Sha256 => self.hash::<Sha256>(secret),
            Algorithm::Sha3 => self.hash::<Sha3_256>(secret),
        }
    }

    /// Whether this is the answer of a side that has the secret.
    #[must_use]
    pub fn is_answered(&self, algorithm: Algorithm, secret: &Secret, answer: &[u8]) -> bool {
        equal(&self.answer(algorithm, secret), answer)
    }

    fn hash<H: Digest>(&self, secret: &Secret) -> Vec<u8> {
        let hash = H::new().chain_update([self.id]).chain_update(secret.bytes());
        hash.chain_update(&self.bytes).finalize().to_vec()
    }
}

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Challenge({}, {} bytes)", self.id, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, Challenge, Credentials};
    use crate::{Secret, text};

    /// Made with `printf "\x27weirsecret123\x01\x02\x03" | openssl dgst -md5` and its kin.
    #[test]
    fn each_algorithm_hashes_identifier_secret_and_challenge() {
        let challenge = Challenge { id: 0x27, bytes: vec![1, 2, 3] };
        let secret = Secret::new(b"weirsecret123".to_vec());
        for (number, answer) in [
            (5, "0x0d9ac12f63e408ac54af27a0e15f5be6"),
            (7, "0x83ddfc9bd63c0e7ad17651e2be7101efd5c55b65"),
            (8, "0x89b2f59b815716f30bdcce5e6914ec430aa0c93aa132ae982614195cfefa7af7"),
            (9, "0x354f77ccf0e40827da1097f60182248eb94b2ed56bdf7867dc7f951e34624054"),
        ] {
            let algorithm = Algorithm::of(number).expect("an algorithm");
            assert_eq!(algorithm.number(), number);
            let bytes = challenge.answer(algorithm, &secret);
            assert_eq!(text::hex(&bytes), answer);
            assert!(challenge.is_answered(algorithm, &secret, &bytes));
            assert!(!challenge.is_answered(algorithm, &Secret::new(b"other".to_vec()), &bytes));
        }
        assert_eq!(Algorithm::of(6), None);
    }

    #[test]
    fn a_challenge_has_an_identifier_of_one_byte() {
        assert!(Challenge::parse("255", "0x01").is_some());
        assert!(Challenge::parse("0x10", "0b/w==").is_some());
        for (id, bytes) in [("256", "0x01"), ("", "0x01"), ("1", ""), ("1", "0x")] {
            assert_eq!(Challenge::parse(id, bytes), None, "{id} {bytes}");
        }
    }

    #[test]
    fn a_user_is_named_and_its_secret_is_not() {
        let secret = || Secret::new(b"weirsecret123".to_vec());
        let shown = format!("{:?}", Credentials::new("weir", secret()).expect("a user"));
        assert!(shown.contains("weir\"") && !shown.contains("weirsecret"), "{shown}");
        for user in [String::new(), "a\0b".to_owned(), "a".repeat(256)] {
            assert!(Credentials::new(&user, secret()).is_err(), "{user:?}");
        }
        assert!(Credentials::new(&"a".repeat(255), secret()).is_ok());
    }
}

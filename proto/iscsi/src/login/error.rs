//! Why a login does not end in a session.

use std::fmt;

use crate::PortalError;
use crate::text::TextError;
use crate::wire::{Opcode, WireError};

/// Login PDUs that an initiator takes before it gives up.
pub const ROUNDS_MAX: u32 = 64;
/// Characters of a target's words that an error shows.
const SHOWN_MAX: usize = 64;

/// The status of a login: class and detail. RFC 7143, section 11.13.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginStatus(pub u16);

impl LoginStatus {
    /// The target has moved for now.
    pub const MOVED: Self = Self(0x0101);
    /// The target has moved for good.
    pub const MOVED_FOR_GOOD: Self = Self(0x0102);
    /// The initiator did not prove itself.
    pub const AUTHENTICATION: Self = Self(0x0201);
    /// The initiator may not use the target.
    pub const FORBIDDEN: Self = Self(0x0202);
    /// There is no such target, or none that this initiator may see.
    pub const NOT_FOUND: Self = Self(0x0203);

    /// Whether a later login may succeed: the target's own trouble, class 3.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        self.0 >> 8 == 3
    }

    const fn words(self) -> &'static str {
        match self.0 {
            0x0200 => "initiator error",
            0x0201 => "authentication failure",
            0x0202 => "the initiator is not allowed to use this target",
            0x0203 => "no such target, or not for this initiator",
            0x0204 => "the target has been removed",
            0x0205 => "unsupported version",
            0x0206 => "too many connections",
            0x0207 => "a parameter is missing",
            0x0208 => "the session cannot include this connection",
            0x0209 => "session type not supported",
            0x020a => "no such session",
            0x020b => "invalid request during login",
            0x0300 => "target error",
            0x0301 => "service unavailable",
            0x0302 => "out of resources",
            _ => match self.0 >> 8 {
                1 => "the target has moved",
                2 => "an initiator error",
                3 => "a target error",
                _ => "a status that the standard does not know",
            },
        }
    }
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {:04x})", self.words(), self.0)
    }
}

/// Why a login failed. The connection has to be closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginError {
    /// The target refuses it.
    Refused(LoginStatus),
    /// The target has moved and does not say where to.
    Nowhere,
    /// The address that the target has moved to.
    Portal(PortalError),
    /// The target does not prove that it has the secret.
    Unproven,
    /// The target's challenge is our own.
    Reflected,
    /// The target rejects a PDU, for this reason.
    Rejected(u8),
    /// The target sends another PDU than a response to the login.
    Unexpected(Opcode),
    /// A field of the target's header.
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// The target's answer to a key.
    Key {
        /// The key.
        key: String,
        /// The start of its value; nothing of a value of CHAP.
        value: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The target says nothing of a key that is needed.
    Missing(&'static str),
    /// More than [`ROUNDS_MAX`] PDUs, and no end.
    Rounds,
    /// More keys that the standard does not know than one answer can name.
    Keys,
    /// The text cannot be read.
    Text(TextError),
    /// The stream cannot be read.
    Wire(WireError),
}

impl LoginError {
    /// Whether a later login may succeed although nothing is changed here.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Refused(status) if status.is_passing())
    }

    pub(crate) fn key(key: &str, value: &str, what: &'static str) -> Self {
        let value = if key.starts_with("CHAP_") { "" } else { value };
        let (key, value) = (shown(key), shown(value));
        Self::Key { key, value, what }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

impl fmt::Display for LoginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "login refused: {status}"),
            Self::Nowhere => f.write_str("the target has moved and names no address"),
            Self::Portal(why) => write!(f, "the target has moved: {why}"),
            Self::Unproven => f.write_str("the target does not have the secret that it should"),
            Self::Reflected => f.write_str("the target challenges with the initiator's challenge"),
            Self::Rejected(reason) => write!(f, "login rejected, reason {reason:#04x}"),
            Self::Unexpected(opcode) => write!(f, "{opcode} during login"),
            Self::Field { field, value } => write!(f, "Login Response with {field} {value}"),
            Self::Key { key, value, what } if value.is_empty() => write!(f, "{key}: {what}"),
            Self::Key { key, value, what } => write!(f, "{key}={value:?}: {what}"),
            Self::Missing(key) => write!(f, "the target answers without {key}"),
            Self::Rounds => write!(f, "the login has no end after {ROUNDS_MAX} PDUs"),
            Self::Keys => f.write_str("the target offers more unknown keys than an answer holds"),
            Self::Text(why) => why.fmt(f),
            Self::Wire(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for LoginError {}

impl From<TextError> for LoginError {
    fn from(why: TextError) -> Self {
        Self::Text(why)
    }
}

impl From<WireError> for LoginError {
    fn from(why: WireError) -> Self {
        Self::Wire(why)
    }
}

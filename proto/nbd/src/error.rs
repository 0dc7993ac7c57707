//! How a command ended, in the eight words the protocol has for it.
//!
//! Source: NBD protocol, "Error values". It is not the caller's status type and not `errno`: the
//! values happen to equal Linux's, and the protocol fixes them for every system.

use std::fmt;

/// The error a reply carries. Success is `Option::None` or `Ok`, never a member of this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NbdError {
    /// NBD_EPERM (1): a write, trim or zero on a read-only export.
    Perm,
    /// NBD_EIO (5): the medium or the path to it failed.
    Io,
    /// NBD_ENOMEM (12): the server lacks memory; servers avoid it.
    NoMem,
    /// NBD_EINVAL (22): a command, flag, alignment or range that is not valid.
    Inval,
    /// NBD_ENOSPC (28): a write or zero past the end, or a full store.
    NoSpc,
    /// NBD_EOVERFLOW (75): a command without payload asks for more than the server answers at
    /// once.
    Overflow,
    /// NBD_ENOTSUP (95): a fast zero that would not be fast; nothing else.
    NotSup,
    /// NBD_ESHUTDOWN (108): the server is going away.
    Shutdown,
}

impl NbdError {
    /// Every member, in the order of the wire values.
    pub const ALL: [Self; 8] = [
        Self::Perm,
        Self::Io,
        Self::NoMem,
        Self::Inval,
        Self::NoSpc,
        Self::Overflow,
        Self::NotSup,
        Self::Shutdown,
    ];

    /// The value on the wire, never zero.
    #[must_use]
    pub const fn to_wire(self) -> u32 {
        match self {
            Self::Perm => 1,
            Self::Io => 5,
            Self::NoMem => 12,
            Self::Inval => 22,
            Self::NoSpc => 28,
            Self::Overflow => 75,
            Self::NotSup => 95,
            Self::Shutdown => 108,
        }
    }

    /// The meaning of a reply's error field: `None` for zero, and [`NbdError::Inval`] for a value
    /// the protocol does not define, which is how it asks clients to read one.
    #[must_use]
    pub const fn from_wire(value: u32) -> Option<Self> {
        Some(match value {
            0 => return None,
            1 => Self::Perm,
            5 => Self::Io,
            12 => Self::NoMem,
            28 => Self::NoSpc,
            75 => Self::Overflow,
            95 => Self::NotSup,
            108 => Self::Shutdown,
            _ => Self::Inval,
        })
    }

    /// The protocol's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Perm => "EPERM",
            Self::Io => "EIO",
            Self::NoMem => "ENOMEM",
            Self::Inval => "EINVAL",
            Self::NoSpc => "ENOSPC",
            Self::Overflow => "EOVERFLOW",
            Self::NotSup => "ENOTSUP",
            Self::Shutdown => "ESHUTDOWN",
        }
    }
}

impl fmt::Display for NbdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for NbdError {}

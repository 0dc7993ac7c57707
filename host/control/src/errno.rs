//! Why a look at the tree or a write to it failed, in Linux's numbers and names.
//!
//! Numbers are those of Linux on x86 and Arm (errno(3)); a FUSE reply carries them as they are.

use std::fmt;

use weir_queue::Error;
use weir_sched::TunableError;

macro_rules! errnos {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $number:literal;)*) => {
        /// One of the errors the tree answers with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Errno {
            $($(#[$doc])* $variant = $number,)*
        }

        impl Errno {
            /// Every one of them.
            pub const ALL: &[Errno] = &[$(Errno::$variant),*];

            /// Its name, as `EINVAL`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Errno::$variant => $name,)*
                }
            }
        }
    };
}

errnos! {
    /// There is no such file or directory.
    NotFound = "ENOENT", 2;
    /// The back end could not do it.
    Io = "EIO", 5;
    /// The file is read-only.
    Access = "EACCES", 13;
    /// It is in use.
    Busy = "EBUSY", 16;
    /// The disk is going away.
    NoDevice = "ENODEV", 19;
    /// A file where a directory is needed.
    NotDirectory = "ENOTDIR", 20;
    /// A directory where a file is needed.
    IsDirectory = "EISDIR", 21;
    /// The value means nothing, or nothing that is allowed.
    Invalid = "EINVAL", 22;
    /// The number does not fit its type.
    Range = "ERANGE", 34;
    /// The path is longer than any.
    NameTooLong = "ENAMETOOLONG", 36;
}

impl Errno {
    /// Its number.
    #[must_use]
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Errno> {
        Errno::ALL.iter().copied().find(|errno| errno.name() == name)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a call on the tree failed: the error, and a sentence with the value, the bound and the
/// place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error.
    pub errno: Errno,
    /// The sentence.
    pub what: String,
}

impl Failure {
    /// Puts the two together.
    pub fn new(errno: Errno, what: impl Into<String>) -> Failure {
        Failure { errno, what: what.into() }
    }

    pub(crate) fn invalid<T>(what: impl Into<String>) -> Result<T, Failure> {
        Err(Failure::new(Errno::Invalid, what))
    }

    /// The same with the place in front.
    #[must_use]
    pub(crate) fn at(self, path: &str) -> Failure {
        Failure { what: format!("{path}: {}", self.what), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.errno, self.what)
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let errno = match &error {
            Error::Invalid(_) | Error::Limits(_) => Errno::Invalid,
            Error::Driver(_) => Errno::Io,
            Error::Dying(_) => Errno::NoDevice,
            Error::Late(_) => Errno::Busy,
        };
        Failure::new(errno, error.to_string())
    }
}

impl From<TunableError> for Failure {
    fn from(error: TunableError) -> Failure {
        let errno = match &error {
            TunableError::Unknown(_) => Errno::NotFound,
            TunableError::Invalid(_) => Errno::Invalid,
            TunableError::OutOfRange(_) => Errno::Range,
        };
        Failure::new(errno, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_is_found_by_its_name() {
        for errno in Errno::ALL {
            assert_eq!(Errno::named(errno.name()), Some(*errno));
        }
        assert_eq!((Errno::Invalid.number(), Errno::Range.number()), (22, 34));
        assert_eq!(Errno::named("EWEIR"), None);
    }
}

//! A scheduler's knobs, read and set by name.

use std::fmt;

/// Why a tunable was not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunableError {
    /// No such name; the text lists those there are.
    Unknown(String),
    /// The text is no number this tunable takes (Linux: EINVAL); the text names value and bound.
    Invalid(String),
    /// The number does not fit its type (Linux: ERANGE).
    OutOfRange(String),
}

impl fmt::Display for TunableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (TunableError::Unknown(text)
        | TunableError::Invalid(text)
        | TunableError::OutOfRange(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for TunableError {}

/// Reading and setting tunables by their sysfs names.
pub trait Tunables {
    /// Their names.
    fn names(&self) -> &'static [&'static str];

    /// The value as sysfs shows it.
    ///
    /// # Errors
    /// [`TunableError::Unknown`].
    fn show(&self, name: &str) -> Result<String, TunableError>;

    /// Sets it from text, clamping where Linux clamps.
    ///
    /// # Errors
    /// See [`TunableError`]; nothing changes then.
    fn set(&mut self, name: &str, text: &str) -> Result<(), TunableError>;
}

/// For schedulers without any.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTunables;

impl Tunables for NoTunables {
    fn names(&self) -> &'static [&'static str] {
        &[]
    }

    fn show(&self, name: &str) -> Result<String, TunableError> {
        Err(TunableError::Unknown(format!("no tunable {name:?}: this scheduler has none")))
    }

    fn set(&mut self, name: &str, _text: &str) -> Result<(), TunableError> {
        self.show(name).map(drop)
    }
}

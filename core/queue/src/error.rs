//! Why a control call failed, in words that name the value, the bound and the device.

use std::fmt;

use weir_bio::LimitsError;

use crate::driver::DriverError;

/// Why a control call on a device failed.
#[derive(Debug)]
pub enum Error {
    /// A value outside its bound: name, value and bound in words.
    Invalid(String),
    /// The driver's limits contradict themselves.
    Limits(LimitsError),
    /// The driver could not.
    Driver(DriverError),
    /// The device is going away.
    Dying(String),
    /// It did not come to an end in time and was given up.
    Late(Late),
}

/// A control call that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// The device's name.
    pub device: String,
    /// The last thing it waited for.
    pub wait: Wait,
    /// For how long it was tried, ns.
    pub waited_ns: u64,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Late { device, wait, waited_ns } = self;
        let seconds = *waited_ns as f64 / 1e9;
        write!(f, "disk {device}: given up after {seconds:.1} s of waiting for {wait}")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(text) => f.write_str(text),
            Error::Limits(error) => error.fmt(f),
            Error::Driver(error) => error.fmt(f),
            Error::Dying(name) => write!(f, "device {name} is being removed"),
            Error::Late(late) => late.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<LimitsError> for Error {
    fn from(error: LimitsError) -> Error {
        Error::Limits(error)
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Error {
        Error::Driver(error)
    }
}

/// The thing that a control step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Another change of the device, begun before.
    Change,
    /// So many requests, accepted and not ended.
    Requests(u64),
    /// Another freeze, which has to be lifted.
    Freeze,
    /// The last flush.
    Flush,
    /// Lanes, which have to stop sending.
    Lanes,
    /// The home of this hard queue, which has to open it.
    Opening(usize),
    /// The home of this hard queue, which has to close it.
    Closing(usize),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Change => f.write_str("another change of the disk"),
            Wait::Requests(1) => f.write_str("1 request to end"),
            Wait::Requests(count) => write!(f, "{count} requests to end"),
            Wait::Freeze => f.write_str("another freeze of the disk to be lifted"),
            Wait::Flush => f.write_str("the last flush"),
            Wait::Lanes => f.write_str("its hard queues to stop"),
            Wait::Opening(index) => write!(f, "hard queue {index} to open"),
            Wait::Closing(index) => write!(f, "hard queue {index} to close"),
        }
    }
}

pub(crate) fn invalid<T>(text: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid(text.into()))
}

//! How one I/O ended. Control calls have `Error` types of their own; the two never mix.

use std::fmt;

/// How an I/O ended. Names and errno values as in Linux' block status table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Done.
    #[default]
    Ok = 0,
    /// The device cannot do this.
    NotSupp,
    /// No answer in time.
    Timeout,
    /// Out of space.
    NoSpc,
    /// The way to the device failed; another path may succeed.
    Transport,
    /// The device failed for good.
    Target,
    /// Reservation conflict.
    ResvConflict,
    /// The medium cannot give this data back.
    Medium,
    /// Integrity check failed.
    Protection,
    /// The driver is short of something; the core asks again.
    Resource,
    /// As Resource, and one of the driver's own completions will free it.
    DevResource,
    /// Would have had to wait, and NOWAIT was set.
    Again,
    /// The device is gone.
    Offline,
    /// The request is malformed.
    Inval,
    /// Any other error.
    IoErr,
    /// The device may only be read.
    ReadOnly,
}

impl Status {
    /// Every status, in the order of their numbers.
    pub const ALL: [Status; 16] = [
        Status::Ok,
        Status::NotSupp,
        Status::Timeout,
        Status::NoSpc,
        Status::Transport,
        Status::Target,
        Status::ResvConflict,
        Status::Medium,
        Status::Protection,
        Status::Resource,
        Status::DevResource,
        Status::Again,
        Status::Offline,
        Status::Inval,
        Status::IoErr,
        Status::ReadOnly,
    ];

    /// Whether the I/O succeeded.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self == Status::Ok
    }

    /// Whether another path may succeed where this one failed. What the device said about the
    /// request, the medium, its space, its protection or its reservations is no path error: it
    /// would say the same on every path, and the path that brought the answer is well. One that may
    /// only be read is a disk of this host that was set so, and another path was not.
    #[must_use]
    pub const fn is_path_error(self) -> bool {
        match self {
            Status::Ok
            | Status::NotSupp
            | Status::NoSpc
            | Status::Target
            | Status::ResvConflict
            | Status::Medium
            | Status::Protection => false,
            Status::Timeout
            | Status::Transport
            | Status::Resource
            | Status::DevResource
            | Status::Again
            | Status::Offline
            | Status::Inval
            | Status::IoErr
            | Status::ReadOnly => true,
        }
    }

    /// Linux' errno for it (positive), 0 for success.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Status::Ok => 0,
            Status::NotSupp => 95,
            Status::Timeout => 110,
            Status::NoSpc => 28,
            Status::Transport => 67,
            Status::Target => 121,
            Status::ResvConflict => 52,
            Status::Medium => 61,
            Status::Protection => 84,
            Status::Resource => 12,
            Status::DevResource => 16,
            Status::Again => 11,
            Status::Offline => 19,
            Status::Inval => 22,
            Status::IoErr => 5,
            Status::ReadOnly => 30,
        }
    }

    /// The status for a positive errno of the operating system.
    #[must_use]
    pub fn from_errno(errno: i32) -> Status {
        match errno {
            0 => Status::Ok,
            95 => Status::NotSupp,
            110 => Status::Timeout,
            // A quota or file size limit is "no space" to the writer.
            28 | 122 | 27 => Status::NoSpc,
            67 => Status::Transport,
            121 => Status::Target,
            52 => Status::ResvConflict,
            61 => Status::Medium,
            84 => Status::Protection,
            12 => Status::Resource,
            16 => Status::DevResource,
            11 => Status::Again,
            19 | 6 => Status::Offline,
            22 => Status::Inval,
            30 => Status::ReadOnly,
            _ => Status::IoErr,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Status::Ok => "ok",
            Status::NotSupp => "operation not supported",
            Status::Timeout => "timed out",
            Status::NoSpc => "no space left on device",
            Status::Transport => "transport error",
            Status::Target => "target error",
            Status::ResvConflict => "reservation conflict",
            Status::Medium => "medium error",
            Status::Protection => "integrity check failed",
            Status::Resource => "driver short of resources",
            Status::DevResource => "device busy",
            Status::Again => "would have to wait",
            Status::Offline => "device offline",
            Status::Inval => "malformed request",
            Status::IoErr => "I/O error",
            Status::ReadOnly => "the disk is read-only",
        };
        f.write_str(words)
    }
}

/// A status that is not [`Ok`](Status::Ok) can stand as an error.
impl std::error::Error for Status {}

impl From<Status> for std::io::Error {
    /// An error with the errno of the status.
    fn from(status: Status) -> std::io::Error {
        std::io::Error::from_raw_os_error(status.errno())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_survives_the_way_through_its_errno() {
        for status in Status::ALL {
            assert_eq!(Status::from_errno(status.errno()), status);
        }
    }
}

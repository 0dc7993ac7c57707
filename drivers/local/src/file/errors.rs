//! Errors of the file driver, each with the path.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use weir_queue::DriverError;

/// `file: PATH: what`, with the operating system's reason.
pub(super) fn error(path: &Path, what: &str, source: Option<io::Error>) -> DriverError {
    DriverError { what: format!("file: {}: {what}", path.display()), source }
}

pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

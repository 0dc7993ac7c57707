//! One call of a driver: what becomes of its error, its panic, and of bytes that it left out.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_bio::Status;

/// An interrupted call is made again so often.
pub(crate) const INTERRUPTIONS_MAX: u32 = 1000;

/// What came of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It moved so many bytes, at least one and no more than were left; of a call that moves none
    /// it is 0.
    Moved(usize),
    /// It was interrupted, and is to be made again.
    Again,
    /// It failed.
    Failed(Status),
    /// It broke its contract; how, as the end of a sentence about the call.
    Broken(String),
}

/// Makes a call that moves at most `len` bytes.
pub(crate) fn transfer(len: usize, call: impl FnOnce() -> io::Result<usize>) -> Outcome {
    match guarded(call) {
        Ok(Ok(0)) => Outcome::Broken(format!("moved none of {len} bytes")),
        Ok(Ok(moved)) if moved > len => {
            Outcome::Broken(format!("says that it moved {moved} of {len} bytes"))
        }
        Ok(Ok(moved)) => Outcome::Moved(moved),
        Ok(Err(error)) => failed(&error),
        Err(panic) => Outcome::Broken(panic),
    }
}

/// Makes a call that moves nothing.
pub(crate) fn plain(call: impl FnOnce() -> io::Result<()>) -> Outcome {
    match guarded(call) {
        Ok(Ok(())) => Outcome::Moved(0),
        Ok(Err(error)) => failed(&error),
        Err(panic) => Outcome::Broken(panic),
    }
}

pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    // Nothing of this crate's is touched by the call: a driver that panics in the middle of its own
    // state finds that state as it left it.
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| format!("panicked: {}", words(&*panic)))
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

fn failed(error: &io::Error) -> Outcome {
    match error.kind() {
        io::ErrorKind::Interrupted => Outcome::Again,
        _ => Outcome::Failed(status_of(error)),
    }
}

/// The status for an error: by its errno, or else by its kind.
fn status_of(error: &io::Error) -> Status {
    use io::ErrorKind as Kind;
    if let Some(errno) = error.raw_os_error() {
        // An error is none that says that nothing went wrong.
        return match Status::from_errno(errno) {
            Status::Ok => Status::IoErr,
            status => status,
        };
    }
    match error.kind() {
        Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Status::NoSpc,
        Kind::Unsupported => Status::NotSupp,
        Kind::TimedOut => Status::Timeout,
        Kind::ReadOnlyFilesystem => Status::ReadOnly,
        Kind::OutOfMemory => Status::Resource,
        Kind::InvalidInput => Status::Inval,
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::NotConnected => Status::Transport,
        _ => Status::IoErr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_errno_and_one_without_has_that_of_its_kind() {
        for status in Status::ALL.into_iter().filter(|status| !status.is_ok()) {
            let error = io::Error::from_raw_os_error(status.errno());
            assert_eq!(plain(|| Err(error)), Outcome::Failed(status));
        }
        for (kind, status) in [
            (io::ErrorKind::StorageFull, Status::NoSpc),
            (io::ErrorKind::Unsupported, Status::NotSupp),
            (io::ErrorKind::InvalidInput, Status::Inval),
            (io::ErrorKind::UnexpectedEof, Status::IoErr),
            (io::ErrorKind::Other, Status::IoErr),
        ] {
            assert_eq!(transfer(1, || Err(kind.into())), Outcome::Failed(status), "{kind:?}");
        }
        let nothing = io::Error::from_raw_os_error(0);
        assert_eq!(plain(|| Err(nothing)), Outcome::Failed(Status::IoErr));
        assert_eq!(plain(|| Err(io::ErrorKind::Interrupted.into())), Outcome::Again);
    }

    #[test]
    fn bytes_that_a_call_did_not_move_or_cannot_have_moved_are_no_success() {
        assert_eq!(transfer(8, || Ok(8)), Outcome::Moved(8));
        assert_eq!(transfer(8, || Ok(1)), Outcome::Moved(1));
        assert_eq!(transfer(8, || Ok(0)), Outcome::Broken("moved none of 8 bytes".into()));
        let lied = Outcome::Broken("says that it moved 9 of 8 bytes".into());
        assert_eq!(transfer(8, || Ok(9)), lied);
    }

    #[test]
    fn a_panic_is_told_with_its_words() {
        let told = |outcome| match outcome {
            Outcome::Broken(how) => how,
            other => panic!("{other:?}"),
        };
        assert_eq!(told(plain(|| panic!("no disk"))), "panicked: no disk");
        assert_eq!(told(transfer(1, || panic!("no disk {}", 3))), "panicked: no disk 3");
    }
}

//! How a call ends for C: 0 or more, or a negative errno with a message of the calling thread.

use std::any::Any;
use std::cell::RefCell;
use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir::{Error, ErrorKind, IoError};

/// Why a call failed: the errno, positive, and a sentence.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    pub(crate) what: String,
}

/// The end of a call.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(errno: c_int, what: impl Into<String>) -> Failure {
        Failure { errno, what: what.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, what)
    }

    /// A pointer that may not be null.
    pub(crate) fn null(name: &str) -> Failure {
        Failure::invalid(format!("{name}=NULL, it has to point to something"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        let errno = match error.kind() {
            ErrorKind::Invalid => libc::EINVAL,
            ErrorKind::Closed => libc::ENODEV,
            ErrorKind::Unfinished => libc::ETIMEDOUT,
            ErrorKind::OnReactor => libc::EDEADLK,
            _ => source.and_then(std::io::Error::raw_os_error).unwrap_or(libc::EIO),
        };
        Failure::new(errno, error.to_string())
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Failure {
        Failure::new(error.errno(), error.to_string())
    }
}

thread_local! {
    /// Of the last call of this thread that failed.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Carries a call out; its end as C has it. A panic ends here: as -EIO, where panics unwind.
pub(crate) fn guarded(call: impl FnOnce() -> Outcome<c_int>) -> c_int {
    guarded_or(call, |failure| -failure.errno)
}

/// The same for a call with an answer of another type.
pub(crate) fn guarded_or<T>(
    call: impl FnOnce() -> Outcome<T>,
    failed: impl FnOnce(&Failure) -> T,
) -> T {
    // What a panic left half done is behind a lock, which is poisoned by it.
    let ended = catch_unwind(AssertUnwindSafe(call));
    let failure = match ended {
        Ok(Ok(answer)) => return answer,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(libc::EIO, format!("a panic of weir: {}", said(&*panic))),
    };
    // A thread that is ending may have none any more; the errno is told all the same.
    let _ = MESSAGE.try_with(|message| *message.borrow_mut() = text(&failure.what));
    failed(&failure)
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

/// The message, until another call of this thread fails.
pub(crate) fn message() -> *const c_char {
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A text for C; one with a zero byte ends before it.
pub(crate) fn text(what: &str) -> CString {
    let before = what.split('\0').next().unwrap_or_default();
    CString::new(before).unwrap_or_default()
}

/// A text from C that has to be UTF-8.
pub(crate) fn words<'a>(name: &str, text: &'a CStr) -> Outcome<&'a str> {
    text.to_str().map_err(|error| Failure::invalid(format!("{name}={text:?} is no UTF-8: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: the message is a text that ends with a zero, and no call fails meanwhile.
        unsafe { CStr::from_ptr(message()) }.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn a_failure_is_its_errno_and_a_message_that_other_threads_do_not_see() {
        assert_eq!(guarded(|| Err(Failure::invalid("a=5 is outside 0..=4"))), -libc::EINVAL);
        assert_eq!(guarded(|| Ok(3)), 3);
        assert_eq!(last(), "a=5 is outside 0..=4", "a call that succeeds leaves it");
        assert_eq!(std::thread::spawn(last).join().expect("a thread"), "");
        guarded(|| Err(Failure::invalid("cut\0here")));
        assert_eq!(last(), "cut");
    }

    #[test]
    fn a_panic_ends_at_the_boundary() {
        assert_eq!(guarded(|| panic!("of {}", "a test")), -libc::EIO);
        assert_eq!(last(), "a panic of weir: of a test");
        assert_eq!(guarded_or(|| panic!("plain"), |failure| failure.errno), libc::EIO);
        assert_eq!(last(), "a panic of weir: plain");
    }
}

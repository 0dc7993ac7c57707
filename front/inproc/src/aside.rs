//! Calls that block, made on a thread of their own, for tasks that must not.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::open::Error;
use crate::slot::{Slot, block_on};

/// The end of a call that blocks and was put on a thread of its own: a [`Future`] of its result,
/// for any runtime or none. The call has begun, and goes on if this is dropped.
#[must_use = "the result says whether it was done"]
pub struct Aside<T> {
    slot: Arc<Slot<Result<T, Error>>>,
}

impl<T: Send + 'static> Aside<T> {
    /// Makes the call on a thread of this name.
    pub(crate) fn call(
        thread: &'static str,
        call: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Aside<T> {
        let slot = Slot::new();
        let there = Arc::clone(&slot);
        let run = move || {
            let panicked = |_| Err(Error::new(format!("thread {thread} panicked")));
            there.end(catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked));
        };
        if let Err(error) = std::thread::Builder::new().name(String::from(thread)).spawn(run) {
            slot.end(Err(Error::refused(format_args!("thread {thread}"), error)));
        }
        Aside { slot }
    }
}

impl<T> Aside<T> {
    /// Blocks the calling thread until the call has returned.
    ///
    /// # Errors
    /// Those of the call, or the system's: no thread is left.
    ///
    /// # Panics
    /// When it was polled to its end before.
    pub fn wait(self) -> Result<T, Error> {
        block_on(self)
    }
}

impl<T> Future for Aside<T> {
    type Output = Result<T, Error>;

    /// # Panics
    /// When it was ready before.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        self.slot.poll(context, "an Aside")
    }
}

impl<T> std::fmt::Debug for Aside<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.slot.has_ended() { "Aside(ended)" } else { "Aside(under way)" })
    }
}

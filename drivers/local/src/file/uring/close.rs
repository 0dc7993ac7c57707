//! Closing a ring whose requests the kernel may still be working on.
//!
//! To close a ring takes no time, but the kernel goes on with requests it cannot cancel, in their
//! memory and on the file. Each ring has the write end of a pipe among its registered files, and no
//! other descriptor of it is left: the pipe hangs up when the kernel has ended the last request and
//! taken the ring down. Until then a thread keeps the memory and the file, and with it the lock.

use std::io::{self, ErrorKind, PipeReader, Read};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::thread;

use super::super::target::Target;
use super::Slot;

/// The memory and files that the kernel may use until it has taken a closed ring down.
pub(super) struct Abandoned {
    pub(super) slots: Vec<Slot>,
    pub(super) target: Arc<Target>,
    /// Hangs up when the kernel has taken the ring down.
    pub(super) taken_down: PipeReader,
}

/// Sleeps until a ring is taken down, then lets go of what it used.
pub(super) type Keeper = Box<dyn FnOnce() + Send>;

impl Abandoned {
    /// Keeps all until the ring is taken down, in a thread that `start` starts. If it cannot, all
    /// is leaked: memory lost is better than memory overwritten.
    pub(super) fn keep(self, start: impl FnOnce(Keeper) -> io::Result<()>) -> io::Result<()> {
        // A closure that no thread could be started for is dropped, and what it holds is not.
        let kept = ManuallyDrop::new(self);
        start(Box::new(move || ManuallyDrop::into_inner(kept).outlast()))
    }

    /// Bytes of memory lent by requests.
    pub(super) fn bytes(&self) -> u64 {
        self.slots.iter().filter_map(|slot| slot.job.as_ref()).map(super::Job::bytes).sum()
    }

    fn outlast(mut self) {
        loop {
            match self.taken_down.read(&mut [0]) {
                Ok(0) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nothing is ever written there. Whether the ring is down is not known.
                Ok(_) | Err(_) => return std::mem::forget(self),
            }
        }
        drop(self.slots);
        // With the file goes its lock, so that comes last.
        drop(self.target);
    }
}

/// Starts the thread.
pub(super) fn in_thread(keeper: Keeper) -> io::Result<()> {
    thread::Builder::new().name("weir-file-close".to_owned()).spawn(keeper).map(drop)
}

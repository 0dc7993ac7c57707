//! Flushes of one open file description by many threads, in turn.
//!
//! The kernel tells a write that was lost to each description once: of two fdatasync(2) calls under
//! way on one description, one would be told and the other not. So there is one call at a time, and
//! all flushes that arrived before the call began share its result.

use std::fs;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::Errno;

type Outcome = Result<(), Errno>;

/// The description that flushes go through, and the turns of the threads that flush.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// A description that nothing else is done through; `None`: the one that I/O goes through.
    own: Option<fs::File>,
    turns: Mutex<Turns>,
    /// Told when a flush has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    under_way: bool,
    /// The flush that begins next, by what it will have been told.
    next: Arc<OnceLock<Outcome>>,
}

impl Flushes {
    /// Flushes through this description.
    pub(super) fn through(own: fs::File) -> Flushes {
        Flushes { own: Some(own), ..Flushes::default() }
    }

    /// fdatasync(2), by this thread or by another that begins after this call. `shared` is the
    /// description that I/O goes through.
    pub(super) fn flush(&self, shared: &fs::File) -> Outcome {
        let file = self.own.as_ref().unwrap_or(shared);
        self.share(|| rustix::fs::fdatasync(file))
    }

    fn share(&self, flush: impl FnOnce() -> Outcome) -> Outcome {
        let mut turns = self.turns();
        let mine = Arc::clone(&turns.next);
        loop {
            if let Some(outcome) = mine.get() {
                return *outcome;
            }
            if !turns.under_way {
                break;
            }
            turns = self.ended.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        (turns.under_way, turns.next) = (true, Arc::default());
        drop(turns);
        let _turn = Turn(self);
        *mine.get_or_init(flush)
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        // No call is made under the lock, so a panic leaves nothing half done.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flush under way. Its end is told even if it panics: those that wait make one themselves.
struct Turn<'a>(&'a Flushes);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.turns().under_way = false;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn flushes_that_come_while_one_is_under_way_share_the_next_and_its_error() {
        let (flushes, calls) = (Arc::new(Flushes::default()), Arc::new(AtomicU32::new(0)));
        let (go, wait) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel::<()>();
        let first = Arc::clone(&flushes);
        let first = thread::spawn(move || {
            first.share(|| {
                begun.send(()).unwrap();
                wait.recv().unwrap();
                Ok(())
            })
        });
        begins.recv().unwrap();
        let others: Vec<_> = (0..8)
            .map(|_| {
                let (flushes, calls) = (Arc::clone(&flushes), Arc::clone(&calls));
                thread::spawn(move || {
                    flushes.share(|| {
                        calls.fetch_add(1, Ordering::Relaxed);
                        Err(Errno::IO)
                    })
                })
            })
            .collect();
        // Each has a part in the next flush, beside the turns themselves.
        let next = Arc::clone(&flushes.turns().next);
        while Arc::strong_count(&next) < 2 + others.len() {
            thread::yield_now();
        }
        go.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Ok(()));
        for other in others {
            assert_eq!(other.join().unwrap(), Err(Errno::IO), "the first told nobody of it");
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(flushes.share(|| Ok(())), Ok(()), "a later one is another");
    }

    #[test]
    fn a_flush_that_panics_holds_up_no_other() {
        let flushes = Flushes::default();
        let made = thread::scope(|scope| scope.spawn(|| flushes.share(|| panic!("no"))).join());
        assert!(made.is_err());
        assert!(!flushes.turns().under_way);
        assert_eq!(flushes.share(|| Err(Errno::IO)), Err(Errno::IO));
    }
}

//! Where the answers for one hard queue wait until its lane takes them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Data, Status};
use weir_queue::{Tag, Wake};

/// An answer with the memory that was lent.
pub(crate) type Answer = (Tag, Status, Vec<Data>);

/// The answers for one hard queue.
#[derive(Default)]
pub(crate) struct Outlet(Mutex<State>);

#[derive(Default)]
struct State {
    ended: Vec<Answer>,
    /// The lane to wake; a queue that a test turns by hand has none.
    lane: Option<Arc<dyn Wake>>,
    /// It was woken and has not looked yet.
    rung: bool,
    /// The queue is gone: answers are dropped with their memory.
    closed: bool,
}

impl Outlet {
    pub(crate) fn at_home(&self, lane: Arc<dyn Wake>) {
        self.state().lane = Some(lane);
    }

    /// An answer has come.
    pub(crate) fn end(&self, tag: Tag, status: Status, lent: Vec<Data>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.ended.push((tag, status, lent));
        if std::mem::replace(&mut state.rung, true) {
            return;
        }
        let lane = state.lane.clone();
        drop(state);
        if let Some(lane) = lane {
            lane.wake();
        }
    }

    /// Moves the answers that have come to `taken`, which is empty.
    pub(crate) fn take(&self, taken: &mut Vec<Answer>) {
        let mut state = self.state();
        state.rung = false;
        std::mem::swap(&mut state.ended, taken);
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let (ended, lane) = (std::mem::take(&mut state.ended), state.lane.take());
        drop(state);
        drop((ended, lane));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

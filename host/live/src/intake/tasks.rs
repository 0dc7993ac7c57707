//! Tasks that wait for room in a door, in the order in which they came.

use std::collections::BTreeMap;
use std::task::Waker;

/// A task's place in the line, kept while it waits.
#[derive(Debug, Default)]
pub struct Waiting(Option<u64>);

/// A task that has left the line.
pub(crate) struct Left {
    /// A place was meant for it, which may be another's now.
    pub(crate) was_woken: bool,
    pub(crate) waker: Option<Waker>,
}

/// The line of one door. One is woken for each place that becomes free; a task that finds the place
/// taken stands where it stood.
#[derive(Default)]
pub(crate) struct Tasks {
    line: BTreeMap<u64, Waker>,
    next: u64,
}

impl Tasks {
    /// This task waits, and is woken by the waker that it brought last. Returns the one before, to
    /// be dropped outside the lock: that may drop anything.
    pub(crate) fn wait(&mut self, waiting: &mut Waiting, waker: &Waker) -> Option<Waker> {
        let place = *waiting.0.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.line.insert(place, waker.clone())
    }

    /// The task waits no more; its waker, to be dropped outside the lock.
    pub(crate) fn leave(&mut self, waiting: &mut Waiting) -> Left {
        match waiting.0.take() {
            None => Left { was_woken: false, waker: None },
            Some(place) => {
                let waker = self.line.remove(&place);
                Left { was_woken: waker.is_none(), waker }
            }
        }
    }

    /// Those to be woken for so many places.
    pub(crate) fn take(&mut self, places: usize) -> Vec<Waker> {
        let count = places.min(self.line.len());
        (0..count).filter_map(|_| self.line.pop_first()).map(|(_, waker)| waker).collect()
    }
}

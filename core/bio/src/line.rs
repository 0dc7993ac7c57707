//! Tasks that wait for one of a number of places, in the order in which they came. It holds their
//! wakers; the places and the lock are its owner's.

use std::collections::BTreeMap;
use std::task::Waker;

/// A task's place in the line, kept while it waits.
#[derive(Debug, Default)]
pub struct Waiting(Option<u64>);

/// A task that has left the line.
#[derive(Debug)]
pub struct Left {
    /// A place was meant for it, which may be another's now.
    pub was_woken: bool,
    /// Its waker, if it was not woken; to be dropped outside the lock.
    pub waker: Option<Waker>,
}

/// Tasks in line. One is woken for each place that becomes free; a task that finds the place taken
/// stands where it stood.
#[derive(Debug, Default)]
pub struct TaskLine {
    tasks: BTreeMap<u64, Waker>,
    next: u64,
}

impl TaskLine {
    /// Without a task.
    #[must_use]
    pub const fn new() -> TaskLine {
        TaskLine { tasks: BTreeMap::new(), next: 0 }
    }

    /// This task waits, and is woken by the waker that it brought last. Returns the one before, to
    /// be dropped outside the lock: that may drop anything.
    #[must_use = "dropped outside the lock"]
    pub fn wait(&mut self, waiting: &mut Waiting, waker: &Waker) -> Option<Waker> {
        let place = *waiting.0.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.tasks.insert(place, waker.clone())
    }

    /// The task waits no more.
    #[must_use = "a place that was meant for it is another's"]
    pub fn leave(&mut self, waiting: &mut Waiting) -> Left {
        match waiting.0.take() {
            None => Left { was_woken: false, waker: None },
            Some(place) => {
                let waker = self.tasks.remove(&place);
                Left { was_woken: waker.is_none(), waker }
            }
        }
    }

    /// The one to be woken for a place.
    #[must_use = "to be woken outside the lock"]
    pub fn first(&mut self) -> Option<Waker> {
        self.tasks.pop_first().map(|(_, waker)| waker)
    }

    /// Those to be woken for so many places.
    #[must_use = "to be woken outside the lock"]
    pub fn take(&mut self, places: usize) -> Vec<Waker> {
        let count = places.min(self.tasks.len());
        (0..count).filter_map(|_| self.first()).collect()
    }
}

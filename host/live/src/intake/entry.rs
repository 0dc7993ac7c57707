//! A place at a door: for a job at once, or kept for one to come.

use std::sync::{Arc, MutexGuard};
use std::task::Waker;

use super::{Answer, Arrivals, Door, Job, List};

/// A place for one job, with the list locked.
pub struct Entry<'a, A: Answer> {
    pub(super) door: &'a Door<A>,
    pub(super) list: MutexGuard<'a, List<A>>,
    // Dropped behind the lock.
    pub(super) _waker: Option<Waker>,
}

impl<A: Answer> Entry<'_, A> {
    /// Sends a job in. On a closed disk its answer says so.
    pub fn put(self, job: Job<A>) {
        let Entry { door, mut list, _waker } = self;
        if list.closed {
            list.offline.push((job.answer, Some(job.bio)));
            drop(list);
            return door.arrivals.tell_offline();
        }
        let first = list.jobs.is_empty();
        list.jobs.push(job);
        list.unaccepted += 1;
        drop(list);
        if first {
            door.handle.post(|intake, turn| intake.arrive(turn.now()));
        }
    }
}

impl<A: Answer> Entry<'_, A> {
    /// Keeps the place without a job: it is the holder's until it is used or dropped.
    #[must_use]
    pub fn keep(self) -> Place<A> {
        let Entry { door, mut list, _waker } = self;
        list.unaccepted += 1;
        drop(list);
        Place(Some(Arc::clone(&door.arrivals)))
    }
}

/// A place that is kept for a job to come; dropped, it is free again.
pub struct Place<A: Answer>(pub(super) Option<Arc<Arrivals<A>>>);

impl<A: Answer> Drop for Place<A> {
    fn drop(&mut self) {
        if let Some(arrivals) = self.0.take() {
            arrivals.leave(1);
        }
    }
}

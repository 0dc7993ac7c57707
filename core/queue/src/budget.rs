//! Places that a device has for requests beside its tags: the queue depth of a logical unit, the
//! bound of its target, what its host can carry. They are asked for before a request leaves its
//! scheduler or its soft queue, where it can still be merged and ordered.

use std::sync::Arc;

use crate::request::ALL;

/// The places of a device. A driver names them in [`Driver::budget`](crate::Driver::budget).
///
/// # Contract
/// A request that the driver takes has one place, which the driver gives up itself with its answer,
/// or when it hands the request back. What the core got and has no request for, it puts back in the
/// same pass, or in the pass of the lane that the request was sent to.
///
/// A lane that [waits](Budget::wait) is turned, by the [`Wake`](crate::Wake) of
/// [`at_home`](crate::DriverQueue::at_home), once there are places: given up by answers, of this
/// device or of others that count with it, or put back. One that only got less than it asked for is
/// not: it may have had no use for them, and two such would wake each other for ever.
pub trait Budget: Send + Sync {
    /// Takes up to `wanted` places, at least 1, for requests of hard queue `lane`, and says how
    /// many. Called by any thread.
    fn get(&self, lane: u16, wanted: usize) -> usize;

    /// Takes back places for which there was no request.
    fn put(&self, unused: usize);

    /// The lane used what it got, and has more to send. If there are places now, it is turned at
    /// once.
    fn wait(&self, lane: u16);
}

/// Places for requests that are picked for a lane with so much room; `ALL` without a budget, and
/// where they are not to be sent.
#[derive(Clone, Copy)]
pub(crate) struct PickPlaces {
    wanted: usize,
    pub(crate) most: usize,
}

impl PickPlaces {
    /// For so many requests that there are.
    #[inline]
    pub(crate) fn get(
        budget: &Option<Arc<dyn Budget>>,
        lane: u16,
        room: usize,
        staged: impl FnOnce() -> usize,
    ) -> PickPlaces {
        let none = PickPlaces { wanted: ALL, most: ALL };
        let Some(budget) = budget.as_ref().filter(|_| room > 0 && room != ALL) else { return none };
        match staged().min(room) {
            0 => none,
            wanted => PickPlaces { wanted, most: budget.get(lane, wanted) },
        }
    }

    /// Puts back the places for which nothing was picked; whether more would have been picked with
    /// more of them.
    #[inline]
    pub(crate) fn put_rest(self, budget: &Option<Arc<dyn Budget>>, given: usize) -> bool {
        let PickPlaces { wanted, most } = self;
        if let Some(budget) = budget.as_ref().filter(|_| most != ALL && most > given) {
            budget.put(most - given);
        }
        given == most && most < wanted
    }
}

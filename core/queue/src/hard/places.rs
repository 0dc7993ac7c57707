//! The places of a [`Budget`] that a hard queue has in hand for a pass.
//!
//! A request needs a place beside its tag. The dispatcher gets places before it has the scheduler
//! pick, and marks the picks; the mark is taken off here, and counted. For all else, leftovers and
//! the requests of a soft queue, the hard queue gets places itself. At the end of the pass those
//! that are left go back: a request that waits for its tag or its driver holds no place meanwhile.

use std::sync::Arc;

use super::{HardQueue, Source};
use crate::budget::Budget;
use crate::request::HAS_PLACE;

/// The places in hand.
pub(super) struct Places {
    budget: Arc<dyn Budget>,
    lane: u16,
    held: usize,
    /// There are requests for more.
    short: bool,
}

impl Places {
    pub(super) fn new(budget: Arc<dyn Budget>, lane: u16) -> Places {
        Places { budget, lane, held: 0, short: false }
    }

    /// The driver took so many requests, each with its place.
    pub(super) fn spend(&mut self, taken: usize) {
        self.held -= taken;
    }
}

impl HardQueue {
    /// Whether requests need a place beside their tags.
    #[inline]
    pub(crate) fn is_budgeted(&self) -> bool {
        self.places.is_some()
    }

    /// How many of `room` requests can be sent. `None`: none of those that there are, until the
    /// driver has the lane turned.
    #[cold]
    pub(super) fn secure_places(&mut self, room: usize, source: &impl Source) -> Option<usize> {
        self.collect_places();
        // Those in the burst were not offered yet.
        let burst = self.burst.len() - self.reserved;
        let wanted = self.dispatch.len().max(source.holds(room)).min(room);
        let places = self.places.as_mut().expect("it is budgeted");
        let missing = (burst + wanted).saturating_sub(places.held);
        if missing > 0 {
            let got = places.budget.get(places.lane, missing);
            debug_assert!(got <= missing, "{got} places, {missing} were wanted");
            places.held += got;
            places.short |= got < missing;
        }
        let usable = (places.held - burst).min(room);
        if usable == 0 && wanted > 0 { None } else { Some(usable) }
    }

    /// Takes the marks off the requests that were picked with a place.
    fn collect_places(&mut self) {
        let places = self.places.as_mut().expect("it is budgeted");
        for claim in &mut self.dispatch {
            if claim.rq.flags.has(HAS_PLACE) {
                claim.rq.flags = claim.rq.flags.without(HAS_PLACE);
                places.held += 1;
            }
        }
    }

    /// The scheduler has more requests than there were places for.
    #[cold]
    pub(crate) fn want_places(&mut self) {
        if let Some(places) = &mut self.places {
            places.short = true;
        }
    }

    /// The pass is over: places that were not spent go back. A lane that spent all and is short
    /// waits for more; one that did not waits for its driver or a tag.
    #[cold]
    pub(super) fn put_places(&mut self) {
        self.collect_places();
        let places = self.places.as_mut().expect("it is budgeted");
        let short = std::mem::take(&mut places.short);
        if places.held > 0 {
            places.budget.put(std::mem::take(&mut places.held));
        } else if short {
            places.budget.wait(places.lane);
        }
    }
}

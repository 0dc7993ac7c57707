//! A lane's end of the rings between it and the dispatcher.

use weir_bio::SchedTag;
use weir_ring::{Consumer, Producer};
use weir_sched::Ended;

use super::arrivals::{Arrival, Arrivals, Picked};
use crate::request::RequestClaim;

/// Requests on their way to one lane.
pub(super) const SENT_MAX: usize = 256;

/// A lane's end of the rings. The only lane of a device has none: no other lane could take what it
/// leaves.
#[derive(Default)]
pub(crate) struct Link {
    pub(super) rings: Option<Rings>,
    /// Requests ever received.
    received: u64,
}

/// The rings of one lane, as it has them.
pub(super) struct Rings {
    pub(super) arrivals: Producer<Arrival>,
    pub(super) ended: Producer<Ended>,
    pub(super) gone: Producer<SchedTag>,
    pub(super) picked: Consumer<Picked>,
}

impl Rings {
    /// Puts in what has ended, if there is room for it.
    #[inline]
    fn put_ends(&mut self, ended: &mut Vec<Ended>, timed: bool) -> bool {
        let (count, gone, times) = (ended.len(), &mut self.gone, &mut self.ended);
        match timed {
            true if count <= times.room(count) => times.push_each(ended.drain(..)),
            false if count <= gone.room(count) => {
                gone.push_each(ended.drain(..).map(|end| end.tag))
            }
            _ => return false,
        }
        times.publish();
        gone.publish();
        true
    }
}

impl Link {
    pub(super) fn of(rings: Rings) -> Link {
        Link { rings: Some(rings), received: 0 }
    }

    /// Leaves all this for the holder of the right, if there is room for it; of what ended the
    /// times as well, if the scheduler wants to know them.
    pub(crate) fn leave(
        &mut self,
        arrivals: &mut Arrivals,
        ended: &mut Vec<Ended>,
        timed: bool,
    ) -> bool {
        let Some(rings) = &mut self.rings else { return false };
        let count = arrivals.len();
        let fits = count <= rings.arrivals.room(count) && rings.put_ends(ended, timed);
        if fits {
            let left = &mut rings.arrivals;
            arrivals.leave(left);
            left.publish();
            let free = left.room(0);
            left.fetch(count.min(free));
        }
        fits
    }

    /// Leaves what has ended, if there is room for it.
    #[cold]
    pub(crate) fn leave_ends(&mut self, ended: &mut Vec<Ended>, timed: bool) {
        self.rings.as_mut().map(|rings| rings.put_ends(ended, timed));
    }

    /// Whether it has rings.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.rings.is_some()
    }

    /// Whether something was sent that is not received yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| rings.picked.has_items())
    }

    /// Receives what was sent.
    #[inline]
    pub(crate) fn receive(&mut self, mut each: impl FnMut(RequestClaim)) {
        let Some(rings) = &mut self.rings else { return };
        let count = rings.picked.pop_each(SENT_MAX, |picked| each(picked.into_claim()));
        self.received += count as u64;
    }

    /// The credit of a lane whose driver has room for `free` requests, while `waiting` wait for it.
    pub(crate) fn credit(&self, free: usize, waiting: usize) -> u64 {
        (self.received + free as u64).saturating_sub(waiting as u64)
    }
}

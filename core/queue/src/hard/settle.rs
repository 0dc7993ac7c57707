//! Holds that have been taken and go from lane to lane, before their owners read.
//!
//! A hold stops requests that have not passed a lane (`hard/fence.rs`). A request that had passed
//! before, and changes its sectors, may land at any time: behind the read of a read-modify-write,
//! the write would undo it. So the claim of a hold is sent to each lane in turn, stays while such a
//! request is with the lane's driver, and goes on when it has ended; from the last lane to its
//! owner. A request that runs out of time there leaves a fence behind, for which the owner's read
//! waits.
//!
//! A lane looks for that in the branch it has for trouble, so other requests pay nothing.

use weir_bio::{Nanos, Rq, Status};

use super::HardQueue;
use super::fence::{changes, overlap};
use super::reply::Replies;
use crate::event::Silent;
use crate::request::RequestClaim;

/// The holds that a lane has been sent.
#[derive(Default)]
pub(super) struct Settling {
    /// Something that they are to wait for is with the driver.
    parked: Vec<RequestClaim>,
    /// They may go on to the next lane.
    settled: Vec<RequestClaim>,
    /// Taken when a request of this lane passed; no lane has seen them.
    pub(super) taken: Vec<RequestClaim>,
}

impl Settling {
    pub(super) fn is_waiting(&self) -> bool {
        !self.parked.is_empty()
    }
}

/// Claims of holds that go on from a lane.
pub(crate) struct Onward {
    /// To the next lane.
    pub(crate) settled: Vec<RequestClaim>,
    /// To the first.
    pub(crate) taken: Vec<RequestClaim>,
}

impl HardQueue {
    /// A hold was taken: it goes on when nothing with the driver changes its sectors.
    #[cold]
    pub(crate) fn settle(&mut self, hold: RequestClaim) {
        self.settling.parked.push(hold);
        self.watch.trouble = true;
    }

    /// Ends the wait of holds that have been in line for too long; none of them was taken.
    #[cold]
    pub(super) fn expire_holds(&mut self, before: Nanos, now: Nanos, replies: &mut Replies) {
        for mut hold in self.fences.give_up_holds(before, &mut self.settling.taken) {
            (hold.status, hold.done_at) = (Status::Timeout, now);
            // It never was a request, so no event tells of it.
            replies.push(hold, self.lane, now, Silent);
        }
        self.watch.onward |= !self.settling.taken.is_empty();
    }

    /// Looks which holds may go on.
    #[cold]
    pub(super) fn look_at_holds(&mut self) {
        let (table, settling) = (&self.table, &mut self.settling);
        let may_go = |hold: &mut RequestClaim| {
            let held = hold.rq.sector..hold.rq.end();
            let lands = |rq: &Rq| changes(rq.op) && overlap(&(rq.sector..rq.end()), &held);
            !table.any(lands)
        };
        settling.settled.extend(settling.parked.extract_if(.., may_go));
        self.watch.onward |= !settling.settled.is_empty();
    }

    /// The claims that go on to other lanes or owners, since last asked.
    #[inline]
    pub(crate) fn take_onward(&mut self) -> Option<Onward> {
        std::mem::take(&mut self.watch.onward).then(|| self.collect_onward())
    }

    #[cold]
    fn collect_onward(&mut self) -> Onward {
        let Settling { settled, taken, .. } = &mut *self.settling;
        Onward { settled: std::mem::take(settled), taken: std::mem::take(taken) }
    }

    /// The lane closes: nothing is with the driver any more.
    #[cold]
    pub(crate) fn settle_all(&mut self) -> Onward {
        let parked = std::mem::take(&mut self.settling.parked);
        self.settling.settled.extend(parked);
        self.watch.onward = false;
        self.collect_onward()
    }
}

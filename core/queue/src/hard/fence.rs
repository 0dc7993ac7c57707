//! Fences: sectors whose requests wait in front of the driver, for one of two reasons.
//!
//! - **A write ran out of time.** Its submitter was told TIMEOUT, but the driver keeps its tag
//!   until it can no longer take effect. Until then a newer write could be overwritten by it, and
//!   two reads could find first the newer data and then the older. Lifted by the driver's answer.
//! - **A hold.** A write that begins or ends inside a block is a read-modify-write of whole blocks
//!   (`submit/submitter/patch.rs`). Nothing else may change these between its read and its write.
//!   Lifted by that write's end, however it ends.
//!
//! A request that overlaps a fence is held back until the fence is lifted, or until its own time is
//! up. One that may not wait ends AGAIN.
//!
//! Rules of holds:
//!
//! - Holds that stand do not overlap. A hold covers all that its owner reads and writes, and is
//!   taken at once or not at all, so no two owners wait for each other.
//! - There is one line, in order of arrival, of holds to be taken and requests that a hold stops. A
//!   hold is taken when it overlaps no hold that stands and nothing ahead of it in line. So each
//!   entry waits for entries before it only: no deadlock, and neither kind starves.
//! - A hold waits in line for the time of a request (`io_timeout`), and is given up then.
//! - A hold that stands stops requests that have not passed a lane yet. Then it goes from lane to
//!   lane (`hard/settle.rs`), until the requests that had passed before and change its sectors have
//!   ended.
//! - Its owner's requests pass holds, but no fence of the first kind.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_bio::{Nanos, Op, Rq, RqId};
use weir_ring::{PendingBits, SharedCounter};

use crate::driver::Tag;
use crate::request::{RequestClaim, is_holder};

/// The fences of a device, over all its lanes.
#[derive(Debug)]
pub(crate) struct Fences {
    /// How many there are, with the requests in line: all that a device without any looks at.
    count: SharedCounter,
    /// How many were ever lifted.
    lifted: SharedCounter,
    standing: Mutex<Standing>,
    /// Lanes that hold requests back.
    waiting: PendingBits,
}

#[derive(Debug)]
struct Fence {
    lane: u16,
    tag: Tag,
    start: u64,
    end: u64,
}

/// The fences and holds of a device, and the line that waits for holds.
#[derive(Debug, Default)]
struct Standing {
    fences: Vec<Fence>,
    holds: Vec<Range<u64>>,
    line: VecDeque<Waiting>,
}

/// One that waits for holds.
#[derive(Debug)]
enum Waiting {
    /// A hold to be taken: the claim names its sectors.
    Hold(RequestClaim),
    /// A request that a lane keeps.
    Request(RqId, Range<u64>),
}

impl Waiting {
    fn sectors(&self) -> Range<u64> {
        match self {
            Waiting::Hold(claim) => sectors(&claim.rq),
            Waiting::Request(_, sectors) => sectors.clone(),
        }
    }

    fn is_request(&self, named: RqId) -> bool {
        matches!(self, Waiting::Request(id, _) if *id == named)
    }
}

fn sectors(rq: &Rq) -> Range<u64> {
    rq.sector..rq.end()
}

pub(crate) fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The cause that stops a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Nothing,
    Fence,
    Hold,
}

impl Standing {
    #[cold]
    fn stops(&self, rq: &Rq) -> Stop {
        if rq.sectors == 0 {
            return Stop::Nothing;
        }
        let wanted = sectors(rq);
        if !is_holder(rq.id) && self.holds.iter().any(|held| overlap(held, &wanted)) {
            return Stop::Hold;
        }
        let touches = |fence: &Fence| wanted.start < fence.end && fence.start < wanted.end;
        if self.fences.iter().any(touches) { Stop::Fence } else { Stop::Nothing }
    }

    /// Whether a hold of these sectors has to wait, with so many in line ahead of it.
    fn is_taken(&self, wanted: &Range<u64>, ahead: usize) -> bool {
        // The newest first: it is what stops the others that wait for the same block.
        self.holds.iter().rev().any(|held| overlap(held, wanted))
            || self.line.iter().take(ahead).any(|other| overlap(&other.sectors(), wanted))
    }
}

/// Whether a request of this op changes sectors.
pub(crate) fn changes(op: Op) -> bool {
    match op {
        Op::Write | Op::Discard | Op::SecureErase | Op::WriteZeroes => true,
        Op::Read | Op::Flush | Op::Prefetch => false,
        // The effect of a passthrough command is not known; it names its sectors, or none.
        Op::DrvIn | Op::DrvOut => true,
    }
}

impl Fences {
    /// None, on a device of up to so many lanes.
    pub(crate) fn new(lanes: u16) -> Fences {
        Fences {
            count: SharedCounter::default(),
            lifted: SharedCounter::default(),
            standing: Mutex::default(),
            waiting: PendingBits::new(usize::from(lanes)),
        }
    }

    /// Whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.read() != 0
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        // Nothing panics under the lock, so nothing is half done.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one around what this request may change, which the driver keeps under this tag of this
    /// lane. To be called before the request's submitter is told.
    #[cold]
    pub(crate) fn put(&self, lane: u16, tag: Tag, rq: &Rq) {
        if !changes(rq.op) || rq.sectors == 0 {
            return;
        }
        self.standing().fences.push(Fence { lane, tag, start: rq.sector, end: rq.end() });
        self.count.next();
    }

    /// The driver has given this tag back. True when a fence is lifted by that: then the lanes that
    /// wait are to be [told](Fences::tell).
    #[cold]
    pub(crate) fn lift(&self, lane: u16, tag: Tag) -> bool {
        let fences = &mut self.standing().fences;
        let place = fences.iter().position(|fence| (fence.lane, fence.tag) == (lane, tag));
        let Some(place) = place else { return false };
        fences.swap_remove(place);
        self.count.down();
        self.lifted.next();
        true
    }

    /// Changes whenever a fence is lifted.
    pub(crate) fn lifted(&self) -> u64 {
        self.lifted.read()
    }

    /// Whether a fence stops a request. It need not: a flush names no sectors.
    #[cold]
    pub(crate) fn stop(&self, rq: &Rq) -> bool {
        self.standing().stops(rq) != Stop::Nothing
    }

    /// The same for one that waits if it is stopped: if by a hold, it is in line from now on,
    /// until it [passes](Fences::passed).
    #[cold]
    pub(crate) fn stop_in_line(&self, rq: &Rq) -> bool {
        let mut standing = self.standing();
        let stop = standing.stops(rq);
        if stop == Stop::Hold && !standing.line.iter().any(|other| other.is_request(rq.id)) {
            standing.line.push_back(Waiting::Request(rq.id, sectors(rq)));
            self.count.next();
        }
        stop != Stop::Nothing
    }

    /// A request waits no longer: it starts, or has ended. Pushes the holds that are taken by that,
    /// each to be [settled](crate::hard::settle).
    #[cold]
    pub(crate) fn passed(&self, id: RqId, taken: &mut Vec<RequestClaim>) {
        let mut standing = self.standing();
        let Some(place) = standing.line.iter().position(|other| other.is_request(id)) else {
            return;
        };
        let gone = standing.line.remove(place).expect("found");
        self.count.down();
        self.take_next(&mut standing, &gone.sectors(), taken);
    }

    /// Takes a hold of the sectors that this claim names: gives the claim back, to be
    /// [settled](crate::hard::settle). Else it is in line.
    #[cold]
    pub(crate) fn take_hold(&self, claim: RequestClaim) -> Option<RequestClaim> {
        let mut standing = self.standing();
        let wanted = sectors(&claim.rq);
        if standing.is_taken(&wanted, usize::MAX) {
            standing.line.push_back(Waiting::Hold(claim));
            return None;
        }
        standing.holds.push(wanted);
        self.count.next();
        Some(claim)
    }

    /// Lifts the hold of these sectors, and pushes those that are taken by that, each to be
    /// settled. The lanes that wait are to be [told](Fences::tell).
    ///
    /// # Panics
    /// When there is none.
    #[cold]
    pub(crate) fn lift_hold(&self, held: &Range<u64>, taken: &mut Vec<RequestClaim>) {
        let mut standing = self.standing();
        let place = standing.holds.iter().position(|other| other == held);
        standing.holds.swap_remove(place.expect("a hold is lifted once"));
        self.count.down();
        self.lifted.next();
        self.take_next(&mut standing, held, taken);
    }

    /// Gives up the holds in line that were asked for at `before` or earlier: each ahead of them
    /// may take its whole time. Pushes those that are taken by that.
    #[cold]
    pub(crate) fn give_up_holds(
        &self,
        before: Nanos,
        taken: &mut Vec<RequestClaim>,
    ) -> Vec<RequestClaim> {
        let mut standing = self.standing();
        let (mut given_up, mut place) = (Vec::new(), 0);
        while let Some(waiting) = standing.line.get(place) {
            if !matches!(waiting, Waiting::Hold(claim) if claim.accepted_at <= before) {
                place += 1;
            } else if let Some(Waiting::Hold(claim)) = standing.line.remove(place) {
                given_up.push(claim);
            }
        }
        for claim in &given_up {
            self.take_next(&mut standing, &sectors(&claim.rq), taken);
        }
        given_up
    }

    /// Takes the holds in line that nothing ahead of them stops any more, of those that overlap
    /// what went.
    fn take_next(&self, standing: &mut Standing, gone: &Range<u64>, taken: &mut Vec<RequestClaim>) {
        let mut place = 0;
        while let Some(waiting) = standing.line.get(place) {
            let wanted = waiting.sectors();
            let is_hold = matches!(waiting, Waiting::Hold(_));
            if !is_hold || !overlap(&wanted, gone) || standing.is_taken(&wanted, place) {
                place += 1;
                continue;
            }
            if let Some(Waiting::Hold(claim)) = standing.line.remove(place) {
                standing.holds.push(wanted);
                self.count.next();
                taken.push(claim);
            }
        }
    }

    /// Whether a fence of the first kind stands in these sectors.
    #[cold]
    pub(crate) fn is_fenced(&self, wanted: &Range<u64>) -> bool {
        let touches = |fence: &Fence| overlap(&(fence.start..fence.end), wanted);
        self.standing().fences.iter().any(touches)
    }

    /// Whether one stands around some of these sectors.
    #[cold]
    pub(crate) fn stand_in(&self, wanted: Range<u64>) -> bool {
        let standing = self.standing();
        let touches = |fence: &Fence| wanted.start < fence.end && fence.start < wanted.end;
        standing.fences.iter().any(touches)
            || standing.holds.iter().any(|held| overlap(held, &wanted))
    }

    /// This lane holds something back. It looks once more afterwards: either it finds that a fence
    /// was lifted, or the lane that lifts it finds this mark.
    #[cold]
    pub(crate) fn wait(&self, lane: u16) {
        self.waiting.mark(usize::from(lane));
    }

    /// Calls `tell` with each lane that is to look at what it holds back.
    #[cold]
    pub(crate) fn tell(&self, tell: impl FnMut(usize)) {
        self.waiting.take(tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Flags, GroupId, IoPrio, RqId, SchedTag};

    fn rq(op: Op, sector: u64, sectors: u32) -> Rq {
        Rq {
            sector,
            sectors,
            id: RqId(0),
            flags: Flags::NONE,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag::NONE,
            op,
            segments: 1,
        }
    }

    #[test]
    fn a_fence_holds_what_overlaps_it_and_nothing_beside_it() {
        let fences = Fences::new(2);
        fences.put(1, Tag::first(3), &rq(Op::Write, 8, 8));
        let held = [(0, 9), (8, 1), (15, 1), (15, 9), (0, 100)];
        let free = [(0, 8), (16, 1), (100, 8)];
        for (sector, sectors) in held {
            assert!(fences.stop(&rq(Op::Read, sector, sectors)), "{sector}+{sectors}");
        }
        for (sector, sectors) in free {
            assert!(!fences.stop(&rq(Op::Write, sector, sectors)), "{sector}+{sectors}");
        }
        assert!(!fences.stop(&rq(Op::Flush, 10, 0)), "a flush touches no sector");
    }

    #[test]
    fn a_fence_is_lifted_by_its_own_tag_on_its_own_lane() {
        let fences = Fences::new(2);
        let (one, other) = (Tag::first(1), Tag::first(2));
        fences.put(0, one, &rq(Op::Write, 0, 8));
        fences.put(1, one, &rq(Op::Discard, 8, 8));
        assert!(!fences.lift(0, other));
        assert!(fences.lift(0, one) && !fences.lift(0, one));
        assert!(fences.any() && fences.stop(&rq(Op::Read, 8, 1)));
        assert!(fences.lift(1, one) && !fences.any());
    }

    #[test]
    fn what_changes_no_sector_puts_no_fence() {
        let fences = Fences::new(1);
        for op in [Op::Read, Op::Flush, Op::Prefetch] {
            fences.put(0, Tag::first(0), &rq(op, 0, 8));
        }
        assert!(!fences.any());
    }
}

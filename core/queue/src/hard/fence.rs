//! Fences: sectors that a request may still change although its submitter was told TIMEOUT.
//!
//! The driver keeps the tag of such a request until it can no longer take effect. Until then the
//! sectors may change at any moment, so a newer write to them could be overwritten by the older
//! one, and two reads could find first the newer data and then the older. So a request that
//! overlaps a fence is held back in front of the driver: until the fence is lifted, or until its
//! own time is up. One that may not wait ends AGAIN.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_bio::{Op, Rq};
use weir_ring::{Pending, SharedCounter};

use crate::driver::Tag;

/// The fences of a device, over all its lanes.
#[derive(Debug)]
pub(crate) struct Fences {
    /// How many there are: all that a device without any ever looks at.
    count: SharedCounter,
    /// How many were ever lifted.
    lifted: SharedCounter,
    fences: Mutex<Vec<Fence>>,
    /// Lanes that hold requests back.
    waiting: Pending,
}

#[derive(Debug)]
struct Fence {
    lane: u16,
    tag: Tag,
    start: u64,
    end: u64,
}

/// Whether a request of this op changes sectors.
fn changes(op: Op) -> bool {
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
            fences: Mutex::default(),
            waiting: Pending::new(usize::from(lanes)),
        }
    }

    /// Whether there is any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.read() != 0
    }

    fn fences(&self) -> MutexGuard<'_, Vec<Fence>> {
        // Nothing panics under the lock, so nothing is half done.
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one around what this request may change, which the driver keeps under this tag of this
    /// lane. To be called before the request's submitter is told.
    #[cold]
    pub(crate) fn put(&self, lane: u16, tag: Tag, rq: &Rq) {
        if !changes(rq.op) || rq.sectors == 0 {
            return;
        }
        self.fences().push(Fence { lane, tag, start: rq.sector, end: rq.end() });
        self.count.next();
    }

    /// The driver has given this tag back. True when a fence is lifted by that: then the lanes that
    /// wait are to be [told](Fences::tell).
    #[cold]
    pub(crate) fn lift(&self, lane: u16, tag: Tag) -> bool {
        let mut fences = self.fences();
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

    /// Whether a request touches a fence. It need not: a flush names no sectors.
    #[cold]
    pub(crate) fn hold(&self, rq: &Rq) -> bool {
        rq.sectors > 0 && self.stand_in(rq.sector..rq.end())
    }

    /// Whether there is one around some of these sectors.
    #[cold]
    pub(crate) fn stand_in(&self, sectors: Range<u64>) -> bool {
        let touches = |fence: &Fence| sectors.start < fence.end && fence.start < sectors.end;
        self.fences().iter().any(touches)
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
            assert!(fences.hold(&rq(Op::Read, sector, sectors)), "{sector}+{sectors}");
        }
        for (sector, sectors) in free {
            assert!(!fences.hold(&rq(Op::Write, sector, sectors)), "{sector}+{sectors}");
        }
        assert!(!fences.hold(&rq(Op::Flush, 10, 0)), "a flush touches no sector");
    }

    #[test]
    fn a_fence_is_lifted_by_its_own_tag_on_its_own_lane() {
        let fences = Fences::new(2);
        let (one, other) = (Tag::first(1), Tag::first(2));
        fences.put(0, one, &rq(Op::Write, 0, 8));
        fences.put(1, one, &rq(Op::Discard, 8, 8));
        assert!(!fences.lift(0, other));
        assert!(fences.lift(0, one) && !fences.lift(0, one));
        assert!(fences.any() && fences.hold(&rq(Op::Read, 8, 1)));
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

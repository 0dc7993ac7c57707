//! Which of two requests of one queue is served first: by kind, then by the way the head travels.
//! Source: docs/behaviour/bfq.md, section 16.1; bfq and cfq use the same rule.

use weir_bio::{Flags, Rq};

/// The cost of going backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackSeek {
    /// How far behind the head a request may be and still be near, sectors.
    pub max_sectors: u64,
    /// By what a distance backwards is multiplied.
    pub penalty: u64,
}

/// Whether it goes before other requests of its kind: metadata, or asked for by flag.
#[must_use]
pub fn is_favoured(rq: &Rq) -> bool {
    rq.flags.any(Flags::META | Flags::PRIO)
}

/// The kind of a request: of two, that with the higher rank goes first wherever it is.
#[must_use]
#[inline]
pub fn rank(rq: &Rq) -> u8 {
    u8::from(rq.is_sync()) << 1 | u8::from(is_favoured(rq))
}

/// How a request lies to the head: all that decides which of two goes first.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    rank: u8,
    cost: u64,
    sector: u64,
}

impl Reach {
    /// Of a request of this [`rank`] at `sector`, with the head at sector `head`.
    #[must_use]
    #[inline]
    pub fn of(rank: u8, sector: u64, head: u64, back: BackSeek) -> Reach {
        Reach { rank, cost: cost(sector, head, back), sector }
    }

    /// Whether it goes before `other`, which lies to the same head.
    #[must_use]
    #[inline]
    pub fn is_before(self, other: Reach) -> bool {
        if self.rank != other.rank {
            return self.rank > other.rank;
        }
        if self.cost != other.cost {
            return self.cost < other.cost;
        }
        // Both beyond the back seek: one long way back, then upwards again.
        match self.cost {
            NEXT_SWEEP => self.sector <= other.sector,
            _ => self.sector >= other.sector,
        }
    }
}

/// Whether `a` goes before `b` with the head at sector `head`.
#[must_use]
pub fn prefers(a: &Rq, b: &Rq, head: u64, back: BackSeek) -> bool {
    let [a, b] = [a, b].map(|rq| Reach::of(rank(rq), rq.sector, head, back));
    a.is_before(b)
}

/// More than any way costs.
const NEXT_SWEEP: u64 = u64::MAX;

/// The cost of going to `sector`; [`NEXT_SWEEP`] where only that comes by. Which side of the head
/// a request is on cannot be predicted, so it decides no branch.
#[inline]
fn cost(sector: u64, head: u64, back: BackSeek) -> u64 {
    let ahead = sector >= head;
    let way = sector.abs_diff(head);
    let weighed = way.saturating_mul(back.penalty).min(NEXT_SWEEP - 1);
    let backwards = if way <= back.max_sectors { weighed } else { NEXT_SWEEP };
    if ahead { way } else { backwards }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{GroupId, IoPrio, Op, RqId, SchedTag};

    const BACK: BackSeek = BackSeek { max_sectors: 16384 * 2, penalty: 2 };

    fn read(sector: u64) -> Rq {
        Rq {
            sector,
            sectors: 8,
            id: RqId(0),
            flags: Flags::NONE,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag::NONE,
            op: Op::Read,
            segments: 1,
        }
    }

    fn first(a: u64, b: u64, head: u64) -> u64 {
        let forwards = prefers(&read(a), &read(b), head, BACK);
        let backwards = prefers(&read(b), &read(a), head, BACK);
        assert!(a == b || forwards != backwards, "one of {a} and {b} is first");
        if forwards { a } else { b }
    }

    #[test]
    fn a_way_back_counts_twice() {
        assert_eq!(first(900, 1300, 1000), 900, "200 is less than 300");
        assert_eq!(first(800, 1300, 1000), 1300, "400 is more than 300");
        assert_eq!(first(900, 1200, 1000), 1200, "of equal costs the higher sector");
    }

    #[test]
    fn what_is_too_far_behind_waits_for_the_next_sweep_which_begins_at_the_bottom() {
        let head = 1_000_000;
        assert_eq!(first(head - 32769, head + 500_000, head), head + 500_000);
        assert_eq!(first(head - 32768, head + 65537, head), head - 32768);
        assert_eq!(first(10, 500, head), 10);
    }

    #[test]
    fn sync_goes_before_metadata_and_metadata_before_distance() {
        let far = Rq { flags: Flags::META, ..read(90_000) };
        assert!(prefers(&far, &read(1000), 1000, BACK));
        let write = Rq { op: Op::Write, flags: Flags::PRIO, ..read(1000) };
        assert!(prefers(&read(90_000), &write, 1000, BACK));
    }
}

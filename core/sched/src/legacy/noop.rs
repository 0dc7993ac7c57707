//! `noop`: first in, first out, with merging. Source: docs/behaviour/none-noop.md, section 2.
//!
//! One FIFO for both directions and no tunables. It merges as the deadline family does, but for
//! this: neighbours are those in the FIFO, a request keeps its place whatever it takes in, and
//! front merges happen through the one-entry cache alone.

use weir_bio::{Limits, Nanos, Rq, SchedTag};

use crate::contract::{Absorbed, Merge, Replay, Scheduler, Setup};
use crate::merge::Side;
use crate::staged::{Arrival, Staged};
use crate::{Entry, Family, SLES12};

/// Its entry in the list of schedulers.
pub const ENTRY: Entry = Entry {
    name: "noop",
    family: Family::Legacy,
    counterpart: "none",
    compat: &["4.16", SLES12],
    levels: &[(SLES12, "no change")],
    tunables: &[],
    make: Some(|setup| Box::new(Noop::new(setup))),
    replay: Some(|setup| Box::new(Noop::new(setup))),
};

/// First in, first out.
#[derive(Clone)]
pub struct Noop {
    staged: Staged<false>,
}

impl Noop {
    /// Empty, for the device described by `setup`.
    #[must_use]
    pub fn new(setup: &Setup) -> Noop {
        Noop { staged: Staged::new(setup, 1) }
    }
}

impl Scheduler for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn merge(&mut self, bio: &Rq, _now: Nanos) -> Merge {
        self.staged.merge(bio, 0)
    }

    fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        // Nothing expires here.
        let arrival = Arrival { band: 0, now, expire_ns: 0 };
        self.staged.insert(rq, arrival, absorbed);
    }

    fn dispatch(&mut self, _hard_queue: u16, _now: Nanos) -> Option<Rq> {
        let oldest = self.staged.fifo(0).oldest;
        (oldest != SchedTag::NONE).then(|| *self.staged.unlink(oldest))
    }

    fn staged(&self) -> usize {
        self.staged.len()
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        self.staged.resize(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.staged.limits_changed(limits, nomerges);
    }
}

impl Replay for Noop {
    fn boxed_clone(&self) -> Box<dyn Replay> {
        Box::new(self.clone())
    }

    fn take_out(&mut self, tag: SchedTag, _now: Nanos) -> Rq {
        *self.staged.unlink(tag)
    }

    fn force_merge(&mut self, tag: SchedTag, bio: &Rq, side: Side) {
        self.staged.join_bio(tag, bio, side);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Flags, GroupId, IoPrio, Op, RqId};

    fn noop(nomerges: u8) -> Noop {
        let limits = Limits { max_hw_sectors: 64, ..Limits::default() };
        Noop::new(&Setup { limits, nr_requests: 8, hard_queues: 1, nomerges, compat: "" })
    }

    fn rq(tag: u16, sector: u64, sectors: u32) -> Rq {
        Rq {
            sector,
            sectors,
            id: RqId(0),
            flags: Flags::SYNC,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag(tag),
            op: Op::Write,
            segments: 1,
        }
    }

    fn bio(sector: u64, sectors: u32) -> Rq {
        Rq { tag: SchedTag::NONE, ..rq(0, sector, sectors) }
    }

    fn insert(noop: &mut Noop, rq: Rq) -> Absorbed {
        let mut absorbed = Vec::new();
        noop.insert(rq, Nanos::ZERO, &mut absorbed);
        absorbed
    }

    fn drain(noop: &mut Noop) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| noop.dispatch(0, Nanos::ZERO))
            .map(|r| (r.sector, r.sectors))
            .collect()
    }

    #[test]
    fn requests_leave_in_the_order_they_came() {
        let mut noop = noop(0);
        for (tag, sector) in [(0, 900), (1, 100), (2, 500)] {
            insert(&mut noop, rq(tag, sector, 8));
        }
        assert_eq!(noop.staged(), 3);
        assert_eq!(drain(&mut noop), [(900, 8), (100, 8), (500, 8)]);
    }

    #[test]
    fn a_bio_merges_behind_any_staged_request_and_then_joins_the_next_in_the_fifo() {
        let mut noop = noop(0);
        insert(&mut noop, rq(0, 500, 8));
        insert(&mut noop, rq(1, 0, 8));
        insert(&mut noop, rq(2, 16, 8));
        assert_eq!(
            noop.merge(&bio(8, 8), Nanos::ZERO),
            Merge::BackJoined { kept: SchedTag(1), gone: SchedTag(2) }
        );
        assert_eq!(drain(&mut noop), [(500, 8), (0, 24)]);
    }

    #[test]
    fn front_merges_go_through_the_cache_and_join_the_previous_one() {
        let mut noop = noop(0);
        insert(&mut noop, rq(0, 0, 8));
        assert!(insert(&mut noop, rq(1, 16, 8)).is_empty());
        assert_eq!(noop.merge(&bio(24, 8), Nanos::ZERO), Merge::Back(SchedTag(1)));
        assert_eq!(
            noop.merge(&bio(8, 8), Nanos::ZERO),
            Merge::FrontJoined { kept: SchedTag(0), gone: SchedTag(1) }
        );
        assert_eq!(drain(&mut noop), [(0, 32)]);
    }

    #[test]
    fn an_inserted_request_joins_the_one_before_it() {
        let mut noop = noop(0);
        insert(&mut noop, rq(0, 0, 8));
        assert_eq!(insert(&mut noop, rq(1, 8, 8)), [(SchedTag(0), SchedTag(1))]);
        assert_eq!(drain(&mut noop), [(0, 16)]);
    }

    #[test]
    fn a_chain_of_joins_goes_on_through_the_hash_and_stops_after_the_cache() {
        let pair = |kept, gone| (SchedTag(kept), SchedTag(gone));
        let mut cached = noop(0);
        insert(&mut cached, rq(1, 8, 8));
        insert(&mut cached, rq(2, 0, 8));
        assert_eq!(insert(&mut cached, rq(3, 16, 8)), [pair(1, 3)]);
        assert_eq!(drain(&mut cached), [(8, 16), (0, 8)]);
        let mut hashed = noop(0);
        insert(&mut hashed, rq(0, 900, 8));
        insert(&mut hashed, rq(1, 8, 8));
        insert(&mut hashed, rq(2, 0, 8));
        assert_eq!(insert(&mut hashed, rq(3, 16, 8)), [pair(1, 3), pair(2, 1)]);
        assert_eq!(drain(&mut hashed), [(900, 8), (0, 24)]);
    }

    #[test]
    fn a_full_request_is_not_offered_again() {
        let mut noop = noop(0);
        insert(&mut noop, rq(0, 0, 60));
        assert_eq!(noop.merge(&bio(60, 8), Nanos::ZERO), Merge::No);
        assert_eq!(noop.merge(&bio(60, 4), Nanos::ZERO), Merge::No, "marked NOMERGE");
    }

    #[test]
    fn nomerges_1_leaves_the_cache_and_2_nothing() {
        let mut cheap = noop(1);
        insert(&mut cheap, rq(0, 0, 8));
        insert(&mut cheap, rq(1, 100, 8));
        assert_eq!(cheap.merge(&bio(108, 8), Nanos::ZERO), Merge::No, "only the hash finds it");
        assert_eq!(cheap.merge(&bio(8, 8), Nanos::ZERO), Merge::Back(SchedTag(0)));
        let mut none = noop(2);
        insert(&mut none, rq(0, 0, 8));
        assert_eq!(none.merge(&bio(8, 8), Nanos::ZERO), Merge::No);
    }
}

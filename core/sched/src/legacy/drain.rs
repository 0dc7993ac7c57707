//! The single-queue path's dispatch list, and a scheduler's forced drain into it. Source:
//! docs/behaviour/none-noop.md, section 2.2.
//!
//! The driver takes the front. A scheduler is asked for more only when the list is empty, except
//! before a request that nothing may pass and at a switch: then it is drained. noop's requests are
//! sorted into the list as they come, for one sweep upwards from `boundary` and one over what lies
//! below it; other schedulers' are appended, as they are in order already.

use std::collections::VecDeque;

use weir_bio::{Nanos, Rq};

use crate::contract::Scheduler;

/// Requests on their way to the driver.
#[derive(Clone, Debug, Default)]
pub struct DispatchList {
    list: VecDeque<Listed>,
    boundary: u64,
}

/// An entry of the list.
#[derive(Clone, Copy, Debug)]
struct Listed {
    rq: Rq,
    /// The driver has seen it, or it came as one that nothing may pass.
    fixed: bool,
}

/// How a drain puts requests into the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Each where its sector belongs: noop.
    Sorted,
    /// Each at the end: deadline, cfq.
    Appended,
}

impl DispatchList {
    /// Takes everything the scheduler has staged; one that answers `None` is asked no more.
    pub fn drain(&mut self, scheduler: &mut dyn Scheduler, manner: Manner, now: Nanos) {
        while let Some(rq) = scheduler.dispatch(0, now) {
            match manner {
                Manner::Sorted => self.insert_sorted(rq),
                Manner::Appended => self.append(rq),
            }
        }
    }

    /// Puts `rq` at the end; the next sweep begins where it ends (a sector).
    pub fn append(&mut self, rq: Rq) {
        self.boundary = rq.end();
        self.list.push_back(Listed { rq, fixed: false });
    }

    /// Puts a request at the end that nothing may pass. A passthrough one leaves the sweep as it
    /// is.
    pub fn append_barrier(&mut self, rq: Rq) {
        if !rq.op.is_passthrough() {
            self.boundary = rq.end();
        }
        self.list.push_back(Listed { rq, fixed: true });
    }

    /// Puts a request at the front that nothing may pass: requeues and front insertions.
    pub fn push_front(&mut self, rq: Rq) {
        self.list.push_front(Listed { rq, fixed: true });
    }

    /// Puts `rq` where its sector belongs: behind nothing of the other direction, of another op or
    /// fixed.
    pub fn insert_sorted(&mut self, rq: Rq) {
        let in_first_sweep = rq.sector >= self.boundary;
        let stops = |listed: &Listed| {
            let other = &listed.rq;
            if listed.fixed || other.op != rq.op {
                return true;
            }
            match (in_first_sweep, other.sector >= self.boundary) {
                (true, false) => false,
                (false, true) => true,
                _ => rq.sector >= other.sector,
            }
        };
        let at = self.list.iter().rposition(stops).map_or(0, |at| at + 1);
        self.list.insert(at, Listed { rq, fixed: false });
    }

    /// The driver has seen the front: nothing is sorted before it any more.
    pub fn start_front(&mut self) {
        if let Some(front) = self.list.front_mut() {
            front.fixed = true;
        }
    }

    /// Takes the front.
    pub fn pop_front(&mut self) -> Option<Rq> {
        self.list.pop_front().map(|listed| listed.rq)
    }

    /// Requests in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Setup;
    use crate::legacy::noop::Noop;
    use weir_bio::{Flags, GroupId, IoPrio, Limits, Op, RqId, SchedTag};

    fn rq(tag: u16, op: Op, sector: u64) -> Rq {
        Rq {
            sector,
            sectors: 8,
            id: RqId(0),
            flags: Flags::SYNC,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag(tag),
            op,
            segments: 1,
        }
    }

    /// A noop holding the requests of docs/behaviour/none-noop.md, section 2.3, named A to F by
    /// their tags.
    fn e14() -> Noop {
        let limits = Limits { max_hw_sectors: 64, ..Limits::default() };
        let setup = Setup { limits, nr_requests: 8, hard_queues: 1, nomerges: 0, compat: "" };
        let mut noop = Noop::new(&setup);
        let requests = [
            (Op::Read, 100),
            (Op::Read, 50),
            (Op::Write, 10),
            (Op::Write, 5),
            (Op::Read, 70),
            (Op::Read, 55),
        ];
        for (tag, (op, sector)) in requests.into_iter().enumerate() {
            noop.insert(rq(tag as u16, op, sector), Nanos::ZERO, &mut Vec::new());
        }
        noop
    }

    fn names(list: &mut DispatchList) -> String {
        let name = |rq: Rq| char::from(b'A' + rq.tag.0 as u8);
        std::iter::from_fn(|| list.pop_front()).map(name).collect()
    }

    #[test]
    fn e14_a_forced_drain_sorts_each_direction_for_two_sweeps_from_the_boundary() {
        let mut list = DispatchList::default();
        list.drain(&mut e14(), Manner::Sorted, Nanos::ZERO);
        assert_eq!(names(&mut list), "BADCFE");
        let mut list = DispatchList { boundary: 60, ..DispatchList::default() };
        list.drain(&mut e14(), Manner::Sorted, Nanos::ZERO);
        assert_eq!(names(&mut list), "ABDCEF");
        let mut list = DispatchList::default();
        list.drain(&mut e14(), Manner::Appended, Nanos::ZERO);
        assert_eq!((names(&mut list).as_str(), list.boundary), ("ABCDEF", 63));
    }

    #[test]
    fn nothing_is_sorted_past_what_is_started_or_came_as_a_barrier() {
        let mut list = DispatchList::default();
        list.insert_sorted(rq(0, Op::Read, 500));
        list.start_front();
        list.insert_sorted(rq(1, Op::Read, 100));
        list.append_barrier(rq(2, Op::DrvIn, 0));
        list.insert_sorted(rq(3, Op::Read, 50));
        list.push_front(rq(4, Op::Read, 900));
        list.insert_sorted(rq(5, Op::Read, 20));
        assert_eq!((list.len(), list.boundary), (6, 0));
        assert_eq!(names(&mut list), "EABCFD");
        assert!(list.is_empty());
    }

    #[test]
    fn equal_sectors_stay_in_the_order_they_came() {
        let mut list = DispatchList::default();
        for (tag, sector) in [(0, 50), (1, 50), (2, 40), (3, 50)] {
            list.insert_sorted(rq(tag, Op::Read, sector));
        }
        assert_eq!(names(&mut list), "CABD");
    }

    #[test]
    fn a_barrier_with_a_sector_begins_the_next_sweep_where_it_ends() {
        let mut list = DispatchList::default();
        list.append_barrier(rq(0, Op::Write, 92));
        for (tag, sector) in [(1, 50), (2, 100), (3, 40), (4, 200)] {
            list.insert_sorted(rq(tag, Op::Read, sector));
        }
        assert_eq!(names(&mut list), "ACEDB");
    }
}

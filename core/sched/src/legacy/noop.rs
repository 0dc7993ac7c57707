//! `noop`: first in, first out, with merging. Source: the deadline and kyber spec, sections 2, 3.
//!
//! One FIFO for both directions, a merge hash by end sector, a one-entry `last_merge` cache; no
//! tunables. Front merges happen through the cache alone.

use std::collections::VecDeque;

use weir_bio::{Flags, Limits, Nanos, Rq, SchedTag};

use crate::contract::{Absorbed, End, Merge, Scheduler, Setup};
use crate::hash::MergeHash;
use crate::merge::{Fit, Side, fit};
use crate::tunable::{NoTunables, Tunables};

/// First in, first out.
#[derive(Clone)]
pub struct Noop {
    /// Requeues and data steps: served first, last in first, never merged with.
    head: VecDeque<Rq>,
    nodes: Vec<Node>,
    first: SchedTag,
    last: SchedTag,
    count: usize,
    hash: MergeHash,
    last_merge: Option<SchedTag>,
    limits: Limits,
    nomerges: u8,
    tunables: NoTunables,
}

/// A staged request and its neighbours in the FIFO.
#[derive(Clone, Copy, Default)]
struct Node {
    rq: Option<Rq>,
    before: Option<SchedTag>,
    after: Option<SchedTag>,
}

impl Noop {
    /// Empty, for the device described by `setup`.
    #[must_use]
    pub fn new(setup: &Setup) -> Noop {
        Noop {
            head: VecDeque::new(),
            nodes: vec![Node::default(); usize::from(setup.nr_requests)],
            first: SchedTag::NONE,
            last: SchedTag::NONE,
            count: 0,
            hash: MergeHash::new(setup.nr_requests),
            last_merge: None,
            limits: setup.limits.clone(),
            nomerges: setup.nomerges,
            tunables: NoTunables,
        }
    }

    fn rq(&mut self, tag: SchedTag) -> &mut Rq {
        let node = &mut self.nodes[usize::from(tag.0)];
        node.rq.as_mut().expect("a linked tag has a request")
    }

    fn push(&mut self, rq: Rq) {
        let tag = rq.tag;
        let before = (self.last != SchedTag::NONE).then_some(self.last);
        self.nodes[usize::from(tag.0)] = Node { rq: Some(rq), before, after: None };
        match before {
            Some(before) => self.nodes[usize::from(before.0)].after = Some(tag),
            None => self.first = tag,
        }
        self.last = tag;
        self.count += 1;
        if rq.is_mergeable() {
            self.hash.add(tag, rq.end());
            self.last_merge.get_or_insert(tag);
        }
    }

    fn unlink(&mut self, tag: SchedTag) -> Rq {
        let node = std::mem::take(&mut self.nodes[usize::from(tag.0)]);
        match node.before {
            Some(before) => self.nodes[usize::from(before.0)].after = node.after,
            None => self.first = node.after.unwrap_or(SchedTag::NONE),
        }
        match node.after {
            Some(after) => self.nodes[usize::from(after.0)].before = node.before,
            None => self.last = node.before.unwrap_or(SchedTag::NONE),
        }
        self.count -= 1;
        self.hash.remove(tag);
        self.last_merge = self.last_merge.filter(|cached| *cached != tag);
        node.rq.expect("a linked tag has a request")
    }

    /// Judges `bio` against a staged request; one that is full is not tried again.
    fn judge(&mut self, tag: SchedTag, bio: &Rq) -> Fit {
        let rq = *self.rq(tag);
        let fit = fit(&rq, bio, &self.limits);
        if fit == Fit::TooLarge {
            self.rq(tag).flags |= Flags::NOMERGE;
            self.hash.remove(tag);
            self.last_merge = self.last_merge.filter(|cached| *cached != tag);
        }
        fit
    }

    /// `kept` takes in `gone`, which starts where it ends; the result ends where `gone` did.
    fn absorb(&mut self, kept: SchedTag, gone: &Rq) {
        let rq = self.rq(kept);
        rq.sectors += gone.sectors;
        rq.segments = rq.segments.saturating_add(gone.segments);
        let end = rq.end();
        self.hash.remove(kept);
        self.hash.add(kept, end);
        self.last_merge = Some(kept);
    }

    fn merge_back(&mut self, tag: SchedTag, bio: &Rq) -> Merge {
        self.absorb(tag, bio);
        let rq = *self.rq(tag);
        let Some(after) = self.nodes[usize::from(tag.0)].after else { return Merge::Back(tag) };
        let next = *self.rq(after);
        if fit(&rq, &next, &self.limits) != Fit::Joins(Side::Back) {
            return Merge::Back(tag);
        }
        let gone = self.unlink(after);
        self.absorb(tag, &gone);
        Merge::BackJoined { kept: tag, gone: after }
    }

    /// `tag` takes in `bio`, which ends where it starts.
    fn prepend(&mut self, tag: SchedTag, bio: &Rq) {
        let rq = self.rq(tag);
        rq.sector = bio.sector;
        rq.sectors += bio.sectors;
        rq.segments = rq.segments.saturating_add(bio.segments);
        self.last_merge = Some(tag);
    }

    fn merge_front(&mut self, tag: SchedTag, bio: &Rq) -> Merge {
        self.prepend(tag, bio);
        let rq = *self.rq(tag);
        let Some(before) = self.nodes[usize::from(tag.0)].before else { return Merge::Front(tag) };
        let previous = *self.rq(before);
        if fit(&previous, &rq, &self.limits) != Fit::Joins(Side::Back) {
            return Merge::Front(tag);
        }
        let gone = self.unlink(tag);
        self.absorb(before, &gone);
        Merge::FrontJoined { kept: before, gone: tag }
    }

    /// Whom `rq` could be appended to, by the cache and (unless `nomerges` is 1) the hash.
    fn back_candidate(&mut self, rq: &Rq) -> Option<SchedTag> {
        let fits = |noop: &mut Noop, tag| {
            let staged = *noop.rq(tag);
            fit(&staged, rq, &noop.limits) == Fit::Joins(Side::Back)
        };
        if let Some(tag) = self.last_merge
            && fits(self, tag)
        {
            return Some(tag);
        }
        let found = self.hash.find(rq.sector).filter(|_| self.nomerges == 0)?;
        fits(self, found).then_some(found)
    }
}

impl Scheduler for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn merge(&mut self, bio: &Rq, _now: Nanos) -> Merge {
        if self.nomerges == 2 || !bio.is_mergeable() {
            return Merge::No;
        }
        if let Some(tag) = self.last_merge {
            match self.judge(tag, bio) {
                Fit::Joins(Side::Back) => return self.merge_back(tag, bio),
                Fit::Joins(Side::Front) => return self.merge_front(tag, bio),
                Fit::TooLarge => return Merge::No,
                Fit::Apart => {}
            }
        }
        if self.nomerges == 1 {
            return Merge::No;
        }
        match self.hash.find(bio.sector) {
            Some(tag) if self.judge(tag, bio) == Fit::Joins(Side::Back) => {
                self.merge_back(tag, bio)
            }
            _ => Merge::No,
        }
    }

    fn insert(&mut self, rq: Rq, at: End, _now: Nanos, absorbed: &mut Absorbed) {
        if at == End::Head {
            self.head.push_front(rq);
            return;
        }
        self.push(rq);
        let mut rq = rq;
        while self.nomerges < 2 && rq.is_mergeable() {
            let Some(kept) = self.back_candidate(&rq).filter(|kept| *kept != rq.tag) else {
                return;
            };
            let gone = self.unlink(rq.tag);
            self.absorb(kept, &gone);
            absorbed.push((kept, gone.tag));
            rq = *self.rq(kept);
        }
    }

    fn dispatch(&mut self, _hard_queue: u16, _now: Nanos) -> Option<Rq> {
        if let Some(rq) = self.head.pop_front() {
            return Some(rq);
        }
        (self.first != SchedTag::NONE).then(|| self.unlink(self.first))
    }

    fn staged(&self) -> usize {
        self.head.len() + self.count
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        assert_eq!(self.staged(), 0, "the depth changes while nothing is staged");
        self.nodes = vec![Node::default(); usize::from(nr_requests)];
        self.hash = MergeHash::new(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.limits = limits.clone();
        self.nomerges = nomerges;
    }

    fn tunables(&self) -> &dyn Tunables {
        &self.tunables
    }

    fn tunables_mut(&mut self) -> &mut dyn Tunables {
        &mut self.tunables
    }

    fn boxed_clone(&self) -> Box<dyn Scheduler> {
        Box::new(self.clone())
    }

    fn take_out(&mut self, tag: SchedTag, _now: Nanos) -> Rq {
        let at_head = self.head.iter().position(|rq| rq.tag == tag);
        match at_head.and_then(|at| self.head.remove(at)) {
            Some(rq) => rq,
            None => self.unlink(tag),
        }
    }

    fn force_merge(&mut self, tag: SchedTag, bio: &Rq, side: Side) {
        match side {
            Side::Back => self.absorb(tag, bio),
            Side::Front => self.prepend(tag, bio),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{GroupId, IoPrio, Op, RqId};

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
        noop.insert(rq, End::Tail, Nanos::ZERO, &mut absorbed);
        absorbed
    }

    fn drain(noop: &mut Noop) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| noop.dispatch(0, Nanos::ZERO))
            .map(|r| (r.sector, r.sectors))
            .collect()
    }

    #[test]
    fn requests_leave_in_the_order_they_came_and_head_inserts_first() {
        let mut noop = noop(0);
        for (tag, sector) in [(0, 900), (1, 100), (2, 500)] {
            insert(&mut noop, rq(tag, sector, 8));
        }
        noop.insert(rq(3, 40, 8), End::Head, Nanos::ZERO, &mut Vec::new());
        assert_eq!(noop.staged(), 4);
        assert_eq!(drain(&mut noop), [(40, 8), (900, 8), (100, 8), (500, 8)]);
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

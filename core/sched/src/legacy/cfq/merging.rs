//! Merging, within one queue only: what a process would dispatch together becomes one request.
//! Source: docs/behaviour/deadline.md, section 3; docs/behaviour/cfq.md, section 11.

use weir_bio::{Flags, Rq, SchedTag};

use super::Cfq;
use super::names::QueueId;
use super::staged::Whereabouts;
use crate::contract::{Absorbed, Merge};
use crate::merge::{Fit, Side, fit};

impl Cfq {
    /// Offers a bio to the staged requests of the queue it would go to.
    pub(super) fn merge_bio(&mut self, bio: &Rq) -> Merge {
        if self.nomerges == 2 || !bio.is_mergeable() {
            return Merge::No;
        }
        let Some(queue) = self.present_queue(bio) else { return Merge::No };
        if let Some(tag) = self.last_merge.filter(|tag| self.holder(*tag).queue == queue) {
            match self.judge_bio(tag, bio) {
                Fit::Joins(Side::Back) => return self.merge_back(tag, bio),
                Fit::Joins(Side::Front) => return self.merge_front(tag, bio),
                Fit::TooLarge => return Merge::No,
                Fit::Apart => {}
            }
        }
        if self.nomerges == 1 {
            return Merge::No;
        }
        let found = self.hash.find(bio.sector).filter(|tag| self.holder(*tag).queue == queue);
        if let Some(tag) = found {
            match self.judge_bio(tag, bio) {
                Fit::Joins(Side::Back) => return self.merge_back(tag, bio),
                Fit::TooLarge => return Merge::No,
                Fit::Joins(Side::Front) | Fit::Apart => {}
            }
        }
        match self.orders[queue.index()].starting_at(&self.nodes, bio.end()) {
            Some(tag) if self.judge_bio(tag, bio) == Fit::Joins(Side::Front) => {
                self.merge_front(tag, bio)
            }
            _ => Merge::No,
        }
    }

    /// Judges a bio against a staged request; one that is full is not tried again.
    fn judge_bio(&mut self, tag: SchedTag, bio: &Rq) -> Fit {
        let fit = fit(&self.node(tag).rq, bio, &self.limits);
        if fit == Fit::TooLarge {
            self.staged_rq(tag).flags |= Flags::NOMERGE;
            self.hash.remove(tag);
            self.last_merge = self.last_merge.filter(|cached| *cached != tag);
        }
        fit
    }

    fn staged_rq(&mut self, tag: SchedTag) -> &mut Rq {
        assert!(self.holder(tag).at == Whereabouts::Staged, "tag {} is not staged", tag.0);
        &mut self.nodes[tag.index()].rq
    }

    /// `tag` grows at its end by `tail`.
    pub(super) fn append(&mut self, tag: SchedTag, tail: &Rq) {
        let rq = self.staged_rq(tag);
        rq.take_in(tail);
        let end = rq.end();
        self.hash.remove(tag);
        self.hash.add(tag, end);
        self.last_merge = Some(tag);
    }

    /// `tag` grows at its beginning by `bio`, and moves to where it begins now.
    pub(super) fn prepend(&mut self, tag: SchedTag, bio: &Rq) {
        let was_next = self.queue(self.holder(tag).queue).next == Some(tag);
        self.sort_out(tag);
        self.staged_rq(tag).take_in(bio);
        self.last_merge = Some(tag);
        self.sort_in(tag);
        if was_next {
            self.make_next(tag);
        }
    }

    fn make_next(&mut self, tag: SchedTag) {
        let queue = self.holder(tag).queue;
        self.queue_mut(queue).next = Some(tag);
        self.update_close(queue);
    }

    fn merge_back(&mut self, tag: SchedTag, bio: &Rq) -> Merge {
        self.append(tag, bio);
        match self.node(tag).after {
            gone if gone != SchedTag::NONE && self.would_join(tag, gone) => {
                self.absorb(tag, gone);
                Merge::BackJoined { kept: tag, gone }
            }
            _ => Merge::Back(tag),
        }
    }

    fn merge_front(&mut self, tag: SchedTag, bio: &Rq) -> Merge {
        // The neighbour is the one at the old place, wherever the new start belongs.
        let before = self.node(tag).before;
        self.prepend(tag, bio);
        match before {
            kept if kept != SchedTag::NONE && self.would_join(kept, tag) => {
                self.absorb(kept, tag);
                Merge::FrontJoined { kept, gone: tag }
            }
            _ => Merge::Front(tag),
        }
    }

    fn would_join(&self, front: SchedTag, back: SchedTag) -> bool {
        let [front, back] = [front, back].map(|tag| &self.node(tag).rq);
        fit(front, back, &self.limits) == Fit::Joins(Side::Back)
    }

    /// `kept` takes in `gone`, which begins where it ends, with its place in the FIFO if that is
    /// the older one.
    fn absorb(&mut self, kept: SchedTag, gone: SchedTag) {
        let queue = self.holder(kept).queue;
        let gone_was_next = self.queue(queue).next == Some(gone);
        let Cfq { queues, nodes, .. } = self;
        if nodes[gone.index()].deadline < nodes[kept.index()].deadline {
            nodes[kept.index()].deadline = nodes[gone.index()].deadline;
            let fifo = &mut queues[queue.index()].fifo;
            fifo.remove(nodes, kept);
            fifo.push_before(nodes, kept, gone);
        }
        let rq = self.remove(gone);
        if gone_was_next {
            self.make_next(kept);
        }
        self.append(kept, &rq);
    }

    /// Appends an arriving request to the staged one of its queue that ends where it begins, and
    /// that one to the one before it, as long as that goes on.
    pub(super) fn joins_staged(
        &mut self,
        rq: &Rq,
        queue: QueueId,
        absorbed: &mut Absorbed,
    ) -> bool {
        let Some(first) = self.back_candidate(rq, queue) else { return false };
        self.append(first, rq);
        absorbed.push((first, rq.tag));
        let mut grown = first;
        loop {
            let rq = self.node(grown).rq;
            let Some(kept) = self.back_candidate(&rq, queue) else { return true };
            self.absorb(kept, grown);
            absorbed.push((kept, grown));
            grown = kept;
        }
    }

    /// Which staged request `rq` could be appended to, by the cache and (unless `nomerges` is 1)
    /// by the hash.
    fn back_candidate(&self, rq: &Rq, queue: QueueId) -> Option<SchedTag> {
        if self.nomerges == 2 || !rq.is_mergeable() {
            return None;
        }
        let fits = |tag: &SchedTag| {
            *tag != rq.tag
                && self.holder(*tag).queue == queue
                && fit(&self.node(*tag).rq, rq, &self.limits) == Fit::Joins(Side::Back)
        };
        let cached = self.last_merge.filter(fits);
        cached.or_else(|| self.hash.find(rq.sector).filter(|_| self.nomerges == 0).filter(fits))
    }
}

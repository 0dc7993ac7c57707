//! Bios that join staged requests of the queue they would go to. Source: docs/behaviour/bfq.md,
//! section 14.
//!
//! A request of one queue never takes in what belongs to another, or one process would pay for
//! what another asks; so a sync bio never joins an async request either.

use weir_bio::{Flags, Nanos, Rq, SchedTag};

use crate::contract::{Absorbed, Merge};
use crate::merge::{Fit, Side, fit};

use super::Bfq;
use super::entity::QueueId;

impl Bfq {
    #[inline(always)]
    pub(super) fn drop_merge_target(&mut self, tag: SchedTag) {
        self.hash.remove(tag);
        if self.last_merge == Some(tag) {
            self.last_merge = None;
        }
    }

    /// Joins `bio` to a request of its process's queue, or of the one that queue merges with now.
    /// The queue is named with it if it merges with none.
    pub(super) fn merge_bio(&mut self, bio: &Rq, now: Nanos) -> (Merge, Option<QueueId>) {
        if self.nomerges == 2 || !bio.is_mergeable() {
            return (Merge::No, None);
        }
        let Some(own) = self.queue_now(bio) else { return (Merge::No, None) };
        let id = self.cooperate(bio.id.submitter(), own, bio.sector, now);
        (self.merge_into(id, bio, now), (id == own).then_some(own))
    }

    /// Joins `bio` to a request of queue `id`.
    fn merge_into(&mut self, id: QueueId, bio: &Rq, now: Nanos) -> Merge {
        if let Some(tag) = self.last_merge.filter(|tag| self.owner(*tag).queue == id) {
            match self.judge(tag, bio) {
                Fit::Joins(Side::Back) => return self.merge_back(tag, bio, now),
                Fit::Joins(Side::Front) => return self.merge_front(tag, bio, now),
                Fit::TooLarge => return Merge::No,
                Fit::Apart => {}
            }
        }
        if self.nomerges == 1 {
            return Merge::No;
        }
        if let Some(tag) = self.hash.find(bio.sector).filter(|tag| self.owner(*tag).queue == id) {
            match self.judge(tag, bio) {
                Fit::Joins(Side::Back) => return self.merge_back(tag, bio, now),
                Fit::TooLarge => return Merge::No,
                Fit::Joins(Side::Front) | Fit::Apart => {}
            }
        }
        if let Some(tag) = self.queues[id.index()].order.starting_at(&self.nodes, bio.end())
            && self.judge(tag, bio) == Fit::Joins(Side::Front)
        {
            return self.merge_front(tag, bio, now);
        }
        Merge::No
    }

    /// Judges `bio` against a staged request; one that is full is not tried again.
    fn judge(&mut self, tag: SchedTag, bio: &Rq) -> Fit {
        let fit = fit(&self.node(tag).rq, bio, &self.limits);
        if fit == Fit::TooLarge {
            self.node_mut(tag).rq.flags |= Flags::NOMERGE;
            self.drop_merge_target(tag);
        }
        fit
    }

    fn joins_back(&self, tag: SchedTag, rq: &Rq) -> bool {
        fit(&self.node(tag).rq, rq, &self.limits) == Fit::Joins(Side::Back)
    }

    fn merge_back(&mut self, tag: SchedTag, bio: &Rq, now: Nanos) -> Merge {
        self.append(tag, bio);
        let after = self.node(tag).after;
        let joined = (after != SchedTag::NONE && self.joins_back(tag, &self.node(after).rq))
            .then_some(after);
        if let Some(gone) = joined {
            self.absorb(tag, gone, now);
        }
        self.grown(tag);
        match joined {
            Some(gone) => Merge::BackJoined { kept: tag, gone },
            None => Merge::Back(tag),
        }
    }

    fn merge_front(&mut self, tag: SchedTag, bio: &Rq, now: Nanos) -> Merge {
        let before = self.node(tag).before;
        self.prepend(tag, bio);
        let joined = (before != SchedTag::NONE && self.joins_back(before, &self.node(tag).rq))
            .then_some(before);
        if let Some(kept) = joined {
            self.absorb(kept, tag, now);
            self.grown(kept);
            return Merge::FrontJoined { kept, gone: tag };
        }
        self.grown(tag);
        Merge::Front(tag)
    }

    /// `tag` takes in `rq`, which begins where it ends.
    pub(super) fn append(&mut self, tag: SchedTag, rq: &Rq) {
        let node = self.node_mut(tag);
        node.rq.take_in(rq);
        let end = node.rq.end();
        self.hash.remove(tag);
        if self.node(tag).rq.is_mergeable() {
            self.hash.add(tag, end);
            self.last_merge = Some(tag);
        }
    }

    /// `tag` takes in `bio`, which ends where it begins.
    pub(super) fn prepend(&mut self, tag: SchedTag, bio: &Rq) {
        let id = self.owner(tag).queue;
        self.queues[id.index()].order.remove(&mut self.nodes, tag);
        self.node_mut(tag).rq.take_in(bio);
        self.queues[id.index()].order.insert(&mut self.nodes, tag);
        if self.node(tag).rq.is_mergeable() {
            self.last_merge = Some(tag);
        }
    }

    /// `kept` takes in its neighbour `gone` of the same queue, which disappears.
    fn absorb(&mut self, kept: SchedTag, gone: SchedTag, now: Nanos) {
        let id = self.owner(kept).queue;
        let rq = self.node(gone).rq;
        if self.node(gone).deadline < self.node(kept).deadline {
            self.fifo_move_before(id, kept, gone);
        }
        // Whether it was next decides what is; the FIFO has no say in it.
        let checked = std::mem::replace(&mut self.queue_mut(id).fifo_checked, true);
        let was_next = self.queue(id).next == Some(gone);
        self.unlink(id, gone, now);
        let queue = self.queue_mut(id);
        queue.fifo_checked = checked;
        if was_next {
            queue.next = Some(kept);
        }
        self.forget_request(id, gone);
        self.append(kept, &rq);
    }

    /// A staged request is larger than it was: what its queue is to be given may be, too.
    pub(super) fn grown(&mut self, tag: SchedTag) {
        let id = self.owner(tag).queue;
        let old = self.queue(id).next.expect("the queue of a staged request has a next one");
        let next = self.choose(old, tag, self.last_position);
        self.queue_mut(id).next = Some(next);
        self.note_moved(id);
        if next == tag {
            self.next_changed(id);
        }
    }

    /// Before a new request is added to queue `id`: appends it to one that ends where it begins,
    /// and that one further if it can be. True if the request is gone.
    pub(super) fn merge_request(
        &mut self,
        id: QueueId,
        rq: &Rq,
        now: Nanos,
        absorbed: &mut Absorbed,
    ) -> bool {
        let Some(mut kept) = self.back_candidate(id, rq) else { return false };
        self.append(kept, rq);
        absorbed.push((kept, rq.tag));
        loop {
            let grown = self.node(kept).rq;
            let Some(further) = self.back_candidate(id, &grown).filter(|f| *f != kept) else {
                break;
            };
            self.absorb(further, kept, now);
            absorbed.push((further, kept));
            kept = further;
        }
        self.grown(kept);
        true
    }

    /// Which request of queue `id` ends where `rq` begins and may take it in.
    fn back_candidate(&self, id: QueueId, rq: &Rq) -> Option<SchedTag> {
        if self.nomerges == 2 || !rq.is_mergeable() {
            return None;
        }
        // Both the cache and the hash know staged requests only.
        let fits = |tag: &SchedTag| self.owner(*tag).queue == id && self.joins_back(*tag, rq);
        self.last_merge
            .filter(fits)
            .or_else(|| self.hash.find(rq.sector).filter(|_| self.nomerges == 0).filter(fits))
    }
}

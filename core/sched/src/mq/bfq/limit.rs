//! How many scheduler tags requests may hold: so that async requests and writes leave room for
//! those who wait, and no queue or group takes more than its share. Source: docs/behaviour/bfq.md,
//! section 15.1.

use weir_bio::{Nanos, Op, Rq, SubmitterId};

use crate::contract::DepthRule;

use super::Bfq;
use super::entity::{EntityId, Kind, Place, QueueId};

/// Sixteenths of the tags.
const SYNC_WRITES: u32 = 12;
const SYNC_WRITES_BESIDE_RAISED: u32 = 6;
const ASYNCS: u32 = 8;
const ASYNCS_BESIDE_RAISED: u32 = 3;

impl Bfq {
    /// The most tags requests like this may hold together; `None`: all.
    pub(super) fn tag_limit(&self, op: Op, sync: bool, context: SubmitterId) -> Option<u16> {
        let depth = self.kind_depth(op.is_write(), sync);
        if self.holds_its_share(sync, context, depth) {
            return Some(1);
        }
        (!sync || op.is_write()).then_some(depth)
    }

    /// The tags that all requests of a kind may hold together.
    fn kind_depth(&self, write: bool, sync: bool) -> u16 {
        match (sync, write, self.raised_busy > 0) {
            (true, false, _) => self.nr_requests,
            (true, true, false) => self.sixteenths(SYNC_WRITES),
            (true, true, true) => self.sixteenths(SYNC_WRITES_BESIDE_RAISED),
            (false, _, false) => self.sixteenths(ASYNCS),
            (false, _, true) => self.sixteenths(ASYNCS_BESIDE_RAISED),
        }
    }

    fn sixteenths(&self, of_tags: u32) -> u16 {
        (u32::from(self.nr_requests) * of_tags / 16).max(1) as u16
    }

    /// The limits by [`tag_limit`](Bfq::tag_limit) of each of `batch` while they are inserted at
    /// `now`.
    pub(super) fn tag_rule(&self, batch: &[Rq], now: Nanos) -> DepthRule {
        if self.idle_until.is_some_and(|due| due < now) {
            // The timer is due first, and may change any limit.
            return DepthRule::Each;
        }
        let Some(first) = batch.first() else { return DepthRule::Free };
        let like = |rq: &Rq| (rq.id.submitter(), rq.is_sync(), rq.group, rq.ioprio);
        let alike = batch.iter().all(|rq| like(rq) == like(first));
        let Some(id) = self.settled_queue(first).filter(|_| alike) else { return DepthRule::Each };
        let writes = batch.iter().any(|rq| rq.op.is_write());
        let depth = self.kind_depth(writes, first.is_sync());
        if self.may_reach_its_share(id, batch.len() as u64, depth) {
            return DepthRule::Each;
        }
        if !writes {
            return DepthRule::Free;
        }
        if self.may_be_raised(id, now) {
            return DepthRule::Each;
        }
        DepthRule::Kinds {
            asyncs: self.kind_depth(true, false),
            sync_writes: self.kind_depth(true, true),
        }
    }

    /// Whether so many requests more may give queue `id`, or a group above it, its part of
    /// `depth` tags before the last of them.
    fn may_reach_its_share(&self, id: QueueId, requests: u64, depth: u16) -> bool {
        let queue = self.queue(id);
        let others = self.busy_total() - u32::from(queue.busy);
        // One that becomes busy makes the parts smaller.
        others > 0 && !(queue.busy && self.share_left(queue.entity, requests - 1, depth).is_some())
    }

    /// Whether the queue of these requests, or a group above it, has its part of `depth` tags.
    fn holds_its_share(&self, sync: bool, context: SubmitterId, depth: u16) -> bool {
        if self.busy_total() < 2 {
            return false;
        }
        let Some(context) = self.contexts.get(usize::from(context.0)) else { return false };
        let queue = if sync {
            context.sync
        } else {
            let (class, level) = super::process::class_and_level(context.ioprio);
            self.find_async_queue(context.level, class, level)
        };
        queue.is_some_and(|id| self.share_left(self.queue(id).entity, 0, depth).is_none())
    }

    /// The part of `depth` tags that is `id`'s; none when it, or a group above, has it already or
    /// would with so many more. An entity that is idle in its tree still shares, and has requests
    /// in the device.
    fn share_left(&self, id: EntityId, more: u64, depth: u16) -> Option<u64> {
        let above = match self.forest.parent(id) {
            Some(parent) => self.share_left(parent, more, depth)?,
            None => u64::from(depth),
        };
        let entity = &self.forest[id];
        if entity.place == Place::Nowhere {
            return Some(above);
        }
        let trees = &self.forest.levels[entity.level.index()].trees;
        let sum = match entity.kind {
            Kind::Group(_) => trees[entity.class].w,
            // A higher class counts eight times for each step.
            Kind::Queue(_) => trees[..=entity.class].iter().fold(0, |sum, tree| sum * 8 + tree.w),
        };
        let part = (above * entity.weight + sum / 2) / sum;
        (u64::from(entity.allocated) + more < part.max(1)).then_some(part)
    }
}

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
        if self.holds_its_share(sync, context) {
            return Some(1);
        }
        // Sixteenths of nr_requests.
        let sixteenths = match (sync, op.is_write(), self.raised_busy > 0) {
            (true, false, _) => return None,
            (true, true, false) => SYNC_WRITES,
            (true, true, true) => SYNC_WRITES_BESIDE_RAISED,
            (false, _, false) => ASYNCS,
            (false, _, true) => ASYNCS_BESIDE_RAISED,
        };
        Some(self.sixteenths(sixteenths))
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
        if self.may_reach_its_share(id, batch.len() as u64) {
            return DepthRule::Each;
        }
        if !batch.iter().any(|rq| rq.op.is_write()) {
            return DepthRule::Free;
        }
        if self.may_be_raised(id, now) {
            return DepthRule::Each;
        }
        let (asyncs, sync_writes) = match self.raised_busy {
            0 => (ASYNCS, SYNC_WRITES),
            _ => (ASYNCS_BESIDE_RAISED, SYNC_WRITES_BESIDE_RAISED),
        };
        DepthRule::Kinds {
            asyncs: self.sixteenths(asyncs),
            sync_writes: self.sixteenths(sync_writes),
        }
    }

    /// Whether so many requests more may give queue `id`, or a group above it, its part of the tags
    /// before the last of them.
    fn may_reach_its_share(&self, id: QueueId, requests: u64) -> bool {
        let queue = self.queue(id);
        let others = self.busy_total() - u32::from(queue.busy);
        // One that becomes busy makes the parts smaller.
        others > 0 && !(queue.busy && self.share_left(queue.entity, requests - 1).is_some())
    }

    /// Whether the queue of these requests, or a group above it, has its part of the tags.
    fn holds_its_share(&self, sync: bool, context: SubmitterId) -> bool {
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
        queue.is_some_and(|id| self.share_left(self.queue(id).entity, 0).is_none())
    }

    /// The part of all tags that is `id`'s; none when it, or a group above, has it already or would
    /// with so many more.
    fn share_left(&self, id: EntityId, more: u64) -> Option<u64> {
        let above = match self.forest.parent(id) {
            Some(parent) => self.share_left(parent, more)?,
            None => u64::from(self.nr_requests),
        };
        let entity = &self.forest[id];
        if matches!(entity.place, Place::Nowhere | Place::Idle) {
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

//! How many scheduler tags requests may hold: so that async requests and writes leave room for
//! those who wait, and no queue or group takes more than its share. Source: the BFQ spec, A14.

use weir_bio::{Op, SubmitterId};

use super::Bfq;
use super::entity::{EntityId, Kind, Place};

impl Bfq {
    /// The most tags requests like this may hold together; `None`: all.
    pub(super) fn tag_limit(&self, op: Op, sync: bool, context: SubmitterId) -> Option<u16> {
        if self.holds_its_share(sync, context) {
            return Some(1);
        }
        // Sixteenths of nr_requests.
        let sixteenths = match (sync, op.is_write(), self.raised_busy > 0) {
            (true, false, _) => return None,
            (true, true, false) => 12,
            (true, true, true) => 6,
            (false, _, false) => 8,
            (false, _, true) => 3,
        };
        let limit = u32::from(self.nr_requests) * sixteenths / 16;
        Some(limit.max(1) as u16)
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
        queue.is_some_and(|id| self.share_left(self.queue(id).entity).is_none())
    }

    /// The part of all tags that is `id`'s; none when it, or a group above, has it already.
    fn share_left(&self, id: EntityId) -> Option<u64> {
        let above = match self.forest.parent(id) {
            Some(parent) => self.share_left(parent)?,
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
        (u64::from(entity.allocated) < part.max(1)).then_some(part)
    }
}

//! Bursts of new queues: many processes started at once, which together want throughput and not
//! each the latency of an interactive one. Source: docs/behaviour/bfq.md, section 12.1.

use weir_bio::Nanos;

use super::Bfq;
use super::entity::{LevelId, QueueId};
use super::queue::Handle;

/// Queues created no farther apart belong to one burst, ns.
pub(super) const BURST_GAP_NS: u64 = 180_000_000;
/// From so many queues a burst is large.
const LARGE: usize = 8;
/// Idle for longer, and the mark is off, ns.
const FORGIVE_NS: u64 = 10_000_000_000;

/// The burst that is open.
#[derive(Clone, Debug, Default)]
pub(super) struct Burst {
    large: bool,
    last: Nanos,
    level: Option<LevelId>,
    /// Its queues while it is not large.
    queues: Vec<Handle>,
}

impl Bfq {
    /// A sync queue was created.
    pub(super) fn join_burst(&mut self, id: QueueId, now: Nanos) {
        let open = self.burst.large || !self.burst.queues.is_empty();
        if !self.features.bursts || (!open && self.busy_total() > 0) {
            return;
        }
        let level = self.forest[self.queue(id).entity].level;
        let handle = self.queue(id).handle(id);
        let gap = now.since(self.burst.last) > BURST_GAP_NS;
        if !open || gap || self.burst.level != Some(level) {
            self.burst =
                Burst { large: false, last: now, level: Some(level), queues: vec![handle] };
            return;
        }
        self.burst.last = now;
        if self.burst.large {
            self.queue_mut(id).in_large_burst = true;
            return;
        }
        self.burst.queues.push(handle);
        if self.burst.queues.len() >= LARGE {
            self.burst.large = true;
            for handle in std::mem::take(&mut self.burst.queues) {
                if let Some(id) = self.resolve(handle) {
                    self.queue_mut(id).in_large_burst = true;
                }
            }
        }
    }

    /// Queue `id` turns busy again: a long pause clears the mark.
    pub(super) fn forgive_burst(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue_mut(id);
        if queue.drained.is_some_and(|at| now.0 > at + FORGIVE_NS) {
            queue.in_large_burst = false;
        }
    }

    pub(super) fn leave_burst(&mut self, id: QueueId) {
        let handle = self.queue(id).handle(id);
        self.burst.queues.retain(|other| *other != handle);
    }
}

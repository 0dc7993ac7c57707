//! The queues whose weight is raised: asks each queue's [`Raise`] at the events that change it,
//! and lets its verdict count. Source: docs/behaviour/bfq.md, section 11.

use weir_bio::Nanos;

use super::Bfq;
use super::entity::QueueId;
use super::raise::{Arrival, Bounds, INTERACTIVE, Raise, Verdict, is_sparse};

/// The weight that takes part: that of the default level. Any other opts out.
const DEFAULT_WEIGHT: u32 = 40;

impl Bfq {
    pub(super) fn is_raised(&self, id: QueueId) -> bool {
        self.coefficient(id) > 1
    }

    pub(super) fn coefficient(&self, id: QueueId) -> u32 {
        self.forest[self.queue(id).entity].coefficient
    }

    /// Lets what the raising of queue `id` is now count.
    #[inline(always)]
    pub(super) fn let_raising_count(&mut self, id: QueueId, verdict: Verdict) {
        if verdict != Verdict::Unchanged {
            self.set_coefficient(id, verdict);
        }
    }

    #[cold]
    fn set_coefficient(&mut self, id: QueueId, verdict: Verdict) {
        let queue = &self.queues[id.index()];
        let coefficient = queue.raise.coefficient();
        let (leaf, busy) = (queue.entity, queue.busy);
        let before = std::mem::replace(&mut self.forest[leaf].coefficient, coefficient);
        if busy {
            self.raised_busy += u32::from(coefficient > 1);
            self.raised_busy -= u32::from(before > 1);
        }
        if verdict == Verdict::AtOnce {
            self.forest.reweigh(leaf);
        }
        self.recount(id);
    }

    fn takes_part(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        queue.sync
            && (queue.owner.is_some() || queue.sharing.is_for_good())
            && self.forest[queue.entity].wanted_base == DEFAULT_WEIGHT
            && !queue.in_large_burst
    }

    /// Queue `id` turns from idle to busy: begins, restarts or ends raising.
    pub(super) fn raise_on_arrival(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        if self.set.low_latency && self.features.raising && !queue.sharing.is_settling(now) {
            let arrival = Arrival {
                takes_part: self.takes_part(id),
                quiet: queue.in_flight == 0,
                drained: queue.drained,
                steady: self.features.soft_real_time && !queue.is_totally_seeky(),
                in_large_burst: queue.in_large_burst,
                interactive_ns: self.rate.interactive_ns(),
            };
            let verdict = self.queue_mut(id).raise.arrive(arrival, now);
            self.let_raising_count(id, verdict);
        }
        self.queue_mut(id).raise.begin_backlog(now);
    }

    /// Whether the next request of queue `id` may raise it, or end that.
    pub(super) fn may_be_raised(&self, id: QueueId, now: Nanos) -> bool {
        let queue = self.queue(id);
        self.set.low_latency && (!queue.busy || !queue.sync && is_sparse(queue.last_insert, now))
    }

    /// A backlogged async queue gets another request: raised if the last one is long ago.
    #[inline]
    pub(super) fn raise_async(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        if queue.sync || !is_sparse(queue.last_insert, now) || self.is_raised(id) {
            return;
        }
        if self.set.low_latency && self.features.raising {
            let period = self.rate.interactive_ns();
            let verdict = self.queue_mut(id).raise.begin_interactive(period, now);
            self.let_raising_count(id, verdict);
        }
    }

    pub(super) fn end_raising(&mut self, id: QueueId, now: Nanos) {
        let verdict = self.queue_mut(id).raise.end(now);
        self.let_raising_count(id, verdict);
    }

    pub(super) fn end_all_raising(&mut self) {
        let now = self.last_now;
        for at in 0..self.queues.len() as u32 {
            let id = QueueId(at);
            if self.queue(id).alive && self.is_raised(id) {
                self.end_raising(id, now);
            }
        }
    }

    pub(super) fn raising_bounds(&self, id: QueueId) -> Bounds {
        let queue = self.queue(id);
        Bounds {
            totally_seeky: queue.is_totally_seeky(),
            in_large_burst: queue.in_large_burst,
            interactive_ns: self.rate.interactive_ns(),
        }
    }

    /// Queue `id` goes on with raising that was saved.
    pub(super) fn resume_raising(&mut self, id: QueueId, saved: Raise, now: Nanos) {
        let bounds = self.raising_bounds(id);
        let raise = &mut self.queue_mut(id).raise;
        *raise = saved;
        raise.resume(bounds, now);
        if !self.set.low_latency {
            let _from_next_stamp = self.queue_mut(id).raise.end(now);
        }
        self.let_raising_count(id, Verdict::NextStamp);
    }

    /// The raising of queue `id` as it is, or as it would be with its first request if it is new.
    pub(super) fn raising_so_far(&self, id: QueueId, now: Nanos) -> Raise {
        let queue = self.queue(id);
        let mut raise = queue.raise;
        let new = queue.drained.is_none() && !queue.busy && queue.in_flight == 0;
        if new && self.set.low_latency && self.features.raising && self.takes_part(id) {
            let _from_next_stamp = raise.begin_interactive(self.rate.interactive_ns(), now);
        }
        raise
    }

    /// A request of queue `id`, raised and in service, was dispatched: is raising over?
    #[inline(always)]
    pub(super) fn update_raising(&mut self, id: QueueId, now: Nanos) {
        let bounds = self.raising_bounds(id);
        let verdict = self.queue_mut(id).raise.dispatched(bounds, now);
        self.let_raising_count(id, verdict);
    }

    /// Queue `id` ends its slot with nothing queued and nothing in the device, or its last request
    /// ends.
    pub(super) fn pace(&mut self, id: QueueId, now: Nanos) {
        if self.set.low_latency {
            let slice_idle = self.set.slice_idle_ns;
            self.queue_mut(id).raise.drained(slice_idle, now);
        }
    }

    /// As [`pace`](Bfq::pace), at the end of its last request. An interactive queue is not paced:
    /// its requests are those of a start.
    #[inline]
    pub(super) fn pace_at_end(&mut self, id: QueueId, now: Nanos) {
        if self.coefficient(id) != INTERACTIVE {
            self.pace(id, now);
        }
    }

    /// Service of queue `id` begins.
    pub(super) fn excuse_waiting(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue_mut(id);
        let waited = now.0.saturating_sub(queue.waiting_since);
        queue.raise.excuse(waited, now);
    }
}

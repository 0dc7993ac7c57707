//! Whether and how long the device is kept idle for a queue's next request. Source:
//! docs/behaviour/bfq.md, sections 7 and 8.

use weir_bio::Nanos;

use crate::fair::queueing::{DeviceLoad, LeastLoad, QueueingRule};

use super::Bfq;
use super::entity::{IDLE, LevelId, QueueId};

/// The least an idle slice of a raised queue is, ns.
const RAISED_SLICE_NS: u64 = 20_000_000;
/// The most an idle slice of a seeky queue is when nothing depends on it, ns.
const SEEKY_SLICE_NS: u64 = 2_000_000;

/// When a device counts as one that keeps several requests at once.
pub(super) const QUEUEING: QueueingRule =
    QueueingRule { load: LeastLoad::Together(3), busy: 3, samples: 32, depth: 4, forgets: true };

/// Queues that are busy or have requests in flight and are not raised, by their weight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WeightCounts {
    /// By weight / 10.
    counts: [u32; 9],
    /// Bit n is set while `counts[n]` is not 0.
    present: u16,
}

impl WeightCounts {
    pub(super) fn add(&mut self, weight: u8) {
        self.counts[usize::from(weight)] += 1;
        self.present |= 1 << weight;
    }

    pub(super) fn remove(&mut self, weight: u8) {
        self.counts[usize::from(weight)] -= 1;
        if self.counts[usize::from(weight)] == 0 {
            self.present &= !(1 << weight);
        }
    }

    fn differ(self) -> bool {
        !self.present.is_power_of_two() && self.present != 0
    }

    fn least(self) -> u8 {
        self.present.trailing_zeros() as u8
    }

    pub(super) fn is_empty(self) -> bool {
        self.present == 0
    }
}

impl Bfq {
    pub(super) fn busy_total(&self) -> u32 {
        self.busy.iter().sum()
    }

    /// Brings the counts of the symmetry test up to date with what queue `id` has.
    #[inline]
    pub(super) fn recount(&mut self, id: QueueId) {
        let queue = &self.queues[id.index()];
        let entity = &self.forest[queue.entity];
        // A queue in service that has nothing at the moment still is one of those that compete:
        // were it not, it would lose the device whenever it thinks.
        let pending = queue.busy || queue.in_flight > 0;
        let weight = (pending && entity.coefficient == 1).then_some((entity.base / 10) as u8);
        if weight != queue.counted {
            if let Some(old) = queue.counted {
                self.weights.remove(old);
            }
            if let Some(new) = weight {
                self.weights.add(new);
            }
        }
        let (was, level) = (queue.pending, entity.level);
        let queue = &mut self.queues[id.index()];
        queue.counted = weight;
        queue.pending = pending;
        if was != pending {
            self.count_pending(level, pending);
        }
    }

    fn count_pending(&mut self, level: LevelId, more: bool) {
        let group = &mut self.groups[level.index()];
        if more {
            group.pending += 1;
            self.pending_groups += u32::from(group.pending == 1);
        } else {
            group.pending -= 1;
            self.pending_groups -= u32::from(group.pending == 0);
        }
    }

    /// Takes queue `id` out of the counts, before it moves to another group.
    pub(super) fn uncount(&mut self, id: QueueId) {
        let level = self.forest[self.queue(id).entity].level;
        if let Some(old) = self.queue_mut(id).counted.take() {
            self.weights.remove(old);
        }
        if std::mem::take(&mut self.queue_mut(id).pending) {
            self.count_pending(level, false);
        }
    }

    /// Whether requests served in turn would not be shares as configured, as queue `id` sees it.
    pub(super) fn is_asymmetric(&self, id: QueueId) -> bool {
        let lightest = self.queue(id).counted == Some(self.weights.least());
        let weights_differ = self.weights.differ() && !lightest;
        let classes = self.busy.iter().filter(|busy| **busy > 0).count();
        weights_differ || classes > 1 || self.pending_groups > 1
    }

    /// Keeping the device for queue `id` raises throughput.
    pub(super) fn idles_for_throughput(&self, id: QueueId) -> bool {
        self.raised_busy == 0 && self.would_idle_for_throughput(id)
    }

    /// As [`idles_for_throughput`](Bfq::idles_for_throughput), if no raised queue were busy.
    pub(super) fn would_idle_for_throughput(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        let queueing = self.queueing.is_queueing();
        let steady = !queue.seeks.is_seeky() && queue.think.is_io_bound() && queue.think.is_short();
        (self.rotational && !queueing) || ((self.rotational || !queueing) && steady)
    }

    /// Keeping the device for queue `id` is needed for its share.
    pub(super) fn idles_for_guarantees(&self, id: QueueId) -> bool {
        let in_flight = self.queue(id).in_flight;
        let raised_among_others = self.is_raised(id)
            && (self.raised_busy < self.busy_total() || self.in_flight >= in_flight + 4);
        raised_among_others || self.busy_total() == 1 || self.is_asymmetric(id)
    }

    /// Whether to keep the device for queue `id` when it has no request.
    pub(super) fn should_idle(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        if queue.processes == 0 {
            return false;
        }
        if self.set.strict {
            return true;
        }
        let class = self.forest[queue.entity].class;
        if self.set.slice_idle_ns == 0 || !queue.sync || class == IDLE {
            return false;
        }
        self.idles_for_throughput(id) || self.idles_for_guarantees(id)
    }

    /// The load that a completion shows, which is not counted as one yet.
    pub(super) fn load(&self) -> DeviceLoad {
        let briefly = |id: &QueueId| self.queue(*id).think.is_short() && self.should_idle(*id);
        let idler = self.in_service.filter(briefly).map(|id| self.queue(id));
        DeviceLoad {
            staged: self.staged,
            in_flight: self.in_flight as usize,
            idler: idler.map(|queue| (queue.queued + queue.in_flight) as usize),
        }
    }

    /// Starts to keep the device for queue `id`, which has nothing queued and nothing in flight.
    pub(super) fn arm_idle_timer(&mut self, id: QueueId, now: Nanos) {
        let slice = self.set.slice_idle_ns;
        let length = if self.is_raised(id) {
            slice.max(RAISED_SLICE_NS)
        } else if self.queue(id).seeks.is_seeky() && !self.is_asymmetric(id) {
            slice.min(SEEKY_SLICE_NS)
        } else {
            slice
        };
        self.idle_started = now;
        self.device_time.begin_idling();
        self.idle_until = Some(now + length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_differ_when_two_are_counted_and_the_least_is_known() {
        let mut weights = WeightCounts::default();
        assert!(weights.is_empty() && !weights.differ());
        for (add, differ, least) in [(4, false, 4), (4, false, 4), (8, true, 4), (1, true, 1)] {
            weights.add(add);
            assert_eq!((weights.differ(), weights.least()), (differ, least));
            assert!(!weights.is_empty());
        }
        for (remove, differ) in [(8, true), (1, false), (4, false)] {
            weights.remove(remove);
            assert_eq!(
                (weights.differ(), weights.least()),
                (differ, if remove == 8 { 1 } else { 4 })
            );
        }
        weights.remove(4);
        assert!(weights.is_empty());
    }
}

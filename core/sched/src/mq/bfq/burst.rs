//! Bursts of new queues: many processes started at once, which together want throughput and not
//! each the latency of an interactive one. Source: docs/behaviour/bfq.md, section 12.1.

use weir_bio::Nanos;

use super::Bfq;
use super::entity::{LevelId, QueueId};
use super::queue::Handle;

/// Queues created no farther apart belong to one burst, ns.
const BURST_GAP_NS: u64 = 180_000_000;
/// From so many queues a burst is large.
const LARGE: usize = 8;
/// Idle for longer, and the mark is off, ns.
const FORGIVE_NS: u64 = 10_000_000_000;

/// The burst that is open, if any.
#[derive(Clone, Debug, Default)]
pub(super) struct Burst {
    large: bool,
    last: Nanos,
    level: Option<LevelId>,
    /// Its queues while it is not large.
    queues: Vec<Handle>,
}

/// A sync queue that was created.
#[derive(Clone, Copy, Debug)]
struct Creation {
    queue: Handle,
    level: LevelId,
    /// Queues are busy.
    busy: bool,
}

impl Burst {
    fn is_open(&self) -> bool {
        self.large || !self.queues.is_empty()
    }

    /// Takes note of a queue; the queues that are marked as those of a large burst with it. A burst
    /// begins only while nothing is busy: what starts beside other load is no start of a machine or
    /// an application that the user waits for alone.
    fn join(&mut self, new: Creation, now: Nanos) -> Vec<Handle> {
        if !self.is_open() && new.busy {
            return Vec::new();
        }
        let late = now.since(self.last) > BURST_GAP_NS;
        self.last = now;
        if late || self.level != Some(new.level) {
            self.large = false;
            self.level = Some(new.level);
            self.queues.clear();
            self.queues.extend((!new.busy).then_some(new.queue));
            return Vec::new();
        }
        if self.large {
            return vec![new.queue];
        }
        self.queues.push(new.queue);
        self.large = self.queues.len() >= LARGE;
        if self.large { std::mem::take(&mut self.queues) } else { Vec::new() }
    }
}

impl Bfq {
    /// A sync queue was created.
    pub(super) fn join_burst(&mut self, id: QueueId, now: Nanos) {
        if !self.features.bursts {
            return;
        }
        let queue = self.queue(id);
        let level = self.forest[queue.entity].level;
        let new = Creation { queue: queue.handle(id), level, busy: self.busy_total() > 0 };
        for marked in self.burst.join(new, now) {
            if let Some(id) = self.resolve(marked) {
                self.queue_mut(id).in_large_burst = true;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How many queues each creation marks: (ms after the one before, level, queues are busy).
    fn marks(creations: &[(u64, u32, bool)]) -> Vec<usize> {
        let (mut burst, mut now) = (Burst::default(), Nanos::from_ms(1000));
        let marks = creations.iter().enumerate().map(|(n, (gap_ms, level, busy))| {
            now = now + gap_ms * 1_000_000;
            let queue = Handle { queue: QueueId(n as u32), birth: n as u64 };
            burst.join(Creation { queue, level: LevelId(*level), busy: *busy }, now).len()
        });
        marks.collect()
    }

    #[test]
    fn the_eighth_of_a_burst_marks_all_and_a_gap_or_another_group_begins_anew() {
        let (soon, gap) = ((180, 0, true), (181, 0, true));
        let idle = (181, 0, false);
        let eight = [idle, soon, soon, soon, soon, soon, soon, soon, soon];
        assert_eq!(marks(&eight), [0, 0, 0, 0, 0, 0, 0, 8, 1]);
        // After a gap it has no queue while others are busy, and so it is closed.
        let beside = [idle, gap, soon, soon, soon, soon, soon, soon, soon, soon];
        assert_eq!(marks(&beside), [0; 10]);
        // A large one ends with a gap.
        let mut large = eight.to_vec();
        large.extend([gap, soon]);
        assert_eq!(marks(&large)[8..], [1, 0, 0]);
        // While nothing is busy, the first after a gap begins another.
        let again = [idle, soon, idle, soon, soon, soon, soon, soon, soon, soon];
        assert_eq!(marks(&again), [0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
        // Another group: the one that opens it counts only while nothing is busy.
        let other = (100, 1, true);
        let group = [idle, soon, other, other, other, other, other, other, other, other];
        assert_eq!(marks(&group), [0; 10]);
        assert_eq!(marks(&[soon; 9]), [0; 9], "none begins while queues are busy");
    }
}

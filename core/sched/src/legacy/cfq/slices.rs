//! How long a slice is, when it begins, and what its end costs whom. Source: docs/behaviour/cfq.md,
//! sections 2 and 6.

use weir_bio::Nanos;

use super::group::WHOLE;
use super::names::QueueId;
use super::{Cfq, TICK_NS};

/// The level whose slice is the tunable itself.
const LEVEL_MIDDLE: u64 = 4;
/// So many parts of a slice are added or taken away for each level: one fifth.
const LEVEL_PARTS: u64 = 5;

impl Cfq {
    /// The slice of a queue by its level alone, nanoseconds: a fifth more for each level better
    /// than 4, a fifth less for each level worse.
    #[must_use]
    pub fn slice_ns(&self, sync: bool, level: u8) -> u64 {
        let base = if sync { self.knobs.slice_sync_ns } else { self.knobs.slice_async_ns };
        let part = base / LEVEL_PARTS;
        let level = u64::from(level);
        if level <= LEVEL_MIDDLE {
            base + part * (LEVEL_MIDDLE - level)
        } else {
            base - part * (level - LEVEL_MIDDLE)
        }
    }

    /// The slice of a queue, shortened under low_latency so that all of its class come by in time.
    pub(super) fn scaled_slice_ns(&mut self, id: QueueId) -> u64 {
        let queue = self.queue(id);
        let (at, class) = (queue.group, queue.priority.class);
        let slice = u128::from(self.slice_ns(queue.sync, queue.priority.level));
        if !self.knobs.low_latency {
            return slice as u64;
        }
        let [target, sync, idle] =
            [self.knobs.target_latency_ns, self.knobs.slice_sync_ns, self.knobs.slice_idle_ns]
                .map(u128::from);
        let round = sync * u128::from(self.groups[at].update_average(class));
        let group_slice = target * u128::from(self.groups.share(at)) / u128::from(WHOLE);
        if round <= group_slice {
            return slice as u64;
        }
        // A slice must leave room for more than the seek that leads to it.
        let least = slice.min(2 * idle * slice / sync);
        (slice * group_slice / round).max(least) as u64
    }

    /// The first request of the slot was answered: the slice begins.
    pub(super) fn start_slice(&mut self, id: QueueId, now: Nanos) {
        let slice = self.scaled_slice_ns(id);
        let slot = &mut self.queue_mut(id).slot;
        slot.started_at = Some(now);
        slot.ends_at = now + slice;
        slot.allocated_ns = slice;
    }

    /// Takes the device from the queue in service. The rest of its slice, or its overrun, is kept
    /// for its next turn if it was cut short (`keeps_rest`).
    pub(super) fn expire(&mut self, keeps_rest: bool, now: Nanos) {
        let Some(id) = self.active else { return };
        self.idle_until = None;
        if keeps_rest {
            let slot = self.queue(id).slot;
            let rest = match slot.started_at {
                Some(_) => slot.ends_at.0 as i64 - now.0 as i64,
                None => self.scaled_slice_ns(id) as i64,
            };
            self.queue_mut(id).residual_ns = rest;
        }
        self.charge(id, now);
        let queue = self.queue_mut(id);
        queue.slot.waits_busy = false;
        if queue.shared && queue.seeks.is_seeky() {
            queue.splits = true;
        }
        self.active = None;
        self.active_process = None;
        if self.queue(id).is_empty() {
            self.leave_if_empty(id);
        } else {
            self.place(id, false, now);
        }
        self.release(id);
    }

    /// Charges the slot to the group, in time or in requests, and keeps the rest of its workload.
    fn charge(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        let (at, sync, slot) = (queue.group, queue.sync, queue.slot);
        let group = &self.groups[at];
        let idle = group.trees[super::names::TreeId::IDLE.index()].queues.len() as u64;
        let no_sync = u64::from(group.busy_queues) == group.busy_async() + idle;
        let (used, unaccounted) = usage(slot, now);
        let charge = if self.counts_requests() {
            slot.dispatched
        } else if !sync && no_sync && slot.allocated_ns > 0 {
            slot.allocated_ns
        } else {
            used
        };
        if self.counts_requests() != self.charges_requests {
            self.charges_requests = !self.charges_requests;
            self.groups.begin_anew();
        }
        let saved = self.workload.saved(now);
        let group = &mut self.groups[at];
        group.used.time_ns += used;
        group.used.unaccounted_ns += unaccounted;
        group.saved = saved;
        self.groups.charge(at, charge);
    }
}

/// Disk time that a slot has used, and time that is charged to no group.
fn usage(slot: super::queue::Slot, now: Nanos) -> (u64, u64) {
    match slot.started_at {
        Some(start) if start < now => {
            let time = now.since(start);
            let used = time.min(slot.allocated_ns);
            (used, time - used + start.since(slot.selected_at))
        }
        // Nothing was answered yet: seeks are paid as well.
        _ => (now.since(slot.selected_at).max(TICK_NS), 0),
    }
}

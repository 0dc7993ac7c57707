//! How much a queue is served at a time, and what that is counted as. Source:
//! docs/behaviour/bfq.md, sections 4 and 5. Budgets and service are sectors.

use weir_bio::{Nanos, SchedTag};

use super::Bfq;
use super::entity::QueueId;
use super::queue::Expiry;

/// The most a queue gets until the device is known.
pub(super) const DEFAULT_MAX_BUDGET: u64 = 16_384;
/// The most the tunable can be, and what a long timeout may make of the rate.
const MOST_BUDGET: u64 = i32::MAX as u64;
/// From this count of assigned budgets (the eleventh) the peak rate decides.
const BUDGETS_KNOWN: u64 = 194;
/// An async request counts for this many times its sectors, so that writeback, which can fill the
/// device's queue at will, does not crowd out those who wait.
const ASYNC_FACTOR: u64 = 3;
/// The time that counts as a full budget, ns. Not the tunable: the default of it.
const FULL_BUDGET_NS: u64 = 125_000_000;
/// A slot shorter than this says nothing about the speed of a queue, ns.
const SHORT_SLOT_NS: u64 = 1_000_000;
/// A slot longer than this is judged by its service, ns.
const LONG_SLOT_NS: u64 = 20_000_000;
/// The time that a seeky queue's short slot counts as, ns.
const SHORT_SLOT_ROTATIONAL_NS: i64 = 8_000_000;
const SHORT_SLOT_FLASH_NS: i64 = 2_000_000;

/// The most that a queue is charged for with its next slot, ns.
pub(super) const MOST_OWED_NS: i64 = 1_000_000_000;

/// A slot that ends, by the time of the device and not by sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotTime {
    /// A sync queue held the device without making much of it.
    pub(super) slow: bool,
    /// What it is charged for if it is charged by time: the slot without what requests of others
    /// took of it, and what its own took since its last one.
    pub(super) charged_ns: u64,
    /// What is left of its account then: 0, or below if it was charged for more than was measured.
    pub(super) rest_ns: i64,
}

impl Bfq {
    /// The least budget feedback leaves a queue.
    pub(super) fn min_budget(&self) -> u64 {
        (self.max_budget / 32).max(1)
    }

    pub(super) fn derive_max_budget(&mut self) {
        self.max_budget = match self.set.user_max_budget {
            // The rate that a device is taken for at first may be far from its own, and a budget
            // that no slot can use up has every slot end by time and be charged as time.
            0 if self.budgets_assigned >= BUDGETS_KNOWN && self.rate.is_measured() => {
                self.rate.sectors_within(self.set.timeout_ns).clamp(1, MOST_BUDGET)
            }
            0 => DEFAULT_MAX_BUDGET,
            user => user,
        };
    }

    pub(super) fn count_assigned_budget(&mut self) {
        let was_known = self.budgets_assigned >= BUDGETS_KNOWN;
        self.budgets_assigned = (7 * self.budgets_assigned + 256) / 8;
        if !was_known && self.budgets_assigned >= BUDGETS_KNOWN {
            self.derive_max_budget();
        }
    }

    /// The cost of a request of queue `id`, sectors.
    #[inline(always)]
    pub(super) fn charge(&self, id: QueueId, sectors: u32) -> u64 {
        let queue = self.queue(id);
        let sectors = u64::from(sectors);
        let single = queue.sync
            || !self.features.async_overcharge
            || self.is_raised(id)
            || self.is_asymmetric(id);
        if single { sectors } else { sectors * ASYNC_FACTOR }
    }

    #[inline(always)]
    pub(super) fn charge_of(&self, id: QueueId, tag: SchedTag) -> u64 {
        self.charge(id, self.node(tag).rq.sectors)
    }

    /// The cost of the next request of queue `id`; 0 without one.
    pub(super) fn next_charge(&self, id: QueueId) -> u64 {
        self.queue(id).next.map_or(0, |next| self.charge_of(id, next))
    }

    pub(super) fn budget_left(&self, id: QueueId) -> u64 {
        let entity = &self.forest[self.queue(id).entity];
        entity.budget.saturating_sub(entity.service)
    }

    /// The queue's own most, within the device's.
    pub(super) fn own_max(&self, id: QueueId) -> u64 {
        self.queue(id).max_budget.min(self.max_budget)
    }

    /// The next request of a waiting queue changed: so does what it is to be given.
    pub(super) fn next_changed(&mut self, id: QueueId) {
        if !self.queue(id).busy || self.in_service == Some(id) || self.queue(id).is_empty() {
            return;
        }
        let entity = self.queue(id).entity;
        let service = self.forest[entity].service;
        let mut budget = self.own_max(id).max(self.next_charge(id)).max(service);
        if let Some(left) = self.queue(id).left {
            // It returned in time, for the rest of its budget.
            budget = left.max(self.next_charge(id)).max(service);
        }
        self.forest.set_budget(entity, budget);
    }

    /// How long queue `id` has held the device, ns; idling that came to nothing is not counted.
    fn held_ns(&self, now: Nanos, timer_fired: bool) -> u64 {
        let until = if timer_fired { self.idle_started } else { now };
        until.since(self.slot_started)
    }

    /// What the slot of queue `id` in service was by time, if it ends at `now`.
    pub(super) fn slot_time(&self, id: QueueId, now: Nanos, timer_fired: bool) -> SlotTime {
        let held = self.held_ns(now, timer_fired);
        let queue = self.queue(id);
        let (seeky, owed) = (queue.seeks.is_seeky(), queue.owed_ns);
        let service = self.forest[queue.entity].service;
        let of_others = self.device_time.of_others(timer_fired);
        let used = held.saturating_sub(of_others).min(FULL_BUDGET_NS) as i64 + owed;
        let guess = if self.rotational { SHORT_SLOT_ROTATIONAL_NS } else { SHORT_SLOT_FLASH_NS };
        let guesses = seeky && held < SHORT_SLOT_NS && owed >= 0;
        let charged = used.max(if guesses { guess } else { 0 });
        let slow = match held {
            ..=LONG_SLOT_NS => seeky,
            _ => service < self.max_budget / 2,
        };
        // A guess is set off against what is measured later. Where sectors count more than time,
        // that comes to nothing, and no other guess is made.
        let ahead = used - charged;
        let unused = if ahead < 0 { ahead - self.full_speed_ns(service) } else { 0 };
        SlotTime {
            slow: slow && queue.sync && self.features.slow_detection,
            charged_ns: charged as u64,
            rest_ns: unused.max(-guess),
        }
    }

    /// What the time counts for that queue `id` is to be charged with its next slot, sectors.
    pub(super) fn owed(&self, id: QueueId) -> u64 {
        let queue = self.queue(id);
        let by_time = queue.seeks.is_seeky() && self.features.slow_detection;
        if by_time { self.max_budget * queue.owed_ns.max(0) as u64 / FULL_BUDGET_NS } else { 0 }
    }

    /// The time that counts as much as `sectors`.
    fn full_speed_ns(&self, sectors: u64) -> i64 {
        let sectors = sectors.min(self.max_budget) as i64;
        sectors * FULL_BUDGET_NS as i64 / self.max_budget as i64
    }

    /// Charges queue `id`, in service, for the time it held the device, if that is more than for
    /// the sectors it received.
    pub(super) fn charge_time(&mut self, id: QueueId, held_ns: u64) {
        let charge = self.max_budget * held_ns / FULL_BUDGET_NS;
        let leaf = self.queue(id).entity;
        let entity = &mut self.forest[leaf];
        entity.budget = entity.budget.max(charge);
        let more = charge.saturating_sub(entity.service);
        self.forest.serve(leaf, more);
    }

    /// Feedback at expiry: what the queue is to have at most from now on.
    pub(super) fn learn_budget(&mut self, id: QueueId, reason: Expiry) {
        let (min, max) = (self.min_budget(), self.max_budget);
        let queue = self.queue(id);
        let own = queue.max_budget;
        let service = self.forest[queue.entity].service;
        let learnt = if !queue.sync || !self.features.budget_feedback {
            max
        } else if self.is_raised(id) {
            2 * min
        } else {
            match reason {
                Expiry::TooIdle if queue.in_flight > 0 => 2 * own,
                Expiry::TooIdle if own > 5 * min => own - 4 * min,
                Expiry::TooIdle => min,
                Expiry::BudgetTimeout => 2 * own,
                Expiry::BudgetExhausted => 4 * own,
                Expiry::NoMoreRequests => service.max(min),
                Expiry::Preempted => own,
            }
        };
        self.queue_mut(id).max_budget = learnt.clamp(min.min(max), max);
    }
}

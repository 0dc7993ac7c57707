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
const SHORT_SLOT_ROTATIONAL_NS: u64 = 8_000_000;
const SHORT_SLOT_FLASH_NS: u64 = 2_000_000;

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

    /// Whether a sync queue held the device without making much of it, and for how long, ns.
    pub(super) fn slowness(&self, id: QueueId, now: Nanos, timer_fired: bool) -> (bool, u64) {
        let held = self.held_ns(now, timer_fired);
        let queue = self.queue(id);
        if !queue.sync || !self.features.slow_detection {
            return (false, held);
        }
        let seeky = queue.seeks.is_seeky();
        if held < SHORT_SLOT_NS {
            let counted =
                if self.rotational { SHORT_SLOT_ROTATIONAL_NS } else { SHORT_SLOT_FLASH_NS };
            return (seeky, if seeky { counted } else { held });
        }
        if held <= LONG_SLOT_NS {
            return (seeky, held);
        }
        (self.forest[queue.entity].service < self.max_budget / 2, held)
    }

    /// Charges queue `id`, in service, for the time it held the device, if that is more than for
    /// the sectors it received.
    pub(super) fn charge_time(&mut self, id: QueueId, held_ns: u64) {
        let charge = self.max_budget * held_ns.min(FULL_BUDGET_NS) / FULL_BUDGET_NS;
        let leaf = self.queue(id).entity;
        let entity = &mut self.forest[leaf];
        entity.budget = entity.budget.max(charge);
        let more = charge.saturating_sub(entity.service);
        if more > 0 {
            self.forest.serve(leaf, more);
        }
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

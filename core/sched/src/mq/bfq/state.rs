//! The state of the scheduler as seen from outside, for tests, traces and reports; and which of its
//! heuristics are on.

use weir_bio::{Nanos, SubmitterId};

use super::Bfq;
use super::entity::Place;
use super::queue::Expiry;

/// Which heuristics are on. The scheduler's guarantees do not depend on them; an A/B run shows what
/// each contributes. All are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Weight raising, which `low_latency` turns on and off at run time.
    pub raising: bool,
    /// Soft real-time detection, a part of raising.
    pub soft_real_time: bool,
    /// Requests of others while the device is kept for a queue.
    pub injection: bool,
    /// Detection of processes whose completions wake others.
    pub wakers: bool,
    /// Detection of bursts of new queues.
    pub bursts: bool,
    /// One queue for processes that read one stream.
    pub queue_merging: bool,
    /// One queue for processes started together.
    pub stable_merging: bool,
    /// Charging slow queues for time.
    pub slow_detection: bool,
    /// The estimator of the peak rate.
    pub peak_rate: bool,
    /// Budgets that follow what a queue made of the last one.
    pub budget_feedback: bool,
    /// Charging async requests more than their sectors.
    pub async_overcharge: bool,
}

impl Features {
    /// Everything.
    pub const ALL: Features = Features {
        raising: true,
        soft_real_time: true,
        injection: true,
        wakers: true,
        bursts: true,
        queue_merging: true,
        stable_merging: true,
        slow_detection: true,
        peak_rate: true,
        budget_feedback: true,
        async_overcharge: true,
    };

    /// Everything but queues that processes share: for fairness tests, whose processes start
    /// together.
    pub const UNSHARED: Features =
        Features { queue_merging: false, stable_merging: false, ..Features::ALL };
}

impl Default for Features {
    fn default() -> Features {
        Features::ALL
    }
}

/// A process's sync queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// Names the queue as long as it lives: equal for processes that share one.
    pub name: u64,
    /// The most it is given at once, sectors.
    pub max_budget: u64,
    /// Its present budget, sectors.
    pub budget: u64,
    /// The service it received of that, sectors.
    pub service: u64,
    /// Effective weight.
    pub weight: u64,
    /// Raising coefficient, 1 when not raised.
    pub coefficient: u32,
    /// Length of the raising period, ns; 0 when not raised.
    pub raised_for: u64,
    /// Requests queued.
    pub queued: usize,
    /// Requests in the device.
    pub in_flight: u32,
    /// Most of its last 32 requests were far apart.
    pub seeky: bool,
    /// Created in a large burst.
    pub in_large_burst: bool,
    /// Several processes use it.
    pub shared: bool,
    /// Requests of others that may be in flight while the device is kept for it.
    pub inject_limit: u32,
    /// Its waker is known.
    pub has_waker: bool,
    /// It holds the device.
    pub in_service: bool,
    /// When it became busy it had some of its budget left, and came in time for it.
    pub returned_in_time: bool,
}

/// The device as the scheduler sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// The most a queue is given at once, sectors.
    pub max_budget: u64,
    /// Estimated peak rate, sectors/us times 2^16.
    pub peak_rate: u64,
    /// Length of an interactive raising period, ns.
    pub interactive_ns: u64,
    /// Requests in the device.
    pub in_flight: u32,
    /// Queues with backlog or in service.
    pub busy: u32,
    /// When the device stops being kept for the queue in service.
    pub idle_until: Option<Nanos>,
    /// The slot that ended last: why, its service and its budget in sectors.
    pub last_slot: Option<(Expiry, u64, u64)>,
    /// Sum of all weights in all trees.
    pub weight_sum: u64,
    /// Sum of the weights of all entities that stand in a tree, each counted by itself.
    pub counted_weight: u64,
    /// Queues that exist.
    pub queues: usize,
    /// Those of them that are processes' own or shared by processes; the others are groups' async
    /// queues, which stay.
    pub sync_queues: usize,
    /// Every counter of busy, raised, pending and counted queues is 0.
    pub counters_are_zero: bool,
}

impl Bfq {
    /// The state of a process's sync queue; `None` if it has none.
    #[must_use]
    pub fn view(&self, context: SubmitterId) -> Option<QueueView> {
        let id = self.contexts.get(usize::from(context.0))?.sync?;
        let queue = self.queue(id);
        let entity = &self.forest[queue.entity];
        Some(QueueView {
            name: queue.birth,
            max_budget: queue.max_budget,
            budget: entity.budget,
            service: entity.service,
            weight: entity.weight,
            coefficient: entity.coefficient,
            raised_for: queue.raise.period(),
            queued: queue.queued as usize,
            in_flight: queue.in_flight,
            seeky: queue.seeks.is_seeky(),
            in_large_burst: queue.in_large_burst,
            shared: queue.sharing.is_shared(),
            inject_limit: queue.injection.limit,
            has_waker: queue.waker.waker().is_some(),
            in_service: self.in_service == Some(id),
            returned_in_time: queue.left.is_some() && queue.busy,
        })
    }

    /// The estimates of the device.
    #[must_use]
    pub fn device_view(&self) -> DeviceView {
        let trees = self.forest.levels.iter().flat_map(|level| &level.trees);
        let entities = self.forest.entities.iter();
        let counted = entities.filter(|entity| entity.place != Place::Nowhere);
        DeviceView {
            max_budget: self.max_budget,
            peak_rate: self.rate.rate(),
            interactive_ns: self.rate.interactive_ns(),
            in_flight: self.in_flight,
            busy: self.busy_total(),
            idle_until: self.idle_until,
            last_slot: self.last_slot,
            weight_sum: trees.map(|tree| tree.w).sum(),
            counted_weight: counted.map(|entity| entity.weight).sum(),
            queues: self.queues.iter().filter(|queue| queue.alive).count(),
            sync_queues: self.queues.iter().filter(|queue| queue.alive && queue.sync).count(),
            counters_are_zero: self.busy == [0; 3]
                && self.raised_busy == 0
                && self.pending_groups == 0
                && self.weights.is_empty()
                && self.in_flight == 0
                && self.groups.iter().all(|group| group.pending == 0)
                && self.contexts.iter().all(|context| context.outstanding == 0)
                && self.forest.entities.iter().all(|entity| entity.allocated == 0),
        }
    }

    /// Takes the device for one that does, or does not, have a queue of its own, whatever is
    /// observed; `None` leaves it to observation.
    pub fn decide_queueing(&mut self, queueing: Option<bool>) {
        self.queueing.decide(queueing);
    }
}

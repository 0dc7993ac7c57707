//! Filling the hole while the device is kept for a queue without requests. Source:
//! docs/behaviour/bfq.md, section 9.
//!
//! How many requests of others may be in flight meanwhile is learnt from what they cost: the time
//! from a request's arrival at the empty queue to its completion, with and without them.

use weir_bio::{Nanos, SchedTag, SubmitterId};

use super::Bfq;
use super::entity::QueueId;

/// On a device without seeks a larger request is not injected behind others, sectors.
const LARGE: u32 = 64;
/// After a decrease nothing is sampled for this long, ns.
const SETTLE_NS: u64 = 10_000_000;
/// A learnt limit is forgotten after this long, ns.
const FORGET_NS: u64 = 1_000_000_000;
/// As [`FORGET_NS`], when the process has begun to think briefly, ns.
const FORGET_SHORT_NS: u64 = 100_000_000;

/// The measurement that is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// When the request arrived that made the queue in service non-empty, until it is dispatched.
    arrived: Option<u64>,
    /// That request in the device, and when it arrived.
    awaited: Option<(SchedTag, u64)>,
    /// Others' requests were injected meanwhile.
    injected: bool,
}

impl Sample {
    /// Whether it ends with this request.
    #[inline]
    pub(super) fn awaits(&self, tag: SchedTag) -> bool {
        self.awaited.is_some_and(|(awaited, _)| awaited == tag)
    }
}

impl Bfq {
    /// The queue that may give a request while queue `id`, in service, is empty.
    pub(super) fn choose_injected(&mut self, id: QueueId) -> Option<QueueId> {
        if !self.features.injection {
            return None;
        }
        let found = self.cooperating(id).or_else(|| self.any_other(id));
        if found.is_some() {
            self.sample.injected = true;
        }
        found
    }

    fn can_inject(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        queue.busy && !queue.is_empty() && self.next_charge(id) <= self.budget_left(id)
    }

    /// The process's own async requests, its waker, whom it wakes: serving them brings its next
    /// request nearer, so no limit applies.
    fn cooperating(&self, id: QueueId) -> Option<QueueId> {
        let queue = self.queue(id);
        let own = queue.owner.and_then(|owner| self.own_async_next(owner));
        let candidates = own.into_iter().chain(queue.waker.confirmed);
        candidates
            .chain(queue.waker.wakes.iter().copied())
            .find(|other| *other != id && self.can_inject(*other))
    }

    /// The async queue of a process's group and priority, if the next request there is one of that
    /// process. The queue is shared: of another's write-back the process awaits nothing.
    fn own_async_next(&self, who: SubmitterId) -> Option<QueueId> {
        let id = self.own_async_queue(who)?;
        let next = self.queue(id).next?;
        (self.owner(next).context == who).then_some(id)
    }

    fn any_other(&self, id: QueueId) -> Option<QueueId> {
        let queue = self.queue(id);
        let raised = self.is_raised(id);
        let long_think = !queue.short_think;
        let allowed =
            !self.idles_for_throughput(id) && (!raised || self.raised_busy > 1 || long_think);
        if !allowed || self.in_flight >= self.inject_limit(id) {
            return None;
        }
        let raised_only = raised && !long_think;
        let mut at = self.busy_first;
        while let Some(other) = at {
            at = self.queue(other).busy_after;
            if other == id || (raised_only && !self.is_raised(other)) || !self.can_inject(other) {
                continue;
            }
            let large = self.queue(other).next.is_some_and(|n| self.node(n).rq.sectors >= LARGE);
            if self.rotational || self.in_flight == 0 || !large {
                return Some(other);
            }
        }
        None
    }

    fn inject_limit(&self, id: QueueId) -> u32 {
        let injection = &self.queue(id).injection;
        let idled_in_vain = injection.limit == 0
            && injection.baseline == 0
            && self.idle_until.is_some()
            && self.last_now.since(self.idle_started) >= self.set.slice_idle_ns;
        if idled_in_vain { 1 } else { injection.limit }
    }

    pub(super) fn reset_injection(&mut self, id: QueueId, now: Nanos) {
        self.sample = Sample::default();
        let queue = self.queue_mut(id);
        queue.injection.baseline = 0;
        queue.injection.limit = u32::from(!queue.short_think);
        queue.injection.decreased = now.0;
    }

    pub(super) fn think_time_changed(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        let aged = now.0 >= queue.injection.decreased + FORGET_SHORT_NS;
        if queue.injection.baseline > 0 && (aged || !queue.short_think) {
            self.reset_injection(id, now);
        }
    }

    /// A request arrives at the empty sync queue `id`: perhaps the start of a measurement.
    pub(super) fn begin_sample(&mut self, id: QueueId, now: Nanos) {
        let injection = self.queue(id).injection;
        if now.0 >= injection.decreased + FORGET_NS {
            self.reset_injection(id, now);
        }
        let injection = self.queue(id).injection;
        let telling = self.in_flight == 0 || (injection.baseline > 0 && self.sample.injected);
        if self.in_service == Some(id) && telling && now.0 >= injection.decreased + SETTLE_NS {
            self.sample.arrived = Some(now.0);
            self.sample.injected &= self.in_flight > 0;
        }
    }

    /// A request of the queue in service goes to the device.
    #[inline]
    pub(super) fn continue_sample(&mut self, tag: SchedTag) {
        if let Some(arrived) = self.sample.arrived.take() {
            self.sample.awaited = Some((tag, arrived));
        }
    }

    /// The request of queue `id` that was awaited has ended, with `in_flight` requests before.
    #[inline(never)]
    pub(super) fn end_sample(&mut self, id: QueueId, in_flight: u32, now: Nanos) {
        let Some((_, arrived)) = self.sample.awaited else { return };
        let took = now.0.saturating_sub(arrived).max(1);
        let injected = self.sample.injected;
        self.sample = Sample::default();
        let deepest = (self.queueing.deepest() as u32).max(in_flight);
        let injection = &mut self.queue_mut(id).injection;
        let slow = took >= injection.baseline + injection.baseline / 2;
        if injection.baseline > 0 && injected {
            if slow {
                injection.limit = injection.limit.saturating_sub(1);
                injection.decreased = now.0;
            } else if injection.limit < deepest {
                injection.limit += 1;
            }
        }
        if in_flight == 1 && (!injected || injection.baseline == 0) {
            if injection.baseline == 0 {
                injection.limit = injection.limit.max(1);
            }
            injection.baseline = took;
        } else if injection.baseline > 0 {
            injection.baseline = injection.baseline.min(took);
        }
    }
}

//! Weight raising: what `low_latency` does for interactive and soft real-time processes. Source:
//! docs/behaviour/bfq.md, section 11. Times in ns.

use weir_bio::Nanos;

use super::Bfq;
use super::entity::QueueId;
use super::queue::Queue;
use super::think::SETTLE_AFTER_SPLIT_NS;

/// The factor of an interactive queue's weight.
pub(super) const INTERACTIVE: u32 = 30;
/// The factor of a soft real-time queue's weight.
pub(super) const SOFT_RT: u32 = 3000;
/// How long a queue is raised as soft real-time after each batch.
const SOFT_RT_PERIOD_NS: u64 = 300_000_000;
/// The most a soft real-time process asks for, sectors/s.
const SOFT_RT_RATE: u64 = 7000;
/// A soft real-time process leaves more room than an idle slice between batches: by this much.
const SOFT_RT_MARGIN_NS: u64 = 16_000_000;
/// A queue idle for longer is interactive when it returns.
const LONG_IDLE_NS: u64 = 2_000_000_000;
/// An async queue whose last request is older is raised with the next.
const ASYNC_IDLE_NS: u64 = 500_000_000;
/// An interactive period ends when the queue has received this, sectors.
const INTERACTIVE_SERVICE: u64 = 120_000;
/// The weight that takes part: that of the default level. Any other opts out.
const DEFAULT_WEIGHT: u32 = 40;

const SECOND_NS: u64 = 1_000_000_000;

impl Queue {
    /// The last request is so long ago that the next of an async queue raises it.
    fn is_sparse(&self, now: Nanos) -> bool {
        now.0 > self.last_insert + ASYNC_IDLE_NS
    }
}

impl Bfq {
    pub(super) fn is_raised(&self, id: QueueId) -> bool {
        self.forest[self.queue(id).entity].coefficient > 1
    }

    pub(super) fn coefficient(&self, id: QueueId) -> u32 {
        self.forest[self.queue(id).entity].coefficient
    }

    /// Sets the raising coefficient; it counts from the next stamp.
    pub(super) fn set_coefficient(&mut self, id: QueueId, coefficient: u32) {
        let queue = &self.queues[id.index()];
        let entity = &mut self.forest[queue.entity];
        let before = std::mem::replace(&mut entity.coefficient, coefficient);
        if queue.busy {
            self.raised_busy += u32::from(coefficient > 1);
            self.raised_busy -= u32::from(before > 1);
        }
        self.recount(id);
    }

    fn takes_part(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        self.set.low_latency
            && self.features.raising
            && queue.sync
            && (queue.owner.is_some() || queue.stably_merged)
            && self.forest[queue.entity].wanted_base == DEFAULT_WEIGHT
            && !queue.in_large_burst
    }

    fn is_interactive(&self, id: QueueId, now: Nanos) -> bool {
        let queue = self.queue(id);
        let long = queue.drained.is_none_or(|at| now.0 > at + LONG_IDLE_NS);
        queue.in_flight == 0 && long && !queue.in_large_burst
    }

    fn is_soft_rt(&self, id: QueueId, now: Nanos) -> bool {
        let queue = self.queue(id);
        self.features.soft_real_time
            && !queue.in_large_burst
            && !queue.is_totally_seeky()
            && queue.in_flight == 0
            && now.0 > queue.raise.soft_rt_next
    }

    /// Queue `id` turns from idle to busy: begins, restarts or ends raising.
    pub(super) fn raise_on_arrival(&mut self, id: QueueId, now: Nanos) {
        let settling = self.queue(id).split_at.is_some_and(|at| now.0 < at + SETTLE_AFTER_SPLIT_NS);
        if self.set.low_latency && self.features.raising && !settling {
            let interactive = self.is_interactive(id, now);
            let soft_rt = self.is_soft_rt(id, now);
            if self.is_raised(id) {
                self.renew(id, interactive, soft_rt, now);
            } else if self.takes_part(id) && (interactive || soft_rt) {
                self.begin(id, interactive, now);
            }
        }
        let raise = &mut self.queue_mut(id).raise;
        raise.backlog_started = now.0;
        raise.backlog_service = 0;
    }

    fn begin(&mut self, id: QueueId, interactive: bool, now: Nanos) {
        let period = if interactive { self.rate.interactive_ns() } else { SOFT_RT_PERIOD_NS };
        let raise = &mut self.queue_mut(id).raise;
        raise.started = now.0;
        raise.period = period;
        raise.interactive_started = None;
        if interactive {
            raise.service = 0;
        }
        self.set_coefficient(id, if interactive { INTERACTIVE } else { SOFT_RT });
    }

    fn renew(&mut self, id: QueueId, interactive: bool, soft_rt: bool, now: Nanos) {
        let period = self.rate.interactive_ns();
        if interactive {
            let raise = &mut self.queue_mut(id).raise;
            raise.period = period;
            raise.started = now.0;
            self.set_coefficient(id, INTERACTIVE);
        } else if self.queue(id).in_large_burst {
            self.end_raising(id, now);
        } else if soft_rt {
            let from_interactive = self.coefficient(id) != SOFT_RT;
            let raise = &mut self.queue_mut(id).raise;
            if from_interactive {
                raise.interactive_started = Some(raise.started);
            }
            raise.started = now.0;
            raise.period = SOFT_RT_PERIOD_NS;
            self.set_coefficient(id, SOFT_RT);
        }
    }

    /// Whether the next request of queue `id` may raise it, or end that.
    pub(super) fn may_be_raised(&self, id: QueueId, now: Nanos) -> bool {
        let queue = self.queue(id);
        self.set.low_latency && (!queue.busy || !queue.sync && queue.is_sparse(now))
    }

    /// A backlogged async queue gets another request: raised if the last one is long ago.
    #[inline]
    pub(super) fn raise_async(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        if queue.sync {
            return;
        }
        if self.set.low_latency && self.features.raising && queue.is_sparse(now) {
            let period = self.rate.interactive_ns();
            if !self.is_raised(id) {
                self.queue_mut(id).raise.period = period;
                self.queue_mut(id).raise.started = now.0;
                self.queue_mut(id).raise.service = 0;
                self.set_coefficient(id, INTERACTIVE);
            }
        }
    }

    /// Ends raising; the weight drops at once.
    pub(super) fn end_raising(&mut self, id: QueueId, now: Nanos) {
        let raise = &mut self.queue_mut(id).raise;
        raise.period = 0;
        raise.started = now.0;
        raise.interactive_started = None;
        raise.backlog_started = now.0;
        raise.backlog_service = 0;
        self.set_coefficient(id, 1);
        let entity = self.queue(id).entity;
        self.forest.reweigh(entity);
        self.recount(id);
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

    /// A request of the queue in service was dispatched: is raising over?
    pub(super) fn update_raising(&mut self, id: QueueId, now: Nanos) {
        let coefficient = self.coefficient(id);
        if coefficient == 1 {
            return;
        }
        let queue = self.queue(id);
        let Queue { raise, in_large_burst, .. } = queue;
        let soft_rt = coefficient == SOFT_RT;
        let over = now.0 >= raise.started + raise.period;
        let served = !soft_rt && raise.service > INTERACTIVE_SERVICE;
        if *in_large_burst || served || (soft_rt && queue.is_totally_seeky()) {
            self.end_raising(id, now);
        } else if over {
            let interactive = self.rate.interactive_ns();
            let before = raise.interactive_started.filter(|at| soft_rt && now.0 < at + interactive);
            let Some(started) = before else { return self.end_raising(id, now) };
            let raise = &mut self.queue_mut(id).raise;
            raise.started = started;
            raise.period = interactive;
            raise.interactive_started = None;
            self.set_coefficient(id, INTERACTIVE);
            let entity = self.queue(id).entity;
            self.forest.reweigh(entity);
        }
    }

    /// Queue `id` has nothing queued at expiry, or its last request completed: when may its next
    /// batch begin and still be isochronous?
    pub(super) fn compute_soft_rt_next(&mut self, id: QueueId, now: Nanos) {
        let earliest = now.0 + self.set.slice_idle_ns + SOFT_RT_MARGIN_NS;
        let raise = &mut self.queue_mut(id).raise;
        let paced = raise.backlog_started.saturating_add(paced_ns(raise.backlog_service));
        raise.soft_rt_next = raise.soft_rt_next.max(paced).max(earliest);
    }

    /// Service begins: a soft real-time queue does not lose the time it waited.
    pub(super) fn excuse_waiting(&mut self, id: QueueId, now: Nanos) {
        if self.coefficient(id) != SOFT_RT {
            return;
        }
        let waited = now.0.saturating_sub(self.queue(id).waiting_since);
        let raise = &mut self.queue_mut(id).raise;
        raise.started = (raise.started + waited).min(now.0);
    }
}

/// How long `sectors` take at the most a soft real-time process asks for, ns. Whole seconds apart:
/// a backlog of terabytes in nanoseconds is more than a u64 holds.
fn paced_ns(sectors: u64) -> u64 {
    let (whole, rest) = (sectors / SOFT_RT_RATE, sectors % SOFT_RT_RATE);
    whole.saturating_mul(SECOND_NS).saturating_add(rest * SECOND_NS / SOFT_RT_RATE)
}

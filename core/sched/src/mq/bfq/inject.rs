//! Filling the hole while the device is kept for a queue without requests. Source:
//! docs/behaviour/bfq.md, section 9.
//!
//! How many requests of others may be in flight meanwhile is learnt from what they cost: the time
//! from a request's arrival at the empty queue to its completion, with and without them.

use weir_bio::{Nanos, SchedTag, SubmitterId};

use super::Bfq;
use super::entity::{IDLE, QueueId, RT};

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
    /// The request that begins it is still staged.
    #[inline]
    pub(super) fn is_arriving(&self) -> bool {
        self.arrived.is_some()
    }

    /// It ends with a request in the device.
    #[inline]
    pub(super) fn is_awaiting(&self) -> bool {
        self.awaited.is_some()
    }

    /// Whether it ends with this request.
    #[inline]
    pub(super) fn awaits(&self, tag: SchedTag) -> bool {
        self.awaited.is_some_and(|(awaited, _)| awaited == tag)
    }
}

/// What is learnt for one queue: how many requests of others may be in flight while it is empty.
/// Times in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Injection {
    pub(super) limit: u32,
    /// Service time with nothing else in flight; 0 while there is none.
    baseline: u64,
    /// When the limit last went down, or all was forgotten.
    decreased: u64,
}

/// How long the awaited request took, ns, and beside what.
#[derive(Clone, Copy, Debug)]
struct Took {
    ns: u64,
    /// Others' requests were injected meanwhile.
    injected: bool,
    /// Nothing else was in flight at its end.
    alone: bool,
    /// The most requests that were seen in flight.
    deepest: u32,
}

impl Injection {
    pub(super) fn new(now: Nanos) -> Injection {
        Injection { limit: 0, baseline: 0, decreased: now.0 }
    }

    /// Without a baseline the think time alone sets the limit.
    fn forget(&mut self, short_think: bool, now: Nanos) {
        *self = Injection { limit: u32::from(!short_think), ..Injection::new(now) };
    }

    /// The process thinks briefly from now on, or for long; true if the limit was set by that. A
    /// baseline says more of the queue than its think time.
    pub(super) fn think_changed(&mut self, short: bool, now: Nanos) -> bool {
        let aged = now.0 >= self.decreased + FORGET_SHORT_NS;
        let resets = self.baseline == 0 && (aged || !short);
        if resets {
            self.forget(short, now);
        }
        resets
    }

    fn is_stale(&self, now: Nanos) -> bool {
        now.0 >= self.decreased + FORGET_NS
    }

    /// Whether a request that arrives now at the empty queue tells something.
    fn measures(&self, in_flight: u32, injected: bool, now: Nanos) -> bool {
        let telling = in_flight == 0 || (self.baseline > 0 && injected);
        telling && now.0 >= self.decreased + SETTLE_NS
    }

    fn learn(&mut self, took: Took, now: Nanos) {
        let Took { ns, injected, alone, deepest } = took;
        if self.baseline > 0 && injected {
            if ns >= self.baseline + self.baseline / 2 {
                if self.limit > 0 {
                    self.limit -= 1;
                    self.decreased = now.0;
                }
            } else if self.limit <= deepest {
                self.limit += 1;
            }
        }
        if self.baseline == 0 && alone {
            self.limit = self.limit.max(1);
            self.baseline = ns;
        } else if self.baseline > 0 && (ns < self.baseline || alone && !injected) {
            self.baseline = ns;
        }
    }
}

impl Bfq {
    /// The queue that may give a request while queue `id`, in service, is empty.
    pub(super) fn choose_injected(&mut self, id: QueueId) -> Option<QueueId> {
        if !self.features.injection {
            return None;
        }
        let waiting = self.waiting_class()?;
        if let Some(found) = self.cooperating(id, waiting) {
            return Some(found);
        }
        let found = self.any_other(id, waiting)?;
        self.sample.injected = true;
        Some(found)
    }

    /// The highest class of which a queue waits for service; none for the idle class, whose
    /// requests would be more than its turns give it.
    fn waiting_class(&self) -> Option<usize> {
        let current = self.in_service.map(|id| self.forest[self.queue(id).entity].class);
        (RT..IDLE).find(|class| self.busy[*class] > u32::from(current == Some(*class)))
    }

    pub(super) fn can_inject(&self, id: QueueId, other: QueueId, waiting: usize) -> bool {
        let queue = self.queue(other);
        other != id
            && queue.busy
            && !queue.is_empty()
            && self.forest[queue.entity].class == waiting
            && self.next_charge(other) + self.owed(other) <= self.budget_left(other)
    }

    /// The process's own async requests, its waker, the queue it woke last: serving them brings
    /// its next request nearer, so no limit applies.
    fn cooperating(&self, id: QueueId, waiting: usize) -> Option<QueueId> {
        let queue = self.queue(id);
        let own = queue.owner.and_then(|owner| self.own_async_next(owner));
        let woken = queue.waker.woken_last();
        let mut candidates = own.into_iter().chain(queue.waker.waker()).chain(woken);
        candidates.find(|other| self.can_inject(id, *other, waiting))
    }

    /// The async queue of a process's group and priority, if the next request there is one of that
    /// process. The queue is shared: of another's write-back the process awaits nothing.
    fn own_async_next(&self, who: SubmitterId) -> Option<QueueId> {
        let id = self.own_async_queue(who)?;
        let next = self.queue(id).next?;
        (self.owner(next).context == who).then_some(id)
    }

    fn any_other(&self, id: QueueId, waiting: usize) -> Option<QueueId> {
        let queue = self.queue(id);
        let raised = self.is_raised(id);
        let long_think = !queue.think.is_short();
        let allowed =
            !self.idles_for_throughput(id) && (!raised || self.raised_busy > 1 || long_think);
        if !allowed || self.in_flight >= self.inject_limit(id) {
            return None;
        }
        let raised_only = raised && !long_think;
        let mut at = self.busy_last;
        while let Some(other) = at {
            at = self.queue(other).busy_before;
            if (raised_only && !self.is_raised(other)) || !self.can_inject(id, other, waiting) {
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

    /// A request arrives at the empty sync queue `id`, the only one of its process: perhaps the
    /// start of a measurement.
    pub(super) fn begin_sample(&mut self, id: QueueId, now: Nanos) {
        let queue = &mut self.queues[id.index()];
        if queue.injection.is_stale(now) {
            queue.injection.forget(queue.think.is_short(), now);
            self.sample = Sample::default();
        }
        let measures = queue.injection.measures(self.in_flight, self.sample.injected, now);
        if self.in_service == Some(id) && measures {
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
        let ns = now.0.saturating_sub(arrived).max(1);
        let deepest = (self.queueing.deepest() as u32).max(in_flight);
        let took = Took { ns, injected: self.sample.injected, alone: in_flight == 1, deepest };
        self.sample = Sample::default();
        self.queue_mut(id).injection.learn(took, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn known(limit: u32, baseline: u64) -> Injection {
        Injection { limit, baseline, decreased: 0 }
    }

    /// Baseline and limit after a request that took so long.
    #[test]
    fn a_request_that_others_slow_by_half_lowers_the_limit_and_any_other_raises_it() {
        let table: &[(Injection, Took, (u32, u64))] = &[
            // No baseline: the first one alone is it.
            (known(0, 0), took(5, false, true), (1, 5)),
            (known(0, 0), took(5, false, false), (0, 0)),
            (known(3, 0), took(5, true, true), (3, 5)),
            // With others: 1.5 times the baseline is too much.
            (known(2, 10), took(14, true, false), (3, 10)),
            (known(2, 10), took(15, true, false), (1, 10)),
            (known(0, 10), took(15, true, false), (0, 10)),
            (known(2, 10), took(9, true, false), (3, 9)),
            // The limit may be one more than what the device was seen to take.
            (known(4, 10), took(10, true, false), (5, 10)),
            (known(5, 10), took(10, true, false), (5, 10)),
            // Without others the baseline follows.
            (known(2, 10), took(20, false, true), (2, 20)),
            (known(2, 10), took(20, false, false), (2, 10)),
        ];
        for (before, took, (limit, baseline)) in table {
            let mut injection = *before;
            injection.learn(*took, Nanos(77));
            assert_eq!((injection.limit, injection.baseline), (*limit, *baseline), "{took:?}");
            let lower = injection.limit < before.limit;
            assert_eq!(injection.decreased, if lower { 77 } else { 0 }, "{took:?}");
        }
    }

    fn took(ns: u64, injected: bool, alone: bool) -> Took {
        Took { ns, injected, alone, deepest: 4 }
    }

    /// Whether a change of think time at this moment sets the limit, and to what.
    #[test]
    fn another_think_time_sets_the_limit_only_while_there_is_no_baseline() {
        let table = [
            (known(0, 0), false, 1, Some(1)),
            (known(1, 0), true, 99 * MS, None),
            (known(1, 0), true, 100 * MS, Some(0)),
            (known(4, 10), false, 500 * MS, None),
            (known(4, 10), true, 500 * MS, None),
        ];
        for (before, short, at, set) in table {
            let mut injection = before;
            assert_eq!(injection.think_changed(short, Nanos(at)), set.is_some(), "{before:?}");
            assert_eq!(injection.limit, set.unwrap_or(before.limit), "{before:?}");
        }
    }

    #[test]
    fn a_queue_idled_for_in_vain_of_which_nothing_is_known_lets_one_in() {
        // Limit and baseline, whether the device is kept, and for how long by now.
        for (limit, baseline, idles, ns, allowed) in [
            (0, 0, true, 8 * MS, 1),
            (0, 0, true, 8 * MS - 1, 0),
            (0, 0, false, 8 * MS, 0),
            (0, 5, true, 8 * MS, 0),
            (2, 0, true, 8 * MS, 2),
        ] {
            let limits = weir_bio::Limits::default();
            let setup =
                crate::Setup { limits, nr_requests: 64, hard_queues: 1, nomerges: 0, compat: "" };
            let mut bfq = Bfq::new(&setup);
            let start = Nanos::from_ms(5000);
            let id = bfq.own_queue(SubmitterId(0), weir_bio::IoPrio::NONE, start);
            bfq.queue_mut(id).injection = known(limit, baseline);
            bfq.idle_started = start;
            bfq.idle_until = idles.then_some(start + 8 * MS);
            bfq.last_now = start + ns;
            let case = (limit, baseline, idles, ns);
            assert_eq!(bfq.inject_limit(id), allowed, "{case:?}");
        }
    }

    #[test]
    fn what_was_injected_counts_for_a_measurement_only_while_something_is_in_flight() {
        for (in_flight, injected) in [(0, false), (1, true)] {
            let limits = weir_bio::Limits::default();
            let setup =
                crate::Setup { limits, nr_requests: 64, hard_queues: 1, nomerges: 0, compat: "" };
            let mut bfq = Bfq::new(&setup);
            let id = bfq.own_queue(SubmitterId(0), weir_bio::IoPrio::NONE, Nanos(0));
            bfq.queue_mut(id).injection = known(1, 5);
            bfq.sample.injected = true;
            (bfq.in_service, bfq.in_flight) = (Some(id), in_flight);
            bfq.begin_sample(id, Nanos(10 * MS));
            assert!(bfq.sample.is_arriving());
            assert_eq!(bfq.sample.injected, injected, "{in_flight} in flight");
        }
    }

    #[test]
    fn a_measurement_is_over_with_its_request_and_the_next_begins_anew() {
        let limits = weir_bio::Limits::default();
        let setup =
            crate::Setup { limits, nr_requests: 64, hard_queues: 1, nomerges: 0, compat: "" };
        let mut bfq = Bfq::new(&setup);
        let id = bfq.own_queue(SubmitterId(0), weir_bio::IoPrio::NONE, Nanos(0));
        let awaited = Some((SchedTag(3), 0));
        bfq.sample = Sample { arrived: None, awaited, injected: true };
        bfq.end_sample(id, 1, Nanos(40));
        assert_eq!(bfq.queue(id).injection.baseline, 40);
        assert!(!bfq.sample.is_awaiting() && !bfq.sample.injected);
        // Its tag is another request's now, which was faster and measures nothing.
        assert!(!bfq.sample.awaits(SchedTag(3)));
        bfq.end_sample(id, 1, Nanos(45));
        assert_eq!(bfq.queue(id).injection.baseline, 40);
    }

    #[test]
    fn nothing_is_measured_beside_others_before_a_baseline_nor_right_after_a_decrease() {
        let table = [
            (known(1, 0), 0, false, 10 * MS, true),
            (known(1, 0), 0, false, 10 * MS - 1, false),
            (known(1, 0), 1, true, 10 * MS, false),
            (known(1, 5), 1, true, 10 * MS, true),
            (known(1, 5), 1, false, 10 * MS, false),
        ];
        for (injection, in_flight, injected, at, measures) in table {
            let verdict = injection.measures(in_flight, injected, Nanos(at));
            assert_eq!(verdict, measures, "{injection:?} at {at}");
        }
    }
}

//! Which queue dispatches, whether it may, and which of its requests. Source:
//! docs/behaviour/cfq.md, section 7.

use weir_bio::{Nanos, Rq, SchedTag};

use super::Cfq;
use super::names::QueueId;

/// A slot of an async queue has so many requests per slice_async_rq and level.
const ASYNC_FACTOR: u64 = 2;
const LEVELS: u64 = 8;

/// The verdict on the queue in service.
enum Verdict {
    /// It dispatches.
    Serves,
    /// No queue dispatches: the device is kept for it.
    Waits,
    /// It goes; this queue is next, or the one whose turn it is.
    Goes(Option<QueueId>),
}

impl Cfq {
    /// One request, if a queue has one and may dispatch.
    pub(super) fn dispatch_one(&mut self, now: Nanos) -> Option<Rq> {
        if self.staged == 0 {
            return None;
        }
        let id = self.select(now)?;
        let late = self.late(id, now);
        if late.is_some() {
            self.queue_mut(id).slot.must_dispatch = true;
        }
        if !self.may_dispatch(id, now) {
            return None;
        }
        let tag = late.or(self.queue(id).next).expect("a queue that is selected has a request");
        let rq = self.take(tag, now);
        self.end_capped_slice(id, now);
        Some(rq)
    }

    fn select(&mut self, now: Nanos) -> Option<QueueId> {
        let Some(active) = self.active else { return self.choose(now) };
        match self.judge(active, now) {
            Verdict::Serves => Some(active),
            Verdict::Waits => None,
            Verdict::Goes(Some(next)) => {
                self.expire(false, now);
                self.set_active(next, now);
                Some(next)
            }
            Verdict::Goes(None) => {
                self.expire(false, now);
                self.choose(now)
            }
        }
    }

    fn judge(&mut self, id: QueueId, now: Nanos) -> Verdict {
        let queue = self.queue(id);
        let slot = queue.slot;
        let is_empty = queue.is_empty();
        if slot.waits_busy && !is_empty {
            return Verdict::Goes(None);
        }
        if slot.is_used(now) && !slot.must_dispatch {
            let alone = self.groups[queue.group].busy_queues == 1;
            // It was waited for until now, so its last answers are waited for as well.
            let waits = alone && is_empty && queue.in_flight > 0 && self.should_idle(id);
            return if waits { Verdict::Waits } else { self.group_verdict(id) };
        }
        if !is_empty {
            return Verdict::Serves;
        }
        if let Some(other) = self.close_cooperator(id) {
            self.set_up_sharing(id, other);
            return Verdict::Goes(Some(other));
        }
        if self.idle_until.is_some() {
            return Verdict::Waits;
        }
        let early = match slot.started_at {
            None => true,
            Some(start) => slot.ends_at.since(now) > now.since(start),
        };
        let queue = self.queue_mut(id);
        if queue.seeks.is_seeky() && queue.idle_window && early {
            (queue.deep, queue.idle_window) = (false, false);
        }
        if self.queue(id).in_flight > 0 && self.should_idle(id) {
            return Verdict::Waits;
        }
        self.group_verdict(id)
    }

    fn group_verdict(&self, id: QueueId) -> Verdict {
        if self.waits_for_group(id) { Verdict::Waits } else { Verdict::Goes(None) }
    }

    /// The oldest request if it is overdue; asked once in a slot.
    fn late(&mut self, id: QueueId, now: Nanos) -> Option<SchedTag> {
        let queue = self.queue_mut(id);
        if std::mem::replace(&mut queue.slot.fifo_checked, true) {
            return None;
        }
        let oldest = queue.fifo.oldest;
        (oldest != SchedTag::NONE && now >= self.node(oldest).deadline).then_some(oldest)
    }

    fn may_dispatch(&self, id: QueueId, now: Nanos) -> bool {
        let queue = self.queue(id);
        if queue.slot.must_dispatch {
            return true;
        }
        let [async_in_flight, sync_in_flight] = self.in_flight;
        if async_in_flight > 0 && self.should_idle(id) || !queue.sync && sync_in_flight > 0 {
            return false;
        }
        let in_flight = u64::from(queue.in_flight);
        let limit = self.in_flight_limit(id, now).min(self.async_limit(id, now));
        in_flight < limit
    }

    /// How many requests the queue may have in flight, for the sake of the other queues.
    pub(super) fn in_flight_limit(&self, id: QueueId, now: Nanos) -> u64 {
        let queue = self.queue(id);
        let in_flight = u64::from(queue.in_flight);
        if queue.is_idle_class() {
            return 1;
        }
        let half = (self.knobs.quantum / 2).max(1);
        if in_flight < half {
            return half;
        }
        if self.busy_queues == 1 || queue.sync && self.busy_sync_queues == 1 {
            return u64::MAX;
        }
        let ahead = self.knobs.slice_idle_ns.saturating_mul(in_flight);
        let nearly_used = queue.slot.started_at.is_none() || now + ahead > queue.slot.ends_at;
        if nearly_used { half } else { self.knobs.quantum }
    }

    /// Async requests come back one by one after a sync request was late.
    fn async_limit(&self, id: QueueId, now: Nanos) -> u64 {
        let queue = self.queue(id);
        if queue.sync || !self.knobs.low_latency {
            return u64::MAX;
        }
        let since = self.last_late_sync_ns.map_or(i64::MAX, |at| now.0 as i64 - at);
        // One may be in flight in any case.
        (since.max(0) as u64 / self.knobs.slice_sync_ns).max(1)
    }

    /// Ends the slot of an async queue that has had its number, and of any idle-class queue.
    pub(super) fn end_capped_slice(&mut self, id: QueueId, now: Nanos) {
        if self.active != Some(id) || self.busy_queues <= 1 {
            return;
        }
        let queue = self.queue(id);
        let levels = LEVELS - u64::from(queue.priority.level);
        let cap = ASYNC_FACTOR * self.knobs.slice_async_rq * levels;
        if queue.is_idle_class() || !queue.sync && queue.slot.dispatched >= cap {
            self.expire(false, now);
        }
    }
}

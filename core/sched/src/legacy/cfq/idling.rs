//! When an empty queue is waited for, and for how long. Source: docs/behaviour/cfq.md, section 5.

use weir_bio::{Flags, Nanos, Rq};

use super::names::QueueId;
use super::{Cfq, TICK_NS};

/// With so many staged requests a queue keeps the device busy however it jumps.
const DEEP: u32 = 4;

impl Cfq {
    /// Takes note of a request that was added: think times, seeks, and whether waiting pays.
    pub(super) fn note_arrival(&mut self, rq: &Rq, id: QueueId, now: Nanos) {
        let (at, place) = (self.queue(id).group, self.queue(id).place);
        let [slice_most, group_most] =
            [self.knobs.slice_idle_ns, self.knobs.group_idle_ns].map(|ns| ns.saturating_mul(2));
        if rq.is_sync() {
            let submitter = usize::from(rq.id.submitter().0);
            if let Some(process) = &mut self.processes[submitter] {
                process.think.sample(now, slice_most);
            }
            let (tree, _) = place.expect("a queue with a request is in a tree");
            self.groups[at].trees[tree.index()].think.sample(now, slice_most);
            self.groups[at].think.sample(now, group_most);
        }
        let rotational = self.limits.rotational;
        self.queue_mut(id).seeks.record(rq, rotational);
        self.update_idle_window(rq, id);
    }

    fn update_idle_window(&mut self, rq: &Rq, id: QueueId) {
        let queue = self.queue(id);
        if !queue.sync || queue.is_idle_class() {
            return;
        }
        let deep = queue.deep || queue.queued >= DEEP;
        let next = queue.next.map(|tag| &self.node(tag).rq);
        let idles = if next.is_some_and(is_not_waited_for)
            || queue.processes == 0
            || self.knobs.slice_idle_ns == 0
            || !deep && queue.seeks.is_seeky()
        {
            false
        } else {
            let process = &self.processes[usize::from(rq.id.submitter().0)];
            match process.as_ref().and_then(|process| process.think.mean_ns()) {
                Some(mean) => mean <= self.knobs.slice_idle_ns,
                None => queue.idle_window,
            }
        };
        let queue = self.queue_mut(id);
        (queue.deep, queue.idle_window) = (deep, idles);
    }

    /// Whether the device is kept for this queue when it has nothing to do.
    pub(super) fn should_idle(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        if self.knobs.slice_idle_ns == 0 || queue.is_idle_class() {
            return false;
        }
        if queue.idle_window && (self.limits.rotational || !self.is_queueing()) {
            return true;
        }
        let Some((tree, _)) = queue.place else { return false };
        let tree = &self.groups[queue.group].trees[tree.index()];
        let thinks_long = tree.think.exceeds(self.knobs.slice_idle_ns);
        queue.sync && tree.queues.len() == 1 && !thinks_long
    }

    /// Whether the queue's group would lose the device with it, and is worth waiting for.
    fn group_would_idle(&self, id: QueueId) -> bool {
        let group = &self.groups[self.queue(id).group];
        let idle = self.knobs.group_idle_ns;
        idle > 0 && group.busy_queues == 1 && !group.think.exceeds(idle)
    }

    /// Whether the device is kept for requests of the queue's group that are under way.
    pub(super) fn waits_for_group(&self, id: QueueId) -> bool {
        self.group_would_idle(id) && self.groups[self.queue(id).group].in_flight > 0
    }

    /// Starts the timer for the queue in service, whose last staged request was answered.
    pub(super) fn arm_idle_timer(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        let flash = !self.limits.rotational && self.is_queueing();
        if flash && self.knobs.group_idle_ns == 0 || queue.in_flight > 0 || queue.processes == 0 {
            return;
        }
        if let Some(mean) = self.active_think_ns()
            && queue.slot.ends_at.since(now) < mean
        {
            return;
        }
        let wait = if self.should_idle(id) {
            self.knobs.slice_idle_ns
        } else if self.group_would_idle(id) {
            self.knobs.group_idle_ns
        } else {
            return;
        };
        self.idle_until = Some(now + wait);
    }

    fn active_think_ns(&self) -> Option<u64> {
        let process = self.processes.get(usize::from(self.active_process?.0))?;
        process.as_ref()?.think.mean_ns()
    }

    /// Whether the only queue of a group waits at the end of its slice for one more request: the
    /// group would be put behind all others if it had none when it is charged.
    pub(super) fn should_wait_busy(&self, id: QueueId, now: Nanos) -> bool {
        let queue = self.queue(id);
        let group = &self.groups[queue.group];
        if !queue.is_empty()
            || group.busy_queues > 1
            || group.think.exceeds(self.knobs.group_idle_ns)
        {
            return false;
        }
        let left = queue.slot.ends_at.since(now);
        queue.slot.is_used(now)
            || self.active_think_ns().is_some_and(|mean| left < mean)
            || left <= TICK_NS
    }

    /// Runs the idle timer if its moment passed without a call, before the event at hand.
    pub(super) fn catch_up(&mut self, now: Nanos) {
        if let Some(at) = self.idle_until
            && at < now
        {
            self.idled_enough(at);
            self.kicked = true;
        }
    }

    /// The queue in service has been waited for.
    pub(super) fn idled_enough(&mut self, now: Nanos) {
        self.idle_until = None;
        let Some(id) = self.active else { return };
        let queue = self.queue(id);
        if queue.slot.must_dispatch {
            return;
        }
        if !queue.slot.is_used(now) {
            if !queue.is_empty() {
                return;
            }
            self.queue_mut(id).deep = false;
        }
        self.expire(false, now);
    }
}

/// Whether it is a sync write whose process does not continue with another one (no IDLE hint).
fn is_not_waited_for(rq: &Rq) -> bool {
    rq.op.is_write() && rq.is_sync() && !rq.flags.has(Flags::IDLE)
}

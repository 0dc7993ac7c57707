//! A request arrives. Source: docs/behaviour/bfq.md, sections 6.2 and 6.3.

use weir_bio::{Nanos, Rq, SubmitterId};

use crate::contract::{Absorbed, Merge};
use crate::staged::order::Spot;

use super::Bfq;
use super::entity::{IDLE, QueueId};
use super::inject::Sample;
use super::queue::Expiry;
use super::think::Request;

/// While the device is kept for throughput, a sole request smaller than this may wait for more to
/// merge with, sectors.
const SMALL: u32 = 32;
/// A queue returned in time within so many idle slices after its last completion.
const IN_TIME_SLICES: u64 = 3;

impl Bfq {
    /// Joins a bio to a staged request or inserts it at the tail, with one search for both where
    /// nothing else is to be done.
    #[inline(never)]
    pub(super) fn merge_or_insert(
        &mut self,
        rq: &Rq,
        now: Nanos,
        absorbed: &mut Absorbed,
    ) -> Merge {
        if let Some(id) = self.settled_queue(rq)
            && let Some(spot) = self.intake(id, now).lonely_spot(rq)
        {
            self.add(id, rq, spot, now);
            return Merge::No;
        }
        let (merge, stays) = self.merge_bio(rq, now);
        if merge == Merge::No {
            self.enqueue(rq, stays, now, absorbed);
        }
        merge
    }

    /// Adds a request to the queue of its process, or to staged ones of it. `stays` is a queue that
    /// was found to merge with no other for a request there at this moment.
    #[inline(never)]
    pub(super) fn enqueue(
        &mut self,
        rq: &Rq,
        stays: Option<QueueId>,
        now: Nanos,
        absorbed: &mut Absorbed,
    ) {
        let mut id = self.queue_for(rq, now);
        if stays != Some(id) {
            id = self.cooperate(rq.id.submitter(), id, rq.sector, now);
        }
        if !self.merge_request(id, rq, now, absorbed) {
            let spot = self.queue(id).order.spot(&self.nodes, rq.sector);
            self.add(id, rq, spot, now);
        }
    }

    /// Adds a request to its process's queue `id`, at this spot of its order.
    #[inline(always)]
    fn add(&mut self, id: QueueId, rq: &Rq, spot: Spot, now: Nanos) {
        // With this one.
        let outstanding = self.context_mut(rq.id.submitter()).outstanding + 1;
        let (was_empty, busy) = (self.queue(id).is_empty(), self.queue(id).busy);
        if self.queue(id).sync {
            self.observe_process(id, now);
            if was_empty {
                self.observe_return(id, outstanding, now);
            }
        }
        if busy {
            self.raise_async(id, now);
        }
        let is_next = self.intake(id, now).link(rq, spot);
        self.count_added(id, rq.id.submitter(), 1);
        self.note_moved(id);
        if !busy {
            self.become_busy(id, now);
        } else if is_next {
            self.next_changed(id);
        }
        if self.idle_until.is_some() && self.in_service == Some(id) {
            self.interrupt_idling(id, rq, now);
        }
    }

    /// Observes the process of the sync queue `id`, of which a request arrives.
    #[inline(always)]
    pub(super) fn observe_process(&mut self, id: QueueId, now: Nanos) {
        let slice_idle_ns = self.set.slice_idle_ns;
        let queue = self.queue_mut(id);
        let request = Request {
            idle: queue.is_empty() && queue.in_flight == 0,
            busy: queue.busy,
            last_end: queue.last_end,
            live: queue.processes > 0,
            slice_idle_ns,
        };
        if queue.think.observe(request, now) {
            self.turn_think_time(id, now);
        }
    }

    /// The process of queue `id` does not think as long as it did. That counts only where it is
    /// asked, and where it is known well enough.
    #[cold]
    fn turn_think_time(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        let class = self.forest[queue.entity].class;
        if class == IDLE || self.set.slice_idle_ns == 0 || queue.sharing.is_settling(now) {
            return;
        }
        let queue = self.queue_mut(id);
        let short = queue.think.turn();
        if queue.injection.think_changed(short, now) {
            self.sample = Sample::default();
        }
    }

    /// A request arrives at the empty sync queue `id`, whose process has `outstanding` ones.
    #[inline(never)]
    fn observe_return(&mut self, id: QueueId, outstanding: u32, now: Nanos) {
        self.look_for_waker(id, outstanding, now);
        if outstanding <= 1 {
            self.begin_sample(id, now);
        }
    }

    /// Counts requests of a process that were added to queue `id`.
    #[inline(always)]
    pub(super) fn count_added(&mut self, id: QueueId, who: SubmitterId, count: u32) {
        self.context_mut(who).outstanding += count;
        self.staged += count as usize;
        let queue = self.queue_mut(id);
        queue.queued += count;
        let entity = queue.entity;
        self.allocate(entity, count as i32);
    }

    /// The queue has no backlog and gets its first request.
    fn become_busy(&mut self, id: QueueId, now: Nanos) {
        let charge = self.next_charge(id);
        let own = self.own_max(id);
        let queue = self.queue_mut(id);
        let in_time_until = queue.last_end + IN_TIME_SLICES * self.set.slice_idle_ns;
        let queue = self.queue_mut(id);
        // A sync queue whose budget ended with its last request is owed what it was owed: it gets
        // another budget. An async one, which can always fill the device, begins anew.
        let last = match queue.left {
            Some(0) if queue.sync => Some(own),
            left => left.filter(|left| *left > 0),
        };
        let left = last.filter(|_| now.0 <= in_time_until).map(|left| left.min(own));
        queue.left = left;
        let mut budget = left.unwrap_or(own).max(charge);
        self.forgive_burst(id, now);
        let was_raised = self.is_raised(id);
        self.raise_on_arrival(id, now);
        if self.is_raised(id) && !was_raised {
            budget = budget.min(2 * self.min_budget()).max(charge);
        }
        let queue = self.queue_mut(id);
        queue.waiting_since = now.0;
        queue.first_served = None;
        let entity = queue.entity;
        self.forest.activate(entity, budget, left.is_some());
        self.enlist(id);
        self.head_woken(id);
        self.recount(id);
        self.consider_preemption(id, left.is_some(), now);
    }

    /// Counts queue `id` among the busy ones.
    fn enlist(&mut self, id: QueueId) {
        let last = self.busy_last.replace(id);
        self.turns += 1;
        let turn = self.turns;
        let queue = self.queue_mut(id);
        queue.busy = true;
        queue.busy_turn = turn;
        queue.busy_before = last;
        queue.busy_after = None;
        let entity = queue.entity;
        match last {
            Some(last) => self.queue_mut(last).busy_after = Some(id),
            None => self.busy_first = Some(id),
        }
        let entity = &self.forest[entity];
        self.busy[entity.class] += 1;
        self.raised_busy += u32::from(entity.coefficient > 1);
        self.note_moved(id);
    }

    /// Counts queue `id` among the busy ones no more.
    pub(super) fn delist(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue_mut(id);
        queue.busy = false;
        if queue.in_flight == 0 {
            queue.drained = Some(now.0);
        }
        let (entity, before, after) = (queue.entity, queue.busy_before, queue.busy_after);
        match before {
            Some(before) => self.queue_mut(before).busy_after = after,
            None => self.busy_first = after,
        }
        match after {
            Some(after) => self.queue_mut(after).busy_before = before,
            None => self.busy_last = before,
        }
        let entity = &self.forest[entity];
        self.busy[entity.class] -= 1;
        self.raised_busy -= u32::from(entity.coefficient > 1);
        self.note_moved(id);
    }

    /// Ends the service of another queue if `id`, which has just become busy, may go first. The
    /// time stamps then choose the next one; where these would choose the same group again, its
    /// queue keeps its turn.
    fn consider_preemption(&mut self, id: QueueId, in_time: bool, now: Nanos) {
        let Some(current) = self.in_service else { return };
        let coefficient = |id| self.forest[self.queue(id).entity].coefficient;
        let returns = in_time && coefficient(id) >= coefficient(current);
        let may = returns || self.outranks(id, current) || !self.should_idle(current);
        if may && self.forest.turns_at_root() {
            self.expire(current, Expiry::Preempted, now, false);
        }
    }

    /// Whether queue `a` has a higher class or weight than `b`; groups stand for their queues
    /// when they differ.
    fn outranks(&self, a: QueueId, b: QueueId) -> bool {
        let (x, y) = (self.queue(a).entity, self.queue(b).entity);
        if self.forest[x].class != self.forest[y].class {
            return self.forest[x].class < self.forest[y].class;
        }
        let same_group = self.forest[x].level == self.forest[y].level;
        let weight = |entity| {
            let parent = self.forest.parent(entity).filter(|_| !same_group);
            self.forest[parent.unwrap_or(entity)].weight
        };
        weight(x) > weight(y)
    }

    /// The queue for which the device is kept has a request.
    fn interrupt_idling(&mut self, id: QueueId, rq: &Rq, now: Nanos) {
        let late = now >= self.slot_deadline;
        let sole = self.queue(id).queued == 1;
        if sole && rq.sectors < SMALL && self.idles_for_throughput(id) && !late {
            return;
        }
        self.idle_until = None;
        if late {
            self.expire(id, Expiry::BudgetTimeout, now, false);
        }
    }
}

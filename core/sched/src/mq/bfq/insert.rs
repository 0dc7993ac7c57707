//! A request arrives. Source: the BFQ spec, A6, insert and the transition from idle to busy.

use weir_bio::{Nanos, Rq};

use super::Bfq;
use super::entity::QueueId;
use super::queue::{Expiry, Owner, TagState};

/// While the device is kept for throughput, a sole request smaller than this may wait for more to
/// merge with, sectors.
const SMALL: u32 = 32;
/// A queue returned in time within so many idle slices after its last completion.
const IN_TIME_SLICES: u64 = 3;

impl Bfq {
    /// Adds a request to its process's queue `id`.
    pub(super) fn add(&mut self, id: QueueId, rq: &Rq, now: Nanos) {
        self.observe_arrival(id, now);
        self.observe_position(id, rq.sector, rq.sectors);
        let who = rq.id.submitter();
        let context = self.context_mut(who);
        context.outstanding += 1;
        let outstanding = context.outstanding;
        let was_empty = self.queue(id).is_empty();
        if was_empty && self.queue(id).sync {
            self.look_for_waker(id, outstanding, now);
            self.begin_sample(id, now);
        }
        let next_changed = self.link(id, rq, now);
        if !self.queue(id).busy {
            self.become_busy(id, now);
        } else {
            self.raise_async(id, now);
            if was_empty {
                self.recount(id);
            }
            if next_changed {
                self.next_changed(id);
            }
        }
        self.queue_mut(id).last_insert = now.0;
        if self.in_service == Some(id) && self.idle_until.is_some() {
            self.interrupt_idling(id, rq, now);
        }
    }

    /// Puts the request into its node and the queue's order; whether it is now the next one.
    fn link(&mut self, id: QueueId, rq: &Rq, now: Nanos) -> bool {
        let tag = rq.tag;
        let expire = if rq.is_sync() { self.set.fifo_sync_ns } else { self.set.fifo_async_ns };
        let owner = self.owner_mut(tag);
        debug_assert_eq!(owner.state, TagState::Free, "tag {} is in use", tag.0);
        *owner = Owner { queue: id, context: rq.id.submitter(), state: TagState::Staged };
        let node = &mut self.nodes[tag];
        node.rq = *rq;
        node.deadline = Nanos(now.0.saturating_add(expire));
        self.orders[id.index()].insert(&mut self.nodes, tag);
        self.staged += 1;
        self.add_merge_target(tag);
        let queue = &mut self.queues[id.index()];
        queue.fifo.push(&mut self.nodes, tag);
        queue.queued += 1;
        let (entity, old) = (queue.entity, queue.next);
        let next = old.map_or(tag, |old| self.choose(old, tag, self.last_position));
        self.queue_mut(id).next = Some(next);
        self.forest[entity].allocated += 1;
        let level = self.forest[entity].level;
        self.allocate(level, 1);
        next == tag
    }

    /// The queue has no backlog and gets its first request.
    fn become_busy(&mut self, id: QueueId, now: Nanos) {
        let charge = self.next_charge(id);
        let own = self.own_max(id);
        let queue = self.queue_mut(id);
        let in_time_until = queue.last_end + IN_TIME_SLICES * self.set.slice_idle_ns;
        let queue = self.queue_mut(id);
        queue.left = queue.left.filter(|left| *left > 0 && now.0 <= in_time_until);
        let left = queue.left.map(|left| left.min(own));
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
        self.recount(id);
        self.consider_preemption(id, left.is_some(), now);
    }

    /// Counts queue `id` among the busy ones.
    fn enlist(&mut self, id: QueueId) {
        let last = self.busy_last.replace(id);
        let queue = self.queue_mut(id);
        queue.busy = true;
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
    }

    /// Ends the service of another queue if `id`, which has just become busy, may go first.
    /// Who does is then a matter of time stamps.
    fn consider_preemption(&mut self, id: QueueId, in_time: bool, now: Nanos) {
        let Some(current) = self.in_service else { return };
        let coefficient = |id| self.forest[self.queue(id).entity].coefficient;
        let returns = in_time && coefficient(id) >= coefficient(current);
        if returns || self.outranks(id, current) || !self.should_idle(current) {
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

//! Which request goes to the device, when a queue's service begins and when it ends. Source:
//! docs/behaviour/bfq.md, section 6.

use weir_bio::{Nanos, Rq, SchedTag};

use super::Bfq;
use super::budget::MOST_OWED_NS;
use super::entity::{IDLE, Kind, QueueId};
use super::inject::Sample;
use super::queue::{Expiry, Owner, TagState};
use super::raise::SOFT_RT;

impl Bfq {
    /// One request for the device, or none: nothing is queued, or the device is kept.
    #[inline(never)]
    pub(super) fn pick(&mut self, now: Nanos) -> Option<Rq> {
        if self.busy_first.is_none() || (self.set.strict && self.in_flight > 0) {
            return None;
        }
        let (id, tag, charge) = self.select(now)?;
        Some(self.serve(id, tag, charge, now))
    }

    /// The queue to serve now, its next request and what that counts as; ends and begins slots on
    /// the way.
    #[inline(always)]
    fn select(&mut self, now: Nanos) -> Option<(QueueId, SchedTag, u64)> {
        loop {
            let Some(id) = self.in_service else {
                self.begin_slot(now)?;
                continue;
            };
            if self.is_timed_out(id, now) {
                self.expire(id, Expiry::BudgetTimeout, now, false);
                continue;
            }
            if let Some(tag) = self.queue(id).next {
                let charge = self.charge_of(id, tag);
                if charge > self.budget_left(id) {
                    self.expire(id, Expiry::BudgetExhausted, now, false);
                    continue;
                }
                self.idle_until = None;
                return Some((id, tag, charge));
            }
            if self.idle_until.is_some() || self.is_worth_waiting(id, now) {
                let other = self.choose_injected(id)?;
                let tag = self.queue(other).next?;
                return Some((other, tag, self.charge_of(other, tag)));
            }
            self.expire(id, Expiry::NoMoreRequests, now, false);
        }
    }

    /// Whether queue `id`, in service and without requests, is to be waited for. Its timer is armed
    /// when its last request ends; if nothing is in flight, the queue had kept its turn while it
    /// was empty, and that turn has come before its next request.
    fn is_worth_waiting(&mut self, id: QueueId, now: Nanos) -> bool {
        let waits = self.should_idle(id);
        if waits && self.queue(id).in_flight == 0 {
            self.arm_idle_timer(id, now);
        }
        waits
    }

    /// Whether the slot is over by time and nothing speaks for going on.
    pub(super) fn is_timed_out(&self, id: QueueId, now: Nanos) -> bool {
        if now < self.slot_deadline {
            return false;
        }
        let budget = self.forest[self.queue(id).entity].budget;
        let much_left = self.budget_left(id) >= budget / 3;
        let about_to_idle = self.queue(id).is_empty() && self.should_idle(id);
        (self.idle_until.is_none() || much_left) && !about_to_idle
    }

    /// Chooses the next queue and begins its slot; none if no queue is busy.
    #[inline(never)]
    fn begin_slot(&mut self, now: Nanos) -> Option<QueueId> {
        let leaf = self.forest.select(now.0)?;
        let Kind::Queue(id) = self.forest[leaf].kind else {
            unreachable!("only queues are leaves")
        };
        let charge = self.next_charge(id);
        let entity = &mut self.forest[leaf];
        // It may have grown by a merge, or count for more than when the budget was given.
        entity.budget = entity.budget.max(entity.service + charge);
        let (coefficient, weight, base) = (entity.coefficient, entity.weight, entity.base);
        let factor = if coefficient == SOFT_RT { 1 } else { weight / u64::from(base) };
        self.in_service = Some(id);
        self.slot_started = now;
        self.device_time.turn(now);
        self.slot_deadline = now + self.set.timeout_ns.saturating_mul(factor);
        self.in_service_position = self.last_position;
        self.count_assigned_budget();
        self.excuse_waiting(id, now);
        let queue = self.queue_mut(id);
        queue.fifo_checked = false;
        queue.left = None;
        Some(id)
    }

    /// Takes a request out of queue `id` for the device, and charges it with `charge` sectors.
    #[inline(always)]
    pub(super) fn serve(&mut self, id: QueueId, tag: SchedTag, charge: u64, now: Nanos) -> Rq {
        let queue = &mut self.queues[id.index()];
        let leaf = queue.entity;
        self.forest.serve(leaf, charge);
        let entity = &mut self.forest[leaf];
        entity.budget = entity.budget.max(entity.service);
        let (raised, class) = (entity.coefficient > 1, entity.class);
        queue.raise.charge(charge, raised);
        queue.first_served.get_or_insert(now.0);
        queue.in_flight += 1;
        self.owners[usize::from(tag.0)].state = TagState::Dispatched;
        let rq = self.unlink(id, tag, now);
        if self.rate.dispatched(&rq, self.in_flight, now) {
            self.derive_max_budget();
        }
        if self.in_flight == 0 {
            self.device_time.begin(now);
        }
        self.in_flight += 1;
        self.note_moved(id);
        self.last_position = rq.end();
        if self.in_service == Some(id) {
            self.in_service_position = rq.end();
            self.continue_sample(tag);
            if raised {
                self.update_raising(id, now);
            }
            if class == IDLE && self.busy_total() > 1 {
                self.expire(id, Expiry::BudgetExhausted, now, false);
            }
        } else if self.queue(id).is_empty() {
            self.lose_backlog(id, now);
        } else {
            self.next_changed(id);
        }
        rq
    }

    /// A queue that is not in service has no request any more.
    pub(super) fn lose_backlog(&mut self, id: QueueId, now: Nanos) {
        self.delist(id, now);
        let queue = self.queue_mut(id);
        queue.left = None;
        let entity = queue.entity;
        self.forest.deactivate(entity);
        self.recount(id);
    }

    /// Ends the service of queue `id`. `timer_fired`: the idle timer did it.
    #[inline(never)]
    pub(super) fn expire(&mut self, id: QueueId, reason: Expiry, now: Nanos, timer_fired: bool) {
        debug_assert_eq!(self.in_service, Some(id));
        let leaf = self.queue(id).entity;
        let time = self.slot_time(id, now, timer_fired);
        self.device_time.turn(now);
        let spare = self.budget_left(id) >= self.forest[leaf].budget / 3;
        // Write-back that took long had the device's own queue before it, and is charged threefold.
        // A sequential queue shares bandwidth: the rate behind the budget may be that of larger
        // requests, merged while others were served, and no slot of its own then comes up to it.
        let queue = self.queue(id);
        let late = reason == Expiry::BudgetTimeout && spare && queue.sync && queue.seeks.is_seeky();
        let late = late && self.features.slow_detection;
        let by_time = !self.is_raised(id) && (time.slow || late);
        if by_time {
            self.charge_time(id, time.charged_ns);
        }
        let keeps_account = by_time && self.rotational;
        self.queue_mut(id).owed_ns = if keeps_account { time.rest_ns } else { 0 };
        self.last_slot = Some((reason, self.forest[leaf].service, self.forest[leaf].budget));
        let left = self.budget_left(id);
        self.judge_sharing(id);
        let empty = self.queue(id).is_empty();
        if empty && self.queue(id).in_flight == 0 {
            self.pace(id, now);
        }
        self.learn_budget(id, reason);
        // An empty queue that idling is to protect keeps its turn.
        let keeps_turn =
            reason == Expiry::Preempted && self.should_idle(id) && self.idles_for_guarantees(id);
        self.in_service = None;
        self.idle_until = None;
        self.sample = Sample::default();
        if empty && !keeps_turn {
            self.delist(id, now);
            let blocked = matches!(reason, Expiry::BudgetTimeout | Expiry::BudgetExhausted);
            self.queue_mut(id).left = (!blocked).then_some(left);
            self.forest.expire(leaf, None);
            self.recount(id);
            self.release(id, now);
        } else {
            let budget = self.own_max(id).max(self.next_charge(id));
            // Its class may be another one from this stamp on.
            self.busy[self.forest[leaf].class] -= 1;
            self.forest.expire(leaf, Some(budget));
            self.busy[self.forest[leaf].class] += 1;
            self.queue_mut(id).waiting_since = now.0;
            self.recount(id);
        }
    }

    /// The idle timer is due at `now`.
    pub(super) fn timer(&mut self, now: Nanos) {
        self.idle_until = None;
        let Some(id) = self.in_service else { return };
        if now >= self.slot_deadline {
            self.expire(id, Expiry::BudgetTimeout, now, true);
        } else if self.queue(id).is_empty() {
            self.expire(id, Expiry::TooIdle, now, true);
        }
    }

    /// Runs the timer if its moment has passed unnoticed, as of that moment. An event at the very
    /// moment comes before it.
    #[inline]
    pub(super) fn catch_up(&mut self, now: Nanos) {
        self.last_now = now;
        if let Some(due) = self.idle_until
            && due < now
        {
            self.timer(due);
            self.kick();
        }
    }

    /// The device answered a request, or the driver handed it back.
    #[inline(always)]
    pub(super) fn account_end(&mut self, tag: SchedTag, now: Nanos) {
        self.queueing.note_depth(self.in_flight as usize);
        if self.queueing.is_open() {
            self.queueing.sample(self.load());
        }
        let before = self.in_flight;
        self.in_flight -= 1;
        let Owner { queue: id, state, .. } = *self.owner(tag);
        assert_eq!(state, TagState::Dispatched, "tag {} ended and is not in the device", tag.0);
        if self.sample.awaits(tag) {
            self.end_sample(id, before, now);
        }
        self.forget_request(id, tag);
        if self.rate.completed(now) {
            self.derive_max_budget();
        }
        self.last_completion = now;
        let queue = &mut self.queues[id.index()];
        self.last_completed = Some(queue.handle(id));
        queue.in_flight -= 1;
        if self.in_service == Some(id) {
            self.device_time.own_end(now);
        } else if self.rotational {
            let ns = self.device_time.foreign_end(now) as i64;
            queue.owed_ns = (queue.owed_ns + ns).min(MOST_OWED_NS);
        }
        queue.last_end = now.0;
        queue.think.ended(now);
        if queue.in_flight == 0 && !queue.busy {
            queue.drained = Some(now.0);
            self.pace_at_end(id, now);
            self.recount(id);
            self.release(id, now);
        } else if self.in_service == Some(id) && (queue.is_empty() || now >= self.slot_deadline) {
            self.completed_in_service(id, now);
        }
    }

    #[inline(never)]
    fn completed_in_service(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        let (empty, drained) = (queue.is_empty(), queue.in_flight == 0);
        if empty && self.should_idle(id) {
            if drained {
                self.arm_idle_timer(id, now);
            }
        } else if self.is_timed_out(id, now) {
            self.expire(id, Expiry::BudgetTimeout, now, false);
        } else if empty {
            self.expire(id, Expiry::NoMoreRequests, now, false);
        }
    }

    /// A request's tag is no longer held for queue `id`.
    #[inline(always)]
    pub(super) fn forget_request(&mut self, id: QueueId, tag: SchedTag) {
        let owner = &mut self.owners[usize::from(tag.0)];
        owner.state = TagState::Free;
        // Its process has a place since it asked.
        let context = &mut self.contexts[usize::from(owner.context.0)];
        context.outstanding = context.outstanding.saturating_sub(1);
        self.allocate(self.queues[id.index()].entity, -1);
    }
}

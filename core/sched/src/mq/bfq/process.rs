//! Processes (the contexts that issue requests) and the queues their requests go to. Source:
//! docs/behaviour/bfq.md, sections 1, 2 and 15.2.

use weir_bio::{Class, GroupId, IoPrio, Nanos, Rq, SubmitterId};

use crate::staged::order::Order;

use super::Bfq;
use super::entity::{BE, IDLE, Kind, LevelId, QueueId, RT};
use super::join::Saved;
use super::queue::{Expiry, Queue};
use super::sharing::Step;

/// Level of a process that set none.
const DEFAULT_LEVEL: u8 = 4;
/// Level of the idle class, whatever the process set.
const IDLE_LEVEL: u8 = 7;

/// A process, at the index of its submitter.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) sync: Option<QueueId>,
    /// The group its last request named; none before the first.
    pub(super) group: Option<GroupId>,
    pub(super) level: LevelId,
    /// That of its last request, and that which its sync queue was told last: an async request
    /// says nothing of the sync ones.
    pub(super) ioprio: IoPrio,
    pub(super) sync_ioprio: IoPrio,
    /// Requests inserted and not completed.
    pub(super) outstanding: u32,
    /// Its own queue's state while it shares one, which few do.
    pub(super) saved: Option<Box<Saved>>,
    /// The queue to merge with for good if nothing speaks against it later.
    pub(super) stable_target: Option<QueueId>,
}

impl Context {
    fn new() -> Context {
        Context {
            sync: None,
            group: None,
            level: LevelId::ROOT,
            ioprio: IoPrio::NONE,
            sync_ioprio: IoPrio::NONE,
            outstanding: 0,
            saved: None,
            stable_target: None,
        }
    }
}

/// Class as a tree index, and level, of a priority.
pub(super) fn class_and_level(ioprio: IoPrio) -> (usize, u8) {
    match ioprio.class() {
        Class::RealTime => (RT, ioprio.level()),
        Class::BestEffort => (BE, ioprio.level()),
        Class::None => (BE, DEFAULT_LEVEL),
        Class::Idle => (IDLE, IDLE_LEVEL),
    }
}

/// Weight of a level: 80 for level 0 down to 10 for level 7.
pub(super) fn weight_of_level(level: u8) -> u32 {
    (8 - u32::from(level)) * 10
}

impl Bfq {
    pub(super) fn context_mut(&mut self, context: SubmitterId) -> &mut Context {
        let at = usize::from(context.0);
        if at >= self.contexts.len() {
            self.contexts.resize_with(at + 1, Context::new);
        }
        &mut self.contexts[at]
    }

    /// The queue a request goes to; made, moved, split or followed to as its process demands.
    pub(super) fn queue_for(&mut self, rq: &Rq, now: Nanos) -> QueueId {
        let who = rq.id.submitter();
        let context = self.context_mut(who);
        if context.group != Some(rq.group) {
            self.change_group(who, rq.group, now);
        }
        if !rq.is_sync() {
            let (class, level) = class_and_level(rq.ioprio);
            let group = self.context_mut(who).level;
            self.context_mut(who).ioprio = rq.ioprio;
            return self.async_queue(group, class, level, now);
        }
        let context = self.context_mut(who);
        context.ioprio = rq.ioprio;
        let changed = std::mem::replace(&mut context.sync_ioprio, rq.ioprio) != rq.ioprio;
        let Some(id) = context.sync else { return self.new_sync_queue(who, rq.ioprio, now) };
        if self.queue(id).step() == Step::Stays && !changed {
            return id;
        }
        let id = self.follow(who, id, now);
        let id = self.part(who, id, now);
        if changed {
            self.set_priority(id, rq.ioprio);
        }
        id
    }

    /// The queue a request goes to, if that is all there is to know: nothing is to be made, moved
    /// or merged, and its process is as it was.
    #[inline(always)]
    pub(super) fn settled_queue(&self, rq: &Rq) -> Option<QueueId> {
        let context = self.contexts.get(usize::from(rq.id.submitter().0))?;
        if context.group != Some(rq.group) || context.ioprio != rq.ioprio {
            return None;
        }
        let id = match rq.is_sync() {
            true if context.sync_ioprio == rq.ioprio => context.sync?,
            true => return None,
            false => self.own_async_queue(rq.id.submitter())?,
        };
        let stays = self.queue(id).step() == Step::Stays && !self.merging_pays();
        stays.then_some(id)
    }

    /// The queue a bio would go to, if it exists; nothing changes.
    pub(super) fn queue_now(&self, bio: &Rq) -> Option<QueueId> {
        let context = self.contexts.get(usize::from(bio.id.submitter().0))?;
        if context.group != Some(bio.group) {
            return None;
        }
        if bio.is_sync() {
            return context.sync;
        }
        let (class, level) = class_and_level(bio.ioprio);
        self.find_async_queue(context.level, class, level)
    }

    /// The async queue of a process's group and priority, if it exists.
    pub(super) fn own_async_queue(&self, who: SubmitterId) -> Option<QueueId> {
        let context = &self.contexts[usize::from(who.0)];
        let (class, level) = class_and_level(context.ioprio);
        self.find_async_queue(context.level, class, level)
    }

    /// Lets a priority count from the queue's next stamp.
    pub(super) fn set_priority(&mut self, id: QueueId, ioprio: IoPrio) {
        let (class, level) = class_and_level(ioprio);
        let queue = self.queue_mut(id);
        queue.level = level;
        let entity = queue.entity;
        self.forest[entity].wanted_class = class;
        self.forest[entity].wanted_base = weight_of_level(level);
    }

    fn change_group(&mut self, who: SubmitterId, group: GroupId, now: Nanos) {
        let level = self.level_of(group);
        let context = self.context_mut(who);
        context.group = Some(group);
        if std::mem::replace(&mut context.level, level) == level {
            return;
        }
        let Some(id) = context.sync else { return };
        if self.queue(id).owner == Some(who) {
            self.move_queue(id, level, now);
        } else {
            self.leave_queue(who, now);
        }
    }

    pub(super) fn new_queue(
        &mut self,
        group: LevelId,
        class: usize,
        level: u8,
        sync: bool,
        now: Nanos,
    ) -> QueueId {
        let id = self.free_queues.pop().unwrap_or(QueueId(self.queues.len() as u32));
        let entity = self.forest.add(Kind::Queue(id), group, class, weight_of_level(level));
        self.births += 1;
        let order = Order::new(self.nr_requests);
        let mut queue = Queue::new(entity, self.births, sync, level, order, now);
        queue.max_budget = self.max_budget * 2 / 3;
        match self.queues.get_mut(id.index()) {
            // It may still wait to be placed in the index by position.
            Some(old) => {
                queue.moved = old.moved;
                std::mem::swap(&mut queue.order, &mut old.order);
                *old = queue;
            }
            None => self.queues.push(queue),
        }
        id
    }

    /// A queue of its own for `who`'s sync requests.
    pub(super) fn own_queue(&mut self, who: SubmitterId, ioprio: IoPrio, now: Nanos) -> QueueId {
        let (class, level) = class_and_level(ioprio);
        let group = self.context_mut(who).level;
        let id = self.new_queue(group, class, level, true, now);
        let queue = self.queue_mut(id);
        queue.owner = Some(who);
        queue.processes = 1;
        self.context_mut(who).sync = Some(id);
        id
    }

    fn new_sync_queue(&mut self, who: SubmitterId, ioprio: IoPrio, now: Nanos) -> QueueId {
        let id = self.own_queue(who, ioprio, now);
        self.join_burst(id, now);
        self.merge_at_creation(who, id, now)
    }

    /// `who` sends nothing more to its sync queue.
    pub(super) fn leave_queue(&mut self, who: SubmitterId, now: Nanos) {
        let context = self.context_mut(who);
        context.saved = None;
        if let Some(target) = context.stable_target.take() {
            self.drop_reference(target, now);
        }
        let Some(id) = self.context_mut(who).sync.take() else { return };
        let queue = self.queue_mut(id);
        queue.processes -= 1;
        queue.owner = None;
        if queue.processes == 0 {
            self.leave_burst(id);
            // No process is left to ask for more, so the device is not kept for it.
            if self.in_service == Some(id) && self.queue(id).is_empty() {
                self.expire(id, Expiry::NoMoreRequests, now, false);
            }
        }
        self.release(id, now);
    }

    pub(super) fn drop_reference(&mut self, id: QueueId, now: Nanos) {
        self.queue_mut(id).references -= 1;
        self.release(id, now);
    }

    /// Frees queue `id` if it has no process, no request and no reference any more.
    pub(super) fn release(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        let waits_in_vain = queue.busy && queue.processes == 0 && queue.is_empty();
        if waits_in_vain && self.in_service != Some(id) {
            // It kept its turn while empty, for processes that are gone.
            self.lose_backlog(id, now);
        }
        let queue = self.queue(id);
        let used = !queue.alive || queue.processes > 0 || queue.references > 0;
        if used || queue.busy || !queue.is_empty() || queue.in_flight > 0 {
            return;
        }
        debug_assert!(queue.counted.is_none() && !queue.pending, "counted without requests");
        self.leave_wakers(id);
        self.leave_burst(id);
        let entity = self.queue(id).entity;
        self.forest.forget(entity);
        self.forest.free(entity);
        let queue = self.queue_mut(id);
        queue.alive = false;
        let target = queue.sharing.end();
        self.free_queues.push(id);
        if let Some(target) = target {
            self.drop_reference(target, now);
        }
    }
}

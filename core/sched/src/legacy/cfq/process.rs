//! Which queue a request goes to: its process's, or the async one of its group and priority.

use weir_bio::{GroupId, Nanos, Rq, SubmitterId};

use super::Cfq;
use super::names::{GroupIndex, QueueId};
use super::queue::{Priority, Queue};
use crate::fair::nearest::is_favoured;
use crate::fair::think_time::ThinkTime;
use crate::staged::order::Order;

/// The state of an issuing context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    /// Where its sync requests go.
    pub(super) queue: Option<QueueId>,
    pub(super) think: ThinkTime,
    /// The group it was last in, by both names.
    group: (GroupId, GroupIndex),
}

impl Cfq {
    /// The queue `rq` goes to, made if need be; priorities and groups are those it brings.
    pub(super) fn queue_for(&mut self, rq: &Rq, now: Nanos) -> QueueId {
        let group = self.group_of(rq, now);
        let own = Priority::of(rq.ioprio);
        let id = match rq.is_sync() {
            true => self.sync_queue(rq.id.submitter(), group, own),
            false => self.async_queue(group, own),
        };
        self.set_priority(id, own, is_favoured(rq));
        id
    }

    /// The queue a bio would go to as things are; nothing is made or moved.
    pub(super) fn present_queue(&self, bio: &Rq) -> Option<QueueId> {
        if bio.is_sync() {
            let process = self.processes.get(usize::from(bio.id.submitter().0))?;
            return process.as_ref()?.queue;
        }
        let group = self.groups.known(bio.group)?;
        self.groups[group].async_queues[Priority::of(bio.ioprio).async_index()]
    }

    fn process_mut(&mut self, submitter: SubmitterId) -> &mut Process {
        let at = usize::from(submitter.0);
        self.processes[at].as_mut().expect("a process that sent a request is known")
    }

    fn group_of(&mut self, rq: &Rq, now: Nanos) -> GroupIndex {
        let at = usize::from(rq.id.submitter().0);
        if self.processes.len() <= at {
            self.processes.resize(at + 1, None);
        }
        if let Some(process) = &self.processes[at]
            && process.group.0 == rq.group
        {
            return process.group.1;
        }
        let group = self.groups.find(rq.group);
        let known = (rq.group, group);
        match &mut self.processes[at] {
            Some(process) => process.group = known,
            None => {
                let think = ThinkTime::new(now);
                self.processes[at] = Some(Process { queue: None, think, group: known });
            }
        }
        group
    }

    fn sync_queue(&mut self, process: SubmitterId, group: GroupIndex, own: Priority) -> QueueId {
        if let Some(id) = self.process_mut(process).queue {
            let queue = self.queue(id);
            let splits = queue.shared && queue.splits;
            if queue.group != group || splits && queue.processes > 1 {
                self.leave_queue(process);
            } else if splits {
                let queue = self.queue_mut(id);
                (queue.shared, queue.splits) = (false, false);
            }
        }
        match self.process_mut(process).queue {
            Some(id) => self.follow_redirects(process, id),
            None => {
                let id = self.make_queue(Queue::new(true, group, own));
                self.join_queue(process, id);
                id
            }
        }
    }

    fn follow_redirects(&mut self, process: SubmitterId, from: QueueId) -> QueueId {
        let mut to = from;
        while let Some(further) = self.queue(to).redirect {
            to = further;
        }
        if to != from {
            self.queue_mut(to).shared = true;
            self.join_queue(process, to);
        }
        to
    }

    fn async_queue(&mut self, group: GroupIndex, own: Priority) -> QueueId {
        let at = own.async_index();
        if let Some(id) = self.groups[group].async_queues[at] {
            return id;
        }
        let id = self.make_queue(Queue::new(false, group, own));
        self.groups[group].async_queues[at] = Some(id);
        id
    }

    fn set_priority(&mut self, id: QueueId, own: Priority, favoured: bool) {
        let priority = if favoured { own.boosted() } else { own };
        let queue = self.queue_mut(id);
        if (queue.own, queue.priority) != (own, priority) {
            (queue.own, queue.priority) = (own, priority);
            self.update_close(id);
        }
    }

    fn make_queue(&mut self, queue: Queue) -> QueueId {
        let Some(id) = self.free_queues.pop() else {
            self.queues.push(queue);
            self.orders.push(Order::new(self.nodes.len() as u16));
            return QueueId(self.queues.len() as u32 - 1);
        };
        // Its order is empty, and used again.
        *self.queue_mut(id) = queue;
        id
    }

    fn join_queue(&mut self, process: SubmitterId, id: QueueId) {
        // First, so that the way there does not end with the last process that leaves.
        self.queue_mut(id).processes += 1;
        self.leave_queue(process);
        self.process_mut(process).queue = Some(id);
    }

    fn leave_queue(&mut self, process: SubmitterId) {
        let Some(id) = self.process_mut(process).queue.take() else { return };
        let queue = self.queue_mut(id);
        queue.processes -= 1;
        if queue.processes == 0
            && let Some(to) = queue.redirect.take()
        {
            self.queue_mut(to).redirected_here -= 1;
            self.release(to);
        }
        self.release(id);
    }

    /// A process is gone. Its queue lives until what it sent has been served.
    pub(super) fn process_ended(&mut self, process: SubmitterId, now: Nanos) {
        let at = usize::from(process.0);
        let Some(Some(known)) = self.processes.get(at).copied() else { return };
        if let Some(id) = known.queue
            && self.active == Some(id)
        {
            self.expire(false, now);
            self.kicked = true;
        }
        self.leave_queue(process);
        self.processes[at] = None;
    }

    /// Frees a queue that has no process, no request and no reference any more.
    pub(super) fn release(&mut self, id: QueueId) {
        let queue = self.queue(id);
        if self.active == Some(id) || queue.free || !queue.is_abandoned() {
            return;
        }
        assert!(queue.redirect.is_none(), "a queue without processes redirects nobody");
        self.queue_mut(id).free = true;
        self.free_queues.push(id);
    }
}

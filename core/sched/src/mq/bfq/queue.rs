//! The queue: a process's sync requests, or a group's async requests of one priority.

use weir_bio::{Nanos, Rq, SchedTag, SubmitterId};

use crate::fair::nearest::{BackSeek, Reach};
use crate::staged::Fifo;
use crate::staged::node::Node;
use crate::staged::order::Order;

use super::Bfq;
use super::entity::{EntityId, QueueId};
use super::inject::Injection;
use super::raise::Raise;
use super::seeks::{SeekHistory, is_seek};
use super::sharing::{Sharing, Step};
use super::think::Think;
use super::tunables::Settings;
use super::waker::Waker;

/// The queue of a tag's request and its state, at the index of the tag. A staged request has a node
/// as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) queue: QueueId,
    pub(super) context: SubmitterId,
    pub(super) state: TagState,
}

impl Owner {
    pub(super) const NOBODY: Owner =
        Owner { queue: QueueId(0), context: SubmitterId(0), state: TagState::Free };
}

/// Where a tag's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagState {
    /// Nowhere: the tag is free.
    Free,
    /// In its queue.
    Staged,
    /// In the device, for its queue.
    Dispatched,
}

/// Why a queue's service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The next request does not fit in what is left of the budget.
    BudgetExhausted,
    /// It held the device longer than `timeout_sync` allows.
    BudgetTimeout,
    /// It has no request, and waiting for one does not pay.
    NoMoreRequests,
    /// It has no request, and none came while the device was kept for it.
    TooIdle,
    /// Another queue goes first.
    Preempted,
}

/// A queue that may be gone by the time it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) queue: QueueId,
    pub(super) birth: u64,
}

/// A queue: the requests of one process, of processes that share it, or of the async requests of a
/// priority. Times in ns.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) entity: EntityId,
    /// Tells it from another one that had its place before.
    pub(super) birth: u64,
    pub(super) sync: bool,
    /// Not in the free list.
    pub(super) alive: bool,
    /// The process it belongs to alone; none for async and shared queues.
    pub(super) owner: Option<SubmitterId>,
    /// Processes whose requests go here; async queues have none of their own.
    pub(super) processes: u32,
    /// Other references to this queue: other queues, contexts, a group's table.
    pub(super) references: u32,
    /// Priority level, 0..=7.
    pub(super) level: u8,

    /// Requests queued, and their order by sector.
    pub(super) queued: u32,
    pub(super) order: Order,
    pub(super) next: Option<SchedTag>,
    pub(super) fifo: Fifo,
    pub(super) in_flight: u32,
    /// In a tree with backlog, or in service.
    pub(super) busy: bool,
    /// Neighbours in the list of busy queues.
    pub(super) busy_before: Option<QueueId>,
    pub(super) busy_after: Option<QueueId>,
    /// When it became busy, as a number in the order of that list.
    pub(super) busy_turn: u64,
    /// Its place in the index by position may be out of date.
    pub(super) moved: bool,
    /// Under which weight it is counted for the symmetry test.
    pub(super) counted: Option<u8>,
    /// Counted among those of its group that are busy or have requests in flight.
    pub(super) pending: bool,
    /// The FIFO has been looked at in this slot.
    pub(super) fifo_checked: bool,

    /// The most it is given at once, sectors.
    pub(super) max_budget: u64,
    /// The budget left when it last expired, if it expired for want of requests.
    pub(super) left: Option<u64>,
    /// What its requests took of the device since its last slot, ns; its next slot counts for it.
    /// Below 0 is what it was charged for already.
    pub(super) owed_ns: i64,
    /// Since when it waits for service.
    pub(super) waiting_since: u64,

    pub(super) seeks: SeekHistory,
    pub(super) think: Think,
    /// When its last request completed.
    pub(super) last_end: u64,
    /// End of the last request inserted; 0 if there was none.
    pub(super) position: u64,
    pub(super) last_insert: u64,
    /// When it last had nothing queued and nothing in flight; none for a new queue.
    pub(super) drained: Option<u64>,
    pub(super) born: u64,
    /// When it was first served since it last became busy.
    pub(super) first_served: Option<u64>,

    pub(super) raise: Raise,
    pub(super) injection: Injection,
    pub(super) waker: Waker,
    pub(super) in_large_burst: bool,
    pub(super) sharing: Sharing,
}

impl Queue {
    pub(super) fn new(
        entity: EntityId,
        birth: u64,
        sync: bool,
        level: u8,
        order: Order,
        now: Nanos,
    ) -> Queue {
        Queue {
            entity,
            birth,
            sync,
            alive: true,
            owner: None,
            processes: 0,
            references: 0,
            level,
            queued: 0,
            order,
            next: None,
            fifo: Fifo::EMPTY,
            in_flight: 0,
            busy: false,
            busy_before: None,
            busy_after: None,
            busy_turn: 0,
            moved: false,
            counted: None,
            pending: false,
            fifo_checked: false,
            max_budget: 0,
            left: None,
            owed_ns: 0,
            waiting_since: now.0,
            seeks: SeekHistory::new(),
            think: Think::new(now),
            last_end: now.0,
            position: 0,
            last_insert: now.0,
            drained: None,
            born: now.0,
            first_served: None,
            raise: Raise::new(now),
            injection: Injection::new(now),
            waker: Waker::default(),
            in_large_burst: false,
            sharing: Sharing::default(),
        }
    }

    pub(super) fn handle(&self, id: QueueId) -> Handle {
        Handle { queue: id, birth: self.birth }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next.is_none()
    }

    /// What the process of its next request does first.
    #[inline(always)]
    pub(super) fn step(&self) -> Step {
        self.sharing.step(self.owner.is_some(), self.processes)
    }

    /// Observes where one of its requests lies.
    #[inline]
    pub(super) fn observe_position(&mut self, rq: &Rq, rotational: bool) {
        self.seeks.note(is_seek(self.position, rq.sector, rq.sectors, rotational));
        self.position = rq.end();
    }

    /// All of the last 32 requests were far from the one before.
    pub(super) fn is_totally_seeky(&self) -> bool {
        self.seeks.is_full()
    }
}

impl Bfq {
    #[inline]
    pub(super) fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[id.index()]
    }

    #[inline]
    pub(super) fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        &mut self.queues[id.index()]
    }

    #[inline]
    pub(super) fn node(&self, tag: SchedTag) -> &Node {
        &self.nodes[tag.index()]
    }

    #[inline]
    pub(super) fn node_mut(&mut self, tag: SchedTag) -> &mut Node {
        &mut self.nodes[tag.index()]
    }

    #[inline]
    pub(super) fn owner(&self, tag: SchedTag) -> &Owner {
        &self.owners[usize::from(tag.0)]
    }

    /// The queue a handle names, if it still is that one.
    pub(super) fn resolve(&self, handle: Handle) -> Option<QueueId> {
        let queue = self.queue(handle.queue);
        (queue.alive && queue.birth == handle.birth).then_some(handle.queue)
    }

    /// Of two requests of one queue, the one to serve first with the head at sector `last` (1.1).
    #[inline]
    pub(super) fn choose(&self, a: SchedTag, b: SchedTag, last: u64) -> SchedTag {
        self.set.choose(&self.nodes, a, b, last)
    }

    /// Puts `tag` right before `other` in the FIFO, and gives it that one's deadline.
    pub(super) fn fifo_move_before(&mut self, id: QueueId, tag: SchedTag, other: SchedTag) {
        let fifo = &mut self.queues[id.index()].fifo;
        fifo.remove(&mut self.nodes, tag);
        fifo.push_before(&mut self.nodes, tag, other);
        self.nodes[tag.index()].deadline = self.nodes[other.index()].deadline;
    }

    /// Takes a staged request out of its queue's order and FIFO, and finds the one that is next
    /// when it was (1.1, 1.2).
    #[inline(always)]
    pub(super) fn unlink(&mut self, id: QueueId, tag: SchedTag, now: Nanos) -> Rq {
        let Bfq { queues, nodes, set, .. } = self;
        let queue = &mut queues[id.index()];
        queue.order.remove(nodes, tag);
        queue.fifo.remove(nodes, tag);
        queue.queued -= 1;
        let node = &nodes[tag.index()];
        if queue.next == Some(tag) {
            queue.next = match queue.overdue(nodes, now) {
                None => set.successor(nodes, &queue.order, node),
                overdue => overdue,
            };
        }
        let rq = node.rq;
        self.drop_merge_target(tag);
        self.staged -= 1;
        rq
    }
}

impl Queue {
    /// The oldest request if its time has come; looked at once in a slot.
    #[inline]
    fn overdue(&mut self, nodes: &[Node], now: Nanos) -> Option<SchedTag> {
        let oldest = self.fifo.oldest;
        let checked = std::mem::replace(&mut self.fifo_checked, true);
        let overdue = !checked && oldest != SchedTag::NONE && now >= nodes[oldest.index()].deadline;
        overdue.then_some(oldest)
    }
}

impl Settings {
    /// How a request lies to the head.
    #[inline]
    pub(super) fn reach(&self, node: &Node, head: u64) -> Reach {
        Reach::of(node.band, node.rq.sector, head, self.back_seek())
    }

    fn back_seek(&self) -> BackSeek {
        BackSeek { max_sectors: self.back_seek_sectors, penalty: self.back_seek_penalty }
    }

    #[inline]
    fn choose(&self, nodes: &[Node], a: SchedTag, b: SchedTag, last: u64) -> SchedTag {
        let [of_a, of_b] = [a, b].map(|tag| self.reach(&nodes[tag.index()], last));
        if of_a.is_before(of_b) { a } else { b }
    }

    /// The request to serve after `gone`, which is no longer in `order`.
    #[inline(always)]
    pub(super) fn successor(&self, nodes: &[Node], order: &Order, gone: &Node) -> Option<SchedTag> {
        let Node { before, after, rq: Rq { sector, .. }, .. } = *gone;
        let after = match after {
            SchedTag::NONE => order.first()?,
            after => after,
        };
        if before == SchedTag::NONE || before == after {
            return Some(after);
        }
        // The ordinary case is settled at a glance: one is far behind.
        let (next, last) = (&nodes[after.index()], &nodes[before.index()]);
        let far = last.rq.sector.saturating_add(self.back_seek_sectors) < sector;
        if far && next.band == last.band && next.rq.sector >= sector {
            return Some(after);
        }
        Some(self.choose(nodes, after, before, sector))
    }
}

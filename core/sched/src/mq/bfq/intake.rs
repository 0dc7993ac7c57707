//! Adding requests to one queue: the parts of the scheduler that it takes, at hand for as many as
//! come. Source: docs/behaviour/bfq.md, sections 14 and 16.1.

use weir_bio::{Nanos, Rq, SchedTag};

use crate::fair::nearest::{Reach, rank};
use crate::hash::MergeHash;
use crate::staged::node::Node;
use crate::staged::order::Spot;

use super::Bfq;
use super::entity::QueueId;
use super::queue::{Owner, Queue, TagState};
use super::tunables::Settings;

/// What it takes to add requests to one queue at one moment.
pub(super) struct Intake<'a> {
    id: QueueId,
    now: Nanos,
    queue: &'a mut Queue,
    nodes: &'a mut [Node],
    owners: &'a mut [Owner],
    hash: &'a mut MergeHash,
    last_merge: &'a mut Option<SchedTag>,
    set: &'a Settings,
    nomerges: u8,
    rotational: bool,
    /// Where the head is, and how the queue's next request lies to it.
    head: u64,
    next: Option<Reach>,
}

impl Bfq {
    #[inline(always)]
    pub(super) fn intake(&mut self, id: QueueId, now: Nanos) -> Intake<'_> {
        let Bfq { queues, nodes, owners, hash, last_merge, set, .. } = self;
        let queue = &mut queues[id.index()];
        let head = self.last_position;
        let next = queue.next.map(|next| set.reach(&nodes[next.index()], head));
        let (nomerges, rotational) = (self.nomerges, self.rotational);
        Intake {
            id,
            now,
            queue,
            nodes,
            owners,
            hash,
            last_merge,
            set,
            nomerges,
            rotational,
            head,
            next,
        }
    }
}

impl Intake<'_> {
    /// Where `rq` belongs in the queue, if no request there touches it that a merge would look for.
    #[inline(always)]
    pub(super) fn lonely_spot(&self, rq: &Rq) -> Option<Spot> {
        let mergeable = self.nomerges < 2 && rq.is_mergeable();
        let thorough = mergeable && self.nomerges == 0;
        if mergeable
            && let Some(tag) = *self.last_merge
            && self.nodes[tag.index()].rq.touches(rq)
        {
            return None;
        }
        if thorough && self.hash.find(rq.sector).is_some() {
            return None;
        }
        let spot = self.queue.order.spot(self.nodes, rq.sector);
        let behind = || self.queue.order.starting_behind(self.nodes, &spot, rq.end());
        let touched = thorough && behind().is_some();
        (!touched).then_some(spot)
    }

    /// Puts the request into its node and the queue's order; whether it is now the next one. The
    /// counts of what is staged are the caller's.
    #[inline(always)]
    pub(super) fn link(&mut self, rq: &Rq, spot: Spot) -> bool {
        let tag = rq.tag;
        let owner = &mut self.owners[tag.index()];
        debug_assert_eq!(owner.state, TagState::Free, "tag {} is in use", tag.0);
        let context = rq.id.submitter();
        *owner = Owner { queue: self.id, context, state: TagState::Staged };
        let set = self.set;
        let expire = if rq.is_sync() { set.fifo_sync_ns } else { set.fifo_async_ns };
        let node = &mut self.nodes[tag.index()];
        node.rq = *rq;
        node.deadline = Nanos(self.now.0.saturating_add(expire));
        node.band = rank(rq);
        let reach = set.reach(node, self.head);
        self.queue.order.insert_at(self.nodes, tag, spot);
        if rq.is_mergeable() {
            self.hash.add(tag, rq.end());
            self.last_merge.get_or_insert(tag);
        }
        self.queue.fifo.push(self.nodes, tag);
        self.queue.last_insert = self.now.0;
        self.queue.observe_position(rq, self.rotational);
        let is_next = self.next.is_none_or(|next| !next.is_before(reach));
        if is_next {
            (self.queue.next, self.next) = (Some(tag), Some(reach));
        }
        is_next
    }
}

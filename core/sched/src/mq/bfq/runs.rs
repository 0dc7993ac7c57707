//! Several requests of one queue at one moment: the verdict on the first holds for those behind
//! it, so they are added, served and ended together, with one look at the queue for all.
//!
//! Each run stops before a request for which anything would have to be decided; the ordinary way
//! (`insert`, `dispatch`) takes that one. So a run has the effect of its parts one by one.

use weir_bio::{Nanos, Rq};

use crate::contract::Ended;

use super::Bfq;
use super::entity::{IDLE, QueueId};
use super::queue::{Owner, TagState};

/// Whether two requests go to the same queue for the same reasons.
#[inline(always)]
fn is_akin(a: &Rq, b: &Rq) -> bool {
    let differ = (a.id.submitter() != b.id.submitter())
        | (a.is_sync() != b.is_sync())
        | (a.group != b.group)
        | (a.ioprio != b.ioprio);
    !differ
}

impl Bfq {
    /// Adds the requests at the head of `batch` that go to one queue and touch no staged request,
    /// if that queue is busy with requests already. Says how many.
    pub(super) fn add_run(&mut self, batch: &[Rq], now: Nanos) -> usize {
        let Some(first) = batch.first() else { return 0 };
        let Some(id) = self.settled_queue(first).filter(|id| self.is_at_work(*id)) else {
            return 0;
        };
        if self.intake(id, now).lonely_spot(first).is_none() {
            return 0;
        }
        let sync = self.queue(id).sync;
        if sync {
            self.observe_process(id, now);
        }
        self.raise_async(id, now);
        // Whether a later one at this moment would be observed otherwise than the first.
        let alike = !sync || self.queue(id).think.is_settled(now);
        let run = if alike { batch } else { &batch[..1] };
        let mut added = 0;
        loop {
            let (more, is_next) = self.add_few(id, first, &run[added..], now);
            added += more;
            if !is_next {
                break;
            }
            self.next_changed(id);
        }
        self.count_added(id, first.id.submitter(), added as u32);
        self.note_moved(id);
        added
    }

    /// Adds those at the head of `run` that are akin to `first`, up to the first that a waiting
    /// queue is to give next. Says how many, and whether that one was met.
    #[inline(always)]
    fn add_few(&mut self, id: QueueId, first: &Rq, run: &[Rq], now: Nanos) -> (usize, bool) {
        let waits = self.in_service != Some(id);
        let mut intake = self.intake(id, now);
        let mut added = 0;
        for rq in run.iter().take_while(|rq| is_akin(first, rq)) {
            let Some(spot) = intake.lonely_spot(rq) else { break };
            added += 1;
            if intake.link(rq, spot) && waits {
                return (added, true);
            }
        }
        (added, false)
    }

    /// Whether queue `id` has requests and backlog, so that another one ends no pause, raises and
    /// preempts nothing, and no idling.
    fn is_at_work(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        let idled_for = self.idle_until.is_some() && self.in_service == Some(id);
        queue.busy && !queue.is_empty() && !idled_for
    }

    /// Serves up to `max` requests more of the queue in service, as far as time, budget and raising
    /// allow for certain, appended to `out`. Says how many.
    pub(super) fn serve_run(&mut self, max: usize, now: Nanos, out: &mut Vec<Rq>) -> usize {
        let Some(id) = self.in_service.filter(|id| self.goes_on_with(*id, now)) else { return 0 };
        let factor = self.charge(id, 1);
        let bounds = self.raising_bounds(id);
        let Bfq { queues, nodes, owners, hash, last_merge, set, rate, forest, .. } = self;
        let queue = &mut queues[id.index()];
        let (nodes, owners) = (nodes.as_mut_slice(), owners.as_mut_slice());
        let entity = &forest[queue.entity];
        let (leaf, raised) = (queue.entity, entity.coefficient > 1);
        let budget = entity.budget.saturating_sub(entity.service);
        let room = budget.min(queue.raise.steady_for(bounds, now));
        let (mut served, mut taken, mut alike) = (0, 0, (0, 0));
        let mut end = self.last_position;
        while let Some(tag) = queue.next.filter(|_| taken < max) {
            let charge = factor * u64::from(nodes[tag.index()].rq.sectors);
            if served + charge > room {
                break;
            }
            (served, taken) = (served + charge, taken + 1);
            if charge != alike.0 {
                forest.serve_several(leaf, alike.0, alike.1);
                alike = (charge, 0);
            }
            alike.1 += 1;
            owners[usize::from(tag.0)].state = TagState::Dispatched;
            queue.order.remove(nodes, tag);
            queue.fifo.remove(nodes, tag);
            hash.remove(tag);
            if *last_merge == Some(tag) {
                *last_merge = None;
            }
            let node = &nodes[tag.index()];
            queue.next = set.successor(nodes, &queue.order, node);
            rate.dispatched_beside(&node.rq);
            end = node.rq.end();
            out.push(node.rq);
        }
        if taken == 0 {
            return 0;
        }
        forest.serve_several(leaf, alike.0, alike.1);
        queue.raise.charge(served, raised);
        queue.queued -= taken as u32;
        queue.in_flight += taken as u32;
        self.staged -= taken;
        self.in_flight += taken as u32;
        (self.last_position, self.in_service_position) = (end, end);
        self.note_moved(id);
        taken
    }

    /// Whether queue `id`, in service, goes on at `now`, where it was just served, with nothing to
    /// decide but whether its next request fits.
    fn goes_on_with(&self, id: QueueId, now: Nanos) -> bool {
        let queue = self.queue(id);
        // A sample waits for the first one that is served, and that was before.
        debug_assert!(queue.is_empty() || !self.sample.is_arriving(), "a sample was not continued");
        !self.set.strict
            && now < self.slot_deadline
            && self.idle_until.is_none()
            && queue.fifo_checked
            && queue.first_served.is_some()
            && self.forest[queue.entity].class != IDLE
            && self.rate.goes_on()
    }

    /// Accounts those ends of `rest` that are of the queue and process of `first`, which has just
    /// ended. Says how many.
    pub(super) fn end_run(&mut self, first: Owner, rest: &[Ended], now: Nanos) -> usize {
        let Owner { queue: id, context, .. } = first;
        let queue = self.queue(id);
        let asks = queue.is_empty() || now >= self.slot_deadline;
        if self.queueing.is_open()
            || self.sample.is_awaiting()
            || asks && self.in_service == Some(id)
        {
            return 0;
        }
        // The last one of a queue that is not busy is the end of more.
        let most = if queue.busy { rest.len() } else { queue.in_flight.saturating_sub(1) as usize };
        let expected = Owner { queue: id, context, state: TagState::Dispatched };
        let mut ended = 0;
        for end in rest.iter().take(most) {
            let owner = &mut self.owners[usize::from(end.tag.0)];
            if *owner != expected {
                break;
            }
            owner.state = TagState::Free;
            ended += 1;
        }
        let count = ended as u32;
        self.in_flight -= count;
        let queue = &mut self.queues[id.index()];
        queue.in_flight -= count;
        let entity = queue.entity;
        let context = &mut self.contexts[usize::from(context.0)];
        context.outstanding = context.outstanding.saturating_sub(count);
        self.allocate(entity, -(count as i32));
        ended
    }
}

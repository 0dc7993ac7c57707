//! Processes that read one stream share a queue, and get their own back when they no longer do.
//! Source: docs/behaviour/bfq.md, sections 12.2 and 12.3.

use weir_bio::{Nanos, SubmitterId};

use super::Bfq;
use super::anchor::{Anchor, Newcomer};
use super::entity::QueueId;
use super::inject::Injection;
use super::positions::CLOSE;
use super::raise::{Raise, Verdict};
use super::sharing::{Partner, Step};
use super::think::Think;

/// A scheduled stable merge is decided this long after the queue was created, ns.
const DECIDE_AFTER_NS: u64 = 600_000_000;

/// The state that a process gets back when it no longer shares a queue.
#[derive(Clone, Debug)]
pub(super) struct Saved {
    think: Think,
    injection: Injection,
    raise: Raise,
    in_large_burst: bool,
}

impl Bfq {
    /// Merging queues pays where the head moves, or where the device takes one request at a time.
    pub(super) fn merging_pays(&self) -> bool {
        self.rotational || !self.queueing.is_queueing()
    }

    /// The queue for a request at `sector` of `who`, whose queue is `id`: another if the two read
    /// one stream.
    pub(super) fn cooperate(
        &mut self,
        who: SubmitterId,
        id: QueueId,
        sector: u64,
        now: Nanos,
    ) -> QueueId {
        // A queue goes to one other and no more; a bio may be the first to come since.
        if self.queue(id).step() == Step::Follows {
            return self.follow(who, id, now);
        }
        if !self.merging_pays() {
            return id;
        }
        if let Some(target) = self.stable_target_due(who, id, now) {
            self.queue_mut(target).sharing.keep_together();
            return self.merge_queues(who, id, target, now);
        }
        if !self.features.queue_merging || self.busy_total() <= 1 {
            return id;
        }
        match self.close_queue(id, sector, now) {
            Some(target) => self.merge_queues(who, id, target, now),
            None => id,
        }
    }

    fn partner(&self, id: QueueId) -> Partner {
        let queue = self.queue(id);
        let entity = &self.forest[queue.entity];
        Partner {
            group: entity.level,
            class: entity.class,
            sync: queue.sync,
            seeky: queue.seeks.is_seeky(),
            processes: queue.processes,
            first_served: queue.first_served,
        }
    }

    /// A queue with which `id` may merge and whose position is close to `sector`: of the nearest
    /// ones, that which has been busy longest.
    fn close_queue(&mut self, id: QueueId, sector: u64, now: Nanos) -> Option<QueueId> {
        let own = self.partner(id);
        if !own.is_open(now) {
            return None;
        }
        self.update_positions();
        let fits = |other: QueueId| other != id && own.suits(&self.partner(other), now);
        if let Some(current) = self.in_service
            && fits(current)
            && self.in_service_position.abs_diff(sector) <= CLOSE
        {
            return Some(current);
        }
        let near = self.by_position.close_to(sector);
        near.filter(|(_, other)| fits(*other))
            .min_by_key(|(at, other)| (at.abs_diff(sector), self.queue(*other).busy_turn))
            .map(|(_, other)| other)
    }

    /// Queue `id` may have become busy, or no more, or its next request is another or elsewhere.
    #[inline(always)]
    pub(super) fn note_moved(&mut self, id: QueueId) {
        let queue = &mut self.queues[id.index()];
        if !queue.moved {
            queue.moved = true;
            self.moved.push(id);
        }
    }

    /// Places the queues that have moved since the index was asked last: while none asks, moving
    /// costs a mark.
    fn update_positions(&mut self) {
        let Bfq { queues, by_position, moved, nodes, .. } = self;
        for id in moved.drain(..) {
            let queue = &mut queues[id.index()];
            queue.moved = false;
            // Only a busy queue has requests.
            let at = queue.next.map(|next| nodes[next.index()].rq.sector);
            by_position.place(id, at);
        }
    }

    /// Where the chain of merges from `id` ends.
    fn chain_end(&self, id: QueueId) -> QueueId {
        let mut at = id;
        while let Some(next) = self.queue(at).sharing.merged_into() {
            at = next;
        }
        at
    }

    /// Redirects `id`'s processes to `target`: `who` now, the others with their next requests.
    fn merge_queues(
        &mut self,
        who: SubmitterId,
        id: QueueId,
        target: QueueId,
        now: Nanos,
    ) -> QueueId {
        let target = self.chain_end(target);
        if target == id || self.queue(target).processes == 0 {
            return id;
        }
        self.queue_mut(id).sharing.redirect(target);
        self.queue_mut(target).references += 1;
        self.follow(who, id, now)
    }

    /// Moves `who` along the chain of merges from its queue `id`; says where it is now.
    pub(super) fn follow(&mut self, who: SubmitterId, id: QueueId, now: Nanos) -> QueueId {
        let target = self.chain_end(id);
        if target == id {
            return id;
        }
        self.save(id, now);
        self.save(target, now);
        let stable = self.context_mut(who).stable_target.take();
        self.hand_on_waker(id, target);
        self.leave_wakers(id);
        self.stop_waking(target);
        self.inherit_raising(id, target, now);
        let merged = self.queue_mut(target);
        merged.owner = None;
        merged.sharing.take_in();
        merged.processes += 1;
        let left = self.queue_mut(id);
        left.owner = None;
        left.processes -= 1;
        self.context_mut(who).sync = Some(target);
        if let Some(stable) = stable {
            self.drop_reference(stable, now);
        }
        self.release(id, now);
        target
    }

    fn inherit_raising(&mut self, from: QueueId, to: QueueId, now: Nanos) {
        if !self.is_raised(from) {
            return;
        }
        if !self.is_raised(to) {
            let raise = self.queue(from).raise;
            self.queue_mut(to).raise = raise;
            self.let_raising_count(to, Verdict::NextStamp);
        }
        self.end_raising(from, now);
    }

    /// Keeps the state of a queue's only process.
    fn save(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        let Some(owner) = queue.owner else { return };
        let saved = Saved {
            think: queue.think,
            injection: queue.injection,
            raise: self.raising_so_far(id, now),
            in_large_burst: queue.in_large_burst,
        };
        self.context_mut(owner).saved = Some(Box::new(saved));
    }

    /// Lets `who` leave the shared queue `id`, or have it for its own, as is due; says where it is.
    pub(super) fn part(&mut self, who: SubmitterId, id: QueueId, now: Nanos) -> QueueId {
        match self.queue(id).step() {
            Step::Stays | Step::Follows => id,
            Step::Leaves => self.split_off(who, id, now),
            Step::TakesBack => {
                let queue = self.queue_mut(id);
                queue.owner = Some(who);
                queue.sharing.take_back(now);
                let ioprio = self.context_mut(who).sync_ioprio;
                self.set_priority(id, ioprio);
                self.restore_to(who, id, now);
                id
            }
            Step::Owns => {
                self.queue_mut(id).owner = Some(who);
                id
            }
        }
    }

    /// Gives `who` a queue of its own again.
    fn split_off(&mut self, who: SubmitterId, id: QueueId, now: Nanos) -> QueueId {
        self.queue_mut(id).processes -= 1;
        let ioprio = self.context_mut(who).sync_ioprio;
        let own = self.own_queue(who, ioprio, now);
        self.queue_mut(own).sharing.take_back(now);
        self.restore_to(who, own, now);
        self.hand_on_waker(id, own);
        own
    }

    /// Queue `id` is as `who`'s own was before it shared one. Its priority is what the process has
    /// now.
    fn restore_to(&mut self, who: SubmitterId, id: QueueId, now: Nanos) {
        let Some(saved) = self.context_mut(who).saved.take() else { return };
        let queue = self.queue_mut(id);
        queue.think = saved.think;
        queue.injection = saved.injection;
        queue.in_large_burst = saved.in_large_burst;
        self.resume_raising(id, saved.raise, now);
    }

    /// At the end of a slot: marks a shared queue that has become seeky to be split, because its
    /// processes no longer read one stream.
    pub(super) fn judge_sharing(&mut self, id: QueueId) {
        let queue = self.queue_mut(id);
        queue.sharing.judge(queue.seeks.is_seeky(), queue.processes);
    }

    /// A queue was created for `who`: on a queueing device without seeks it merges at once and
    /// for good with one created just before; elsewhere that is decided later.
    pub(super) fn merge_at_creation(
        &mut self,
        who: SubmitterId,
        id: QueueId,
        now: Nanos,
    ) -> QueueId {
        if !self.features.stable_merging {
            return id;
        }
        let level = self.forest[self.queue(id).entity].level;
        let anchor = self.groups[level.index()].anchor;
        let target = anchor.and_then(|anchor| self.resolve(anchor.queue));
        let target = target.map(|queue| self.chain_end(queue));
        let akin = target.is_some_and(|target| self.is_akin(id, target));
        let newcomer = anchor.map_or(Newcomer::Replaces, |anchor| anchor.meet(akin, now));
        if newcomer == Newcomer::Replaces {
            let queue = self.queue(id).handle(id);
            self.groups[level.index()].anchor = Some(Anchor { queue, created: now });
        }
        let Some(target) = target.filter(|_| newcomer == Newcomer::Joins) else { return id };
        if !self.merging_pays() {
            self.queue_mut(target).sharing.keep_together();
            return self.merge_queues(who, id, target, now);
        }
        self.queue_mut(target).references += 1;
        self.context_mut(who).stable_target = Some(target);
        id
    }

    fn is_akin(&self, id: QueueId, other: QueueId) -> bool {
        let (a, b) = (self.queue(id), self.queue(other));
        let (x, y) = (&self.forest[a.entity], &self.forest[b.entity]);
        id != other
            && b.processes > 0
            && x.level == y.level
            && x.wanted_class == y.wanted_class
            && a.level == b.level
    }

    /// The queue for which `who`'s queue `id` is to be given up for good, if that is due.
    fn stable_target_due(&mut self, who: SubmitterId, id: QueueId, now: Nanos) -> Option<QueueId> {
        self.context_mut(who).stable_target?;
        let queue = self.queue(id);
        if !queue.sync || now.0 < queue.born + DECIDE_AFTER_NS {
            return None;
        }
        let pays = self.would_idle_for_throughput(id);
        let target = self.context_mut(who).stable_target.take()?;
        self.drop_reference(target, now);
        // Dropping the reference may have been the end of it.
        let live = self.queue(target).alive && self.is_akin(id, target);
        (live && !pays && self.queue(id).owner == Some(who)).then_some(target)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entity::{BE, LevelId, RT};
    use super::super::raise::INTERACTIVE;
    use super::*;
    use crate::{Scheduler, Setup};
    use weir_bio::{IoPrio, Limits};

    const NOW: Nanos = Nanos(5_000_000_000);

    /// Queues of their own for as many processes.
    fn queues<const N: usize>() -> (Bfq, [QueueId; N]) {
        let limits = Limits { rotational: true, ..Limits::default() };
        let setup = Setup { limits, nr_requests: 64, hard_queues: 1, nomerges: 0, compat: "" };
        let mut bfq = Bfq::new(&setup);
        let ids = std::array::from_fn(|n| bfq.own_queue(SubmitterId(n as u16), IoPrio::NONE, NOW));
        (bfq, ids)
    }

    fn raise(bfq: &mut Bfq, id: QueueId) {
        let verdict = bfq.queue_mut(id).raise.begin_interactive(1_000_000_000, NOW);
        bfq.let_raising_count(id, verdict);
    }

    #[test]
    fn a_queue_that_takes_another_in_is_raised_if_that_one_was() {
        for (from_raised, to_raised) in [(false, false), (true, false), (false, true), (true, true)]
        {
            let (mut bfq, [from, to]) = queues();
            [(from, from_raised), (to, to_raised)].iter().for_each(|(id, is_raised)| {
                if *is_raised {
                    raise(&mut bfq, *id);
                }
            });
            bfq.inherit_raising(from, to, NOW);
            let due = if from_raised || to_raised { INTERACTIVE } else { 1 };
            assert_eq!((bfq.coefficient(from), bfq.coefficient(to)), (1, due));
        }
    }

    #[test]
    fn a_process_that_follows_its_queue_leaves_it_and_neither_has_an_owner() {
        let (mut bfq, [from, to]) = queues();
        bfq.queue_mut(from).references += 1;
        bfq.queue_mut(to).references += 1;
        let at = bfq.merge_queues(SubmitterId(0), from, to, NOW);
        let state = |id| (bfq.queue(id).owner, bfq.queue(id).processes);
        assert_eq!((at, state(from), state(to)), (to, (None, 0), (None, 2)));
        assert_eq!(bfq.contexts[0].sync, Some(to));
        assert!(bfq.queue(to).sharing.is_shared() && !bfq.queue(to).sharing.is_for_good());
    }

    #[test]
    fn the_last_process_of_a_shared_queue_is_its_owner_again_with_its_next_request() {
        let (mut bfq, [from, to]) = queues();
        bfq.queue_mut(to).references += 1;
        bfq.merge_queues(SubmitterId(0), from, to, NOW);
        bfq.leave_queue(SubmitterId(0), NOW);
        assert_eq!((bfq.queue(to).owner, bfq.queue(to).processes), (None, 1));
        assert_eq!(bfq.part(SubmitterId(1), to, NOW), to);
        assert_eq!(bfq.queue(to).owner, Some(SubmitterId(1)));
    }

    #[test]
    fn the_last_process_of_a_queue_to_be_split_takes_it_back_with_its_own_priority_and_state() {
        let (mut bfq, [from, to]) = queues();
        raise(&mut bfq, to);
        bfq.queue_mut(to).in_large_burst = true;
        bfq.queue_mut(to).injection.limit = 5;
        bfq.queue_mut(to).think.turn();
        bfq.queue_mut(to).references += 1;
        bfq.merge_queues(SubmitterId(0), from, to, NOW);
        bfq.leave_queue(SubmitterId(0), NOW);
        bfq.queue_mut(to).in_large_burst = false;
        bfq.queue_mut(to).injection.limit = 0;
        bfq.queue_mut(to).think.turn();
        bfq.queue_mut(to).sharing.judge(true, 1);
        bfq.contexts[1].sync_ioprio = IoPrio::new(weir_bio::Class::RealTime, 2);
        assert_eq!(bfq.part(SubmitterId(1), to, NOW), to);
        let queue = bfq.queue(to);
        assert_eq!((queue.owner, queue.level), (Some(SubmitterId(1)), 2));
        assert!(!queue.sharing.is_shared() && queue.sharing.is_settling(NOW));
        let state = (queue.in_large_burst, queue.injection.limit, queue.think.is_short());
        assert_eq!(state, (true, 5, false), "as it was before the other came");
        let entity = &bfq.forest[queue.entity];
        assert_eq!((entity.wanted_class, entity.wanted_base), (RT, 60));
    }

    #[test]
    fn a_queue_that_goes_to_another_takes_its_raising_along() {
        let (mut bfq, [from, to]) = queues();
        raise(&mut bfq, from);
        bfq.queue_mut(from).references += 1;
        bfq.merge_queues(SubmitterId(0), from, to, NOW);
        assert_eq!((bfq.coefficient(from), bfq.coefficient(to)), (1, INTERACTIVE));
    }

    /// Queues of processes with a request each, at these sectors, which did not merge.
    fn busy_at<const N: usize>(sectors: [u64; N]) -> (Bfq, [QueueId; N]) {
        let (mut bfq, ids) = queues::<N>();
        bfq.features.queue_merging = false;
        bfq.contexts.iter_mut().for_each(|context| context.group = Some(weir_bio::GroupId(0)));
        for (n, sector) in sectors.into_iter().enumerate().filter(|(_, sector)| *sector > 0) {
            let rq = weir_bio::Rq {
                sector,
                sectors: 8,
                id: weir_bio::RqId::new(SubmitterId(n as u16), 0, 0),
                flags: weir_bio::Flags::NONE,
                group: weir_bio::GroupId(0),
                ioprio: IoPrio::NONE,
                hint: 0,
                tag: weir_bio::SchedTag(n as u16),
                op: weir_bio::Op::Read,
                segments: 1,
            };
            bfq.insert(rq, NOW, &mut Vec::new());
        }
        bfq.features.queue_merging = true;
        (bfq, ids)
    }

    #[test]
    fn positions_are_close_up_to_four_mib_on_either_side() {
        let other = 1_000_000;
        for (sector, close) in [
            (other, true),
            (other - 8192, true),
            (other - 8193, false),
            (other + 8192, true),
            (other + 8193, false),
        ] {
            let (mut bfq, [asks, near]) = busy_at([50_000_000, other]);
            assert_eq!(bfq.close_queue(asks, sector, NOW), close.then_some(near), "{sector}");
        }
    }

    #[test]
    fn of_queues_as_near_that_is_taken_which_has_been_busy_longest() {
        for sectors in [[0, 1_000_100, 999_900], [0, 999_900, 1_000_100]] {
            let (mut bfq, [asks, first, _]) = busy_at(sectors);
            assert_eq!(bfq.close_queue(asks, 1_000_000, NOW), Some(first), "{sectors:?}");
        }
    }

    #[test]
    fn a_queue_in_service_is_close_by_where_it_was_served_last() {
        for (distance, close) in [(0, true), (8192, true), (8193, false)] {
            for sector in [20_000_000 - distance, 20_000_000 + distance] {
                let (mut bfq, [asks, serves]) = busy_at([0, 1_000_000]);
                bfq.in_service = Some(serves);
                bfq.in_service_position = 20_000_000;
                let found = bfq.close_queue(asks, sector, NOW);
                assert_eq!(found, close.then_some(serves), "{sector}");
            }
        }
    }

    #[test]
    fn queues_merge_only_while_several_are_busy() {
        for (third, merges) in [(0, false), (50_000_000, true)] {
            let (mut bfq, [asks, near, _]) = busy_at([0, 1_000_000, third]);
            let at = bfq.cooperate(SubmitterId(0), asks, 1_000_000, NOW);
            assert_eq!(at, if merges { near } else { asks }, "{third}");
        }
    }

    #[test]
    fn two_queues_are_akin_that_have_one_group_class_and_level() {
        let (mut bfq, [a, b]) = queues();
        assert!(bfq.is_akin(a, b) && !bfq.is_akin(a, a));
        let leaf = bfq.queue(b).entity;
        bfq.queue_mut(b).processes = 0;
        assert!(!bfq.is_akin(a, b), "no process is left");
        bfq.queue_mut(b).processes = 1;
        bfq.queue_mut(b).level = 3;
        assert!(!bfq.is_akin(a, b), "another level");
        bfq.queue_mut(b).level = 4;
        bfq.forest[leaf].wanted_class = RT;
        assert!(!bfq.is_akin(a, b), "another class");
        bfq.forest[leaf].wanted_class = BE;
        bfq.forest[leaf].level = LevelId(7);
        assert!(!bfq.is_akin(a, b), "another group");
        bfq.forest[leaf].level = LevelId::ROOT;
        assert!(bfq.is_akin(a, b));
    }

    #[test]
    fn a_merge_for_good_is_decided_600_ms_after_the_queue_was_made() {
        for (after, due) in [(DECIDE_AFTER_NS - 1, false), (DECIDE_AFTER_NS, true)] {
            let (mut bfq, [a, b]) = queues();
            bfq.tunables().set("slice_idle", "0").expect("a tunable");
            // One that jumps about is not waited for, so nothing speaks against the merge.
            (0..32).for_each(|_| bfq.queue_mut(a).seeks.note(true));
            bfq.queue_mut(b).references += 1;
            bfq.contexts[0].stable_target = Some(b);
            let target = bfq.stable_target_due(SubmitterId(0), a, NOW + after);
            assert_eq!(target.is_some(), due, "{after} ns after");
            assert_eq!(bfq.contexts[0].stable_target.is_none(), due, "it is decided once");
        }
        // One that has another level by then.
        let (mut bfq, [a, b]) = queues();
        bfq.tunables().set("slice_idle", "0").expect("a tunable");
        (0..32).for_each(|_| bfq.queue_mut(a).seeks.note(true));
        bfq.queue_mut(b).references += 1;
        bfq.queue_mut(b).level = 3;
        bfq.contexts[0].stable_target = Some(b);
        assert_eq!(bfq.stable_target_due(SubmitterId(0), a, NOW + DECIDE_AFTER_NS), None);
    }
}

//! Whose turn it is: places in the service trees, and the choice of group, class, kind and queue.
//! Source: docs/behaviour/cfq.md, sections 1, 3 and 4.

use weir_bio::{Class, Nanos};

use super::group::{Group, SavedWorkload, WHOLE};
use super::names::{GroupIndex, Kind, QueueId, TreeId};
use super::queue::{Queue, Slot};
use super::{Cfq, TICK_NS};

/// An idle-class queue comes so long after the last of its tree.
const IDLE_CLASS_BEHIND_NS: i64 = 200_000_000;
/// A queue that cuts in comes so long before the first of its tree.
const CUT_IN_NS: i64 = 1_000_000_000;
/// A workload has at least so many ticks.
const WORKLOAD_TICKS_LEAST: u64 = 2;

/// The class and kind that are being served, and until when that holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    class: Class,
    pub(super) kind: Kind,
    /// `None`: chosen anew with the next queue.
    ends_at: Option<Nanos>,
}

impl Workload {
    pub(super) const NONE: Workload =
        Workload { class: Class::BestEffort, kind: Kind::Async, ends_at: None };

    /// That of a queue which is served out of turn.
    pub(super) fn of(queue: &Queue) -> Workload {
        Workload { class: queue.priority.class, kind: queue.kind(), ends_at: None }
    }

    /// The rest of it, for the group that loses service.
    pub(super) fn saved(&self, now: Nanos) -> Option<SavedWorkload> {
        let left_ns = self.ends_at?.since(now);
        let Workload { class, kind, .. } = *self;
        (left_ns > 0).then_some(SavedWorkload { left_ns, class, kind })
    }
}

impl Cfq {
    /// Puts a queue into the tree it belongs to now: at its turn, or before all others.
    pub(super) fn place(&mut self, id: QueueId, cuts_in: bool, now: Nanos) {
        let was = self.queue(id).place;
        let group = self.queue(id).group;
        match was {
            Some((tree, key)) => self.groups[group].trees[tree.index()].queues.remove(key),
            None => self.became_busy(id, group),
        }
        let tree = self.queue(id).tree();
        let at = self.sort_key(id, tree, cuts_in, now);
        self.sequence += 1;
        let key = (at, self.sequence, id);
        self.groups[group].trees[tree.index()].queues.insert(key);
        self.queue_mut(id).place = Some((tree, key));
    }

    fn became_busy(&mut self, id: QueueId, group: GroupIndex) {
        self.busy_queues += 1;
        self.busy_sync_queues += u32::from(self.queue(id).sync);
        self.groups[group].busy_queues += 1;
        if self.groups[group].busy_queues == 1 {
            let counts_requests = self.counts_requests();
            self.groups.became_busy(group, counts_requests);
        }
    }

    fn sort_key(&mut self, id: QueueId, tree: TreeId, cuts_in: bool, now: Nanos) -> i64 {
        let queue = self.queue(id);
        let group = &self.groups[queue.group];
        let others = &group.trees[tree.index()].queues;
        let now = now.0 as i64;
        if tree.is_idle() {
            return others.last().map_or(now, |(last, ..)| last) + IDLE_CLASS_BEHIND_NS;
        }
        if cuts_in {
            return others.first().map_or(now, |(first, ..)| first) - CUT_IN_NS;
        }
        let own = self.slice_ns(queue.sync, queue.priority.level) as i64;
        let longer = self.slice_ns(true, 0) as i64 - own;
        let offset = i64::from(group.busy_queues - 1).saturating_mul(longer);
        let residual = std::mem::take(&mut self.queue_mut(id).residual_ns);
        now.saturating_add(offset).saturating_sub(residual)
    }

    /// Takes a queue out of its tree when it has nothing staged.
    pub(super) fn leave_if_empty(&mut self, id: QueueId) {
        if !self.queue(id).is_empty() {
            return;
        }
        let Some((tree, key)) = self.queue_mut(id).place.take() else { return };
        let (group, sync) = (self.queue(id).group, self.queue(id).sync);
        self.groups[group].trees[tree.index()].queues.remove(key);
        self.busy_queues -= 1;
        self.busy_sync_queues -= u32::from(sync);
        self.groups[group].busy_queues -= 1;
        if self.groups[group].busy_queues == 0 {
            self.groups.became_idle(group);
        }
    }

    /// Gives the device to a queue.
    pub(super) fn set_active(&mut self, id: QueueId, now: Nanos) {
        self.queue_mut(id).slot = Slot { selected_at: now, ..Slot::default() };
        self.active = Some(id);
        self.idle_until = None;
    }

    /// Chooses the next queue, and gives it the device.
    pub(super) fn choose(&mut self, now: Nanos) -> Option<QueueId> {
        let at = self.groups.first()?;
        self.workload.ends_at = None;
        if let Some(SavedWorkload { left_ns, class, kind }) = self.groups[at].saved {
            self.workload = Workload { class, kind, ends_at: Some(now + left_ns) };
        }
        let tree = self.choose_tree(at, now);
        let (.., id) = self.groups[at].trees[tree.index()].queues.first()?;
        self.set_active(id, now);
        Some(id)
    }

    fn choose_tree(&mut self, at: GroupIndex, now: Nanos) -> TreeId {
        let group = &self.groups[at];
        let class = [Class::RealTime, Class::BestEffort]
            .into_iter()
            .find(|class| group.busy_of(*class) > 0)
            .unwrap_or(Class::Idle);
        let class_before = std::mem::replace(&mut self.workload.class, class);
        if class == Class::Idle {
            self.workload.ends_at = Some(now + TICK_NS);
            return TreeId::IDLE;
        }
        let tree = TreeId::new(class, self.workload.kind);
        let lasts = self.workload.ends_at.is_some_and(|end| now <= end);
        if class == class_before && lasts && !group.trees[tree.index()].queues.is_empty() {
            return tree;
        }
        let kind = first_kind(group, class);
        let ns = self.workload_ns(at, class, kind);
        self.workload = Workload { class, kind, ends_at: Some(now + ns) };
        TreeId::new(class, kind)
    }

    /// How long a kind is served before another may be.
    pub(super) fn workload_ns(&self, at: GroupIndex, class: Class, kind: Kind) -> u64 {
        let group = &self.groups[at];
        let target = u128::from(self.knobs.target_latency_ns);
        let group_slice = target * u128::from(self.groups.share(at)) / u128::from(WHOLE);
        let queues = group.trees[TreeId::new(class, kind).index()].queues.len() as u128;
        let of_class = group.average_of(class).max(group.busy_of(class));
        let slice = group_slice * queues / u128::from(of_class.max(1));
        let slice = match kind {
            Kind::Async => {
                let share =
                    target * u128::from(group.busy_async()) / u128::from(self.busy_queues.max(1));
                let [sync, async_] = [self.knobs.slice_sync_ns, self.knobs.slice_async_ns];
                slice.min(share) * u128::from(async_) / u128::from(sync)
            }
            Kind::Sync | Kind::SyncNoIdle => slice.max(2 * u128::from(self.knobs.slice_idle_ns)),
        };
        (slice.min(u128::from(u64::MAX)) as u64).max(WORKLOAD_TICKS_LEAST * TICK_NS)
    }

    /// The first queue of the first group, whatever its class and kind: for a drain.
    pub(super) fn first_of_all(&mut self) -> Option<QueueId> {
        let at = self.groups.first()?;
        let first = self.groups[at].trees.iter().find_map(|tree| tree.queues.first());
        first.map(|(.., id)| id)
    }
}

/// The kind whose first queue has waited longest for its turn.
fn first_kind(group: &Group, class: Class) -> Kind {
    let key = |kind: Kind| {
        let tree = TreeId::new(class, kind);
        group.trees[tree.index()].queues.first().map(|(at, ..)| at)
    };
    let turns = Kind::ALL.into_iter().filter_map(|kind| Some((key(kind)?, kind)));
    let (_, kind) = turns.min_by_key(|(at, _)| *at).expect("a class that is busy has a queue");
    kind
}

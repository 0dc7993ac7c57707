//! Groups: the tree of them, their weights and async queues, and processes that move. Source:
//! docs/behaviour/bfq.md, section 15.2.

use weir_bio::{GroupId, Nanos};

use super::Bfq;
use super::anchor::Anchor;
use super::entity::{BE, EntityId, IDLE, Kind, LevelId, Place, QueueId, RT};
use super::forest::Level;
use super::queue::Expiry;

/// Weight of a group for which none was set.
const DEFAULT_WEIGHT: u32 = 100;
/// Async queues of a group: eight levels of two classes, and the idle class.
const ASYNC_QUEUES: usize = 17;

/// A group; its children compete in the level of the same number.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    async_queues: [Option<QueueId>; ASYNC_QUEUES],
    /// Queues in it, not in groups below, that are busy or have requests in flight.
    pub(super) pending: u32,
    /// The sync queue that those created soon after it are to share.
    pub(super) anchor: Option<Anchor>,
}

impl Bfq {
    /// The level of a group, made with the default weight below the root if it is new.
    pub(super) fn level_of(&mut self, group: GroupId) -> LevelId {
        if group.0 == 0 {
            return LevelId::ROOT;
        }
        if let Some(level) = self.group_levels.get(&group.0) {
            return *level;
        }
        let level = LevelId(self.groups.len() as u32);
        let entity = self.forest.add(Kind::Group(level), LevelId::ROOT, BE, DEFAULT_WEIGHT);
        self.groups.push(Group::default());
        self.forest.levels.push(Level::new(Some(entity)));
        self.group_levels.insert(group.0, level);
        level
    }

    /// The queue for async requests of a group, class and level, made if there is none.
    pub(super) fn async_queue(
        &mut self,
        group: LevelId,
        class: usize,
        level: u8,
        now: Nanos,
    ) -> QueueId {
        let at = async_index(class, level);
        if let Some(id) = self.groups[group.index()].async_queues[at] {
            return id;
        }
        let id = self.new_queue(group, class, level, false, now);
        self.queue_mut(id).references += 1;
        self.groups[group.index()].async_queues[at] = Some(id);
        id
    }

    pub(super) fn find_async_queue(
        &self,
        group: LevelId,
        class: usize,
        level: u8,
    ) -> Option<QueueId> {
        self.groups[group.index()].async_queues[async_index(class, level)]
    }

    pub(super) fn weigh_group(&mut self, group: GroupId, weight: u16) {
        let level = self.level_of(group);
        // The root has no siblings to compete with.
        if let Some(entity) = self.forest.levels[level.index()].entity {
            self.forest[entity].wanted_base = u32::from(weight.clamp(1, 1000));
        }
    }

    /// Makes `parent` the parent of `group`.
    pub(super) fn place_group(&mut self, group: GroupId, parent: GroupId, now: Nanos) {
        let (level, parent) = (self.level_of(group), self.level_of(parent));
        let mut above = Some(parent);
        while let Some(at) = above {
            assert!(at != level, "group {} would be its own ancestor", group.0);
            above = self.forest.levels[at.index()].entity.map(|entity| self.forest[entity].level);
        }
        self.reparent(level, parent, now);
    }

    fn reparent(&mut self, level: LevelId, parent: LevelId, now: Nanos) {
        let entity = self.forest.levels[level.index()].entity.expect("the root has no parent");
        let old = self.forest[entity].level;
        if old == parent {
            return;
        }
        if self.forest[entity].place == Place::InService {
            self.expire_in_service(now);
        }
        self.forest.forget(entity);
        self.forest.propagate(old, false);
        let allocated = self.forest[entity].allocated as i32;
        self.allocate_above(old, -allocated);
        self.forest[entity].level = parent;
        self.allocate_above(parent, allocated);
        self.forest.propagate(level, false);
    }

    fn expire_in_service(&mut self, now: Nanos) {
        if let Some(id) = self.in_service {
            self.expire(id, Expiry::Preempted, now, false);
        }
    }

    /// Adds to the tags counted for an entity and the groups above it.
    #[inline]
    pub(super) fn allocate(&mut self, entity: EntityId, count: i32) {
        let mut at = entity;
        loop {
            let allocated = &mut self.forest[at].allocated;
            *allocated = allocated.checked_add_signed(count).expect("a tag is given back once");
            match self.forest.parent(at) {
                Some(parent) => at = parent,
                None => return,
            }
        }
    }

    /// As [`allocate`](Bfq::allocate), for the group of `level` and those above it.
    fn allocate_above(&mut self, level: LevelId, count: i32) {
        if let Some(entity) = self.forest.levels[level.index()].entity {
            self.allocate(entity, count);
        }
    }

    /// Moves a queue with all it has to another group.
    pub(super) fn move_queue(&mut self, id: QueueId, to: LevelId, now: Nanos) {
        let entity = self.queue(id).entity;
        let from = self.forest[entity].level;
        if from == to {
            return;
        }
        if self.in_service == Some(id) {
            self.expire(id, Expiry::Preempted, now, false);
        }
        self.uncount(id);
        self.forest.forget(entity);
        self.forest.propagate(from, false);
        let allocated = self.forest[entity].allocated as i32;
        self.allocate_above(from, -allocated);
        self.forest[entity].level = to;
        self.allocate_above(to, allocated);
        self.forest[entity].service = 0;
        // The rest of a turn belongs to the tree it was earned in.
        self.queue_mut(id).left = None;
        if self.queue(id).busy {
            let budget = self.own_max(id).max(self.next_charge(id));
            // In no tree at the moment, it takes the class that was asked for.
            self.busy[self.forest[entity].class] -= 1;
            self.forest.activate(entity, budget, false);
            self.busy[self.forest[entity].class] += 1;
        }
        self.recount(id);
    }
}

fn async_index(class: usize, level: u8) -> usize {
    match class {
        RT => usize::from(level),
        IDLE => ASYNC_QUEUES - 1,
        _ => 8 + usize::from(level),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_and_level_has_an_async_queue_of_its_own_and_the_idle_class_has_one() {
        let levels = |class| (0..8).map(move |level| async_index(class, level));
        let all: Vec<usize> = levels(RT).chain(levels(BE)).collect();
        assert_eq!(all, (0..16).collect::<Vec<_>>());
        assert_eq!(levels(IDLE).collect::<Vec<_>>(), [16; 8]);
    }
}

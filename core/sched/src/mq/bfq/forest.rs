//! Where entities compete: a tree for each class of each level, and the levels, one for each group.

use super::entity::{Entity, EntityId, Kind, LevelId, Place};
use super::heap::{Heap, Key};

/// The entities of one class at one level.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// Virtual time.
    pub(super) v: u64,
    /// Sum of the weights of all entities that are not nowhere.
    pub(super) w: u64,
    /// Backlogged with a start that has come, by finish.
    pub(super) eligible: Heap,
    /// Backlogged with a start still to come, by start and then finish.
    pub(super) waiting: Heap,
    /// Without backlog, by finish.
    pub(super) idle: Heap,
    /// The virtual time of the last service.
    pub(super) span: Span,
}

/// The virtual time of `sectors` of service at a sum of weights.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) sectors: u64,
    pub(super) weight: u64,
    pub(super) virtual_span: u64,
}

impl Tree {
    pub(super) fn has_backlog(&self) -> bool {
        !self.eligible.is_empty() || !self.waiting.is_empty()
    }
}

/// One group's children.
#[derive(Clone, Debug)]
pub(super) struct Level {
    /// By class.
    pub(super) trees: [Tree; 3],
    pub(super) in_service: Option<EntityId>,
    /// The group as an entity of its parent; `None` for the root.
    pub(super) entity: Option<EntityId>,
    /// When the idle class was last chosen here, ns.
    pub(super) idle_chosen_at: u64,
}

impl Level {
    pub(super) fn new(entity: Option<EntityId>) -> Level {
        Level { trees: Default::default(), in_service: None, entity, idle_chosen_at: 0 }
    }
}

/// Every entity and level.
#[derive(Clone, Debug)]
pub(super) struct Forest {
    pub(super) entities: Vec<Entity>,
    pub(super) levels: Vec<Level>,
    /// Where each entity is in the heap that its place names.
    slots: Vec<u32>,
    free: Vec<EntityId>,
    seq: u64,
}

impl Forest {
    /// A root level without entities.
    pub(super) fn new() -> Forest {
        let levels = vec![Level::new(None)];
        Forest { entities: Vec::new(), levels, slots: Vec::new(), free: Vec::new(), seq: 0 }
    }

    /// A new entity of `weight` in `level`, in no tree yet.
    pub(super) fn add(
        &mut self,
        kind: Kind,
        level: LevelId,
        class: usize,
        weight: u32,
    ) -> EntityId {
        let entity = Entity {
            start: 0,
            finish: 0,
            service: 0,
            budget: 0,
            weight: u64::from(weight),
            base: weight,
            wanted_base: weight,
            coefficient: 1,
            class,
            wanted_class: class,
            level,
            kind,
            place: Place::Nowhere,
            allocated: 0,
        };
        match self.free.pop() {
            Some(id) => {
                self.entities[id.index()] = entity;
                id
            }
            None => {
                self.entities.push(entity);
                self.slots.push(0);
                EntityId(self.entities.len() as u32 - 1)
            }
        }
    }

    /// Gives the place of an entity that is nowhere to others.
    pub(super) fn free(&mut self, id: EntityId) {
        debug_assert_eq!(self[id].place, Place::Nowhere);
        self.free.push(id);
    }

    pub(super) fn key(&mut self, first: u64, second: u64) -> Key {
        self.seq += 1;
        Key { first, second, seq: self.seq }
    }

    /// The table of slots and the tree `id` competes in, both to change.
    pub(super) fn parts(&mut self, id: EntityId) -> (&mut [u32], &mut Tree) {
        let (level, class) = (self[id].level, self[id].class);
        (&mut self.slots, &mut self.levels[level.index()].trees[class])
    }

    pub(super) fn tree(&self, id: EntityId) -> &Tree {
        &self.levels[self[id].level.index()].trees[self[id].class]
    }

    /// The group above, as an entity.
    #[inline]
    pub(super) fn parent(&self, id: EntityId) -> Option<EntityId> {
        match self[id].level {
            LevelId::ROOT => None,
            level => self.levels[level.index()].entity,
        }
    }
}

impl std::ops::Index<EntityId> for Forest {
    type Output = Entity;
    fn index(&self, id: EntityId) -> &Entity {
        &self.entities[id.index()]
    }
}

impl std::ops::IndexMut<EntityId> for Forest {
    fn index_mut(&mut self, id: EntityId) -> &mut Entity {
        &mut self.entities[id.index()]
    }
}

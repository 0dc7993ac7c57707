//! What B-WF2Q+ schedules: entities, the trees they compete in, the levels that hold the trees.
//!
//! A queue is an entity; so is a group, which competes in its parent's level and is itself a level
//! for its queues and child groups. Source: the BFQ spec, A1 to A3.

use super::heap::{Heap, Key};

/// An entity, by its place in the table of entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntityId(pub(super) u32);

impl EntityId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A level, and with it a group: the root is level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelId(pub(super) u32);

impl LevelId {
    pub(super) const ROOT: LevelId = LevelId(0);

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A queue, by its place in the table of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueId(pub(super) u32);

impl QueueId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Index of a class among a level's trees.
pub(super) const RT: usize = 0;
/// See [`RT`].
pub(super) const BE: usize = 1;
/// See [`RT`].
pub(super) const IDLE: usize = 2;

/// Who stands behind an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Queue(QueueId),
    Group(LevelId),
}

/// Where an entity is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In no tree and not counted in any weight sum.
    Nowhere,
    /// Backlogged, its start still ahead of the tree's virtual time.
    Waiting,
    /// Backlogged, may be chosen.
    Eligible,
    /// Without backlog, its finish still ahead: it keeps its weight in the sum.
    Idle,
    /// Chosen.
    InService,
}

/// A queue or group as B-WF2Q+ sees it.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    /// Virtual start and finish.
    pub(super) start: u64,
    pub(super) finish: u64,
    /// Sectors received since the last stamp.
    pub(super) service: u64,
    /// Sectors it may receive.
    pub(super) budget: u64,
    /// The weight that is counted: `base` times `coefficient` at the last stamp.
    pub(super) weight: u64,
    /// The original weight that is counted.
    pub(super) base: u32,
    /// The original weight that was asked for; counts from the next stamp.
    pub(super) wanted_base: u32,
    /// The raising coefficient, 1 when not raised.
    pub(super) coefficient: u32,
    pub(super) class: usize,
    pub(super) wanted_class: usize,
    /// Where it competes.
    pub(super) level: LevelId,
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// Its slot in the heap that `place` names.
    pub(super) slot: u32,
    /// Scheduler tags its requests hold.
    pub(super) allocated: u32,
}

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

/// What `sectors` of service come to in virtual time at a sum of weights.
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
    free: Vec<EntityId>,
    seq: u64,
}

impl Forest {
    /// A root level without entities.
    pub(super) fn new() -> Forest {
        Forest { entities: Vec::new(), levels: vec![Level::new(None)], free: Vec::new(), seq: 0 }
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
            slot: 0,
            allocated: 0,
        };
        match self.free.pop() {
            Some(id) => {
                self.entities[id.index()] = entity;
                id
            }
            None => {
                self.entities.push(entity);
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

    /// The entity table and the tree `id` competes in, both to change.
    pub(super) fn parts(&mut self, id: EntityId) -> (&mut [Entity], &mut Tree) {
        let (level, class) = (self[id].level, self[id].class);
        (&mut self.entities, &mut self.levels[level.index()].trees[class])
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

//! The entities that B-WF2Q+ schedules: entities, and how they, levels and queues are named.
//!
//! A queue is an entity; so is a group, which competes in its parent's level and is itself a level
//! for its queues and child groups. Source: docs/behaviour/bfq.md, sections 1, 2 and 3.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// The queue or group behind an entity.
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
    /// Scheduler tags its requests hold.
    pub(super) allocated: u32,
}

//! How groups, queues and service trees are named.

use weir_bio::Class;

/// A group's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupIndex(pub(super) u32);

/// A queue's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueId(pub(super) u32);

impl QueueId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The kinds of service trees of a class, in the order that decides between equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Async requests: served in turn, the device is never kept for the next one.
    Async,
    /// Sync, and not waited for one by one.
    SyncNoIdle,
    /// Sync, and each is waited for.
    Sync,
}

impl Kind {
    pub(super) const ALL: [Kind; 3] = [Kind::Async, Kind::SyncNoIdle, Kind::Sync];
}

/// One of the seven service trees of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeId(u8);

impl TreeId {
    pub(super) const COUNT: usize = 7;
    pub(super) const IDLE: TreeId = TreeId(6);

    pub(super) fn new(class: Class, kind: Kind) -> TreeId {
        match class {
            Class::RealTime => TreeId(kind as u8),
            Class::BestEffort | Class::None => TreeId(3 + kind as u8),
            Class::Idle => TreeId::IDLE,
        }
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(super) fn is_idle(self) -> bool {
        self == TreeId::IDLE
    }
}

/// A queue's place in a service tree: when its turn is, who came first, and who it is.
pub(super) type TreeKey = (i64, u64, QueueId);

//! A queue: the requests of one process, or the async ones of a group at one priority.

use weir_bio::{Class, IoPrio, Nanos, SchedTag};

use super::names::{GroupIndex, Kind, QueueId, TreeId, TreeKey};
use crate::fair::seek_history::SeekHistory;
use crate::staged::Fifo;

/// Class and level with nothing left open: unset is best-effort 4, and idle has no levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Priority {
    pub(super) class: Class,
    pub(super) level: u8,
}

impl Priority {
    /// The level of those who asked for none.
    const NORMAL_LEVEL: u8 = 4;

    pub(super) fn of(ioprio: IoPrio) -> Priority {
        match ioprio.class() {
            Class::None => Priority { class: Class::BestEffort, level: Priority::NORMAL_LEVEL },
            Class::Idle => Priority { class: Class::Idle, level: 7 },
            class => Priority { class, level: ioprio.level() },
        }
    }

    /// The priority while a request that others wait for is submitted.
    pub(super) fn boosted(self) -> Priority {
        let class = if self.class == Class::Idle { Class::BestEffort } else { self.class };
        Priority { class, level: self.level.min(Priority::NORMAL_LEVEL) }
    }

    /// Its place among a group's async queues.
    pub(super) fn async_index(self) -> usize {
        match self.class {
            Class::RealTime => usize::from(self.level),
            Class::BestEffort | Class::None => 8 + usize::from(self.level),
            Class::Idle => 16,
        }
    }
}

/// The state of a queue's present slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) selected_at: Nanos,
    /// When its first request was answered: the seek that leads there is free.
    pub(super) started_at: Option<Nanos>,
    /// The end of the slice, once it started.
    pub(super) ends_at: Nanos,
    pub(super) allocated_ns: u64,
    /// Requests dispatched in it.
    pub(super) dispatched: u64,
    /// The oldest request was looked at, which happens once.
    pub(super) fifo_checked: bool,
    /// Served next whatever else holds.
    pub(super) must_dispatch: bool,
    /// Waits at the end of its slice, so that its group does not lose its place.
    pub(super) waits_busy: bool,
}

impl Slot {
    pub(super) fn is_used(&self, now: Nanos) -> bool {
        self.started_at.is_some() && now >= self.ends_at
    }
}

/// A queue of one process for sync requests, or one that the async requests of a priority share.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) sync: bool,
    pub(super) group: GroupIndex,
    /// The priority its processes asked for.
    pub(super) own: Priority,
    /// The priority in force: `own`, or more while requests are submitted that others wait for.
    pub(super) priority: Priority,
    /// Staged requests; their order by sector is in a table beside this one.
    pub(super) queued: u32,
    pub(super) fifo: Fifo,
    /// The staged request that is best by position.
    pub(super) next: Option<SchedTag>,
    pub(super) in_flight: u32,
    /// Staged requests that others wait for.
    pub(super) favoured: u32,
    pub(super) seeks: SeekHistory,
    /// Where it is while it is busy.
    pub(super) place: Option<(TreeId, TreeKey)>,
    /// Where it is among the queues that may be close to the head.
    pub(super) close: Option<(u8, (u64, QueueId))>,
    /// Time of its last slice that it is owed, or owes when negative, nanoseconds.
    pub(super) residual_ns: i64,
    pub(super) slot: Slot,
    pub(super) idle_window: bool,
    /// It has had so many requests at once that jumping about does not matter.
    pub(super) deep: bool,
    /// Several processes were put together in it.
    pub(super) shared: bool,
    /// It is to be taken apart again.
    pub(super) splits: bool,
    /// Processes whose sync requests go here.
    pub(super) processes: u32,
    /// Where its processes are to go.
    pub(super) redirect: Option<QueueId>,
    /// Queues whose processes are to come here.
    pub(super) redirected_here: u32,
    /// It is on the list of queues that may be used again.
    pub(super) free: bool,
}

impl Queue {
    pub(super) fn new(sync: bool, group: GroupIndex, own: Priority) -> Queue {
        Queue {
            sync,
            group,
            own,
            priority: own,
            queued: 0,
            fifo: Fifo::EMPTY,
            next: None,
            in_flight: 0,
            favoured: 0,
            seeks: SeekHistory::default(),
            place: None,
            close: None,
            residual_ns: 0,
            slot: Slot::default(),
            idle_window: sync && own.class != Class::Idle,
            deep: false,
            shared: false,
            splits: false,
            processes: 0,
            redirect: None,
            redirected_here: 0,
            free: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued == 0
    }

    pub(super) fn kind(&self) -> Kind {
        match (self.sync, self.idle_window) {
            (false, _) => Kind::Async,
            (true, false) => Kind::SyncNoIdle,
            (true, true) => Kind::Sync,
        }
    }

    pub(super) fn tree(&self) -> TreeId {
        TreeId::new(self.priority.class, self.kind())
    }

    pub(super) fn is_idle_class(&self) -> bool {
        self.priority.class == Class::Idle
    }

    pub(super) fn is_real_time(&self) -> bool {
        self.priority.class == Class::RealTime
    }

    /// Whether it has no process, no request and no reference any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.sync
            && self.processes == 0
            && self.redirected_here == 0
            && self.in_flight == 0
            && self.is_empty()
            && self.place.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_and_level_has_a_place_of_its_own_among_the_async_queues() {
        let at = |class, level| Priority { class, level }.async_index();
        let levels = |class| (0..8).map(move |level| at(class, level)).collect::<Vec<_>>();
        assert_eq!(levels(Class::RealTime), (0..8).collect::<Vec<_>>());
        assert_eq!(levels(Class::BestEffort), (8..16).collect::<Vec<_>>());
        assert_eq!(levels(Class::None), (8..16).collect::<Vec<_>>());
        assert_eq!(levels(Class::Idle), [16; 8]);
    }

    #[test]
    fn what_others_wait_for_has_the_normal_level_at_least_and_is_not_of_the_idle_class() {
        for (class, level, boosted, to) in [
            (Class::BestEffort, 7, Class::BestEffort, 4),
            (Class::BestEffort, 4, Class::BestEffort, 4),
            (Class::BestEffort, 2, Class::BestEffort, 2),
            (Class::RealTime, 5, Class::RealTime, 4),
            (Class::RealTime, 0, Class::RealTime, 0),
            (Class::Idle, 7, Class::BestEffort, 4),
        ] {
            let to = Priority { class: boosted, level: to };
            assert!(Priority { class, level }.boosted() == to, "{class:?} {level}");
        }
    }

    #[test]
    fn a_slice_that_began_is_used_at_its_end() {
        let slot = Slot { started_at: Some(Nanos(5)), ends_at: Nanos(9), ..Slot::default() };
        assert!(!slot.is_used(Nanos(8)) && slot.is_used(Nanos(9)));
        assert!(!Slot { started_at: None, ..slot }.is_used(Nanos(20)));
    }
}

//! Whether two queues become one, and when processes that share a queue get their own again.
//! Source: docs/behaviour/bfq.md, section 12.2. Times in ns.
//!
//! Which queues are close, and the moving of processes, is not here but in `join`.

use weir_bio::Nanos;

use super::entity::{IDLE, LevelId, QueueId};

/// Queues merge only this soon after their first service since they became busy: two that read one
/// stream are found at once, and later one only happens to pass by the other.
const MERGE_WITHIN_NS: u64 = 100_000_000;
/// The verdicts on a process stay as they are for this long after a split.
const SETTLE_AFTER_SPLIT_NS: u64 = 2_000_000_000;

/// A queue that may become one with another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partner {
    pub(super) group: LevelId,
    pub(super) class: usize,
    pub(super) sync: bool,
    pub(super) seeky: bool,
    pub(super) processes: u32,
    /// Its first service since it became busy.
    pub(super) first_served: Option<u64>,
}

impl Partner {
    /// It may merge with any.
    pub(super) fn is_open(&self, now: Nanos) -> bool {
        let late = self.first_served.is_some_and(|at| now.0 > at + MERGE_WITHIN_NS);
        self.sync && !late && !self.seeky && self.processes > 0 && self.class != IDLE
    }

    /// It may merge with `other`, if the two are close.
    pub(super) fn suits(&self, other: &Partner, now: Nanos) -> bool {
        self.group == other.group
            && self.class == other.class
            && self.is_open(now)
            && other.is_open(now)
    }
}

/// Where a queue's processes are to be with their next requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Here,
    /// In queues of their own again.
    Apart,
    In(QueueId),
}

/// How processes share a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sharing {
    /// Several processes use it, or once did.
    shared: bool,
    /// It is never split.
    for_good: bool,
    /// When its process had it for its own again.
    split_at: Option<u64>,
    fate: Fate,
}

/// What a process does at its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stays,
    /// It goes where the queue was merged into.
    Follows,
    /// It gets a queue of its own.
    Leaves,
    /// It is the last, and the queue is its own again, as it was.
    TakesBack,
    /// It is the last, and the queue its own.
    Owns,
}

impl Sharing {
    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(super) fn is_for_good(&self) -> bool {
        self.for_good
    }

    pub(super) fn merged_into(&self) -> Option<QueueId> {
        match self.fate {
            Fate::In(target) => Some(target),
            Fate::Here | Fate::Apart => None,
        }
    }

    /// A split is so recent that verdicts on the process stay as they are.
    pub(super) fn is_settling(&self, now: Nanos) -> bool {
        self.split_at.is_some_and(|at| now.0 < at + SETTLE_AFTER_SPLIT_NS)
    }

    /// What a process of the queue does at its next request.
    #[inline(always)]
    pub(super) fn step(&self, owned: bool, processes: u32) -> Step {
        match self.fate {
            Fate::Here if owned || processes != 1 => Step::Stays,
            Fate::Here => Step::Owns,
            Fate::Apart if processes == 1 => Step::TakesBack,
            Fate::Apart => Step::Leaves,
            Fate::In(_) => Step::Follows,
        }
    }

    /// The end of a slot: processes of a seeky queue no longer read one stream.
    pub(super) fn judge(&mut self, seeky: bool, processes: u32) {
        if self.shared && !self.for_good && seeky && processes > 0 && self.fate == Fate::Here {
            self.fate = Fate::Apart;
        }
    }

    /// Another process comes in.
    pub(super) fn take_in(&mut self) {
        self.shared = true;
    }

    /// It will not be split.
    pub(super) fn keep_together(&mut self) {
        self.for_good = true;
    }

    /// Its processes are to go to `target`. A queue goes to one other and no more, or the other
    /// would be kept for ever.
    pub(super) fn redirect(&mut self, target: QueueId) {
        debug_assert_eq!(self.merged_into(), None, "it was redirected before");
        self.fate = Fate::In(target);
    }

    /// It is gone; where it had been redirected.
    pub(super) fn end(&mut self) -> Option<QueueId> {
        let target = self.merged_into();
        self.fate = Fate::Here;
        target
    }

    /// A process has it for its own from now on, after a split.
    pub(super) fn take_back(&mut self, now: Nanos) {
        *self = Sharing { split_at: Some(now.0), for_good: self.for_good, ..Sharing::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::super::entity::{BE, RT};
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn two_merge_while_both_are_fresh_steady_and_of_one_group_and_class() {
        let one = Partner {
            group: LevelId(3),
            class: BE,
            sync: true,
            seeky: false,
            processes: 1,
            first_served: Some(900 * MS),
        };
        // At 1 s.
        for (other, suits) in [
            (one, true),
            (Partner { first_served: None, ..one }, true),
            (Partner { first_served: Some(900 * MS - 1), ..one }, false),
            (Partner { group: LevelId(4), ..one }, false),
            (Partner { class: RT, ..one }, false),
            (Partner { sync: false, ..one }, false),
            (Partner { seeky: true, ..one }, false),
            (Partner { processes: 0, ..one }, false),
            (Partner { processes: 2, ..one }, true),
        ] {
            let now = Nanos(1000 * MS);
            assert_eq!((one.suits(&other, now), other.suits(&one, now)), (suits, suits));
        }
        let idle = Partner { class: IDLE, ..one };
        assert!(!idle.suits(&idle, Nanos(1000 * MS)), "the idle class is served one by one");
    }

    #[test]
    fn a_seeky_shared_queue_is_left_by_all_but_the_last_process_which_takes_it_back() {
        let shared = Sharing { shared: true, ..Sharing::default() };
        // Sharing before, seeky at the end of a slot, processes then; of an owner and processes at
        // the next request: the step.
        let merged = Sharing { fate: Fate::In(QueueId(7)), ..shared };
        for (before, seeky, owned, processes, step) in [
            (Sharing::default(), true, true, 1, Step::Stays),
            (shared, false, false, 2, Step::Stays),
            (shared, false, false, 1, Step::Owns),
            (shared, false, true, 1, Step::Stays),
            (shared, true, false, 2, Step::Leaves),
            (shared, true, false, 1, Step::TakesBack),
            (shared, true, true, 1, Step::TakesBack),
            (Sharing { for_good: true, ..shared }, true, false, 2, Step::Stays),
            (Sharing { for_good: true, ..shared }, true, false, 1, Step::Owns),
            (merged, false, false, 1, Step::Follows),
            (merged, true, false, 2, Step::Follows),
        ] {
            let mut sharing = before;
            sharing.judge(seeky, processes);
            let case = (before, seeky, owned, processes);
            assert_eq!(sharing.step(owned, processes), step, "{case:?}");
        }
    }

    #[test]
    fn after_a_split_verdicts_stay_as_they_are_for_two_seconds() {
        let mut sharing = Sharing { shared: true, fate: Fate::Apart, ..Sharing::default() };
        assert!(!sharing.is_settling(Nanos(0)));
        sharing.take_back(Nanos(1000 * MS));
        assert!(
            sharing.is_settling(Nanos(3000 * MS - 1)) && !sharing.is_settling(Nanos(3000 * MS))
        );
        assert!(!sharing.is_shared());
        assert_eq!(sharing.step(true, 1), Step::Stays);
    }
}

//! Queues that are created together, which are taken for one application's. Source:
//! docs/behaviour/bfq.md, section 12.3.

use weir_bio::Nanos;

use super::queue::Handle;

/// Queues created no later than this after the anchor share its queue, ns.
const TOGETHER_NS: u64 = 180_000_000;
/// A queue created later than this after the anchor is the next anchor, ns.
const NEXT_NS: u64 = 600_000_000;

/// The queue of a group that those created soon after it are to share. Time counts from its own
/// creation: were it that of the last one to join, processes that start at a steady pace would
/// share one queue without end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) queue: Handle,
    pub(super) created: Nanos,
}

/// What a new queue is to the anchor of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Newcomer {
    /// It is the next anchor.
    Replaces,
    /// It shares the anchor's queue.
    Joins,
    /// It is neither.
    Apart,
}

impl Anchor {
    /// A queue is created; `akin` if processes use the anchor's, of the same class and level.
    pub(super) fn meet(self, akin: bool, now: Nanos) -> Newcomer {
        match now.since(self.created) {
            _ if !akin => Newcomer::Replaces,
            age if age <= TOGETHER_NS => Newcomer::Joins,
            age if age <= NEXT_NS => Newcomer::Apart,
            _ => Newcomer::Replaces,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entity::QueueId;
    use super::*;

    #[test]
    fn the_first_of_a_chain_gathers_for_180_ms_and_another_after_600_ms() {
        let queue = Handle { queue: QueueId(0), birth: 1 };
        let anchor = Anchor { queue, created: Nanos::from_ms(1000) };
        for (ms, akin, newcomer) in [
            (1000, true, Newcomer::Joins),
            (1180, true, Newcomer::Joins),
            (1181, true, Newcomer::Apart),
            (1600, true, Newcomer::Apart),
            (1601, true, Newcomer::Replaces),
            (1001, false, Newcomer::Replaces),
            (1300, false, Newcomer::Replaces),
        ] {
            assert_eq!(anchor.meet(akin, Nanos::from_ms(ms)), newcomer, "at {ms} ms, {akin}");
        }
    }
}

//! Ends that are known and not yet due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_bio::Nanos;

/// Ends by their time; those of one time in the order in which they became known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    heap: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    next: u64,
}

impl Ends {
    pub(crate) fn add(&mut self, id: u32, at: Nanos) {
        self.heap.push(Reverse((at, self.next, id)));
        self.next += 1;
    }

    pub(crate) fn first(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The first, if it is due.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<(u32, Nanos)> {
        let due = self.first()? <= now;
        let Reverse((at, _, id)) = due.then(|| self.heap.pop()).flatten()?;
        Some((id, at))
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }
}

//! Which driver queues of a hard queue have asked for a turn: by any thread, so that the turn need
//! not look at all.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weir_queue::{PARTITIONS_MAX, Wake};

/// Calls of the driver queues of one hard queue, by partition.
#[derive(Default)]
pub(super) struct Calls {
    /// Something may have been marked since it was last taken.
    any: AtomicBool,
    marks: [AtomicU64; (PARTITIONS_MAX as usize + 1) / 64],
    lane: OnceLock<Arc<dyn Wake>>,
}

/// The call of one of them.
struct Call {
    calls: Arc<Calls>,
    number: u16,
}

impl Wake for Call {
    fn wake(&self) {
        let (word, bit) = (usize::from(self.number / 64), self.number % 64);
        self.calls.marks[word].fetch_or(1 << bit, Ordering::AcqRel);
        // Behind the mark: a turn that finds it set finds the marks of all that have set it. A
        // store would hide what came before another's store.
        self.calls.any.swap(true, Ordering::AcqRel);
        if let Some(lane) = self.calls.lane.get() {
            lane.wake();
        }
    }
}

impl Calls {
    /// The lane that is to be turned. The first one stays.
    pub(super) fn lead_to(&self, lane: Arc<dyn Wake>) {
        _ = self.lane.set(lane);
    }

    pub(super) fn has_lane(&self) -> bool {
        self.lane.get().is_some()
    }

    /// How the driver queue of a partition calls.
    pub(super) fn of(self: &Arc<Self>, number: u16) -> Arc<dyn Wake> {
        Arc::new(Call { calls: Arc::clone(self), number })
    }

    /// The numbers of those that have called since the last time; `None`: none has.
    #[inline]
    pub(super) fn take(&self) -> Option<Vec<u16>> {
        self.any.load(Ordering::Relaxed).then(|| self.take_marks())
    }

    #[cold]
    fn take_marks(&self) -> Vec<u16> {
        self.any.swap(false, Ordering::AcqRel);
        let mut called = Vec::new();
        for (word, marks) in self.marks.iter().enumerate() {
            let mut bits = marks.swap(0, Ordering::AcqRel);
            while bits != 0 {
                called.push((word * 64) as u16 + bits.trailing_zeros() as u16);
                bits &= bits - 1;
            }
        }
        called
    }
}

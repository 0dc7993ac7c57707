//! The way of a scheduler's calls from its recorder to a reader: a ring, written under the
//! scheduler's right, so one bounded buffer has the order of all lanes. What finds it full is lost,
//! and all that follows: a recording with a hole could not be replayed beyond it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use weir_ring::{Consumer, Producer, ring};
use weir_sched::recorder::{Cut, Noted, Tape};

/// Calls that wait for their reader at most: some 3 MiB, and some 20 ms of a busy device.
pub(crate) const ROOM: usize = 1 << 16;

/// The state of a recording, which its two ends share.
#[derive(Default)]
pub(crate) struct TapeState {
    /// A [`Cut`] by its number; 0: none.
    cut: AtomicU8,
    /// Calls for which there was no room.
    lost: AtomicU64,
    /// The recorder is gone.
    closed: AtomicBool,
}

impl TapeState {
    pub(crate) fn cut(&self, why: Cut) {
        if self.cut.load(Ordering::Relaxed) == 0 {
            self.cut.store(why as u8, Ordering::Release);
        }
    }

    /// Calls for which there was no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    /// Nothing more is kept. What was kept before is in the ring for one who has seen this.
    pub(crate) fn is_over(&self) -> bool {
        self.cut.load(Ordering::Acquire) != 0
            || self.lost.load(Ordering::Acquire) != 0
            || self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn why_cut(&self) -> Option<Cut> {
        let number = self.cut.load(Ordering::Acquire);
        let all = [Cut::Tunable, Cut::Limits, Cut::Depth, Cut::Drained];
        all.into_iter().find(|cut| *cut as u8 == number)
    }
}

/// The recorder's end.
pub(crate) struct RingTape {
    calls: Producer<Noted>,
    state: Arc<TapeState>,
    /// Calls for which there was no room. Only this end counts them.
    lost: u64,
}

impl Tape for RingTape {
    #[inline]
    fn keep(&mut self, noted: Noted) {
        if self.lost == 0 && self.state.cut.load(Ordering::Relaxed) == 0 {
            if self.calls.push(noted).is_ok() {
                return;
            }
            self.calls.publish();
        } else if self.lost == 0 {
            return;
        }
        self.lost += 1;
        self.state.lost.store(self.lost, Ordering::Release);
    }

    #[inline]
    fn publish(&mut self) {
        self.calls.publish();
    }

    fn cut(&mut self, why: Cut) {
        self.calls.publish();
        self.state.cut(why);
    }
}

impl Drop for RingTape {
    fn drop(&mut self) {
        self.calls.publish();
        self.state.closed.store(true, Ordering::Release);
    }
}

/// A tape for so many calls, and its reader's end.
pub(crate) fn tape(room: usize) -> (RingTape, Consumer<Noted>, Arc<TapeState>) {
    let (kept, calls) = ring(room);
    let state = Arc::<TapeState>::default();
    (RingTape { calls: kept, state: Arc::clone(&state), lost: 0 }, calls, state)
}

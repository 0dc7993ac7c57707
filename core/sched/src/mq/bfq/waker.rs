//! Whose completions make a process ask for more: its waker. Source: docs/behaviour/bfq.md, section
//! 10.
//!
//! While the device is kept for a queue, serving its waker is no loss, for the queue has nothing
//! to ask before.

use weir_bio::Nanos;

use super::Bfq;
use super::entity::QueueId;
use super::queue::Waker;

/// A request this soon after another queue's completion may have been caused by it, ns.
const SOON_NS: u64 = 4_000_000;
/// So many times in a row, and it was.
const TIMES: u8 = 3;
/// The times must fall within so many idle slices.
const WITHIN_SLICES: u64 = 128;

impl Bfq {
    /// A request arrives at the empty sync queue `id`, whose process has `outstanding` ones.
    pub(super) fn look_for_waker(&mut self, id: QueueId, outstanding: u32, now: Nanos) {
        let queue = self.queue(id);
        if !self.features.wakers || outstanding > 1 || queue.think.is_short() || !queue.sync {
            return;
        }
        let Some(candidate) = self.last_completed.and_then(|handle| self.resolve(handle)) else {
            return;
        };
        let soon = now.since(self.last_completion) < SOON_NS;
        let other = self.queue(candidate);
        if !soon || candidate == id || other.shared || Some(candidate) == queue.waker.confirmed {
            return;
        }
        let handle = other.handle(candidate);
        let limit = WITHIN_SLICES * self.set.slice_idle_ns;
        let waker = &mut self.queue_mut(id).waker;
        if waker.tentative != Some(handle) || now.0 >= waker.since + limit {
            waker.tentative = Some(handle);
            waker.times = 1;
            waker.since = now.0;
            return;
        }
        waker.times += 1;
        if waker.times >= TIMES {
            self.forget_waker(id);
            self.queue_mut(id).waker.confirmed = Some(candidate);
            self.queue_mut(candidate).waker.wakes.push(id);
        }
    }

    /// Queue `id` becomes busy: of the queues that its waker wakes, it is now the last that did.
    #[inline]
    pub(super) fn head_woken(&mut self, id: QueueId) {
        if let Some(waker) = self.queue(id).waker.confirmed {
            let wakes = &mut self.queue_mut(waker).waker.wakes;
            wakes.retain(|woken| *woken != id);
            wakes.push(id);
        }
    }

    /// Queue `id` has no waker, confirmed or tentative.
    pub(super) fn forget_waker(&mut self, id: QueueId) {
        let waker = &mut self.queue_mut(id).waker;
        waker.tentative = None;
        waker.times = 0;
        if let Some(old) = waker.confirmed.take() {
            self.queue_mut(old).waker.wakes.retain(|woken| *woken != id);
        }
    }

    /// Removes queue `id` as a waker and as a woken queue: it dies or merges.
    pub(super) fn leave_wakers(&mut self, id: QueueId) {
        self.forget_waker(id);
        let Waker { wakes, .. } = std::mem::take(&mut self.queue_mut(id).waker);
        for woken in wakes {
            self.queue_mut(woken).waker.confirmed = None;
        }
    }
}

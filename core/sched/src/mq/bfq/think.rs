//! What is observed of a queue's habits: how far its requests are apart, how long its process
//! thinks between them. Source: the BFQ spec, 1.3, A8.

use weir_bio::{Nanos, Rq};

use super::Bfq;
use super::entity::{IDLE, QueueId};
use super::queue::Queue;

/// Farther apart than this counts as a seek, sectors.
const SEEK_DISTANCE: u64 = 800;
/// On a device without seeks a larger request than this is none, sectors.
const SEEK_SIZE: u32 = 64;
/// More seeks than this among the last 32 requests make a queue seeky.
const SEEKY_ABOVE: u32 = 19;
/// An empty fifth of the window, and a process is not I/O-bound.
const IDLE_PART: u64 = 5;
/// The window is halved when it is longer, ns.
const WINDOW_NS: u64 = 200_000_000;
/// What is known of a process stays as it is this long after a split, ns.
pub(super) const SETTLE_AFTER_SPLIT_NS: u64 = 2_000_000_000;

/// The last 32 requests, one bit each, set for a seek.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeekHistory(u32);

impl SeekHistory {
    pub(super) fn new() -> SeekHistory {
        SeekHistory(1)
    }

    pub(super) fn note(&mut self, seek: bool) {
        self.0 = self.0 << 1 | u32::from(seek);
    }

    pub(super) fn is_seeky(self) -> bool {
        self.0.count_ones() > SEEKY_ABOVE
    }

    pub(super) fn is_full(self) -> bool {
        self.0 == u32::MAX
    }
}

/// Whether going from `position` (0: unknown) to a request is a seek.
pub(super) fn is_seek(position: u64, sector: u64, sectors: u32, rotational: bool) -> bool {
    position != 0
        && position.abs_diff(sector) > SEEK_DISTANCE
        && (rotational || sectors < SEEK_SIZE)
}

impl Bfq {
    /// Observes that a request arrives at the empty queue `id`, whose process has `outstanding`
    /// ones: think time, I/O-bound window, short-think state, waker. Before the request is added.
    #[inline(never)]
    pub(super) fn observe_return(&mut self, id: QueueId, outstanding: u32, now: Nanos) {
        let slice_idle = self.set.slice_idle_ns;
        let queue = &mut self.queues[id.index()];
        if queue.in_flight == 0 && queue.sync {
            let elapsed = now.0.saturating_sub(queue.last_end);
            queue.think.sample(now, 2 * slice_idle);
            queue.window_idle += elapsed;
            let window = now.0.saturating_sub(queue.window_started);
            queue.io_bound = queue.window_idle * IDLE_PART <= window;
            if window > WINDOW_NS {
                queue.window_started += window / 2;
                queue.window_idle /= 2;
            }
        }
        self.judge_think_time(id, now);
        if self.queue(id).sync {
            self.look_for_waker(id, outstanding, now);
            self.begin_sample(id, now);
        }
    }

    /// A request arrives: whether the process of queue `id` still thinks as long as it did.
    #[inline]
    pub(super) fn judge_think_time(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        if !queue.sync {
            return;
        }
        let long = queue.think.exceeds(self.set.slice_idle_ns / 2);
        let short = queue.processes > 0 && !long;
        if short != queue.short_think {
            self.turn_short_think(id, now);
        }
    }

    #[cold]
    fn turn_short_think(&mut self, id: QueueId, now: Nanos) {
        let queue = self.queue(id);
        let class = self.forest[queue.entity].class;
        let settling = queue.split_at.is_some_and(|at| now.0 < at + SETTLE_AFTER_SPLIT_NS);
        if class != IDLE && self.set.slice_idle_ns > 0 && !settling {
            let short = !queue.short_think;
            self.queue_mut(id).short_think = short;
            self.think_time_changed(id, now);
        }
    }
}

impl Queue {
    /// Observes where one of its requests lies.
    #[inline]
    pub(super) fn observe_position(&mut self, rq: &Rq, rotational: bool) {
        self.seeks.note(is_seek(self.position, rq.sector, rq.sectors, rotational));
        self.position = rq.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_seeky_from_the_twentieth_seek_of_32() {
        let mut seeks = SeekHistory::new();
        (0..18).for_each(|_| seeks.note(true));
        assert!(!seeks.is_seeky(), "19 bits with the one it starts with");
        seeks.note(true);
        assert!(seeks.is_seeky() && !seeks.is_full());
        (0..32).for_each(|_| seeks.note(false));
        assert!(!seeks.is_seeky());
    }

    #[test]
    fn a_seek_is_far_and_without_rotation_small_as_well() {
        assert!(!is_seek(0, 1 << 30, 8, true), "unknown position");
        assert!(!is_seek(1000, 1800, 8, true));
        assert!(is_seek(1000, 1801, 8, true) && is_seek(1000, 199, 8, true));
        assert!(is_seek(1000, 1 << 20, 63, false) && !is_seek(1000, 1 << 20, 64, false));
    }
}

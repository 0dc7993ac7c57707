//! Observations of a queue's habits: how far its requests are apart, how long its process thinks
//! between them. Source: docs/behaviour/bfq.md, sections 8 and 16.3.

use weir_bio::{Nanos, Rq};

use super::Bfq;
use super::entity::{IDLE, QueueId};
use super::inject::Sample;
use super::queue::Queue;
use super::seeks::is_seek;

/// An empty fifth of the window, and a process is not I/O-bound.
const IDLE_PART: u64 = 5;
/// The window is halved when it is longer, ns.
const WINDOW_NS: u64 = 200_000_000;

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
            if outstanding <= 1 {
                self.begin_sample(id, now);
            }
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
        let settling = queue.is_settling(now);
        if class != IDLE && self.set.slice_idle_ns > 0 && !settling {
            let short = !queue.short_think;
            let queue = self.queue_mut(id);
            queue.short_think = short;
            if queue.injection.think_changed(short, now) {
                self.sample = Sample::default();
            }
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

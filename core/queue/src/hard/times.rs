//! The times of requests: since when the oldest is there, and what the write-back throttle looks at
//! while a window of it is open.

use weir_bio::{Nanos, Op};

use super::HardQueue;
use crate::request::Counted;

impl HardQueue {
    /// When the oldest request that is with the driver or waits for it was accepted.
    pub(crate) fn oldest(&self) -> Option<Nanos> {
        let delayed = self.delayed.iter().map(|(_, claim)| claim).chain(&self.watch.held);
        let waiting = self
            .dispatch
            .iter()
            .chain(&self.commands)
            .chain(delayed)
            .map(|claim| claim.accepted_at);
        self.table.oldest().into_iter().chain(waiting).min()
    }

    /// A pass begins of a device whose writes may be throttled; `window` is the number of the
    /// window that is open, 0 without one.
    #[inline]
    pub(crate) fn observe(&mut self, window: u64) {
        if window != self.observer.window {
            let (table, notes) = (&self.table, &self.gauges.observed);
            self.observer.turn_to(window, notes, || table.oldest_read());
        }
    }

    /// The pass is over. Without an open window nothing but this is noted: whether there was I/O.
    #[inline]
    pub(crate) fn note_pass(&mut self, now: Nanos) {
        if self.observer.window == 0 {
            let [reads, _] = &self.gauges.issued;
            let [read, written] = &self.gauges.ended;
            let figures = reads.read().wrapping_add(read.read()).wrapping_add(written.read());
            self.observer.look(figures, now, &self.gauges.observed);
        }
    }

    /// What is issued and what ends is noted only while writes are throttled.
    #[cold]
    pub(super) fn observe_while(&mut self, throttled: bool) {
        if !throttled {
            self.observer.turn_to(0, &self.gauges.observed, || None);
        }
    }

    /// The driver has taken the first so many of the burst.
    #[cold]
    pub(super) fn observe_issued(&mut self, taken: usize, now: Nanos) {
        let HardQueue { burst, table, observer, gauges, .. } = self;
        for tag in &burst[..taken] {
            let rq = table.request(*tag).rq;
            if rq.op == Op::Read {
                observer.read_issued(rq.id, now, &gauges.observed);
            }
        }
    }

    /// The driver has answered, and nothing has been ended yet.
    #[cold]
    pub(super) fn observe_answers(&mut self, now: Nanos) {
        let HardQueue { done, table, observer, gauges, .. } = self;
        for answer in &done.answers {
            let Some(request) = table.ending(answer.tag) else { continue };
            match request.rq.op {
                Op::Read => {
                    let device_ns = now.since(request.issued_at);
                    observer.read_ended(request.rq.id, device_ns, &gauges.observed);
                }
                op if op.is_write() && !op.is_passthrough() => {
                    observer.write_ended(&gauges.observed)
                }
                _ => {}
            }
            if request.counted == Counted::NONE || request.counted == Counted::POOL {
                observer.other_ended(now, &gauges.observed);
            }
        }
    }
}

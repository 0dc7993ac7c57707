//! When a clone that has as much under way as it may begins more: at once, or when several have
//! ended, which then go together.

use crate::job::Job;
use crate::order::Batching;

/// Opens while the queue is filled, and after it was full when enough has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    /// It opens with so many under way at most.
    opens_at: u64,
    is_shut: bool,
}

impl Gate {
    /// That of a job; `None` where it is always open.
    pub(crate) fn of(job: &Job) -> Option<Gate> {
        let Batching { submit, complete, low, .. } = job.batching;
        let depth = u64::from(job.depth);
        let ended = |count: u16| depth.saturating_sub(u64::from(count.max(1)));
        let low = if low == 0 { depth } else { u64::from(low) };
        let opens_at = low.min(ended(submit)).min(ended(complete));
        (!job.batching.is_open()).then_some(Gate { opens_at, is_shut: false })
    }

    /// As much is under way as there may be.
    pub(crate) fn shut(&mut self) {
        self.is_shut = true;
    }

    /// Whether more may be begun with so many under way.
    pub(crate) fn lets(&mut self, in_flight: u64) -> bool {
        self.is_shut &= in_flight > self.opens_at;
        !self.is_shut
    }
}

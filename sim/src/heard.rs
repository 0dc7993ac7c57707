//! What a call of the core told, as counts: that is what it costs.

use std::cell::Cell;

use weir_queue::{Event, Sink, What};

/// Counts of the events of a call that have a price.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) accepted: Cell<u64>,
    pub(crate) inserted: Cell<u64>,
    pub(crate) picked: Cell<u64>,
    pub(crate) issued: Cell<u64>,
    pub(crate) answered: Cell<u64>,
    pub(crate) ended: Cell<u64>,
}

impl Sink for &Heard {
    fn tell(self, event: impl FnOnce() -> Event) {
        let count = match event().what {
            What::Accepted { .. } => &self.accepted,
            What::Inserted { .. } => &self.inserted,
            What::Picked { .. } => &self.picked,
            What::Issued { .. } => &self.issued,
            What::Answered { .. } => &self.answered,
            What::Ended { .. } => &self.ended,
            _ => return,
        };
        count.set(count.get() + 1);
    }
}

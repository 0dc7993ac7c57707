//! Each path in its turn: the head of the list. A path that comes back goes to the head.

use weir_bio::Nanos;

use super::{Load, Order, Selector};

pub(super) struct RoundRobin(Order);

impl RoundRobin {
    pub(super) fn new(paths: usize) -> RoundRobin {
        RoundRobin(Order::new(paths))
    }
}

impl Selector for RoundRobin {
    #[inline]
    fn choose(&mut self, _load: Load, _now: Nanos) -> Option<usize> {
        if self.0.0.is_empty() { None } else { Some(self.0.use_at(0)) }
    }

    fn fail(&mut self, path: usize) {
        self.0.remove(path);
    }

    fn reinstate(&mut self, path: usize) {
        self.0.push_first(path);
    }
}

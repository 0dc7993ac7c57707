//! The path with the fewest requests under way, the first in the list of equals.

use weir_bio::Nanos;

use super::{Figures, Load, Order, Selector};

pub(super) struct QueueLength {
    order: Order,
    under_way: Vec<u32>,
}

impl QueueLength {
    pub(super) fn new(paths: usize) -> QueueLength {
        QueueLength { order: Order::new(paths), under_way: vec![0; paths] }
    }
}

impl Selector for QueueLength {
    #[inline]
    fn choose(&mut self, _load: Load, _now: Nanos) -> Option<usize> {
        // None is better than one with nothing under way.
        let idle = self.order.iter().position(|path| self.under_way[path] == 0);
        if let Some(idle) = idle {
            return Some(self.order.use_at(idle));
        }
        let under_way = &self.under_way;
        self.order.use_best(|one, best| under_way[one] < under_way[best])
    }

    fn fail(&mut self, path: usize) {
        self.order.remove(path);
    }

    fn reinstate(&mut self, path: usize) {
        self.order.push(path);
    }

    fn started(&mut self, path: usize, _bytes: u64) {
        self.under_way[path] += 1;
    }

    fn ended(&mut self, path: usize, _bytes: u64, _sent_at: Nanos, _now: Nanos) {
        self.under_way[path] -= 1;
    }

    fn figures(&self, path: usize) -> Figures {
        Figures { outstanding: u64::from(self.under_way[path]), ..Figures::default() }
    }
}

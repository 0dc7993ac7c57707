//! The path that would be through first: bytes under way and those of the request, over the
//! relative throughput. A throughput of 0 is for paths used only if no other is left.

use weir_bio::Nanos;

use super::{Figures, Load, Order, Selector};

pub(super) struct ServiceTime {
    order: Order,
    throughput: Vec<u32>,
    under_way: Vec<u64>,
}

impl ServiceTime {
    pub(super) fn new(throughput: Vec<u32>) -> ServiceTime {
        let (order, under_way) = (Order::new(throughput.len()), vec![0; throughput.len()]);
        ServiceTime { order, throughput, under_way }
    }
}

/// A path as it is compared.
#[derive(Clone, Copy)]
struct Candidate {
    throughput: u32,
    under_way: u64,
}

impl Candidate {
    /// Whether `self` is better than `best` for so many bytes more.
    #[inline]
    fn is_better(self, best: Candidate, bytes: u64) -> bool {
        if self.throughput == best.throughput {
            return self.under_way < best.under_way;
        }
        let is_higher = self.throughput > best.throughput;
        if self.under_way == best.under_way || self.throughput == 0 || best.throughput == 0 {
            return is_higher;
        }
        // Crosswise: the time of one is below that of the other, and no quotient is rounded.
        let time = |of: Candidate, other: Candidate| {
            u128::from(of.under_way + bytes) * u128::from(other.throughput)
        };
        let (ours, theirs) = (time(self, best), time(best, self));
        if ours == theirs { is_higher } else { ours < theirs }
    }
}

impl Selector for ServiceTime {
    #[inline]
    fn choose(&mut self, load: Load, _now: Nanos) -> Option<usize> {
        let ServiceTime { order, throughput, under_way } = self;
        let of =
            |path: usize| Candidate { throughput: throughput[path], under_way: under_way[path] };
        order.use_best(|one, best| of(one).is_better(of(best), load.bytes))
    }

    fn fail(&mut self, path: usize) {
        self.order.remove(path);
    }

    fn reinstate(&mut self, path: usize) {
        self.order.push(path);
    }

    fn started(&mut self, path: usize, bytes: u64) {
        self.under_way[path] += bytes;
    }

    fn ended(&mut self, path: usize, bytes: u64, _sent_at: Nanos, _now: Nanos) {
        self.under_way[path] -= bytes;
    }

    fn figures(&self, path: usize) -> Figures {
        Figures { bytes: self.under_way[path], ..Figures::default() }
    }
}

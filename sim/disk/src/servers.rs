//! Resources that serve one thing after the other: what a disk is made of.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_bio::Nanos;

/// Nanoseconds that `bytes` take at a rate; none at a rate of 0, which is no bound. What takes
/// longer than 64 bits can tell takes as long as they can.
pub(crate) fn transfer_ns(bytes: u64, rate: u64) -> u64 {
    match rate {
        0 => 0,
        rate => {
            let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
            u64::try_from(ns).unwrap_or(u64::MAX)
        }
    }
}

/// One server: serves in the order of asking.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Server {
    free_at: Nanos,
}

impl Server {
    /// Serves for `ns` from `ready` on, as soon as it is free; when that ends.
    pub(crate) fn serve(&mut self, ready: Nanos, ns: u64) -> Nanos {
        self.free_at = self.free_at.max(ready) + ns;
        self.free_at
    }

    pub(crate) fn free_at(self) -> Nanos {
        self.free_at
    }
}

/// Servers that are alike: the one that is free first serves next.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    free_at: BinaryHeap<Reverse<Nanos>>,
}

impl Pool {
    pub(crate) fn new(servers: u32) -> Pool {
        Pool { free_at: (0..servers).map(|_| Reverse(Nanos::ZERO)).collect() }
    }

    /// As [`Server::serve`], by one of them; when it begins and ends.
    pub(crate) fn serve(&mut self, ready: Nanos, ns: u64) -> (Nanos, Nanos) {
        let mut first = self.free_at.peek_mut().expect("a pool has a server");
        let begins = first.0.max(ready);
        *first = Reverse(begins + ns);
        (begins, begins + ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_takes_its_bytes_by_the_rate() {
        assert_eq!(transfer_ns(4096, 100_000_000), 40_960);
        assert_eq!(transfer_ns(u64::MAX, 1_000_000_000), u64::MAX);
        assert_eq!(transfer_ns(1 << 40, 0), 0);
        assert_eq!(transfer_ns(1 << 40, 1), u64::MAX, "34,865 years");
    }

    #[test]
    fn a_server_waits_for_the_one_before_and_for_what_it_serves() {
        let mut server = Server::default();
        assert_eq!(server.serve(Nanos(10), 5), Nanos(15));
        assert_eq!(server.serve(Nanos(11), 5), Nanos(20));
        assert_eq!(server.serve(Nanos(30), 5), Nanos(35));
        assert_eq!(server.free_at(), Nanos(35));
    }

    #[test]
    fn a_pool_serves_as_many_at_once_as_it_has_servers() {
        let mut pool = Pool::new(2);
        let ends: Vec<u64> = (0..5).map(|_| pool.serve(Nanos(0), 10).1.0).collect();
        assert_eq!(ends, [10, 10, 20, 20, 30]);
        assert_eq!(pool.serve(Nanos(100), 10), (Nanos(100), Nanos(110)));
    }
}

//! Tokens: how many requests of a domain may be in the device, over all hard queues, and which
//! hard queues wait for one.

use std::collections::VecDeque;

use super::domain::{DOMAINS_MAX, Domain};

/// The tokens of every domain.
#[derive(Clone, Debug)]
pub(super) struct Tokens {
    pools: [Pool; DOMAINS_MAX],
    /// Hard queues that may go on, until they are asked for.
    kicked: u64,
}

#[derive(Clone, Debug, Default)]
struct Pool {
    depth: u32,
    depth_max: u32,
    in_use: u32,
    /// A bit for each hard queue that waits, and their order, longest first.
    waits: u64,
    waiting: VecDeque<u16>,
}

impl Tokens {
    /// Every domain at its full depth.
    pub(super) fn new(domains: &[Domain], hard_queues: u16) -> Tokens {
        let pool = |index: usize| {
            let depth_max = domains.get(index).map_or(0, |domain| domain.depth_max);
            let waiting = VecDeque::with_capacity(usize::from(hard_queues));
            Pool { depth: depth_max, depth_max, waiting, ..Pool::default() }
        };
        Tokens { pools: std::array::from_fn(pool), kicked: 0 }
    }

    /// Takes a token for a hard queue, or lets it wait for one.
    #[inline]
    pub(super) fn take(&mut self, domain: usize, hard_queue: u16) -> bool {
        let pool = &mut self.pools[domain];
        if pool.in_use >= pool.depth {
            pool.wait(hard_queue);
            return false;
        }
        self.take_anyway(domain, hard_queue);
        true
    }

    /// Takes a token although there may be none.
    #[inline]
    pub(super) fn take_anyway(&mut self, domain: usize, hard_queue: u16) {
        let pool = &mut self.pools[domain];
        pool.in_use += 1;
        if pool.waits & 1 << hard_queue != 0 {
            pool.stop_waiting(hard_queue);
        }
    }

    /// How many more requests of a domain may be in the device.
    #[inline]
    pub(super) fn free(&self, domain: usize) -> usize {
        let pool = &self.pools[domain];
        pool.depth.saturating_sub(pool.in_use) as usize
    }

    /// Takes tokens, at least one, for a hard queue; no more than are [free](Tokens::free).
    #[inline]
    pub(super) fn take_several(&mut self, domain: usize, hard_queue: u16, count: u32) {
        self.take_anyway(domain, hard_queue);
        self.pools[domain].in_use += count - 1;
    }

    /// A token comes back: the hard queue that has waited longest is named.
    #[inline]
    pub(super) fn give(&mut self, domain: usize) {
        let pool = &mut self.pools[domain];
        pool.in_use -= 1;
        if pool.waits != 0 {
            self.kicked |= pool.call_one();
        }
    }

    pub(super) fn depth(&self, domain: usize) -> u32 {
        self.pools[domain].depth
    }

    pub(super) fn depth_max(&self, domain: usize) -> u32 {
        self.pools[domain].depth_max
    }

    pub(super) fn in_use(&self, domain: usize) -> u32 {
        self.pools[domain].in_use
    }

    /// The hard queues that wait for a token of this domain, a bit each.
    pub(super) fn waits(&self, domain: usize) -> u64 {
        self.pools[domain].waits
    }

    /// Sets a depth, brought within its bounds. Each token there is more calls one who waits, as
    /// a release would: none need follow.
    pub(super) fn resize(&mut self, domain: usize, depth: u64) {
        let pool = &mut self.pools[domain];
        let before = pool.depth.max(pool.in_use);
        pool.depth = depth.clamp(1, u64::from(pool.depth_max)) as u32;
        for _ in before..pool.depth {
            if pool.waits == 0 {
                return;
            }
            self.kicked |= pool.call_one();
        }
    }

    #[inline]
    pub(super) fn take_kicked(&mut self) -> u64 {
        std::mem::take(&mut self.kicked)
    }
}

impl Pool {
    fn wait(&mut self, hard_queue: u16) {
        let bit = 1 << hard_queue;
        if self.waits & bit == 0 {
            self.waits |= bit;
            self.waiting.push_back(hard_queue);
        }
    }

    #[cold]
    fn stop_waiting(&mut self, hard_queue: u16) {
        self.waits &= !(1 << hard_queue);
        self.waiting.retain(|waiting| *waiting != hard_queue);
    }

    /// The bit of the hard queue that has waited longest; it waits no more.
    #[cold]
    fn call_one(&mut self) -> u64 {
        let hard_queue = self.waiting.pop_front().expect("a bit for each that waits");
        let bit = 1 << hard_queue;
        self.waits &= !bit;
        bit
    }
}

//! The path that would be through first, by the service times seen: an exponentially weighted mean
//! of each path, in which a long service weighs more. Fixed point with 10 bits behind the point.

use weir_bio::Nanos;

use super::{Figures, Load, Order, Selector};

/// Bits behind the point.
const SHIFT: u32 = 10;
const ONE: u64 = 1 << SHIFT;

/// Service times fall into this many buckets, each 2^24 ns wide.
const BUCKETS: usize = 64;
const BUCKET_SHIFT: u32 = 24;

pub(super) struct Historical {
    order: Order,
    paths: Vec<Path>,
    /// Weight of the past, by the bucket of the new service time.
    weights: [u64; BUCKETS],
    threshold_multiplier: u64,
}

#[derive(Clone, Copy)]
struct Path {
    service_time: u64,
    outstanding: u64,
    last_finish: Nanos,
    stale_after: Nanos,
}

impl Historical {
    pub(super) fn new(paths: usize, base_weight: u32, threshold_multiplier: u32) -> Historical {
        let path = Path {
            service_time: ONE,
            outstanding: 0,
            last_finish: Nanos::ZERO,
            stale_after: Nanos::ZERO,
        };
        let base = u64::from(base_weight);
        let mut weights = [0; BUCKETS];
        let mut power = ONE;
        // The last stays 0: such a service is all that counts.
        for weight in &mut weights[..BUCKETS - 1] {
            power = (power * base + ONE / 2) >> SHIFT;
            *weight = power;
        }
        Historical {
            order: Order::new(paths),
            paths: vec![path; paths],
            weights,
            threshold_multiplier: u64::from(threshold_multiplier),
        }
    }

    /// Whether `one` is better than `best`.
    fn is_better(&self, one: usize, best: usize, now: Nanos) -> bool {
        let (one, best) = (self.paths[one], self.paths[best]);
        let (low, high) =
            (one.service_time.min(best.service_time), one.service_time.max(best.service_time));
        if high <= low.saturating_mul(self.threshold_multiplier) {
            // As fast as each other, for what the user calls fast.
            return one.outstanding < best.outstanding;
        }
        let is_stale = |path: Path| now > path.stale_after;
        let is_idle = |path: Path| path.outstanding == 0;
        let (one_asks, best_asks) =
            (is_idle(one) && is_stale(one), is_idle(best) && is_stale(best));
        if is_idle(one) && is_idle(best) {
            return one.stale_after < best.stale_after;
        }
        if one_asks || best_asks {
            return one_asks;
        }
        let wins = one.time_to_end(best) < best.time_to_end(one);
        let winner = if wins { one } else { best };
        // Its time is out of date, so it says nothing.
        if is_stale(winner) { one.outstanding < best.outstanding } else { wins }
    }
}

impl Path {
    /// Time until a request more has ended here, beside one at `other`.
    fn time_to_end(self, other: Path) -> u64 {
        if self.outstanding == other.outstanding {
            return self.service_time;
        }
        let large = self.outstanding >= ONE || other.outstanding >= ONE;
        let service_time = if large { self.service_time >> SHIFT } else { self.service_time };
        (1 + self.outstanding).saturating_mul(service_time)
    }
}

fn mean(old: u64, new: u64, weight: u64) -> u64 {
    let sum = u128::from(old) * u128::from(weight) + u128::from(new) * u128::from(ONE - weight);
    ((sum + u128::from(ONE / 2)) >> SHIFT) as u64
}

impl Selector for Historical {
    fn choose(&mut self, _load: Load, now: Nanos) -> Option<usize> {
        let mut order = std::mem::replace(&mut self.order, Order(Vec::new()));
        let chosen = order.use_best(|one, best| self.is_better(one, best, now));
        self.order = order;
        chosen
    }

    fn fail(&mut self, path: usize) {
        self.order.remove(path);
    }

    fn reinstate(&mut self, path: usize) {
        self.order.push(path);
    }

    fn started(&mut self, path: usize, _bytes: u64) {
        self.paths[path].outstanding += 1;
    }

    fn ended(&mut self, path: usize, _bytes: u64, sent_at: Nanos, now: Nanos) {
        let valid = self.order.0.len() as u64;
        let path = &mut self.paths[path];
        path.outstanding -= 1;
        let served_ns = now.since(sent_at.max(path.last_finish));
        let bucket = ((served_ns >> BUCKET_SHIFT) as usize).min(BUCKETS - 1);
        let new = served_ns.saturating_mul(ONE);
        path.service_time = mean(path.service_time, new, self.weights[bucket]);
        path.last_finish = now;
        path.stale_after = now + valid.saturating_mul(path.service_time >> SHIFT);
    }

    fn figures(&self, path: usize) -> Figures {
        let Path { service_time, outstanding, stale_after, .. } = self.paths[path];
        Figures { service_time, outstanding, stale_after, ..Figures::default() }
    }
}

//! How long I/Os took, and how many there were: what a live run and a simulated one count alike.

use hdrhistogram::Histogram;

/// Two digits: 128 buckets or more for each power of two, so a value is known to within 0.8 %.
const DIGITS: u8 = 2;
/// One hour; longer ones are counted as that.
const MOST_NS: u64 = 3_600_000_000_000;

/// Times, ns: how often each was seen, to within 0.8 %; their mean and the largest exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Times {
    fn default() -> Times {
        let histogram = Histogram::new_with_bounds(1, MOST_NS, DIGITS);
        let histogram = histogram.expect("fixed bounds are valid");
        Times { histogram, sum_ns: 0, max_ns: 0 }
    }
}

impl Times {
    /// Counts the same time so often.
    #[inline]
    pub fn record(&mut self, ns: u64, times: u64) {
        self.histogram.saturating_record_n(ns, times);
        self.sum_ns += u128::from(ns) * u128::from(times);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Times) {
        self.histogram.add(&other.histogram).expect("the same bounds");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Their mean, exact; 0 when there is none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64
    }

    /// Their sum, exact.
    #[must_use]
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The largest, exact.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The time that a share of them does not exceed; 0 when there is none.
    ///
    /// That of the ceil(share * count)th. Those of a bucket count as spread evenly over it, so that
    /// what moves by less than a bucket moves this as well; it is off by 0.8 % at most, where they
    /// all are at one end, and not at all below 256 ns.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = (share * self.count() as f64).ceil().max(1.0) as u64;
        if rank >= self.count() {
            return self.max_ns;
        }
        let mut before = 0;
        for bucket in self.histogram.iter_recorded() {
            let count = bucket.count_since_last_iteration();
            if before + count >= rank {
                let place = (rank - before) as f64 - 0.5;
                return self.within(bucket.value_iterated_to(), place / count as f64);
            }
            before += count;
        }
        self.max_ns
    }

    /// The time at this share of the bucket that ends with `top`.
    fn within(&self, top: u64, share: f64) -> u64 {
        let low = self.histogram.lowest_equivalent(top);
        let width = top - low + 1;
        (low + (share * width as f64) as u64).min(top).min(self.max_ns)
    }

    /// The first time of the bucket that ends with `top`.
    #[must_use]
    pub fn bucket_from(&self, top: u64) -> u64 {
        self.histogram.lowest_equivalent(top)
    }

    /// The buckets that hold something: the largest value of each, and how many are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.histogram
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_since_last_iteration()))
    }
}

/// I/Os of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// How many ended as they should.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From when each was to begin until its answer was taken.
    pub total: Times,
    /// From when it was to begin until the driver had it.
    pub wait: Times,
    /// From then until the driver's answer.
    pub device: Times,
}

impl Row {
    /// Adds those of another.
    pub fn add(&mut self, other: &Row) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.total.add(&other.total);
        self.wait.add(&other.wait);
        self.device.add(&other.device);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_moves_with_what_moves_by_less_than_a_bucket() {
        let of = |shift: u64| {
            let mut times = Times::default();
            (0..10_000).for_each(|n| times.record(1_000_000 + shift + n * 100, 1));
            [0.5, 0.9, 0.99].map(|share| times.quantile_ns(share) as f64)
        };
        let exact = [1.5e6, 1.9e6, 1.99e6];
        for shift in (0..20).map(|n| n * 500) {
            for (found, exact) in of(shift).iter().zip(exact.map(|at| at + shift as f64)) {
                let off = found / exact - 1.0;
                assert!(off.abs() < 2e-4, "{found} instead of {exact}: {off}");
            }
        }
    }

    #[test]
    fn a_quantile_is_one_of_them_where_there_are_few() {
        let mut times = Times::default();
        assert_eq!(times.quantile_ns(0.5), 0);
        times.record(1_000_003, 1);
        assert_eq!(times.quantile_ns(0.5), 1_000_003, "the largest is known exactly");
        times.record(100, 3);
        let found = [0.5, 0.75, 0.76, 1.0].map(|share| times.quantile_ns(share));
        assert_eq!(found, [100, 100, 1_000_003, 1_000_003]);
    }
}

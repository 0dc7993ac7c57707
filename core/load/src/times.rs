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

    /// The bound that a share of them does not exceed; 0 when there is none.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        self.histogram.value_at_quantile(share).min(self.max_ns)
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

//! How long I/Os took, and how many there were: what a live run and a simulated one count alike.
//!
//! Times are counted in buckets of 1 ns up to 2048 ns, and of a 1024th of a power of two above.
//! There are as many as the longest time needs: there may be thousands of threads.

use hdrhistogram::Histogram;

/// Three digits: 1024 buckets or more for each power of two.
const DIGITS: u8 = 3;
/// One hour; longer ones are counted as that.
const MOST_NS: u64 = 3_600_000_000_000;
/// The buckets that documents have: 128 for each power of two, of 1 ns below 256 ns.
const TOLD_LOG2: u32 = 7;

/// The most that a quantile may be off by, as a part of it.
pub const QUANTILE_ERROR: f64 = 1.0 / 1024.0;

/// Times, ns: how often each was seen, to within [`QUANTILE_ERROR`]; their mean and the largest
/// exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Times {
    fn default() -> Times {
        let histogram = Histogram::new(DIGITS).expect("a number of digits that there may be");
        Times { histogram, sum_ns: 0, max_ns: 0 }
    }
}

/// Times that are not told apart, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The least, ns.
    pub from_ns: u64,
    /// The largest, ns.
    pub top_ns: u64,
    /// How many there are.
    pub count: u64,
}

impl Times {
    /// Counts the same time so often.
    #[inline]
    pub fn record(&mut self, ns: u64, times: u64) {
        if times == 0 {
            return;
        }
        let recorded = self.histogram.record_n(ns.min(MOST_NS), times);
        recorded.expect("it grows as far as an hour");
        self.sum_ns += u128::from(ns) * u128::from(times);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds those of another.
    pub fn add(&mut self, other: &Times) {
        self.histogram.add(&other.histogram).expect("it grows as far as the other");
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
    /// That of the ceil(share * count)th: exact below 2048 ns, and the largest always. Those of a
    /// bucket count as spread evenly over it, so that what moves by less than a bucket moves this
    /// as well; it is off by [`QUANTILE_ERROR`] at most, where they all are at one end.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = (share * self.count() as f64).ceil().max(1.0) as u64;
        if rank >= self.count() {
            return self.max_ns;
        }
        let mut before = 0;
        for Bucket { from_ns, top_ns, count } in self.fine_buckets() {
            if before + count >= rank {
                let place = ((rank - before) as f64 - 0.5) / count as f64;
                let within = (place * (top_ns - from_ns + 1) as f64) as u64;
                return (from_ns + within).min(top_ns).min(self.max_ns);
            }
            before += count;
        }
        self.max_ns
    }

    /// All buckets that hold something, from the least times on.
    pub fn fine_buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.histogram.iter_recorded().map(|bucket| {
            let (top_ns, count) = (bucket.value_iterated_to(), bucket.count_since_last_iteration());
            Bucket { from_ns: self.histogram.lowest_equivalent(top_ns), top_ns, count }
        })
    }

    /// The buckets of documents that hold something, 128 for each power of two: the largest value
    /// of each, and how many are in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let top = |ns: u64| ns | ((1_u64 << ns.max(1).ilog2().saturating_sub(TOLD_LOG2)) - 1);
        let mut fine = self.fine_buckets().peekable();
        std::iter::from_fn(move || {
            let first = fine.next()?;
            let (end, mut count) = (top(first.from_ns), first.count);
            while let Some(more) = fine.next_if(|more| more.from_ns <= end) {
                count += more.count;
            }
            Some((end, count))
        })
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
    fn a_quantile_is_off_by_a_thousandth_at_most_wherever_times_lie() {
        // All at one end of a bucket, which is where spreading them is worst; the largest is not
        // among those that are asked for.
        for scale in 0..42 {
            for ns in [1_u64 << scale, (1 << scale) + ((1 << scale) >> 3), (2 << scale) - 1] {
                let ns = ns.min(MOST_NS);
                let mut times = Times::default();
                times.record(ns, 999);
                times.record(MOST_NS, 1);
                for share in [0.001, 0.5, 0.99] {
                    let found = times.quantile_ns(share);
                    let off = (found as f64 / ns as f64 - 1.0).abs();
                    assert!(off <= QUANTILE_ERROR, "{found} instead of {ns}: {off}");
                    assert!(ns >= 2048 || found == ns, "{found} instead of {ns}");
                }
            }
        }
    }

    #[test]
    fn a_quantile_is_that_of_all_times_in_order_whatever_their_distribution() {
        let mut prng = weir_bio::Prng::new(7);
        let mut draw = || {
            // Six powers of ten, evenly in the logarithm, and a tail.
            let power = prng.below(6_000_000) as f64 / 1e6;
            (100.0 * 10_f64.powf(power)) as u64 + prng.below(3) * prng.below(1_000_000)
        };
        let mut all: Vec<u64> = (0..4_999).map(|_| draw()).collect();
        let mut times = Times::default();
        all.iter().for_each(|ns| times.record(*ns, 1));
        all.sort_unstable();
        for (part, whole) in [(1, 1000), (1, 2), (9, 10), (99, 100), (999, 1000)] {
            let exact = all[(part * all.len()).div_ceil(whole) - 1] as f64;
            let found = times.quantile_ns(part as f64 / whole as f64) as f64;
            assert!((found / exact - 1.0).abs() <= QUANTILE_ERROR, "{found} instead of {exact}");
        }
    }

    #[test]
    fn buckets_of_documents_are_a_128th_of_a_power_of_two_and_hold_all() {
        let mut times = Times::default();
        let values = [0, 1, 255, 256, 257, 258, 511, 512, 1023, 1024, 2047, 2048, 115_199, 115_200];
        values.into_iter().for_each(|ns| times.record(ns, 2));
        times.record(u64::MAX, 1);
        let told: Vec<(u64, u64)> = times.buckets().collect();
        let tops = [0, 1, 255, 257, 259, 511, 515, 1023, 1031, 2047, 2063, 115_199, 115_711];
        let counts = [2, 2, 2, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2];
        assert_eq!(told[..13], tops.into_iter().zip(counts).collect::<Vec<_>>());
        // What is longer than an hour is with those of an hour.
        let (top, count) = told[13];
        let hour = MOST_NS..MOST_NS + (MOST_NS >> 7);
        assert!(count == 1 && hour.contains(&top), "{top}");
        assert_eq!(told.iter().map(|(_, count)| count).sum::<u64>(), times.count());
        assert_eq!(times.max_ns(), u64::MAX);
    }

    #[test]
    fn what_is_added_is_as_if_it_had_been_recorded_here() {
        let values = [[5_u64, 70_000, 3_000_000], [6, 80_000, 9]];
        let [mut one, other] = values.map(|values| {
            let mut times = Times::default();
            values.into_iter().for_each(|ns| times.record(ns, 3));
            times
        });
        let mut whole = Times::default();
        values.as_flattened().iter().for_each(|ns| whole.record(*ns, 3));
        one.add(&other);
        assert_eq!(one, whole);
        one.record(1 << 40, 0);
        assert_eq!(one, whole, "none of a time is nothing");
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

//! Readings of counters, each made when a caller asks for it.

use super::{BUCKETS, LaneGauges, Latencies, Ledger, Tally, bucket, bucket_top};

/// The times of one client's I/O.
#[derive(Clone, Debug, Default)]
pub struct ClientTimes {
    /// From acceptance to the end.
    pub total: Latencies,
    /// Sum of the times from acceptance to the driver, ns.
    pub queue_ns: u64,
    /// Sum of the times from the driver to the end, ns.
    pub device_ns: u64,
    /// Times for which a cap held I/Os back before they were accepted: a value for each of these.
    pub held: Latencies,
    /// I/Os that ended with an error.
    pub errors: u64,
}

/// Requests of one hard queue, reads and then all that goes towards the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueUse {
    /// Ended by the driver.
    pub ended: [u64; 2],
    /// With the driver.
    pub in_driver: [u64; 2],
}

impl QueueUse {
    /// Handed to the driver: ended, or with it.
    #[must_use]
    pub fn dispatched(&self) -> [u64; 2] {
        [0, 1].map(|direction: usize| self.ended[direction] + self.in_driver[direction])
    }

    pub(crate) fn of(gauges: &LaneGauges) -> QueueUse {
        // What has ended first: a request that ends in between is with the driver. It is not
        // counted twice, and makes no gauge negative.
        let ended = [0, 1].map(|direction: usize| gauges.ended[direction].read());
        let issued = [0, 1].map(|direction: usize| gauges.issued[direction].read());
        let in_driver = [0, 1].map(|direction| issued[direction].saturating_sub(ended[direction]));
        QueueUse { ended, in_driver }
    }
}

impl Ledger {
    /// Counts busy time that a reader of the statistics was the first to see.
    pub(crate) fn charge(&mut self, ticks: u64) {
        self.retired.get_or_insert_default().busy_ticks += ticks;
    }
}

impl Tally {
    /// The times of its I/O. The holder of what caps hold back adds those.
    #[must_use]
    pub fn times(&self) -> ClientTimes {
        let mut times = ClientTimes { errors: self.stats.errors.read(), ..ClientTimes::default() };
        for group in &self.stats.groups {
            group.total.add_to(&mut times.total);
            times.queue_ns += group.wait.sum.read();
            times.device_ns += group.device.sum.read();
        }
        times
    }
}

impl Latencies {
    /// Counts of values below 2^`first` ns, then below each further power up to 2^`last`, and from
    /// there on: each value is in one of the counts.
    #[must_use]
    pub fn by_powers(&self, first: u32, last: u32) -> Vec<u64> {
        let mut counts = Vec::with_capacity((last - first) as usize + 2);
        let mut begin = 0;
        for power in first..=last {
            let end = bucket(1 << power);
            counts.push(self.counts[begin..end].iter().sum());
            begin = end;
        }
        counts.push(self.counts[begin..].iter().sum());
        counts
    }

    /// The buckets that are not empty: the highest value that each holds, ns, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, count)| (bucket_top(index), *count))
    }

    /// A histogram of these buckets, as [`buckets`](Latencies::buckets) gives them, whose values
    /// have this sum.
    #[must_use]
    pub fn of_buckets(buckets: impl IntoIterator<Item = (u64, u64)>, sum_ns: u64) -> Latencies {
        let mut read = Latencies { sum_ns, ..Latencies::default() };
        for (top, count) in buckets {
            read.counts[bucket(top)] += count;
            read.max_ns = read.max_ns.max(top);
        }
        read
    }
}

/// The time that `per_mille` of 1000 I/Os do not exceed, ns, with the time for which caps held them
/// back: `held` has a value for each I/O that was held back. Both times of an I/O are taken to be
/// independent of each other.
#[must_use]
pub fn quantile_with_held(total: &Latencies, held: &Latencies, per_mille: u32) -> u64 {
    let (ios, held_back) = (total.count() as f64, held.count() as f64);
    if held_back == 0.0 || ios == 0.0 {
        return total.quantile_ns(per_mille);
    }
    let mut sums = vec![0.0; BUCKETS];
    let passed = (ios - held_back).max(0.0) / ios;
    let weight = 1.0_f64.min(ios / held_back) / ios;
    for (time, count) in total.buckets() {
        let count = count as f64;
        sums[bucket(time)] += count * passed;
        for (wait, waited) in held.buckets() {
            sums[bucket(time.saturating_add(wait))] += count * waited as f64 * weight;
        }
    }
    let (mut seen, wanted) = (0.0, sums.iter().sum::<f64>() * f64::from(per_mille) / 1000.0);
    let most = total.max_ns.saturating_add(held.max_ns);
    for (index, weight) in sums.iter().enumerate() {
        seen += weight;
        // Rounding must not make the last one be missed.
        if *weight > 0.0 && seen >= wanted * (1.0 - 1e-9) {
            return bucket_top(index).min(most);
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::super::Histogram;
    use super::*;

    fn of(values: &[(u64, u64)]) -> Latencies {
        let histogram = Histogram::default();
        values.iter().for_each(|(ns, times)| histogram.record_many(*ns, *times));
        let mut read = Latencies::default();
        histogram.add_to(&mut read);
        read
    }

    #[test]
    fn requests_are_dispatched_before_they_end_and_are_with_the_driver_between() {
        let gauges = LaneGauges::default();
        [5, 9].iter().zip(&gauges.issued).for_each(|(count, issued)| issued.add(*count));
        [2, 9].iter().zip(&gauges.ended).for_each(|(count, ended)| ended.add(*count));
        let seen = QueueUse::of(&gauges);
        assert_eq!((seen.dispatched(), seen.ended, seen.in_driver), ([5, 9], [2, 9], [3, 0]));
        assert_eq!(gauges.in_driver(), seen.in_driver);
    }

    #[test]
    fn each_power_of_two_is_the_boundary_of_a_bucket() {
        for power in 4..=62 {
            let bound = 1_u64 << power;
            assert_eq!(bucket(bound), bucket(bound - 1) + 1, "2^{power}");
            let counts = of(&[(bound - 1, 2), (bound, 3)]).by_powers(power, power);
            assert_eq!(counts, [2, 3], "2^{power}");
        }
        let counts = of(&[(0, 1), (1023, 1), (1500, 4), (1 << 40, 7)]).by_powers(10, 34);
        assert_eq!((counts.len(), counts[0], counts[1], counts[25]), (26, 2, 4, 7));
        assert_eq!(counts.iter().sum::<u64>(), 13);
    }

    #[test]
    fn what_came_since_a_histogram_that_began_anew_is_all_that_it_has() {
        let (then, now) = (of(&[(700, 3), (5, 2)]), of(&[(700, 4), (5, 2)]));
        assert_eq!((now.since(&then).count(), now.since(&then).sum_ns()), (1, 700));
        let anew = of(&[(700, 1), (90_000, 1)]);
        let since = anew.since(&then);
        assert_eq!((since.count(), since.sum_ns()), (2, anew.sum_ns()));
    }

    #[test]
    fn a_histogram_travels_as_its_buckets() {
        let read = of(&[(5, 1), (700, 3), (123_456_789, 9)]);
        let again = Latencies::of_buckets(read.buckets(), read.sum_ns());
        assert_eq!(again.counts, read.counts);
        assert_eq!((again.count(), again.sum_ns()), (13, read.sum_ns()));
    }

    #[test]
    fn time_held_by_a_cap_is_part_of_the_percentiles() {
        let total = of(&[(1_000_000, 100)]);
        assert_eq!(quantile_with_held(&total, &Latencies::default(), 500), 1_000_000);
        let near = |found: u64, ns: u64| found >= ns && found - ns <= ns / 4;
        // All of them were held for 160 ms.
        let all = of(&[(160_000_000, 100)]);
        assert!(near(quantile_with_held(&total, &all, 500), 161_000_000));
        // One in ten was: it is behind the median, and before the 99th percentile.
        let some = of(&[(160_000_000, 10)]);
        assert!(near(quantile_with_held(&total, &some, 500), 1_000_000));
        assert!(near(quantile_with_held(&total, &some, 990), 161_000_000));
        // More than have ended yet: those under way were held as well.
        let more = of(&[(160_000_000, 300)]);
        assert!(near(quantile_with_held(&total, &more, 10), 161_000_000));
    }
}

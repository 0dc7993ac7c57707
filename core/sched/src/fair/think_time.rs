//! Think time: how long a process takes from an answer to its next request, as a moving average.
//! Source: docs/behaviour/bfq.md, section 16.4.

use weir_bio::Nanos;

/// From this weight on the average is worth something; it is passed with the third sample.
const VALID_WEIGHT: u64 = 80;

/// An average of which each sample is an eighth, kept with 8 bits of fraction.
#[derive(Clone, Copy, Debug)]
pub struct ThinkTime {
    last_end: Option<Nanos>,
    weight: u64,
    total: u64,
    mean_ns: u64,
}

impl ThinkTime {
    /// Nothing known; the first request will end a long silence.
    pub const SILENT: ThinkTime = ThinkTime { last_end: None, weight: 0, total: 0, mean_ns: 0 };

    /// Nothing known; thinking begins at `now`.
    #[must_use]
    pub fn new(now: Nanos) -> ThinkTime {
        ThinkTime { last_end: Some(now), ..ThinkTime::SILENT }
    }

    /// A request was answered.
    pub fn ended(&mut self, now: Nanos) {
        self.last_end = Some(now);
    }

    /// A request came; no sample counts more than `most_ns`.
    pub fn sample(&mut self, now: Nanos, most_ns: u64) {
        let silent_ns = self.last_end.map_or(u64::MAX, |end| now.since(end));
        let sample = silent_ns.min(most_ns);
        self.weight = (7 * self.weight + 256) / 8;
        self.total = self.total.saturating_mul(7).saturating_add(sample.saturating_mul(256)) / 8;
        self.mean_ns = (self.total + 128) / self.weight;
    }

    /// The average in nanoseconds, once there were three samples.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        (self.weight > VALID_WEIGHT).then_some(self.mean_ns)
    }

    /// Whether it is known to be longer than `ns`.
    #[must_use]
    pub fn exceeds(&self, ns: u64) -> bool {
        self.mean_ns().is_some_and(|mean| mean > ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_samples_make_it_known_and_the_cap_holds() {
        let mut think = ThinkTime::SILENT;
        for second in 1..=3 {
            assert_eq!(think.mean_ns(), None);
            think.sample(Nanos::from_ms(second * 1000), 16_000_000);
            think.ended(Nanos::from_ms(second * 1000));
        }
        let mean = think.mean_ns().expect("three samples");
        // The weights are whole numbers (32, 60, 84), so the mean is off by a few thousandths.
        assert!(mean.abs_diff(16_000_000) < 200_000, "{mean}");
        assert!(think.exceeds(8_000_000) && !think.exceeds(17_000_000));
        assert!(think.exceeds(mean - 1) && !think.exceeds(mean));
    }

    #[test]
    fn a_change_of_habit_is_followed_by_an_eighth_each_time() {
        let mut think = ThinkTime::new(Nanos::ZERO);
        let mut now = Nanos::ZERO;
        let mut thinks = |think: &mut ThinkTime, ns: u64, times: u32| {
            for _ in 0..times {
                now = now + ns;
                think.sample(now, u64::MAX / 512);
                think.ended(now);
            }
        };
        thinks(&mut think, 1_000_000, 100);
        thinks(&mut think, 9_000_000, 1);
        let mean = think.mean_ns().expect("many samples");
        // The weight stops at 249 of 256, so the mean is up to 3 % too long.
        assert!((2_000_000..2_060_000).contains(&mean), "{mean}");
    }
}

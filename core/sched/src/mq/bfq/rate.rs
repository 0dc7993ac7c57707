//! How fast the device can be, from what is seen. Source: docs/behaviour/bfq.md, section 13. Rates
//! are sectors per microsecond times 2^16.

use weir_bio::{Nanos, Rq};

use super::seeks::is_seek;

/// Fraction bits of a rate.
pub(super) const RATE_SHIFT: u32 = 16;
/// Peak rate of a reference device: 0.2136 and 0.5035 sectors/us.
const REFERENCE_ROTATIONAL: u64 = 14_000;
const REFERENCE_FLASH: u64 = 33_000;
/// How long an interactive application needs to start on it, ns.
const REFERENCE_TIME_ROTATIONAL_NS: u64 = 7_000_000_000;
const REFERENCE_TIME_FLASH_NS: u64 = 2_500_000_000;
/// Bounds of the interactive period, ns.
const INTERACTIVE_LEAST_NS: u64 = 3_000_000_000;
const INTERACTIVE_MOST_NS: u64 = 25_000_000_000;

const INTERVAL_NS: u64 = 1_000_000_000;
const SHORTEST_NS: u64 = 300_000_000;
const LEAST_SAMPLES: u64 = 32;
/// A pause of an empty device that ends the interval, ns.
const PAUSE_NS: u64 = 100_000_000;
/// A completion later than this after the one before may tell of a slow device, ns.
const SLOW_COMPLETION_NS: u64 = 2_000_000;
/// Slower than this is no peak: 1/1024 sector/us.
const SLOWEST: u64 = 1 << (RATE_SHIFT - 10);
/// Faster than this is no device: 20 sectors/us.
const FASTEST: u64 = 20 << RATE_SHIFT;

/// The estimator of the peak rate. Times in ns.
#[derive(Clone, Debug)]
pub(super) struct RateMeter {
    rotational: bool,
    /// Whether it is on; else the first estimate stands.
    pub(super) enabled: bool,
    estimate: u64,
    first_dispatch: u64,
    last_dispatch: u64,
    last_completion: u64,
    samples: u64,
    sequential: u64,
    sectors: u64,
    largest: u32,
    position: u64,
}

impl RateMeter {
    pub(super) fn new(rotational: bool) -> RateMeter {
        let reference = if rotational { REFERENCE_ROTATIONAL } else { REFERENCE_FLASH };
        RateMeter {
            rotational,
            enabled: true,
            estimate: reference * 2 / 3,
            first_dispatch: 0,
            last_dispatch: 0,
            last_completion: 0,
            samples: 0,
            sequential: 0,
            sectors: 0,
            largest: 0,
            position: 0,
        }
    }

    /// The estimate, sectors/us times 2^16.
    pub(super) fn rate(&self) -> u64 {
        self.estimate
    }

    #[cfg(test)]
    pub(super) fn set_rate(&mut self, rate: u64) {
        self.estimate = rate;
    }

    /// Sectors the device can serve within `ns`.
    pub(super) fn sectors_within(&self, ns: u64) -> u64 {
        (self.estimate * (ns / 1000)) >> RATE_SHIFT
    }

    /// How long an application is raised as interactive, ns.
    pub(super) fn interactive_ns(&self) -> u64 {
        let (rate, time) = match self.rotational {
            true => (REFERENCE_ROTATIONAL, REFERENCE_TIME_ROTATIONAL_NS),
            false => (REFERENCE_FLASH, REFERENCE_TIME_FLASH_NS),
        };
        (rate * time / self.estimate).clamp(INTERACTIVE_LEAST_NS, INTERACTIVE_MOST_NS)
    }

    /// A request goes to the device, which has `in_flight` others. True when the estimate changed.
    pub(super) fn dispatched(&mut self, rq: &Rq, in_flight: u32, now: Nanos) -> bool {
        let now = now.0;
        let mut changed = false;
        if self.samples > 0 && now - self.last_dispatch > PAUSE_NS && in_flight == 0 {
            changed = self.close();
        }
        if self.samples == 0 {
            self.first_dispatch = now;
            (self.sequential, self.sectors, self.largest) = (0, 0, 0);
        }
        let seek = is_seek(self.position, rq.sector, rq.sectors, self.rotational);
        let dense = in_flight > 0 || now - self.last_completion < SLOW_COMPLETION_NS;
        self.samples += 1;
        self.sequential += u64::from(dense && !seek);
        self.sectors += u64::from(rq.sectors);
        let fresh = self.samples.is_multiple_of(LEAST_SAMPLES);
        self.largest = if fresh { rq.sectors } else { self.largest.max(rq.sectors) };
        self.position = rq.end();
        self.last_dispatch = now;
        if now - self.first_dispatch >= INTERVAL_NS {
            changed |= self.close();
        }
        changed
    }

    /// A request of the device ended. True when the estimate changed.
    pub(super) fn completed(&mut self, now: Nanos) -> bool {
        let since = now.0 - self.last_completion;
        let slow = since > SLOW_COMPLETION_NS
            && (u64::from(self.largest) << RATE_SHIFT) / (since / 1000) < SLOWEST;
        let changed = slow && self.samples > 0 && self.close();
        self.last_completion = now.0;
        changed
    }

    fn close(&mut self) -> bool {
        let end = self.last_dispatch.max(self.last_completion);
        let length = end - self.first_dispatch;
        let samples = std::mem::take(&mut self.samples);
        if !self.enabled || samples < LEAST_SAMPLES || length < SHORTEST_NS {
            return false;
        }
        let rate = (self.sectors << RATE_SHIFT) / (length / 1000);
        let few = self.sequential < samples * 3 / 4;
        if (few && rate <= self.estimate) || rate > FASTEST {
            return false;
        }
        let weight = (9 * self.sequential / samples) * length.min(INTERVAL_NS) / INTERVAL_NS;
        let divisor = 10 - weight.min(8);
        self.estimate = (self.estimate * (divisor - 1) / divisor + rate / divisor).max(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interactive_period_follows_the_rate_within_its_bounds() {
        let mut rotational = RateMeter::new(true);
        let near = |ns: u64, want: u64| ns.abs_diff(want) < want / 1000;
        assert!(near(rotational.interactive_ns(), 10_500_000_000));
        assert!(near(RateMeter::new(false).interactive_ns(), 3_750_000_000));
        // 1 MB/s and 1 GB/s in sectors/us times 2^16.
        rotational.set_rate(128);
        assert_eq!(rotational.interactive_ns(), 25_000_000_000);
        rotational.set_rate(128_000);
        assert_eq!(rotational.interactive_ns(), 3_000_000_000);
    }

    #[test]
    fn first_budgets_are_those_of_two_thirds_of_the_reference() {
        assert_eq!(RateMeter::new(true).sectors_within(124_000_000), 17_658);
        assert_eq!(RateMeter::new(false).sectors_within(124_000_000), 41_625);
    }
}

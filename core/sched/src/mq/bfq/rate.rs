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
    /// How long an application is raised as interactive on such a device.
    interactive: u64,
    /// It was measured; else it is what the device is taken for at first.
    measured: bool,
    first_dispatch: u64,
    last_dispatch: u64,
    last_completion: u64,
    samples: u64,
    sequential: u64,
    /// The last request was one of these; and the time from each that was not to the next.
    was_sequential: bool,
    apart: u64,
    sectors: u64,
    largest: u32,
    position: u64,
}

impl RateMeter {
    pub(super) fn new(rotational: bool) -> RateMeter {
        let reference = if rotational { REFERENCE_ROTATIONAL } else { REFERENCE_FLASH };
        let estimate = reference * 2 / 3;
        RateMeter {
            rotational,
            enabled: true,
            estimate,
            interactive: interactive_ns(rotational, estimate),
            measured: false,
            first_dispatch: 0,
            last_dispatch: 0,
            last_completion: 0,
            samples: 0,
            sequential: 0,
            was_sequential: true,
            apart: 0,
            sectors: 0,
            largest: 0,
            position: 0,
        }
    }

    /// The estimate, sectors/us times 2^16.
    pub(super) fn rate(&self) -> u64 {
        self.estimate
    }

    /// Whether the estimate comes from what the device did.
    pub(super) fn is_measured(&self) -> bool {
        self.measured
    }

    fn set_rate(&mut self, rate: u64) {
        self.estimate = rate;
        self.interactive = interactive_ns(self.rotational, rate);
    }

    /// Sectors the device can serve within `ns`.
    pub(super) fn sectors_within(&self, ns: u64) -> u64 {
        (self.estimate * (ns / 1000)) >> RATE_SHIFT
    }

    /// How long an application is raised as interactive, ns.
    pub(super) fn interactive_ns(&self) -> u64 {
        self.interactive
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
            (self.sequential, self.apart, self.sectors, self.largest) = (0, 0, 0, 0);
        } else if !self.was_sequential {
            self.apart += now - self.last_dispatch;
        }
        self.count(rq, in_flight > 0 || now - self.last_completion < SLOW_COMPLETION_NS);
        self.last_dispatch = now;
        if now - self.first_dispatch >= INTERVAL_NS {
            changed |= self.close();
        }
        changed
    }

    /// Whether another request at the moment of the last one is one of its interval: the last one
    /// may have ended it.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        self.samples > 0
    }

    /// As [`dispatched`](RateMeter::dispatched), behind another at the same moment, which is in the
    /// device still and after which the interval [goes on](RateMeter::goes_on).
    #[inline(always)]
    pub(super) fn dispatched_beside(&mut self, rq: &Rq) {
        self.count(rq, true);
    }

    /// Counts a request; `dense` if none was awaited for long before.
    #[inline(always)]
    fn count(&mut self, rq: &Rq, dense: bool) {
        let seek = is_seek(self.position, rq.sector, rq.sectors, self.rotational);
        self.samples += 1;
        self.was_sequential = dense && !seek;
        self.sequential += u64::from(self.was_sequential);
        self.sectors += u64::from(rq.sectors);
        let fresh = self.samples.is_multiple_of(LEAST_SAMPLES);
        self.largest = if fresh { rq.sectors } else { self.largest.max(rq.sectors) };
        self.position = rq.end();
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
        // A seek counts as one of many requests and takes the time of ten: what a device gives
        // meanwhile says nothing of its peak.
        let few = self.sequential < samples * 3 / 4 || self.apart > length / 4;
        if (few && rate <= self.estimate) || rate > FASTEST {
            return false;
        }
        let weight = (9 * self.sequential / samples) * length.min(INTERVAL_NS) / INTERVAL_NS;
        let divisor = 10 - weight.min(8);
        self.set_rate((self.estimate * (divisor - 1) / divisor + rate / divisor).max(1));
        self.measured = true;
        true
    }
}

fn interactive_ns(rotational: bool, rate: u64) -> u64 {
    let (reference, time) = match rotational {
        true => (REFERENCE_ROTATIONAL, REFERENCE_TIME_ROTATIONAL_NS),
        false => (REFERENCE_FLASH, REFERENCE_TIME_FLASH_NS),
    };
    (reference * time / rate).clamp(INTERACTIVE_LEAST_NS, INTERACTIVE_MOST_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Flags, GroupId, IoPrio, Op, RqId, SchedTag};

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

    /// Whether two seconds of rounds, each of so many sequential reads of 256 sectors and then so
    /// many seeks of 128 that take 8.7 ms, lower or raise an estimate.
    fn estimates(rate: u64, sequential: u64, read_ns: u64, seeks: u64) -> std::cmp::Ordering {
        let mut meter = RateMeter::new(true);
        meter.set_rate(rate);
        let (mut now, mut sector) = (0, 0);
        while now < 2_000_000_000 {
            for request in 0..sequential + seeks {
                let seek = request >= sequential;
                let sectors = if seek { 128 } else { 256 };
                sector += if seek { 1 << 20 } else { 0 };
                meter.dispatched(&read(sector, sectors), 0, Nanos(now));
                sector += u64::from(sectors);
                now += if seek { 8_700_000 } else { read_ns };
                meter.completed(Nanos(now));
            }
        }
        meter.rate().cmp(&rate)
    }

    fn read(sector: u64, sectors: u32) -> Rq {
        Rq {
            sector,
            sectors,
            id: RqId(0),
            flags: Flags::NONE,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag::NONE,
            op: Op::Read,
            segments: 1,
        }
    }

    #[test]
    fn an_answer_is_slow_by_the_largest_request_of_those_since_the_last_32() {
        // Requests, one of 2048 sectors among ones of 8, one every 10 ms, and an answer 10 ms
        // behind the last, the first for long: whether the interval ends.
        for (requests, large, ends) in [
            (31, 0, false),
            (32, 0, true),
            (63, 0, true),
            (40, 31, false),
            (40, 32, false),
            (63, 32, false),
            (64, 32, true),
        ] {
            let mut meter = RateMeter::new(true);
            let mut sector = 0;
            meter.completed(Nanos(0));
            for n in 0..requests {
                let sectors = if n == large { 2048 } else { 8 };
                meter.dispatched(&read(sector, sectors), 1, Nanos(n * 10_000_000));
                sector += u64::from(sectors);
            }
            let ended = meter.completed(Nanos(requests * 10_000_000));
            assert_eq!(ended, ends, "the {large}th of {requests} is large");
            assert_eq!(meter.goes_on(), !ends);
        }
    }

    #[test]
    fn an_answer_within_two_milliseconds_of_the_one_before_is_not_slow() {
        for (since, ends) in [(2_000_000, false), (2_000_001, true)] {
            let mut meter = RateMeter::new(true);
            for n in 0..40 {
                meter.dispatched(&read(n, 1), 1, Nanos(n * 10_000_000));
            }
            meter.last_completion = 400_000_000;
            assert_eq!(meter.completed(Nanos(400_000_000 + since)), ends, "{since} ns");
        }
    }

    #[test]
    fn a_lower_rate_counts_if_most_requests_and_most_of_the_time_were_sequential() {
        use std::cmp::Ordering::{Equal, Greater, Less};
        // 256 sectors in 1.36 ms are 0.188 sectors/us, times 2^16 12,336.
        for (rate, sequential, read_ns, seeks, estimate) in [
            (12_336, 91, 2_000_000, 0, Less),
            (9333, 91, 1_360_000, 0, Greater),
            // Two readers by turns: a seek for each slot of 124 ms.
            (12_336, 91, 1_360_000, 1, Less),
            // A slot of seeks for each of reads is an eighth of the requests and half of the time.
            (12_336, 91, 1_360_000, 14, Equal),
            (4000, 91, 1_360_000, 14, Greater),
            (12_336, 2, 1_360_000, 1, Equal),
            // 20 sectors/us are no device.
            (9333, 91, 12_900, 0, Greater),
            (9333, 91, 12_700, 0, Equal),
        ] {
            let case = (rate, sequential, read_ns, seeks);
            assert_eq!(estimates(rate, sequential, read_ns, seeks), estimate, "{case:?}");
        }
    }
}

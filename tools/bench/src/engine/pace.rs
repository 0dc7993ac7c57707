//! How many I/Os are started together.

use weir_bio::Nanos;

/// How long an I/O may wait for others to be started with, ns.
const REFILL_WAIT_NS: u64 = 24_000;

/// Fewer than so many are not worth waiting for.
const REFILL_LEAST: usize = 4;

/// I/Os over which the pace is taken. A disk behind a hypervisor answers many at a time and then
/// none for a while: over a few it looks as fast as memory, and who waited then waits for long.
const MEMORY: u64 = 512;

/// How many I/Os are started together, from how fast they have been ending.
///
/// Handing over one I/O for each that ends keeps a queue full, and costs a system call and perhaps
/// a wake for each. A target that answers a million a second is better filled up by the dozen, as
/// fio's `iodepth_batch_complete_min` has it; a disk wants each at once. So an I/O waits for others
/// only while [`REFILL_LEAST`] of them end within [`REFILL_WAIT_NS`], and never for more than a
/// quarter of the depth.
pub(crate) struct Pace {
    most: usize,
    /// ns from one end to the next, on average; sixteenths.
    interval: u64,
    /// When I/Os last ended.
    last: Option<Nanos>,
}

impl Pace {
    pub(crate) fn new(depth: u16) -> Pace {
        let interval = 16 * REFILL_WAIT_NS;
        Pace { most: usize::from(depth / 4).max(1), interval, last: None }
    }

    /// Start I/Os when so many can be, at least 1 and at most a quarter of the depth.
    #[inline]
    pub(crate) fn refill(&self) -> usize {
        let due = 16 * REFILL_WAIT_NS / self.interval.max(1);
        let due = usize::try_from(due).unwrap_or(self.most);
        if due < REFILL_LEAST { 1 } else { due.min(self.most) }
    }

    #[inline]
    pub(crate) fn ended(&mut self, count: usize, now: Nanos) {
        if count == 0 {
            return;
        }
        if let Some(last) = self.last {
            let weight = (count as u64).min(MEMORY);
            let interval = now.since(last) * 16 / count as u64;
            self.interval = (self.interval * (MEMORY - weight) + interval * weight) / MEMORY;
        }
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After I/Os that ended `interval_ns` apart, `batch` at a time.
    fn refill_at(depth: u16, interval_ns: u64, batch: u64) -> usize {
        let mut pace = Pace::new(depth);
        for n in 0..8_000 {
            pace.ended(batch as usize, Nanos(n * batch * interval_ns));
        }
        pace.refill()
    }

    #[test]
    fn a_fast_target_is_refilled_by_the_dozen_and_a_disk_at_once() {
        for batch in [1, 8, 64] {
            assert!((23..=24).contains(&refill_at(128, 1_000, batch)));
            assert_eq!(refill_at(128, 100, batch), 32, "a quarter of the depth at most");
            assert_eq!(refill_at(128, 5_500, batch), 4);
            assert_eq!(refill_at(128, 7_000, batch), 1);
            assert_eq!(refill_at(1, 1_000, batch), 1);
            assert_eq!(refill_at(3, 10, batch), 1);
        }
    }

    #[test]
    fn a_disk_that_answers_in_bursts_is_refilled_at_once_all_the_same() {
        let mut pace = Pace::new(16);
        let mut now = Nanos::ZERO;
        for _ in 0..1_000 {
            now = now + 160_000;
            for _ in 0..13 {
                now = now + 1_000;
                pace.ended(1, now);
                assert_eq!(pace.refill(), 1, "at {} ns", now.0);
            }
        }
    }

    #[test]
    fn the_refill_follows_a_target_that_slows_down() {
        let mut pace = Pace::new(128);
        assert_eq!(pace.refill(), 1, "nothing is known yet");
        let mut now = Nanos::ZERO;
        for (interval_ns, refill) in [(100, 32), (1_000_000, 1), (100, 32)] {
            for _ in 0..8_000 {
                now = now + interval_ns;
                pace.ended(1, now);
            }
            assert_eq!(pace.refill(), refill, "{interval_ns} ns apart");
        }
    }
}

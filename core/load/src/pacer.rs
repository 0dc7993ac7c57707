//! When I/Os of a rate are due: the open loop.

use weir_bio::{Nanos, Prng};

use crate::job::Arrival;

const SECOND_NS: u64 = 1_000_000_000;

/// The times at which the I/Os of one direction are due. I/Os that could not be begun in time are
/// not forgotten: the rate holds on average, as far as the target can follow.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: u64,
    arrival: Arrival,
    prng: Prng,
    /// When the next I/O is due; `None` before the first question.
    next: Option<Nanos>,
    /// The time that even gaps have lost by rounding, in units of 1/rate ns.
    lost: u64,
}

impl Pacer {
    /// So many a second, at least 1, beginning when it is first asked.
    #[must_use]
    pub fn new(rate: u32, arrival: Arrival, seed: u64) -> Pacer {
        let rate = u64::from(rate.max(1));
        // The times are drawn apart from the places, so that neither changes the other.
        let prng = Prng::new(seed ^ 0xa44_1fa1);
        Pacer { rate, arrival, prng, next: None, lost: 0 }
    }

    /// When the next is due.
    pub fn due(&mut self, now: Nanos) -> Nanos {
        *self.next.get_or_insert(now)
    }

    /// The same, of one that was asked for.
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        self.next
    }

    /// It has been begun.
    pub fn taken(&mut self) {
        let gap = match self.arrival {
            Arrival::Even => {
                self.lost += SECOND_NS % self.rate;
                let carried = self.lost / self.rate;
                self.lost %= self.rate;
                SECOND_NS / self.rate + carried
            }
            Arrival::Poisson => {
                // Of (0, 1]: the logarithm of 0 is no gap.
                let unit = ((self.prng.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
                (-unit.ln() * SECOND_NS as f64 / self.rate as f64) as u64
            }
        };
        self.next = self.next.map(|next| next + gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_times_lose_nothing_by_rounding() {
        let mut pacer = Pacer::new(3, Arrival::Even, 1);
        let first = pacer.due(Nanos(100));
        (0..3000).for_each(|_| pacer.taken());
        assert_eq!(pacer.due(Nanos(5)).since(first), 1000 * SECOND_NS);
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_their_rate() {
        let mut pacer = Pacer::new(1000, Arrival::Poisson, 9);
        let (mut last, mut gaps) = (pacer.due(Nanos(0)), Vec::new());
        for _ in 0..100_000 {
            pacer.taken();
            let due = pacer.due(Nanos(0));
            gaps.push(due.since(last) as f64);
            last = due;
        }
        let mean = gaps.iter().sum::<f64>() / 1e5;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 1e5;
        // Five standard errors: the deviation of an exponential is its mean, 1 ms here.
        assert!((mean - 1e6).abs() < 5.0 * 1e6 / 1e5_f64.sqrt(), "{mean} ns (seed 9)");
        // The deviation of a sample's deviation is at most twice that.
        assert!((variance.sqrt() - 1e6).abs() < 10.0 * 1e6 / 1e5_f64.sqrt(), "{variance}");
    }
}

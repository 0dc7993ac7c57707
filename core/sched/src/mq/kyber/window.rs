//! Latencies by mean (level 4.12): windows of time in which samples are kept, and what the means
//! do to the depths.
//!
//! Rules and numbers: docs/behaviour/kyber.md, section 8. Integers throughout.

use weir_bio::Nanos;

use super::domain::WATCHED;
use super::targets::Targets;
use super::tokens::Tokens;

/// Opened by a request that took too long.
const ALARM_NS: u64 = 10_000_000;

/// Opened after another, while there is something to watch.
const WATCH_NS: u64 = 100_000_000;

const READ: usize = 0;
const WRITE: usize = 1;
const OTHER: usize = 2;

/// How a domain fares against its target, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fares {
    Awful,
    Bad,
    Good,
    Great,
}

impl Fares {
    fn is_good(self) -> bool {
        self >= Fares::Good
    }
}

/// Sum and number of the latencies in the window.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: u64,
    count: u64,
}

/// The window and its samples.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    means: [Mean; WATCHED],
    ends: Option<Nanos>,
}

impl Windows {
    pub(super) fn new() -> Windows {
        Windows { means: [Mean::default(); WATCHED], ends: None }
    }

    pub(super) fn timer(&self) -> Option<Nanos> {
        self.ends
    }

    /// A request of this domain has ended, so many ns after it was issued. The one that opens a
    /// window is its first sample.
    #[inline]
    pub(super) fn sample(&mut self, domain: usize, ns: u64, targets: &Targets, now: Nanos) {
        if self.ends.is_none() && domain != OTHER && ns > targets.ns(domain) {
            self.ends = Some(now + ALARM_NS);
        }
        if self.ends.is_some() {
            let mean = &mut self.means[domain];
            mean.sum = mean.sum.saturating_add(ns);
            mean.count += 1;
        }
    }

    /// The window ends: sets the depths, and opens the next if there is something to watch.
    pub(super) fn evaluate(&mut self, targets: &Targets, tokens: &mut Tokens, now: Nanos) {
        let means = std::mem::take(&mut self.means);
        let fares = |domain| fares(means[domain], targets.ns(domain));
        let (read, write) = (fares(READ), fares(WRITE));
        adjust(READ, read, write, tokens);
        adjust(WRITE, write, read, tokens);
        adjust_other(read, write, means[OTHER].count > 0, tokens);
        let bad = |fares: Option<Fares>| fares.is_some_and(|fares| !fares.is_good());
        let short = tokens.depth(OTHER) < tokens.depth_max(OTHER);
        self.ends = (bad(read) || bad(write) || short).then_some(now + WATCH_NS);
    }
}

/// `None` without samples.
fn fares(mean: Mean, target_ns: u64) -> Option<Fares> {
    let ns = mean.sum.checked_div(mean.count)?;
    Some(if ns >= target_ns.saturating_mul(2) {
        Fares::Awful
    } else if ns > target_ns {
        Fares::Bad
    } else if ns <= target_ns / 2 {
        Fares::Great
    } else {
        Fares::Good
    })
}

/// Reads against SYNC writes: who fares well makes way for who fares ill.
fn adjust(domain: usize, own: Option<Fares>, other: Option<Fares>, tokens: &mut Tokens) {
    use Fares::{Awful, Bad, Good, Great};
    let Some(own) = own else { return };
    let depth = u64::from(tokens.depth(domain));
    let wanted = match (own, other) {
        (_, None) => depth + 1,
        (own, Some(other)) if own.is_good() == other.is_good() => return,
        (Good, Some(Awful)) => depth - (depth / 4).max(1),
        (Good, Some(_)) => depth - (depth / 8).max(1),
        (Great, Some(Awful)) => depth / 2,
        (Great, Some(_)) => depth - (depth / 4).max(1),
        (Awful, Some(Great)) => depth + 2,
        (Bad | Awful, Some(_)) => depth + 1,
    };
    tokens.resize(domain, wanted);
}

/// OTHER against the better of the two others: its requests are async, so it gives tokens up when
/// these fare ill.
fn adjust_other(read: Option<Fares>, write: Option<Fares>, sampled: bool, tokens: &mut Tokens) {
    let depth = u64::from(tokens.depth(OTHER));
    let wanted = match read.max(write) {
        None => depth + 2,
        Some(_) if !sampled => return,
        Some(Fares::Great) => depth + 2,
        Some(Fares::Good) => depth + 1,
        Some(Fares::Bad) => depth - (depth / 4).max(1),
        Some(Fares::Awful) => depth / 2,
    };
    tokens.resize(OTHER, wanted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mq::kyber::domain::Level;
    use Fares::{Awful, Bad, Good, Great};

    fn tokens(depths: [u64; 3]) -> Tokens {
        let mut tokens = Tokens::new(Level::K4.domains(), 1);
        (0..3).for_each(|domain| tokens.resize(domain, depths[domain]));
        tokens
    }

    #[test]
    fn a_mean_is_judged_against_its_target() {
        let cases = [
            (10, 0, None),
            (50, 1, Some(Great)),
            (51, 1, Some(Good)),
            (100, 1, Some(Good)),
            (101, 1, Some(Bad)),
            (199, 1, Some(Bad)),
            (200, 1, Some(Awful)),
            // 599 / 3 = 199: the mean is rounded down.
            (599, 3, Some(Bad)),
        ];
        for (sum, count, expected) in cases {
            assert_eq!(fares(Mean { sum, count }, 100), expected, "{sum} / {count}");
        }
        assert_eq!(fares(Mean { sum: 0, count: 1 }, 0), Some(Awful), "nothing is below 0");
    }

    #[test]
    fn reads_and_sync_writes_make_way_for_each_other_by_the_table() {
        let cases = [
            (None, Some(Awful), 100),
            (Some(Good), Some(Great), 100),
            (Some(Bad), Some(Awful), 100),
            (Some(Great), None, 101),
            (Some(Awful), None, 101),
            (Some(Good), Some(Awful), 75),
            (Some(Good), Some(Bad), 88),
            (Some(Great), Some(Awful), 50),
            (Some(Great), Some(Bad), 75),
            (Some(Bad), Some(Good), 101),
            (Some(Bad), Some(Great), 101),
            (Some(Awful), Some(Good), 101),
            (Some(Awful), Some(Great), 102),
        ];
        for (own, other, depth) in cases {
            let mut tokens = tokens([100, 128, 64]);
            adjust(READ, own, other, &mut tokens);
            assert_eq!(tokens.depth(READ), depth, "{own:?} beside {other:?}");
        }
    }

    #[test]
    fn the_rest_makes_way_for_both_by_the_table() {
        let cases = [
            (None, None, false, 42),
            (Some(Great), None, false, 40),
            (Some(Great), Some(Awful), true, 42),
            (None, Some(Good), true, 41),
            (Some(Bad), Some(Awful), true, 30),
            (Some(Awful), None, true, 20),
        ];
        for (read, write, sampled, depth) in cases {
            let mut tokens = tokens([256, 128, 40]);
            adjust_other(read, write, sampled, &mut tokens);
            assert_eq!(tokens.depth(OTHER), depth, "{read:?} {write:?} {sampled}");
        }
    }

    #[test]
    fn a_window_is_followed_by_another_if_a_domain_fared_ill() {
        const MS: u64 = 1_000_000;
        // Two milliseconds are the target of reads.
        for (reads, again) in [(&[3][..], true), (&[3, 1], false), (&[3, 1, 3], true)] {
            let (targets, mut tokens) = (Targets::new(), tokens([256, 128, 64]));
            let mut windows = Windows::new();
            reads.iter().for_each(|ms| windows.sample(READ, ms * MS, &targets, Nanos(0)));
            assert_eq!(windows.timer(), Some(Nanos(ALARM_NS)));
            windows.evaluate(&targets, &mut tokens, Nanos(ALARM_NS));
            assert_eq!(windows.timer(), again.then_some(Nanos(ALARM_NS + WATCH_NS)), "{reads:?}");
        }
    }

    #[test]
    fn depths_stay_between_one_and_their_most() {
        let mut tokens = tokens([1, 128, 1]);
        adjust(READ, Some(Great), Some(Awful), &mut tokens);
        adjust(WRITE, Some(Awful), Some(Great), &mut tokens);
        adjust_other(Some(Bad), Some(Bad), true, &mut tokens);
        let depths: Vec<_> = (0..3).map(|domain| tokens.depth(domain)).collect();
        assert_eq!(depths, [1, 128, 1]);
    }
}

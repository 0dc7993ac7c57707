//! Latencies by percentile (level 6.18): samples, histograms, and what they do to the depths.
//!
//! Rules and numbers: docs/behaviour/kyber.md, section 6. Integers throughout.

use weir_bio::Nanos;

use super::domain::WATCHED;
use super::targets::{BUCKETS, Targets};
use super::tokens::Tokens;

/// How long samples are gathered before they are looked at.
const GATHER_NS: u64 = 100_000_000;

/// So many samples are enough for a percentile; fewer are, when they took this long to come.
const SAMPLES: u64 = 500;
const PATIENCE_NS: u64 = 1_000_000_000;

/// Buckets from this on are beyond the target.
const BAD: usize = 4;

/// The start of a latency.
#[derive(Clone, Copy)]
enum Since {
    /// Its acceptance by the block layer.
    Accepted = 0,
    /// Its issue to the driver.
    Issued = 1,
}

type Histograms = [[[u64; BUCKETS]; 2]; WATCHED];

/// The samples of the watched domains.
#[derive(Clone, Debug)]
pub(super) struct Percentiles {
    /// Since the timer last fired.
    live: Histograms,
    /// Up to then, and not evaluated yet.
    gathered: Histograms,
    /// The last 99th percentile without congestion, as a bucket.
    p99: [Option<usize>; WATCHED],
    /// When few samples must do. One for both kinds of latency: the first to be evaluated makes the
    /// other start over, as in Linux.
    patience_ends: [Option<Nanos>; WATCHED],
    timer: Option<Nanos>,
}

impl Percentiles {
    pub(super) fn new() -> Percentiles {
        Percentiles {
            live: Histograms::default(),
            gathered: Histograms::default(),
            p99: [None; WATCHED],
            patience_ends: [None; WATCHED],
            timer: None,
        }
    }

    pub(super) fn timer(&self) -> Option<Nanos> {
        self.timer
    }

    /// A request of this domain has ended: ns since it was accepted and since it was issued.
    #[inline]
    pub(super) fn sample(&mut self, domain: usize, since: [u64; 2], targets: &Targets, now: Nanos) {
        let live = &mut self.live[domain];
        live[Since::Accepted as usize][targets.bucket(domain, since[0])] += 1;
        live[Since::Issued as usize][targets.bucket(domain, since[1])] += 1;
        if self.timer.is_none() {
            self.timer = Some(now + GATHER_NS);
        }
    }

    /// Looks at the samples and sets the depths.
    pub(super) fn evaluate(&mut self, tokens: &mut Tokens, now: Nanos) {
        let congested = self.is_congested(now);
        for domain in 0..WATCHED {
            let mut p99 = self.percentile(domain, Since::Accepted, 99, now);
            if congested {
                let remembered = self.p99[domain].take();
                p99 = p99.or(remembered);
            } else if p99.is_some() {
                self.p99[domain] = p99;
            }
            if let Some(bucket) = p99
                && (congested || bucket >= BAD)
            {
                let depth = u64::from(tokens.depth(domain));
                tokens.resize(domain, depth * (bucket as u64 + 1) / 4);
            }
        }
    }

    /// Takes the new samples in; whether the device answers some domain too late.
    pub(super) fn is_congested(&mut self, now: Nanos) -> bool {
        self.timer = None;
        self.gather();
        let mut congested = false;
        // Every domain is looked at: its samples are spent by it.
        for domain in 0..WATCHED {
            let bucket = self.percentile(domain, Since::Issued, 90, now);
            congested |= bucket.is_some_and(|bucket| bucket >= BAD);
        }
        congested
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> [Option<usize>; WATCHED] {
        self.p99
    }

    fn gather(&mut self) {
        let live = std::mem::take(&mut self.live);
        let gathered = self.gathered.iter_mut().flatten().flatten();
        gathered.zip(live.iter().flatten().flatten()).for_each(|(sum, new)| *sum += new);
    }

    /// The bucket of this percentile, if there are samples enough; they are spent then.
    fn percentile(
        &mut self,
        domain: usize,
        since: Since,
        percent: u64,
        now: Nanos,
    ) -> Option<usize> {
        let histogram = &mut self.gathered[domain][since as usize];
        let samples: u64 = histogram.iter().sum();
        if samples == 0 {
            return None;
        }
        let patience = &mut self.patience_ends[domain];
        let ends = *patience.get_or_insert(now + PATIENCE_NS);
        if samples < SAMPLES && ends > now {
            return None;
        }
        *patience = None;
        let mut left = (samples * percent).div_ceil(100);
        let histogram = std::mem::take(histogram);
        for (bucket, count) in histogram[..BUCKETS - 1].iter().enumerate() {
            if *count >= left {
                return Some(bucket);
            }
            left -= count;
        }
        Some(BUCKETS - 1)
    }
}

//! Latencies of which some are known only to be larger than what they were when the time was up.
//!
//! The distribution is the product-limit estimate (Kaplan and Meier, J. Amer. Statist. Assoc. 53,
//! 1958, p. 457): an I/O counts among those that might end for as long as it was watched. Were
//! those left out that had not ended, then a scheduler that lets some starve would look faster for
//! it; were they counted as if they had ended at their age, then every queue would.

use weir_load::Times;
use weir_load::times::Bucket;
use weir_trace::document::{LatencyNs, Unfinished};

/// The latency of I/Os that have ended, and of those that had not, by age.
///
/// Figures that only those could tell are the age of the oldest, which is a bound, and named.
#[must_use]
pub fn latency(ended: &Times, open: &Times) -> (LatencyNs, Unfinished) {
    let steps = steps(ended, open);
    let oldest_ns = open.max_ns();
    let mut at_least = Vec::new();
    let mut of = |name: &str, share: f64| match quantile(&steps, share) {
        Some(ns) => ns.min(ended.max_ns()),
        None => {
            at_least.push(String::from(name));
            oldest_ns
        }
    };
    let [p50, p90, p95, p99, p999] =
        [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)]
            .map(|(name, share)| of(name, share));
    if oldest_ns > ended.max_ns() {
        at_least.push(String::from("max"));
    }
    let (mean, is_whole) = mean(&steps, ended, oldest_ns);
    if !is_whole {
        at_least.insert(0, String::from("mean"));
    }
    let max = ended.max_ns().max(oldest_ns);
    let unfinished = Unfinished { ios: open.count(), oldest_ns, at_least };
    (LatencyNs { mean, p50, p90, p95, p99, p999, max }, unfinished)
}

/// A bucket, and the share of all I/Os that take longer than its start and its end.
#[derive(Clone, Copy, Debug)]
struct Step {
    from_ns: u64,
    to_ns: u64,
    longer: [f64; 2],
}

/// The buckets in which an I/O ended.
fn steps(ended: &Times, open: &Times) -> Vec<Step> {
    let mut left = (ended.count() + open.count()) as f64;
    let mut open = open.fine_buckets().peekable();
    let (mut longer, mut steps) = (1.0, Vec::new());
    for Bucket { from_ns, top_ns, count } in ended.fine_buckets() {
        // One that had not ended at the same age might have ended with these.
        while let Some(gone) = open.next_if(|age| age.top_ns < top_ns) {
            left -= gone.count as f64;
        }
        let before = longer;
        longer *= (1.0 - count as f64 / left).max(0.0);
        left -= count as f64;
        steps.push(Step { from_ns, to_ns: top_ns + 1, longer: [before, longer] });
    }
    steps
}

/// What a product of thousands of shares may be off by.
const ROUNDING: f64 = 1e-9;

/// The time that a share of all do not exceed, if that is known. Those of a bucket count as spread
/// evenly over it.
fn quantile(steps: &[Step], share: f64) -> Option<u64> {
    let wanted = 1.0 - share;
    let step = steps.iter().find(|step| step.longer[1] <= wanted + ROUNDING)?;
    let [before, after] = step.longer;
    let place = ((before - wanted) / (before - after).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    Some(step.from_ns + (place * (step.to_ns - step.from_ns) as f64) as u64)
}

/// The mean, and whether that is all of it: where the oldest had not ended, the rest is counted as
/// its age. It is as exact as the mean of those that ended, for only its change is taken from
/// buckets.
fn mean(steps: &[Step], ended: &Times, oldest_ns: u64) -> (f64, bool) {
    let middle = |step: &Step| (step.from_ns + step.to_ns - 1) as f64 / 2.0;
    let known: f64 =
        steps.iter().map(|step| (step.longer[0] - step.longer[1]) * middle(step)).sum();
    let rest = steps.last().map_or(1.0, |step| step.longer[1]);
    let counted: f64 = ended
        .fine_buckets()
        .map(|all| (all.from_ns + all.top_ns) as f64 / 2.0 * all.count as f64)
        .sum();
    let scale = if counted > 0.0 { ended.mean_ns() * ended.count() as f64 / counted } else { 1.0 };
    (known * scale + rest * oldest_ns as f64, rest <= ROUNDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn times(all: impl IntoIterator<Item = (u64, u64)>) -> Times {
        let mut times = Times::default();
        all.into_iter().for_each(|(ns, count)| times.record(ns, count));
        times
    }

    #[track_caller]
    fn near(found: u64, wanted: f64) {
        assert!((found as f64 / wanted - 1.0).abs() < 0.01, "{found} instead of {wanted}");
    }

    #[test]
    fn without_any_open_the_figures_are_those_of_what_ended() {
        let ended = times((1..=1000).map(|n| (n * 1000, 1)));
        let (found, unfinished) = latency(&ended, &Times::default());
        assert_eq!((unfinished.ios, &unfinished.at_least[..]), (0, &[][..]));
        for (ns, share) in [(found.p50, 0.5), (found.p99, 0.99), (found.p999, 0.999)] {
            near(ns, ended.quantile_ns(share) as f64);
        }
        assert!((found.mean - ended.mean_ns()).abs() < 1.0 && found.max == ended.max_ns());
    }

    #[test]
    fn what_starves_is_told_as_a_lower_bound_from_where_it_may_begin() {
        // 20 of 1000 had waited for almost all of 2 s, and none that ended took longer than 1 ms.
        let (ended, open) = (times([(MS, 980)]), times([(1900 * MS, 19), (1950 * MS, 1)]));
        let (found, unfinished) = latency(&ended, &open);
        assert_eq!((unfinished.ios, unfinished.oldest_ns), (20, 1950 * MS));
        assert_eq!(unfinished.at_least, ["mean", "p99", "p999", "max"]);
        near(found.p50, MS as f64);
        near(found.p95, MS as f64);
        assert_eq!([found.p99, found.p999, found.max], [1950 * MS; 3]);
        let mean = 0.98 * MS as f64 + 0.02 * 1950.0 * MS as f64;
        near(found.mean as u64, mean);
    }

    #[test]
    fn a_queue_that_is_full_at_the_end_looks_neither_faster_nor_slower_for_it() {
        // Each takes 10 ms, and those under way were begun at any time within that.
        let open = (0..32).map(|n| (n * 10 * MS / 32, 1));
        let (ended, open) = (times([(10 * MS, 3200)]), times(open));
        let (found, unfinished) = latency(&ended, &open);
        assert_eq!(unfinished.at_least, [""; 0]);
        for ns in [found.p50, found.p99, found.p999, found.max, found.mean as u64] {
            near(ns, 10.0 * MS as f64);
        }
        // Two kinds: half takes 1 ms, half 10 ms; the open ones are of the slow kind and say so.
        let slow = times((0..100).map(|n| (1_500_000 + n * 1000, 1)));
        let both = times([(MS, 100), (10 * MS, 100)]);
        let (found, _) = latency(&both, &slow);
        // A third of all is known to be quick, and two thirds to be slow.
        near(found.mean as u64, (MS as f64 + 2.0 * 10.0 * MS as f64) / 3.0);
        near(found.p50, 10.0 * MS as f64);
    }

    #[test]
    fn where_none_has_ended_all_that_is_known_is_the_age_of_the_oldest() {
        let (found, unfinished) = latency(&Times::default(), &times([(MS, 1), (7 * MS, 1)]));
        assert_eq!([found.p50, found.max, found.mean as u64], [7 * MS; 3]);
        let all = ["mean", "p50", "p90", "p95", "p99", "p999", "max"];
        assert_eq!(unfinished.at_least, all);
    }
}

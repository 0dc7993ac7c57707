//! Times as shares of commands have them.

use weir_load::Times;
use weir_sim_disk::measured::SHARES;

/// The times of the shares, ns, so that a time drawn from them has the mean of those that were
/// measured: the longest of all is one command's, and what lies above the last share but one is
/// as long as that mean asks for.
pub(crate) fn of_times(times: &Times) -> Vec<u64> {
    let quantile = |share: &u64| times.quantile_ns(*share as f64 / 10_000.0);
    with_mean(SHARES.iter().map(quantile).collect(), times.mean_ns())
}

/// The same of times in their order.
pub(crate) fn of_sorted(sorted: &[u64]) -> Vec<u64> {
    let last = sorted.len() as u64 - 1;
    let time = |share: &u64| sorted[(last * share / 10_000) as usize];
    let sum: u128 = sorted.iter().map(|ns| u128::from(*ns)).sum();
    with_mean(SHARES.iter().map(time).collect(), sum as f64 / sorted.len() as f64)
}

/// The mean of what is drawn from shares, ns.
fn mean(times: &[u64]) -> f64 {
    let part = |(shares, ns): (&[u64], &[u64])| {
        (shares[1] - shares[0]) as f64 * (ns[0] + ns[1]) as f64 / 2.0
    };
    SHARES.windows(2).zip(times.windows(2)).map(part).sum::<f64>() / 10_000.0
}

fn with_mean(mut times: Vec<u64>, wanted: f64) -> Vec<u64> {
    let last = times.len() - 1;
    let part = (SHARES[last] - SHARES[last - 1]) as f64 / 10_000.0 / 2.0;
    let longer = (wanted - mean(&times)) / part;
    times[last] = ((times[last] as f64 + longer).max(times[last - 1] as f64)) as u64;
    times
}

/// Moves each time by so much of what it differs from what was wanted, and keeps them rising.
pub(crate) fn moved(times: &[u64], wanted: &[u64], got: &[u64]) -> Vec<u64> {
    let mut least = 0;
    let step = |((time, wanted), got): ((&u64, &u64), &u64)| {
        let by = (*wanted as f64 - *got as f64) * 0.7;
        least = ((*time as f64 + by).max(0.0) as u64).max(least);
        least
    };
    times.iter().zip(wanted).zip(got).map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_mean_of_what_they_are_of() {
        // One in a thousand takes a hundred times as long.
        let mut sorted: Vec<u64> = (0..10_000).map(|n| 50_000 + n).collect();
        sorted[9_990..].iter_mut().for_each(|ns| *ns *= 100);
        let shares = of_sorted(&sorted);
        let whole = sorted.iter().sum::<u64>() as f64 / 10_000.0;
        assert!((mean(&shares) / whole - 1.0).abs() < 0.01, "{} {whole}", mean(&shares));
        assert_eq!((shares[0], shares[5]), (50_000, 54_999));
        assert!(shares.is_sorted());
    }

    #[test]
    fn what_is_too_short_is_moved_up_and_stays_in_order() {
        let moved = moved(&[10, 20, 30], &[100, 20, 30], &[0, 20, 130]);
        assert_eq!(moved, [80, 80, 80]);
    }
}

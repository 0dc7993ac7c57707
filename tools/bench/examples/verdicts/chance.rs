//! What counts say: a share with its interval, and a median.

use std::fmt;

/// So many of so many.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    found: u32,
    of: u32,
}

impl Share {
    /// `found` of `of`.
    pub fn of(found: u32, of: u32) -> Share {
        assert!(found <= of, "{found} of {of}");
        Share { found, of }
    }

    /// Clopper's and Pearson's 95 % interval: shares under which neither so many nor so few would
    /// be a surprise of 2.5 %.
    fn interval(self) -> [f64; 2] {
        let Share { found, of } = self;
        let tail = 0.025;
        let low =
            if found == 0 { 0.0 } else { share_where(|p| 1.0 - at_most(found - 1, of, p) < tail) };
        let high = if found == of { 1.0 } else { share_where(|p| at_most(found, of, p) > tail) };
        [low, high]
    }

    /// Whether the true share may be as small as this.
    pub fn is_within(self, bound: f64) -> bool {
        self.interval()[0] <= bound
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Share { found, of } = self;
        if *of == 0 {
            return f.write_str("–");
        }
        let [low, high] = self.interval().map(|end| end * 100.0);
        let share = f64::from(*found) / f64::from(*of) * 100.0;
        write!(f, "{found} of {of}: {share:.2} % ({low:.2} to {high:.2})")
    }
}

/// The largest share of which that is true, where it is true of all smaller ones.
fn share_where(is_small: impl Fn(f64) -> bool) -> f64 {
    let [mut low, mut high] = [0.0, 1.0];
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if is_small(middle) { low = middle } else { high = middle }
    }
    low
}

/// How likely at most `found` of `of` are found, where each is with probability `share`.
fn at_most(found: u32, of: u32, share: f64) -> f64 {
    let (odds, of) = ((share / (1.0 - share)).ln(), f64::from(of));
    let mut log = of * (1.0 - share).ln();
    let mut sum = log.exp();
    for one in 1..=found {
        let one = f64::from(one);
        log += ((of - one + 1.0) / one).ln() + odds;
        sum += log.exp();
    }
    sum.min(1.0)
}

/// The middle one, the lower of two.
pub fn median(values: &[u32]) -> Option<u32> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_shares_are_those_of_the_tables() {
        // C. Clopper and E. Pearson, "The use of confidence or fiducial limits illustrated in the
        // case of the binomial", Biometrika 26, 1934; none of n is 1 - 0.025^(1/n).
        for (found, of, low, high) in [
            (0, 50, 0.0, 0.0711),
            (1, 50, 0.0005, 0.1065),
            (5, 10, 0.1871, 0.8129),
            (10, 10, 0.6915, 1.0),
            (100, 10_000, 0.0081, 0.0121),
        ] {
            let is = Share::of(found, of).interval();
            let far = (is[0] - low).abs().max((is[1] - high).abs());
            assert!(far < 1e-4, "{found} of {of}: {is:?}, not {low} to {high}");
        }
    }

    #[test]
    fn a_bound_is_broken_only_where_chance_does_not_explain_it() {
        assert!(Share::of(0, 50).is_within(0.01) && Share::of(2, 50).is_within(0.01));
        assert!(!Share::of(4, 50).is_within(0.01));
        assert!(Share::of(25, 2000).is_within(0.01) && !Share::of(40, 2000).is_within(0.01));
    }

    #[test]
    fn a_median_is_a_value_that_there_is() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[9]), Some(9));
        assert_eq!(median(&[7, 1, 5, 9]), Some(5));
    }
}

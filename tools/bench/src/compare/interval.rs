//! How well a handful of rounds know a mean, and what difference they could have seen.
//!
//! The interval of a ratio is made of its paired logarithms by Hartigan's typical values (J. A.
//! Hartigan, "Using subsample values as typical values", JASA 64, 1969): the means of all parts of
//! the sample, sorted, cut the line into 2^n pieces, and the true mean falls into each equally
//! often, whatever the distribution, as long as each value is as likely to be off to one side as to
//! the other. The order of the variants within a block is drawn at random, each in half of the
//! blocks, which makes it so where they do not differ, also when the noise has heavy tails or lasts
//! for several blocks. It is the
//! sign-flip test, turned into an interval. A percentile bootstrap of ten values is not: its 99 %
//! interval leaves the truth out four times as often as it says.

use weir_bio::Prng;

/// The part of verdicts that may be wrong where there is no difference: 99 % intervals decide.
pub const VERDICT: f64 = 0.99;
/// The level of the intervals that are printed.
pub const SHOWN: f64 = 0.95;
/// How often a difference of the minimum detectable size is seen.
const POWER: f64 = 0.8;

/// Up to so many values, all parts of the sample are gone through; beyond, so many drawn ones.
const ALL_PARTS: usize = 14;
/// The seed of what is drawn: the same rounds always give the same interval.
const SEED: u64 = 0x7761_6972;

/// The mean.
///
/// # Panics
/// Without any value.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "a mean is of at least one value");
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean's standard error, from at least two values.
fn standard_error(values: &[f64]) -> f64 {
    let (mean, count) = (mean(values), values.len() as f64);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0) / count).sqrt()
}

/// The interval of a mean that holds it with probability `level` where values are normal:
/// Student's. `None` for fewer than two values.
#[must_use]
pub fn student(values: &[f64], level: f64) -> Option<[f64; 2]> {
    let freedom = values.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    let half = student_quantile(level, freedom) * standard_error(values);
    let mean = mean(values);
    Some([mean - half, mean + half])
}

/// The interval of the mean of paired differences: from eight values on typical values, below that
/// Student's, for there are not enough parts to decide by. `None` for fewer than two values.
///
/// The interval shown is made like the one that decides, or it could say the opposite.
#[must_use]
pub fn paired(differences: &[f64], level: f64) -> Option<[f64; 2]> {
    typical(differences, VERDICT)
        .and_then(|_| typical(differences, level))
        .or_else(|| student(differences, level))
}

/// Between typical values; `None` where there are too few for the level.
fn typical(values: &[f64], level: f64) -> Option<[f64; 2]> {
    // Two to the 31st parts of a sample would be as fine as any.
    let pieces = 2_f64.powi(values.len().min(31) as i32);
    let mut means = if values.len() <= ALL_PARTS { all_parts(values) } else { drawn(values) };
    let pieces = pieces.min(means.len() as f64 + 1.0);
    let beyond = ((1.0 - level) / 2.0 * pieces).floor() as usize;
    if beyond == 0 {
        return None;
    }
    means.sort_unstable_by(f64::total_cmp);
    Some([means[beyond - 1], means[means.len() - beyond]])
}

/// The means of all parts of the sample but the empty one.
fn all_parts(values: &[f64]) -> Vec<f64> {
    let mut sums = vec![(0.0, 0_u32)];
    for value in values {
        let with: Vec<_> = sums.iter().map(|(sum, count)| (sum + value, count + 1)).collect();
        sums.extend(with);
    }
    sums[1..].iter().map(|(sum, count)| sum / f64::from(*count)).collect()
}

/// The means of parts drawn at random, as many as a sample of [`ALL_PARTS`] has.
fn drawn(values: &[f64]) -> Vec<f64> {
    let mut prng = Prng::new(SEED);
    let mut part = || {
        let chosen: Vec<f64> = values.iter().copied().filter(|_| prng.below(2) == 1).collect();
        (!chosen.is_empty()).then(|| mean(&chosen))
    };
    std::iter::repeat_with(&mut part).flatten().take((1 << ALL_PARTS) - 1).collect()
}

/// The least difference of means that `differences` of this spread would show in four of five
/// comparisons, as a logarithm. `None` for fewer than two values.
#[must_use]
pub fn detectable(differences: &[f64]) -> Option<f64> {
    let freedom = differences.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    // Two-sided: the quantile of the level 2p - 1 is what p of the values are below.
    let seen = student_quantile(2.0 * POWER - 1.0, freedom);
    Some((student_quantile(VERDICT, freedom) + seen) * standard_error(differences))
}

/// The bound that Student's t stays within, on both sides, with probability `level`.
fn student_quantile(level: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while student_within(high, freedom) < level {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if student_within(middle, freedom) < level {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// How likely t is within `-t..=t`; the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4.
fn student_within(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let first = if odd { cosine } else { 1.0 };
    let count = if odd { (freedom - 1) / 2 } else { freedom / 2 };
    let mut term = first;
    let mut sum = 0.0;
    for n in 0..count {
        sum += term;
        let step = 2.0 * n as f64 + if odd { 2.0 } else { 1.0 };
        term *= step / (step + 1.0) * cosine * cosine;
    }
    if odd { 2.0 / std::f64::consts::PI * (angle + sine * sum) } else { sine * sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise of one kind, a value at a time; the standard deviation is about one.
    struct Noise {
        prng: Prng,
        kind: Kind,
        before: f64,
    }

    #[derive(Clone, Copy, Debug)]
    enum Kind {
        Normal,
        /// One value in ten is ten times as far off.
        HeavyTailed,
        /// Always slower, never faster, as interference is: an exponential distribution.
        OneSided,
        /// Each value is mostly the one before.
        Lasting,
        /// A histogram's bucket: few different values.
        Coarse,
    }

    impl Noise {
        fn uniform(&mut self) -> f64 {
            (self.prng.below(1 << 53) as f64 + 0.5) / (1_u64 << 53) as f64
        }

        fn normal(&mut self) -> f64 {
            let (radius, angle) = (self.uniform(), self.uniform());
            (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
        }

        fn value(&mut self) -> f64 {
            match self.kind {
                Kind::Normal => self.normal(),
                Kind::HeavyTailed => {
                    let far = if self.prng.percent(10) { 10.0 } else { 1.0 };
                    far * self.normal()
                }
                Kind::OneSided => -self.uniform().ln(),
                Kind::Lasting => {
                    self.before = 0.95 * self.before + 0.3 * self.normal();
                    self.before
                }
                Kind::Coarse => self.normal().round(),
            }
        }

        /// The figures that a comparison sees: blocks of two runs, each variant first in half of
        /// them, drawn at random; one variant is off by `effect`.
        fn blocks(&mut self, count: usize, effect: f64) -> Vec<f64> {
            let mut other_first: Vec<bool> = (0..count).map(|n| n % 2 == 1).collect();
            for last in (1..count).rev() {
                other_first.swap(last, self.prng.below(last as u64 + 1) as usize);
            }
            let block = |other_first| {
                let (first, second) = (self.value(), self.value());
                effect + if other_first { first - second } else { second - first }
            };
            other_first.into_iter().map(block).collect()
        }
    }

    const KINDS: [Kind; 5] =
        [Kind::Normal, Kind::HeavyTailed, Kind::OneSided, Kind::Lasting, Kind::Coarse];

    fn misses(kind: Kind, rounds: usize, trials: u32, level: f64) -> f64 {
        let mut noise = Noise { prng: Prng::new(7), kind, before: 0.0 };
        let missed = (0..trials).filter(|_| {
            let [low, high] = paired(&noise.blocks(rounds, 0.25), level).expect("an interval");
            !(low..=high).contains(&0.25)
        });
        missed.count() as f64 / f64::from(trials)
    }

    #[test]
    fn the_shown_interval_lies_within_the_deciding_one_however_few_the_rounds() {
        for count in 2..=12 {
            let mut values = vec![-0.1; count];
            values[count - 1] = 0.0;
            let [low, high] = paired(&values, SHOWN).expect("two or more");
            let [least, most] = paired(&values, VERDICT).expect("two or more");
            assert!(least <= low && high <= most, "{count}: {low}..{high} in {least}..{most}");
        }
    }

    #[test]
    fn an_interval_misses_as_seldom_as_it_says_whatever_the_noise() {
        for kind in KINDS {
            for (rounds, trials) in [(5, 5_000), (8, 5_000), (10, 2_000), (20, 60)] {
                for (level, slack) in [(VERDICT, 0.004), (SHOWN, 0.012)] {
                    let missed = misses(kind, rounds, trials, level);
                    let chance = 3.0 * (level * (1.0 - level) / f64::from(trials)).sqrt();
                    let most = 1.0 - level + chance + slack;
                    assert!(missed <= most, "{kind:?}, {rounds} rounds, {level}: {missed}");
                }
            }
        }
    }

    #[test]
    fn an_interval_of_ten_normal_rounds_is_no_wider_than_it_must_be() {
        let missed = misses(Kind::Normal, 10, 4_000, VERDICT);
        assert!((0.005..=0.015).contains(&missed), "{missed}");
        let shown = misses(Kind::Normal, 10, 4_000, SHOWN);
        assert!((0.04..=0.06).contains(&shown), "{shown}");
    }

    #[test]
    fn a_difference_of_the_detectable_size_is_seen_in_four_of_five() {
        let mut noise = Noise { prng: Prng::new(3), kind: Kind::Normal, before: 0.0 };
        let spread = 2_f64.sqrt();
        // The formula where the spread is known to be the square root of two.
        let alike = [-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0];
        let scale = (alike.len() as f64 / (alike.len() as f64 - 1.0)).sqrt();
        let effect = detectable(&alike).expect("ten values") * spread / scale;
        let seen = (0..4_000).filter(|_| {
            let [low, high] = paired(&noise.blocks(10, effect), VERDICT).expect("an interval");
            !(low..=high).contains(&0.0)
        });
        let seen = seen.count() as f64 / 4_000.0;
        assert!((0.74..=0.86).contains(&seen), "{seen}");
    }

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (level, freedom, value) in [
            (0.95, 1, 12.706),
            (0.99, 1, 63.657),
            (0.95, 2, 4.303),
            (0.99, 9, 3.250),
            (0.95, 10, 2.228),
            (0.60, 9, 0.883),
            (0.99, 100, 2.626),
        ] {
            let is = student_quantile(level, freedom);
            assert!((is - value).abs() < 6e-4, "{level} {freedom}: {is}, not {value}");
        }
    }

    #[test]
    fn fewer_than_two_values_have_no_interval_and_seven_have_students() {
        assert_eq!(paired(&[], SHOWN), None);
        assert_eq!(paired(&[1.0], SHOWN), None);
        assert_eq!(detectable(&[1.0]), None);
        let seven = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        assert_eq!(paired(&seven, VERDICT), student(&seven, VERDICT));
        assert_ne!(paired(&[seven.as_slice(), &[8.0]].concat(), VERDICT), None);
    }

    #[test]
    fn typical_values_are_the_means_of_all_parts() {
        let mut means = all_parts(&[1.0, 2.0, 4.0]);
        means.sort_unstable_by(f64::total_cmp);
        assert_eq!(means, [1.0, 1.5, 2.0, 7.0 / 3.0, 2.5, 3.0, 4.0]);
    }
}

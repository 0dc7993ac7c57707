//! How well a handful of rounds know a difference, and what difference they could have seen.
//!
//! A round's difference is the logarithm of the ratio of two runs, of which either came first in
//! half of the rounds, in an order drawn at random. A straight line is fitted to them: the
//! difference, and what it does to a run to be the second of the two. So an effect of the order is
//! neither taken for a difference nor for noise.
//!
//! For one look at the end the interval is Student's. One that may be looked at after every round,
//! and that ends the comparison as soon as it decides, has to hold at all of these times together:
//! it is the set of differences that a mixture of t-tests has not rejected (T. L. Lai, "On
//! confidence sequences", Ann. Statist. 4, 1976; H. Wang and A. Ramdas, "Anytime-valid t-tests and
//! confidence sequences for Gaussian means with unknown variance", Sequential Analysis 44, 2025).
//! The ratio of the likelihoods under differences drawn around that one, and under that one, is a
//! martingale, whatever the order does and however large the noise is, and passes 100 at any time
//! in one of 100 comparisons at most (J. Ville's inequality).
//!
//! Both are made for normal noise. The drawn order makes that of two like variants as likely to be
//! off to one side as to the other; with tails that are heavier both are wrong less often, as the
//! tests show.

use weir_bio::Prng;

/// The part of comparisons whose answer may be wrong where there is no difference: 99 % intervals
/// decide.
pub const VERDICT: f64 = 0.99;
/// The level of the intervals that are printed.
pub const SHOWN: f64 = 0.95;
/// How often a difference of the minimum detectable size is seen: in four of five comparisons.
const POWER: f64 = 0.8;
/// How often the last of many looks sees it, where in four of five any does.
const POWER_OF_LAST: f64 = 0.76;

/// The differences that the mixture expects where it does not know: normal around none, with this
/// variance in squares of the noise, inverted. What is smaller finds large differences earlier and
/// small ones later: with this value those of 5, 2 and 1 standard deviations end after some 6, 9
/// and 19 rounds.
const EXPECTED: f64 = 1.0 / 8.0;

/// For a single look at fewer rounds, what the order does is left with the noise: telling the two
/// apart takes a round.
const ORDER_LEAST: usize = 6;

/// What is drawn to find the least difference that would be seen.
const DRAWS: usize = 8_000;
/// The seed of that: the same rounds always give the same answer.
const SEED: u64 = 0x7761_6972;

/// How often an interval is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Looks {
    /// Once, after a number of rounds that does not depend on what they were.
    #[default]
    Once,
    /// After any round, and it may end the comparison.
    AnyTime,
}

/// The difference of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The logarithm of the second variant's value over the first one's.
    pub log: f64,
    /// The second variant ran after the first.
    pub in_order: bool,
}

/// What the differences of rounds come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The difference.
    pub mean: f64,
    /// What being the second of the two adds; none where it cannot be told apart.
    pub second: Option<f64>,
    /// The standard error of both.
    error: f64,
    /// The rounds that the error rests on, less those that the fit took.
    freedom: usize,
    /// How many rounds in balanced order would know the difference as well.
    weight: f64,
    looks: Looks,
}

impl Fit {
    /// Of these differences; none of so few that they have no spread.
    #[must_use]
    pub fn of(differences: &[Difference], looks: Looks) -> Option<Fit> {
        let count = differences.len() as f64;
        let place = |difference: &Difference| if difference.in_order { 1.0 } else { -1.0 };
        let sum = |of: &dyn Fn(&Difference) -> f64| differences.iter().map(of).sum::<f64>();
        let (all, by_place) = (sum(&|one| one.log), sum(&|one| one.log * place(one)));
        let places = sum(&place);
        let told = looks == Looks::AnyTime || differences.len() >= ORDER_LEAST;
        let both = count * count - places * places;
        let (mean, second) = if told && both > 0.0 {
            ((count * all - places * by_place) / both, (count * by_place - places * all) / both)
        } else {
            (all / count, 0.0)
        };
        let second = (told && both > 0.0).then_some(second);
        let taken = if second.is_some() { 2 } else { 1 };
        let freedom = differences.len().checked_sub(taken).filter(|freedom| *freedom > 0)?;
        let left = |one: &Difference| one.log - mean - second.unwrap_or_default() * place(one);
        let squares = sum(&|one| left(one).powi(2));
        let weight = if second.is_some() { both / count } else { count };
        let error = (squares / freedom as f64 / weight).sqrt();
        Some(Fit { mean, second, error, freedom, weight, looks })
    }

    /// The interval of the difference at this level; none where so few rounds say nothing.
    #[must_use]
    pub fn interval(&self, level: f64) -> Option<[f64; 2]> {
        let half = self.bound(level)? * self.error;
        Some([self.mean - half, self.mean + half])
    }

    /// The interval of what being second adds.
    #[must_use]
    pub fn interval_of_second(&self, level: f64) -> Option<[f64; 2]> {
        let (second, half) = (self.second?, self.bound(level)? * self.error);
        Some([second - half, second + half])
    }

    /// How many standard errors the interval has to each side.
    fn bound(&self, level: f64) -> Option<f64> {
        match self.looks {
            Looks::Once => Some(student_quantile(level, self.freedom)),
            Looks::AnyTime => any_time_quantile(level, self.freedom, self.weight),
        }
    }

    /// The least difference that four of five comparisons of as many rounds, as noisy as these,
    /// would show at this level. How noisy it is, a few rounds hardly know: that is part of it.
    #[must_use]
    pub fn detectable(&self, level: f64) -> Option<f64> {
        let bound = self.bound(level)?;
        let mut noise = Noise(Prng::new(SEED));
        // Seen is what is beyond the bound times the other's error; this one's error is the unit.
        let mut draw = || {
            let (known, other) = (noise.spread(self.freedom), noise.spread(self.freedom));
            (bound * other - noise.normal()) / known
        };
        let mut drawn: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        let power = if self.looks == Looks::Once { POWER } else { POWER_OF_LAST };
        Some(drawn[(power * DRAWS as f64) as usize] * self.error)
    }
}

/// Normal noise, a value at a time.
struct Noise(Prng);

impl Noise {
    fn uniform(&mut self) -> f64 {
        (self.0.below(1 << 53) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// A standard deviation as so many degrees of freedom find it where it is one. Of many it is
    /// Wilson's and Hilferty's cube of a normal value.
    fn spread(&mut self, freedom: usize) -> f64 {
        if freedom > 10 {
            let ninth = 2.0 / (9.0 * freedom as f64);
            return (1.0 - ninth + ninth.sqrt() * self.normal()).max(0.0).powf(1.5);
        }
        let squares: f64 = (0..freedom).map(|_| self.normal().powi(2)).sum();
        (squares / freedom as f64).sqrt()
    }
}

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

/// The bound that t stays within at all times together, with probability `level`, as it is after
/// so many rounds: where the mixture's likelihood ratio reaches `1 / (1 - level)`.
fn any_time_quantile(level: f64, freedom: usize, weight: f64) -> Option<f64> {
    let (freedom, share) = (freedom as f64, EXPECTED / (weight + EXPECTED));
    let most = (1.0 / ((1.0 - level) * share.sqrt())).powf(2.0 / (freedom + 1.0));
    let square = freedom * (most - 1.0) / (1.0 - share * most);
    // Of so few rounds no t is large enough.
    (share * most < 1.0).then(|| square.sqrt())
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

    /// The figures that comparisons see.
    struct Machine {
        noise: Noise,
        kind: Kind,
        before: f64,
    }

    impl Machine {
        fn new(kind: Kind, seed: u64) -> Machine {
            Machine { noise: Noise(Prng::new(seed)), kind, before: 0.0 }
        }

        /// The standard deviation is about one.
        fn value(&mut self) -> f64 {
            match self.kind {
                Kind::Normal => self.noise.normal(),
                Kind::HeavyTailed => {
                    let far = if self.noise.0.percent(10) { 10.0 } else { 1.0 };
                    far * self.noise.normal()
                }
                Kind::OneSided => -self.noise.uniform().ln(),
                Kind::Lasting => {
                    self.before = 0.95 * self.before + 0.3 * self.noise.normal();
                    self.before
                }
                Kind::Coarse => self.noise.normal().round(),
            }
        }

        /// Rounds of two runs, in an order and its reverse, which first is drawn; the second
        /// variant is off by `effect`, the second run of a round by `second`.
        fn rounds(&mut self, count: usize, effect: f64, second: f64) -> Vec<Difference> {
            let mut first = false;
            let mut round = |n: usize| {
                first = if n.is_multiple_of(2) { self.noise.0.percent(50) } else { !first };
                let (one, other) = (self.value(), self.value() + second);
                let log = effect + if first { other - one } else { one - other };
                Difference { log, in_order: first }
            };
            (0..count).map(&mut round).collect()
        }
    }

    const KINDS: [Kind; 5] =
        [Kind::Normal, Kind::HeavyTailed, Kind::OneSided, Kind::Lasting, Kind::Coarse];

    fn interval(of: &[Difference], looks: Looks, level: f64) -> Option<[f64; 2]> {
        Fit::of(of, looks)?.interval(level)
    }

    fn holds(interval: Option<[f64; 2]>, value: f64) -> bool {
        interval.is_none_or(|[low, high]| (low..=high).contains(&value))
    }

    /// In how many rounds a comparison is decided, looked at after each from the fifth.
    fn decided_after(rounds: &[Difference]) -> Option<usize> {
        (5..=rounds.len()).find(|n| !holds(interval(&rounds[..*n], Looks::AnyTime, VERDICT), 0.0))
    }

    fn misses(machine: &mut Machine, rounds: usize, trials: u32, level: f64) -> f64 {
        let missed = (0..trials).filter(|_| {
            let seen = interval(&machine.rounds(rounds, 0.25, 0.0), Looks::Once, level);
            assert!(seen.is_some());
            !holds(seen, 0.25)
        });
        missed.count() as f64 / f64::from(trials)
    }

    #[test]
    fn the_shown_interval_lies_within_the_deciding_one_however_few_the_rounds() {
        for looks in [Looks::Once, Looks::AnyTime] {
            for count in 2..=12 {
                let one =
                    |n| Difference { log: if n == 0 { 0.0 } else { -0.1 }, in_order: n % 2 == 0 };
                let rounds: Vec<Difference> = (0..count).map(one).collect();
                let Some([least, most]) = interval(&rounds, looks, VERDICT) else { continue };
                let [low, high] = interval(&rounds, looks, SHOWN).expect("it is narrower");
                assert!(least <= low && high <= most, "{count}: {low}..{high} in {least}..{most}");
            }
        }
    }

    #[test]
    fn an_interval_misses_as_seldom_as_it_says_whatever_the_noise() {
        for kind in KINDS {
            let mut machine = Machine::new(kind, 7);
            // Three values of few different ones are often all alike, which looks like certainty:
            // what is read from a histogram has a margin for that.
            let fewest = if matches!(kind, Kind::Coarse) { 5 } else { 3 };
            for (rounds, trials) in [fewest, 5, 8, 10, 20].map(|rounds| (rounds, 5_000)) {
                for (level, slack) in [(VERDICT, 0.004), (SHOWN, 0.012)] {
                    let missed = misses(&mut machine, rounds, trials, level);
                    let chance = 3.0 * (level * (1.0 - level) / f64::from(trials)).sqrt();
                    let most = 1.0 - level + chance + slack;
                    assert!(missed <= most, "{kind:?}, {rounds} rounds, {level}: {missed}");
                }
            }
        }
    }

    #[test]
    fn an_interval_of_ten_normal_rounds_is_no_wider_than_it_must_be() {
        let mut machine = Machine::new(Kind::Normal, 7);
        let missed = misses(&mut machine, 10, 4_000, VERDICT);
        assert!((0.005..=0.015).contains(&missed), "{missed}");
        let shown = misses(&mut machine, 10, 4_000, SHOWN);
        assert!((0.04..=0.06).contains(&shown), "{shown}");
    }

    #[test]
    fn looking_after_every_round_finds_a_difference_of_like_variants_once_in_a_hundred() {
        for kind in KINDS {
            for second in [0.0, 2.0] {
                let mut machine = Machine::new(kind, 11);
                let trials = 2_000;
                let wrong = (0..trials)
                    .filter(|_| decided_after(&machine.rounds(80, 0.0, second)).is_some())
                    .count();
                // One in a hundred and three standard deviations of chance.
                assert!(wrong <= trials / 100 + 13, "{kind:?}, {second}: {wrong} of {trials}");
            }
        }
    }

    #[test]
    fn a_large_difference_ends_a_comparison_early_and_a_small_one_late() {
        let median = |effect: f64, second: f64| {
            let mut machine = Machine::new(Kind::Normal, 5);
            let mut found: Vec<usize> = (0..1_001)
                .map(|_| {
                    let scaled = 2_f64.sqrt();
                    let rounds = machine.rounds(60, effect * scaled, second * scaled);
                    decided_after(&rounds).unwrap_or(usize::MAX)
                })
                .collect();
            found.sort_unstable();
            found[500]
        };
        let found = [5.0, 2.0, 1.0].map(|effect| median(effect, 0.0));
        assert!(found[0] <= 6 && found[1] <= 9 && found[2] <= 19, "{found:?}");
        assert_eq!([5.0, 2.0, 1.0].map(|effect| median(effect, 3.0)), found, "the order is known");
    }

    #[test]
    fn an_effect_of_the_order_neither_hides_a_difference_nor_makes_one() {
        let mut machine = Machine::new(Kind::Normal, 9);
        let seen = (0..1_000)
            .filter(|_| {
                let rounds = machine.rounds(10, 2.0 * 2_f64.sqrt(), 2.0 * 2_f64.sqrt());
                !holds(interval(&rounds, Looks::Once, VERDICT), 0.0)
            })
            .count();
        assert!(seen > 950, "{seen} of 1000");
        let fit = Fit::of(&machine.rounds(400, 0.0, 3.0), Looks::Once).expect("many rounds");
        assert!((fit.second.expect("it is told") - 3.0).abs() < 0.4, "{fit:?}");
        let [low, high] = fit.interval_of_second(VERDICT).expect("an interval");
        assert!(low > 2.0 && high < 4.0, "{low}..{high}");
    }

    #[test]
    fn what_always_runs_first_has_no_order_to_be_told_apart() {
        let rounds: Vec<Difference> =
            (0..10).map(|n| Difference { log: f64::from(n % 3), in_order: true }).collect();
        for looks in [Looks::Once, Looks::AnyTime] {
            let fit = Fit::of(&rounds, looks).expect("ten rounds");
            assert_eq!((fit.second, fit.freedom, fit.mean), (None, 9, 0.9), "{looks:?}");
            assert_eq!(fit.interval_of_second(VERDICT), None);
        }
    }

    #[test]
    fn a_difference_of_the_detectable_size_is_seen_in_four_of_five_whatever_the_rounds() {
        for (looks, counts) in
            [(Looks::Once, [3, 5, 8, 10, 30]), (Looks::AnyTime, [6, 8, 10, 20, 40])]
        {
            for count in counts {
                let mut machine = Machine::new(Kind::Normal, 3);
                let (mut seen, mut tried) = (0, 0);
                while tried < 4_000 {
                    let before = machine.rounds(count, 0.0, 0.0);
                    let fit = Fit::of(&before, looks).expect("rounds");
                    let effect = fit.detectable(VERDICT).expect("enough rounds");
                    for _ in 0..10 {
                        let rounds = machine.rounds(count, effect, 0.0);
                        let least = if looks == Looks::Once { count } else { 5.min(count) };
                        let ends = (least..=count)
                            .any(|n| !holds(interval(&rounds[..n], looks, VERDICT), 0.0));
                        seen += usize::from(ends);
                        tried += 1;
                    }
                }
                let seen = seen as f64 / f64::from(tried);
                assert!((0.75..=0.85).contains(&seen), "{looks:?}, {count} rounds: {seen}");
            }
        }
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
    fn the_bound_for_any_time_is_where_the_likelihood_ratio_is_a_hundred() {
        for (freedom, weight) in [(4, 6.0), (8, 9.6), (58, 60.0)] {
            let t = any_time_quantile(VERDICT, freedom, weight).expect("enough rounds");
            let (freedom, share) = (freedom as f64, EXPECTED / (weight + EXPECTED));
            let square = t * t / freedom;
            let power = (freedom + 1.0) / 2.0;
            let ratio = share.sqrt() * ((1.0 + square) / (1.0 + share * square)).powf(power);
            assert!((ratio - 100.0).abs() < 1e-6, "{freedom}: {ratio}");
        }
        assert_eq!(any_time_quantile(VERDICT, 1, 3.0), None, "no t of three rounds decides");
    }

    #[test]
    fn so_few_rounds_that_they_have_no_spread_have_no_interval() {
        let one = |n: i32| Difference { log: f64::from(n), in_order: n % 2 == 0 };
        assert_eq!(Fit::of(&[], Looks::Once), None);
        assert_eq!(Fit::of(&[one(1)], Looks::Once), None);
        assert!(Fit::of(&[one(1), one(2)], Looks::Once).is_some());
        assert_eq!(Fit::of(&[one(1), one(2)], Looks::AnyTime), None);
        let four: Vec<Difference> = (0..4).map(one).collect();
        let fit = Fit::of(&four, Looks::AnyTime).expect("a spread");
        assert_eq!((fit.interval(VERDICT), fit.detectable(VERDICT)), (None, None));
    }
}

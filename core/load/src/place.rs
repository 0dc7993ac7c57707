//! Where random I/O goes: uniformly, or more to some places than to others.
//!
//! Zipf by rejection inversion (Hörmann and Derflinger 1996), which is exact and needs no table;
//! Pareto as the self-similar distribution of Gray et al., SIGMOD 1994.

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_bio::Prng;

/// How random I/O is spread over its range. In a document it is the text of its option.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Distribution {
    /// Every place alike.
    #[default]
    Uniform,
    /// The n-th most popular place is asked for in proportion to n^-theta; theta above 0, not 1.
    Zipf(f64),
    /// A share h of the places gets a share 1-h of the I/O, and so on within them; 0 < h < 1.
    Pareto(f64),
    /// Parts of the range, in order: hot and cold sets.
    Zoned(Vec<Zone>),
}

/// A part of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// I/Os in 100 that go there.
    pub access: u8,
    /// Its share of the range, in hundredths.
    pub size: u8,
}

impl Distribution {
    /// Reads `random`, `zipf:THETA`, `pareto:H` or `zoned:ACCESS/SIZE:...`.
    ///
    /// # Errors
    /// The fault, and the accepted values.
    pub fn parse(text: &str) -> Result<Distribution, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let number = |default: f64, allowed: fn(f64) -> bool, bounds: &str| {
            let value = if rest.is_empty() { Some(default) } else { rest.parse().ok() };
            value.filter(|value| allowed(*value)).ok_or_else(|| format!("{kind}:{rest}: {bounds}"))
        };
        match kind {
            "random" if rest.is_empty() => Ok(Distribution::Uniform),
            "zipf" => {
                let bounds = "a number above 0 and at most 10, but not 1";
                let allowed = |theta: f64| theta > 0.0 && theta <= 10.0 && theta != 1.0;
                Ok(Distribution::Zipf(number(1.1, allowed, bounds)?))
            }
            "pareto" => {
                // Nearer to the ends all goes to one place, or 1 - h is 1.
                let allowed = |h: f64| (1e-6..=0.999_999).contains(&h);
                let bounds = "a number in 0.000001..=0.999999";
                Ok(Distribution::Pareto(number(0.2, allowed, bounds)?))
            }
            "zoned" => zones(rest).map(Distribution::Zoned),
            _ => Err(String::from(
                "takes random, zipf:THETA, pareto:H or zoned:ACCESS/SIZE:ACCESS/SIZE...",
            )),
        }
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> String {
        distribution.to_string()
    }
}

impl TryFrom<String> for Distribution {
    type Error = String;

    fn try_from(text: String) -> Result<Distribution, String> {
        Distribution::parse(&text)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("random"),
            Distribution::Zipf(theta) => write!(f, "zipf:{theta}"),
            Distribution::Pareto(h) => write!(f, "pareto:{h}"),
            Distribution::Zoned(zones) => {
                f.write_str("zoned")?;
                zones.iter().try_for_each(|zone| write!(f, ":{}/{}", zone.access, zone.size))
            }
        }
    }
}

/// `60/10:30/20:10/70`; the shares of each kind come to 100, or an empty one takes the rest.
fn zones(text: &str) -> Result<Vec<Zone>, String> {
    let wrong = || {
        format!(
            "zoned:{text}: ACCESS/SIZE pairs in per cent, as in zoned:80/20:20/80, each kind 100 \
             in all"
        )
    };
    let mut pairs = Vec::new();
    for pair in text.split(':') {
        let (access, size) = pair.split_once('/').ok_or_else(wrong)?;
        let share = |text: &str| match text {
            "" => Ok(None),
            text => text.parse::<u8>().ok().filter(|s| *s <= 100).map(Some).ok_or_else(wrong),
        };
        pairs.push([share(access)?, share(size)?]);
    }
    for kind in [0, 1] {
        let sum: u32 = pairs.iter().filter_map(|pair| pair[kind]).map(u32::from).sum();
        let open = pairs.iter().filter(|pair| pair[kind].is_none()).count();
        if sum > 100 || open > 1 || (open == 0 && sum != 100) {
            return Err(wrong());
        }
        let rest = (100 - sum) as u8;
        pairs.iter_mut().for_each(|pair| pair[kind] = Some(pair[kind].unwrap_or(rest)));
    }
    let zones = pairs.into_iter().map(|pair| Zone {
        access: pair[0].unwrap_or_default(),
        size: pair[1].unwrap_or_default(),
    });
    let zones: Vec<_> = zones.collect();
    if zones.iter().any(|zone| zone.access > 0 && zone.size == 0) {
        return Err(wrong());
    }
    Ok(zones)
}

/// Draws places in `0..count`.
#[derive(Clone, Debug)]
pub struct Places {
    count: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform,
    Zipf(Zipf, Scatter),
    /// The exponent, ln h / ln(1-h).
    Pareto(f64, Scatter),
    /// Access below this of 100, first place, places.
    Zoned(Vec<(u8, u64, u64)>),
}

impl Places {
    /// Places of a range of `count`, at least 1.
    #[must_use]
    pub fn new(distribution: &Distribution, count: u64) -> Places {
        assert!(count > 0, "a range has at least one place");
        let kind = match distribution {
            Distribution::Uniform => Kind::Uniform,
            Distribution::Zipf(theta) => Kind::Zipf(Zipf::new(*theta, count), Scatter::new(count)),
            // Of [0, 1), u^a lies below h with probability 1-h.
            Distribution::Pareto(h) => Kind::Pareto(h.ln() / (1.0 - h).ln(), Scatter::new(count)),
            Distribution::Zoned(zones) => Kind::Zoned(lay_out(zones, count)),
        };
        Places { count, kind }
    }

    /// The next place.
    pub fn draw(&self, prng: &mut Prng) -> u64 {
        match &self.kind {
            Kind::Uniform => prng.below(self.count),
            Kind::Zipf(zipf, scatter) => scatter.of(zipf.rank(prng)),
            Kind::Pareto(exponent, scatter) => {
                let rank = (unit(prng).powf(*exponent) * self.count as f64) as u64;
                scatter.of(rank.min(self.count - 1))
            }
            Kind::Zoned(zones) => {
                let draw = prng.below(100) as u8;
                let zone = zones.iter().find(|(below, ..)| draw < *below);
                let (_, first, places) = zone.copied().unwrap_or((100, 0, self.count));
                first + prng.below(places)
            }
        }
    }
}

fn lay_out(zones: &[Zone], count: u64) -> Vec<(u8, u64, u64)> {
    let (mut access, mut size, mut laid) = (0, 0, Vec::new());
    for zone in zones {
        let edge = |percent: u8| (u128::from(count) * u128::from(percent) / 100) as u64;
        let first = edge(size).min(count - 1);
        access += zone.access;
        size += zone.size;
        // A zone of a small range may be less than a place: it gets the one it begins in.
        let places = edge(size).saturating_sub(first).max(1);
        laid.push((access, first, places));
    }
    laid
}

/// A number in [0, 1) with all 53 bits that fit.
fn unit(prng: &mut Prng) -> f64 {
    (prng.next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Spreads ranks over the range, so that popular places are not neighbours; one to one.
#[derive(Clone, Debug)]
struct Scatter {
    count: u64,
    factor: u64,
}

impl Scatter {
    fn new(count: u64) -> Scatter {
        // Multiples of the golden section lie apart; a factor without a common divisor with the
        // count makes every place the image of one rank.
        let mut factor = ((count as f64 * 0.618_033_988_749_895) as u64).max(1);
        while divisor(factor, count) != 1 {
            factor += 1;
        }
        Scatter { count, factor }
    }

    fn of(&self, rank: u64) -> u64 {
        (u128::from(rank) * u128::from(self.factor) % u128::from(self.count)) as u64
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Ranks 0..count with probability in proportion to (rank+1)^-theta.
///
/// Inversion works on the integral of x^-theta; what the integral has too much beside the sum is
/// rejected, which happens in a few of 100 draws.
#[derive(Clone, Debug)]
struct Zipf {
    theta: f64,
    count: f64,
    low: f64,
    high: f64,
    sure: f64,
}

impl Zipf {
    fn new(theta: f64, count: u64) -> Zipf {
        let mut zipf = Zipf { theta, count: count as f64, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.area(1.5) - 1.0;
        zipf.high = zipf.area(zipf.count + 0.5);
        zipf.sure = 2.0 - zipf.edge(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    fn rank(&self, prng: &mut Prng) -> u64 {
        loop {
            let area = self.high + unit(prng) * (self.low - self.high);
            let x = self.edge(area);
            let k = x.round().clamp(1.0, self.count);
            if k - x <= self.sure || area >= self.area(k + 0.5) - self.height(k) {
                return k as u64 - 1;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        x.powf(-self.theta)
    }

    /// The integral of the height from 1 to x.
    fn area(&self, x: f64) -> f64 {
        ((1.0 - self.theta) * x.ln()).exp_m1() / (1.0 - self.theta)
    }

    /// Where the integral has this value.
    fn edge(&self, area: f64) -> f64 {
        // Rounding may lead below what a logarithm takes.
        let inner = (area * (1.0 - self.theta)).max(-1.0 + f64::EPSILON);
        (inner.ln_1p() / (1.0 - self.theta)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;
    const SEED: u64 = 11;

    fn counts(distribution: &str, places: u64) -> Vec<u64> {
        let drawn = Places::new(&Distribution::parse(distribution).unwrap(), places);
        let mut prng = Prng::new(SEED);
        let mut counts = vec![0; places as usize];
        (0..DRAWS).for_each(|_| counts[drawn.draw(&mut prng) as usize] += 1);
        counts
    }

    /// Holds a count against its expectation: five standard deviations of a binomial.
    #[track_caller]
    fn near(count: u64, share: f64, what: &str) {
        let expected = DRAWS as f64 * share;
        let bound = 5.0 * (expected * (1.0 - share)).sqrt();
        let off = (count as f64 - expected).abs();
        assert!(off <= bound, "{what}: {count}, not {expected:.0} within {bound:.0} (seed {SEED})");
    }

    #[test]
    fn popular_places_of_zipf_get_the_share_of_their_rank() {
        for theta in [0.5_f64, 0.99, 1.1, 2.0] {
            let mut counts = counts(&format!("zipf:{theta}"), 1000);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let sum: f64 = (1..=1000).map(|k| f64::from(k).powf(-theta)).sum();
            near(counts[0], 1.0 / sum, &format!("the first of zipf:{theta}"));
            let ten: f64 = (1..=10).map(|k| f64::from(k).powf(-theta)).sum();
            near(counts[..10].iter().sum(), ten / sum, &format!("ten of zipf:{theta}"));
        }
    }

    #[test]
    fn the_scatter_reaches_every_place_once() {
        for count in [1, 2, 3, 10, 1000, 1 << 16, 99_991] {
            let scatter = Scatter::new(count);
            let mut seen = vec![false; count as usize];
            (0..count).for_each(|rank| seen[scatter.of(rank) as usize] = true);
            assert!(seen.iter().all(|seen| *seen), "{count}");
        }
    }

    #[test]
    fn a_fifth_of_the_places_gets_four_fifths_under_pareto() {
        let mut counts = counts("pareto:0.2", 1000);
        let scatter = Scatter::new(1000);
        let hot: u64 = (0..200).map(|rank| counts[scatter.of(rank) as usize]).sum();
        near(hot, 0.8, "the hot fifth");
        counts.sort_unstable();
        assert!(counts[999] > 10 * counts[500]);
    }

    #[test]
    fn zones_get_their_shares_and_every_place_within_one_alike() {
        let counts = counts("zoned:80/20:15/30:5/50", 100);
        near(counts[..20].iter().sum(), 0.8, "the first");
        near(counts[20..50].iter().sum(), 0.15, "the second");
        near(counts[50..].iter().sum(), 0.05, "the third");
        near(counts[7], 0.04, "a place of the first");
    }

    #[test]
    fn a_range_smaller_than_its_zones_is_still_kept() {
        for places in 1..10 {
            counts("zoned:80/20:15/30:5/50", places);
            counts("zipf:1.2", places);
            counts("pareto:0.1", places);
        }
    }

    #[test]
    fn what_is_no_distribution_is_refused_with_its_bound() {
        for (text, part) in [
            ("zipf:1", "not 1"),
            ("zipf:0", "above 0"),
            ("zipf:x", "above 0"),
            ("pareto:1", "0.000001..=0.999999"),
            ("pareto:1e-17", "pareto:1e-17"),
            ("normal:5", "zipf:THETA"),
            ("zoned:50/50", "100 in all"),
            ("zoned:50/50:60/50", "100 in all"),
            ("zoned:50/0:50/100", "100 in all"),
            ("zoned:", "100 in all"),
        ] {
            let why = Distribution::parse(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
        assert_eq!(Distribution::parse("zoned:60/10:/").unwrap().to_string(), "zoned:60/10:40/90");
    }
}

//! How long one I/O is: always the same, of a range, or of a list with shares.

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_bio::{Prng, SECTOR};

use crate::quantity::size;

/// Longest I/O: 1 GiB, the longest buffer.
pub const BLOCK_MAX: u64 = 1 << 30;

/// Sizes of the I/Os of one direction, bytes. In a document they are the text of their option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Sizes {
    /// All the same.
    Fixed(u64),
    /// Any multiple of the least that is at most `most`, each as often, as fio has it.
    Range {
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// Some with shares in 100, which come to 100.
    Split(Vec<(u64, u8)>),
}

impl From<Sizes> for String {
    fn from(sizes: Sizes) -> String {
        sizes.to_string()
    }
}

impl TryFrom<String> for Sizes {
    type Error = String;

    fn try_from(text: String) -> Result<Sizes, String> {
        if text.contains('/') {
            Sizes::split(&text)
        } else if text.contains('-') {
            Sizes::range(&text)
        } else {
            Sizes::fixed(&text)
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sizes::Fixed(bytes) => write!(f, "{bytes}"),
            Sizes::Range { least, most } => write!(f, "{least}-{most}"),
            Sizes::Split(parts) => {
                for (index, (bytes, share)) in parts.iter().enumerate() {
                    write!(f, "{}{bytes}/{share}", if index == 0 { "" } else { ":" })?;
                }
                Ok(())
            }
        }
    }
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes::Fixed(4096)
    }
}

impl Sizes {
    /// The smallest: what places of random I/O are multiples of.
    #[must_use]
    pub fn least(&self) -> u64 {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Range { least, .. } => *least,
            Sizes::Split(parts) => parts.iter().map(|part| part.0).min().unwrap_or(SECTOR),
        }
    }

    /// The largest.
    #[must_use]
    pub fn most(&self) -> u64 {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Range { most, .. } => *most,
            Sizes::Split(parts) => parts.iter().map(|part| part.0).max().unwrap_or(SECTOR),
        }
    }

    /// Each that others may be no multiples of: of a range its least alone.
    pub(crate) fn each(&self) -> impl Iterator<Item = u64> + '_ {
        let (one, split): (_, &[(u64, u8)]) = match self {
            Sizes::Fixed(bytes) => (Some(*bytes), &[]),
            Sizes::Range { least, .. } => (Some(*least), &[]),
            Sizes::Split(parts) => (None, parts),
        };
        one.into_iter().chain(split.iter().map(|part| part.0))
    }

    /// The next one.
    pub fn draw(&self, prng: &mut Prng) -> u64 {
        match self {
            Sizes::Fixed(bytes) => *bytes,
            Sizes::Range { least, most } => least * (1 + prng.below(most / least)),
            Sizes::Split(parts) => {
                let mut draw = prng.below(100);
                for (bytes, share) in parts {
                    match draw.checked_sub(u64::from(*share)) {
                        None => return *bytes,
                        Some(rest) => draw = rest,
                    }
                }
                self.most()
            }
        }
    }

    /// Reads a size, as `bs` has it.
    ///
    /// # Errors
    /// The text, and what is accepted.
    pub fn fixed(text: &str) -> Result<Sizes, String> {
        length(text).map(Sizes::Fixed)
    }

    /// Reads `LEAST-MOST`, as `bsrange` has it.
    ///
    /// # Errors
    /// The text, and what is accepted.
    pub fn range(text: &str) -> Result<Sizes, String> {
        let (least, most) = text
            .split_once(['-', ':'])
            .ok_or_else(|| format!("{text:?} is not LEAST-MOST, as in 4k-64k"))?;
        let (least, most) = (length(least)?, length(most)?);
        if least > most {
            return Err(format!("{text:?} begins above its end"));
        }
        Ok(if least == most { Sizes::Fixed(least) } else { Sizes::Range { least, most } })
    }

    /// Reads `SIZE/SHARE:SIZE/SHARE...`, as `bssplit` has it; those without a share divide the
    /// rest of 100 among themselves.
    ///
    /// # Errors
    /// The text, and what is accepted.
    pub fn split(text: &str) -> Result<Sizes, String> {
        let wrong =
            || format!("{text:?} is not SIZE/SHARE:SIZE/SHARE with 100 in all, as in 4k/70:64k/30");
        let mut parts = Vec::new();
        for part in text.split(':') {
            let (bytes, share) = part.split_once('/').unwrap_or((part, ""));
            let share = match share {
                "" => None,
                share => Some(share.parse::<u8>().ok().ok_or_else(wrong)?),
            };
            parts.push((length(bytes)?, share));
        }
        let given: u32 = parts.iter().filter_map(|part| part.1).map(u32::from).sum();
        let open = parts.iter().filter(|part| part.1.is_none()).count() as u32;
        let rest = 100_u32.checked_sub(given).ok_or_else(wrong)?;
        if (open == 0 && rest != 0) || (open > 0 && rest < open) {
            return Err(wrong());
        }
        let each = rest.checked_div(open).unwrap_or(0);
        let mut over = rest - each * open;
        let shared = parts.into_iter().map(|(bytes, share)| {
            let share = share.map_or_else(|| each + std::mem::take(&mut over), u32::from);
            (bytes, share as u8)
        });
        Ok(Sizes::Split(shared.collect()))
    }

    /// Whether a device with this logical block can do every one of them.
    ///
    /// # Errors
    /// The size that it cannot, and its bound.
    pub fn check(&self, block: u64) -> Result<(), String> {
        let one = |bytes: u64| {
            if bytes == 0 || !bytes.is_multiple_of(SECTOR) || bytes > BLOCK_MAX {
                return Err(format!(
                    "bs={bytes} is not a multiple of {SECTOR} in {SECTOR}..={BLOCK_MAX}"
                ));
            }
            if !bytes.is_multiple_of(block) {
                return Err(format!(
                    "bs={bytes} is not a multiple of {block}, the target's logical block"
                ));
            }
            Ok(())
        };
        match self {
            Sizes::Fixed(bytes) => one(*bytes),
            Sizes::Range { least, most } => one(*least).and_then(|()| one(*most)),
            Sizes::Split(parts) => parts.iter().try_for_each(|part| one(part.0)),
        }
    }
}

/// Reads the length of an I/O, which is never 0.
fn length(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err(format!("size {text:?} is below {SECTOR} bytes, the shortest I/O")),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_within_what_chance_allows() {
        let sizes = Sizes::split("4k/10:64k/50:32k").unwrap();
        assert_eq!(sizes, Sizes::Split(vec![(4096, 10), (65536, 50), (32768, 40)]));
        let (mut prng, seed) = (Prng::new(5), 5);
        let mut counts = [0_u32; 3];
        for _ in 0..100_000 {
            let bytes = sizes.draw(&mut prng);
            counts[[4096, 65536, 32768].iter().position(|b| *b == bytes).unwrap()] += 1;
        }
        for (count, share) in counts.into_iter().zip([0.1, 0.5, 0.4]) {
            // Five standard deviations of a binomial.
            let bound = 5.0 * (1e5_f64 * share * (1.0 - share)).sqrt();
            let off = (f64::from(count) - 1e5 * share).abs();
            assert!(off < bound, "{count} of {share} (seed {seed})");
        }
    }

    #[test]
    fn a_range_yields_multiples_of_its_least_up_to_its_most() {
        let sizes = Sizes::range("4k-16k").unwrap();
        let mut prng = Prng::new(3);
        let mut seen = [0_u32; 5];
        (0..20_000).for_each(|_| seen[(sizes.draw(&mut prng) / 4096) as usize] += 1);
        // Five standard deviations of a binomial of 20,000 and a quarter.
        assert!(seen[0] == 0 && seen[1..].iter().all(|n| n.abs_diff(5000) < 307), "{seen:?}");
        assert_eq!(Sizes::range("4k-4k"), Ok(Sizes::Fixed(4096)));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["4k-", "64k-4k", "4k"] {
            assert!(Sizes::range(text).is_err(), "{text}");
        }
        for text in ["4k/50", "4k/50:8k/60", "4k/x:8k/50", "4k/100:8k/", "4k/-1:8k/101"] {
            assert!(Sizes::split(text).is_err(), "{text}");
        }
        for zero in [Sizes::fixed("0"), Sizes::range("0-4k"), Sizes::split("0k/50:4k/50")] {
            assert!(zero.as_ref().is_err_and(|why| why.contains("below 512")), "{zero:?}");
        }
        assert!(Sizes::Fixed(1000).check(512).unwrap_err().contains("bs=1000"));
        assert!(Sizes::Fixed(512).check(4096).unwrap_err().contains("logical block"));
    }
}

//! Where the choices of a random life come from.

use std::sync::Arc;

use weir_bio::Prng;

/// Chooses: at random, or as bytes say, so that a fuzzer can lead it.
#[derive(Clone)]
pub enum Dice {
    /// At random, from a seed.
    Seeded(Prng),
    /// As these bytes say, from this one on; behind the last every choice is the first.
    Told(Arc<[u8]>, usize),
}

impl Dice {
    /// Random choices.
    pub fn seeded(seed: u64) -> Dice {
        Dice::Seeded(Prng::new(seed))
    }

    /// Choices as told.
    pub fn told(bytes: &[u8]) -> Dice {
        Dice::Told(bytes.into(), 0)
    }

    /// Whether nothing is told any more.
    pub fn are_out(&self) -> bool {
        matches!(self, Dice::Told(bytes, at) if *at >= bytes.len())
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        let (bytes, at) = match self {
            Dice::Seeded(prng) => return prng.below(bound),
            Dice::Told(bytes, at) => (bytes, at),
        };
        // As many bytes as the bound has.
        let count = (u64::BITS - bound.saturating_sub(1).leading_zeros()).div_ceil(8) as usize;
        let told = bytes.iter().skip(*at).take(count);
        let value = told.fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        *at += count;
        value % bound.max(1)
    }

    /// Yes in so many of 100 cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }
}

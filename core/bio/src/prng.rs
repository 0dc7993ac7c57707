//! A small seeded generator: the same seed gives the same numbers on every machine.
//! Algorithm: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014); state and output are 64 bits.

/// Seeded pseudo-random numbers. Not for secrets.
#[derive(Clone, Debug)]
pub struct Prng {
    state: u64,
}

impl Prng {
    /// A generator that repeats itself for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Prng {
        Prng { state: seed }
    }

    /// The next 64 bits.
    #[inline]
    #[allow(clippy::should_implement_trait)] // It never ends, so it is no Iterator.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, by multiply and shift: no divide; the bias is below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `percent` of 100 cases.
    #[inline]
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_of_seed_0_are_those_of_the_reference() {
        let mut prng = Prng::new(0);
        assert_eq!(prng.next(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(prng.next(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn below_stays_below() {
        let mut prng = Prng::new(7);
        assert!((0..10_000).all(|_| prng.below(13) < 13));
    }
}

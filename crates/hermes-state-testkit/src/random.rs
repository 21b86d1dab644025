//! Choices that are the same again for the same seed.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A sequence of numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// A sequence of its own for each combination of numbers.
    pub(crate) fn of(numbers: &[u64]) -> Self {
        let seed = numbers.iter().fold(0, |seed, number| Self(seed ^ number).next());
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `end`, which it does not reach.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A number that no other process, and no other call, is likely to get.
pub(crate) fn unforeseeable() -> u64 {
    RandomState::new().build_hasher().finish()
}

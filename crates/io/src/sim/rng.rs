//! A small deterministic generator (splitmix64, Steele et al. 2014), so that an image follows from its seed alone.

/// A stream of numbers that a seed determines.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// Creates the stream of this combination of numbers.
    pub(super) fn new(parts: &[u64]) -> Self {
        let mut rng = Self(0);
        for part in parts {
            rng.0 ^= part;
            rng.0 = rng.next();
        }
        rng
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Draws a number below `bound`, or zero if `bound` is zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder does not matter for bounds this small.
        self.next() % bound.max(1)
    }

    /// Draws true with probability `p`.
    pub(super) fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * (1_u64 << 53) as f64
    }
}

//! Seeded draws: a seed and a stream give the same inputs to every engine.

/// xoshiro256** (Blackman and Vigna), seeded through SplitMix64 as its authors advise.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// Returns the generator of `stream`, such as a thread, in a run with `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut from = seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95);
        let state = std::array::from_fn(|_| {
            from = from.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(from)
        });
        Self { state }
    }

    /// Returns any 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        result
    }

    /// Returns a number below `bound`, which is not zero. The bias is below `bound` / 2^64.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in `[0, 1)`.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Mixes 64 bits: the output step of SplitMix64.
pub(crate) const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_repeats_and_differs_from_the_others() {
        let draws = |stream| {
            let mut random = Random::new(1, stream);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draws(3), draws(3));
        assert_ne!(draws(3), draws(4));
        assert!(draws(3).iter().all(|&draw| draw < 1000));
    }
}

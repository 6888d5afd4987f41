//! Seeded draws: the same seed gives the same run of inputs on each thread.

/// xoshiro256** (Blackman and Vigna), seeded through SplitMix64 as its authors advise.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// A generator for `stream`, such as a thread, of a run with `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mix = seed ^ stream.wrapping_mul(0xD134_2543_DE82_EF95);
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (mix ^ (mix >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
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

    /// A number below `bound`, which is not zero. The bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    pub fn fraction(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Zipf's distribution over the ranks `0..n`: rank `k` has a weight of `1 / (k + 1)^s`.
///
/// Rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", 1996): no table, a draw costs the same for every `n`.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: f64,
    s: f64,
    area_first: f64,
    area_all: f64,
    accept: f64,
}

impl Zipf {
    /// The distribution over `n` ranks, `n` not zero, with exponent `s >= 0`.
    #[must_use]
    pub fn new(n: u64, s: f64) -> Self {
        debug_assert!(n > 0 && s >= 0.0);
        let n = n as f64;
        let accept = 2.0 - integral_inverse(s, integral(s, 2.5) - (-s * 2.0_f64.ln()).exp());
        Self { n, s, area_first: integral(s, 1.5) - 1.0, area_all: integral(s, n + 0.5), accept }
    }

    /// Draws a rank.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.area_all + random.fraction() * (self.area_first - self.area_all);
            let x = integral_inverse(self.s, u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.accept || u >= integral(self.s, k + 0.5) - (-self.s * k.ln()).exp() {
                return k as u64 - 1;
            }
        }
    }
}

/// Draws keys from `0..n`, all alike or some of them hot.
#[derive(Clone, Debug)]
pub struct Keys {
    n: u64,
    skewed: Option<Zipf>,
}

/// Spreads hot ranks over the keys: a prime, so without a factor in common with any smaller number of keys.
const SPREAD: u64 = 2_654_435_761;

impl Keys {
    /// Keys below `n`, not zero and less than 2^31. With `skew` above zero by Zipf's distribution with that exponent.
    #[must_use]
    pub fn new(n: u64, skew: f64) -> Self {
        debug_assert!(n < SPREAD, "spread ranks must not meet");
        Self { n, skewed: (skew > 0.0).then(|| Zipf::new(n, skew)) }
    }

    /// Draws a key.
    pub fn draw(&self, random: &mut Random) -> u64 {
        match &self.skewed {
            None => random.below(self.n),
            Some(zipf) => (u128::from(zipf.draw(random)) * u128::from(SPREAD) % u128::from(self.n)) as u64,
        }
    }
}

/// Integral of `x^-s`, shifted so that it is 0 at 1.
fn integral(s: f64, x: f64) -> f64 {
    let log = x.ln();
    let t = (1.0 - s) * log;
    // expm1(t) / t, by its series where the quotient would lose its digits.
    let factor = if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 };
    factor * log
}

fn integral_inverse(s: f64, y: f64) -> f64 {
    let t = (y * (1.0 - s)).max(-1.0);
    let factor = if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 };
    (factor * y).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_ranks_spread_without_meeting() {
        for n in [1_u64, 1000, 100_000, 300_000] {
            let mut seen = vec![false; n as usize];
            for rank in 0..n {
                let key = (u128::from(rank) * u128::from(SPREAD) % u128::from(n)) as usize;
                assert!(!std::mem::replace(&mut seen[key], true), "{n} keys, rank {rank}");
            }
        }
    }

    #[test]
    fn keys_are_alike_without_skew_and_one_is_hot_with_it() {
        let count = |skew| {
            let (keys, mut random, mut seen) = (Keys::new(10, skew), Random::new(1, 0), [0_u32; 10]);
            (0..10_000).for_each(|_| seen[keys.draw(&mut random) as usize] += 1);
            *seen.iter().max().unwrap()
        };
        assert!((1_000..1_200).contains(&count(0.0)));
        // Weight of the first of ten ranks: 1 / 1.5498.
        assert!((6_200..6_700).contains(&count(2.0)));
    }

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |seed, stream| Random::new(seed, stream).bits();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn below_is_uniform() {
        let mut random = Random::new(7, 0);
        let mut seen = [0_u32; 10];
        for _ in 0..100_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
    }

    #[test]
    fn zipf_follows_its_weights() {
        for s in [0.0, 0.5, 1.0, 2.0, 5.0] {
            let (n, draws) = (50_u64, 200_000);
            let zipf = Zipf::new(n, s);
            let mut random = Random::new(3, 0);
            let mut seen = vec![0_u32; n as usize];
            for _ in 0..draws {
                seen[zipf.draw(&mut random) as usize] += 1;
            }
            let weight = |k: u64| ((k + 1) as f64).powf(-s);
            let all: f64 = (0..n).map(weight).sum();
            for k in [0, 1, 9, 49] {
                let expected = f64::from(draws) * weight(k) / all;
                let off = (f64::from(seen[k as usize]) - expected).abs();
                assert!(off <= 5.0 * expected.sqrt() + 5.0, "s {s}, rank {k}: {} for {expected}", seen[k as usize]);
            }
        }
    }
}

//! Zipf's distribution over the ranks `0..n`: rank `k` has a weight of `1 / (k + 1)^s`.
//!
//! Rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", 1996): no table, a draw costs the same for every `n`.

use crate::random::Random;

#[derive(Clone, Debug)]
pub(super) struct Zipf {
    n: f64,
    s: f64,
    area_first: f64,
    area_all: f64,
    accept: f64,
}

impl Zipf {
    /// Returns the distribution over `n` ranks, `n` not zero, with exponent `s >= 0`.
    pub(super) fn new(n: u64, s: f64) -> Self {
        let n = n as f64;
        let accept = 2.0 - integral_inverse(s, integral(s, 2.5) - (-s * 2.0_f64.ln()).exp());
        Self { n, s, area_first: integral(s, 1.5) - 1.0, area_all: integral(s, n + 0.5), accept }
    }

    /// Draws a rank.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
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
    fn zipf_follows_its_weights() {
        for s in [0.0, 0.5, 0.99, 1.0, 2.0] {
            let (n, draws) = (50_u64, 100_000);
            let (zipf, mut random, mut seen) = (Zipf::new(n, s), Random::new(3, 0), vec![0_u32; n as usize]);
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

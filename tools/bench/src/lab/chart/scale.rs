//! Where values lie on an axis, and its ticks.

use crate::units::show;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lab) enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By their logarithm, with ticks at powers of this base.
    Log(u32),
}

/// Most ticks of an axis, so that their numbers do not meet.
const TICKS: usize = 8;

/// The range of an axis, as plotters asks for it.
#[derive(Clone, Debug)]
pub(super) struct AxisRange {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl AxisRange {
    /// Returns a range that holds `values`, which may be none.
    pub(super) fn of(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let high = values.clone().fold(f64::NAN, f64::max);
        let low = values.fold(f64::NAN, f64::min);
        let (low, high) = if high.is_nan() { (1.0, 10.0) } else { (low, high) };
        match scale {
            Scale::Linear => Self::linear(if high > 0.0 { high * 1.05 } else { 1.0 }),
            Scale::Log(base) => Self::log(base, low, high),
        }
    }

    fn linear(high: f64) -> Self {
        let rough = high / 5.0;
        let magnitude = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * magnitude).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let ticks = (0..=(high / step) as u32).map(|i| f64::from(i) * step).collect();
        Self { scale: Scale::Linear, low: 0.0, high, ticks }
    }

    /// Ends at ticks. They are powers of the base, or the 1, 2 and 5 of each decade where there are few decades.
    fn log(base: u32, low: f64, high: f64) -> Self {
        let power = |value: f64| value.log(f64::from(base));
        let (first, last) = ((power(low) + 1e-9).floor() as i32, (power(high) - 1e-9).ceil() as i32);
        let last = last.max(first + 1);
        let parts: &[f64] = if base == 10 && last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let tick = |power: i32| parts.iter().map(move |part| part * f64::from(base).powi(power));
        let all: Vec<f64> = (first..=last).flat_map(tick).collect();
        let from = all.iter().rposition(|tick| *tick <= low * (1.0 + 1e-9)).unwrap_or(0);
        let to = all.iter().position(|tick| *tick >= high * (1.0 - 1e-9)).unwrap_or(all.len() - 1).max(from + 1);
        let every = (to - from) / TICKS + 1;
        let ticks = all[from..=to].iter().copied().step_by(every).collect();
        Self { scale: Scale::Log(base), low: all[from], high: all[to], ticks }
    }

    /// Returns places for `count` bars, each a unit wide, with a tick in the middle of each.
    pub(super) fn places(count: usize) -> Self {
        let ticks = (0..count).map(|place| place as f64 + 0.5).collect();
        Self { scale: Scale::Linear, low: 0.0, high: count.max(1) as f64, ticks }
    }

    fn share(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log(_) => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }
}

impl Ranged for AxisRange {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        from + (f64::from(to - from) * self.share(*value)).round() as i32
    }

    /// No lines between the ticks.
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for AxisRange {
    fn format(value: &f64) -> String {
        number(*value)
    }
}

/// A number on an axis.
pub(super) fn number(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", trimmed(v / 1e9)),
        v if v >= 1e6 => format!("{}M", trimmed(v / 1e6)),
        v if v >= 1e4 => format!("{}k", trimmed(v / 1e3)),
        v => trimmed(v),
    }
}

/// Without zeros that say nothing, and without dropping those of small numbers.
fn trimmed(value: f64) -> String {
    if value == value.round() || value >= 100.0 {
        return format!("{value:.0}");
    }
    let text = if value < 0.01 { format!("{value:.4}") } else { show(value) };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_scale() {
        let span = |scale, values: &[f64]| AxisRange::of(scale, values.iter().copied());
        let log = span(Scale::Log(10), &[3.0, 250.0]);
        // Three decades have a tick each.
        assert_eq!((log.low, log.high, log.ticks.len()), (1.0, 1000.0, 4));
        assert_eq!(log.map(&10.0, (0, 300)), 100);
        let few = span(Scale::Log(10), &[3.0, 45.0]);
        assert_eq!((few.low, few.high, few.ticks), (2.0, 50.0, vec![2.0, 5.0, 10.0, 20.0, 50.0]));
        let linear = span(Scale::Linear, &[8.0]);
        assert_eq!((linear.map(&0.0, (300, 0)), linear.ticks), (300, vec![0.0, 2.0, 4.0, 6.0, 8.0]));
        let nothing = span(Scale::Linear, &[0.0, 0.0]);
        assert_eq!((nothing.map(&0.0, (300, 0)), nothing.high), (300, 1.0));
        let one = span(Scale::Log(2), &[4.0]);
        assert_eq!((one.low, one.high), (4.0, 8.0));
        assert!(span(Scale::Log(2), &[1.0, 65536.0]).ticks.len() <= TICKS + 1);
    }

    #[test]
    fn ticks_read_well() {
        let shown = [0.0, 0.001, 0.5, 8.0, 1500.0, 2e4, 5e6, 1.6e9].map(number);
        assert_eq!(shown, ["0", "0.001", "0.5", "8", "1500", "20k", "5M", "1.6G"]);
    }
}

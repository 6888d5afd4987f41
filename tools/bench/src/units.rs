//! Sizes and times as users type them and as tables show them.

use foreshore::{Error, Result};
use std::time::Duration;

/// Bytes from `64MiB`, `1GiB`, `512KiB` or a plain number of bytes.
///
/// # Errors
/// `InvalidOption` that names the option `name`.
pub fn size(name: &'static str, text: &str) -> Result<u64> {
    let (digits, unit) = split(text);
    let unit = match unit {
        "" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    let bytes = unit.and_then(|unit: u64| unit.checked_mul(digits.parse().ok()?));
    bytes.ok_or_else(|| invalid(name, text, "a size such as 64MiB, in KiB, MiB or GiB"))
}

/// A time from `300us`, `20ms`, `5s` or a plain number of seconds, fractions allowed.
///
/// # Errors
/// `InvalidOption` that names the option `name`.
pub fn time(name: &'static str, text: &str) -> Result<Duration> {
    let (digits, unit) = split(text);
    let unit = match unit {
        "" | "s" => Some(1.0),
        "ms" => Some(1e-3),
        "us" => Some(1e-6),
        _ => None,
    };
    let seconds = unit.and_then(|unit| Some(digits.parse::<f64>().ok()? * unit));
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| invalid(name, text, "a time such as 10s, in us, ms or s"))
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()))
}

/// The refusal of a value.
pub(crate) fn invalid(name: &'static str, value: &str, expected: &str) -> Error {
    Error::InvalidOption { name, value: value.to_owned(), expected: expected.to_owned() }
}

/// Bytes with the largest unit that leaves a number of at least one.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{:.1} KiB", value / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", value / 1_048_576.0),
        _ => format!("{:.2} GiB", value / 1_073_741_824.0),
    }
}

/// A number of digits that a reader can compare: 3 at least, no fraction from 100 on.
#[must_use]
pub fn show(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A rate with `k` or `M` for thousands or millions.
#[must_use]
pub fn show_count(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{} M", show(value / 1e6)),
        v if v >= 1e4 => format!("{} k", show(value / 1e3)),
        _ => show(value),
    }
}

/// Rounded to thousandths: finer digits of a measurement are noise.
#[must_use]
pub(crate) fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("memory", "48MiB").unwrap(), 48 << 20);
        assert_eq!(size("memory", "1GiB").unwrap(), 1 << 30);
        assert_eq!(size("memory", "4096").unwrap(), 4096);
        for text in ["", "MiB", "1MB", "-1KiB", "1.5GiB", "99999999999GiB", "1 MiB x"] {
            let error = size("memory", text).unwrap_err();
            assert!(matches!(error, Error::InvalidOption { name: "memory", .. }), "{text}: {error}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(time("secs", "5").unwrap(), Duration::from_secs(5));
        assert_eq!(time("secs", "0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(time("secs", "300us").unwrap(), Duration::from_micros(300));
        assert_eq!(time("secs", "20ms").unwrap(), Duration::from_millis(20));
        for text in ["", "s", "-1", "1h", "1e400"] {
            assert!(time("secs", text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(show_bytes(512), "512 B");
        assert_eq!(show_bytes(48 << 20), "48.0 MiB");
        assert_eq!(show_bytes(3 << 29), "1.50 GiB");
        assert_eq!((show(12345.6), show(45.67), show(0.123)), ("12346".into(), "45.7".into(), "0.12".into()));
        assert_eq!((show_count(999.0), show_count(12_345.0)), ("999".into(), "12.3 k".into()));
        assert_eq!(show_count(58_300_000.0), "58.3 M");
    }
}

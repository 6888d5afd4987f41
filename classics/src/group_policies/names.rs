//! The names of the policies, and of times in them.

use super::TimedGroup;
use foreshore_base::{InvalidOption, Result};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest period or delay.
const MAX_TIME: Duration = Duration::from_secs(10);

impl TimedGroup {
    pub(super) fn is_sound(&self) -> bool {
        let fits = |time: Duration| (Duration::from_nanos(1)..=MAX_TIME).contains(&time);
        match *self {
            Self::Adaptive => true,
            Self::Delay(time) => fits(time),
            Self::Fixed { time, txns, bytes } => {
                let is_bounded = time.is_some() || txns.is_some() || bytes.is_some();
                is_bounded && time.is_none_or(fits) && txns != Some(0) && bytes != Some(0)
            }
        }
    }
}

impl fmt::Display for TimedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Adaptive => f.write_str("adaptive"),
            Self::Delay(time) => write!(f, "delay:{}", Time(time)),
            Self::Fixed { time, txns, bytes } => {
                let bounds = [
                    time.map(|time| Time(time).to_string()),
                    txns.map(|txns| format!("{txns}txn")),
                    bytes.map(|bytes| match bytes {
                        whole if whole.is_multiple_of(1 << 20) => format!("{}MiB", whole >> 20),
                        whole if whole.is_multiple_of(1 << 10) => format!("{}KiB", whole >> 10),
                        bytes => format!("{bytes}B"),
                    }),
                ];
                write!(f, "fixed:{}", bounds.into_iter().flatten().collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl FromStr for TimedGroup {
    type Err = InvalidOption;

    fn from_str(name: &str) -> Result<Self, InvalidOption> {
        let policy = match name.split_once(':') {
            None if name == "adaptive" => Some(Self::Adaptive),
            Some(("delay", time)) => parse_time(time).map(Self::Delay),
            Some(("fixed", bounds)) => fixed(bounds),
            _ => None,
        };
        policy.filter(Self::is_sound).ok_or_else(|| InvalidOption {
            name: "group_policy",
            value: name.to_owned(),
            expected: "adaptive, delay:TIME or fixed:TIME,Ntxn,SIZE, as fixed:100us,64txn,64KiB, up to 10 s".to_owned(),
        })
    }
}

fn fixed(bounds: &str) -> Option<TimedGroup> {
    let (mut time, mut txns, mut bytes) = (None, None, None);
    for bound in bounds.split(',') {
        let (n, unit) = number(bound)?;
        let size = |shift: u32| n.checked_mul(1 << shift);
        let taken = match unit {
            "txn" => txns.replace(n).is_some(),
            "B" => bytes.replace(size(0)?).is_some(),
            "KiB" => bytes.replace(size(10)?).is_some(),
            "MiB" => bytes.replace(size(20)?).is_some(),
            _ => time.replace(duration(n, unit)?).is_some(),
        };
        if taken {
            return None;
        }
    }
    Some(TimedGroup::Fixed { time, txns, bytes })
}

/// Splits a number from the text behind it.
fn number(text: &str) -> Option<(u64, &str)> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    Some((digits.parse().ok()?, unit))
}

fn duration(n: u64, unit: &str) -> Option<Duration> {
    let nanos: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    n.checked_mul(nanos).map(Duration::from_nanos)
}

/// Reads a whole number with a unit of time; `None` for anything else.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    number(text).and_then(|(n, unit)| duration(n, unit))
}

/// A duration, printed in its largest whole unit.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_nanos() {
            nanos if nanos.is_multiple_of(1_000_000_000) => write!(f, "{}s", nanos / 1_000_000_000),
            nanos if nanos.is_multiple_of(1_000_000) => write!(f, "{}ms", nanos / 1_000_000),
            nanos if nanos.is_multiple_of(1_000) => write!(f, "{}us", nanos / 1_000),
            nanos => write!(f, "{nanos}ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let names = [
            "adaptive",
            "delay:50us",
            "fixed:100us",
            "fixed:64txn",
            "fixed:64KiB",
            "fixed:1s,7txn,3B",
            "fixed:1500ns,1MiB",
        ];
        for name in names {
            assert_eq!(name.parse::<TimedGroup>().unwrap().to_string(), name);
        }
        let bytes = Some(64 << 10);
        let policy = TimedGroup::Fixed { time: Some(Duration::from_micros(100)), txns: Some(64), bytes };
        assert_eq!("fixed:64txn,65536B,100us".parse::<TimedGroup>().unwrap(), policy);
    }

    #[test]
    fn other_names_are_refused() {
        let names = [
            "",
            "lazy",
            "greedy",
            "fixed",
            "fixed:",
            "fixed:us",
            "fixed:5",
            "fixed:5us,6us",
            "fixed:0txn",
            "fixed:0KiB",
            "fixed:0us",
            "fixed:11s",
            "delay",
            "delay:",
            "delay:0us",
            "delay:64KiB",
            "delay:18446744073709551615s",
            "fixed:18446744073709551615MiB",
            "fixed:-1us",
        ];
        for name in names {
            let error = name.parse::<TimedGroup>().unwrap_err();
            assert!(matches!(error, InvalidOption { name: "group_policy", .. }), "{name}: {error}");
        }
    }
}

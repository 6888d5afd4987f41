//! When a group is cut: the policies and their names.

use foreshore_base::{Error, Result};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// When a group is cut. Space pressure and a cut that left records behind override every policy.
///
/// | name | a group is cut | from |
/// |---|---|---|
/// | `greedy` | as soon as the device is free and somebody waits; half the time of a write later, and at most 50 us, where that has let those come again who have just been answered; where nobody is stopped, as with pipelined commits, up to five times of a write and 500 us after the last one, while so many come that the group becomes worth its write | self-clocked group commit |
/// | `fixed:TIME,Ntxn,SIZE` | at the next tick of a timer, with N commits, or with so many bytes, whichever is first; any of the three may be left out | Aether, section 4; Laser's fixed timer |
/// | `adaptive` | at the next tick of a timer that follows the time of a write | Laser, section 5 |
/// | `delay:TIME` | this long after the first commit came | PostgreSQL's `commit_delay` |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupPolicy {
    /// As soon as the device is free and somebody waits: the time of one write clocks the groups.
    #[default]
    Greedy,
    /// At whichever bound comes first. Without a time, 10 ms bound the wait of a commit that is alone.
    Fixed {
        /// Period of the timer, which starts anew with each group.
        time: Option<Duration>,
        /// Commits that wait. One that is asked for again before its group is cut, flushed soon and then waited for or polled,
        /// counts each time: the group is cut early, never late.
        txns: Option<u64>,
        /// Bytes appended and not cut.
        bytes: Option<u64>,
    },
    /// At the ticks of a timer `D` that starts anew with each group: `D := D/2 + W/2` after a group that took `W` to write,
    /// and 0.2 ms more if that is over 0.1 ms longer than the group before took.
    Adaptive,
    /// So long after the first commit that waits for it.
    Delay(Duration),
}

/// The period of a fixed policy that names none.
const DEFAULT_PERIOD: Duration = Duration::from_millis(10);
/// The longest period or delay.
const MAX_TIME: Duration = Duration::from_secs(10);

impl GroupPolicy {
    /// The period of a fixed timer.
    pub(crate) fn period(time: Option<Duration>) -> Duration {
        time.unwrap_or(DEFAULT_PERIOD)
    }

    /// What is wrong with the value.
    pub(crate) fn check(&self) -> Result<()> {
        let sound = match *self {
            Self::Greedy | Self::Adaptive => true,
            Self::Delay(time) => (Duration::from_nanos(1)..=MAX_TIME).contains(&time),
            Self::Fixed { time, txns, bytes } => {
                let time_fits = time.is_none_or(|time| (Duration::from_nanos(1)..=MAX_TIME).contains(&time));
                time_fits
                    && (time.is_some() || txns.is_some() || bytes.is_some())
                    && txns != Some(0)
                    && bytes != Some(0)
            }
        };
        if sound { Ok(()) } else { Err(refused(&self.to_string())) }
    }
}

impl fmt::Display for GroupPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Greedy => f.write_str("greedy"),
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

impl FromStr for GroupPolicy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let policy = match name.split_once(':') {
            None if name == "greedy" => Some(Self::Greedy),
            None if name == "adaptive" => Some(Self::Adaptive),
            Some(("delay", time)) => number(time).and_then(|(n, unit)| duration(n, unit)).map(Self::Delay),
            Some(("fixed", bounds)) => fixed(bounds),
            _ => None,
        };
        policy.filter(|policy| policy.check().is_ok()).ok_or_else(|| refused(name))
    }
}

fn refused(value: &str) -> Error {
    Error::InvalidOption {
        name: "group_policy",
        value: value.to_owned(),
        expected: "greedy, adaptive, delay:TIME or fixed:TIME,Ntxn,SIZE, as fixed:100us,64txn,64KiB, up to 10 s"
            .to_owned(),
    }
}

fn fixed(bounds: &str) -> Option<GroupPolicy> {
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
    Some(GroupPolicy::Fixed { time, txns, bytes })
}

/// A number and what follows it.
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

/// A duration in its largest whole unit.
struct Time(Duration);

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

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let names = [
            "greedy",
            "adaptive",
            "delay:50us",
            "fixed:100us",
            "fixed:64txn",
            "fixed:64KiB",
            "fixed:1s,7txn,3B",
            "fixed:1500ns,1MiB",
        ];
        for name in names {
            assert_eq!(name.parse::<GroupPolicy>().unwrap().to_string(), name);
        }
        let bytes = Some(64 << 10);
        let policy = GroupPolicy::Fixed { time: Some(Duration::from_micros(100)), txns: Some(64), bytes };
        assert_eq!("fixed:64txn,65536B,100us".parse::<GroupPolicy>().unwrap(), policy);
    }

    #[test]
    fn other_names_are_refused() {
        let names = [
            "",
            "lazy",
            "greedy:1us",
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
            let error = name.parse::<GroupPolicy>().unwrap_err();
            assert!(matches!(error, Error::InvalidOption { name: "group_policy", .. }), "{name}: {error}");
        }
    }
}

//! The policies of group commit, by the names that users type.

use crate::units::invalid;
use foreshore::{Error, Group, Options, Result};
use foreshore_classics::group_policies::TimedGroup;
use foreshore_classics::group_policies::names::{Time, parse_time};
use foreshore_wal::LogOptions;
use std::{fmt, str::FromStr};

/// The engine's own policies, and those it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupName {
    /// `greedy` or `window:TIME`.
    Own(Group),
    /// `fixed:TIME,Ntxn,SIZE`, `adaptive` or `delay:TIME`.
    Timed(TimedGroup),
}

impl Default for GroupName {
    fn default() -> Self {
        Self::Own(Group::default())
    }
}

impl GroupName {
    /// Opens databases with this policy.
    pub(crate) fn set(self, options: Options) -> Options {
        match self {
            Self::Own(group) => options.group(group),
            Self::Timed(timed) => options.lab(|lab| lab.group = Some(timed.source())),
        }
    }

    /// Opens logs with this policy.
    pub(crate) fn of_log(self, options: LogOptions) -> LogOptions {
        match self {
            Self::Own(group) => LogOptions { group, group_from: None, ..options },
            Self::Timed(timed) => LogOptions { group_from: Some(timed.source()), ..options },
        }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(Group::Greedy) => f.write_str("greedy"),
            Self::Own(Group::Window(max)) => write!(f, "window:{}", Time(*max)),
            Self::Timed(timed) => timed.fmt(f),
        }
    }
}

impl FromStr for GroupName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let own = match name.split_once(':') {
            None if name == "greedy" => Some(Group::Greedy),
            Some(("window", max)) => parse_time(max).filter(|max| !max.is_zero()).map(Group::Window),
            _ => None,
        };
        let timed = || name.parse().ok().map(Self::Timed);
        own.map(Self::Own).or_else(timed).ok_or_else(|| {
            let expected = "greedy, window:TIME, adaptive, delay:TIME or fixed:TIME,Ntxn,SIZE, as fixed:100us,64txn,64KiB, \
                            up to 10 s";
            invalid("group", name, expected)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in ["greedy", "window:200us", "window:1s", "adaptive", "delay:50us", "fixed:100us,64txn,64KiB"] {
            assert_eq!(name.parse::<GroupName>().unwrap().to_string(), name);
        }
        assert_eq!(GroupName::default().to_string().parse::<GroupName>().unwrap(), GroupName::default());
    }

    #[test]
    fn other_names_are_refused_with_those_that_exist() {
        for name in ["", "lazy", "window", "window:", "window:0us", "window:3", "greedy:1us", "fixed:0txn"] {
            let error = name.parse::<GroupName>().unwrap_err().to_string();
            assert!(error.contains("greedy, window:TIME"), "{name}: {error}");
        }
    }
}

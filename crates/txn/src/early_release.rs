//! How much a commit releases before it is durable.

use foreshore_base::Error;
use std::fmt;
use std::str::FromStr;

/// What a transaction gives up when its commit record is appended, and what only when that record is durable.
///
/// | name | at pre-commit | when durable |
/// |---|---|---|
/// | `off` | nothing | all locks |
/// | `s_only` | shared locks and shared intents | locks of rows that it wrote, and the intents and locks of their tables |
/// | `full` | all locks | nothing |
///
/// It is a matter of locks, not of visibility: with `off` and `s_only` a row whose commit is not durable counts as locked by it.
/// Who meets one helps to write the log instead of waiting to be woken. `off` is the baseline of Aether, section 3; with it
/// and with `s_only` a transaction keeps its session until it is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyRelease {
    /// No early lock release.
    Off,
    /// Of shared locks only.
    SharedOnly,
    /// Of all locks.
    #[default]
    Full,
}

impl fmt::Display for EarlyRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Off => "off",
            Self::SharedOnly => "s_only",
            Self::Full => "full",
        })
    }
}

impl FromStr for EarlyRelease {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "off" => Ok(Self::Off),
            "s_only" => Ok(Self::SharedOnly),
            "full" => Ok(Self::Full),
            _ => Err(Error::InvalidOption {
                name: "elr",
                value: name.to_owned(),
                expected: "off, s_only or full".to_owned(),
            }),
        }
    }
}

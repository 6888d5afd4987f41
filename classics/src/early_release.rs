//! How much a commit releases before it is durable.

use foreshore_base::InvalidOption;
use foreshore_lock::LockManager;
use foreshore_txn::PrecommitRelease;
use std::fmt;
use std::str::FromStr;

/// What a transaction releases when its commit record is appended, and what only when the record is durable.
///
/// | name | at pre-commit | when durable |
/// |---|---|---|
/// | `off` | nothing | all locks |
/// | `s_only` | shared locks and shared intents | locks of rows that it wrote, and the intents and locks of their tables |
/// | `full` | all locks: the engine's own | nothing |
///
/// Locks are delayed, not visibility: with `off` and `s_only` a row whose commit is not durable counts as locked by
/// it. A transaction that meets such a row helps to write the log instead of waiting to be woken. `off` is the
/// baseline of Aether (Johnson et al., VLDB 2010), section 3. With `off` and `s_only` a transaction keeps its session
/// until it is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EarlyRelease {
    /// No early lock release.
    Off,
    /// Early release of shared locks only.
    SharedOnly,
    /// Early release of all locks.
    #[default]
    Full,
}

impl EarlyRelease {
    /// Returns what the engine calls at pre-commit; `None` for its own early release of all locks.
    #[must_use]
    pub fn hook(self) -> Option<PrecommitRelease> {
        match self {
            Self::Off => Some(|_, _| {}),
            Self::SharedOnly => Some(LockManager::release_shared),
            Self::Full => None,
        }
    }
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
    type Err = InvalidOption;

    fn from_str(name: &str) -> Result<Self, InvalidOption> {
        match name {
            "off" => Ok(Self::Off),
            "s_only" => Ok(Self::SharedOnly),
            "full" => Ok(Self::Full),
            _ => Err(InvalidOption { name: "elr", value: name.to_owned(), expected: "off, s_only or full".to_owned() }),
        }
    }
}

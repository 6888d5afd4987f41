//! Where a transaction enters its intents on tables.

use foreshore_base::InvalidOption;
use std::fmt;
use std::str::FromStr;

/// Where a transaction enters its intents on tables.
///
/// | name | intents are entered | from |
/// |---|---|---|
/// | `table` | in the lock table, each time | the baseline of Shore-MT (Johnson et al., EDBT 2009) |
/// | `fastpath` | in words of the session, which its next transaction inherits: the engine's own | Johnson et al., VLDB 2009 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntentKind {
    /// In the lock table, each time.
    Table,
    /// In words of the session, which its next transaction inherits.
    #[default]
    Fastpath,
}

impl IntentKind {
    /// Returns the value of `LockOptions::fast_intents`.
    #[must_use]
    pub fn is_fast(self) -> bool {
        self == Self::Fastpath
    }
}

impl fmt::Display for IntentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Table => "table",
            Self::Fastpath => "fastpath",
        })
    }
}

impl FromStr for IntentKind {
    type Err = InvalidOption;

    fn from_str(name: &str) -> Result<Self, InvalidOption> {
        match name {
            "table" => Ok(Self::Table),
            "fastpath" => Ok(Self::Fastpath),
            _ => {
                Err(InvalidOption { name: "intents", value: name.to_owned(), expected: "table or fastpath".to_owned() })
            }
        }
    }
}

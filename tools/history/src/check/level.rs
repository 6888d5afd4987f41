//! Levels of isolation.

use std::{fmt, str::FromStr};

/// What concurrent transactions may see of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// Nothing uncommitted and nothing intermediate (Adya's PL-2): no cycle of writes and of reads from writes.
    ReadCommitted,
    /// All reads are of one moment, and no write replaces a version newer than that (PL-SI). Every cycle has two
    /// readers in a row whose reads were overwritten (Cerone and Gotsman, "Analysing Snapshot Isolation", 2016).
    Snapshot,
    /// As if one ran after the other (PL-3): no cycle.
    Serializable,
}

/// What a history is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// What concurrent transactions may see of each other.
    pub base: Base,
    /// Whether a transaction that begins when another has been answered must come after it.
    pub real_time: bool,
}

impl Level {
    /// Read committed.
    pub const READ_COMMITTED: Self = Self { base: Base::ReadCommitted, real_time: false };
    /// Snapshot isolation.
    pub const SNAPSHOT: Self = Self { base: Base::Snapshot, real_time: false };
    /// Serializable.
    pub const SERIALIZABLE: Self = Self { base: Base::Serializable, real_time: false };
    /// Serializable in real time.
    pub const STRICT_SERIALIZABLE: Self = Self { base: Base::Serializable, real_time: true };

    /// The level in real time. Snapshots have every transaction that was answered before they were asked for; what read
    /// committed reads is at least as new as the beginning of its transaction.
    #[must_use]
    pub const fn in_real_time(self) -> Self {
        Self { base: self.base, real_time: true }
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadCommitted => "read-committed",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.base, if self.real_time { " in real time" } else { "" })
    }
}

impl FromStr for Base {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "read-committed" => Ok(Self::ReadCommitted),
            "snapshot" => Ok(Self::Snapshot),
            "serializable" => Ok(Self::Serializable),
            _ => Err(format!("{name:?} is no level of isolation: read-committed, snapshot, serializable")),
        }
    }
}

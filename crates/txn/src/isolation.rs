//! What transactions may see of others, and what they see of a row.

use foreshore_base::InvalidOption;
use std::fmt;
use std::str::FromStr;

/// What a transaction may see of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each operation reads by a snapshot of its own, and waits for no transaction. Writes change what is newest.
    ReadCommitted,
    /// All operations read by one snapshot, taken at the start, and wait for no transaction. A write to a row that
    /// another transaction has changed or locked since, and committed, fails with `Conflict`: the first one wins. A
    /// transaction that has only locked rows, and changed none, leaves no conflict behind.
    Snapshot,
    /// Transactions seem to run one after the other: strict two-phase locking of keys, whether they exist or not, and
    /// of intervals of keys.
    #[default]
    Serializable,
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadCommitted => "read-committed",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        })
    }
}

impl FromStr for Isolation {
    type Err = InvalidOption;

    fn from_str(name: &str) -> Result<Self, InvalidOption> {
        match name {
            "read-committed" => Ok(Self::ReadCommitted),
            "snapshot" => Ok(Self::Snapshot),
            "serializable" => Ok(Self::Serializable),
            _ => Err(InvalidOption {
                name: "isolation",
                value: name.to_owned(),
                expected: "serializable, snapshot or read-committed".to_owned(),
            }),
        }
    }
}

/// What a transaction sees of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The row as it is in its place.
    Newest,
    /// An older version with these flags; its value has been copied.
    Older(u16),
    /// No row.
    Nothing,
    /// An older version that is in the file: after [`Txn::fetch`](crate::Txn::fetch) it is seen.
    Spilled,
    /// Nothing that makes sense. Either the page has changed since, or the snapshot was cancelled, or the row is
    /// damaged.
    Lost,
    /// Nothing: the search ended early, because the page was latched or had changed, or the snapshot was cancelled. The
    /// row has to be read again, even if the page validates.
    Unfinished,
}

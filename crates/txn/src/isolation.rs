//! Isolation levels, and the result of reading a row.

use foreshore_base::{InvalidOption, Xid};
use std::fmt;
use std::str::FromStr;

/// The isolation level of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each operation reads by its own snapshot, and waits for no transaction, except one that a restart still has to
    /// undo. Writes change the newest version.
    ReadCommitted,
    /// All operations read by one snapshot, taken at the start, and wait as those of `ReadCommitted` do. A write fails
    /// with `Conflict` if another transaction has changed or locked the row since, and has committed. A transaction
    /// that only locked rows, and changed none, causes no conflict.
    Snapshot,
    /// Transactions behave as if they ran one after another. The method is strict two-phase locking of keys, whether
    /// they exist or not, and of intervals of keys.
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

/// The result of reading a row by a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The version in the leaf.
    Newest,
    /// An older version with these flags. Its value was copied.
    Older(u16),
    /// No row.
    Nothing,
    /// An older version in the spill file. A read after [`Txn::fetch`](crate::Txn::fetch) finds it.
    Spilled,
    /// The search failed. The page has changed since, the snapshot was cancelled, or the row is damaged.
    Lost,
    /// The search ended early, because the page was latched or had changed, or the snapshot was cancelled. The caller
    /// must read the row again, even if the page validates.
    Unfinished,
    /// The restart may still have to undo a change of this transaction of the previous run. The caller waits for it by
    /// [`Txn::wait_earlier`](crate::Txn::wait_earlier), and reads the row again.
    Earlier(Xid),
}

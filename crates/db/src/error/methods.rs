//! Methods of an error.

use super::Error;
use foreshore_base::{PageId, Place};
use std::{io, path::PathBuf};

/// A result with Foreshore's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps an error of the operating system from `op` on `path`. A full disk has its own variant, if `op` needs
    /// space.
    pub fn io(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        foreshore_base::Error::io(op, path, source).into()
    }

    /// The page that [`Error::Corrupted`] names; none for damage of another kind.
    #[must_use]
    pub const fn damaged_page(&self) -> Option<PageId> {
        match self {
            Self::Corrupted { place: Place::Page(page), .. } => Some(*page),
            _ => None,
        }
    }

    /// Returns the label of the transaction that was in the way, if this error knows one.
    #[must_use]
    pub fn blocker(&self) -> Option<&'static str> {
        match self {
            // The victim waits for the next transaction of the cycle.
            Self::Deadlock { cycle } => cycle.get(1).map(|blocker| blocker.label),
            Self::LockTimeout { holder, .. }
            | Self::OwnThreadLock { holder, .. }
            | Self::RowLocked { holder, .. }
            | Self::UndoMemory { holder, .. }
            | Self::Deadline { holder, .. } => Some(holder),
            Self::TooManyTransactions { oldest, .. } => Some(oldest),
            Self::DiskFull { held_by, .. } => *held_by,
            Self::Exhausted { cause, .. } => cause.blocker(),
            _ => None,
        }
    }

    /// Whether the same transaction may succeed when it is run again.
    ///
    /// ```
    /// # use foreshore::{Db, Error, RowLock, TableDef, TxnOptions};
    /// # let db = Db::in_memory()?;
    /// # use std::io;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
    /// let holder = db.begin_with(TxnOptions::new().label("order"));
    /// holder.open(STOCK)?.get_for_update(1)?;
    /// let tx = db.begin();
    /// let error = tx.open(STOCK)?.get_locked(1, RowLock::update().no_wait()).unwrap_err();
    /// assert!(!error.is_retryable());
    /// assert_eq!((error.blocker(), error.damaged_page()), (Some("order"), None));
    /// assert!(!Error::io("read", "orders.csv", io::ErrorKind::NotFound.into()).is_retryable());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Deadlock { .. }
                | Self::LockTimeout { .. }
                | Self::Conflict { .. }
                | Self::SnapshotTooOld { .. }
                | Self::TransactionTooOld { .. }
                | Self::TooManyTransactions { .. }
                | Self::UndoMemory { .. }
                | Self::LogSpace
                | Self::TableDropped { .. }
                | Self::IndexesChanged { .. }
                | Self::Exhausted { .. }
                | Self::Deadline { .. }
        )
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } | Self::ReaderFailed { source, .. } => Some(&**source),
            Self::Poisoned { cause }
            | Self::Exhausted { cause, .. }
            | Self::Deadline { cause, .. }
            | Self::RollbackParked { cause, .. } => Some(&**cause),
            _ => None,
        }
    }
}

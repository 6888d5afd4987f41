//! The errors of the layers below as users get them.

use super::Error;
use foreshore_base::{Error as Storage, InvalidOption, TableId, TableRef, Waiter};
use std::sync::Arc;
use std::time::Duration;

impl From<Storage> for Error {
    fn from(error: Storage) -> Self {
        match error {
            Storage::Io { op, path, source } => Self::Io { op, path, source },
            Storage::DiskFull { path, held_by } => Self::DiskFull { path, held_by },
            Storage::Corrupted { table, file, place, why } => {
                Self::Corrupted { table: table.map(Into::into), file, place, why }
            }
            Storage::Truncated { file, len, expected } => Self::Truncated { file, len, expected },
            Storage::LostLog { file, offset, missing } => Self::LostLog { file, offset, missing },
            Storage::LogTruncated { dir, wanted, first } => Self::LogTruncated { dir, wanted, first },
            Storage::LogRetracted { dir, group } => Self::LogRetracted { dir, group },
            Storage::Restore(why) => Self::Restore(why),
            Storage::Foreign { path, why } => Self::Foreign { path, why },
            Storage::Newer { path, found, supported } => Self::Newer { path, found, supported },
            Storage::Locked { path } => Self::Locked { path },
            Storage::Poisoned { cause } => Self::Poisoned { cause: Arc::new((*cause).clone().into()) },
            Storage::Closed => Self::Closed,
            Storage::ReadOnly => Self::ReadOnly,
            Storage::RolledBack => Self::RolledBack,
            Storage::RollbackParked { label, cause } => {
                Self::RollbackParked { label, cause: Arc::new((*cause).clone().into()) }
            }
            Storage::KeyTooLarge { table, len, max } => Self::KeyTooLarge { table, len, max },
            Storage::ValueTooLarge { table, len, max } => Self::ValueTooLarge { table, len, max },
            Storage::TableDropped { table } => Self::TableDropped { table },
            Storage::NoSavepoint => Self::NoSavepoint,
            Storage::KeyExists { table, key } => Self::KeyExists { table, key },
            Storage::LoadOrder { table, row, key } => Self::LoadOrder { table, row, key },
            Storage::Deadlock { cycle } => Self::Deadlock { cycle },
            Storage::LockTimeout { holder, what, waited } => Self::LockTimeout { holder, what, waited },
            Storage::OwnThreadLock { holder, what, waited } => Self::OwnThreadLock { holder, what, waited },
            Storage::RowLocked { what, holder } => Self::RowLocked { what, holder },
            Storage::Conflict { table, key } => Self::Conflict { table, key },
            Storage::SnapshotTooOld { label, age, bytes } => Self::SnapshotTooOld { label, age, bytes },
            Storage::PreparedName { name } => Self::PreparedName { name },
            Storage::TooManyTransactions { max, oldest } => Self::TooManyTransactions { max, oldest },
            Storage::XidsUsedUp { max } => Self::XidsUsedUp { max },
            Storage::TransactionTooLarge { max } => Self::TransactionTooLarge { max },
            Storage::UndoMemory { max, holder } => Self::UndoMemory { max, holder },
            Storage::LogSpace => Self::LogSpace,
            Storage::OutOfFrames { frames } => Self::OutOfFrames { frames },
            Storage::InvalidOption(invalid) => invalid.into(),
        }
    }
}

impl From<InvalidOption> for Error {
    fn from(InvalidOption { name, value, expected }: InvalidOption) -> Self {
        Self::InvalidOption { name, value, expected }
    }
}

impl Error {
    /// Returns the answer to an operation that this error has ended: `Deadline` if it ended a wait past the deadline.
    /// `overdue` returns the time since the transaction was requested, if it is.
    pub(crate) fn by_deadline(self, overdue: impl FnOnce() -> Option<Duration>) -> Self {
        let ends_a_wait = matches!(
            self,
            Self::LockTimeout { .. }
                | Self::UndoMemory { .. }
                | Self::DiskFull { .. }
                | Self::LogSpace
                | Self::TooManyTransactions { .. }
        );
        let Some(elapsed) = ends_a_wait.then(overdue).flatten() else { return self };
        let holder = self.blocker().unwrap_or_default();
        Self::Deadline { holder, runs: 1, elapsed, cause: Arc::new(self) }
    }

    /// Names the tables of this error, and the types of their keys, by the numbers of the tables.
    pub(crate) fn name_tables(&mut self, names: impl Fn(TableId) -> Option<(Arc<str>, Arc<str>)>) {
        let put = |table: &mut TableRef| (table.name, table.key_type) = names(table.id).unzip();
        match self {
            Self::Deadlock { cycle } => {
                let named = |waiter: &Waiter| {
                    let mut waiter = waiter.clone();
                    put(waiter.waits_for.table_mut());
                    waiter
                };
                *cycle = cycle.iter().map(named).collect();
            }
            Self::LockTimeout { what, .. } | Self::OwnThreadLock { what, .. } | Self::RowLocked { what, .. } => {
                put(what.table_mut());
            }
            Self::KeyExists { table, .. }
            | Self::LoadOrder { table, .. }
            | Self::KeyTooLarge { table, .. }
            | Self::ValueTooLarge { table: Some(table), .. }
            | Self::TableDropped { table }
            | Self::IndexesChanged { table }
            | Self::IndexKeyExists { index: table, .. }
            | Self::IndexMismatch { index: table, .. }
            | Self::Undecodable { table, .. }
            | Self::ReaderFailed { table, .. }
            | Self::Conflict { table, .. }
            | Self::Corrupted { table: Some(table), .. } => put(table),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_names_what_a_wait_ended_with_and_only_that() {
        let (over, left) = (|| Some(Duration::from_nanos(50)), || None);
        let refused = Error::LogSpace.by_deadline(over);
        assert!(matches!(refused, Error::Deadline { elapsed, .. } if elapsed.as_nanos() == 50), "{refused}");
        assert!(matches!(Error::LogSpace.by_deadline(left), Error::LogSpace), "its time is not over");
        assert!(matches!(Error::RolledBack.by_deadline(over), Error::RolledBack), "no wait has ended by it");
    }
}

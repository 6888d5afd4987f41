//! The locks of a scan: its mode, and what a step has entered.

use foreshore_lock::{LockWait, NewRange, NewShare, RowLock, Strength};
use foreshore_txn::Isolation;

/// The locking mode of a scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locking {
    pub(super) lock: RowLock,
    /// Whether the keys between the rows are locked too.
    pub(super) ranges: bool,
}

impl Locking {
    pub(super) fn new(lock: RowLock, isolation: Isolation) -> Self {
        Self { lock, ranges: isolation == Isolation::Serializable && lock.on_conflict() != LockWait::SkipLocked }
    }

    /// Returns whether the scan locks rows in order to take them (`skip_locked` for update), so that it ignores deleted
    /// rows.
    pub(super) fn takes(self) -> bool {
        self.lock.strength() == Strength::Update && self.lock.on_conflict() == LockWait::SkipLocked
    }
}

/// A lock that the running step has entered.
#[derive(Debug)]
pub(super) enum Entered {
    Row(NewShare),
    Range(NewRange),
}

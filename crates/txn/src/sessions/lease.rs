//! The lease: the resources that a transaction has from its start to its end.

use super::running::Running;
use crate::undo::Undo;
use crate::visibility::view::KeptView;
use foreshore_base::TableId;
use foreshore_buffer::PagePosition;
use foreshore_lock::Owner;
use foreshore_wal::Session;
use std::any::Any;

/// A session of the log, an owner of locks, memory for undo, and the state of the transaction that has them.
/// Transactions use a lease one after another.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) session: Session,
    /// The state of the transaction that has the lease.
    pub(crate) run: Running,
    pub(crate) owner: Owner,
    pub(crate) undo: Undo,
    pub(crate) view: KeptView,
    pub(crate) last_rows: LastRows,
    /// The buffer in which changes are encoded.
    pub(crate) buffer: Vec<u8>,
    /// Memory that the layer above keeps from one transaction to the next.
    pub(crate) kept: Option<Box<dyn Any + Send>>,
    /// Whether the lease is for system transactions.
    pub(super) is_system: bool,
    /// The shard of the pool to which the lease is returned.
    pub(super) shard: usize,
}

impl Lease {
    /// Returns whether the lease is for system transactions.
    pub(crate) const fn is_system(&self) -> bool {
        self.is_system
    }
}

/// The position of a row in its leaf.
#[derive(Clone, Copy, Debug)]
pub struct RowPosition {
    /// The leaf.
    pub page: PagePosition,
    /// The entry of the leaf.
    pub at: usize,
}

/// The last row that a session wrote or locked in each of a few tables.
#[derive(Debug, Default)]
pub(crate) struct LastRows([LastRow; 4]);

impl LastRows {
    /// Returns the last row of `table`, or of another table with the same place.
    #[inline]
    pub(crate) const fn of(&self, table: TableId) -> &LastRow {
        &self.0[table.0 as usize % self.0.len()]
    }

    #[inline]
    pub(crate) const fn of_mut(&mut self, table: TableId) -> &mut LastRow {
        &mut self.0[table.0 as usize % self.0.len()]
    }
}

/// The position of a row that a session wrote or locked. It is never stale: a leaf that has changed no longer has that
/// page position.
#[derive(Debug, Default)]
pub(crate) struct LastRow {
    place: Option<(TableId, RowPosition)>,
    /// Whether two entries of this leaf were noted since it was first noted.
    is_in_run: bool,
    /// Whether the next write is probably in that leaf, so that a look at it is worth its cost.
    is_expected: bool,
}

impl LastRow {
    /// Records the position of a row that was written, or locked for a write that follows.
    #[inline]
    pub(crate) fn note(&mut self, table: TableId, row: RowPosition, is_locked: bool) {
        let before = self.place.filter(|&(of, before)| of == table && before.page.shares_frame(row.page));
        let is_same_row = before.is_some_and(|(_, before)| before.at == row.at);
        self.is_in_run = before.is_some() && (self.is_in_run || !is_same_row);
        self.is_expected = self.is_in_run || is_locked;
        self.place = Some((table, row));
    }

    /// Forgets the row: the next write descends.
    #[cold]
    pub(crate) const fn forget(&mut self) {
        self.place = None;
    }

    /// Returns the position of that row, if the next write of `table` is probably in its leaf.
    #[inline]
    pub(crate) fn find(&self, table: TableId) -> Option<RowPosition> {
        self.place.filter(|&(of, _)| self.is_expected && of == table).map(|(_, row)| row)
    }
}

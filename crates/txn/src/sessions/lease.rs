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
    pub(crate) last_row: LastRow,
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

/// The position of the last row that a session noted. It is never stale: a leaf that has changed no longer has that
/// page position.
#[derive(Debug, Default)]
pub(crate) struct LastRow {
    place: Option<(TableId, RowPosition)>,
    key: Vec<u8>,
}

impl LastRow {
    /// Records the position of the row of `key`.
    #[inline]
    pub(crate) fn note(&mut self, table: TableId, key: &[u8], position: RowPosition) {
        self.place = Some((table, position));
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// Returns the position of the row of `key`, if that row was recorded last.
    #[inline]
    pub(crate) fn find(&self, table: TableId, key: &[u8]) -> Option<RowPosition> {
        self.place.filter(|&(of, _)| of == table && self.key == key).map(|(_, position)| position)
    }
}

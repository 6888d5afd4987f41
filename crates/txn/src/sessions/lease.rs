//! What a transaction leases for its time.

use super::running::Running;
use crate::undo::Undo;
use crate::visibility::view::KeptView;
use foreshore_base::TableId;
use foreshore_buffer::PagePosition;
use foreshore_lock::Owner;
use foreshore_wal::Session;
use std::any::Any;

/// A session of the log, an owner of locks, memory for undo, and the state of the transaction that has them. One
/// transaction after another uses it.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) session: Session,
    /// The transaction that has it.
    pub(crate) run: Running,
    pub(crate) owner: Owner,
    pub(crate) undo: Undo,
    pub(crate) view: KeptView,
    pub(crate) last_row: LastRow,
    /// Where a change is encoded.
    pub(crate) buffer: Vec<u8>,
    /// What the layer above keeps from one transaction to the next.
    pub(crate) kept: Option<Box<dyn Any + Send>>,
    /// Whether it is for system transactions.
    pub(super) is_system: bool,
    /// The shard of the pool that it goes back to.
    pub(super) shard: usize,
}

impl Lease {
    /// Returns whether it is for system transactions.
    pub(crate) const fn is_system(&self) -> bool {
        self.is_system
    }
}

/// Where a row is in its leaf.
#[derive(Clone, Copy, Debug)]
pub struct RowPosition {
    /// The leaf.
    pub page: PagePosition,
    /// The entry of the leaf.
    pub at: usize,
}

/// The last row of a session. It is never out of date: a leaf that has changed is not at its position any more.
#[derive(Debug, Default)]
pub(crate) struct LastRow {
    place: Option<(TableId, RowPosition)>,
    key: Vec<u8>,
}

impl LastRow {
    /// Notes where the row of `key` is.
    #[inline]
    pub(crate) fn note(&mut self, table: TableId, key: &[u8], position: RowPosition) {
        self.place = Some((table, position));
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// Returns where the row of `key` was, if it is the last one noted.
    #[inline]
    pub(crate) fn find(&self, table: TableId, key: &[u8]) -> Option<RowPosition> {
        self.place.filter(|&(of, _)| of == table && self.key == key).map(|(_, position)| position)
    }
}

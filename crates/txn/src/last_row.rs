//! The row that a session locked last, and where it was: the write that mostly follows needs no search.

use crate::txn::Txn;
use foreshore_base::TableId;
use foreshore_buffer::PagePosition;

/// Where a row is in its leaf.
#[derive(Clone, Copy, Debug)]
pub struct RowPosition {
    /// The leaf.
    pub page: PagePosition,
    /// The entry of the leaf.
    pub at: usize,
}

/// It is never out of date: a leaf that has changed is not at its position any more.
#[derive(Debug, Default)]
pub(crate) struct LastRow {
    place: Option<(TableId, RowPosition)>,
    key: Vec<u8>,
}

impl Txn {
    /// Notes where the row of `key` is.
    #[inline]
    pub fn note_row(&mut self, table: TableId, key: &[u8], position: RowPosition) {
        let last = &mut self.lease_mut().last_row;
        last.place = Some((table, position));
        last.key.clear();
        last.key.extend_from_slice(key);
    }

    /// Where the row of `key` was, if it is the last one noted.
    #[inline]
    #[must_use]
    pub fn last_row(&self, table: TableId, key: &[u8]) -> Option<RowPosition> {
        let last = &self.lease().last_row;
        last.place.filter(|&(of, _)| of == table && last.key == key).map(|(_, position)| position)
    }
}

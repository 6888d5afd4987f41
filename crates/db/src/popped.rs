//! The last rows that a transaction took from the ends of a table.

use foreshore_base::{Lsn, TableId};
use foreshore_txn::Txn;
use std::ops::Bound;

/// The last rows that a serializable transaction took from the ends of a table: there is none outside of them.
#[derive(Debug, Default)]
pub(crate) struct Popped {
    /// The table, and the transaction's last change. `None` if nothing is known.
    of: Option<(TableId, Lsn)>,
    /// The key that was the smallest one.
    first: Option<Vec<u8>>,
    /// The key that was the largest one.
    last: Option<Vec<u8>>,
}

impl Popped {
    /// Returns the bounds of the keys that may have rows. Forgets what is not known any more.
    pub(crate) fn left(&mut self, txn: &Txn, table: TableId) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        if self.of != Some((table, txn.last_lsn())) {
            *self = Self::default();
        }
        let bound = |key: &Option<Vec<u8>>| key.clone().map_or(Bound::Unbounded, Bound::Excluded);
        (bound(&self.first), bound(&self.last))
    }

    /// Notes that the transaction has taken the first or the last row between the bounds that [`left`](Self::left) has
    /// returned.
    pub(crate) fn note(&mut self, txn: &Txn, table: TableId, is_first: bool, key: &[u8]) {
        let end = if is_first { &mut self.first } else { &mut self.last };
        let noted = end.get_or_insert_default();
        noted.clear();
        noted.extend_from_slice(key);
        self.of = Some((table, txn.last_lsn()));
    }
}

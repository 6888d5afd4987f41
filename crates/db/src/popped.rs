//! The last rows that a transaction took from the ends of a table.

use foreshore_base::{Lsn, TableId};
use foreshore_txn::{Isolation, RowPosition, Txn};
use std::ops::Bound;

/// The last rows that a transaction took from the ends of a table.
#[derive(Debug, Default)]
pub(crate) struct Popped {
    /// The table, and the transaction's last change. `None` if nothing is known.
    of: Option<(TableId, Lsn)>,
    first: LastPopped,
    last: LastPopped,
}

/// The last row that was taken from one end.
#[derive(Debug, Default)]
struct LastPopped {
    /// Its key, if the transaction has no rows outside of it.
    key: Option<Vec<u8>>,
    /// Where it was, if it was removed at once. There is no row on its outer side in its leaf, in which the table, or
    /// the part of it up to the key, ends.
    at: Option<RowPosition>,
}

impl Popped {
    /// Returns the bounds of the keys that may have rows. Forgets what is not known any more.
    pub(crate) fn left(&mut self, txn: &Txn, table: TableId) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        if self.of != Some((table, txn.last_lsn())) {
            *self = Self::default();
        }
        let bound = |of: &LastPopped| of.key.clone().map_or(Bound::Unbounded, Bound::Excluded);
        (bound(&self.first), bound(&self.last))
    }

    /// Forgets all rows.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.of.is_some() {
            *self = Self::default();
        }
    }

    /// Returns where the row was that the transaction took last from an end, if that is known.
    pub(crate) fn at(&mut self, is_first: bool) -> Option<RowPosition> {
        self.end(is_first).at
    }

    /// Notes that the transaction has taken the first or the last row between the bounds that [`left`](Self::left) has
    /// returned, and where it was.
    pub(crate) fn note(&mut self, txn: &Txn, table: TableId, is_first: bool, (key, at): (&[u8], Option<RowPosition>)) {
        self.of = Some((table, txn.last_lsn()));
        let end = self.end(is_first);
        end.at = at;
        // At read committed each operation has to find what others have inserted there since.
        if txn.isolation() != Isolation::ReadCommitted {
            let noted = end.key.get_or_insert_default();
            noted.clear();
            noted.extend_from_slice(key);
        }
    }

    fn end(&mut self, is_first: bool) -> &mut LastPopped {
        if is_first { &mut self.first } else { &mut self.last }
    }
}

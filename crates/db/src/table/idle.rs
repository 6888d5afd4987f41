//! The memory of iterations. Successive iterations of a session use the same cursor.

use crate::Transaction;
use foreshore_btree::{Cursor, Tree};
use std::ops::{Deref, DerefMut};

/// A cursor that an iteration uses. Its drop returns it to the buffers of the transaction, without a snapshot and
/// without rows.
pub(super) struct CursorGuard<'tx> {
    tx: &'tx Transaction,
    /// Taken by the drop.
    cursor: Option<Box<Cursor>>,
}

impl<'tx> CursorGuard<'tx> {
    /// Takes the idle cursor of a transaction, or makes a new one.
    pub(super) fn new(tx: &'tx Transaction, tree: &Tree) -> Self {
        let idle = tx.if_live(|live| live.scratch.cursor.take()).flatten();
        Self { tx, cursor: Some(idle.unwrap_or_else(|| Box::new(Cursor::new(tree)))) }
    }
}

impl Deref for CursorGuard<'_> {
    type Target = Cursor;

    #[inline]
    fn deref(&self) -> &Cursor {
        self.cursor.as_ref().expect("it is there until the drop")
    }
}

impl DerefMut for CursorGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Cursor {
        self.cursor.as_mut().expect("it is there until the drop")
    }
}

impl Drop for CursorGuard<'_> {
    fn drop(&mut self) {
        if let Some(mut cursor) = self.cursor.take() {
            cursor.rest();
            // Another iteration may have returned its cursor before. If the transaction has ended, both are dropped.
            let _other = self.tx.if_live(|live| live.scratch.cursor.replace(cursor));
        }
    }
}

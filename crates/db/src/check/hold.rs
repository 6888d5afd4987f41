//! The lock that keeps a table from being dropped while a check walks it.

use crate::TxnOptions;
use crate::engine::Engine;
use foreshore_base::{Error, Result};
use foreshore_btree::Tree;
use foreshore_lock::TableMode;
use foreshore_sync::pause;
use foreshore_txn::Txn;

/// Pages that are read before a transaction that waits for the table gets it, and pages that are compared before the
/// purge may merge nodes again.
pub(super) const PIECE: u32 = 64;

/// A shared intent in a table.
pub(super) struct Hold<'e> {
    engine: &'e Engine,
    tree: &'e Tree,
    txn: Option<Txn>,
    pages: u32,
}

impl<'e> Hold<'e> {
    /// Takes the intent, unless the table was dropped.
    pub(super) fn take(engine: &'e Engine, tree: &'e Tree) -> Result<Self> {
        let mut hold = Self { engine, tree, txn: None, pages: 0 };
        hold.renew()?;
        Ok(hold)
    }

    /// Lets a waiting transaction have the table first.
    fn renew(&mut self) -> Result<()> {
        self.release();
        let txn = self.txn.insert(self.engine.admission.begin(TxnOptions::check())?);
        pause::point("check: has a transaction");
        txn.lock_table(self.tree.table(), TableMode::IntentShared)?;
        if self.tree.is_retired() { Err(dropped(self.tree)) } else { Ok(()) }
    }

    /// Renews the intent after each piece. Called for each page.
    pub(super) fn next_page(&mut self) -> Result<()> {
        self.pages += 1;
        if self.pages.is_multiple_of(PIECE) { self.renew() } else { self.engine.admission.check_open() }
    }

    fn release(&mut self) {
        if let Some(txn) = self.txn.take() {
            // It has changed nothing. Its drop releases the lock.
            drop(txn);
            self.engine.admission.transaction_ended();
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

/// Returns the error of a walk whose table was dropped.
pub(super) fn dropped(tree: &Tree) -> Error {
    Error::TableDropped { table: tree.table().into() }
}

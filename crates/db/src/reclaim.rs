//! The pages of dropped tables become free.
//!
//! A dropped table stands in the catalogue, under a key of its own, until its last page is free. The pages are freed a few
//! at a time, by a background thread or by [`crate::Db::vacuum`], after the commit that dropped the table; a restart finds
//! the row and goes on.

use crate::TxnOptions;
use crate::engine::Engine;
use crate::format::dropped_key;
use foreshore_base::{Csn, Error, Result, TableId};
use foreshore_btree::Tree;
use foreshore_lock::TableMode;
use foreshore_sync::{LockRank, Mutex, Signal};
use foreshore_txn::Txn;
use std::time::Duration;

/// Pages that are freed at a time. Each may be read from the disk before.
const PIECE: usize = 32;
/// Of the transactions that free them.
const LABEL: &str = "reclaim";
/// How long the background thread waits for a check that goes on in the table. It has other work.
const PATIENCE: Duration = Duration::from_millis(5);

/// A table that was dropped.
#[derive(Clone, Debug)]
struct Dropped {
    tree: Tree,
    /// The commit that dropped it.
    by: Csn,
}

/// What is left to free.
pub(crate) struct Reclaimer {
    tables: Mutex<Vec<Dropped>>,
    /// Rings when there is something.
    signal: Signal,
}

impl Reclaimer {
    /// With the bell of the thread that does the work.
    pub(crate) fn new(signal: Signal) -> Self {
        Self { tables: Mutex::new(LockRank::Leaf, Vec::new()), signal }
    }

    /// Takes on tables that commit `by` dropped.
    pub(crate) fn add(&self, trees: impl IntoIterator<Item = Tree>, by: Csn) {
        self.tables.lock().extend(trees.into_iter().map(|tree| Dropped { tree, by }));
        self.signal.notify();
    }

    fn first(&self) -> Option<Dropped> {
        self.tables.lock().first().cloned()
    }

    /// Whether pages of a dropped table are left. Stays so for who holds the table's lock.
    pub(crate) fn has(&self, table: TableId) -> bool {
        self.tables.lock().iter().any(|dropped| dropped.tree.table() == table)
    }

    /// Lets the other tables go first. Whatever keeps this one may last.
    fn postpone(&self, table: TableId) {
        let mut tables = self.tables.lock();
        if tables.first().is_some_and(|dropped| dropped.tree.table() == table) {
            tables.rotate_left(1);
        }
    }

    fn remove(&self, table: TableId) {
        self.tables.lock().retain(|dropped| dropped.tree.table() != table);
    }
}

impl Engine {
    /// Frees some pages of a dropped table, and returns whether there is one left. For background work.
    pub(crate) fn reclaim_some(&self) -> Result<bool> {
        let Some(dropped) = self.reclaimer.first() else { return Ok(false) };
        let txn = self.begin_own(TxnOptions::new().label(LABEL).lock_timeout(PATIENCE))?;
        self.reclaim_piece(txn, &dropped)?;
        Ok(self.reclaimer.first().is_some())
    }

    /// Frees all pages of all dropped tables. Those that are damaged keep no other from it.
    pub(crate) fn reclaim_all(&self) -> Result<()> {
        let (mut damaged, mut found) = (Vec::new(), Ok(()));
        while let Some(dropped) = self.reclaimer.first() {
            let table = dropped.tree.table();
            // It went behind the others then.
            if damaged.contains(&table) {
                break;
            }
            let txn = self.begin(TxnOptions::new().label(LABEL))?;
            let freed = self.reclaim_piece(txn, &dropped);
            self.transaction_ended();
            if let Err(Error::Corrupted { .. }) = freed {
                damaged.push(table);
                found = found.and(freed);
            } else {
                freed?;
            }
        }
        found
    }

    fn reclaim_piece(&self, mut txn: Txn, dropped: &Dropped) -> Result<()> {
        let freed = txn.freeing(|txn| self.free_piece(txn, dropped));
        let freed = freed.inspect_err(|_| self.reclaimer.postpone(dropped.tree.table()));
        // Nothing of it is the transaction's to take back; what it holds are the locks.
        let ended = txn.rollback();
        freed.and(ended.map(drop))
    }

    fn free_piece(&self, txn: &mut Txn, Dropped { tree, by }: &Dropped) -> Result<()> {
        let table = tree.table();
        // In the order in which a check takes them.
        txn.lock_table(self.catalogue.table(), TableMode::IntentExclusive)?;
        txn.lock_table(table, TableMode::Exclusive)?;
        // Another thread may have been faster.
        if self.reclaimer.has(table) && tree.free_some(txn, *by, PIECE)? {
            self.catalogue.end_table(txn, &dropped_key(table), tree, *by)?;
            self.reclaimer.remove(table);
        }
        Ok(())
    }
}

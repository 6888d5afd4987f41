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
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, Signal, SystemClock};
use foreshore_txn::Txn;
use std::time::Duration;

/// Pages that are freed at a time. Each may be read from the disk before.
const PIECE: usize = 32;
/// Of the transactions that free them.
const LABEL: &str = "reclaim";
/// How long the background thread waits for a check that goes on in the table. It has other work.
const PATIENCE: Duration = Duration::from_millis(5);

/// Pause after the first try that meets a damaged page. It doubles with each that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause. A damaged page mostly stays damaged, and each try reads pages on the way to it.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// When a table is tried again whose pages cannot be freed because one is damaged.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    pause: Duration,
    due: Nanos,
}

impl Backoff {
    /// After one more try, at `now`, that met damage.
    fn next(self, now: Nanos) -> Self {
        let pause = (2 * self.pause).clamp(FIRST_PAUSE, MAX_PAUSE);
        Self { pause, due: now + pause }
    }

    fn left(self, now: Nanos) -> Duration {
        self.due.since(now)
    }
}

/// A table that was dropped.
#[derive(Clone, Debug)]
struct Dropped {
    tree: Tree,
    /// The commit that dropped it.
    by: Csn,
    backoff: Backoff,
}

/// What is left to free.
pub(crate) struct Reclaimer {
    tables: Mutex<Vec<Dropped>>,
    clock: SystemClock,
    /// Notified when there is something.
    signal: Signal,
}

impl Reclaimer {
    /// With the signal of the thread that does the work.
    pub(crate) fn new(signal: Signal) -> Self {
        Self { tables: Mutex::new(LockRank::Leaf, Vec::new()), clock: SystemClock::new(), signal }
    }

    /// Takes on tables that commit `by` dropped.
    pub(crate) fn add(&self, trees: impl IntoIterator<Item = Tree>, by: Csn) {
        let dropped = trees.into_iter().map(|tree| Dropped { tree, by, backoff: Backoff::default() });
        self.tables.lock().extend(dropped);
        self.signal.notify();
    }

    /// A table whose turn it is, if there is one, and after how long the next one has its turn; `None` if no table is left.
    fn due(&self) -> Option<(Option<Dropped>, Duration)> {
        let now = self.clock.now();
        let tables = self.tables.lock();
        let pause = tables.iter().map(|dropped| dropped.backoff.left(now)).min()?;
        Some((tables.iter().find(|dropped| dropped.backoff.left(now).is_zero()).cloned(), pause))
    }

    /// The first table that is not among `others`.
    fn first_but(&self, others: &[TableId]) -> Option<Dropped> {
        self.tables.lock().iter().find(|dropped| !others.contains(&dropped.tree.table())).cloned()
    }

    /// Whether pages of a dropped table are left. Does not change while the caller holds the table's lock.
    pub(crate) fn has(&self, table: TableId) -> bool {
        self.tables.lock().iter().any(|dropped| dropped.tree.table() == table)
    }

    /// Lets the other tables go first, because of `cause`. One with a damaged page is not tried for a while.
    fn postpone(&self, table: TableId, cause: &Error) {
        let now = self.clock.now();
        let mut tables = self.tables.lock();
        let Some(at) = tables.iter().position(|dropped| dropped.tree.table() == table) else { return };
        let mut dropped = tables.remove(at);
        if let Error::Corrupted { .. } = cause {
            dropped.backoff = dropped.backoff.next(now);
        }
        tables.push(dropped);
    }

    fn remove(&self, table: TableId) {
        self.tables.lock().retain(|dropped| dropped.tree.table() != table);
    }
}

impl Engine {
    /// Frees some pages of a dropped table, and returns after how long to go on; `None` if no table is left. For background work.
    pub(crate) fn reclaim_some(&self) -> Result<Option<Duration>> {
        let Some((due, pause)) = self.reclaimer.due() else { return Ok(None) };
        let Some(dropped) = due else { return Ok(Some(pause)) };
        let txn = self.begin_own(TxnOptions::new().label(LABEL).lock_timeout(PATIENCE))?;
        match self.reclaim_piece(txn, &dropped) {
            // The others go on, and the table has its turn later.
            Ok(()) | Err(Error::Corrupted { .. }) => Ok(self.reclaimer.due().map(|(_, pause)| pause)),
            Err(error) => Err(error),
        }
    }

    /// Frees all pages of all dropped tables. Those that are damaged keep no other from it.
    pub(crate) fn reclaim_all(&self) -> Result<()> {
        let (mut damaged, mut found) = (Vec::new(), Ok(()));
        while let Some(dropped) = self.reclaimer.first_but(&damaged) {
            let txn = self.begin(TxnOptions::new().label(LABEL))?;
            let freed = self.reclaim_piece(txn, &dropped);
            self.transaction_ended();
            if let Err(Error::Corrupted { .. }) = freed {
                damaged.push(dropped.tree.table());
                found = found.and(freed);
            } else {
                freed?;
            }
        }
        found
    }

    fn reclaim_piece(&self, mut txn: Txn, dropped: &Dropped) -> Result<()> {
        let freed = txn.freeing(|txn| self.free_piece(txn, dropped));
        let freed = freed.inspect_err(|cause| self.reclaimer.postpone(dropped.tree.table(), cause));
        // Nothing of it is the transaction's to roll back; what it holds are the locks.
        let ended = txn.rollback();
        freed.and(ended.map(drop))
    }

    fn free_piece(&self, txn: &mut Txn, Dropped { tree, by, .. }: &Dropped) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_a_damaged_page_is_tried_less_and_less_often() {
        let (mut backoff, mut now, mut tries) = (Backoff::default(), Nanos::ZERO, 0);
        assert!(backoff.left(now).is_zero(), "the first try does not wait");
        while now < Nanos::from(Duration::from_secs(3600)) {
            let last = backoff;
            backoff = last.next(now);
            tries += 1;
            let expected = if tries == 1 { FIRST_PAUSE } else { (2 * last.pause).min(MAX_PAUSE) };
            assert_eq!((backoff.left(now), backoff.pause), (expected, expected));
            now = backoff.due;
            assert!(backoff.left(now).is_zero());
        }
        assert!(tries < 80, "{tries} tries in an hour");
    }
}

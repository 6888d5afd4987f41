//! Freeing of the pages of dropped tables.
//!
//! A dropped table stays in the catalogue, under a key of its own, until its last page is free. Its pages are **held**
//! until the commit that dropped it is durable and no snapshot from before that commit is in use. Readers by such a
//! snapshot still read the table, and have no lock on it (see [`foreshore_btree::Tree::gone_at`]).
//!
//! Then the pages are freed a few at a time, by a background thread or by [`crate::Db::vacuum`]. A restart finds the
//! row in the catalogue and continues; no snapshot outlives a restart.

use crate::TxnOptions;
use crate::admission::Admission;
use crate::catalogue::Catalogue;
use crate::chains::ChainReclaimer;
use crate::format::dropped_key;
use crate::maintenance::{both, retried};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Csn, Error, Result, TableId};
use foreshore_btree::Tree;
use foreshore_lock::TableMode;
use foreshore_sync::model::mutant;
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, Signal, SystemClock, pause};
use foreshore_txn::Txn;
use foreshore_wal::Log;
use std::time::Duration;

/// Pages that are freed in one step. Each may have to be read from disk first.
const PIECE: usize = 32;
/// Label of the transactions that free pages.
const LABEL: &str = "reclaim";
/// How long the background thread waits for a check of the table. It has other work.
const PATIENCE: Duration = Duration::from_millis(5);

/// Pause after the first try, and the longest pause. It doubles from try to try.
type Pauses = [Duration; 2];
/// Pauses for a table with a damaged page. Such a page usually stays damaged, and each try reads pages of the table.
const DAMAGED: Pauses = [Duration::from_millis(50), Duration::from_secs(60)];
/// Pauses for a held table. The first is a few flushes of the log; the longest leaves an idle machine alone.
const HELD: Pauses = [Duration::from_millis(5), Duration::from_millis(500)];

/// Retry policy of a table whose pages could not be freed.
#[derive(Clone, Copy, Debug, Default)]
struct Backoff {
    pause: Duration,
    due: Nanos,
}

impl Backoff {
    /// Returns the state after another failed try at `now`.
    fn next(self, now: Nanos, [first, longest]: Pauses) -> Self {
        let pause = (2 * self.pause).clamp(first, longest);
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
    /// Whether its pages are counted for the snapshots that hold it.
    is_counted: bool,
    backoff: Backoff,
}

/// Tables that were dropped and have pages left.
#[derive(Default)]
struct DroppedTables {
    /// Tables that a snapshot may need.
    held: Vec<Dropped>,
    /// When the held tables are checked again.
    look: Backoff,
    /// Tables that no snapshot needs.
    free: Vec<Dropped>,
}

/// Dropped tables and large values that are still to be freed.
pub(crate) struct Reclaimer {
    tables: Mutex<DroppedTables>,
    log: Log,
    clock: SystemClock,
    /// Notified when a table is added.
    signal: Signal,
    /// Whether threads do the work. Without them nothing depends on time, except after damage.
    has_threads: bool,
    /// Large values that no row refers to.
    chains: ChainReclaimer,
}

impl Reclaimer {
    /// Makes an empty list with the signal of the thread that does the work.
    pub(crate) fn new(log: Log, signal: Signal, has_threads: bool) -> Self {
        let tables = Mutex::new(LockRank::Leaf, DroppedTables::default());
        let chains = ChainReclaimer::new(log.clone(), has_threads);
        Self { tables, log, clock: SystemClock::new(), signal, has_threads, chains }
    }

    /// Returns the part that frees large values.
    pub(crate) const fn chains(&self) -> &ChainReclaimer {
        &self.chains
    }

    /// Retires tables that commit `by` has dropped, and adds them.
    pub(crate) fn add_dropped(&self, trees: Vec<Tree>, by: Csn) {
        if !trees.is_empty() {
            trees.iter().for_each(|tree| tree.dropped_by(by));
            self.add(trees, by);
        }
    }

    /// Adds tables that commit `by` dropped.
    pub(crate) fn add(&self, trees: impl IntoIterator<Item = Tree>, by: Csn) {
        let dropped =
            trees.into_iter().map(|tree| Dropped { tree, by, is_counted: false, backoff: Backoff::default() });
        {
            let mut tables = self.tables.lock();
            tables.held.extend(dropped);
            tables.look = Backoff::default();
        }
        self.signal.notify();
    }

    /// Returns the newest commit that dropped a held table, if it is time to check whether the table is still needed.
    fn newest_held(&self, is_due: impl Fn(Duration) -> bool) -> Option<Csn> {
        let tables = self.tables.lock();
        let newest = tables.held.iter().map(|dropped| dropped.by).max()?;
        is_due(tables.look.left(self.clock.now())).then_some(newest)
    }

    /// Releases tables dropped by commits up to `passed`: no snapshot needs them any more.
    fn release(&self, passed: Csn) {
        let now = self.clock.now();
        let mut tables = self.tables.lock();
        let DroppedTables { held, look, free } = &mut *tables;
        let is_early = mutant("sabotage: a dropped table goes before its readers");
        free.extend(held.extract_if(.., |dropped| dropped.by <= passed || is_early));
        if self.has_threads {
            *look = look.next(now, HELD);
        }
    }

    /// Returns the held tables that commits up to `durable` dropped and whose pages have not been counted.
    fn uncounted(&self, durable: Csn) -> Vec<(Tree, Csn)> {
        let tables = self.tables.lock();
        let uncounted = tables.held.iter().filter(|dropped| !dropped.is_counted && dropped.by <= durable);
        uncounted.map(|dropped| (dropped.tree.clone(), dropped.by)).collect()
    }

    /// Notes that the pages of a table have been counted, if it is still held.
    fn counted(&self, table: TableId) {
        let mut tables = self.tables.lock();
        tables.held.iter_mut().filter(|dropped| dropped.tree.table() == table).for_each(|held| held.is_counted = true);
    }

    /// Returns whether a table is held that a commit above `csn` dropped.
    pub(crate) fn holds_for(&self, csn: Csn) -> bool {
        self.tables.lock().held.iter().any(|dropped| dropped.by > csn)
    }

    /// Returns a table that is due, if there is one, and the time until the next is due; `None` if no table is left.
    fn due(&self) -> Option<(Option<Dropped>, Duration)> {
        let now = self.clock.now();
        let tables = self.tables.lock();
        let look = (!tables.held.is_empty()).then(|| tables.look.left(now));
        let pause = tables.free.iter().map(|dropped| dropped.backoff.left(now)).chain(look).min()?;
        Some((tables.free.iter().find(|dropped| dropped.backoff.left(now).is_zero()).cloned(), pause))
    }

    /// Returns the first table that no snapshot needs and that is not among `others`.
    fn first_but(&self, others: &[TableId]) -> Option<Dropped> {
        self.tables.lock().free.iter().find(|dropped| !others.contains(&dropped.tree.table())).cloned()
    }

    /// Returns whether pages of a dropped table are left. Does not change while the caller holds the table's lock.
    pub(crate) fn has(&self, table: TableId) -> bool {
        let tables = self.tables.lock();
        tables.held.iter().chain(&tables.free).any(|dropped| dropped.tree.table() == table)
    }

    /// Returns how many tables a snapshot may need.
    pub(crate) fn held(&self) -> u64 {
        self.tables.lock().held.len() as u64
    }

    /// Puts a table behind the others, because of `cause`. One with a damaged page is not tried for a while.
    fn postpone(&self, table: TableId, cause: &Error) {
        let now = self.clock.now();
        let free = &mut self.tables.lock().free;
        let Some(at) = free.iter().position(|dropped| dropped.tree.table() == table) else { return };
        let mut dropped = free.remove(at);
        if let Error::Corrupted { .. } = cause {
            dropped.backoff = dropped.backoff.next(now, DAMAGED);
        }
        free.push(dropped);
    }

    fn remove(&self, table: TableId) {
        self.tables.lock().free.retain(|dropped| dropped.tree.table() != table);
    }

    /// Frees some pages of a dropped table, for background work. Returns the time until the next piece; `None` if no
    /// table is left.
    pub(crate) fn reclaim_some(&self, admission: &Admission, catalogue: &Catalogue) -> Result<Option<Duration>> {
        if self.newest_held(|left| left.is_zero()).is_some() {
            self.release_held(admission);
        }
        let Some((due, pause)) = self.due() else { return Ok(None) };
        let Some(dropped) = due else { return Ok(Some(pause)) };
        let txn = admission.begin_own(TxnOptions::new().label(LABEL).lock_timeout(PATIENCE))?;
        match self.reclaim_piece(catalogue, txn, &dropped) {
            // The other tables come first, and this one is tried later.
            Ok(()) | Err(Error::Corrupted { .. }) => Ok(self.due().map(|(_, pause)| pause)),
            Err(error) => Err(error),
        }
    }

    /// Frees all pages of the dropped tables that no snapshot needs. A damaged table does not keep others from being
    /// freed, nor does one for which other transactions are in the way. Errors are combined by [`both`].
    pub(crate) fn reclaim_all(&self, admission: &Admission, catalogue: &Catalogue) -> crate::Result<()> {
        if let Some(newest) = self.newest_held(|_| true) {
            // WAIT: help - or park behind the leader: before the drop is durable every snapshot is from before it.
            self.log.force(newest.lsn())?;
            self.release_held(admission);
        }
        let (mut skipped, mut outcome) = (Vec::new(), Ok(()));
        while let Some(dropped) = self.first_but(&skipped) {
            let freed = retried(|| {
                let txn = admission.begin(TxnOptions::new().label(LABEL))?;
                let freed = self.reclaim_piece(catalogue, txn, &dropped);
                admission.transaction_ended();
                freed
            });
            let Err(error) = freed else { continue };
            let is_for_all = is_for_all(&error, catalogue);
            outcome = both(outcome, Err(error));
            if is_for_all {
                break;
            }
            skipped.push(dropped.tree.table());
        }
        outcome
    }

    /// Releases the held tables that no snapshot needs. The pages of the others count for the snapshots that hold them.
    /// A snapshot above its limit of bytes is then cancelled.
    fn release_held(&self, admission: &Admission) {
        let mut passed = admission.txns().visibility().passed();
        self.release(passed);
        let uncounted = self.uncounted(self.log.durable().csn());
        uncounted.into_iter().for_each(|(tree, by)| self.count_held(admission, &tree, by));
        // Asked again in any case: another thread may have counted a table, and so cancelled a snapshot.
        let later = admission.txns().visibility().passed();
        if later > passed {
            passed = later;
            self.release(passed);
        }
        admission.txns().visibility().let_pages_go(passed);
    }

    /// Counts the pages of a held table that commit `by` dropped. Another thread may count the same table. A failed
    /// count, as when the engine closes, is repeated later.
    fn count_held(&self, admission: &Admission, tree: &Tree, by: Csn) {
        pause::point("db: the pages of a dropped table are to be counted");
        let pages = match tree.count_pages(|| admission.check_open()) {
            Ok(pages) => pages,
            // A damaged table counts no page.
            Err(Error::Corrupted { .. }) => 0,
            Err(_) => return,
        };
        admission.txns().visibility().keep_pages(tree.table(), by, pages * PAGE_SIZE as u64);
        self.counted(tree.table());
    }

    fn reclaim_piece(&self, catalogue: &Catalogue, mut txn: Txn, dropped: &Dropped) -> Result<()> {
        let freed = txn.freeing(|txn| self.free_piece(catalogue, txn, dropped));
        let freed = freed.inspect_err(|cause| self.postpone(dropped.tree.table(), cause));
        // The rollback undoes nothing: it only releases the locks.
        let ended = txn.rollback();
        ended.map(drop).and(freed)
    }

    fn free_piece(&self, catalogue: &Catalogue, txn: &mut Txn, dropped: &Dropped) -> Result<()> {
        let Dropped { tree, by, .. } = dropped;
        let table = tree.table();
        // In the order in which a check takes them.
        txn.lock_table(catalogue.table(), TableMode::IntentExclusive)?;
        txn.lock_table(table, TableMode::Exclusive)?;
        // Another thread may have been faster.
        if self.has(table) && tree.free_some(txn, *by, PIECE)? {
            catalogue.tree().end_table(txn, &dropped_key(table), tree, *by)?;
            pause::point("db: the pages of a dropped table are free");
            self.remove(table);
        }
        Ok(())
    }
}

/// Returns whether the other tables would meet the same error, maybe after as long a wait.
fn is_for_all(error: &crate::Error, catalogue: &Catalogue) -> bool {
    match error {
        crate::Error::Corrupted { .. } => false,
        crate::Error::LockTimeout { what, .. } => what.table().id == catalogue.table(),
        crate::Error::TooManyTransactions { .. } => true,
        error => !error.is_retryable(),
    }
}

#[cfg(test)]
mod tests;

//! The purge: removes deleted rows from their leaves in the background.
//!
//! An operation that deletes rows, or meets deleted rows or an empty leaf, queues the leaf (see
//! [`foreshore_btree::Trees::take_queued`]). A step takes a bounded number of leaves, purges them, and merges thin ones
//! with a neighbour. A leaf whose deleted rows must stay is held and visited again (see [`held`]).
//!
//! **Beside a check** rows are purged as usual. Leaves are merged in all tables except the one that the check walks
//! (see [`walks`]). Empty leaves of that table wait for the end of the walk.
//!
//! **Pace.** The steps of a sweep, which may read a whole table, take half of a thread's time. A step that finds
//! nothing to do is followed by a pause. The pauses double up to [`PAUSES`].
//!
//! **Failures** do not stop the log. If a leaf is damaged the purge skips it for good; any other error moves it behind
//! all other leaves.

mod held;
mod walks;

pub use held::HeldRows;

use crate::TxnOptions;
use crate::admission::Admission;
use crate::catalogue::Catalogue;
use crate::format::SEQUENCES;
use foreshore_base::{Error, Result, TableId};
use foreshore_btree::format::CHAINS;
use foreshore_btree::{Merged, PurgedLeaf, QueuedLeaf, Tree};
use foreshore_lock::TableMode;
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, NextWake, Signal, SystemClock, pause};
use foreshore_txn::Txn;
use held::{Held, Until, Work};
use std::collections::HashMap;
use std::time::Duration;
use walks::Walks;
pub(crate) use walks::{Merges, Walk};

/// Leaves of each kind that one step visits: queued, held for one of three causes, swept. Each may be read from disk.
const PIECE: usize = 128;
/// Label of the transactions that purge.
const LABEL: &str = "purge";
/// Shortest and longest time between two visits of held leaves. The first is a few flushes of the log; the last leaves
/// an idle machine alone.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_secs(1)];
/// How long a check waits for merges that its last walk of the table has refused, before it walks the table again.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a leaf may keep a few removable deleted rows, so that they are removed together.
const DELAY: Duration = Duration::from_secs(1);

/// The purge of all tables.
pub(crate) struct Purger {
    /// Locked by the step that runs.
    work: Mutex<Option<Work>>,
    held: Mutex<Vec<HeldRows>>,
    pause: Mutex<Duration>,
    /// Excludes checks and merges from each other.
    walks: Walks,
    clock: SystemClock,
    signal: Signal,
    /// Whether threads do the work. Without them nothing depends on time.
    has_threads: bool,
}

impl Purger {
    /// Begins with no work. `signal` wakes the thread of the purge, if there is one.
    pub(crate) fn new(signal: Signal, has_threads: bool) -> Self {
        let leaf = LockRank::Leaf;
        Self {
            work: Mutex::new(leaf, Some(Work::default())),
            held: Mutex::new(leaf, Vec::new()),
            pause: Mutex::new(leaf, PAUSES[0]),
            walks: Walks::default(),
            clock: SystemClock::new(),
            signal,
            has_threads,
        }
    }

    /// Returns the deleted rows that must stay, by table.
    pub(crate) fn held(&self) -> Vec<HeldRows> {
        self.held.lock().clone()
    }

    /// Returns the pause after a step.
    fn pause(&self, has_progress: bool) -> Duration {
        let mut pause = self.pause.lock();
        *pause = if has_progress { PAUSES[0] } else { (2 * *pause).clamp(PAUSES[0], PAUSES[1]) };
        *pause
    }

    /// Runs one step of the purge.
    pub(crate) fn step(&self, admission: &Admission, catalogue: &Catalogue) -> NextWake {
        let Some(mut work) = self.work.lock().take() else { return NextWake::OnSignal };
        let began = self.clock.now();
        let left = self.purge_piece(admission, catalogue, &mut work);
        *self.held.lock() = work.held_rows();
        *self.work.lock() = Some(work);
        match left {
            Err(Error::Closed | Error::Poisoned { .. }) => NextWake::OnSignal,
            // All sessions are in use, the disk is full, no frame is free.
            Err(_) => NextWake::After(PAUSES[1]),
            Ok((Left::Leaves, _)) => NextWake::Now,
            Ok((Left::Sweep, _)) => NextWake::After(self.clock.now().since(began).max(PAUSES[0])),
            Ok((Left::Held, Done { new, gone })) => NextWake::After(self.pause(new + gone > 0)),
            Ok((Left::Nothing, _)) if catalogue.trees().purge_sleeps() => NextWake::OnSignal,
            Ok((Left::Nothing, _)) => NextWake::Now,
        }
    }

    /// Begins the walk of a table by a check. No node of the table is freed until the walk is dropped.
    pub(crate) fn walk(&self, table: TableId) -> Walk<'_> {
        pause::point("check: a walk begins");
        if self.has_threads {
            self.walks.let_merges_go(table, PATIENCE, || self.signal.notify());
        }
        self.walks.walk(table)
    }

    /// Begins merges of a table, which exclude those of the purge and checks, until the result is dropped. Waits for at
    /// most `patience`; `None` if that was too short.
    pub(crate) fn merges_within(&self, table: TableId, patience: Duration) -> Option<Merges<'_>> {
        self.walks.merge_within(table, patience)
    }

    /// Returns whether background work has threads.
    pub(crate) const fn has_threads(&self) -> bool {
        self.has_threads
    }

    fn purge_piece(&self, admission: &Admission, catalogue: &Catalogue, work: &mut Work) -> Result<(Left, Done)> {
        if work.is_empty() && !catalogue.trees().wake_purge() {
            return Ok((Left::Nothing, Done::default()));
        }
        let txn = admission.begin_own(TxnOptions::new().label(LABEL))?;
        let now = self.clock.now();
        let (trees, locked, merges) = (HashMap::new(), Vec::new(), HashMap::new());
        let mut piece = Piece { purger: self, catalogue, txn, trees, locked, merges, now, done: Done::default() };
        let left = piece.run(work);
        let Piece { txn, done, .. } = piece;
        // It holds only locks of tables.
        let ended = txn.rollback().map(drop);
        left.and_then(|left| ended.map(|()| (left, done)))
    }
}

/// The work left after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Nothing.
    Nothing,
    /// Leaves that wait for a snapshot, a lock, the walk of a check, or a time.
    Held,
    /// Leaves to sweep.
    Sweep,
    /// Leaves ready to be purged.
    Leaves,
}

/// Reason for a visit of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// An operation has met deleted rows in it, or found it empty.
    Queued,
    /// Its deleted rows may go, or it lies between leaves whose rows may.
    Released,
    /// It lies in a queued range of keys. It is merged only if the sweep has purged it, or if it is sparse. A table
    /// filled in random order has many thin leaves that have lost no row, and one remove must not rewrite them all.
    Swept,
}

/// Progress of a step.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// Leaves that were not held before.
    new: usize,
    /// Rows purged, and pages freed.
    gone: usize,
}

/// The transaction of a step, and the tables that it has locked.
struct Piece<'e> {
    purger: &'e Purger,
    catalogue: &'e Catalogue,
    txn: Txn,
    trees: HashMap<TableId, Option<Tree>>,
    /// Tables that another transaction has locked exclusively.
    locked: Vec<TableId>,
    /// Tables in which leaves may be merged.
    merges: HashMap<TableId, Merges<'e>>,
    now: Nanos,
    done: Done,
}

impl Piece<'_> {
    fn run(&mut self, work: &mut Work) -> Result<Left> {
        self.txn.refresh_view();
        let (txn, now, walks) = (&self.txn, self.now, &self.purger.walks);
        let may_go = |until| match until {
            Until::Walked(table) => !walks.is_walked(table),
            Until::Time(time) => time <= now,
            Until::Settled(xid) => txn.was_settled(xid),
            Until::Ended(xid) => !txn.is_live(xid),
        };
        let released = work.released(may_go, PIECE);
        let mut queued = Vec::new();
        for (table, range) in self.catalogue.trees().take_queued(PIECE, |leaf| queued.push(leaf)) {
            work.add_range(table, range);
        }
        // Leaves that pass from writer to writer do not keep the step busy.
        let (is_full, mut is_done, mut failed) = (released.len() >= PIECE, false, Ok(()));
        for leaf in released {
            if let Err(error) = self.purge_known(work, leaf, Look::Released) {
                work.looked_at(leaf.page, self.now);
                failed = failed.and(Err(error));
            }
            is_done |= !work.holds(leaf.page);
        }
        let is_full = is_full && is_done || queued.len() >= PIECE;
        for leaf in queued {
            let is_put_off = self.purger.has_threads && work.puts_off(leaf, self.now);
            if !is_put_off {
                self.done.new += 1;
                if let Err(error) = self.purge_known(work, leaf, Look::Queued) {
                    // A sweep of its table comes to it again.
                    work.add_all(leaf.table);
                    failed = failed.and(Err(error));
                }
            }
        }
        let swept = self.sweep(work)?;
        failed?;
        Ok(match () {
            () if is_full => Left::Leaves,
            () if swept => Left::Sweep,
            () if !work.is_empty() => Left::Held,
            () => Left::Nothing,
        })
    }

    /// Returns the tree of a table with a shared intent, which keeps it from being dropped; `None` if the table is gone
    /// or not committed. `Err` if another transaction has locked it exclusively.
    fn tree(&mut self, table: TableId) -> Result<Option<Tree>, TableId> {
        if let Some(known) = self.trees.get(&table) {
            return Ok(known.clone());
        }
        if self.locked.contains(&table) || !self.txn.try_lock_table(table, TableMode::IntentShared) {
            self.locked.push(table);
            return Err(table);
        }
        let catalogue = self.catalogue;
        let tree = match table {
            own if own == catalogue.table() => Some(catalogue.tree().clone()),
            CHAINS => Some(catalogue.trees().chains()),
            SEQUENCES => Some(catalogue.sequences().tree().clone()),
            _ => match catalogue.by_id(table).map(|info| info.tree.clone()) {
                // It may have got another name, which is known in a moment.
                Some(tree) if tree.is_ending() => {
                    self.locked.push(table);
                    return Err(table);
                }
                tree => tree.filter(|tree| !tree.is_retired()),
            },
        };
        self.trees.insert(table, tree.clone());
        Ok(tree)
    }

    /// Purges a leaf whose page is known. Forgets it if it is damaged.
    fn purge_known(&mut self, work: &mut Work, leaf: QueuedLeaf, look: Look) -> Result<()> {
        let QueuedLeaf { table, page } = leaf;
        match self.tree(table) {
            Ok(Some(tree)) => {
                work.meet(table);
                let purged = match tree.first_key_of(page) {
                    Ok(Some(key)) => self.purge_leaf(work, &tree, &key, look).map(|leaf| Some(leaf.page)),
                    Ok(None) => Ok(None),
                    Err(error) => Err(error),
                };
                match purged {
                    Ok(Some(found)) if found == page => {}
                    // Its page is free or reused. Its rows are in the leaf that was found by the key.
                    Ok(_) | Err(Error::Corrupted { .. }) => work.forget(page),
                    Err(error) => return Err(error),
                }
            }
            Ok(None) => self.forget_table(work, table),
            // Its leaves are not counted one by one until the lock is gone.
            Err(_) => {
                work.forget(page);
                work.add_all(table);
            }
        }
        Ok(())
    }

    /// Continues the sweep of one table. Returns whether more is left to sweep.
    fn sweep(&mut self, work: &mut Work) -> Result<bool> {
        let mut left = PIECE;
        while let Some(table) = work.next_sweep(|table| self.locked.contains(&table)) {
            if left == 0 {
                return Ok(true);
            }
            let tree = match self.tree(table) {
                Ok(Some(tree)) => tree,
                Ok(None) => {
                    self.forget_table(work, table);
                    continue;
                }
                Err(_) => continue,
            };
            while let Some((from, is_released)) = work.sweep_from(table).filter(|_| left > 0) {
                left -= 1;
                let look = if is_released { Look::Released } else { Look::Swept };
                let next = match self.purge_leaf(work, &tree, &from, look) {
                    // A damaged leaf is skipped for good, and so are those behind it if the path to them is lost.
                    Err(Error::Corrupted { .. }) => tree.next_after_damage(&from)?,
                    leaf => leaf?.next,
                };
                work.sweep_to(table, next);
            }
        }
        Ok(false)
    }

    /// Returns whether leaves of a table may be merged, until the end of the step.
    fn may_merge(&mut self, table: TableId) -> bool {
        if !self.merges.contains_key(&table) {
            let Some(merges) = self.purger.walks.merge(table) else { return false };
            self.merges.insert(table, merges);
        }
        true
    }

    /// Forgets a table that is gone.
    fn forget_table(&self, work: &mut Work, table: TableId) {
        work.forget_table(table);
        self.purger.walks.forget(table);
    }

    /// Purges one leaf, and merges it if few rows are left. A few deleted rows stay for a while unless they are due.
    fn purge_leaf(&mut self, work: &mut Work, tree: &Tree, key: &[u8], look: Look) -> Result<PurgedLeaf> {
        let (is_due, is_swept) = (look != Look::Queued, look == Look::Swept);
        // Without threads nothing may depend on time.
        let all = is_due || !self.purger.has_threads;
        let leaf = tree.purge_leaf(&mut self.txn, key, all)?;
        self.done.gone += leaf.purged;
        let holds_little = leaf.is_sparse || leaf.is_thin && (leaf.purged > 0 || !is_swept);
        // The space of rows that a rollback may need stays in their leaf.
        let merges = holds_little && leaf.live.is_none() && self.may_merge(tree.table());
        let until = match (leaf.oldest, leaf.live) {
            _ if leaf.few > 0 => Some(Until::Time(self.now + DELAY)),
            (oldest, _) if leaf.held > 0 => Some(Until::Settled(oldest)),
            (_, Some(live)) if holds_little => Some(Until::Ended(live)),
            _ if holds_little && !merges => Some(Until::Walked(tree.table())),
            _ => None,
        };
        let held = |until| {
            let (table, rows) = (tree.table(), leaf.held as u64);
            Held { table, until, rows, looked: self.now, is_queued: false }
        };
        match until {
            Some(until) => work.hold(leaf.page, key, held(until)),
            None => work.forget(leaf.page),
        }
        if merges {
            let Merged { pages, live } = match tree.merge_leaf(&mut self.txn, key) {
                // The damage is in a neighbour or in the map. The leaf itself is sound.
                Err(Error::Corrupted { .. }) => Merged::default(),
                merged => merged.inspect_err(|_| work.hold(leaf.page, key, held(Until::Walked(tree.table()))))?,
            };
            self.done.gone += pages;
            if let Some((page, live)) = live.filter(|_| until.is_none()) {
                work.hold(page, key, held(Until::Ended(live)));
            }
        }
        Ok(leaf)
    }
}

#[cfg(test)]
mod tests;

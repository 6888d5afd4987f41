//! The passes of a compaction.
//!
//! 1. *Free.* Pages of dropped tables and replaced large values become free, as far as no snapshot needs them.
//! 2. *Pack.* A pass over each tree purges its leaves and fills them from left to right
//!    ([`foreshore_btree::Tree::pack_leaf`]).
//! 3. *Move.* The nodes in pages that lie beyond the number of pages in use move to free pages before
//!    ([`foreshore_btree::Tree::move_nodes`]). Large values there are written again, each by a transaction of its own
//!    ([`foreshore_btree::Tree::renew_value`]). Their keys and the entries in indexes stay as they are.
//! 4. *Cut.* The free pages at the end go, except those that a rollback may need ([`crate::vacuum`]).
//!
//! Steps 3 and 4 are repeated while they gain something, because others use pages meanwhile. At the end two
//! checkpoints truncate the log, and the files go that are kept for later log.
//!
//! **Steps.** A step visits a few nodes of one tree, in a transaction that only has a shared intent on the table. It
//! changes pages by structure changes, so a rollback or a crash undoes nothing. Between two steps nothing is held, the
//! caller is told, and may stop. A step takes turns with the purge and with checks ([`crate::purge`]).
//!
//! **What stays.** Roots never move: their pages are in the log. A large value stays if fewer pages than it has are
//! free before it, since its copy is whole before the old pages become free. A table whose lock another transaction
//! keeps for longer than [`PATIENCE`] is skipped, and so is damage. The rest of a tree is skipped if a step ends with
//! a retryable error, such as a deadlock, even after retries.

use super::options::Compaction;
use crate::engine::Engine;
use crate::maintenance::{both, retried};
use crate::vacuum::{free_unneeded, truncate_end};
use crate::{Db, Durability, Result, TxnOptions};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, TableId};
use foreshore_btree::{FarValues, NodePlace, PackedLeaf, Tree};
use foreshore_lock::TableMode;
use foreshore_space::Spare;
use foreshore_sync::{Clock, Nanos, Parker, SystemClock, pause};
use foreshore_txn::Txn;
use std::ops::ControlFlow;
use std::time::Duration;

/// Leaves that one step packs.
const LEAVES: u64 = 8;
/// Nodes that one step moves.
const NODES: u64 = 16;
/// Label of the transactions.
const LABEL: &str = "compact";
/// How long a step waits for a table that is locked exclusively.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many times as long it waits for a check or a purge of the table.
const TURNS: u32 = 120;
/// Passes that move pages.
const ROUNDS: u32 = 3;
/// Pause after which the caller is asked again whether to go on.
const SLICE: Duration = Duration::from_secs(1);

/// The end of a compaction before all is done.
enum Ended {
    /// The caller has stopped it.
    Stopped,
    Failed(Box<crate::Error>),
}

impl<E: Into<crate::Error>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(Box::new(error.into()))
    }
}

/// A compaction that runs.
pub(super) struct Compactor<'e> {
    db: &'e Db,
    engine: &'e Engine,
    /// The share of this thread's time that is used, in percent.
    share: u32,
    progress: &'e mut dyn FnMut(&Compaction) -> ControlFlow<()>,
    done: Compaction,
    /// Length of the data file at the begin.
    file_pages: u64,
    /// Pages of large values that were replaced and may not be free yet.
    replaced: u64,
    /// The damage that was met first.
    damage: Result<()>,
    clock: SystemClock,
}

impl<'e> Compactor<'e> {
    pub(super) fn new(db: &'e Db, share: u32, progress: &'e mut dyn FnMut(&Compaction) -> ControlFlow<()>) -> Self {
        let (engine, clock) = (&**db.engine(), SystemClock::new());
        let (done, file_pages) = (Compaction::default(), engine.storage.space().file_pages());
        Self { db, engine, share, progress, done, file_pages, replaced: 0, damage: Ok(()), clock }
    }

    /// Runs all passes, or until the caller stops it. After an error, too, the free end of the file goes.
    pub(super) fn run(mut self) -> Result<Compaction> {
        let ended = match self.run_passes() {
            Ok(()) => Ok(()),
            Err(Ended::Stopped) => return Ok(self.done),
            Err(Ended::Failed(error)) => {
                // The caller gets the error that was first.
                let _ = truncate_end(self.engine, Spare::Least);
                Err(*error)
            }
        };
        // Damage has ended nothing, so it comes second.
        both(ended, self.damage.map(|()| self.done))
    }

    fn run_passes(&mut self) -> Result<(), Ended> {
        let began = self.clock.now();
        self.free_unneeded()?;
        self.done.to_visit = self.engine.storage.space().stats().used_pages;
        self.rest(began)?;
        for tree in self.trees()? {
            self.pack(&tree)?;
        }
        for _ in 0..ROUNDS {
            let moved = self.move_beyond(self.engine.storage.space().dense_end())?;
            self.free_unneeded()?;
            let gone = self.cut()?;
            if moved == 0 || gone == 0 {
                break;
            }
        }
        self.done.is_complete = !self.engine.storage.space().has_free_end();
        self.shorten_log()
    }

    /// Truncates the file. A writer that needs a page cancels a cut, so the next try leaves what writers use for a
    /// while. Returns the bytes.
    fn cut(&mut self) -> Result<u64, Ended> {
        let mut all = 0;
        for spare in [Spare::Least, Spare::Growth, Spare::Growth] {
            let space = self.engine.storage.space();
            if !space.has_free_end() {
                break;
            }
            let began = self.clock.now();
            let gone = match truncate_end(self.engine, spare) {
                // All sessions are in use, for instance.
                Err(error) if error.is_retryable() => 0,
                gone => gone?,
            };
            all += gone;
            self.done.truncated = self.file_pages.saturating_sub(space.file_pages()) * PAGE_SIZE as u64;
            self.rest(began)?;
            if gone > 0 {
                break;
            }
        }
        Ok(all)
    }

    /// Truncates the log, and removes the files that are kept for later log. It is the last step, so no rest follows.
    fn shorten_log(&mut self) -> Result<(), Ended> {
        // Twice, because the log of the older superblock stays too.
        for _ in 0..2 {
            self.db.checkpoint()?;
        }
        self.done.log_removed = self.engine.storage.log().remove_spare_segments()?;
        self.report()
    }

    fn report(&mut self) -> Result<(), Ended> {
        if (self.progress)(&self.done).is_break() { Err(Ended::Stopped) } else { Ok(()) }
    }

    /// Frees what no snapshot needs. Damage is returned when everything else is done.
    fn free_unneeded(&mut self) -> Result<(), Ended> {
        self.replaced = 0;
        match free_unneeded(self.engine) {
            Err(damage @ crate::Error::Corrupted { .. }) => {
                self.damage = both(std::mem::replace(&mut self.damage, Ok(())), Err(damage));
            }
            // A check reads a dropped table, or others are in the way even after retries.
            Err(error) if error.is_retryable() => self.done.skipped += 1,
            freed => freed?,
        }
        Ok(())
    }

    /// Returns the trees of all tables, and the two of the engine.
    fn trees(&self) -> Result<Vec<Tree>> {
        let engine = self.engine;
        let mut trees = self.db.run_with(TxnOptions::new().label(LABEL), |tx| {
            tx.with(|engine, live| {
                // When the lock is granted, each transaction that created or dropped a table has ended.
                live.txn.lock_table(engine.catalogue.table(), TableMode::Shared)?;
                let (created, mut trees) = (live.txn.observed(), Vec::new());
                let learn = |name: Option<&str>, row| {
                    trees.extend(name.map(|name| engine.catalogue.learn(name, row, created)));
                };
                // A check reports damage.
                engine.catalogue.each_row(&mut live.txn, learn, |_| ())?;
                Ok(trees)
            })
        })?;
        trees.extend([engine.catalogue.tree().clone(), engine.catalogue.trees().chains()]);
        Ok(trees)
    }

    /// Fills the leaves of a tree from left to right.
    fn pack(&mut self, tree: &Tree) -> Result<(), Ended> {
        let (mut from, mut left) = (Some(Vec::new()), self.most_steps());
        while let Some(key) = from.take().filter(|_| left > 0) {
            left -= 1;
            let packed = self.step(tree, |txn| {
                let mut all = PackedLeaf { pages: 0, next: Some(key.clone()) };
                for visited in 1..=LEAVES {
                    let Some(key) = all.next.take() else { return Ok((all, visited - 1)) };
                    let PackedLeaf { pages, next } = match tree.pack_leaf(txn, &key) {
                        // Damaged leaves are skipped, and so are those behind them if the path to them is lost.
                        Err(Error::Corrupted { .. }) => PackedLeaf { pages: 0, next: tree.next_after_damage(&key)? },
                        packed => packed?,
                    };
                    (all.pages, all.next) = (all.pages + pages, next);
                }
                Ok((all, LEAVES))
            })?;
            let Some((PackedLeaf { pages, next }, visited)) = packed else { break };
            self.done.freed += pages;
            self.done.visited += visited + pages;
            from = next;
        }
        Ok(())
    }

    /// Returns a bound of the steps of a pass over one tree, which writers may extend meanwhile.
    fn most_steps(&self) -> u64 {
        2 * self.engine.storage.space().stats().used_pages
    }

    /// Moves all nodes in pages from `end` on. Returns how many were moved.
    fn move_beyond(&mut self, end: PageId) -> Result<u64, Ended> {
        let space = self.engine.storage.space();
        let beyond = space.file_pages().saturating_sub(end.0);
        // Also takes back the pages that workers have taken ahead.
        let free = space.free_below(end);
        let before = self.done.moved;
        if beyond > 0 && free > 0 {
            self.done.to_visit = self.done.visited + beyond;
            let trees = self.trees()?;
            trees.iter().try_for_each(|tree| self.move_nodes(tree, end))?;
            if space.used_from(end) > 0 {
                trees.iter().try_for_each(|tree| self.move_values(tree, end))?;
            }
        }
        Ok(self.done.moved - before)
    }

    /// Writes the large values of a tree that have pages from `end` on again.
    fn move_values(&mut self, tree: &Tree, end: PageId) -> Result<(), Ended> {
        let (mut from, mut left) = (Some(Vec::new()), self.most_steps());
        while let Some(key) = from.take().filter(|_| left > 0) {
            left -= 1;
            let found = self.step(tree, |txn| match tree.far_values(txn, &key, end) {
                // As for leaves that are packed.
                Err(Error::Corrupted { .. }) => Ok(FarValues { rows: Vec::new(), next: tree.next_after_damage(&key)? }),
                found => found,
            });
            let Some(FarValues { rows, next }) = found? else { break };
            for (key, pages) in rows {
                if !self.has_space(pages, end)? {
                    self.done.stuck += pages;
                } else if !self.move_value(tree, &key, (pages, end))? {
                    return Ok(());
                }
            }
            from = next;
        }
        Ok(())
    }

    /// Returns whether `pages` pages before `end` are free, or become so.
    fn has_space(&mut self, pages: u64, end: PageId) -> Result<bool, Ended> {
        let space = self.engine.storage.space();
        if space.free_below(end) < pages && self.replaced > 0 {
            self.free_unneeded()?;
        }
        Ok(space.free_below(end) >= pages)
    }

    /// Writes one large value again, in a transaction of its own. Returns false if the table is locked or dropped.
    fn move_value(&mut self, tree: &Tree, key: &[u8], (pages, end): (u64, PageId)) -> Result<bool, Ended> {
        let began = self.clock.now();
        let options = TxnOptions::new().label(LABEL).lock_timeout(PATIENCE).durability(Durability::Relaxed);
        let moved = self.db.run_with(options, |tx| tx.with(|_, live| Ok(tree.renew_value(&mut live.txn, key, end)?)));
        let (is_moved, is_free) = match moved {
            Ok(is_moved) => (is_moved, true),
            Err(crate::Error::LockTimeout { .. } | crate::Error::OwnThreadLock { .. }) => {
                self.done.skipped += 1;
                (false, false)
            }
            Err(crate::Error::TableDropped { .. }) => (false, false),
            // It is damaged, or its copy finds no space.
            Err(crate::Error::Corrupted { .. } | crate::Error::DiskFull { .. }) => (false, true),
            // Others have ended the transaction, or its age.
            Err(error) if error.is_retryable() => (false, true),
            Err(error) => return Err(error.into()),
        };
        let (moved, stuck) = if is_moved { (pages, 0) } else { (0, pages) };
        self.replaced += moved;
        self.done.moved += moved;
        self.done.stuck += stuck;
        self.done.visited += pages;
        pause::point("compact: a large value is written again");
        self.rest(began)?;
        Ok(is_free)
    }

    /// Moves the nodes of a tree that lie in pages from `end` on.
    fn move_nodes(&mut self, tree: &Tree, end: PageId) -> Result<(), Ended> {
        let (mut from, mut left) = (Some(NodePlace::default()), self.most_steps());
        while let Some(place) = from.take().filter(|_| left > 0) {
            left -= 1;
            let moved = self.step(tree, |txn| match tree.move_nodes(txn, &place, end, NODES) {
                // The path to further nodes is lost.
                Err(Error::Corrupted { .. }) => Ok(None),
                moved => moved.map(Some),
            })?;
            let Some(Some(moved)) = moved else { break };
            self.done.moved += moved.moved;
            self.done.stuck += moved.stuck;
            self.done.visited += moved.moved + moved.stuck;
            from = moved.next;
        }
        Ok(())
    }

    /// Runs a step on a tree. Returns `None` if the tree is dropped, or if other transactions are in the way.
    fn step<T>(
        &mut self,
        tree: &Tree,
        mut work: impl FnMut(&mut Txn) -> foreshore_base::Result<T>,
    ) -> Result<Option<T>, Ended> {
        let (mut began, table) = (self.clock.now(), tree.table());
        let mut turn = self.engine.purger.merges_within(table, PATIENCE);
        for _ in 0..TURNS {
            if turn.is_some() {
                break;
            }
            self.rest(self.clock.now())?;
            began = self.clock.now();
            turn = self.engine.purger.merges_within(table, PATIENCE);
        }
        let stepped = match turn {
            Some(_merges) => match retried(|| self.in_transaction(tree, table, &mut work)) {
                Err(error) if error.is_retryable() => None,
                stepped => stepped?,
            },
            None => None,
        };
        self.done.skipped += u64::from(stepped.is_none() && !tree.is_retired());
        pause::point("compact: a step is done");
        self.rest(began)?;
        Ok(stepped)
    }

    fn in_transaction<T>(
        &self,
        tree: &Tree,
        table: TableId,
        work: impl FnOnce(&mut Txn) -> foreshore_base::Result<T>,
    ) -> foreshore_base::Result<Option<T>> {
        let admission = &self.engine.admission;
        let mut txn = admission.begin(TxnOptions::new().label(LABEL).lock_timeout(PATIENCE))?;
        let done = match txn.lock_table(table, TableMode::IntentShared) {
            Ok(()) if tree.is_retired() => Ok(None),
            Ok(()) => {
                txn.refresh_view();
                work(&mut txn).map(Some)
            }
            Err(Error::OwnThreadLock { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        // It has changed no row.
        let ended = txn.rollback();
        admission.transaction_ended();
        ended.and(done)
    }

    /// Tells the caller, and pauses for its share of the time since `began`.
    fn rest(&mut self, began: Nanos) -> Result<(), Ended> {
        let worked = self.clock.now().since(began);
        self.report()?;
        let share = self.share;
        let until = self.clock.now() + worked * (100 - share) / share;
        while self.engine.purger.has_threads() {
            let left = until.since(self.clock.now());
            if left.is_zero() {
                break;
            }
            // WAIT: park - for the time alone, with nothing held. An unpark for an earlier wait ends a slice.
            Parker::current().park_timeout(left.min(SLICE));
            self.engine.admission.check_open()?;
            if left > SLICE {
                self.report()?;
            }
        }
        self.engine.admission.check_open()?;
        Ok(())
    }
}

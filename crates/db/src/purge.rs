//! Deleted rows leave their tables in the background.
//!
//! Operations that delete rows, or meet deleted ones, queue the leaf (see [`foreshore_btree::Trees::take_queued`]). A leaf in which a
//! deleted row has to stay, because a snapshot sees it or its deletion is not durable, is **held**: it is looked at again when no
//! snapshot needs what the youngest of its deletions replaced. At most [`MAX_HELD`] leaves are held one by one; the others of
//! a table are a range of keys, whose leaves are all looked at then.

use crate::TxnOptions;
use crate::engine::Engine;
use foreshore_base::{Csn, Error, PageId, Result, TableId, Xid};
use foreshore_btree::{PurgedLeaf, QueuedLeaf, QueuedRange, Tree};
use foreshore_lock::TableMode;
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, NextWake, Step, SystemClock, Turn};
use foreshore_txn::Txn;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;
use std::sync::Weak;
use std::time::Duration;

/// Leaves that are looked at under one hold of their tables' locks. Each may be read from the disk before.
const PIECE: usize = 128;
/// Leaves that are held one by one.
const MAX_HELD: usize = 4096;
/// Of the transactions that purge.
const LABEL: &str = "purge";
/// Shortest and longest time between two looks at leaves that are held. The first is a few flushes of the log; the last leaves an idle
/// machine alone.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(500)];

/// How long a leaf may keep a few deleted rows that nothing holds, so that they leave it together.
const DELAY: Duration = Duration::from_secs(1);

/// Deleted rows of one table that have to stay, since a snapshot may see them or their deletion is not durable yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldRows {
    /// The table.
    pub table: TableId,
    /// Leaves that have such rows, as far as the purge has met them.
    pub leaves: u64,
    /// The rows in them when it did.
    pub rows: u64,
}

/// A leaf that the purge comes back to.
#[derive(Clone, Copy, Debug)]
struct Held {
    table: TableId,
    until: Until,
    rows: u64,
}

/// What a leaf is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Until {
    /// For a lock or a check, which end without a sign.
    NextLook,
    /// It has a few rows that may go at this time.
    Time(Nanos),
    /// What this transaction deleted, the last of the leaf, may go.
    Settled(Xid),
}

/// Leaves that the purge comes back to and that have no entry of their own.
#[derive(Debug)]
struct HeldRange {
    keys: QueuedRange,
    held: Held,
    leaves: u64,
}

/// What is left to do.
#[derive(Debug, Default)]
struct Work {
    /// Each with the time at which all of its rows go that may.
    leaves: VecDeque<(QueuedLeaf, Option<Nanos>)>,
    /// From the key that comes next.
    ranges: BTreeMap<TableId, QueuedRange>,
    held: HashMap<PageId, Held>,
    held_ranges: BTreeMap<TableId, HeldRange>,
    /// Where the horizon of all snapshots was at the last look.
    horizon: Csn,
    pause: Duration,
}

/// The purge of all tables.
pub(crate) struct Purger {
    /// Taken by the step that runs.
    work: Mutex<Option<Work>>,
    held: Mutex<Vec<HeldRows>>,
}

impl Default for Purger {
    fn default() -> Self {
        let leaf = LockRank::Leaf;
        Self { work: Mutex::new(leaf, Some(Work::default())), held: Mutex::new(leaf, Vec::new()) }
    }
}

impl Purger {
    /// What has to stay, by table.
    pub(crate) fn held(&self) -> Vec<HeldRows> {
        self.held.lock().clone()
    }
}

/// The step that purges. It does not keep the engine alive.
pub(crate) struct Purge(pub(crate) Weak<Engine>);

impl Step for Purge {
    fn step(&self) -> NextWake {
        self.0.upgrade().map_or(NextWake::OnSignal, |engine| engine.purge_step())
    }
}

fn widen(range: &mut QueuedRange, other: QueuedRange) {
    let QueuedRange { from, to } = other;
    if from < range.from {
        range.from = from;
    }
    if to > range.to {
        range.to = to;
    }
}

impl Held {
    /// The time at which the few rows of the leaf go.
    const fn due(&self) -> Option<Nanos> {
        match self.until {
            Until::Time(time) => Some(time),
            Until::NextLook | Until::Settled(_) => None,
        }
    }
}

impl Work {
    fn add_range(&mut self, table: TableId, range: QueuedRange) {
        match self.ranges.get_mut(&table) {
            Some(known) => widen(known, range),
            None => drop(self.ranges.insert(table, range)),
        }
    }

    fn is_done(&self) -> bool {
        self.leaves.is_empty() && self.ranges.is_empty()
    }

    fn holds_any(&self) -> bool {
        !self.held.is_empty() || !self.held_ranges.is_empty()
    }

    /// Comes back to what was held if nothing keeps it any more. `horizon`: where that of all snapshots is now.
    fn release(&mut self, txn: &Txn, horizon: Csn, now: Nanos) {
        let has_moved = mem::replace(&mut self.horizon, horizon) != horizon;
        let may_go = |held: &Held| match held.until {
            Until::NextLook => true,
            Until::Time(time) => time <= now,
            Until::Settled(youngest) => has_moved && txn.is_settled(youngest),
        };
        let leaves = &mut self.leaves;
        self.held.retain(|&page, held| {
            let goes = may_go(held);
            if goes {
                leaves.push_back((QueuedLeaf { table: held.table, page }, held.due()));
            }
            !goes
        });
        let goes = |(&table, range): (&TableId, &HeldRange)| may_go(&range.held).then_some(table);
        for table in self.held_ranges.iter().filter_map(goes).collect::<Vec<_>>() {
            let range = self.held_ranges.remove(&table).expect("just found");
            self.add_range(table, range.keys);
        }
    }

    /// Comes back to a leaf later.
    fn hold(&mut self, page: PageId, key: &[u8], held: Held) {
        if self.held.len() < MAX_HELD || self.held.contains_key(&page) {
            self.held.insert(page, held);
            return;
        }
        let keys = QueuedRange { from: key.to_vec(), to: key.to_vec() };
        match self.held_ranges.get_mut(&held.table) {
            Some(range) => {
                widen(&mut range.keys, keys);
                range.held.until = range.held.until.max(held.until);
                range.held.rows += held.rows;
                range.leaves += 1;
            }
            None => drop(self.held_ranges.insert(held.table, HeldRange { keys, held, leaves: 1 })),
        }
    }

    /// Comes back to a range of leaves that was not looked at.
    fn hold_range(&mut self, table: TableId, keys: QueuedRange) {
        match self.held_ranges.get_mut(&table) {
            Some(range) => widen(&mut range.keys, keys),
            None => {
                let held = Held { table, until: Until::NextLook, rows: 0 };
                self.held_ranges.insert(table, HeldRange { keys, held, leaves: 0 });
            }
        }
    }

    fn held_rows(&self) -> Vec<HeldRows> {
        let mut tables = BTreeMap::new();
        let leaves = self.held.values().map(|held| (held, 1));
        for (held, leaves) in leaves.chain(self.held_ranges.values().map(|range| (&range.held, range.leaves))) {
            let table = held.table;
            let sum = tables.entry(table).or_insert(HeldRows { table, ..HeldRows::default() });
            sum.leaves += leaves;
            sum.rows += held.rows;
        }
        tables.into_values().collect()
    }
}

/// Tables that one piece of work has locked.
struct Locked<'e> {
    engine: &'e Engine,
    trees: HashMap<TableId, Option<Tree>>,
    /// Keeps checks out, which count on pages to stay; none of one that could not be had.
    turn: Option<Option<Turn<'e>>>,
}

impl Locked<'_> {
    /// Whether no check runs, until this is dropped.
    fn may_free(&mut self) -> bool {
        let engine = self.engine;
        self.turn.get_or_insert_with(|| engine.lines.checks.take(&SystemClock::new(), Duration::ZERO)).is_some()
    }

    /// The tree of a table that is there, with a shared intent, which keeps it from being dropped. `Err` if another transaction has
    /// the table for itself.
    fn tree(&mut self, txn: &mut Txn, table: TableId) -> Result<Option<Tree>, TableId> {
        if let Some(known) = self.trees.get(&table) {
            return Ok(known.clone());
        }
        if !txn.try_lock_table(table, TableMode::IntentShared) {
            return Err(table);
        }
        let catalogue = &self.engine.catalogue;
        let tree = if table == catalogue.table() {
            Some(catalogue.clone())
        } else {
            self.engine.tables.by_id(table).map(|info| info.tree.clone()).filter(|tree| !tree.is_retired())
        };
        self.trees.insert(table, tree.clone());
        Ok(tree)
    }
}

impl Engine {
    /// Does a piece of the purge.
    pub(crate) fn purge_step(&self) -> NextWake {
        let Some(mut work) = self.purger.work.lock().take() else { return NextWake::OnSignal };
        let done = self.purge_piece(&mut work);
        *self.purger.held.lock() = work.held_rows();
        let (is_done, holds_any, pause) = (work.is_done(), work.holds_any(), work.pause);
        *self.purger.work.lock() = Some(work);
        match done {
            Err(Error::Closed | Error::Poisoned { .. }) => NextWake::OnSignal,
            // All sessions are in use, the disk is full, no frame is free.
            Err(_) => NextWake::After(PAUSES[1]),
            Ok(()) if !is_done => NextWake::Now,
            Ok(()) if holds_any => NextWake::After(pause),
            Ok(()) if self.trees.purge_sleeps() => NextWake::OnSignal,
            Ok(()) => NextWake::Now,
        }
    }

    fn purge_piece(&self, work: &mut Work) -> Result<()> {
        let before = work.leaves.len();
        let Work { leaves, held, .. } = work;
        let ranges = self.trees.take_queued(|leaf| {
            // With the rows that are new it may be worth a change.
            let due = held.remove(&leaf.page).and_then(|held| held.due());
            leaves.push_back((leaf, due));
        });
        let is_new = work.leaves.len() > before || !ranges.is_empty();
        ranges.into_iter().for_each(|(table, range)| work.add_range(table, range));
        if work.is_done() && !work.holds_any() {
            return Ok(());
        }
        let mut txn = self.begin_own(TxnOptions::new().label(LABEL))?;
        let horizon = txn.refresh_view().horizon();
        let now = SystemClock::new().now();
        work.release(&txn, horizon, now);
        let purged = self.purge_some(&mut txn, work, now);
        // What it holds are locks of tables.
        let ended = txn.rollback().map(drop);
        let progress = is_new || *purged.as_ref().unwrap_or(&0) > 0;
        work.pause = if progress { PAUSES[0] } else { (2 * work.pause).clamp(PAUSES[0], PAUSES[1]) };
        purged.map(drop).and(ended)
    }

    /// Purges up to [`PIECE`] leaves and returns how many rows went.
    fn purge_some(&self, txn: &mut Txn, work: &mut Work, now: Nanos) -> Result<usize> {
        let mut locked = Locked { engine: self, trees: HashMap::new(), turn: None };
        let mut purged = 0;
        for _ in 0..PIECE {
            let Some((leaf, due)) = work.leaves.pop_front() else { break };
            let QueuedLeaf { table, page } = leaf;
            let tree = match locked.tree(txn, table) {
                Ok(Some(tree)) => tree,
                Ok(None) => continue,
                Err(_) => {
                    work.hold(page, &[], Held { table, until: Until::NextLook, rows: 0 });
                    continue;
                }
            };
            let done = tree.first_key_of(page).and_then(|key| match key {
                Some(key) => {
                    // Without threads nothing that is done depends on time.
                    let due = if self.options.background { due.unwrap_or(now + DELAY) } else { now };
                    self.purge_leaf(txn, &tree, &key, (work, &mut locked), (now, due)).map(|done| done.purged)
                }
                None => Ok(0),
            });
            match done {
                Ok(rows) => purged += rows,
                Err(Error::Corrupted { .. }) => {}
                Err(error) => {
                    work.leaves.push_front((leaf, due));
                    return Err(error);
                }
            }
        }
        for _ in 0..PIECE {
            let Some((&table, range)) = work.ranges.first_key_value() else { break };
            let range = range.clone();
            let Ok(Some(tree)) = locked.tree(txn, table) else {
                work.ranges.remove(&table);
                if !locked.trees.contains_key(&table) {
                    work.hold_range(table, range);
                }
                continue;
            };
            let next = match self.purge_leaf(txn, &tree, &range.from, (work, &mut locked), (now, now)) {
                Ok(done) => {
                    purged += done.purged;
                    done.next
                }
                Err(Error::Corrupted { .. }) => tree.beyond_damage(&range.from)?,
                Err(error) => return Err(error),
            };
            match next.filter(|next| *next <= range.to) {
                Some(from) => drop(work.ranges.insert(table, QueuedRange { from, ..range })),
                None => drop(work.ranges.remove(&table)),
            }
        }
        Ok(purged)
    }

    /// Purges one leaf, and frees it if that leaves little in it. Rows that are few go at the time `due`.
    fn purge_leaf(
        &self,
        txn: &mut Txn,
        tree: &Tree,
        key: &[u8],
        (work, locked): (&mut Work, &mut Locked<'_>),
        (now, due): (Nanos, Nanos),
    ) -> Result<PurgedLeaf> {
        let done = tree.purge_leaf(txn, key, due <= now)?;
        let mut until = if done.held > 0 { Some(Until::Settled(done.youngest)) } else { None };
        if done.few > 0 {
            until = Some(Until::Time(due));
        }
        if done.is_thin {
            if locked.may_free() {
                tree.merge_leaf(txn, key)?;
            } else {
                until = Some(Until::NextLook);
            }
        }
        if let Some(until) = until {
            work.hold(done.page, key, Held { table: tree.table(), until, rows: done.held as u64 });
        }
        Ok(done)
    }
}

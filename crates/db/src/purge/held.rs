//! Leaves that the purge visits again.
//!
//! | state | a leaf is in it | it leaves it |
//! |---|---|---|
//! | queued | in the queue of the trees, once (see [`foreshore_btree::Trees::take_queued`]) | when the purge takes it |
//! | held | in [`Work::held`], once, for what an [`Until`] names: deleted rows that stay, a time, a live writer, a check | when that has ended |
//! | swept | by its keys, in the [`Sweep`] of its table | when the sweep has passed it |
//!
//! A held leaf that is queued again may have new removable rows. It is visited again, but at most once in [`LOOKS`],
//! however often scans queue it.
//!
//! **Bounds.** The queue has a fixed size, and [`MAX_HELD`] leaves of each kind are held one by one. The others are
//! kept as one range of keys per table, and every leaf of the range is visited. So memory does not grow with the number
//! of leaves, and no leaf is forgotten.
//!
//! A table is swept as a whole once after the database is opened, as soon as one of its leaves is queued. That finds
//! leaves that became empty before the restart and were not freed.

use foreshore_base::limits::MAX_KEY;
use foreshore_base::{PageId, TableId, Xid};
use foreshore_btree::{QueuedLeaf, QueuedRange};
use foreshore_sync::Nanos;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Leaves that are held one by one, of each kind (see [`Until::kind`]).
pub(super) const MAX_HELD: usize = 4096;
/// Shortest time between two visits of a leaf that is held and queued.
const LOOKS: Duration = Duration::from_secs(1);

/// Deleted rows of one table that must stay: a snapshot may see them, or their deletion is not durable yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldRows {
    /// The table.
    pub table: TableId,
    /// Leaves with such rows, as far as the purge has met them.
    pub leaves: u64,
    /// Rows in these leaves at the last visit.
    pub rows: u64,
}

/// Event for which a leaf is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// A time: a few removable rows are then removed together.
    Time(Nanos),
    /// The rows that this transaction deleted can be removed.
    Settled(Xid),
    /// This transaction can no longer be rolled back, so the leaf may be merged.
    Ended(Xid),
    /// No check walks the table any more, so the leaf may be merged.
    Walked(TableId),
}

impl Until {
    const KINDS: usize = 3;

    /// Returns the index of the kind: rows, a writer, or a check. Each kind has its own bound and waits for none of the
    /// others.
    const fn kind(self) -> usize {
        match self {
            Self::Time(_) | Self::Settled(_) => 0,
            Self::Ended(_) => 1,
            Self::Walked(_) => 2,
        }
    }
}

/// A held leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) table: TableId,
    pub(super) until: Until,
    pub(super) rows: u64,
    /// When the purge visited it.
    pub(super) looked: Nanos,
    /// Whether it was queued since. Then it may have new removable rows.
    pub(super) is_queued: bool,
}

/// Leaves that are held together, until the event of the first.
#[derive(Debug)]
struct HeldRange {
    keys: QueuedRange,
    until: Until,
    leaves: u64,
    rows: u64,
}

/// Leaves of one table that are visited in key order.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The rest of the range that is swept, from the next key on.
    now: Option<QueuedRange>,
    /// Whether merges of its leaves were deferred.
    is_released: bool,
    /// Ranges that are swept next, alternately, so that no key waits behind a range that begins again: queued or held
    /// rows, and leaves whose merges were deferred.
    next: [Option<QueuedRange>; 2],
    /// By [`Until::kind`].
    held: [Option<HeldRange>; Until::KINDS],
}

/// The work for later steps.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// By [`Until::kind`].
    held: [HashMap<PageId, Held>; Until::KINDS],
    /// Sweeps of all tables of which a leaf was queued.
    sweeps: BTreeMap<TableId, Sweep>,
    /// The table that was swept last.
    swept: TableId,
}

/// Returns the range of all keys of a table.
fn all_keys() -> QueuedRange {
    QueuedRange { from: Vec::new(), to: vec![0xff; MAX_KEY + 1] }
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

fn add(range: &mut Option<QueuedRange>, other: QueuedRange) {
    match range {
        Some(known) => widen(known, other),
        None => *range = Some(other),
    }
}

impl Work {
    /// Returns whether no work is left.
    pub(super) fn is_empty(&self) -> bool {
        let has_more = |sweep: &Sweep| sweep.is_due() || sweep.held.iter().any(Option::is_some);
        self.held.iter().all(HashMap::is_empty) && !self.sweeps.values().any(has_more)
    }

    /// Notes that a table has leaves with deleted rows, or with few rows.
    pub(super) fn meet(&mut self, table: TableId) {
        self.sweep(table);
    }

    fn sweep(&mut self, table: TableId) -> &mut Sweep {
        self.sweeps.entry(table).or_insert_with(|| Sweep { next: [Some(all_keys()), None], ..Sweep::default() })
    }

    /// Schedules visits of all leaves between two keys.
    pub(super) fn add_range(&mut self, table: TableId, range: QueuedRange) {
        add(&mut self.sweep(table).next[0], range);
    }

    /// Schedules visits of all leaves of a table.
    pub(super) fn add_all(&mut self, table: TableId) {
        self.add_range(table, all_keys());
    }

    /// Whether a queued leaf is held and was visited less than [`LOOKS`] ago. It is visited when that time is over,
    /// whatever it is held for.
    pub(super) fn puts_off(&mut self, leaf: QueuedLeaf, now: Nanos) -> bool {
        let held = self.held.iter_mut().find_map(|held| held.get_mut(&leaf.page));
        let held = held.filter(|held| held.table == leaf.table);
        let Some(held) = held.filter(|held| now.since(held.looked) < LOOKS) else { return false };
        held.is_queued = true;
        true
    }

    /// Returns up to `most` held leaves of each [`Until::kind`] whose event has come, or that are due for a visit,
    /// those with the oldest visit first. Ranges whose event has come are swept.
    pub(super) fn released(&mut self, may_go: impl Fn(Until) -> bool, most: usize) -> Vec<QueuedLeaf> {
        for sweep in self.sweeps.values_mut() {
            for (kind, held) in sweep.held.iter_mut().enumerate() {
                if let Some(held) = held.take_if(|held| may_go(held.until)) {
                    // A leaf that loses rows in the sweep may be merged.
                    let is_for_merges = kind > 0;
                    add(&mut sweep.next[usize::from(is_for_merges)], held.keys);
                }
            }
        }
        let is_due = |held: &Held| held.is_queued && may_go(Until::Time(held.looked + LOOKS));
        let oldest = |held: &HashMap<PageId, Held>| {
            let goes = held.iter().filter(|(_, held)| may_go(held.until) || is_due(held));
            let mut goes: Vec<_> = goes.map(|(&page, held)| (held.looked, page, held.table)).collect();
            goes.sort_unstable();
            goes.truncate(most);
            goes
        };
        let oldest = self.held.iter().flat_map(oldest);
        oldest.map(|(_, page, table)| QueuedLeaf { table, page }).collect()
    }

    /// Notes a visit of a held leaf without progress.
    pub(super) fn looked_at(&mut self, page: PageId, now: Nanos) {
        self.held.iter_mut().filter_map(|held| held.get_mut(&page)).for_each(|held| held.looked = now);
    }

    /// Holds a leaf.
    pub(super) fn hold(&mut self, page: PageId, key: &[u8], held: Held) {
        let Held { table, until, rows, .. } = held;
        let kind = until.kind();
        let is_known = self.held[kind].contains_key(&page);
        self.forget(page);
        if is_known || self.held[kind].len() < MAX_HELD {
            self.held[kind].insert(page, held);
            return;
        }
        let keys = QueuedRange { from: key.to_vec(), to: key.to_vec() };
        match &mut self.sweep(table).held[kind] {
            Some(range) => {
                widen(&mut range.keys, keys);
                range.leaves += 1;
                range.rows += rows;
            }
            none => *none = Some(HeldRange { keys, until, leaves: 1, rows }),
        }
    }

    /// Returns whether a leaf is held.
    pub(super) fn holds(&self, page: PageId) -> bool {
        self.held.iter().any(|held| held.contains_key(&page))
    }

    /// Forgets a leaf that needs no further visit.
    pub(super) fn forget(&mut self, page: PageId) {
        for held in &mut self.held {
            held.remove(&page);
        }
    }

    /// Forgets a table that is gone.
    pub(super) fn forget_table(&mut self, table: TableId) {
        for held in &mut self.held {
            held.retain(|_, held| held.table != table);
        }
        self.sweeps.remove(&table);
    }

    /// Returns the next table to sweep, in turn, without those for which `is_out` is true.
    pub(super) fn next_sweep(&mut self, is_out: impl Fn(TableId) -> bool) -> Option<TableId> {
        let due = |(&table, sweep): (&TableId, &Sweep)| (sweep.is_due() && !is_out(table)).then_some(table);
        let behind = self.sweeps.range(TableId(self.swept.0.saturating_add(1))..).find_map(due);
        let table = behind.or_else(|| self.sweeps.iter().find_map(due))?;
        self.swept = table;
        Some(table)
    }

    /// Returns the key at which the sweep of a table continues, and whether the leaf there belongs to a range whose
    /// merges were deferred.
    pub(super) fn sweep_from(&mut self, table: TableId) -> Option<(Vec<u8>, bool)> {
        let sweep = self.sweeps.get_mut(&table)?;
        if sweep.now.is_none() {
            let is_other = !sweep.is_released;
            sweep.is_released = if sweep.next[usize::from(is_other)].is_some() { is_other } else { !is_other };
            sweep.now = sweep.next[usize::from(sweep.is_released)].take();
        }
        sweep.now.as_ref().map(|range| (range.from.clone(), sweep.is_released))
    }

    /// Continues the sweep of a table at `next`, or ends it.
    pub(super) fn sweep_to(&mut self, table: TableId, next: Option<Vec<u8>>) {
        let Some(sweep) = self.sweeps.get_mut(&table) else { return };
        let next = next.filter(|next| sweep.now.as_ref().is_some_and(|range| *next <= range.to));
        match (next, &mut sweep.now) {
            (Some(next), Some(range)) => range.from = next,
            _ => sweep.now = None,
        }
    }

    pub(super) fn held_rows(&self) -> Vec<HeldRows> {
        let mut tables = BTreeMap::new();
        let leaves = self.held.iter().flat_map(HashMap::values).map(|held| (held.table, 1, held.rows));
        let ranges = self.sweeps.iter().flat_map(|(&table, sweep)| {
            sweep.held.iter().flatten().map(move |range| (table, range.leaves, range.rows))
        });
        for (table, leaves, rows) in leaves.chain(ranges).filter(|&(_, _, rows)| rows > 0) {
            let sum = tables.entry(table).or_insert(HeldRows { table, ..HeldRows::default() });
            sum.leaves += leaves;
            sum.rows += rows;
        }
        tables.into_values().collect()
    }
}

impl Sweep {
    const fn is_due(&self) -> bool {
        self.now.is_some() || self.next[0].is_some() || self.next[1].is_some()
    }
}

//! What the purge comes back to.
//!
//! | state | a leaf is in it | it leaves it |
//! |---|---|---|
//! | queued | in the queue of the trees, once (see [`foreshore_btree::Trees::take_queued`]) | when the purge takes it |
//! | held | in [`Work::held`], once, for what an [`Until`] names: deleted rows that stay, a time, a live writer, a check | when that has ended |
//! | swept | by its keys, in the [`Sweep`] of its table | when the sweep has passed it |
//!
//! A held leaf that is queued again may have got rows that nothing holds. It is looked at again, but once in [`LOOKS`] at
//! most, however often scans queue it.
//!
//! **Bounds.** The queue has a fixed size, and [`MAX_HELD`] leaves of each kind are held one by one. Those that do not fit are
//! a range of keys of their table, all leaves of which are looked at. So memory does not grow with the leaves, and no
//! leaf is forgotten.
//!
//! A table is swept as a whole once after the database is opened, as soon as one of its leaves is queued: leaves that
//! were emptied before, and not freed, are found then.

use foreshore_base::limits::MAX_KEY;
use foreshore_base::{PageId, TableId, Xid};
use foreshore_btree::{QueuedLeaf, QueuedRange};
use foreshore_sync::Nanos;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Leaves that are held one by one, of each kind (see [`Until::kind`]).
pub(super) const MAX_HELD: usize = 4096;
/// Time within which a leaf that is held and queued is looked at once.
const LOOKS: Duration = Duration::from_secs(1);

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

/// What a leaf is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// It has a few rows that may go, and go together at this time.
    Time(Nanos),
    /// What this transaction deleted may go.
    Settled(Xid),
    /// This transaction is not rolled back any more, so that the leaf may be merged.
    Ended(Xid),
    /// No check walks the table any more, so that the leaf may be merged.
    Walked(TableId),
}

impl Until {
    const KINDS: usize = 3;

    /// What holds rows, what holds leaves for a writer, and what holds them for a check have bounds of their own, and none
    /// waits for another.
    const fn kind(self) -> usize {
        match self {
            Self::Time(_) | Self::Settled(_) => 0,
            Self::Ended(_) => 1,
            Self::Walked(_) => 2,
        }
    }
}

/// A leaf that the purge comes back to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) table: TableId,
    pub(super) until: Until,
    pub(super) rows: u64,
    /// When the purge looked at it.
    pub(super) looked: Nanos,
    /// Whether it was queued since. Then it may have got deleted rows that nothing holds.
    pub(super) is_queued: bool,
}

/// Leaves that are held together. The first of them says until when.
#[derive(Debug)]
struct HeldRange {
    keys: QueuedRange,
    until: Until,
    leaves: u64,
    rows: u64,
}

/// Leaves of one table that are looked at in key order.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// From the key that comes next.
    now: Option<QueuedRange>,
    /// Whether its leaves were held back from merges.
    is_released: bool,
    /// Come after that in turn, so that no key waits behind a range that begins again: what is queued or held rows, and what
    /// was held back from merges.
    next: [Option<QueuedRange>; 2],
    /// By [`Until::kind`].
    held: [Option<HeldRange>; Until::KINDS],
}

/// What the purge comes back to.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// By [`Until::kind`].
    held: [HashMap<PageId, Held>; Until::KINDS],
    /// Of all tables that a leaf was queued of.
    sweeps: BTreeMap<TableId, Sweep>,
    /// The table that was swept last.
    swept: TableId,
}

/// All keys of a table.
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
    /// Whether there is nothing to come back to.
    pub(super) fn is_empty(&self) -> bool {
        let has_more = |sweep: &Sweep| sweep.is_due() || sweep.held.iter().any(Option::is_some);
        self.held.iter().all(HashMap::is_empty) && !self.sweeps.values().any(has_more)
    }

    /// Notes that leaves of a table have deleted rows, or little else.
    pub(super) fn meet(&mut self, table: TableId) {
        self.sweep(table);
    }

    fn sweep(&mut self, table: TableId) -> &mut Sweep {
        self.sweeps.entry(table).or_insert_with(|| Sweep { next: [Some(all_keys()), None], ..Sweep::default() })
    }

    /// Has all leaves between two keys looked at.
    pub(super) fn add_range(&mut self, table: TableId, range: QueuedRange) {
        add(&mut self.sweep(table).next[0], range);
    }

    /// Has all leaves of a table looked at.
    pub(super) fn add_all(&mut self, table: TableId) {
        self.add_range(table, all_keys());
    }

    /// Whether a queued leaf was looked at less than [`LOOKS`] ago and is held. It is looked at when that time is over,
    /// whatever it is held for.
    pub(super) fn puts_off(&mut self, leaf: QueuedLeaf, now: Nanos) -> bool {
        let held = self.held.iter_mut().find_map(|held| held.get_mut(&leaf.page));
        let held = held.filter(|held| held.table == leaf.table);
        let Some(held) = held.filter(|held| now.since(held.looked) < LOOKS) else { return false };
        held.is_queued = true;
        true
    }

    /// Up to `most` held leaves of each [`Until::kind`] that nothing keeps any more, or that are to be looked at again: those first
    /// that were looked at longest ago. Ranges that nothing keeps are swept.
    pub(super) fn released(&mut self, may_go: impl Fn(Until) -> bool, most: usize) -> Vec<QueuedLeaf> {
        for sweep in self.sweeps.values_mut() {
            for (kind, held) in sweep.held.iter_mut().enumerate() {
                if let Some(held) = held.take_if(|held| may_go(held.until)) {
                    // A leaf that loses rows there is merged for that.
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

    /// Notes that a held leaf was looked at, in vain.
    pub(super) fn looked_at(&mut self, page: PageId, now: Nanos) {
        self.held.iter_mut().filter_map(|held| held.get_mut(&page)).for_each(|held| held.looked = now);
    }

    /// Comes back to a leaf later.
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

    /// Whether the purge comes back to a leaf.
    pub(super) fn holds(&self, page: PageId) -> bool {
        self.held.iter().any(|held| held.contains_key(&page))
    }

    /// Forgets a leaf that has nothing to come back to.
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

    /// The next table that has leaves to sweep, in turn, but for those that `is_out` says.
    pub(super) fn next_sweep(&mut self, is_out: impl Fn(TableId) -> bool) -> Option<TableId> {
        let due = |(&table, sweep): (&TableId, &Sweep)| (sweep.is_due() && !is_out(table)).then_some(table);
        let behind = self.sweeps.range(TableId(self.swept.0.saturating_add(1))..).find_map(due);
        let table = behind.or_else(|| self.sweeps.iter().find_map(due))?;
        self.swept = table;
        Some(table)
    }

    /// The key at which the sweep of a table goes on, and whether the leaf there is of a range that was held back from merges.
    pub(super) fn sweep_from(&mut self, table: TableId) -> Option<(Vec<u8>, bool)> {
        let sweep = self.sweeps.get_mut(&table)?;
        if sweep.now.is_none() {
            let is_other = !sweep.is_released;
            sweep.is_released = if sweep.next[usize::from(is_other)].is_some() { is_other } else { !is_other };
            sweep.now = sweep.next[usize::from(sweep.is_released)].take();
        }
        sweep.now.as_ref().map(|range| (range.from.clone(), sweep.is_released))
    }

    /// Goes on with the sweep of a table at `next`, or ends it.
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

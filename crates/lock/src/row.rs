//! Point locks: shared locks of single keys, as entries by key hash, counted where writers look.
//!
//! A key is locked whether it exists or not. What lies between keys is locked by intervals ([`crate::range`]); a key
//! that an interval of the transaction covers takes no point lock. A writer that met a foreign lock of either kind
//! takes its turn in the key's entry and queues in the list of its table ([`LockManager::wait_exclusive`]).

use crate::hash::{RowHash, Spread};
use crate::manager::{LockManager, Map, What};
use crate::mode::TableMode;
use crate::owner::{Owner, Wait};
use crate::target::Target;
use foreshore_base::Result;
use foreshore_sync::model::mutant;
use foreshore_sync::{LockRank, Mutex, MutexGuard, rmw};
use std::time::Duration;

/// Keys whose hashes fall together.
#[derive(Debug)]
pub(crate) struct RowShard {
    entries: Mutex<Map<u64, RowEntry>>,
}

/// A key that has readers, or a writer that waits for readers.
#[derive(Debug, Default)]
pub(crate) struct RowEntry {
    pub(crate) sharers: Sharers,
    /// Writers that met foreign readers, in the order of their turns. Readers that come later wait for all of them.
    pub(crate) turns: Vec<u32>,
    /// Readers that wait for the writers above.
    waiting: Vec<u32>,
}

/// Owners that read a key. Allocates only for the second.
#[derive(Debug, Default)]
pub(crate) struct Sharers {
    first: Option<u32>,
    more: Vec<u32>,
}

impl Sharers {
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// Whether `owner` is among them.
    pub(crate) fn has(&self, owner: u32) -> bool {
        self.iter().any(|member| member == owner)
    }

    /// Whether another owner is among them.
    pub(crate) fn has_other(&self, owner: u32) -> bool {
        self.iter().any(|member| member != owner)
    }

    fn insert(&mut self, owner: u32) {
        debug_assert!(!self.has(owner), "owner {owner} enters its shared lock of a row twice");
        match self.first {
            None => self.first = Some(owner),
            Some(_) => self.more.push(owner),
        }
    }

    fn remove(&mut self, owner: u32) {
        if self.first == Some(owner) {
            self.first = self.more.pop();
        } else {
            let at = self.more.iter().position(|&member| member == owner);
            self.more.swap_remove(at.expect("a shared lock that is released is held"));
        }
    }
}

impl RowEntry {
    fn is_empty(&self) -> bool {
        self.sharers.first.is_none() && self.turns.is_empty() && self.waiting.is_empty()
    }

    /// Whether `owner` may enter as a reader.
    fn admits(&self, owner: u32) -> bool {
        self.turns.iter().all(|&writer| writer == owner)
    }

    /// Whether it is the turn of writer `owner`, as far as point locks are concerned.
    pub(crate) fn is_turn_of(&self, owner: u32) -> bool {
        self.turns.first() == Some(&owner) && !self.sharers.has_other(owner)
    }

    /// Waiters that would go on if they looked now.
    fn grantable(&self) -> Vec<u32> {
        let writers = self.turns.iter().copied().filter(|&writer| self.is_turn_of(writer));
        let readers = self.waiting.iter().copied().filter(|&reader| self.admits(reader));
        writers.chain(readers).collect()
    }
}

/// What a request has entered that its transaction did not have, for [`LockManager::unshare`]. It may be nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewShare(Option<RowHash>);

/// A locked shard.
pub(crate) type Entries<'a> = MutexGuard<'a, Map<u64, RowEntry>>;

impl RowShard {
    pub(crate) fn new() -> Self {
        Self { entries: Mutex::new(LockRank::RowLocks, Map::with_hasher(Spread)) }
    }
}

/// How a request for a point lock has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entered {
    /// It is there now.
    New,
    /// It was there before.
    Held,
    /// A writer comes first.
    Refused,
}

impl LockManager {
    /// Enters a shared lock, to the end of the transaction; waits while a writer of another transaction has, or waits for,
    /// its turn. Entering it again costs a look.
    ///
    /// It enters nothing if the transaction's lock of the table lets it read all of it, or one of its intervals covers
    /// the key.
    ///
    /// The lock counts from the moment the caller reads the page afterwards, under a latch or validated by one. If it finds
    /// a live xid of another transaction in the header of a row, the entry stays and the caller goes to
    /// [`wait_xid`](Self::wait_xid).
    ///
    /// # Errors
    /// [`Deadlock`](foreshore_base::Error::Deadlock), [`LockTimeout`](foreshore_base::Error::LockTimeout).
    pub fn share(&self, owner: &mut Owner, target: Target<'_>, timeout: Duration) -> Result<()> {
        if self.reads_anyway(owner, target) {
            return Ok(());
        }
        let row = self.hash(target);
        match self.enter_share(owner, row, target, true) {
            Entered::New | Entered::Held => Ok(()),
            Entered::Refused => self.wait_to_share(owner, row, target, timeout),
        }
    }

    /// As [`share`](Self::share) if that does not have to wait; otherwise `false`, and nothing has changed.
    pub fn try_share(&self, owner: &mut Owner, target: Target<'_>) -> bool {
        self.try_share_anew(owner, target).is_some()
    }

    /// As [`try_share`](Self::try_share), for a caller that may give up what it has asked for; `None` for its `false`.
    pub fn try_share_anew(&self, owner: &mut Owner, target: Target<'_>) -> Option<NewShare> {
        if self.reads_anyway(owner, target) {
            return Some(NewShare(None));
        }
        let row = self.hash(target);
        match self.enter_share(owner, row, target, false) {
            Entered::New => Some(NewShare(Some(row))),
            Entered::Held => Some(NewShare(None)),
            Entered::Refused => None,
        }
    }

    /// Takes out again what [`try_share_anew`](Self::try_share_anew) has entered. For a caller that has handed out
    /// nothing that it read under that lock. A lock that has been merged into an interval since stays.
    pub fn unshare(&self, owner: &mut Owner, share: NewShare) {
        if mutant("share: what is given up stays") {
            return;
        }
        if let NewShare(Some(row)) = share
            && let Some(cost) = owner.shares.remove(row)
        {
            assert!(cost <= owner.charged, "a lock of {cost} units goes, {} are charged", owner.charged);
            owner.charged -= cost;
            self.release_share(owner.index, row);
        }
    }

    /// Whether a lock of `owner` beside point locks lets it read the key.
    fn reads_anyway(&self, owner: &Owner, target: Target<'_>) -> bool {
        owner.covers(target.table, TableMode::Shared) || self.covers_itself(owner, target)
    }

    /// Enters the lock. If it is refused, it is in line behind the writers if it may wait.
    fn enter_share(&self, owner: &mut Owner, row: RowHash, target: Target<'_>, may_wait: bool) -> Entered {
        let index = owner.index;
        let mut entries = self.entries(row);
        let entry = entries.entry(row.0).or_default();
        if entry.sharers.has(index) {
            return Entered::Held;
        }
        if !entry.admits(index) {
            if may_wait && !entry.waiting.contains(&index) {
                entry.waiting.push(index);
            }
            return Entered::Refused;
        }
        self.enter(owner, entries, row, target);
        Entered::New
    }

    /// Enters a lock that its owner does not have.
    pub(crate) fn enter(&self, owner: &mut Owner, mut entries: Entries<'_>, row: RowHash, target: Target<'_>) {
        let entry = entries.entry(row.0).or_default();
        let turns = &entry.turns;
        debug_assert!(entry.admits(owner.index), "reader {} enters before the writers {turns:?}", owner.index);
        entry.waiting.retain(|&reader| reader != owner.index);
        entry.sharers.insert(owner.index);
        drop(entries);
        owner.charged += owner.shares.push(row, target);
        self.counts.announce(row.0);
        self.keep_share(owner);
    }

    fn wait_to_share(&self, owner: &mut Owner, row: RowHash, target: Target<'_>, timeout: Duration) -> Result<()> {
        let what = What::Row(target);
        let mut wait = self.queue_wait(timeout);
        let outcome = loop {
            let seen = self.signal_of(owner.index);
            if self.enter_share(owner, row, target, true) != Entered::Refused {
                break Ok(());
            }
            if let Err(error) = self.sleep(owner, &mut wait, Wait::Row(row), seen, &what) {
                break Err(error);
            }
        };
        wait.end(owner);
        if outcome.is_err() {
            self.change_entry(row, |entry| entry.waiting.retain(|&reader| reader != owner.index));
        }
        outcome
    }

    /// Whether another transaction has the key shared, by a point lock or by an interval.
    ///
    /// For a writer that holds the page's exclusive latch, before it logs; if there is a row whose header it stores its
    /// xid in, then after it has. On `true` it puts the old header back, unlatches and goes to
    /// [`wait_exclusive`](Self::wait_exclusive). A writer that finds its own xid in the header already does not ask:
    /// readers that came since then wait for it.
    #[must_use]
    pub fn shared_by_other(&self, owner: &Owner, target: Target<'_>) -> bool {
        let row = self.hash(target);
        let ranges_first = mutant("range: the count of intervals is loaded first");
        let is_covered = ranges_first && self.is_covered_by_other(owner.index, target);
        // This order: a point lock that is merged into an interval is uncounted after the interval was counted.
        let is_shared = !mutant("sabotage: a writer does not look at the count of shared locks")
            && !self.counts.is_zero(row.0)
            && self.entries(row).get(&row.0).is_some_and(|entry| entry.sharers.has_other(owner.index));
        is_shared || is_covered || !ranges_first && self.is_covered_by_other(owner.index, target)
    }

    /// Whether `owner` has a point lock of the row.
    pub(crate) fn has_shared(&self, owner: u32, row: RowHash) -> bool {
        self.entries(row).get(&row.0).is_some_and(|entry| entry.sharers.has(owner))
    }

    pub(crate) fn release_share(&self, owner: u32, row: RowHash) {
        self.change_entry(row, |entry| entry.sharers.remove(owner));
        // The entry first: a writer that still sees the count looks into the table and finds nothing.
        self.counts.retire(row.0);
    }

    /// Changes an entry, wakes the waiters that can go on and drops an entry that is no longer needed.
    pub(crate) fn change_entry(&self, row: RowHash, change: impl FnOnce(&mut RowEntry)) {
        let mut entries = self.entries(row);
        let entry = entries.get_mut(&row.0).expect("a row with a lock or a waiter has an entry");
        change(entry);
        let woken = entry.grantable();
        if entry.is_empty() {
            entries.remove(&row.0);
        }
        drop(entries);
        if !mutant("sabotage: the end of a shared lock wakes no writer") {
            self.wake(&woken);
        }
    }

    /// Adds the owners that `owner`, waiting at the entry of a key, waits for: the writers before it, and, if it waits
    /// for its turn, the readers.
    pub(crate) fn row_blockers(&self, owner: u32, row: RowHash, into: &mut Vec<u32>) {
        let entries = self.entries(row);
        let Some(entry) = entries.get(&row.0) else { return };
        let turn = entry.turns.iter().position(|&writer| writer == owner);
        if turn.is_some() {
            into.extend(entry.sharers.iter().filter(|&reader| reader != owner));
        } else if !entry.waiting.contains(&owner) {
            return;
        }
        into.extend(entry.turns.iter().take(turn.unwrap_or(usize::MAX)));
    }

    /// Another transaction that has the key shared, or waits to have it exclusively.
    pub(crate) fn other_at(&self, owner: &Owner, target: Target<'_>) -> Option<u32> {
        let row = self.hash(target);
        let at_entry = self.entries(row).get(&row.0).and_then(|entry| {
            let mut all = entry.sharers.iter().chain(entry.turns.iter().copied());
            all.find(|&other| other != owner.index)
        });
        at_entry.or_else(|| self.other_over(owner, target))
    }

    pub(crate) fn entries(&self, row: RowHash) -> Entries<'_> {
        // High bits: the map spreads by all bits, the counters use the low ones.
        let shard = (row.0 >> 48) as usize % self.rows.len();
        // To lock and to unlock.
        rmw::contended(2);
        self.rows[shard].entries.lock()
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;
    use crate::LockOptions;
    use foreshore_base::TableId;
    use std::sync::Arc;

    #[test]
    fn a_row_without_readers_costs_a_writer_two_loads_and_leaves_no_entry() {
        let locks = Arc::new(LockManager::new(LockOptions { max_owners: 2, share_slots: 1, ..LockOptions::default() }));
        let target = Target::row(TableId(1), b"key");
        let row = locks.hash(target);
        let mut reader = locks.lease("reader").expect("a slot");
        let writer = locks.lease("writer").expect("a slot");
        for _ in 0..2 {
            assert!(locks.try_share(&mut reader, target));
        }
        assert!(!locks.counts.is_zero(row.0));
        assert!(locks.shared_by_other(&writer, target));
        assert!(!locks.shared_by_other(&reader, target), "its own lock");
        let another = Target::row(TableId(1), b"another");
        assert!(!locks.shared_by_other(&writer, another), "the slot is shared, the row is not");
        // What was held before stays; what is new goes.
        let again = locks.try_share_anew(&mut reader, target).expect("it is held");
        locks.unshare(&mut reader, again);
        assert!(locks.shared_by_other(&writer, target));
        let third = locks.try_share_anew(&mut reader, another).expect("nothing is there");
        assert!(locks.shared_by_other(&writer, another));
        locks.unshare(&mut reader, third);
        assert_eq!(reader.shares.len(), 1, "as before");
        assert!(locks.entries(locks.hash(another)).is_empty());
        locks.finish(&mut reader, None);
        assert!(locks.counts.is_zero(row.0), "entered twice, counted once");
        assert!(locks.entries(row).is_empty());
        assert_eq!(reader.charged, 0);
    }
}

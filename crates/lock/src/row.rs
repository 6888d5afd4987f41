//! Shared row locks: entries by row hash, counted where writers look.

use crate::hash::{RowHash, Spread};
use crate::manager::{LockManager, Map, What};
use crate::mode::TableMode;
use crate::owner::{Owner, Wait};
use foreshore_base::{Result, TableId};
use foreshore_sync::{LockRank, Mutex, MutexGuard, rmw};
use std::collections::VecDeque;
use std::time::Duration;

/// Rows whose hashes fall together.
#[derive(Debug)]
pub(crate) struct RowShard {
    entries: Mutex<Map<u64, RowEntry>>,
}

/// A row that has readers, or a writer that waits for readers.
#[derive(Debug, Default)]
pub(crate) struct RowEntry {
    pub(crate) sharers: OwnerSet,
    /// Writers that met foreign readers, in the order of their turns. Readers that come later wait for all of them.
    pub(crate) turns: VecDeque<u32>,
    /// Readers that wait for the writers above.
    waiting: Vec<u32>,
}

/// A set of owners that allocates only for the second.
#[derive(Debug, Default)]
pub(crate) struct OwnerSet {
    first: Option<u32>,
    more: Vec<u32>,
}

impl OwnerSet {
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    pub(crate) fn contains(&self, owner: u32) -> bool {
        self.iter().any(|member| member == owner)
    }

    /// Whether somebody else than `owner` is in it.
    pub(crate) fn has_other(&self, owner: u32) -> bool {
        self.iter().any(|member| member != owner)
    }

    fn insert(&mut self, owner: u32) {
        debug_assert!(!self.contains(owner));
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

    /// Whether it is the turn of writer `owner`.
    pub(crate) fn is_turn_of(&self, owner: u32) -> bool {
        self.turns.front() == Some(&owner) && !self.sharers.has_other(owner)
    }

    /// Waiters that would go on if they looked now.
    pub(crate) fn grantable(&self) -> Vec<u32> {
        match self.turns.front() {
            Some(&writer) if self.is_turn_of(writer) => vec![writer],
            Some(_) => Vec::new(),
            None => self.waiting.clone(),
        }
    }
}

/// A locked shard.
pub(crate) type Entries<'a> = MutexGuard<'a, Map<u64, RowEntry>>;

impl RowShard {
    pub(crate) fn new() -> Self {
        Self { entries: Mutex::new(LockRank::RowLocks, Map::with_hasher(Spread)) }
    }
}

impl LockManager {
    /// Enters a shared lock of the row, to the end of the transaction; waits while a writer of another transaction has, or
    /// waits for, its turn. Entering it again costs a look.
    ///
    /// It enters nothing if the transaction's lock of the table lets it read every row.
    ///
    /// The lock counts from the moment the caller reads the tuple header afterwards, under a latch or validated by one. If
    /// it finds a live xid of another transaction there, the entry stays and the caller goes to
    /// [`wait_xid`](Self::wait_xid).
    ///
    /// # Errors
    /// [`Deadlock`](foreshore_base::Error::Deadlock), [`LockTimeout`](foreshore_base::Error::LockTimeout),
    /// [`LockLimit`](foreshore_base::Error::LockLimit), before it waits and before anything has changed.
    pub fn share_row(&self, owner: &mut Owner, table: TableId, key: &[u8], timeout: Duration) -> Result<()> {
        let row = self.hash(table, key);
        if owner.covers(table, TableMode::Shared) || self.enter_share(owner, row, true)? {
            return Ok(());
        }
        self.wait_to_share(owner, row, &What { table, key: Some(key) }, timeout)
    }

    /// As [`share_row`](Self::share_row) if that does not have to wait; otherwise `false`, and nothing has changed.
    ///
    /// # Errors
    /// [`LockLimit`](foreshore_base::Error::LockLimit).
    pub fn try_share_row(&self, owner: &mut Owner, table: TableId, key: &[u8]) -> Result<bool> {
        Ok(owner.covers(table, TableMode::Shared) || self.enter_share(owner, self.hash(table, key), false)?)
    }

    /// False if it is refused, and then in line behind the writers if it may wait. Room is asked for only by who enters:
    /// a lock that is held takes no more of it.
    fn enter_share(&self, owner: &mut Owner, row: RowHash, may_wait: bool) -> Result<bool> {
        let index = owner.index;
        let mut entries = self.entries(row);
        let entry = entries.entry(row.0).or_default();
        if entry.sharers.contains(index) {
            return Ok(true);
        }
        if owner.shares.len() == owner.room {
            match self.room.more(owner.room) {
                Ok(room) => owner.room = room,
                Err(error) => {
                    if entry.is_empty() {
                        entries.remove(&row.0);
                    }
                    return Err(error);
                }
            }
        }
        if !entry.admits(index) {
            if may_wait && !entry.waiting.contains(&index) {
                entry.waiting.push(index);
            }
            return Ok(false);
        }
        entry.waiting.retain(|&reader| reader != index);
        entry.sharers.insert(index);
        drop(entries);
        owner.shares.push(row);
        self.counts.announce(row.0);
        Ok(true)
    }

    fn wait_to_share(&self, owner: &mut Owner, row: RowHash, what: &What<'_>, timeout: Duration) -> Result<()> {
        let mut wait = self.queue_wait(timeout);
        let outcome = loop {
            let seen = self.signal_of(owner.index);
            match self.enter_share(owner, row, true) {
                Ok(false) => {}
                entered => break entered.map(drop),
            }
            if let Err(error) = self.sleep(owner, &mut wait, Wait::Row(row), seen, what) {
                break Err(error);
            }
        };
        wait.end(owner);
        if outcome.is_err() {
            self.change_entry(row, |entry| entry.waiting.retain(|&reader| reader != owner.index));
        }
        outcome
    }

    /// Whether another transaction has a shared lock of the row.
    ///
    /// For a writer that holds the page's exclusive latch, after it has stored its xid in the tuple header and before it
    /// logs. On `true` it puts the old header back, unlatches and goes to [`wait_exclusive`](Self::wait_exclusive). A writer
    /// that finds its own xid in the header already does not ask: readers that came since then wait for it.
    #[must_use]
    pub fn shared_by_other(&self, owner: &Owner, table: TableId, key: &[u8]) -> bool {
        let row = self.hash(table, key);
        if self.counts.is_zero(row.0) {
            return false;
        }
        self.entries(row).get(&row.0).is_some_and(|entry| entry.sharers.has_other(owner.index))
    }

    pub(crate) fn release_share(&self, owner: u32, row: RowHash) {
        self.change_entry(row, |entry| entry.sharers.remove(owner));
        // The entry first: a writer that still sees the count looks into the table and finds nobody.
        self.counts.retire(row.0);
    }

    /// Changes an entry, wakes who can go on and drops an entry that is no longer needed.
    pub(crate) fn change_entry(&self, row: RowHash, change: impl FnOnce(&mut RowEntry)) {
        let mut entries = self.entries(row);
        let entry = entries.get_mut(&row.0).expect("a row with a lock or a waiter has an entry");
        change(entry);
        let woken = entry.grantable();
        if entry.is_empty() {
            entries.remove(&row.0);
        }
        drop(entries);
        self.wake(&woken);
    }

    /// Whom `owner`, waiting at the row's entry, waits for.
    pub(crate) fn row_blockers(&self, owner: u32, row: RowHash, into: &mut Vec<u32>) {
        let entries = self.entries(row);
        let Some(entry) = entries.get(&row.0) else { return };
        let turn = entry.turns.iter().position(|&writer| writer == owner);
        if turn.is_some() {
            into.extend(entry.sharers.iter().filter(|&reader| reader != owner));
        }
        into.extend(entry.turns.iter().take(turn.unwrap_or(usize::MAX)));
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
    use std::sync::Arc;

    #[test]
    fn a_row_without_readers_costs_a_writer_one_load_and_leaves_no_entry() {
        let locks = Arc::new(LockManager::new(LockOptions { max_owners: 2, share_slots: 1, ..LockOptions::default() }));
        let (table, key) = (TableId(1), b"key");
        let row = locks.hash(table, key);
        let mut reader = locks.lease("reader").expect("a slot");
        let writer = locks.lease("writer").expect("a slot");
        for _ in 0..2 {
            assert!(locks.try_share_row(&mut reader, table, key).expect("room"));
        }
        assert!(!locks.counts.is_zero(row.0));
        assert!(locks.shared_by_other(&writer, table, key));
        assert!(!locks.shared_by_other(&reader, table, key), "its own lock");
        assert!(!locks.shared_by_other(&writer, table, b"another"), "the slot is shared, the row is not");
        locks.finish(&mut reader, None);
        assert!(locks.counts.is_zero(row.0), "entered twice, counted once");
        assert!(locks.entries(row).is_empty());
    }
}

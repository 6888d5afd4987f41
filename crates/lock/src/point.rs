//! Point locks: shared locks of single keys, as entries by key hash. Counters tell a writer with one load that there
//! are none.
//!
//! A key is locked whether it exists or not. Gaps between keys are locked by intervals ([`crate::range`]). A writer
//! that meets another owner's lock of either kind queues for its turn in the key's entry.
//!
//! No call waits. A release wakes the waiters that can be granted their lock.

use crate::hash::{Map, RowHash, Spread, shards};
use crate::share_count::ShareCounts;
use crate::slots::Slots;
use foreshore_sync::model::mutant;
use foreshore_sync::{CachePadded, LockRank, Mutex, MutexGuard, rmw};

const SHARDS: usize = shards(256);

/// The entry of a key that has readers, or a writer that waits for readers.
#[derive(Debug, Default)]
struct Entry {
    sharers: Sharers,
    /// The queue of writers that met other readers, in the order of their turns. Later readers wait for all of them.
    turns: Vec<u32>,
    /// Readers that wait for the writers above.
    waiting: Vec<u32>,
}

/// The owners that read a key. The first one needs no allocation.
#[derive(Debug, Default)]
struct Sharers {
    first: Option<u32>,
    more: Vec<u32>,
}

impl Sharers {
    fn iter(&self) -> impl Iterator<Item = u32> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// Returns whether `owner` is one of the readers.
    fn has(&self, owner: u32) -> bool {
        self.iter().any(|member| member == owner)
    }

    /// Returns whether an owner other than `owner` is one of the readers.
    fn has_other(&self, owner: u32) -> bool {
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

impl Entry {
    fn is_empty(&self) -> bool {
        self.sharers.first.is_none() && self.turns.is_empty() && self.waiting.is_empty()
    }

    /// Returns whether `owner` may enter as a reader.
    fn admits(&self, owner: u32) -> bool {
        self.turns.iter().all(|&writer| writer == owner)
    }

    /// Returns whether no earlier writer and no other reader keeps writer `owner` from the key.
    fn is_turn_of(&self, owner: u32) -> bool {
        self.turns.first() == Some(&owner) && !self.sharers.has_other(owner)
    }

    /// Returns the waiters that can be granted their lock now.
    fn grantable(&self) -> Vec<u32> {
        let writers = self.turns.iter().copied().filter(|&writer| self.is_turn_of(writer));
        let readers = self.waiting.iter().copied().filter(|&reader| self.admits(reader));
        writers.chain(readers).collect()
    }
}

/// The result of a request for a point lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// Granted.
    New,
    /// The owner had the lock already.
    Held,
    /// Refused, because a writer is queued.
    Refused,
}

type Entries = Map<u64, Entry>;

/// The point locks of all owners.
#[derive(Debug)]
pub(crate) struct PointLocks {
    shards: Box<[CachePadded<Mutex<Entries>>]>,
    counts: ShareCounts,
}

impl PointLocks {
    pub(crate) fn new(counters: usize) -> Self {
        let shard = |_| CachePadded::new(Mutex::new(LockRank::RowLocks, Map::with_hasher(Spread)));
        Self { shards: (0..SHARDS).map(shard).collect(), counts: ShareCounts::new(counters) }
    }

    /// Requests a shared lock. If it is refused and `may_wait`, the owner is queued behind the writers.
    pub(crate) fn enter(&self, owner: u32, row: RowHash, may_wait: bool) -> Entered {
        let mut entries = self.entries(row);
        let entry = entries.entry(row.0).or_default();
        if entry.sharers.has(owner) {
            return Entered::Held;
        }
        if !entry.admits(owner) {
            if may_wait && !entry.waiting.contains(&owner) {
                entry.waiting.push(owner);
            }
            return Entered::Refused;
        }
        entry.waiting.retain(|&reader| reader != owner);
        entry.sharers.insert(owner);
        drop(entries);
        self.counts.announce(row.0);
        Entered::New
    }

    /// Cancels a queued request.
    pub(crate) fn cancel_request(&self, slots: &Slots, owner: u32, row: RowHash) {
        self.change(slots, row, |entry| entry.waiting.retain(|&reader| reader != owner));
    }

    pub(crate) fn release(&self, slots: &Slots, owner: u32, row: RowHash) {
        self.change(slots, row, |entry| entry.sharers.remove(owner));
        // After the entry: a writer that still sees the count checks the table and finds no lock.
        self.counts.retire(row.0);
    }

    /// Returns whether another owner has a point lock of the row. The caller is a writer that has stored its xid. It
    /// costs one load if no row of the same counter is locked.
    pub(crate) fn is_shared_by_other(&self, owner: u32, row: RowHash) -> bool {
        !mutant("sabotage: a writer does not look at the count of shared locks")
            && !self.counts.is_zero(row.0)
            && self.entries(row).get(&row.0).is_some_and(|entry| entry.sharers.has_other(owner))
    }

    /// Returns whether `owner` has a point lock of the row.
    pub(crate) fn has(&self, owner: u32, row: RowHash) -> bool {
        self.entries(row).get(&row.0).is_some_and(|entry| entry.sharers.has(owner))
    }

    /// Queues a writer for its turn. Later readers wait for it. A writer that has the key shared itself goes to the
    /// front. `covers` says that one of its intervals covers the key.
    pub(crate) fn enter_turn(&self, owner: u32, row: RowHash, covers: bool) {
        let mut entries = self.entries(row);
        let entry = entries.entry(row.0).or_default();
        let turns = &entry.turns;
        assert!(!turns.contains(&owner), "writer {owner} enters its turn twice: {turns:?}");
        if covers || entry.sharers.has(owner) {
            // Another writer may have its turn already, if this owner's locks were merged over the key meanwhile. Both
            // writers check again, and each sees the other's change.
            entry.turns.insert(0, owner);
        } else {
            entry.turns.push(owner);
        }
    }

    /// Returns whether no earlier writer and no point lock of another owner keeps writer `owner` from the key.
    pub(crate) fn is_turn_of(&self, owner: u32, row: RowHash) -> bool {
        self.entries(row).get(&row.0).is_some_and(|entry| entry.is_turn_of(owner))
    }

    pub(crate) fn leave_turn(&self, slots: &Slots, owner: u32, row: RowHash) {
        self.change(slots, row, |entry| {
            let at = entry.turns.iter().position(|&writer| writer == owner);
            assert!(at.is_some(), "writer {owner} leaves the turns {:?}, which it has not entered", entry.turns);
            at.map(|at| entry.turns.remove(at));
        });
    }

    /// Changes an entry, wakes the waiters that can now be granted, and drops an entry that is no longer needed.
    fn change(&self, slots: &Slots, row: RowHash, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.entries(row);
        let entry = entries.get_mut(&row.0).expect("a row with a lock or a waiter has an entry");
        change(entry);
        let woken = entry.grantable();
        if entry.is_empty() {
            entries.remove(&row.0);
        }
        drop(entries);
        if !mutant("sabotage: the end of a shared lock wakes no writer") {
            slots.wake(&woken);
        }
    }

    /// Adds the owners that `owner`, waiting at the entry of a key, waits for: the writers before it, and, if it waits
    /// for its turn, the readers.
    pub(crate) fn blockers(&self, owner: u32, row: RowHash, into: &mut Vec<u32>) {
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

    /// Returns an owner other than `owner` that has the key shared, or waits for an exclusive lock of it.
    pub(crate) fn other_at(&self, owner: u32, row: RowHash) -> Option<u32> {
        let entries = self.entries(row);
        let entry = entries.get(&row.0)?;
        entry.sharers.iter().chain(entry.turns.iter().copied()).find(|&other| other != owner)
    }

    fn entries(&self, row: RowHash) -> MutexGuard<'_, Entries> {
        // High bits: the map spreads by all bits, the counters use the low ones.
        let shard = (row.0 >> 48) as usize % self.shards.len();
        // One for the lock, one for the unlock.
        rmw::contended(2);
        self.shards[shard].lock()
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_readers_costs_a_writer_one_load_and_leaves_no_entry() {
        const READER: u32 = 0;
        const WRITER: u32 = 1;
        let (points, slots) = (PointLocks::new(1), Slots::new(2));
        let (row, another) = (RowHash(7), RowHash(8));
        assert_eq!(points.enter(READER, row, false), Entered::New);
        assert_eq!(points.enter(READER, row, false), Entered::Held);
        assert!(!points.counts.is_zero(row.0));
        assert!(points.is_shared_by_other(WRITER, row));
        assert!(!points.is_shared_by_other(READER, row), "its own lock");
        assert!(!points.is_shared_by_other(WRITER, another), "the counter is shared, the row is not");
        points.release(&slots, READER, row);
        assert!(points.counts.is_zero(row.0), "entered twice, counted once");
        assert!(points.entries(row).is_empty() && points.entries(another).is_empty());
    }
}

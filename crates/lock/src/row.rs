//! Shared locks of keys and of the gaps before them: entries by hash, counted where writers look.
//!
//! **Gaps.** A scan has each key that it meets, and the gap before it. A gap is known by the key at its end, whatever page
//! that is on; the last one by the end of the table. For as long as somebody has a gap, the key at its end stays in the tree,
//! dead or alive, and only its holder puts a key into it, which then inherits the holder's lock of the part that it cuts off
//! ([`LockManager::inherit_gap`]). So what an insert has to look at is the lock of the key behind it, and of its own key: to
//! know that a key does not exist its own lock is enough.

use crate::hash::{RowHash, Spread};
use crate::manager::{LockManager, Map, What};
use crate::mode::TableMode;
use crate::owner::{Owner, Wait};
use crate::target::{Part, Target};
use foreshore_base::{Result, TableId};
use foreshore_sync::model::mutant;
use foreshore_sync::{LockRank, Mutex, MutexGuard, rmw};
use std::collections::VecDeque;
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
    /// Writers that met foreign readers, in the order of their turns. Readers of the same part that come later wait for all
    /// of them.
    pub(crate) turns: VecDeque<(u32, Part)>,
    /// Readers that wait for the writers above.
    waiting: Vec<(u32, Part)>,
}

/// Owners, each with what it has. Allocates only for the second.
#[derive(Debug, Default)]
pub(crate) struct Sharers {
    first: Option<(u32, Part)>,
    more: Vec<(u32, Part)>,
}

impl Sharers {
    fn iter(&self) -> impl Iterator<Item = (u32, Part)> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// What `owner` has.
    pub(crate) fn part_of(&self, owner: u32) -> Option<Part> {
        self.iter().find(|&(member, _)| member == owner).map(|(_, part)| part)
    }

    fn get_mut(&mut self, owner: u32) -> Option<&mut Part> {
        let mut all = self.first.iter_mut().chain(&mut self.more);
        all.find(|(member, _)| *member == owner).map(|(_, part)| part)
    }

    /// Those who have a part.
    pub(crate) fn of(&self, part: Part) -> impl Iterator<Item = u32> {
        self.iter().filter(move |(_, held)| held.meets(part)).map(|(owner, _)| owner)
    }

    /// Whether `owner` has a part.
    pub(crate) fn has(&self, owner: u32, part: Part) -> bool {
        self.of(part).any(|member| member == owner)
    }

    /// Whether somebody else than `owner` has a part.
    pub(crate) fn has_other(&self, owner: u32, part: Part) -> bool {
        self.of(part).any(|member| member != owner)
    }

    fn insert(&mut self, owner: u32, part: Part) {
        match self.first {
            None => self.first = Some((owner, part)),
            Some(_) => self.more.push((owner, part)),
        }
    }

    /// Takes a part away from `owner`, and says whether that was all it had.
    fn remove_part(&mut self, owner: u32, part: Part) -> bool {
        let held = self.get_mut(owner).expect("a shared lock that is taken out again is held");
        *held = held.without(part);
        let is_all = held.is_empty();
        if is_all {
            self.remove(owner);
        }
        is_all
    }

    fn remove(&mut self, owner: u32) {
        if self.first.is_some_and(|(member, _)| member == owner) {
            self.first = self.more.pop();
        } else {
            let at = self.more.iter().position(|&(member, _)| member == owner);
            self.more.swap_remove(at.expect("a shared lock that is released is held"));
        }
    }
}

impl RowEntry {
    fn is_empty(&self) -> bool {
        self.sharers.first.is_none() && self.turns.is_empty() && self.waiting.is_empty()
    }

    /// Whether `owner` may enter as a reader.
    fn admits(&self, owner: u32, part: Part) -> bool {
        self.turns.iter().all(|&(writer, turn)| writer == owner || !turn.meets(part))
    }

    /// Whether it is the turn of writer `owner`.
    pub(crate) fn is_turn_of(&self, owner: u32, part: Part) -> bool {
        let first = self.turns.iter().find(|(_, turn)| turn.meets(part));
        first.is_some_and(|&(writer, _)| writer == owner) && !self.sharers.has_other(owner, part)
    }

    /// Waiters that would go on if they looked now.
    fn grantable(&self) -> Vec<u32> {
        let writers = self.turns.iter().filter(|&&(writer, part)| self.is_turn_of(writer, part));
        let readers = self.waiting.iter().filter(|&&(reader, part)| self.admits(reader, part));
        writers.chain(readers).map(|&(owner, _)| owner).collect()
    }
}

/// What a request has entered that its transaction did not have, for [`LockManager::unshare`]. It may be nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewShare {
    row: RowHash,
    part: Part,
}

/// Who has the gap that a key is inserted into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Nobody.
    Free,
    /// The one who inserts, alone: the new key inherits the lock.
    Mine,
    /// Others: the insert waits for them.
    Shared,
}

/// A locked shard.
pub(crate) type Entries<'a> = MutexGuard<'a, Map<u64, RowEntry>>;

impl RowShard {
    pub(crate) fn new() -> Self {
        Self { entries: Mutex::new(LockRank::RowLocks, Map::with_hasher(Spread)) }
    }
}

impl LockManager {
    /// Enters a shared lock, to the end of the transaction; waits while a writer of another transaction has, or waits for,
    /// its turn. Entering it again costs a look.
    ///
    /// It enters nothing if the transaction's lock of the table lets it read all of it.
    ///
    /// The lock counts from the moment the caller reads the page afterwards, under a latch or validated by one. If it finds
    /// a live xid of another transaction in the header of a row, the entry stays and the caller goes to
    /// [`wait_xid`](Self::wait_xid).
    ///
    /// # Errors
    /// [`Deadlock`](foreshore_base::Error::Deadlock), [`LockTimeout`](foreshore_base::Error::LockTimeout),
    /// [`LockLimit`](foreshore_base::Error::LockLimit), before it waits and before anything has changed.
    pub fn share(&self, owner: &mut Owner, target: Target<'_>, timeout: Duration) -> Result<()> {
        let row = self.hash(target);
        if owner.covers(target.table, TableMode::Shared) || self.enter_share(owner, row, target, true)?.is_some() {
            return Ok(());
        }
        self.wait_to_share(owner, row, target, timeout)
    }

    /// As [`share`](Self::share) if that does not have to wait; otherwise `false`, and nothing has changed.
    ///
    /// # Errors
    /// [`LockLimit`](foreshore_base::Error::LockLimit).
    pub fn try_share(&self, owner: &mut Owner, target: Target<'_>) -> Result<bool> {
        Ok(self.try_share_anew(owner, target)?.is_some())
    }

    /// As [`try_share`](Self::try_share), for who may give up what it has asked for; `None` for its `false`.
    ///
    /// # Errors
    /// [`LockLimit`](foreshore_base::Error::LockLimit).
    pub fn try_share_anew(&self, owner: &mut Owner, target: Target<'_>) -> Result<Option<NewShare>> {
        let row = self.hash(target);
        let entered = if owner.covers(target.table, TableMode::Shared) {
            Some(target.part.without(target.part))
        } else {
            self.enter_share(owner, row, target, false)?
        };
        Ok(entered.map(|part| NewShare { row, part }))
    }

    /// Takes out again what [`try_share_anew`](Self::try_share_anew) has entered. For who has handed out nothing that it read
    /// under that lock.
    pub fn unshare(&self, owner: &mut Owner, share: NewShare) {
        let NewShare { row, part } = share;
        if part.is_empty() || mutant("share: what is given up stays") {
            return;
        }
        let mut is_all = false;
        self.change_entry(row, |entry| is_all = entry.sharers.remove_part(owner.index, part));
        if is_all {
            let at = owner.shares.iter().rposition(|&share| share == row);
            owner.shares.swap_remove(at.expect("a key that is entered is in the owner's list"));
            self.counts.retire(row.0);
        }
    }

    /// Returns what it has entered, which is nothing if all of it was held. `None` if it is refused, and then in line behind
    /// the writers if it may wait. Room is asked for only by who enters: a lock that is held takes no more of it.
    fn enter_share(&self, owner: &mut Owner, row: RowHash, target: Target<'_>, may_wait: bool) -> Result<Option<Part>> {
        let index = owner.index;
        let mut entries = self.entries(row);
        let entry = entries.entry(row.0).or_default();
        // Who waits for what is held already does not keep its holder from the rest.
        let held = entry.sharers.get_mut(index).copied();
        let part = held.map_or(target.part, |held| target.part.without(held));
        if part.is_empty() {
            return Ok(Some(part));
        }
        if held.is_none() && owner.shares.len() == owner.room {
            match self.room.more(owner.room, target.table) {
                Ok(room) => owner.room = room,
                Err(error) => {
                    if entry.is_empty() {
                        entries.remove(&row.0);
                    }
                    return Err(error);
                }
            }
        }
        if !entry.admits(index, part) {
            if may_wait && !entry.waiting.contains(&(index, part)) {
                entry.waiting.push((index, part));
            }
            return Ok(None);
        }
        self.enter(owner, entries, row, part);
        Ok(Some(part))
    }

    /// Enters what there is room for. A second part of a key that is counted already is seen by whoever locks the shard
    /// after it, and who did so before has changed the page.
    pub(crate) fn enter(&self, owner: &mut Owner, mut entries: Entries<'_>, row: RowHash, part: Part) {
        let index = owner.index;
        let entry = entries.entry(row.0).or_default();
        entry.waiting.retain(|&(reader, _)| reader != index);
        match entry.sharers.get_mut(index) {
            Some(held) => *held = held.with(part),
            None => {
                entry.sharers.insert(index, part);
                drop(entries);
                owner.shares.push(row);
                self.counts.announce(row.0);
            }
        }
    }

    fn wait_to_share(&self, owner: &mut Owner, row: RowHash, target: Target<'_>, timeout: Duration) -> Result<()> {
        let what = What::Below(target);
        let mut wait = self.queue_wait(timeout);
        let outcome = loop {
            let seen = self.signal_of(owner.index);
            match self.enter_share(owner, row, target, true) {
                Ok(None) => {}
                entered => break entered.map(drop),
            }
            if let Err(error) = self.sleep(owner, &mut wait, Wait::Row(row, target.part), seen, &what) {
                break Err(error);
            }
        };
        wait.end(owner);
        if outcome.is_err() {
            self.change_entry(row, |entry| entry.waiting.retain(|&(reader, _)| reader != owner.index));
        }
        outcome
    }

    /// Whether another transaction has the target shared.
    ///
    /// For a writer that holds the page's exclusive latch, before it logs; if it stores its xid in the tuple header before
    /// that, then after it has. On `true` it puts the old header back, unlatches and goes to
    /// [`wait_exclusive`](Self::wait_exclusive). A writer that finds its own xid in the header already does not ask: readers
    /// that came since then wait for it.
    #[must_use]
    pub fn shared_by_other(&self, owner: &Owner, target: Target<'_>) -> bool {
        let row = self.hash(target);
        if self.counts.is_zero(row.0) {
            return false;
        }
        self.entries(row).get(&row.0).is_some_and(|entry| entry.sharers.has_other(owner.index, target.part))
    }

    /// Who has the gap before `next`, the key that follows the one to be inserted.
    ///
    /// For the holder of the page's exclusive latch, taken before and held until the key is in. Whoever enters the gap after
    /// this look reads the page after that.
    #[must_use]
    pub fn gap_before(&self, owner: &Owner, table: TableId, next: Option<&[u8]>) -> Gap {
        let row = self.hash(Target::gap(table, next));
        if self.counts.is_zero(row.0) {
            return Gap::Free;
        }
        let entries = self.entries(row);
        match entries.get(&row.0).map(|entry| &entry.sharers) {
            Some(sharers) if sharers.has_other(owner.index, Part::GAP) => Gap::Shared,
            Some(sharers) if sharers.has(owner.index, Part::GAP) => Gap::Mine,
            _ => Gap::Free,
        }
    }

    /// Enters the gap before a new `key` in a gap that `owner` has alone. Under the page's exclusive latch, before the key
    /// is in. It does not wait: the turn of an earlier key of that hash is one to look again, and finds this lock.
    ///
    /// # Errors
    /// [`LockLimit`](foreshore_base::Error::LockLimit).
    pub fn inherit_gap(&self, owner: &mut Owner, table: TableId, key: &[u8]) -> Result<()> {
        if owner.covers(table, TableMode::Shared) || mutant("gap: a new key inherits no lock") {
            return Ok(());
        }
        let row = self.hash(Target::gap(table, Some(key)));
        let mut entries = self.entries(row);
        let is_new = entries.get_mut(&row.0).is_none_or(|entry| entry.sharers.get_mut(owner.index).is_none());
        if is_new && owner.shares.len() == owner.room {
            owner.room = self.room.more(owner.room, table)?;
        }
        self.enter(owner, entries, row, Part::GAP);
        Ok(())
    }

    /// Whether anybody has the gap before `key`, so that the key must stay in the tree. For the holder of the page's
    /// exclusive latch, taken before and held until the key is out.
    #[must_use]
    pub fn is_gap_locked(&self, table: TableId, key: &[u8]) -> bool {
        let row = self.hash(Target::gap(table, Some(key)));
        if self.counts.is_zero(row.0) || mutant("gap: a key is taken out under its lock") {
            return false;
        }
        self.entries(row).get(&row.0).is_some_and(|entry| entry.sharers.of(Part::GAP).next().is_some())
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

    /// Whom `owner`, waiting for a part of a key, waits for.
    pub(crate) fn row_blockers(&self, owner: u32, row: RowHash, part: Part, into: &mut Vec<u32>) {
        let entries = self.entries(row);
        let Some(entry) = entries.get(&row.0) else { return };
        let held = entry.sharers.iter().find(|&(sharer, _)| sharer == owner);
        let turn = entry.turns.iter().position(|&(writer, _)| writer == owner);
        if turn.is_some() {
            into.extend(entry.sharers.of(part).filter(|&reader| reader != owner));
        }
        let part = if turn.is_none() { held.map_or(part, |(_, held)| part.without(held)) } else { part };
        let before = entry.turns.iter().take(turn.unwrap_or(usize::MAX));
        into.extend(before.filter(|(_, turn)| turn.meets(part)).map(|&(writer, _)| writer));
    }

    /// Another transaction that has the target shared, or waits to have it exclusively.
    pub(crate) fn other_at(&self, owner: &Owner, target: Target<'_>) -> Option<u32> {
        let row = self.hash(target);
        let entries = self.entries(row);
        let entry = entries.get(&row.0)?;
        let turns = entry.turns.iter().filter(|(_, part)| part.meets(target.part)).map(|&(writer, _)| writer);
        entry.sharers.of(target.part).chain(turns).find(|&other| other != owner.index)
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
        let target = Target::row(TableId(1), b"key");
        let row = locks.hash(target);
        let mut reader = locks.lease("reader").expect("a slot");
        let mut writer = locks.lease("writer").expect("a slot");
        for _ in 0..2 {
            assert!(locks.try_share(&mut reader, target).expect("room"));
        }
        assert!(!locks.counts.is_zero(row.0));
        assert!(locks.shared_by_other(&writer, target));
        assert!(!locks.shared_by_other(&reader, target), "its own lock");
        let another = Target::row(TableId(1), b"another");
        assert!(!locks.shared_by_other(&writer, another), "the slot is shared, the row is not");
        assert!(!locks.is_gap_locked(target.table, b"key"), "the gap is apart from the row");
        assert_eq!(locks.gap_before(&writer, target.table, Some(b"key")), Gap::Free);
        assert!(locks.try_share(&mut writer, Target::gap(target.table, Some(b"key"))).expect("room"));
        assert_eq!(locks.gap_before(&writer, target.table, Some(b"key")), Gap::Mine);
        assert_eq!(locks.gap_before(&reader, target.table, Some(b"key")), Gap::Shared);
        assert!(!locks.shared_by_other(&reader, target), "the row is apart from the gap");
        assert!(locks.try_share(&mut reader, Target::row_and_gap(target.table, b"key")).expect("room"));
        assert_eq!(reader.shares.len(), 1, "one entry for both");
        // The part that is given up goes, the one that was held before stays.
        let row_too = locks.try_share_anew(&mut writer, Target::row_and_gap(target.table, b"key")).expect("room");
        assert!(locks.shared_by_other(&reader, target));
        locks.unshare(&mut writer, row_too.expect("readers share"));
        assert!(!locks.shared_by_other(&reader, target));
        assert_eq!(locks.gap_before(&reader, target.table, Some(b"key")), Gap::Shared);
        let again = locks.try_share_anew(&mut writer, Target::gap(target.table, Some(b"key"))).expect("room");
        locks.unshare(&mut writer, again.expect("it is held"));
        assert_eq!(locks.gap_before(&reader, target.table, Some(b"key")), Gap::Shared, "nothing was new");
        let third = locks.try_share_anew(&mut writer, another).expect("room").expect("nobody is there");
        locks.unshare(&mut writer, third);
        assert_eq!(writer.shares, [row], "as before");
        assert!(locks.entries(locks.hash(another)).is_empty());
        locks.finish(&mut writer, None);
        assert!(locks.is_gap_locked(target.table, b"key"));
        locks.finish(&mut reader, None);
        assert!(locks.counts.is_zero(row.0), "entered twice, counted once");
        assert!(locks.entries(row).is_empty());
    }
}

//! Checks that walk a table, and merges of its leaves: one at a time.
//!
//! A walk relies on the nodes of the table to stay (see [`foreshore_btree::Tree::verify`]). Everything else continues
//! beside it: rows of that table are purged, and leaves of other tables are merged.
//!
//! 1. *Walk.* The check enters the table as walked, then waits for its running merges.
//! 2. *Merge.* The purge enters a table as merged, up to the end of its step, unless it is walked. Then its thin leaves
//!    are held until the walk is over.
//! 3. *Compact.* A compaction enters a table as merged for a step, like the purge. Only one of the two does so at a
//!    time, because a merge relies on no other thread to free nodes of the tree.
//! 4. *Turns.* Checks may follow each other without a pause. A walk after one that refused merges waits for a step that
//!    merges, for the time that its caller gives.

use foreshore_base::TableId;
use foreshore_sync::{Clock, LockRank, Mutex, Parker, SystemClock, Unparker};
use std::collections::HashSet;
use std::time::Duration;

/// Tables that are walked or merged.
#[derive(Debug)]
pub(crate) struct Walks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// One entry for each running check, which is one except when the database closes.
    walked: Vec<TableId>,
    merged: HashSet<TableId>,
    /// Tables in which a walk has refused merges, and none has begun since.
    refused: HashSet<TableId>,
    /// Checks that wait.
    waiting: Vec<Unparker>,
}

impl Default for Walks {
    fn default() -> Self {
        Self(Mutex::new(LockRank::Leaf, State::default()))
    }
}

/// A walk. It ends when this is dropped.
#[must_use = "the walk ends when this is dropped"]
pub(crate) struct Walk<'w>(&'w Walks, TableId);

/// Merges of a table. They end when this is dropped.
#[must_use = "the merges end when this is dropped"]
pub(crate) struct Merges<'w>(&'w Walks, TableId);

impl Walks {
    /// Begins to walk a table. No node of it is freed until the walk is dropped.
    pub(crate) fn walk(&self, table: TableId) -> Walk<'_> {
        self.0.lock().walked.push(table);
        let walk = Walk(self, table);
        // WAIT: park - for the end of a step of the purge, which merges no leaf of the table after it.
        self.wait(Duration::MAX, |state| state.merged.contains(&table));
        walk
    }

    /// Lets merges that a walk of the table has refused run first, if `signal` wakes the purge for them. Waits for at
    /// most `patience`.
    pub(super) fn let_merges_go(&self, table: TableId, patience: Duration, signal: impl FnOnce()) {
        if self.0.lock().refused.contains(&table) {
            signal();
            // WAIT: park - for a step of the purge that merges leaves of the table, or for the time.
            self.wait(patience, |state| state.refused.contains(&table));
            self.forget(table);
        }
    }

    /// Waits as long as `blocks` is true, and for at most `most`.
    fn wait(&self, most: Duration, blocks: impl Fn(&State) -> bool) {
        let (parker, clock) = (Parker::current(), SystemClock::new());
        let until = clock.now() + most;
        loop {
            let left = until.since(clock.now());
            {
                let mut state = self.0.lock();
                if left.is_zero() || !blocks(&state) {
                    return;
                }
                state.waiting.push(parker.unparker());
            }
            // WAIT: park - for the end of a step of the purge. This thread holds nothing that the step waits for.
            parker.park_timeout(left);
        }
    }

    /// Returns whether a check walks the table.
    pub(super) fn is_walked(&self, table: TableId) -> bool {
        self.0.lock().walked.contains(&table)
    }

    /// Begins merges of a table; `None` if a check walks it or another thread merges its leaves.
    pub(super) fn merge(&self, table: TableId) -> Option<Merges<'_>> {
        let mut state = self.0.lock();
        if state.walked.contains(&table) {
            state.refused.insert(table);
            return None;
        }
        state.merged.insert(table).then(|| Merges(self, table))
    }

    /// Begins merges of a table as [`merge`](Self::merge) does, and waits for at most `patience`.
    pub(super) fn merge_within(&self, table: TableId, patience: Duration) -> Option<Merges<'_>> {
        let clock = SystemClock::new();
        let until = clock.now() + patience;
        loop {
            if let Some(merges) = self.merge(table) {
                return Some(merges);
            }
            let left = until.since(clock.now());
            if left.is_zero() {
                return None;
            }
            // WAIT: park - for the end of a step of the purge or of a walk, or for the time.
            self.wait(left, |state| state.walked.contains(&table) || state.merged.contains(&table));
        }
    }

    /// Forgets that merges of a table were refused.
    pub(super) fn forget(&self, table: TableId) {
        self.change(|state| {
            state.refused.remove(&table);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waiting = {
            let mut state = self.0.lock();
            change(&mut state);
            std::mem::take(&mut state.waiting)
        };
        waiting.iter().for_each(Unparker::unpark);
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        let Self(walks, table) = *self;
        walks.change(|state| {
            if let Some(at) = state.walked.iter().position(|&walked| walked == table) {
                state.walked.swap_remove(at);
            }
        });
    }
}

impl Drop for Merges<'_> {
    fn drop(&mut self) {
        let Self(walks, table) = *self;
        walks.change(|state| {
            state.merged.remove(&table);
            state.refused.remove(&table);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
    use foreshore_sync::primitive::thread;

    const TABLE: TableId = TableId(7);

    #[test]
    fn a_walk_begins_when_the_merges_of_its_table_have_ended() {
        let (walks, has_ended) = (Walks::default(), AtomicBool::new(false));
        let merges = walks.merge(TABLE).unwrap();
        drop(walks.walk(TableId(8)));
        thread::scope(|scope| {
            let walker = scope.spawn(|| {
                let _walk = walks.walk(TABLE);
                // ORDERING: hint, the mutex of the walks orders it.
                assert!(has_ended.load(Ordering::Relaxed), "merges beside a walk");
            });
            while !walks.is_walked(TABLE) && !walker.is_finished() {
                thread::yield_now();
            }
            assert!(walks.merge(TABLE).is_none(), "the walk comes first");
            // ORDERING: hint, as above.
            has_ended.store(true, Ordering::Relaxed);
            drop(merges);
            walker.join().unwrap();
        });
        assert!(walks.merge(TABLE).is_some());
    }

    #[test]
    fn walks_in_a_row_let_merges_go() {
        let walks = Walks::default();
        walks.let_merges_go(TABLE, Duration::MAX, || unreachable!("none was refused"));
        let walk = walks.walk(TABLE);
        assert!(walks.merge(TABLE).is_none() && walks.merge(TableId(8)).is_some());
        drop(walk);
        let (mut has_merged, merged) = (false, AtomicBool::new(false));
        thread::scope(|scope| {
            walks.let_merges_go(TABLE, Duration::MAX, || {
                has_merged = true;
                scope.spawn(|| {
                    let _merges = walks.merge(TABLE).unwrap();
                    // ORDERING: hint, the mutex of the walks orders it.
                    merged.store(true, Ordering::Relaxed);
                });
            });
            // ORDERING: hint, as above.
            assert!(merged.load(Ordering::Relaxed), "the walk has not waited");
        });
        assert!(has_merged);
        walks.let_merges_go(TABLE, Duration::MAX, || unreachable!("they have gone"));
    }

    #[test]
    fn merges_that_do_not_come_are_waited_for_once() {
        let walks = Walks::default();
        let walk = walks.walk(TABLE);
        assert!(walks.merge(TABLE).is_none());
        drop(walk);
        let mut signals = 0;
        (0..2).for_each(|_| walks.let_merges_go(TABLE, Duration::from_millis(1), || signals += 1));
        assert_eq!(signals, 1);
    }
}

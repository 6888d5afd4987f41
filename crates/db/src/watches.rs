//! Watches of tables: a watch is signalled when a row may have come into its table.
//!
//! | event | tables whose watches are signalled |
//! |---|---|
//! | commit | those into which the transaction has inserted |
//! | commit of a transaction that has locked rows and changed none | those that it has opened |
//! | commit after a rollback to a savepoint | those that it has opened |
//! | rollback of a transaction that has changed or locked rows | those that it has opened |
//! | end of a prepared or a parked transaction | all |
//! | commit of the drop of a table | that one, for good |
//!
//! Most of these events concern queues: a consumer that skips locked rows would like to learn that one is free again.
//! It does not learn of all, so it waits with a timeout (see [`InsertWatch`](crate::InsertWatch)). A signal may be
//! spurious.
//!
//! **Protocol.** A watch is *armed* while it has no signal. The consumer:
//! 1. arms its watch under the lock, which raises the table's count of armed watches;
//! 2. fences, and then reads the table in a new transaction;
//! 3. waits if it has found no row.
//!
//! The transaction that ends makes its changes visible and releases its locks, fences, and then loads the counts of its
//! tables. It takes the lock only if one is not zero. So either the consumer reads the row, or its watch is signalled.
//!
//! The lab may hold locks until a commit is durable. Then a consumer that skips locked rows may miss the row.
//!
//! **Invariant:** no code of users, such as a waker, runs under the lock.

use crate::Error;
use foreshore_base::TableId;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering, fence};
use foreshore_sync::{CachePadded, LockRank, Mutex, Unparker};
use std::collections::BTreeMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Tables that a [`TableSet`] can name.
const NAMED: usize = 4;
/// Counts of armed watches. Tables with the same remainder share one, so commits rarely lock for watches of another
/// table.
const COUNTS: usize = 16;

/// A small set of tables, which becomes the set of all tables if it is full. It needs no memory of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSet {
    tables: [TableId; NAMED],
    count: usize,
    is_all: bool,
}

impl Default for TableSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl TableSet {
    pub(crate) const EMPTY: Self = Self { tables: [TableId(0); NAMED], count: 0, is_all: false };
    pub(crate) const ALL: Self = Self { is_all: true, ..Self::EMPTY };

    /// Adds a table.
    #[inline]
    pub(crate) fn add(&mut self, table: TableId) {
        if self.named().contains(&table) {
            return;
        }
        match self.tables.get_mut(self.count) {
            Some(place) => {
                *place = table;
                self.count += 1;
            }
            None => self.is_all = true,
        }
    }

    fn named(&self) -> &[TableId] {
        &self.tables[..self.count]
    }

    fn is_empty(&self) -> bool {
        self.count == 0 && !self.is_all
    }
}

/// What waits for the signal of a watch.
pub(crate) enum Waiter {
    Thread(Unparker),
    Task(Waker),
}

impl Waiter {
    fn wake(self) {
        match self {
            Self::Thread(unparker) => unparker.unpark(),
            // A waker is code of a user. Its panic must not get into the end of a transaction.
            Self::Task(waker) => {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    // Its drop may panic, too.
                    mem::forget(panic);
                }
            }
        }
    }
}

/// State of a watch.
#[derive(Default)]
struct Watch {
    is_signalled: bool,
    /// Whether the table was dropped.
    is_dropped: bool,
    waiter: Option<Waiter>,
}

/// Name of a watch: its table, and a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatchKey {
    table: TableId,
    number: u64,
}

impl WatchKey {
    pub(crate) const fn table(self) -> TableId {
        self.table
    }
}

/// The watches of all tables.
pub(crate) struct Watches {
    /// Watches without a signal, counted by table. Written under the lock.
    armed: [CachePadded<AtomicUsize>; COUNTS],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watches: BTreeMap<WatchKey, Watch>,
    last: u64,
    /// The reason for which all waits have ended.
    stopped: Option<Error>,
}

impl State {
    /// Returns the watches of a table.
    fn of(&mut self, table: TableId) -> impl Iterator<Item = (&WatchKey, &mut Watch)> {
        let [first, last] = [0, u64::MAX].map(|number| WatchKey { table, number });
        self.watches.range_mut(first..=last)
    }
}

impl Watches {
    pub(crate) fn new() -> Self {
        let state = Mutex::new(LockRank::Leaf, State::default());
        Self { armed: [0; COUNTS].map(|zero| CachePadded::new(AtomicUsize::new(zero))), state }
    }

    /// Adds an armed watch of a table. A transaction that begins after this call sees what was committed before.
    pub(crate) fn add(&self, table: TableId) -> Result<WatchKey, Error> {
        let key = {
            let mut state = self.state.lock();
            if let Some(cause) = &state.stopped {
                return Err(cause.clone());
            }
            state.last += 1;
            let key = WatchKey { table, number: state.last };
            state.watches.insert(key, Watch::default());
            self.arm(table);
            key
        };
        fence_armed();
        Ok(key)
    }

    /// Removes a watch.
    pub(crate) fn remove(&self, key: WatchKey) {
        let removed = {
            let mut state = self.state.lock();
            let removed = state.watches.remove(&key);
            if removed.as_ref().is_some_and(|watch| !watch.is_signalled) {
                self.disarm(key.table);
            }
            removed
        };
        // A waker is code of a user.
        drop(removed);
    }

    /// Returns whether a table has watches.
    pub(crate) fn has_any(&self, table: TableId) -> bool {
        self.state.lock().of(table).next().is_some()
    }

    /// Takes the signal of a watch, which arms it again, and returns true. If there is none, registers `waiter` in
    /// place of the one before.
    pub(crate) fn take_signal(&self, key: WatchKey, waiter: Option<Waiter>) -> Result<bool, Error> {
        // Dropped after the lock is released.
        let _old;
        {
            let mut state = self.state.lock();
            if let Some(cause) = &state.stopped {
                return Err(cause.clone());
            }
            let watch = state.watches.get_mut(&key).expect("a watch stays until it is removed");
            if watch.is_dropped {
                return Err(Error::TableDropped { table: key.table.into() });
            }
            if !watch.is_signalled {
                _old = mem::replace(&mut watch.waiter, waiter);
                return Ok(false);
            }
            watch.is_signalled = false;
            self.arm(key.table);
        }
        fence_armed();
        Ok(true)
    }

    /// Signals the watches of `tables`. The changes of the transaction that ends are visible, and its locks are free.
    #[inline]
    pub(crate) fn signal(&self, tables: &TableSet) {
        if tables.is_empty() {
            return;
        }
        // ORDERING: store, fence, look: the status of the transaction, then the counts; pairs with `fence_armed`.
        fence(Ordering::SeqCst);
        let is_armed = |count: &AtomicUsize| count.load(Ordering::Relaxed) != 0;
        let has_armed = if tables.is_all {
            self.armed.iter().any(|count| is_armed(count))
        } else {
            tables.named().iter().any(|&table| is_armed(self.armed(table)))
        };
        if has_armed {
            self.signal_armed(tables);
        }
    }

    #[cold]
    fn signal_armed(&self, tables: &TableSet) {
        self.wake(|state, woken| {
            let mut signal = |(key, watch): (&WatchKey, &mut Watch)| {
                if !mem::replace(&mut watch.is_signalled, true) {
                    self.disarm(key.table);
                    woken.extend(watch.waiter.take());
                }
            };
            if tables.is_all {
                state.watches.iter_mut().for_each(signal);
            } else {
                tables.named().iter().for_each(|&table| state.of(table).for_each(&mut signal));
            }
        });
    }

    /// Ends the waits for inserts into a dropped table. Its drop is durable.
    pub(crate) fn table_dropped(&self, table: TableId) {
        self.wake(|state, woken| {
            for (_, watch) in state.of(table) {
                watch.is_dropped = true;
                woken.extend(watch.waiter.take());
            }
        });
    }

    /// Ends all waits with `cause`. The first cause stays.
    pub(crate) fn stop(&self, cause: &Error) {
        self.wake(|state, woken| {
            state.stopped.get_or_insert_with(|| cause.clone());
            woken.extend(state.watches.values_mut().filter_map(|watch| watch.waiter.take()));
        });
    }

    /// Wakes the waiters that `take` takes under the lock.
    fn wake(&self, take: impl FnOnce(&mut State, &mut Vec<Waiter>)) {
        let mut woken = Vec::new();
        take(&mut self.state.lock(), &mut woken);
        woken.into_iter().for_each(Waiter::wake);
    }

    /// Returns the count of armed watches of a table, and of others.
    fn armed(&self, table: TableId) -> &AtomicUsize {
        &self.armed[table.0 as usize % COUNTS]
    }

    /// Counts a watch as armed. Called under the lock.
    fn arm(&self, table: TableId) {
        let count = self.armed(table);
        // ORDERING: Relaxed, written under the lock; the fences of `fence_armed` and `signal` order it.
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts a watch as no longer armed. Called under the lock.
    fn disarm(&self, table: TableId) {
        let count = self.armed(table);
        // ORDERING: as in `arm`. A count read too high costs the lock.
        let armed = count.load(Ordering::Relaxed);
        assert!(armed > 0, "a watch without a signal is counted");
        count.store(armed - 1, Ordering::Relaxed);
    }
}

/// The fence of a consumer between arming its watch and reading the table.
fn fence_armed() {
    // ORDERING: store, fence, look: the count of armed watches, then the table; pairs with `signal`.
    fence(Ordering::SeqCst);
}

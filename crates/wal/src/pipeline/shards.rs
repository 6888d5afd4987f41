//! Calls that wait for an LSN: the wakers of futures and the callbacks of users, in shards by session.
//!
//! Each shard is ordered by LSN. So a completed group costs one load if no call waits. Otherwise it costs a check of
//! each shard in use, and the calls that are due.
//!
//! A shard has a *consumer token*: one thread at a time removes entries and calls them. So the callbacks of a session
//! come in order, a callback that registers another does not recurse, and no thread waits for a token. Two
//! store-buffering pairs with `SeqCst` fences make sure that no call is lost:
//!
//! | writes, fences, then reads | writes, fences, then reads |
//! |---|---|
//! | the thread that registers: the entry; reads durable | the thread that completes: durable; reads the entries |
//! | the holder of the token: releases it; reads durable and the entries | a thread that completes or registers: durable or an entry; tries the token |

use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use foreshore_sync::{CachePadded, LockRank, Mutex};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// The key of one waiter: the LSN that it waits for, and a number that no other waiter has.
pub type Key = (Lsn, u64);

/// The value of [`Shard::first`] for an empty shard.
const NONE: u64 = u64::MAX;

/// The largest number of shards: one for each bit of the word that says which are in use.
pub(crate) const SHARDS: usize = 64;

/// A waiting call. The argument of a function says whether its LSN is durable; if not, the log has stopped.
pub(super) enum Call {
    Waker(Waker),
    Function(Box<dyn FnOnce(bool) + Send>),
}

struct Shard {
    /// The least LSN of a waiting call, or [`NONE`]. Written under the lock.
    first: AtomicU64,
    /// The consumer token. Set while a thread makes calls of this shard. That thread checks the shard again afterwards.
    taken: AtomicBool,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next_id: u64,
    calls: BTreeMap<Key, Call>,
}

/// The waiting calls of one kind.
pub(super) struct Shards {
    shards: Box<[CachePadded<Shard>]>,
    /// Bit `i`: shard `i` is not empty. Written under its lock.
    used: CachePadded<AtomicU64>,
    /// Count of calls that panicked.
    panics: AtomicU64,
}

impl Shards {
    /// Creates the shards for `slots` sessions.
    pub(super) fn new(slots: usize) -> Self {
        let shard = |_| {
            let list = Mutex::new(LockRank::LogWaiters, List::default());
            CachePadded::new(Shard { first: AtomicU64::new(NONE), taken: AtomicBool::new(false), list })
        };
        let shards = (0..slots.clamp(1, SHARDS)).map(shard).collect();
        Self { shards, used: CachePadded::new(AtomicU64::new(0)), panics: AtomicU64::new(0) }
    }

    fn edit<R>(&self, shard: usize, edit: impl FnOnce(&mut List) -> R) -> R {
        let place = &self.shards[shard];
        let mut list = place.list.lock();
        let result = edit(&mut list);
        let first = list.calls.first_key_value().map_or(NONE, |(key, _)| key.0.0);
        // ORDERING: Relaxed, written under the lock alone.
        let before = place.first.load(Ordering::Relaxed);
        if first != before {
            // ORDERING: Relaxed on all of these: the fences in the table at the head of the file order them for readers
            // without the lock.
            place.first.store(first, Ordering::Relaxed);
            if before == NONE {
                self.used.fetch_or(1 << shard, Ordering::Relaxed);
            } else if first == NONE {
                self.used.fetch_and(!(1 << shard), Ordering::Relaxed);
            }
        }
        result
    }

    /// Registers a call in the shard of `slot`. The caller then fences and reads the durable LSN.
    pub(super) fn add(&self, slot: usize, lsn: Lsn, call: Call) -> Key {
        let (shard, count) = (slot % self.shards.len(), self.shards.len() as u64);
        self.edit(shard, |list| {
            list.next_id += 1;
            let key = (lsn, list.next_id * count + shard as u64);
            let before = list.calls.insert(key, call);
            assert!(before.is_none(), "two calls wait as {key:?}");
            key
        })
    }

    /// Whether the shard of `slot` has a call, as far as this thread has seen.
    #[inline]
    pub(super) fn has_any(&self, slot: usize) -> bool {
        // ORDERING: Relaxed, a hint, or the caller's own registration.
        self.shards[slot % self.shards.len()].first.load(Ordering::Relaxed) != NONE
    }

    /// Removes a call, if it is still registered.
    pub(super) fn remove(&self, key: Key) {
        let shard = (key.1 % self.shards.len() as u64) as usize;
        // Dropping a waker runs code of its executor, so it happens after the lock.
        drop(self.edit(shard, |list| list.calls.remove(&key)));
    }

    /// Returns whether a call is due that no thread is about to make. The caller has executed a `SeqCst` fence.
    pub(super) fn is_due(&self, durable: impl Fn() -> (Lsn, Lsn)) -> bool {
        // ORDERING: Relaxed on all three loads, ordered by the fence of the caller as in `call_all`.
        let mut used = self.used.load(Ordering::Relaxed);
        let upto = durable().0;
        while used != 0 {
            let shard = &self.shards[used.trailing_zeros() as usize];
            // ORDERING: Relaxed, ordered by the caller's fence.
            let first = shard.first.load(Ordering::Relaxed);
            // ORDERING: as above. The holder of the token reads again: second row of the table above.
            if first != NONE && first <= upto.0 && !shard.taken.load(Ordering::Relaxed) {
                return true;
            }
            used &= used - 1;
        }
        false
    }

    /// Makes the due calls of all shards. `durable` returns the LSN up to which calls are due, and the durable LSN. The
    /// caller has executed a `SeqCst` fence.
    pub(super) fn call_all(&self, durable: impl Fn() -> (Lsn, Lsn)) {
        // ORDERING: Relaxed, ordered by the caller's fence and the one that follows a registration.
        let mut used = self.used.load(Ordering::Relaxed);
        while used != 0 {
            self.call(used.trailing_zeros() as usize, &durable);
            used &= used - 1;
        }
    }

    /// Makes the due calls of the shard of `slot`, like [`Self::call_all`].
    pub(super) fn call(&self, slot: usize, durable: impl Fn() -> (Lsn, Lsn)) {
        let shard = slot % self.shards.len();
        let place = &self.shards[shard];
        loop {
            let (upto, certain) = durable();
            // ORDERING: Relaxed, ordered by the fence of the caller or of the round before.
            let first = place.first.load(Ordering::Relaxed);
            if first == NONE || first > upto.0 {
                return;
            }
            // ORDERING: Acquire, so that the calls of the last holder happened before; pairs with the store below.
            // Relaxed on failure: the holder reads again.
            if place.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
                return;
            }
            // Removed one by one, because splitting the map would count all entries that stay.
            let due = self.edit(shard, |list| {
                let mut due = Vec::new();
                while let Some(entry) = list.calls.first_entry().filter(|entry| entry.key().0 <= upto) {
                    due.push(entry.remove_entry());
                }
                due
            });
            for ((lsn, _), call) in due {
                // A panic in a call must not count as one of the leader: its group is durable, and other calls are due.
                let outcome = catch_unwind(AssertUnwindSafe(|| match call {
                    Call::Waker(waker) => waker.wake(),
                    Call::Function(function) => function(lsn <= certain),
                }));
                // ORDERING: Relaxed, a counter.
                self.panics.fetch_add(u64::from(outcome.is_err()), Ordering::Relaxed);
            }
            // ORDERING: Release, pairs with the exchange above.
            place.taken.store(false, Ordering::Release);
            if mutant("acks: no check after the token") {
                return;
            }
            // ORDERING: store, fence, load: second row of the table above.
            fence(Ordering::SeqCst);
        }
    }

    /// Returns the number of waiting calls.
    pub(super) fn outstanding(&self) -> usize {
        self.shards.iter().map(|shard| shard.list.lock().calls.len()).sum()
    }

    /// Returns the number of calls that panicked.
    pub(super) fn panics(&self) -> u64 {
        // ORDERING: Relaxed, a counter.
        self.panics.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Log = Arc<Mutex<Vec<(u64, bool)>>>;

    fn noting(calls: &Log, lsn: u64) -> Call {
        let calls = calls.clone();
        Call::Function(Box::new(move |durable| calls.lock().push((lsn, durable))))
    }

    #[test]
    fn calls_come_once_in_order_and_only_when_due() {
        let (acks, calls) = (Shards::new(4), Log::new(Mutex::new(LockRank::Leaf, Vec::new())));
        for lsn in [7, 3, 5, 9] {
            acks.add(2, Lsn(lsn), noting(&calls, lsn));
        }
        let gone = acks.add(2, Lsn(4), noting(&calls, 4));
        acks.add(3, Lsn(5), Call::Function(Box::new(|_| panic!("a panic in a callback"))));
        acks.remove(gone);
        acks.call_all(|| (Lsn(2), Lsn(2)));
        assert!(calls.lock().is_empty());
        acks.call_all(|| (Lsn(5), Lsn(5)));
        assert_eq!(*calls.lock(), [(3, true), (5, true)]);
        assert_eq!(acks.panics(), 1);
        // The log stops: what is not durable learns that.
        acks.call_all(|| (Lsn(u64::MAX), Lsn(7)));
        assert_eq!(*calls.lock(), [(3, true), (5, true), (7, true), (9, false)]);
        assert_eq!(acks.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_call_that_registers_another_does_not_recurse() {
        let acks = Arc::new(Shards::new(1));
        let calls = Log::new(Mutex::new(LockRank::Leaf, Vec::new()));
        let (inner, noted) = (acks.clone(), calls.clone());
        let outer = move |_| {
            inner.add(0, Lsn(1), noting(&noted, 1));
            inner.call(0, || (Lsn(1), Lsn(1)));
            noted.lock().push((0, true));
        };
        acks.add(0, Lsn(1), Call::Function(Box::new(outer)));
        acks.call_all(|| (Lsn(1), Lsn(1)));
        assert_eq!(*calls.lock(), [(0, true), (1, true)], "the inner one is called after the outer one has ended");
    }
}

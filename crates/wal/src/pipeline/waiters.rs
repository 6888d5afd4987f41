//! Who waits for durability: parked threads and the wakers of futures, by the LSN they wait for.

use foreshore_base::Lsn;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{LockRank, Mutex, Unparker};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// The place of one waiter: what it waits for, and a number that no other waiter has.
pub type Key = (Lsn, u64);

#[derive(Debug, Default)]
struct Lists {
    next_id: u64,
    threads: BTreeMap<Key, Unparker>,
    futures: BTreeMap<Key, Waker>,
}

/// The registered waiters. Registration and look follow the fences of the pipeline; the lock alone orders nothing else.
#[derive(Debug)]
pub(super) struct Waiters {
    /// Entries of both lists. Written under their lock.
    count: AtomicUsize,
    lists: Mutex<Lists>,
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self { count: AtomicUsize::new(0), lists: Mutex::new(LockRank::LogWaiters, Lists::default()) }
    }

    /// Whether nobody is registered. Behind a `SeqCst` fence: a waiter that is not counted yet looks again itself.
    pub(super) fn is_empty(&self) -> bool {
        // ORDERING: Relaxed, ordered by the caller's fence and the one that follows a registration.
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Registers a thread that is about to park. A fence and a look at the state follow.
    pub(super) fn add_thread(&self, lsn: Lsn, unparker: Unparker) -> Key {
        self.edit(|lists| {
            let key = lists.key(lsn);
            lists.threads.insert(key, unparker);
            key
        })
    }

    /// Takes a thread out, if it is still there.
    pub(super) fn remove_thread(&self, key: Key) {
        drop(self.edit(|lists| lists.threads.remove(&key)));
    }

    /// Whether no other thread waits for less than `key` does and more than `lsn`.
    pub(super) fn is_first(&self, key: Key, lsn: Lsn) -> bool {
        let lists = self.lists.lock();
        lists.threads.range(after(lsn)..).next().is_none_or(|(&first, _)| first >= key)
    }

    /// Registers a future. A fence and a look at the state follow.
    pub(super) fn add_future(&self, lsn: Lsn, waker: Waker) -> Key {
        self.edit(|lists| {
            let key = lists.key(lsn);
            lists.futures.insert(key, waker);
            key
        })
    }

    /// Takes a future out, if it is still there.
    pub(super) fn remove_future(&self, key: Key) {
        // Dropping a waker runs code of its executor, so it happens after the lock.
        drop(self.edit(|lists| lists.futures.remove(&key)));
    }

    /// Wakes and takes out all who wait for `upto` or less, and one thread that waits for more than `lead_beyond`, to
    /// take the lead.
    pub(super) fn wake(&self, upto: Lsn, lead_beyond: Option<Lsn>) {
        let (next, threads, futures) = self.edit(|lists| {
            let threads = take_upto(&mut lists.threads, upto);
            let futures = take_upto(&mut lists.futures, upto);
            let next = lead_beyond.and_then(|sealed| {
                let key = lists.threads.range(after(sealed)..).next().map(|(key, _)| *key)?;
                lists.threads.remove(&key)
            });
            (next, threads, futures)
        });
        // A waker runs code of its executor, so no lock is held. The next leader goes first: it starts the device.
        next.iter().chain(threads.values()).for_each(Unparker::unpark);
        for waker in futures.into_values() {
            // A panic in an executor is not the leader's: its group is durable, and the other wakers are waiting.
            _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    fn edit<R>(&self, edit: impl FnOnce(&mut Lists) -> R) -> R {
        let mut lists = self.lists.lock();
        let result = edit(&mut lists);
        // ORDERING: Relaxed, see `is_empty`.
        self.count.store(lists.threads.len() + lists.futures.len(), Ordering::Relaxed);
        result
    }
}

impl Lists {
    fn key(&mut self, lsn: Lsn) -> Key {
        self.next_id += 1;
        (lsn, self.next_id)
    }
}

/// The least key of waiters for more than `lsn`.
fn after(lsn: Lsn) -> Key {
    (Lsn(lsn.0.saturating_add(1)), 0)
}

fn take_upto<V>(list: &mut BTreeMap<Key, V>, lsn: Lsn) -> BTreeMap<Key, V> {
    let rest = list.split_off(&after(lsn));
    std::mem::replace(list, rest)
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    /// Counts its wakes, and panics in each if it is told to.
    struct Counting {
        wakes: AtomicU32,
        panics: bool,
    }

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "a panic in an executor");
        }
    }

    #[test]
    fn a_waker_that_panics_hurts_nobody_else() {
        let wakers = [true, false].map(|panics| Arc::new(Counting { wakes: AtomicU32::new(0), panics }));
        let waiters = Waiters::new();
        for waker in &wakers {
            waiters.add_future(Lsn(1), waker.clone().into());
        }
        waiters.wake(Lsn(1), None);
        assert!(wakers.iter().all(|waker| waker.wakes.load(Ordering::Relaxed) == 1));
        assert!(waiters.is_empty());
    }
}

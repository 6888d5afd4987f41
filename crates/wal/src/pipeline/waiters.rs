//! Threads that wait for durability, by the LSN they wait for.

use super::acks::Key;
use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{LockRank, Mutex, Unparker, WakeQueue};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
struct Lists {
    next_id: u64,
    threads: BTreeMap<Key, Unparker>,
}

/// The registered waiters. Registration and look follow the fences of the pipeline; the lock alone orders nothing else.
#[derive(Debug)]
pub(super) struct Waiters {
    /// Entries of the list. Written under its lock.
    count: AtomicUsize,
    lists: Mutex<Lists>,
    /// Those who are satisfied and were taken out: they wake each other.
    woken: WakeQueue,
}

impl Waiters {
    pub(super) fn new() -> Self {
        let lists = Mutex::new(LockRank::LogWaiters, Lists::default());
        Self { count: AtomicUsize::new(0), lists, woken: WakeQueue::default() }
    }

    /// Whether nobody is registered. Behind a `SeqCst` fence: a waiter that is not counted yet looks again itself.
    pub(super) fn is_empty(&self) -> bool {
        // ORDERING: Relaxed, ordered by the caller's fence and the one that follows a registration.
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Registers a thread that is about to park. A fence and a look at the state follow. A thread that comes again keeps its
    /// `place`: others that wait for the same LSN, as sessions of `lanes` may, count on the first.
    pub(super) fn add_thread(&self, place: Option<Key>, lsn: Lsn, unparker: Unparker) -> Key {
        assert!(place.is_none_or(|(at, _)| at == lsn), "a waiter for {lsn} takes the place {place:?}");
        self.edit(|lists| {
            let key = place.filter(|_| !mutant("pipeline: a waiter loses its place")).unwrap_or_else(|| lists.key(lsn));
            lists.threads.insert(key, unparker);
            key
        })
    }

    /// Ends a registration, once, whatever ended the wait. Who was taken out by then helps to wake the others.
    pub(super) fn leave(&self, key: Key) {
        if self.edit(|lists| lists.threads.remove(&key)).is_none() {
            self.woken.help();
        }
    }

    /// Whether no other thread waits for less than `key` does and more than `lsn`.
    pub(super) fn is_first(&self, key: Key, lsn: Lsn) -> bool {
        let lists = self.lists.lock();
        lists.threads.range(after(lsn)..).next().is_none_or(|(&first, _)| first >= key)
    }

    /// Takes out and wakes all who wait for `upto` or less, and one thread that waits for more than `lead_beyond`, to
    /// take the lead.
    pub(super) fn wake(&self, upto: Lsn, lead_beyond: Option<Lsn>) {
        let next = self.edit(|lists| {
            self.woken.put(take_upto(&mut lists.threads, upto));
            let key = lists.threads.range(after(lead_beyond?)..).next().map(|(key, _)| *key)?;
            lists.threads.remove(&key)
        });
        // The next leader goes first: it starts the device.
        if let Some(next) = next {
            next.unpark();
        }
        self.woken.start();
    }

    fn edit<R>(&self, edit: impl FnOnce(&mut Lists) -> R) -> R {
        let mut lists = self.lists.lock();
        let result = edit(&mut lists);
        // ORDERING: Relaxed, see `is_empty`.
        self.count.store(lists.threads.len(), Ordering::Relaxed);
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

/// What waits for `lsn` or less, one by one: splitting the map would count all that stay.
fn take_upto(list: &mut BTreeMap<Key, Unparker>, lsn: Lsn) -> Vec<Unparker> {
    let mut taken = Vec::new();
    while let Some(entry) = list.first_entry().filter(|entry| entry.key().0 <= lsn) {
        taken.push(entry.remove());
    }
    taken
}

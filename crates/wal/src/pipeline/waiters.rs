//! Threads that wait for durability, by the LSN that they wait for.

use super::shards::Key;
use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{LockRank, Mutex, Unparker, WakeQueue};
use std::collections::BTreeMap;

/// A thread that is parked or about to park.
struct Waiter {
    unparker: Unparker,
    /// Whether it has a timer.
    has_timer: bool,
}

#[derive(Default)]
struct Lists {
    next_id: u64,
    threads: BTreeMap<Key, Waiter>,
}

/// The registered waiters. The fences of the pipeline order a registration and the check that follows it; the lock
/// alone orders nothing else.
pub(super) struct Waiters {
    /// The length of the list. Written under its lock.
    count: AtomicUsize,
    lists: Mutex<Lists>,
    /// Satisfied waiters that were removed: they wake each other.
    woken: WakeQueue,
}

impl Waiters {
    pub(super) fn new() -> Self {
        let lists = Mutex::new(LockRank::LogWaiters, Lists::default());
        Self { count: AtomicUsize::new(0), lists, woken: WakeQueue::default() }
    }

    /// Whether no thread is registered. Behind a `SeqCst` fence: a waiter that is not counted yet checks again itself.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of registered threads.
    pub(super) fn len(&self) -> usize {
        // ORDERING: Relaxed, a hint, or ordered by the caller's fence and the one that follows a registration.
        self.count.load(Ordering::Relaxed)
    }

    /// Registers a thread that is about to park. The caller then fences and checks the state. A thread that registers
    /// again keeps its `place`. So of two threads that wait for the same LSN, as sessions of `lanes` may, the one with
    /// the timer stays the first. Otherwise they would wake each other in turn until the timer ends.
    pub(super) fn add(&self, place: Option<Key>, lsn: Lsn, unparker: Unparker) -> Key {
        assert!(place.is_none_or(|(at, _)| at == lsn), "a waiter for {lsn} takes the place {place:?}");
        self.edit(|lists| {
            let key = place.unwrap_or_else(|| {
                lists.next_id += 1;
                (lsn, lists.next_id)
            });
            lists.threads.insert(key, Waiter { unparker, has_timer: false });
            key
        })
    }

    /// Ends a registration. Called once, after every wait. A waiter that was removed by then helps to wake the others.
    pub(super) fn remove(&self, key: Key) {
        if self.edit(|lists| lists.threads.remove(&key)).is_none() {
            self.woken.help();
        }
    }

    /// Returns whether the waiter at `key` parks with a timer, on behalf of all waiters for more than `lsn`. The first
    /// of them does. If another waiter is first and has no timer yet, it is woken to check again.
    pub(super) fn takes_timer(&self, key: Key, lsn: Lsn) -> bool {
        let woken = self.edit(|lists| {
            let Some((&first, waiter)) = lists.threads.range_mut(after(lsn)..).next() else { return Ok(true) };
            if first >= key {
                waiter.has_timer |= first == key;
                return Ok(true);
            }
            let sleeps = !waiter.has_timer && !mutant("pipeline: leaves the timer to a sleeper");
            if sleeps { Err(lists.threads.remove(&first)) } else { Ok(false) }
        });
        woken.unwrap_or_else(|first| {
            first.into_iter().for_each(|first| first.unparker.unpark());
            false
        })
    }

    /// Removes and wakes all waiters for `upto` or less. Also wakes one waiter for more than `lead_beyond`, to take the
    /// lead.
    pub(super) fn wake(&self, upto: Lsn, lead_beyond: Option<Lsn>) {
        let next = self.edit(|lists| {
            self.woken.put(take_upto(&mut lists.threads, upto));
            let key = lists.threads.range(after(lead_beyond?)..).next().map(|(key, _)| *key)?;
            lists.threads.remove(&key)
        });
        // The next leader is woken first, because it starts the device.
        if let Some(next) = next {
            next.unparker.unpark();
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

/// Returns the least key of waiters for more than `lsn`.
fn after(lsn: Lsn) -> Key {
    (Lsn(lsn.0.saturating_add(1)), 0)
}

/// Removes the waiters for `lsn` or less. One by one, because splitting the map would count all that stay.
fn take_upto(list: &mut BTreeMap<Key, Waiter>, lsn: Lsn) -> Vec<Unparker> {
    let mut taken = Vec::new();
    while let Some(entry) = list.first_entry().filter(|entry| entry.key().0 <= lsn) {
        taken.push(entry.remove().unparker);
    }
    taken
}

#[cfg(all(test, not(foreshore_loom), not(foreshore_shuttle)))]
mod tests {
    use super::*;
    use foreshore_sync::Parker;

    #[test]
    fn the_first_of_two_stays_the_first_when_its_time_is_over() {
        let (waiters, parker) = (Waiters::new(), Parker::current());
        let [first, second] = [(); 2].map(|()| waiters.add(None, Lsn(2), parker.unparker()));
        assert!(waiters.takes_timer(first, Lsn(1)));
        assert!(!waiters.takes_timer(second, Lsn(1)), "the first wakes for both");
        waiters.remove(first);
        let again = waiters.add(Some(first), Lsn(2), parker.unparker());
        assert!(waiters.takes_timer(again, Lsn(1)));
        assert!(!waiters.takes_timer(second, Lsn(1)));
        assert_eq!(waiters.len(), 2, "neither has been woken");
    }
}

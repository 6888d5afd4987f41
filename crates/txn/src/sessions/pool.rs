//! The leases of transactions: sessions, slots and undo that one transaction after another uses.
//!
//! They lie in shards by thread. A thread that runs one transaction after another has the same lease again and again,
//! and meets no other thread on the way. With the lease it has the lane, the kept intents and the undo of the
//! transaction before. A lease goes back to the shard of the thread that took it, whichever thread ends the
//! transaction. Once there are more leases than threads that run at once, an idle one of another shard is taken before
//! one more is made. A lease keeps its log space for ever, and only so are those of threads that have ended of use to
//! others.

use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::{CachePadded, LockRank, Mutex, MutexGuard, available_parallelism, pause, rmw};

/// More than threads run at once on most machines. A thread too many shares a shard.
const SHARDS: usize = if MODEL { 2 } else { 64 };
/// With so many leases for each thread that runs at once, idle ones are looked for everywhere before one more is made.
const PER_CORE: usize = 2;

/// Leases for one kind of transactions, in shards by thread.
pub(super) struct Pool<T> {
    shards: Box<[CachePadded<Mutex<Shard<T>>>]>,
    most: usize,
    /// How many more may be made. A thread that searches all shards for certain holds it for so long.
    left: Mutex<usize>,
    held: Mutex<Held>,
}

/// Commits that hold their leases until they are durable.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    /// Those that do.
    pub(super) now: usize,
    /// Those that ever did.
    pub(super) ever: u64,
}

struct Shard<T> {
    /// Those that no transaction has, the last used on top.
    idle: Vec<T>,
    /// A thread searches all shards: what comes back stays for it.
    barred: bool,
    /// The thread that had the shard last.
    last: usize,
}

impl<T> Pool<T> {
    pub(super) fn new(most: usize) -> Self {
        let shard = |_| {
            let shard = Shard { idle: Vec::new(), barred: false, last: 0 };
            CachePadded::new(Mutex::new(LockRank::Leaf, shard))
        };
        let shards = (0..SHARDS).map(shard).collect();
        let held = Mutex::new(LockRank::Leaf, Held::default());
        Self { shards, most, left: Mutex::new(LockRank::Leases, most), held }
    }

    /// The shard of the calling thread.
    pub(super) fn home(&self) -> usize {
        thread_index() % self.shards.len()
    }

    /// An idle lease of the calling thread's shard.
    pub(super) fn take(&self) -> Option<T> {
        self.take_from(self.home())
    }

    /// An idle lease of another shard, unless there are few leases. One that comes back meanwhile may be missed.
    pub(super) fn take_elsewhere(&self) -> Option<T> {
        if self.made() < PER_CORE * available_parallelism() {
            return None;
        }
        let (home, shards) = (self.home(), self.shards.len());
        (1..shards).find_map(|step| self.take_from((home + step) % shards))
    }

    /// Takes a lease back into a shard.
    pub(super) fn give_back(&self, shard: usize, lease: T) {
        let mut shard = self.lock(shard);
        assert!(shard.idle.len() < self.most, "{} leases are idle, and one comes back", shard.idle.len());
        shard.idle.push(lease);
    }

    /// Returns how many there are.
    pub(super) fn made(&self) -> usize {
        self.most - *self.left.lock()
    }

    /// Counts one more, if there may be one more.
    pub(super) fn may_make_one(&self) -> bool {
        let mut left = self.left.lock();
        let may = *left > 0;
        *left -= usize::from(may);
        may
    }

    /// The one that was to be made was not.
    pub(super) fn not_made(&self) {
        let mut left = self.left.lock();
        assert!(*left < self.most, "{} of {} leases are left, and one was not made", *left, self.most);
        *left += 1;
    }

    /// An idle lease of any shard. `None`: at one moment all leases were in use.
    pub(super) fn take_any(&self) -> Option<T> {
        // One search at a time, and no other thread takes from a shard between its two looks. A shard that is empty
        // both times was so all the time between, the moment after the first looks included.
        let _turn = self.left.lock();
        let mut found: Option<T> = None;
        for barred in [true, false] {
            for index in 0..self.shards.len() {
                let mut shard = self.lock(index);
                shard.barred = barred;
                found = found.or_else(|| shard.idle.pop());
                drop(shard);
                pause::point("txn: searched a shard");
            }
        }
        found
    }

    /// Returns how many commits hold their leases.
    pub(super) fn held(&self) -> Held {
        *self.held.lock()
    }

    pub(super) fn begin_hold(&self) {
        let mut held = self.held.lock();
        held.now += 1;
        held.ever += 1;
    }

    pub(super) fn end_hold(&self) {
        let mut held = self.held.lock();
        assert!(held.now > 0, "a lease comes back, and none of {} is held any more", held.ever);
        held.now -= 1;
    }

    /// Has `each` see all idle leases.
    pub(super) fn each_idle(&self, mut each: impl FnMut(&mut T)) {
        for index in 0..self.shards.len() {
            self.lock(index).idle.iter_mut().for_each(&mut each);
        }
    }

    fn take_from(&self, index: usize) -> Option<T> {
        let mut shard = self.lock(index);
        if shard.barred && !mutant("leases: taken from under a search") {
            return None;
        }
        shard.idle.pop()
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Shard<T>> {
        let mut shard = self.shards[index].lock();
        let thread = thread_index();
        if std::mem::replace(&mut shard.last, thread) != thread {
            // To lock and to unlock what another thread wrote.
            rmw::contended(2);
        }
        shard
    }
}

/// A number of the calling thread.
#[cfg(not(foreshore_shuttle))]
fn thread_index() -> usize {
    foreshore_sync::thread_index()
}

/// Threads of a model have no numbers, so each call is that of any thread.
#[cfg(foreshore_shuttle)]
fn thread_index() -> usize {
    foreshore_sync::model::choose(SHARDS as u64) as usize
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_lease_again_that_it_returned_last() {
        let pool = Pool::new(3);
        let home = pool.home();
        (0..3).for_each(|lease| pool.give_back(home, lease));
        assert_eq!([pool.take(), pool.take(), pool.take(), pool.take()], [Some(2), Some(1), Some(0), None]);
    }

    #[test]
    fn a_lease_of_another_shard_is_taken_once_there_are_many() {
        let most = PER_CORE * available_parallelism();
        let pool = Pool::new(most);
        let other = (pool.home() + 1) % SHARDS;
        for made in 0..most {
            assert!(pool.take_elsewhere().is_none(), "{made} are few");
            assert!(pool.may_make_one());
            pool.give_back(other, made);
        }
        assert!(!pool.may_make_one(), "all were made");
        assert_eq!((pool.take(), pool.take_elsewhere()), (None, Some(most - 1)));
        assert_eq!(pool.take_any(), Some(most - 2), "a search of all shards finds it, too");
        pool.not_made();
        assert_eq!(pool.made(), most - 1);
    }

    #[test]
    fn a_hold_counts_for_ever_and_while_it_lasts() {
        let pool: Pool<()> = Pool::new(1);
        pool.begin_hold();
        assert_eq!((pool.held().now, pool.held().ever), (1, 1));
        pool.end_hold();
        assert_eq!((pool.held().now, pool.held().ever), (0, 1));
    }
}

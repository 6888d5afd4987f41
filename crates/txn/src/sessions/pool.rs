//! The pool of leases, in shards by thread.
//!
//! A thread that runs one transaction after another gets the same lease each time, and contends with no other thread.
//! With the lease it gets the log lane, the kept intents and the undo memory of the transaction before. A lease returns
//! to the shard of the thread that took it, whichever thread ends the transaction.
//!
//! If there are more leases than threads that can run at once, an idle lease of another shard is taken before a new one
//! is made. A lease is never freed and keeps its log space. Only in this way do the leases of ended threads serve
//! others.

use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::{BiasedGuard, BiasedMutex, CachePadded, LockRank, Mutex, available_parallelism, pause, rmw};

/// The number of shards: more than the threads that run at once on most machines. Surplus threads share shards.
const SHARDS: usize = if MODEL { 2 } else { 64 };
/// Leases per core from which on idle leases of other shards are taken before a new one is made.
const PER_CORE: usize = 2;

/// Leases for one kind of transactions, in shards by thread.
pub(super) struct Pool<T> {
    shards: Box<[CachePadded<BiasedMutex<Shard<T>>>]>,
    most: usize,
    /// The number of leases that may still be made. A thread that searches all shards exhaustively holds this lock
    /// meanwhile.
    left: Mutex<usize>,
    held: Mutex<Held>,
}

/// Commits that hold their leases until they are durable.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    /// The number of such commits now.
    pub(super) now: usize,
    /// The number of such commits since the start.
    pub(super) ever: u64,
}

struct Shard<T> {
    /// Idle leases, the last used on top.
    idle: Vec<T>,
    /// Whether a thread searches all shards. Leases that are returned meanwhile stay for that thread.
    barred: bool,
    /// The thread that last locked the shard.
    last: usize,
}

impl<T> Pool<T> {
    pub(super) fn new(most: usize) -> Self {
        let shard = |_| {
            let shard = Shard { idle: Vec::new(), barred: false, last: 0 };
            CachePadded::new(BiasedMutex::new(LockRank::Leaf, shard))
        };
        let shards = (0..SHARDS).map(shard).collect();
        let held = Mutex::new(LockRank::Leaf, Held::default());
        Self { shards, most, left: Mutex::new(LockRank::Leases, most), held }
    }

    /// Returns the shard of the calling thread.
    pub(super) fn home(&self) -> usize {
        thread_index() % self.shards.len()
    }

    /// Returns an idle lease of the calling thread's shard.
    pub(super) fn take(&self) -> Option<T> {
        let home = self.home();
        take_idle(&mut self.noted(self.shards[home].lock()))
    }

    /// Returns an idle lease of another shard, unless there are few leases. It may miss a lease that is returned
    /// meanwhile.
    pub(super) fn take_elsewhere(&self) -> Option<T> {
        if self.made() < PER_CORE * available_parallelism() {
            return None;
        }
        let (home, shards) = (self.home(), self.shards.len());
        (1..shards).find_map(|step| take_idle(&mut self.noted(self.shards[(home + step) % shards].visit())))
    }

    /// Takes a lease back into a shard.
    pub(super) fn give_back(&self, shard: usize, lease: T) {
        let mut shard = self.noted(self.shards[shard].lock());
        assert!(shard.idle.len() < self.most, "{} leases are idle, and one comes back", shard.idle.len());
        shard.idle.push(lease);
    }

    /// Returns how many leases were made.
    pub(super) fn made(&self) -> usize {
        self.most - *self.left.lock()
    }

    /// Counts one more lease, if the maximum permits. Returns whether it does.
    pub(super) fn may_make_one(&self) -> bool {
        let mut left = self.left.lock();
        let may = *left > 0;
        *left -= usize::from(may);
        may
    }

    /// Uncounts a lease that was to be made and was not.
    pub(super) fn not_made(&self) {
        let mut left = self.left.lock();
        assert!(*left < self.most, "{} of {} leases are left, and one was not made", *left, self.most);
        *left += 1;
    }

    /// Returns an idle lease of any shard. `None` means that at one moment all leases were in use.
    pub(super) fn take_any(&self) -> Option<T> {
        // There is one search at a time, and no other thread takes from a shard between its two visits. So a shard that
        // is empty at both visits was empty all the time between them. That includes the moment after the first round.
        let _turn = self.left.lock();
        let mut found: Option<T> = None;
        for barred in [true, false] {
            for index in 0..self.shards.len() {
                let mut shard = self.noted(self.shards[index].visit());
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

    /// Calls `each` with every idle lease.
    pub(super) fn each_idle(&self, mut each: impl FnMut(&mut T)) {
        for index in 0..self.shards.len() {
            self.noted(self.shards[index].visit()).idle.iter_mut().for_each(&mut each);
        }
    }

    /// Counts the lock of a shard as contended, if another thread locked the shard before.
    fn noted<'a>(&self, mut shard: BiasedGuard<'a, Shard<T>>) -> BiasedGuard<'a, Shard<T>> {
        let thread = thread_index();
        if std::mem::replace(&mut shard.last, thread) != thread {
            // One for the lock and one for the unlock of what another thread wrote.
            rmw::contended(2);
        }
        shard
    }
}

/// Takes an idle lease of a shard, unless another thread searches all shards.
fn take_idle<T>(shard: &mut Shard<T>) -> Option<T> {
    if shard.barred && !mutant("leases: taken from under a search") {
        return None;
    }
    shard.idle.pop()
}

/// Returns a number of the calling thread.
#[cfg(not(foreshore_shuttle))]
fn thread_index() -> usize {
    foreshore_sync::thread_index()
}

/// Returns an arbitrary number, because threads of a model have none.
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

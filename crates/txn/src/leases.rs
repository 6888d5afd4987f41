//! The leases of transactions: sessions, slots and undo that one transaction after another uses.
//!
//! They lie in shards by thread, so that a thread that runs one transaction after another has the same lease again and again,
//! and with it the lane, the kept intents and the undo of the one before, and meets nobody on the way. A lease goes back
//! to the shard of the thread that made it, whoever ends the transaction.

use crate::manager::Lease;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::{CachePadded, LockRank, Mutex, MutexGuard, rmw, thread_index};

/// More than threads run at once on most machines. A thread too many shares a shard.
const SHARDS: usize = if MODEL { 1 } else { 64 };

/// Leases for one kind of transactions.
pub(crate) struct Leases {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    /// How many more may be made.
    left: Mutex<usize>,
    /// Those of commits that keep them until they are durable.
    pub(crate) lingering: Mutex<usize>,
}

struct Shard {
    /// Those that no transaction has, the last used on top. Sessions and owners are given back only at the end.
    #[expect(clippy::vec_box, reason = "leases change hands at every begin and end, by pointer")]
    idle: Vec<Box<Lease>>,
    /// How often one was given back.
    returned: u64,
    /// The thread that had the shard last.
    last: usize,
}

impl Leases {
    pub(crate) fn at_most(count: usize) -> Self {
        let shard = |_| {
            let shard = Shard { idle: Vec::new(), returned: 0, last: 0 };
            CachePadded::new(Mutex::new(LockRank::Leaf, shard))
        };
        let shards = (0..SHARDS).map(shard).collect();
        Self { shards, left: Mutex::new(LockRank::Leaf, count), lingering: Mutex::new(LockRank::Leaf, 0) }
    }

    /// The shard of the calling thread.
    pub(crate) fn home(&self) -> usize {
        thread_index() % self.shards.len()
    }

    /// An idle lease of the calling thread's shard.
    pub(crate) fn take(&self) -> Option<Box<Lease>> {
        self.lock(self.home()).idle.pop()
    }

    /// Takes a lease back.
    pub(crate) fn give_back(&self, lease: Box<Lease>) {
        let mut shard = self.lock(lease.home);
        shard.idle.push(lease);
        shard.returned += 1;
    }

    /// Counts one more, if there may be one more.
    pub(crate) fn may_make_one(&self) -> bool {
        let mut left = self.left.lock();
        let may = *left > 0;
        *left -= usize::from(may);
        may
    }

    /// The one that was to be made was not.
    pub(crate) fn not_made(&self) {
        *self.left.lock() += 1;
    }

    /// An idle lease of any shard. `None`: at one moment all leases were in use.
    pub(crate) fn take_any(&self) -> Option<Box<Lease>> {
        let mut before = None;
        loop {
            let mut returned = 0;
            for index in 0..self.shards.len() {
                let mut shard = self.lock(index);
                if let Some(lease) = shard.idle.pop() {
                    return Some(lease);
                }
                returned += shard.returned;
            }
            // None came back between the two looks at a shard: it was empty all the time between.
            if before.replace(returned) == Some(returned) {
                return None;
            }
            // WAIT: window - somebody gave one back meanwhile, and another took it.
        }
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Shard> {
        let mut shard = self.shards[index].lock();
        let thread = thread_index();
        if std::mem::replace(&mut shard.last, thread) != thread {
            // To lock and to unlock what another thread wrote.
            rmw::contended(2);
        }
        shard
    }
}

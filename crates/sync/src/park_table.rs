//! Waiting by key: a table of queues shared by any number of waiting places.
//!
//! The design is WebKit's parking lot: a waiting place costs one bit in its own word, and the queues are here.

use crate::clock::deadline_now;
use crate::model::mutant;
use crate::primitive::REPLAYS;
use crate::primitive::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::{CachePadded, LockRank, Mutex, Parker, SpinSite, Unparker, rmw};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A power of two. One under a model checker: keys are often addresses, and a model must not depend on them.
const BUCKETS: usize = if REPLAYS { 1 } else { 256 };

/// How a call of [`ParkTable::park`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkOutcome {
    /// The validation failed; the caller did not wait.
    Invalid,
    /// Woken by an unpark, with its tag.
    Unparked(u64),
    /// The time ran out, and the caller is no longer queued.
    TimedOut,
}

/// What a filter of [`ParkTable::unpark_while`] decides about the next waiter of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    Wake,
    /// It stays, and the next one is checked.
    Skip,
    Stop,
}

/// FIFO queues of parked threads by a 64-bit key. An instance belongs to one owner, which assigns its keys.
///
/// **No lost wake-up:** the waker first changes the state, then unparks. The waiter first registers, then validates
/// the state under its bucket's lock. Either the waiter sees the new state, or the waker sees the waiter.
///
/// ```
/// use foreshore_sync::{ParkOutcome, ParkTable};
/// use foreshore_sync::primitive::{atomic::{AtomicBool, Ordering}, thread};
///
/// let (table, open) = (ParkTable::new(), AtomicBool::new(false));
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         while !open.load(Ordering::Acquire) {
///             table.park(7, None, || !open.load(Ordering::Acquire));
///         }
///     });
///     open.store(true, Ordering::Release);
///     table.unpark_all(7, 0);
/// });
/// ```
#[derive(Debug)]
pub struct ParkTable {
    buckets: Box<[CachePadded<Bucket>]>,
    /// Whether it pays to spin in front of a park for a latch of this table's owner.
    pub(crate) latches: SpinSite,
}

#[derive(Debug)]
struct Bucket {
    /// Threads queued or about to validate; changed under the queue's lock, read without it.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    key: u64,
    role: u32,
    node: Arc<Node>,
}

/// A thread's place in a queue. A thread waits in one place at a time, so that one node per thread is enough.
#[derive(Debug)]
struct Node {
    parker: Parker,
    unparker: Unparker,
    /// Set by the owner when it enters a queue, cleared by the thread that removes it; both under the bucket's lock.
    queued: AtomicBool,
    tag: AtomicU64,
}

impl Node {
    fn new() -> Arc<Self> {
        let parker = Parker::new();
        let unparker = parker.unparker();
        Arc::new(Self { parker, unparker, queued: AtomicBool::new(false), tag: AtomicU64::new(0) })
    }

    fn current() -> Arc<Self> {
        #[cfg(not(any(foreshore_loom, foreshore_shuttle)))]
        {
            std::thread_local! {
                static CURRENT: Arc<Node> = Node::new();
            }
            // A thread that is ending has lost its thread-locals; it gets a fresh node.
            CURRENT.try_with(Arc::clone).unwrap_or_else(|_| Self::new())
        }
        #[cfg(any(foreshore_loom, foreshore_shuttle))]
        Self::new()
    }

    /// Gives the waiter its tag. From here on its thread may leave and queue again elsewhere; a token that arrives
    /// late makes it check once more.
    fn release(&self, tag: u64) {
        // ORDERING: Relaxed tag, published by the Release store; pairs with the Acquire load in `park_as`.
        self.tag.store(tag, Ordering::Relaxed);
        self.queued.store(false, Ordering::Release);
    }
}

impl Default for ParkTable {
    fn default() -> Self {
        Self::new()
    }
}

impl ParkTable {
    /// Makes a table without waiters.
    pub fn new() -> Self {
        let bucket = |_| {
            let queue = Mutex::new(LockRank::ParkBucket, VecDeque::new());
            CachePadded::new(Bucket { waiting: AtomicUsize::new(0), queue })
        };
        Self { buckets: (0..BUCKETS).map(bucket).collect(), latches: SpinSite::new() }
    }

    /// Waits at `key` until an unpark picks this thread or `timeout` is over.
    ///
    /// `validate` runs under the bucket's lock once the thread's place is decided; if it returns false the thread does
    /// not wait. It must not lock, park or unpark. The caller re-checks its condition after every outcome.
    pub fn park(&self, key: u64, timeout: Option<Duration>, validate: impl FnOnce() -> bool) -> ParkOutcome {
        self.park_as(key, 0, timeout, validate)
    }

    /// Waits like [`ParkTable::park`], with a role by which [`ParkTable::unpark_role`] finds it.
    pub fn park_as(
        &self,
        key: u64,
        role: u32,
        timeout: Option<Duration>,
        validate: impl FnOnce() -> bool,
    ) -> ParkOutcome {
        let bucket = self.bucket(key);
        let node = Node::current();
        {
            let mut queue = bucket.queue.lock();
            rmw::contended(1);
            // ORDERING: store, fence, look: register, then validate; pairs with the waker's change and fence in
            // `look`.
            bucket.waiting.fetch_add(1, Ordering::Relaxed);
            if !mutant("park table: no fence before validation") {
                fence(Ordering::SeqCst);
            }
            if !validate() {
                // ORDERING: Relaxed, a count too high only costs a waker the lock.
                bucket.waiting.fetch_sub(1, Ordering::Relaxed);
                return ParkOutcome::Invalid;
            }
            // ORDERING: Relaxed, published to wakers by the bucket's lock.
            node.queued.store(true, Ordering::Relaxed);
            queue.push_back(Waiter { key, role, node: node.clone() });
        }
        // A deadline beyond the clock's range never comes.
        let deadline = timeout.and_then(|timeout| deadline_now().checked_add(timeout));
        loop {
            // ORDERING: Acquire, pairs with `Node::release`: the tag and what the waker did before are visible.
            if !node.queued.load(Ordering::Acquire) {
                return ParkOutcome::Unparked(node.tag.load(Ordering::Relaxed));
            }
            // WAIT: park - until a waker takes this thread out of the queue.
            let notified = match deadline {
                None => {
                    node.parker.park();
                    true
                }
                Some(deadline) => node.parker.park_timeout(deadline.saturating_duration_since(deadline_now())),
            };
            if !notified && bucket.withdraw(&node) {
                return ParkOutcome::TimedOut;
            }
        }
    }

    /// Wakes the thread that has waited longest at `key` and gives it `tag`; returns false if none waits there.
    ///
    /// Costs a fence and one load if no thread waits in the key's bucket.
    pub fn unpark_one(&self, key: u64, tag: u64) -> bool {
        let mut found = false;
        let pick = |_| if std::mem::replace(&mut found, true) { Pick::Stop } else { Pick::Wake };
        self.unpark_while(key, tag, pick, |_| ()) > 0
    }

    /// Wakes all threads that wait at `key`, gives each `tag` and returns their number.
    pub fn unpark_all(&self, key: u64, tag: u64) -> usize {
        self.unpark_while(key, tag, |_| Pick::Wake, |_| ())
    }

    /// Wakes the threads that wait at `key` in a role, gives each `tag` and returns their number. The others keep
    /// their places.
    pub fn unpark_role(&self, key: u64, role: u32, tag: u64) -> usize {
        let pick = |other| if other == role { Pick::Wake } else { Pick::Skip };
        self.unpark_while(key, tag, pick, |_| ())
    }

    /// Returns whether a thread waits at `key`. Exact only if the caller keeps threads from arriving and leaving.
    pub fn has_waiters(&self, key: u64) -> bool {
        self.look(key).is_some_and(|bucket| bucket.queue.lock().iter().any(|waiter| waiter.key == key))
    }

    /// Wakes the waiters of `key` in order as long as `pick`, called with their roles, says so.
    ///
    /// `after` runs under the bucket's lock and learns whether others stay queued; it clears a bit "threads wait" in
    /// the owner's word. It runs only if some thread waits in the bucket. Returns the number woken.
    pub(crate) fn unpark_while(
        &self,
        key: u64,
        tag: u64,
        mut pick: impl FnMut(u32) -> Pick,
        after: impl FnOnce(bool),
    ) -> usize {
        let Some(bucket) = self.look(key) else { return 0 };
        let mut woken: Vec<Arc<Node>> = Vec::new();
        {
            let mut queue = bucket.queue.lock();
            let (mut at, mut left_behind) = (0, false);
            while let Some(waiter) = queue.get(at) {
                if waiter.key != key {
                    at += 1;
                    continue;
                }
                match pick(waiter.role) {
                    Pick::Wake => {
                        let waiter = queue.remove(at).expect("the index was just read");
                        waiter.node.release(tag);
                        woken.push(waiter.node);
                    }
                    Pick::Skip => (left_behind, at) = (true, at + 1),
                    Pick::Stop => {
                        left_behind = true;
                        break;
                    }
                }
            }
            // ORDERING: Relaxed, changed under the lock; a count read too high only costs a waker the lock.
            bucket.waiting.fetch_sub(woken.len(), Ordering::Relaxed);
            after(left_behind);
        }
        // Woken outside the lock: an unpark is a system call.
        for node in &woken {
            node.unparker.unpark();
        }
        woken.len()
    }

    /// Returns the key's bucket, or `None` if no thread waits in it.
    fn look(&self, key: u64) -> Option<&Bucket> {
        let bucket = self.bucket(key);
        // ORDERING: store, fence, look: the caller has stored its state; pairs with the fence in `park_as`.
        if !mutant("park table: no fence before looking") {
            fence(Ordering::SeqCst);
        }
        (bucket.waiting.load(Ordering::Relaxed) > 0).then_some(bucket)
    }

    /// Number of queued threads, for tests.
    #[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
    pub(crate) fn waiting(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.queue.lock().len()).sum()
    }

    fn bucket(&self, key: u64) -> &Bucket {
        // Fibonacci hashing: the top bits of the product depend on all bits of the key.
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        &self.buckets[hash as usize & (BUCKETS - 1)]
    }
}

impl Bucket {
    /// Removes `node` from the queue; returns false if a waker was faster.
    fn withdraw(&self, node: &Arc<Node>) -> bool {
        let mut queue = self.queue.lock();
        let Some(at) = queue.iter().position(|waiter| Arc::ptr_eq(&waiter.node, node)) else { return false };
        queue.remove(at);
        // ORDERING: Relaxed, both are read under this lock or by this thread; see `park_as` for the count.
        node.queued.store(false, Ordering::Relaxed);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        true
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;

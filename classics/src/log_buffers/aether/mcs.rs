//! A queue lock: each waiter watches a line of its own, and the lock goes from hand to hand in the order of arrival.
//!
//! Source: Mellor-Crummey and Scott, "Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors" (TOCS
//! 1991). One difference: the queue nodes are slots of the lock, named by number, so the calls are safe.
//!
//! The order of arrival has its price where threads outnumber processors: the next holder is often one that does not
//! run. With 16 threads on two processors the lock changes hands hundreds of times as seldom as [`Mutex8`]
//! (`examples/locks.rs`).
//!
//! [`Mutex8`]: super::Mutex8

use super::waits::spin_until;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering};
use foreshore_sync::{CachePadded, rmw};

// The tail: NONE, or the link of the node that has queued last. `next`: NONE, or the link of the successor.
//
// 1. A node joins by its swap of the tail; this is the order of the lock. Between that swap and its link into the
//    predecessor's `next` the queue is broken there, and the predecessor's unlock waits: a window of two instructions,
//    or as long as the joining thread is preempted in it.
// 2. `state` of a node: see the constants. Only its predecessor grants.
const NONE: u32 = 0;

/// The node is not in use.             locker: -> WAITING
const IDLE: u32 = 0;
/// Queued.                             predecessor, or the locker of a free lock: -> HELD
const WAITING: u32 = 1;
/// It holds the lock.                  unlocker: -> IDLE
const HELD: u32 = 2;

/// A fair lock that guards memory of its owner and holds no data itself. Waiters spin and yield. It may be unlocked by
/// another thread than the one that locked it, if the two have synchronised in between.
///
/// A thread that locks brings a node number, which stands for the holding. It does so from `lock` until another one has
/// followed or `unlock` has ended. Numbers are the caller's to keep apart: a session's slot, say.
///
/// Its read-modify-writes are counted in [`rmw`]: callers do not count them again.
///
/// ```
/// use foreshore_classics::log_buffers::McsLock;
///
/// let lock = McsLock::new(2);
/// lock.lock(0);
/// lock.unlock(0);
/// lock.lock(1);
/// lock.unlock(1);
/// ```
#[derive(Debug)]
pub struct McsLock {
    tail: CachePadded<AtomicU32>,
    nodes: Box<[CachePadded<Node>]>,
}

#[derive(Debug)]
struct Node {
    next: AtomicU32,
    state: AtomicU32,
}

impl McsLock {
    /// A free lock with `nodes` nodes, numbered from zero, fewer than 2^32.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        assert!(u32::try_from(nodes).is_ok(), "{nodes} nodes");
        let node = |_| CachePadded::new(Node { next: AtomicU32::new(NONE), state: AtomicU32::new(IDLE) });
        Self { tail: CachePadded::new(AtomicU32::new(NONE)), nodes: (0..nodes).map(node).collect() }
    }

    /// Takes the lock after all earlier callers.
    ///
    /// # Panics
    /// When there is no such node, or it is in use.
    pub fn lock(&self, node: usize) {
        let own = self.prepare(node);
        rmw::contended(1);
        // ORDERING: AcqRel. Release publishes this node's fresh words to the successor. Acquire makes the predecessor's
        // visible, or, in a free lock, what the last holder wrote; pairs with itself and with `unlock`.
        let before = self.tail.swap(link(node), Ordering::AcqRel);
        if before == NONE {
            // ORDERING: Relaxed, no other thread reads the state of a node without predecessor.
            own.state.store(HELD, Ordering::Relaxed);
            return;
        }
        // ORDERING: publish, pairs with `unlock`.
        self.node(before).next.store(link(node), Ordering::Release);
        // ORDERING: Acquire, what the last holder wrote is visible; pairs with `grant`.
        spin_until(|| own.state.load(Ordering::Acquire) == HELD);
    }

    /// Takes the lock if it is free and no thread waits for it.
    ///
    /// # Panics
    /// As [`McsLock::lock`].
    pub fn try_lock(&self, node: usize) -> bool {
        let own = self.prepare(node);
        rmw::contended(1);
        // ORDERING: AcqRel, as the swap in `lock`; a failure has learnt nothing.
        let entered = self.tail.compare_exchange(NONE, link(node), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        // ORDERING: Relaxed, as in `lock`.
        own.state.store(if entered { HELD } else { IDLE }, Ordering::Relaxed);
        entered
    }

    /// Hands the lock to the next in the queue. `node` is the one it was taken with.
    ///
    /// # Panics
    /// When the node does not hold the lock.
    pub fn unlock(&self, node: usize) {
        let own = &self.nodes[node];
        // ORDERING: Relaxed, written by the holder's own thread or by one it has synchronised with.
        assert_eq!(own.state.load(Ordering::Relaxed), HELD, "node {node} does not hold the lock");
        // ORDERING: Relaxed, released with the lock: the next holder, or a thread that a later holder told, may use it.
        own.state.store(IDLE, Ordering::Relaxed);
        // ORDERING: Acquire, the successor's node is initialised; pairs with the link in `lock`.
        let next = || own.next.load(Ordering::Acquire);
        if next() == NONE {
            rmw::contended(1);
            // ORDERING: latch, what this holder wrote the next one reads; pairs with the swap in `lock`. A failure
            // learns only that another thread comes.
            if self.tail.compare_exchange(link(node), NONE, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            // The successor has swapped the tail and is about to link itself, see rule 1.
            spin_until(|| next() != NONE);
        }
        // ORDERING: latch, what this holder wrote the successor reads; pairs with the wait in `lock`.
        let release = if mutant("mcs: relaxed hand-off") { Ordering::Relaxed } else { Ordering::Release };
        self.node(next()).state.store(HELD, release);
    }

    fn prepare(&self, node: usize) -> &Node {
        let own = &self.nodes[node];
        // ORDERING: Relaxed, no other thread reads a node that is not queued; the swap of the tail publishes the words.
        assert_eq!(own.state.load(Ordering::Relaxed), IDLE, "node {node} is in use");
        own.next.store(NONE, Ordering::Relaxed);
        own.state.store(WAITING, Ordering::Relaxed);
        own
    }

    fn node(&self, link: u32) -> &Node {
        &self.nodes[link as usize - 1]
    }
}

/// The name of a node in a word whose zero means none.
fn link(node: usize) -> u32 {
    node as u32 + 1
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use foreshore_sync::primitive::atomic::AtomicU64;
    use foreshore_sync::primitive::thread;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    #[test]
    fn holders_exclude_each_other() {
        const ROUNDS: u64 = 1_000;
        let (lock, inside, total) = (McsLock::new(4), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for node in 0..4 {
                let (lock, inside, total) = (&lock, &inside, &total);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        lock.lock(node);
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two holders");
                        total.store(total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        lock.unlock(node);
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 4 * ROUNDS);
        assert!(lock.try_lock(0), "free at the end");
    }

    #[test]
    fn the_lock_goes_round_in_the_order_of_arrival() {
        let lock = McsLock::new(6);
        let (enter, entered) = mpsc::channel();
        lock.lock(5);
        thread::scope(|scope| {
            for node in 0..5 {
                let (lock, enter) = (&lock, enter.clone());
                scope.spawn(move || {
                    lock.lock(node);
                    enter.send(node).expect("the test listens");
                    lock.unlock(node);
                });
                // In the queue, behind all that came before.
                while lock.tail.load(Ordering::Relaxed) != link(node) {
                    thread::yield_now();
                }
            }
            lock.unlock(5);
        });
        assert_eq!(entered.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn another_thread_may_unlock() {
        let lock = McsLock::new(2);
        let (hand, handed) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| handed.into_iter().for_each(|node| lock.unlock(node)));
            for round in 0..1_000 {
                lock.lock(round % 2);
                assert!(!lock.try_lock((round + 1) % 2));
                hand.send(round % 2).expect("the other thread listens");
                // A node is free again when a later holder has the lock.
                lock.lock((round + 1) % 2);
                lock.unlock((round + 1) % 2);
            }
            drop(hand);
        });
    }

    #[test]
    fn a_node_stands_for_one_holding() {
        let lock = McsLock::new(2);
        lock.lock(0);
        assert!(catch_unwind(AssertUnwindSafe(|| lock.lock(0))).is_err(), "in use");
        assert!(catch_unwind(AssertUnwindSafe(|| lock.unlock(1))).is_err(), "not the holder");
        lock.unlock(0);
        assert!(catch_unwind(AssertUnwindSafe(|| lock.unlock(0))).is_err(), "unlocked before");
    }

    #[test]
    fn an_uncontended_holding_costs_two_exchanges() {
        let lock = McsLock::new(1);
        let before = rmw::counted();
        lock.lock(0);
        lock.unlock(0);
        assert_eq!(rmw::counted() - before, 2);
    }
}

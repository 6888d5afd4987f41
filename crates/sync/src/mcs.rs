//! A queue lock: each waiter watches its own cache line, and the lock is handed over in the order of arrival.
//!
//! Source: Mellor-Crummey and Scott, "Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors" (TOCS
//! 1991). Differences: the queue nodes are slots of the lock, identified by number, so that the calls are safe. A lock
//! of [`WaitMode::Park`] lets waiters sleep, which costs two more read-modify-writes on the nodes.
//!
//! The order of arrival is expensive if threads outnumber processors: the next holder is often not running. With 16
//! threads on two processors the lock changes hands tens of times less often than [`Mutex8`](crate::Mutex8) when
//! waiters park, and hundreds of times less often when they spin (`examples/locks.rs`).

use crate::model::mutant;
use crate::primitive::atomic::{AtomicU32, Ordering};
use crate::primitive::{MODEL, hint};
use crate::wait_mode::yield_processor;
use crate::{CachePadded, Parker, SpinSite, Unparker, WaitMode, rmw};

// The tail: NONE, or the link of the node that has queued last. `next`: NONE, the link of the successor, or AWAITED.
//
// 1. A node joins by its swap of the tail; this is the order of the lock. Between that swap and its link into the
//    predecessor's `next` the queue is broken there, and the predecessor's unlock waits: a window of two instructions,
//    or as long as the joining thread is preempted in it.
// 2. In a lock that parks, the unlocker ends a long window with `next`: NONE -> AWAITED and sleeps; the link, a swap,
//    finds it.
// 3. `state` of a node: see the constants. Only its predecessor grants.
const NONE: u32 = 0;
const AWAITED: u32 = u32::MAX;

/// The node is not in use.             locker: -> WAITING
const IDLE: u32 = 0;
/// Queued.                             locker: -> PARKED; predecessor, or the locker of a free lock: -> HELD
const WAITING: u32 = 1;
/// Queued, and its thread sleeps.      predecessor: -> HELD, then wakes it
const PARKED: u32 = 2;
/// It holds the lock.                  unlocker: -> IDLE
const HELD: u32 = 3;

/// Pauses before a wait for a link that is being made.
const LINK_PAUSES: u32 = if MODEL { 0 } else { 32 };

/// A fair lock that guards memory of its owner and holds no data itself. Another thread may unlock it, if it has
/// synchronised with the one that locked it.
///
/// The locker brings a node number, which identifies the hold until another holder has followed or `unlock` has ended.
/// Callers keep the numbers apart; a session's slot is one, for example.
///
/// Its read-modify-writes are counted in [`rmw`]: callers do not count them again.
///
/// ```
/// use foreshore_sync::{McsLock, WaitMode};
///
/// let lock = McsLock::new(2, WaitMode::Park);
/// lock.lock(0);
/// lock.unlock(0);
/// lock.lock(1);
/// lock.unlock(1);
/// ```
#[derive(Debug)]
pub struct McsLock {
    tail: CachePadded<AtomicU32>,
    nodes: Box<[CachePadded<Node>]>,
    mode: WaitMode,
    site: SpinSite,
}

#[derive(Debug)]
struct Node {
    next: AtomicU32,
    state: AtomicU32,
    parker: Parker,
    unparker: Unparker,
}

impl Node {
    fn new() -> Self {
        let parker = Parker::new();
        let unparker = parker.unparker();
        Self { next: AtomicU32::new(NONE), state: AtomicU32::new(IDLE), parker, unparker }
    }
}

impl McsLock {
    /// Makes a free lock with `nodes` nodes, numbered from zero, fewer than 2^32 - 1.
    pub fn new(nodes: usize, mode: WaitMode) -> Self {
        assert!(nodes < AWAITED as usize, "{nodes} nodes");
        Self {
            tail: CachePadded::new(AtomicU32::new(NONE)),
            nodes: (0..nodes).map(|_| CachePadded::new(Node::new())).collect(),
            mode,
            site: SpinSite::new(),
        }
    }

    /// Takes the lock after all earlier arrivals.
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
        let predecessor = self.node(before);
        match self.mode {
            // ORDERING: publish, pairs with `await_link` and `unlock`.
            WaitMode::Spin => predecessor.next.store(link(node), Ordering::Release),
            WaitMode::Park => {
                rmw::contended(1);
                // ORDERING: publish, as above; Relaxed on the read side, it takes nothing over.
                if predecessor.next.swap(link(node), Ordering::Release) == AWAITED
                    && !mutant("mcs: link without a look")
                {
                    predecessor.unparker.unpark();
                }
            }
        }
        self.await_grant(own);
    }

    /// Takes the lock if it is free and without waiters.
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

    /// Hands the lock to the next in the queue. `node` is the node number that it was taken with.
    ///
    /// # Panics
    /// When the node does not hold the lock.
    pub fn unlock(&self, node: usize) {
        let own = &self.nodes[node];
        // ORDERING: Relaxed, written by the holder's own thread or by one it has synchronised with.
        assert_eq!(own.state.load(Ordering::Relaxed), HELD, "node {node} does not hold the lock");
        // ORDERING: Relaxed, released with the lock: the next holder, or a thread told by a later holder, may use the
        // node.
        own.state.store(IDLE, Ordering::Relaxed);
        // ORDERING: Acquire, the successor's node is initialised; pairs with the link in `lock`.
        let mut next = own.next.load(Ordering::Acquire);
        if next == NONE {
            rmw::contended(1);
            // ORDERING: latch, what this holder wrote the next one reads; pairs with the swap in `lock`. A failure
            // learns only that a thread is joining.
            if self.tail.compare_exchange(link(node), NONE, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            next = self.await_link(own);
        }
        self.grant(self.node(next));
    }

    fn prepare(&self, node: usize) -> &Node {
        let own = &self.nodes[node];
        // ORDERING: Relaxed, no other thread reads a node that is not queued; the swap of the tail publishes the
        // words.
        assert_eq!(own.state.load(Ordering::Relaxed), IDLE, "node {node} is in use");
        own.next.store(NONE, Ordering::Relaxed);
        own.state.store(WAITING, Ordering::Relaxed);
        own
    }

    fn grant(&self, successor: &Node) {
        // ORDERING: latch, what this holder wrote the successor reads; pairs with `await_grant`.
        let release = if mutant("mcs: relaxed hand-off") { Ordering::Relaxed } else { Ordering::Release };
        match self.mode {
            WaitMode::Spin => successor.state.store(HELD, release),
            WaitMode::Park => {
                rmw::contended(1);
                if successor.state.swap(HELD, release) == PARKED {
                    successor.unparker.unpark();
                }
            }
        }
    }

    fn await_grant(&self, own: &Node) {
        let mut spin = self.mode.budget(&self.site);
        // ORDERING: Acquire, what the last holder wrote is visible; pairs with `grant`.
        while own.state.load(Ordering::Acquire) != HELD {
            if spin.spin() {
                continue;
            }
            match self.mode {
                WaitMode::Spin => yield_processor(),
                WaitMode::Park => {
                    // ORDERING: Relaxed, PARKED publishes nothing; the loop acquires the grant. A failure is the
                    // grant, or PARKED after a token of an earlier wait.
                    let parked = own.state.compare_exchange(WAITING, PARKED, Ordering::Relaxed, Ordering::Relaxed);
                    if parked != Err(HELD) {
                        // WAIT: park - until the predecessor grants.
                        own.parker.park();
                    }
                }
            }
        }
        spin.end();
    }

    /// Returns the successor, which has swapped the tail and is about to link itself; see rules 1 and 2.
    fn await_link(&self, own: &Node) -> u32 {
        let mut pauses = LINK_PAUSES;
        loop {
            // ORDERING: Acquire, the successor's node is initialised; pairs with the link in `lock`.
            let next = own.next.load(Ordering::Acquire);
            if next != NONE && next != AWAITED {
                return next;
            }
            if pauses > 0 {
                pauses -= 1;
                // WAIT: window - two instructions of the successor.
                hint::spin_loop();
                continue;
            }
            match self.mode {
                // The successor was preempted in the window; the yield lets it run.
                WaitMode::Spin => yield_processor(),
                WaitMode::Park => {
                    // ORDERING: Relaxed, AWAITED publishes nothing; the loop acquires the link.
                    let marked = own.next.compare_exchange(NONE, AWAITED, Ordering::Relaxed, Ordering::Relaxed);
                    if matches!(marked, Ok(_) | Err(AWAITED)) {
                        // WAIT: park - until the successor links itself.
                        own.parker.park();
                    }
                }
            }
        }
    }

    fn node(&self, link: u32) -> &Node {
        &self.nodes[link as usize - 1]
    }
}

/// Returns the name of a node in a word whose zero means none.
fn link(node: usize) -> u32 {
    node as u32 + 1
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::primitive::atomic::AtomicU64;
    use crate::primitive::thread;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    #[test]
    fn holders_exclude_each_other_in_either_mode() {
        const ROUNDS: u64 = 1_000;
        for mode in [WaitMode::Spin, WaitMode::Park] {
            let (lock, inside, total) = (McsLock::new(4, mode), AtomicU64::new(0), AtomicU64::new(0));
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
            assert_eq!(total.load(Ordering::Relaxed), 4 * ROUNDS, "{mode:?}");
            assert!(lock.try_lock(0), "free at the end");
        }
    }

    /// Starts `node`'s wait and returns when it is queued behind all earlier arrivals.
    fn queue<'scope, 'env>(
        scope: &'scope std::thread::Scope<'scope, 'env>,
        lock: &'env McsLock,
        node: usize,
        then: impl FnOnce() + Send + 'scope,
    ) {
        scope.spawn(move || {
            lock.lock(node);
            then();
        });
        while lock.tail.load(Ordering::Relaxed) != link(node) {
            thread::yield_now();
        }
    }

    #[test]
    fn the_lock_goes_round_in_the_order_of_arrival() {
        for mode in [WaitMode::Spin, WaitMode::Park] {
            let lock = McsLock::new(6, mode);
            let (enter, entered) = mpsc::channel();
            lock.lock(5);
            thread::scope(|scope| {
                for node in 0..5 {
                    let (lock, enter) = (&lock, enter.clone());
                    queue(scope, lock, node, move || {
                        enter.send(node).expect("the test listens");
                        lock.unlock(node);
                    });
                }
                lock.unlock(5);
            });
            assert_eq!(entered.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{mode:?}");
        }
    }

    #[test]
    fn another_thread_may_unlock() {
        let lock = McsLock::new(2, WaitMode::Park);
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
        let lock = McsLock::new(2, WaitMode::Park);
        lock.lock(0);
        assert!(catch_unwind(AssertUnwindSafe(|| lock.lock(0))).is_err(), "in use");
        assert!(catch_unwind(AssertUnwindSafe(|| lock.unlock(1))).is_err(), "not the holder");
        lock.unlock(0);
        assert!(catch_unwind(AssertUnwindSafe(|| lock.unlock(0))).is_err(), "unlocked before");
    }

    #[test]
    fn the_cost_of_a_lock_nobody_wants_is_two_exchanges() {
        let lock = McsLock::new(1, WaitMode::Park);
        let before = rmw::counted();
        lock.lock(0);
        lock.unlock(0);
        assert_eq!(rmw::counted() - before, 2);
    }
}

//! The log buffers of "Aether: A Scalable Approach to Logging" (Johnson and others, VLDB 2010), and what they share.
//!
//! An insert acquires a region of the ring, fills it, and releases it. Regions are acquired and released in one order.
//! The variants differ in what they do while they hold the insert lock, and in which thread releases:
//!
//! | buffer | paper | acquires | while it holds the lock | releases |
//! |---|---|---|---|---|
//! | `mutex` | Algorithm 1 | each record | draws, copies, releases | the inserter |
//! | `carray` | C, Algorithms 2 and 5 | a group, if the lock is taken | draws, waits for all copies, releases | the last of the group |
//! | `decoupled` | D, Algorithm 3 | each record | draws | each inserter in its turn |
//! | `hybrid` | CD, section 5.3 | as `carray` | draws | the last of the group in its turn |
//! | `delegated` | CDME, Algorithm 4 | as `carray` | draws, joins the release queue | the thread at the head of the queue |
//!
//! Common properties of these buffers, and where they differ from the paper:
//!
//! - **No wait for buffer space.** In the paper an insert waits for it under the lock (Algorithm 1, line 2), and all
//!   others behind it. Here a session holds credit for its bytes before it appends, so the drawn position is always
//!   free.
//! - **Waits can be chosen.** The paper spins. With [`WaitKind::Park`] a waiter sleeps after a few pauses, and the
//!   insert lock is a byte that a newcomer may take ahead of sleepers. A queue lock would hand each record to a thread
//!   that must first be scheduled. [`WaitKind::Spin`] is the paper's way, over its queue lock; it is there for curves
//!   on machines with a processor for each thread.
//! - **Stamps** are the positions behind records. So a stamp exceeds everything drawn before the insert began, which
//!   is all that a dependency can name.
//! - **A stopped session blocks no other session forever**, but it blocks commits. In each of these buffers a session
//!   that is stopped in its copy keeps later records from being released. The buffer `lanes` avoids that.

mod carray;
mod consolidation;
mod decoupled;
mod delegated;
mod hybrid;
mod mcs;
mod mutex;
mod mutex8;
mod node;
mod ordered;
mod queue;
mod waits;

pub use carray::CArray;
pub use decoupled::Decoupled;
pub use delegated::Delegated;
pub use hybrid::Hybrid;
pub use mcs::McsLock;
pub use mutex::Locked;
pub use mutex8::Mutex8;

use super::names::WaitKind;
use foreshore_sync::CachePadded;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use waits::Waits;

/// Parameters of a buffer of this family.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How threads wait for each other.
    pub wait: WaitKind,
    /// Sessions that may append.
    pub sessions: usize,
    /// Places of the consolidation array.
    pub slots: usize,
    /// Consolidation slots, those in the array included.
    pub pool: usize,
    /// Largest record that consolidates, and most bytes of a group.
    pub group: u64,
}

/// The holder of the insert lock, or of a place in the release queue: a session for itself, or a slot for its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Session(usize),
    Slot(usize),
}

/// A part of the ring between its draw and its release.
#[derive(Clone, Copy, Debug)]
struct Region {
    holder: Holder,
    start: u64,
    end: u64,
}

/// The insert lock and what it guards.
#[derive(Debug)]
struct Front {
    waits: Waits,
    lock: Lock,
    sessions: usize,
    guarded: CachePadded<Guarded>,
}

/// Data of the insert lock: one cache line, which follows the lock from holder to holder.
#[derive(Debug)]
struct Guarded {
    /// The position behind the last draw.
    tail: AtomicU64,
    /// The link of the last node in the release queue.
    last: AtomicU32,
}

#[derive(Debug)]
enum Lock {
    /// The paper's: fair, each waiter spins on its own cache line.
    Queue(McsLock),
    /// For waits that park.
    Byte(CachePadded<Mutex8>),
}

impl Front {
    fn new(first: u64, shape: &Shape) -> Self {
        let lock = match shape.wait {
            WaitKind::Spin => Lock::Queue(McsLock::new(shape.sessions + shape.pool)),
            WaitKind::Park => Lock::Byte(CachePadded::new(Mutex8::default())),
        };
        let waits = Waits::new(shape.wait);
        let guarded = CachePadded::new(Guarded { tail: AtomicU64::new(first), last: AtomicU32::new(node::NONE) });
        Self { waits, lock, sessions: shape.sessions, guarded }
    }

    #[inline]
    fn try_lock(&self, holder: Holder) -> bool {
        match &self.lock {
            Lock::Queue(lock) => lock.try_lock(self.node(holder)),
            Lock::Byte(lock) => lock.try_lock(),
        }
    }

    #[inline]
    fn lock(&self, holder: Holder) {
        // WAIT: park - one draw; in `mutex` and `carray` the copies too.
        match &self.lock {
            Lock::Queue(lock) => lock.lock(self.node(holder)),
            Lock::Byte(lock) => lock.lock(&self.waits.table),
        }
    }

    /// Ends the hold of `holder`, which another thread may have begun.
    #[inline]
    fn unlock(&self, holder: Holder) {
        match &self.lock {
            Lock::Queue(lock) => lock.unlock(self.node(holder)),
            Lock::Byte(lock) => lock.unlock(&self.waits.table),
        }
    }

    /// Returns the queue node of a hold. A slot has its own: the thread that locked for a group appends again while
    /// another member still holds the lock for it.
    fn node(&self, holder: Holder) -> usize {
        match holder {
            Holder::Session(session) => session,
            Holder::Slot(slot) => self.sessions + slot,
        }
    }

    /// Draws the next `bytes` of the ring for the holder of the lock.
    #[inline]
    fn draw(&self, holder: Holder, bytes: u64) -> Region {
        // ORDERING: Relaxed load, changed under the lock only.
        let start = self.guarded.tail.load(Ordering::Relaxed);
        let end = start + bytes;
        // ORDERING: Release, a reader of the bound sees what led to the draw; pairs with `tail`.
        self.guarded.tail.store(end, Ordering::Release);
        Region { holder, start, end }
    }

    fn tail(&self) -> u64 {
        // ORDERING: Acquire, pairs with `draw`.
        self.guarded.tail.load(Ordering::Acquire)
    }
}

/// The position up to which regions are released. One thread at a time may raise it; each variant says which.
#[derive(Debug)]
struct Released(CachePadded<AtomicU64>);

impl Released {
    fn new(first: u64) -> Self {
        Self(CachePadded::new(AtomicU64::new(first)))
    }

    /// Releases the region from `start`, where the last release ended, to `end`.
    #[inline]
    fn raise(&self, start: u64, end: u64) {
        // ORDERING: Relaxed load, each raiser has synchronised with the one before.
        debug_assert_eq!(self.0.load(Ordering::Relaxed), start, "regions are released in their order");
        // ORDERING: publish, all copies below are visible; pairs with `get`.
        let order = if mutant("released: relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.0.store(end, order);
    }

    #[inline]
    fn get(&self) -> u64 {
        // ORDERING: publish, pairs with `raise`.
        self.0.load(Ordering::Acquire)
    }
}

/// Private state of a session.
#[derive(Debug)]
struct Own {
    /// The state of a cheap random sequence.
    seed: AtomicU32,
    /// The slot that it took from the pool last.
    slot: AtomicUsize,
}

impl Own {
    fn new(session: usize) -> Self {
        let seed = AtomicU32::new((session as u32).wrapping_mul(0x9e37_79b9) | 1);
        Self { seed, slot: AtomicUsize::new(session) }
    }

    /// Returns a number from `0..range`. In models it depends only on the session, so that a model can choose.
    fn random(&self, session: usize, range: u32) -> u32 {
        if cfg!(foreshore_loom) {
            return session as u32 % range;
        }
        // ORDERING: Relaxed, the session's own word.
        let mut x = self.seed.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        // ORDERING: as above.
        self.seed.store(x, Ordering::Relaxed);
        x % range
    }
}

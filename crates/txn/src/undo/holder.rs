//! What a session shows of its undo memory: whether it holds some, and the chunks on its shelf.
//!
//! Between two transactions the chunks that a session fills lie on its **shelf**, until the next one enters its first
//! change. A search takes the chunks of all shelves, so a transaction that has begun and changed nothing keeps no
//! memory from others.
//!
//! A session **holds** memory from before it takes a chunk until it has returned all its chunks, or has put them on its
//! shelf. Beginnings and ends of that are counted.
//!
//! **Invariant:** a session counts as holding before others can miss the chunk, and stops counting after they can find
//! it.

use super::chunk::Open;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, LockRank, Mutex, pause};

/// The chunks that a session fills: those of entries that go soon and that old readers keep, and the next one.
pub(super) type Shelf = [Option<Open>; 3];

/// In a shelf: where entries go that go soon.
pub(super) const YOUNG: usize = 0;
/// In a shelf: where entries go that old readers keep.
pub(super) const KEPT: usize = 1;
/// In a shelf: the next chunk. Space is reserved before it is known how much is needed.
pub(super) const SPARE: usize = 2;

/// What a session shows of its undo memory.
#[derive(Debug)]
pub(super) struct Holder {
    /// How often the session has begun or ceased to hold memory; odd while it holds some.
    changes: CachePadded<AtomicU64>,
    /// The number of its lock owner.
    owner: AtomicUsize,
    /// Its chunks while no transaction has any use for them.
    shelf: Mutex<Shelf>,
}

impl Default for Holder {
    fn default() -> Self {
        let shelf = Mutex::new(LockRank::Leaf, Shelf::default());
        Self { changes: CachePadded::default(), owner: AtomicUsize::default(), shelf }
    }
}

impl Holder {
    /// Puts chunks on the shelf, which is empty. Called by the session, which ceases to hold memory.
    pub(super) fn put_on_shelf(&self, chunks: Shelf) {
        let none = std::mem::replace(&mut *self.shelf.lock(), chunks);
        debug_assert!(
            none.iter().all(Option::is_none),
            "a session takes its chunks from the shelf before it takes others"
        );
    }

    /// Takes the chunks from the shelf, if there are any. Called by the session, which then holds memory.
    pub(super) fn take_from_shelf(&self) -> Option<Shelf> {
        let mut shelf = self.shelf.lock();
        if shelf.iter().all(Option::is_none) {
            return None;
        }
        let chunks = std::mem::take(&mut *shelf);
        if mutant("undo: chunks of the shelf are taken before the session holds them") {
            drop(shelf);
            pause::point("undo: a chunk is in hand");
        }
        // Under the mutex: a search that misses the chunks finds that the session holds them.
        self.set(true);
        Some(chunks)
    }

    /// Takes the chunks from the shelf for other sessions.
    pub(super) fn clear_shelf(&self) -> Shelf {
        std::mem::take(&mut *self.shelf.lock())
    }

    /// Called by the session only.
    pub(super) fn set(&self, holds: bool) {
        // ORDERING: Relaxed, stored by this session.
        let changes = self.changes.load(Ordering::Relaxed);
        if changes.is_multiple_of(2) == holds {
            // ORDERING: Release, pairs with `changes`: one that finds the session without memory finds what it
            // returned.
            self.changes.store(changes + 1, Ordering::Release);
        }
    }

    pub(super) fn changes(&self) -> u64 {
        // ORDERING: Acquire, pairs with `set`.
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn set_owner(&self, index: usize) {
        // ORDERING: Relaxed, stored before the session runs its first transaction.
        self.owner.store(index, Ordering::Relaxed);
    }

    pub(super) fn owner(&self) -> usize {
        // ORDERING: Relaxed, final.
        self.owner.load(Ordering::Relaxed)
    }
}

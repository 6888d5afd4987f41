//! The part of a session that others see: whether it holds undo memory, and the chunks on its shelf.
//!
//! Between two transactions the chunks that a session fills are on its **shelf**, until the next transaction enters its
//! first change. A search for memory takes the chunks of all shelves. So a transaction that has changed nothing yet
//! keeps no memory from others.
//!
//! A session **holds** memory from before it takes a chunk until it has returned all its chunks, or has put them on its
//! shelf. A counter per session counts the beginnings and the ends of these times.
//!
//! **Invariant:** the session counts as holding before other sessions can miss the chunk. It stops counting only after
//! they can find the chunk again.

use super::chunk::Open;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::{BiasedMutex, CachePadded, LockRank, pause};

/// The chunks that a session fills: one for entries that are soon dropped, one for entries kept for old readers, and a
/// spare one.
pub(super) type Shelf = [Option<Open>; 3];

/// The place in a shelf of the chunk for entries that are soon dropped.
pub(super) const YOUNG: usize = 0;
/// The place in a shelf of the chunk for entries that old readers keep.
pub(super) const KEPT: usize = 1;
/// The place in a shelf of the spare chunk. A session reserves space before it knows which of the chunks it will fill.
pub(super) const SPARE: usize = 2;

/// The part of a session's undo that others see.
#[derive(Debug)]
pub(super) struct Holder {
    /// How often the session has begun or stopped holding memory. Odd while it holds some.
    changes: CachePadded<AtomicU64>,
    /// The index of the session's lock owner.
    owner: AtomicUsize,
    /// The chunks of the session while no transaction uses them.
    shelf: BiasedMutex<Shelf>,
}

impl Default for Holder {
    fn default() -> Self {
        let shelf = BiasedMutex::new(LockRank::Leaf, Shelf::default());
        Self { changes: CachePadded::default(), owner: AtomicUsize::default(), shelf }
    }
}

impl Holder {
    /// Puts chunks on the shelf, which is empty. Called by the session, which then stops holding memory.
    pub(super) fn put_on_shelf(&self, chunks: Shelf) {
        let none = std::mem::replace(&mut *self.shelf.lock(), chunks);
        debug_assert!(
            none.iter().all(Option::is_none),
            "a session takes its chunks from the shelf before it takes others"
        );
    }

    /// Takes the chunks from the shelf, if there are any. Called by the session, which holds memory from then on.
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
        // Under the mutex: a search that misses the chunks finds that the session holds memory.
        self.set(true);
        Some(chunks)
    }

    /// Takes the chunks from the shelf for other sessions.
    pub(super) fn clear_shelf(&self) -> Shelf {
        std::mem::take(&mut *self.shelf.visit())
    }

    /// Sets whether the session holds memory. Called by the session only.
    pub(super) fn set(&self, holds: bool) {
        // ORDERING: Relaxed, stored by this session.
        let changes = self.changes.load(Ordering::Relaxed);
        if changes.is_multiple_of(2) == holds {
            // ORDERING: Release, pairs with `changes`: one that finds the session without memory finds what it
            // returned.
            self.changes.store(changes + 1, Ordering::Release);
        }
    }

    /// Returns whether the session holds memory. Called by the session only.
    pub(super) fn holds(&self) -> bool {
        // ORDERING: Relaxed, stored by this session.
        !self.changes.load(Ordering::Relaxed).is_multiple_of(2)
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

//! Room for shared row locks: the one kind of lock of which a transaction may have any number.

use foreshore_base::{Error, Result, TableId};
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::rmw;

/// Most locks that a transaction has room for without asking.
const MOST_OWN: usize = 64;

/// What all owners share. Each has room for a few locks of its own, so that small transactions never meet here, and takes more
/// from the rest by as many at a time. Where there are fewer than two locks an owner nobody has room of its own, and all of it
/// goes one by one to who comes first.
#[derive(Debug)]
pub(crate) struct Room {
    max: usize,
    /// Locks that each owner has room for anyway.
    own: usize,
    left: AtomicUsize,
}

impl Room {
    /// Room for `max` locks, half of it for owners of their own.
    pub(crate) fn new(max: usize, owners: usize) -> Self {
        let own = (max / 2 / owners.max(1)).min(MOST_OWN);
        Self { max, own, left: AtomicUsize::new(max - own * owners) }
    }

    /// Locks that an owner with room for `has` may hold after it has taken more, for a lock in `table`.
    pub(crate) fn more(&self, has: usize, table: TableId) -> Result<usize> {
        let step = self.own.max(1);
        rmw::contended(1);
        // ORDERING: Relaxed, a number that publishes nothing.
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(step));
        taken.map(|_| has + step).map_err(|_| Error::LockLimit { table: table.into(), max: self.max })
    }

    /// Takes back what an owner with room for `has` took, and returns its own.
    pub(crate) fn settle(&self, has: usize) -> usize {
        if has > self.own {
            rmw::contended(1);
            // ORDERING: as in `more`.
            self.left.fetch_add(has - self.own, Ordering::Relaxed);
        }
        self.own
    }

    /// Locks that an owner has room for at the start.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// Locks for which owners hold room beyond their own.
    pub(crate) fn taken(&self, owners: usize) -> usize {
        // ORDERING: as in `more`.
        (self.max - self.own * owners).saturating_sub(self.left.load(Ordering::Relaxed))
    }
}

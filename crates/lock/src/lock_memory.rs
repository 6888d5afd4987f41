//! Memory for point locks and intervals: the locks of which a transaction may have any number.
//!
//! It is counted in units of [`UNIT_BYTES`]. Each owner has a few units of its own, so that small transactions never
//! meet here. It borrows more from the common units, as many at a time as it has of its own, up to a quarter of them.
//! Where there are fewer than two units an owner, none has units of its own, and all units are borrowed one by one.

use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::rmw;

/// Most bytes of memory of a point lock of a short key. It has an entry in a table that may be half empty, its owner's
/// note in a list and in a set, and its key.
pub const UNIT_BYTES: usize = 352;

/// Most units of an owner's own.
const MOST_OWN: usize = 64;

/// Most units that one owner borrows: the keys of its locks lie in one vector of less than 4 GiB.
const MOST_BORROWED: usize = 1 << 22;

/// The units of all owners.
#[derive(Debug)]
pub(crate) struct LockMemory {
    /// Units of each owner's own.
    own: usize,
    common: usize,
    /// Common units that are not borrowed.
    left: AtomicUsize,
}

impl LockMemory {
    /// Memory of `max` units, half of it for owners of their own.
    pub(crate) fn new(max: usize, owners: usize) -> Self {
        let own = (max / 2 / owners.max(1)).min(MOST_OWN);
        let common = max - own * owners;
        Self { own, common, left: AtomicUsize::new(common) }
    }

    /// Units that an owner with `has` units may use after it has borrowed more; `None` if it may not.
    pub(crate) fn borrow(&self, has: usize) -> Option<usize> {
        let step = self.own.max(1);
        assert!(self.own <= has, "an owner has {has} units for locks, fewer than its own {}", self.own);
        if has + step > self.own + self.common.div_ceil(4).min(MOST_BORROWED) {
            return None;
        }
        rmw::contended(1);
        // ORDERING: Relaxed, a number that publishes nothing.
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(step));
        taken.ok().map(|_| has + step)
    }

    /// Returns what an owner with `has` units borrowed, and answers with its own units.
    pub(crate) fn give_back(&self, has: usize) -> usize {
        if has > self.own {
            rmw::contended(1);
            // ORDERING: as in `borrow`.
            let left = self.left.fetch_add(has - self.own, Ordering::Relaxed) + has - self.own;
            assert!(left <= self.common, "{} of {} common units for locks are left", left, self.common);
        }
        self.own
    }

    /// Units of an owner's own.
    pub(crate) const fn own(&self) -> usize {
        self.own
    }

    /// Units that owners have borrowed.
    pub(crate) fn borrowed(&self) -> usize {
        // ORDERING: as in `borrow`.
        self.common - self.left.load(Ordering::Relaxed)
    }
}

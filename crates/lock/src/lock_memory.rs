//! Memory for point locks and intervals, of which a transaction may hold any number.
//!
//! Memory is counted in units of [`UNIT_BYTES`]:
//!
//! - Each owner has a few units of its own, so that small transactions never contend for the common units.
//! - An owner borrows common units, as many at a time as it has of its own, up to a quarter of them.
//! - With fewer than two units per owner, no owner has units of its own. Then all units are borrowed one by one.

use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::rmw;

/// Upper bound on the memory of a point lock of a short key, in bytes. The lock has an entry in a table that may be
/// half empty, a place in its owner's list and set, and its key.
pub const UNIT_BYTES: usize = 352;

/// Most units that belong to one owner.
const MOST_OWN: usize = 64;

/// Most units that one owner borrows. It bounds the vector with the keys of its locks to less than 4 GiB.
const MOST_BORROWED: usize = 1 << 22;

/// The units of all owners.
#[derive(Debug)]
pub(crate) struct LockMemory {
    /// Units that belong to each owner.
    own: usize,
    common: usize,
    /// Common units that are not borrowed.
    left: AtomicUsize,
}

impl LockMemory {
    /// Returns a memory of `max` units. At most half of them belong to single owners.
    pub(crate) fn new(max: usize, owners: usize) -> Self {
        let own = (max / 2 / owners.max(1)).min(MOST_OWN);
        let common = max - own * owners;
        Self { own, common, left: AtomicUsize::new(common) }
    }

    /// Borrows more units for an owner that has `has`. Returns its new total; `None` if it may not borrow more.
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

    /// Takes back what an owner with `has` units borrowed. Returns the number of its own units.
    pub(crate) fn give_back(&self, has: usize) -> usize {
        if has > self.own {
            rmw::contended(1);
            // ORDERING: as in `borrow`.
            let left = self.left.fetch_add(has - self.own, Ordering::Relaxed) + has - self.own;
            assert!(left <= self.common, "{} of {} common units for locks are left", left, self.common);
        }
        self.own
    }

    /// Returns the units that belong to each owner.
    pub(crate) const fn own(&self) -> usize {
        self.own
    }

    /// Returns the units that owners have borrowed.
    pub(crate) fn borrowed(&self) -> usize {
        // ORDERING: as in `borrow`.
        self.common - self.left.load(Ordering::Relaxed)
    }
}

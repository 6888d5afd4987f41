//! Memory for point locks and intervals: the locks of which a transaction may have any number.

use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::rmw;

/// Most units that a transaction has without asking.
const MOST_OWN: usize = 64;

/// Most units that one transaction takes of what is common: the keys of its locks lie in one vector of less than 4 GiB.
const MOST_TAKEN: usize = 1 << 22;

/// What all owners share, in units of [`SHARE_BYTES`](crate::SHARE_BYTES). Each has a few units of its own, so that
/// small transactions never meet here, and takes more from the rest by as many at a time, up to a quarter of the rest.
/// Where there are fewer than two units an owner none has units of its own, and all of them go one by one.
#[derive(Debug)]
pub(crate) struct Room {
    /// Units that each owner has anyway.
    own: usize,
    /// What all have in common.
    common: usize,
    left: AtomicUsize,
}

impl Room {
    /// Room for `max` units, half of it for owners of their own.
    pub(crate) fn new(max: usize, owners: usize) -> Self {
        let own = (max / 2 / owners.max(1)).min(MOST_OWN);
        let common = max - own * owners;
        Self { own, common, left: AtomicUsize::new(common) }
    }

    /// Units that an owner with `has` units may use after it has taken more; `None` if its share is spent.
    pub(crate) fn more(&self, has: usize) -> Option<usize> {
        let step = self.own.max(1);
        assert!(self.own <= has, "an owner has {has} units for locks, fewer than its own {}", self.own);
        if has + step > self.own + self.common.div_ceil(4).min(MOST_TAKEN) {
            return None;
        }
        rmw::contended(1);
        // ORDERING: Relaxed, a number that publishes nothing.
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(step));
        taken.ok().map(|_| has + step)
    }

    /// Takes back what an owner with `has` units took, and returns its own.
    pub(crate) fn settle(&self, has: usize) -> usize {
        if has > self.own {
            rmw::contended(1);
            // ORDERING: as in `more`.
            let left = self.left.fetch_add(has - self.own, Ordering::Relaxed) + has - self.own;
            assert!(left <= self.common, "{} of {} common units for locks are left", left, self.common);
        }
        self.own
    }

    /// Units that an owner has at the start.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// Units that owners have beyond their own.
    pub(crate) fn taken(&self) -> usize {
        // ORDERING: as in `more`.
        self.common - self.left.load(Ordering::Relaxed)
    }
}

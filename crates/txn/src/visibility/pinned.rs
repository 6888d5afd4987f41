//! Pinned xids: transactions that still run although the status window has passed their xids.
//!
//! A pinned xid keeps its word of the window. This list has the xids below the window's start that have a word.
//!
//! | role | does |
//! |---|---|
//! | the slider, under its mutex | adds an xid before it raises the start of the window over it |
//! | the slider, under its mutex | removes an xid once its outcome is durable |
//! | readers of an xid below the start | search the list before they call the xid frozen |
//!
//! 1. A reader that finds the start of the window above an xid finds the xid here, unless it was removed since.
//! 2. A removed xid never comes back.
//! 3. `oldest`, `newest` and `used` cover every xid in `slots` at all times. A reader that finds an xid outside of them
//!    has synchronised with its removal.
//!
//! In the usual case nothing is pinned, `oldest` is above all xids, and a reader loads one word.

use foreshore_base::Xid;
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The value of `oldest` while no xid is pinned.
const NONE: u64 = u64::MAX;

/// The pinned xids of a status window.
pub(crate) struct PinnedXids {
    /// The smallest pinned xid; [`NONE`] if there is none.
    oldest: AtomicU64,
    /// The largest pinned xid; zero if there is none.
    newest: AtomicU64,
    /// Slots from here on are empty.
    used: AtomicUsize,
    /// The pinned xids in no order. Zero is an empty slot.
    slots: Box<[AtomicU64]>,
}

impl PinnedXids {
    /// Returns an empty list with space for `most` xids.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            oldest: AtomicU64::new(NONE),
            newest: AtomicU64::new(0),
            used: AtomicUsize::new(0),
            slots: (0..most).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns how many xids it has space for.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether no xid is pinned.
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest() == Xid(NONE)
    }

    /// Returns a bound: no xid below it is pinned.
    pub(crate) fn oldest(&self) -> Xid {
        // ORDERING: Acquire, pairs with `cover`: the removal of an xid that is missing is visible, and all before it.
        Xid(self.oldest.load(Ordering::Acquire))
    }

    /// Returns a bound: no xid above it is pinned.
    pub(crate) fn newest(&self) -> Xid {
        // ORDERING: Acquire, as in `oldest`.
        Xid(self.newest.load(Ordering::Acquire))
    }

    /// Returns the slot of a pinned xid. The caller has found the start of the window above `xid`.
    pub(crate) fn find(&self, xid: Xid) -> Option<usize> {
        if xid < self.oldest() || xid > self.newest() {
            return None;
        }
        self.used().iter().position(|slot| at(slot) == xid)
    }

    /// Returns whether `xid`, found in `slot`, is still pinned.
    pub(crate) fn is_in(&self, slot: usize, xid: Xid) -> bool {
        at(&self.slots[slot]) == xid
    }

    /// Returns the pinned xids, in no order. Exact only for the slider.
    pub(crate) fn all(&self) -> impl Iterator<Item = Xid> {
        self.used().iter().map(at).filter(|&xid| xid > Xid::ZERO)
    }

    /// Pins an xid. Called by the slider before it raises the start of the window over `xid`. The slider has checked
    /// that there is space.
    pub(crate) fn add(&self, xid: Xid) {
        debug_assert!(self.all().all(|pinned| pinned != xid), "{xid} is pinned twice");
        let slot = self.slots.iter().position(|slot| at(slot) == Xid::ZERO).expect("space for a pinned xid");
        // ORDERING: Relaxed, the raise of the window's start publishes all of this (rule 1).
        self.slots[slot].store(xid.0, Ordering::Relaxed);
        // ORDERING: AcqRel, as above; a reader of the new value has synchronised with the removals before, too.
        self.used.fetch_max(slot + 1, Ordering::AcqRel);
        // ORDERING: AcqRel, as above.
        self.newest.fetch_max(xid.0, Ordering::AcqRel);
        // ORDERING: AcqRel, as above.
        self.oldest.fetch_min(xid.0, Ordering::AcqRel);
    }

    /// Unpins an xid whose late commit is noted. Called by the slider.
    pub(crate) fn remove(&self, xid: Xid) {
        let slot = self.used().iter().position(|slot| at(slot) == xid).expect("a pinned xid");
        // ORDERING: Release, pairs with `at`: a reader that misses the xid finds its late commit.
        self.slots[slot].store(0, Ordering::Release);
        self.cover();
        debug_assert!(self.all().all(|pinned| pinned != xid), "{xid} is unpinned and still in the list");
    }

    /// Fits the bounds to the remaining xids. Called by the slider.
    fn cover(&self) {
        let (oldest, newest) = self.all().fold((NONE, 0), |(least, most), Xid(xid)| (least.min(xid), most.max(xid)));
        let used = self.slots.iter().rposition(|slot| at(slot) > Xid::ZERO).map_or(0, |last| last + 1);
        // ORDERING: Release, pairs with `oldest`, `newest` and `used` (rule 3).
        self.oldest.store(oldest, Ordering::Release);
        // ORDERING: as above.
        self.newest.store(newest, Ordering::Release);
        // ORDERING: as above.
        self.used.store(used, Ordering::Release);
    }

    fn used(&self) -> &[AtomicU64] {
        // ORDERING: Acquire, as in `oldest`.
        &self.slots[..self.used.load(Ordering::Acquire)]
    }
}

/// Returns the xid in a slot, zero if the slot is empty.
fn at(slot: &AtomicU64) -> Xid {
    // ORDERING: Acquire, pairs with `remove`.
    Xid(slot.load(Ordering::Acquire))
}

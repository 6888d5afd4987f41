//! The pinned xids: xids of running transactions that are below the start of the status window.
//!
//! A pinned xid keeps its status word. This list has all xids below the start of the window that have one. The slider
//! is the thread in [`StatusWindow::slide`](super::status::StatusWindow::slide); its mutex is that of the late commits.
//! An xid below the start that is not in this list is frozen: its outcome is final.
//!
//! | role | does |
//! |---|---|
//! | the slider, under its mutex | adds an xid before it raises the start of the window over it |
//! | the slider, under its mutex | removes an xid once it was rolled back, or its commit is durable |
//! | readers of an xid below the start | search the list before they call the xid frozen |
//!
//! 1. A reader that finds the start of the window above an xid finds the xid here, unless it was removed since.
//! 2. A removed xid never comes back.
//! 3. `oldest`, `newest` and `used_len` cover every xid in `slots`, except one that `add` is entering. A reader that
//!    finds an xid below the start of the window and outside of them has synchronised with its removal.
//!
//! Usually no xid is pinned. Then `oldest` is above all xids, and a reader loads only that word.
//!
//! **The previous run.** While a restart undoes transactions beside new ones, the xids of the previous run that may be
//! live count as pinned, too ([`EarlierXids`]). The bounds cover all of them. They have no words and no slots.

use super::earlier::{Earlier, EarlierXids};
use foreshore_base::Xid;
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;

/// The value of `oldest` while no xid is pinned.
const NONE: u64 = u64::MAX;

/// The pinned xids of a status window.
pub(crate) struct PinnedXids {
    /// The smallest pinned xid; [`NONE`] if there is none.
    oldest: AtomicU64,
    /// The largest pinned xid; zero if there is none.
    newest: AtomicU64,
    /// Slots from here on are empty.
    used_len: AtomicUsize,
    /// The pinned xids in no order. Zero is an empty slot.
    slots: Box<[AtomicU64]>,
    /// The xids of the previous run, if a restart undoes some of them beside new transactions.
    earlier: OnceLock<Earlier>,
}

impl PinnedXids {
    /// Returns an empty list with space for `capacity` xids.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            oldest: AtomicU64::new(NONE),
            newest: AtomicU64::new(0),
            used_len: AtomicUsize::new(0),
            slots: (0..capacity).map(|_| AtomicU64::new(0)).collect(),
            earlier: OnceLock::new(),
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
        // ORDERING: Acquire, pairs with `fit_bounds`: the removal of an xid that is missing is visible, and all before
        // it.
        Xid(self.oldest.load(Ordering::Acquire))
    }

    /// Returns a bound: no xid above it is pinned.
    pub(crate) fn newest(&self) -> Xid {
        // ORDERING: Acquire, as in `oldest`.
        Xid(self.newest.load(Ordering::Acquire))
    }

    /// Returns the slot of an xid of this run, if it is pinned. The caller has found the start of the window above
    /// `xid`.
    pub(crate) fn find(&self, xid: Xid) -> Option<usize> {
        if xid < self.oldest() || xid > self.newest() {
            return None;
        }
        self.used_slots().iter().position(|slot| xid_in(slot) == xid)
    }

    /// Returns whether an xid of the previous run may be live.
    pub(crate) fn has_earlier(&self, xid: Xid) -> bool {
        xid >= self.oldest() && self.earlier.get().is_some_and(|earlier| earlier.may_be_live(xid))
    }

    /// Pins the xids of the previous run that may be live, up to `next`. Called once, before the first transaction
    /// begins, by the slider.
    pub(crate) fn hold_earlier(&self, xids: EarlierXids, next: Xid) {
        assert!(self.earlier.set(Earlier::new(xids, next)).is_ok(), "the previous run is held once");
        self.fit_bounds();
    }

    /// Returns the xids of the previous run, while some of them may be live.
    pub(crate) fn earlier(&self) -> Option<&Earlier> {
        self.earlier.get().filter(|earlier| !earlier.are_over())
    }

    /// Unpins all xids of the previous run. Called by the slider.
    pub(crate) fn end_earlier(&self) {
        self.earlier.get().into_iter().for_each(Earlier::end);
        self.fit_bounds();
    }

    /// Returns whether `xid`, found in `slot`, is still pinned.
    pub(crate) fn still_has(&self, slot: usize, xid: Xid) -> bool {
        xid_in(&self.slots[slot]) == xid
    }

    /// Returns the pinned xids, in no order. Exact only for the slider.
    pub(crate) fn all(&self) -> impl Iterator<Item = Xid> {
        self.used_slots().iter().map(xid_in).filter(|&xid| xid > Xid::ZERO)
    }

    /// Pins an xid. Called by the slider before it raises the start of the window over `xid`. The slider has checked
    /// that there is space.
    pub(crate) fn add(&self, xid: Xid) {
        debug_assert!(self.all().all(|pinned| pinned != xid), "{xid} is pinned twice");
        let slot = self.slots.iter().position(|slot| xid_in(slot) == Xid::ZERO).expect("space for a pinned xid");
        // ORDERING: Relaxed, the raise of the window's start publishes all of this (rule 1).
        self.slots[slot].store(xid.0, Ordering::Relaxed);
        // ORDERING: AcqRel, as above; a reader of the new value has synchronised with the removals before, too.
        self.used_len.fetch_max(slot + 1, Ordering::AcqRel);
        // ORDERING: AcqRel, as above.
        self.newest.fetch_max(xid.0, Ordering::AcqRel);
        // ORDERING: AcqRel, as above.
        self.oldest.fetch_min(xid.0, Ordering::AcqRel);
    }

    /// Unpins an xid. Called by the slider, after it has noted the late commit if a reader needs it.
    pub(crate) fn remove(&self, xid: Xid) {
        let slot = self.used_slots().iter().position(|slot| xid_in(slot) == xid).expect("a pinned xid");
        // ORDERING: Release, pairs with `xid_in`: a reader that misses the xid finds its late commit.
        self.slots[slot].store(0, Ordering::Release);
        self.fit_bounds();
        debug_assert!(self.all().all(|pinned| pinned != xid), "{xid} is unpinned and still in the list");
    }

    /// Fits the bounds to the remaining xids. Called by the slider.
    fn fit_bounds(&self) {
        let earlier = self.earlier().map_or((NONE, 0), Earlier::bounds);
        let (oldest, newest) = self.all().fold(earlier, |(least, most), Xid(xid)| (least.min(xid), most.max(xid)));
        let used = self.slots.iter().rposition(|slot| xid_in(slot) > Xid::ZERO).map_or(0, |last| last + 1);
        // ORDERING: Release, pairs with `oldest`, `newest` and `used_slots` (rule 3).
        self.oldest.store(oldest, Ordering::Release);
        // ORDERING: as above.
        self.newest.store(newest, Ordering::Release);
        // ORDERING: as above.
        self.used_len.store(used, Ordering::Release);
    }

    fn used_slots(&self) -> &[AtomicU64] {
        // ORDERING: Acquire, as in `oldest`.
        &self.slots[..self.used_len.load(Ordering::Acquire)]
    }
}

/// Returns the xid in a slot, zero if the slot is empty.
fn xid_in(slot: &AtomicU64) -> Xid {
    // ORDERING: Acquire, pairs with `remove`.
    Xid(slot.load(Ordering::Acquire))
}

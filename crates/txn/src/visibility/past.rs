//! The visibility of xids for one snapshot, with a cache for xids that the status window has passed.

use super::readers::Mark;
use super::status::{Sight, StatusWindow};
use foreshore_base::{Csn, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex};

/// The cache of a snapshot, for xids that the status window has passed since it was taken.
#[derive(Debug)]
pub(crate) struct Past {
    /// Xids below it, if also below the snapshot's `hi`, are visible.
    clear: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// Xids below it, if also below `hi`, are visible, except those in the two lists.
    upto: Xid,
    /// Xids with late commits, above the snapshot, ascending.
    late: Vec<Xid>,
    /// Xids that were pinned when the list was read. The list says nothing about them once they have ended.
    pinned: Vec<Xid>,
}

impl Past {
    pub(crate) fn new(mark: &Mark) -> Self {
        let upto = mark.frozen.below;
        let known = Known { upto, late: Vec::new(), pinned: Vec::new() };
        Self { clear: AtomicU64::new(upto.0), known: Mutex::new(LockRank::Leaf, known) }
    }

    /// Empties the cache, for another snapshot.
    pub(crate) fn begin(&mut self, mark: &Mark) {
        let upto = mark.frozen.below;
        let known = self.known.get_mut();
        known.upto = upto;
        known.late.clear();
        known.pinned.clear();
        // ORDERING: Relaxed, no other thread has the snapshot.
        self.clear.store(upto.0, Ordering::Relaxed);
    }

    /// Returns the number of the commit on which the changes of `xid` depend for the snapshot `mark`. Returns zero if
    /// they are certainly durable, and `None` if they are invisible.
    pub(crate) fn sees(&self, window: &StatusWindow, mark: &Mark, xid: Xid) -> Option<Csn> {
        // Checked first, because the window may have passed these xids as well.
        if xid >= mark.hi {
            return None;
        }
        // ORDERING: Relaxed, each value of it is true of the snapshot, and it says nothing of anything else.
        if mark.frozen.has(xid) || xid.0 < self.clear.load(Ordering::Relaxed) {
            return Some(Csn::ZERO);
        }
        match window.see(xid, mark.csn) {
            Sight::Invisible if !mutant("sabotage: a snapshot sees what has not committed") => None,
            Sight::Invisible => Some(Csn::ZERO),
            Sight::Visible(csn) => Some(csn),
            Sight::Frozen if self.is_late(window, mark, xid) => None,
            Sight::Frozen => Some(Csn::ZERO),
        }
    }

    /// Returns whether the commit of the frozen `xid` is above the snapshot.
    fn is_late(&self, window: &StatusWindow, mark: &Mark, xid: Xid) -> bool {
        let mut known = self.known.lock();
        if xid >= known.upto || known.pinned.contains(&xid) {
            drop(known);
            let (upto, late, pinned) = window.late_for(mark.csn);
            known = self.known.lock();
            // Another thread may have stored a later list. While the window stands, pinned xids only become fewer.
            if upto > known.upto || (upto == known.upto && pinned.len() <= known.pinned.len()) {
                let clear =
                    late.first().into_iter().chain(pinned.iter().min()).fold(upto, |clear, &xid| clear.min(xid));
                *known = Known { upto, late, pinned };
                // ORDERING: Relaxed, as in `sees`.
                self.clear.store(clear.0, Ordering::Relaxed);
            }
        }
        known.late.binary_search(&xid).is_ok()
    }
}

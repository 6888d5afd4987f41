//! Views: all readers at one moment, by which old versions of rows are judged.

use super::pins::Pins;
use super::readers::{LateXids, Reader, Readers};
use foreshore_base::{Csn, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex};
use std::sync::Arc;

/// All readers at one moment, and the late commits for which they may ask.
///
/// **Invariant:** a version that is dead by a view stays dead. Readers only end, and a later reader has a snapshot at
/// or above the **floor**. The floor is read before the readers.
///
/// So a view may be kept and used for long. A stale view only costs memory: it calls fewer versions dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Snapshots that are not in `readers` are at or above it.
    floor: Csn,
    /// The known snapshots, ascending. Each has the first xid that is invisible to it whatever the status.
    readers: Box<[(Csn, Xid)]>,
    /// No reader, known or not, has a snapshot below it.
    horizon: Csn,
    /// The start of the status window, read before all else.
    lo: Xid,
    /// The late commits and the pinned xids below `lo`, ascending. Pinned xids have no number yet.
    late: LateXids,
}

impl View {
    /// Returns a view of the readers in `readers`.
    ///
    /// `lo`: the start of the window. `late`: the late commits below it for which a reader may ask, and the pinned
    /// xids. The caller has read both before. `floor` returns the durable CSN, or a lower one.
    pub(crate) fn of(readers: &Readers, pins: &Pins, (lo, late): (Xid, LateXids), floor: impl Fn() -> Csn) -> Self {
        let read_first = floor();
        let mut found: Vec<Reader> = readers.all().collect();
        let above = if mutant("view: floor read after the readers") { floor() } else { read_first };
        // A reader that has only a bound will have a snapshot at or above the bound.
        let bounds = found.iter().filter(|reader| reader.hi.is_none()).map(|reader| reader.csn);
        let floor = bounds.fold(above, Csn::min);
        found.retain(|reader| reader.csn < above);
        let mut readers: Vec<(Csn, Xid)> = found.iter().filter_map(|reader| Some((reader.csn, reader.hi?))).collect();
        readers.sort_unstable();
        let oldest = readers.first().map_or(floor, |&(csn, _)| csn);
        let horizon = pins.announce(floor.min(oldest));
        Self { floor, readers: readers.into(), horizon, lo, late }
    }

    /// Returns the commit below which no reader has a snapshot, now or later, and no writer a pin.
    #[must_use]
    pub const fn horizon(&self) -> Csn {
        self.horizon
    }

    /// Returns the floor: readers that come after the view have snapshots at or above it.
    #[must_use]
    pub const fn floor(&self) -> Csn {
        self.floor
    }

    /// Returns the newest known snapshot. If it does not see the current version of a row, no older snapshot does.
    #[must_use]
    pub fn newest_reader(&self) -> Option<Csn> {
        self.readers.last().map(|&(csn, _)| csn)
    }

    /// Returns whether no reader, now or later, sees the version that commit `from` made and commit `to` replaced.
    #[must_use]
    pub fn is_dead(&self, from: Csn, to: Csn) -> bool {
        if to > self.floor {
            return false;
        }
        // Only the oldest snapshot at or above `from` has to be checked.
        let first = self.readers.partition_point(|&(csn, _)| csn < from);
        self.readers.get(first).is_none_or(|&(csn, _)| csn >= to)
    }

    /// Returns a commit number for a transaction whose own number is forgotten. It is at or below a snapshot if and
    /// only if the transaction is visible to that snapshot.
    ///
    /// Returns `None` if the number was not forgotten yet when the view was made. Then a newer view can tell.
    #[must_use]
    pub(crate) fn csn_of_frozen(&self, xid: Xid) -> Option<Csn> {
        if xid >= self.lo {
            return None;
        }
        if let Ok(at) = self.late.binary_search_by_key(&xid, |&(xid, _)| xid) {
            return self.late[at].1;
        }
        // Above the snapshots to which it is invisible, and at or below all others, including future ones.
        let blind = self.readers.iter().rev().find(|&&(_, hi)| hi <= xid);
        Some(blind.map_or(Csn::ZERO, |&(csn, _)| Csn(csn.0 + 1)))
    }
}

/// The newest view, shared by all sessions.
#[derive(Debug)]
pub(crate) struct Views {
    newest: Mutex<Arc<View>>,
    /// The number of views shared so far. Raised under the lock.
    version: AtomicU64,
}

/// A view that a session keeps.
#[derive(Clone, Debug)]
pub(crate) struct KeptView {
    view: Arc<View>,
    version: u64,
}

impl Views {
    pub(crate) fn new(first: View) -> Self {
        Self { newest: Mutex::new(LockRank::Leaf, Arc::new(first)), version: AtomicU64::new(0) }
    }

    pub(crate) fn newest(&self) -> KeptView {
        let newest = self.newest.lock();
        // ORDERING: Relaxed, changed under the lock.
        KeptView { view: newest.clone(), version: self.version.load(Ordering::Relaxed) }
    }

    /// Shares a view that was just made. It may replace a slightly newer view of another thread: both are valid.
    pub(crate) fn share(&self, view: View) -> KeptView {
        let view = Arc::new(view);
        let mut newest = self.newest.lock();
        *newest = view.clone();
        // ORDERING: Relaxed, the lock orders the view; a thread that reads the version without it takes it as a hint.
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        KeptView { view, version }
    }

    /// Replaces a kept view by the newest one, if that is another.
    pub(crate) fn renew(&self, kept: &mut KeptView) {
        // ORDERING: hint, a view that is not the newest is as true.
        if self.version.load(Ordering::Relaxed) != kept.version {
            *kept = self.newest();
        }
    }
}

impl std::ops::Deref for KeptView {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;

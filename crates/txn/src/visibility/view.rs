//! What is still needed: a view of all readers, by which old versions of rows are judged.

use super::pins::Pins;
use super::readers::{LateXids, Reader, Readers};
use foreshore_base::{Csn, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex};
use std::sync::Arc;

/// All readers at one moment, and what of the past they need.
///
/// What a view calls dead stays dead: readers only end, and one that comes later has a snapshot at or above the
/// **floor**, which is read before the readers are. So a view may be kept and used for long; it only grows stale, which
/// costs memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Snapshots that the view does not know are at or above it.
    floor: Csn,
    /// Snapshots known, ascending, each with the first xid that is invisible to it whatever its status.
    readers: Box<[(Csn, Xid)]>,
    /// No reader known or unknown is below.
    horizon: Csn,
    /// Start of the status window before anything else was read.
    lo: Xid,
    /// Commits of xids below `lo` that a reader may ask for, and pinned xids, which have no number yet, ascending.
    late: LateXids,
}

impl View {
    /// The readers of `readers`. `lo` is the window's start, `late` the commits below it that a reader may ask for with
    /// the pinned xids, both read before; `floor` reads what is durable, or less.
    pub(crate) fn of(readers: &Readers, pins: &Pins, (lo, late): (Xid, LateXids), floor: impl Fn() -> Csn) -> Self {
        let read_first = floor();
        let mut found: Vec<Reader> = readers.all().collect();
        let above = if mutant("view: floor read after the readers") { floor() } else { read_first };
        // What a reader without a snapshot yet will have is at or above its bound.
        let bounds = found.iter().filter(|reader| reader.hi.is_none()).map(|reader| reader.csn);
        let floor = bounds.fold(above, Csn::min);
        found.retain(|reader| reader.csn < above);
        let mut readers: Vec<(Csn, Xid)> = found.iter().filter_map(|reader| Some((reader.csn, reader.hi?))).collect();
        readers.sort_unstable();
        let oldest = readers.first().map_or(floor, |&(csn, _)| csn);
        let horizon = pins.announce(floor.min(oldest));
        Self { floor, readers: readers.into(), horizon, lo, late }
    }

    /// No reader has a snapshot below it, now or later, and no writer a pin.
    #[must_use]
    pub const fn horizon(&self) -> Csn {
        self.horizon
    }

    /// Readers that come after the view have their snapshots at or above it.
    #[must_use]
    pub const fn floor(&self) -> Csn {
        self.floor
    }

    /// The newest snapshot that the view knows and that later ones do not come near: what it does not need, none needs.
    #[must_use]
    pub fn newest_reader(&self) -> Option<Csn> {
        self.readers.last().map(|&(csn, _)| csn)
    }

    /// Returns whether no reader sees a version, now or later, that was made by the commit `from` and replaced by the
    /// commit `to`.
    #[must_use]
    pub fn is_dead(&self, from: Csn, to: Csn) -> bool {
        if to > self.floor {
            return false;
        }
        // The first reader that could see it is the first at or above `from`.
        let first = self.readers.partition_point(|&(csn, _)| csn < from);
        self.readers.get(first).is_none_or(|&(csn, _)| csn >= to)
    }

    /// Returns a commit number that says the same to every reader, for a transaction whose own one is forgotten. It is
    /// at or below a snapshot if and only if the transaction is visible to it. `None` if the transaction was not
    /// forgotten when the view was made: a newer view knows.
    #[must_use]
    pub(crate) fn csn_of_frozen(&self, xid: Xid) -> Option<Csn> {
        if xid >= self.lo {
            return None;
        }
        if let Ok(at) = self.late.binary_search_by_key(&xid, |&(xid, _)| xid) {
            return self.late[at].1;
        }
        // Its number is above the snapshots it is invisible to, and not above the others, nor those to come.
        let blind = self.readers.iter().rev().find(|&&(_, hi)| hi <= xid);
        Some(blind.map_or(Csn::ZERO, |&(csn, _)| Csn(csn.0 + 1)))
    }
}

/// The newest view, shared by all.
#[derive(Debug)]
pub(crate) struct Views {
    newest: Mutex<Arc<View>>,
    /// Counts the views. Raised under the lock.
    version: AtomicU64,
}

/// A view that a session keeps by itself.
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

    /// Shares a view that was just made. One made a little earlier by another may come after it: both are true.
    pub(crate) fn share(&self, view: View) -> KeptView {
        let view = Arc::new(view);
        let mut newest = self.newest.lock();
        *newest = view.clone();
        // ORDERING: Relaxed, the lock orders the view; a thread that reads the version without it takes it as a hint.
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        KeptView { view, version }
    }

    /// Replaces a kept view by the newest one, if there is a newer one.
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

//! Visibility: the outcome of each transaction, and the readers that may still ask for it.
//!
//! | part | knows |
//! |---|---|
//! | [`status`] | the outcome of each recent xid: the status window |
//! | [`status_table`] | the outcomes in a plugged-in table, to measure its cost |
//! | [`earlier`] | the xids of the previous run that are still to be undone |
//! | [`readers`] | the snapshots in use |
//! | [`pins`] | the writers that are accessing old versions |
//! | [`view`] | all readers at one moment; tells which old versions are dead |
//! | [`snapshot`] | what one reader sees |
//! | [`limits`] | the cost of snapshots, and their cancellation |
//! | [`kept_pages`] | pages that only older snapshots can reach |
//!
//! A reader takes a [`Snapshot`]. A writer asks for the status of the xid in a row's header. It uses a view to find
//! the dead versions in the row's chain. The window passes an xid whose outcome is final and durable. It also
//! passes a long-running one, which is pinned first.

mod earlier;
mod kept_pages;
mod limits;
pub(crate) mod past;
mod pinned;
pub(crate) mod pins;
pub(crate) mod readers;
mod slots;
pub(crate) mod snapshot;
pub(crate) mod status;
mod status_table;
pub(crate) mod view;

pub use earlier::EarlierXids;
pub use limits::OldestSnapshot;
pub use readers::SnapshotLimits;
pub use snapshot::{ReadOperation, Snapshot, SnapshotKind, SnapshotRef};
pub use status_table::{CsnMap, MakeStatusTable, StatusTable};
pub use view::View;

use crate::halt::Halt;
use foreshore_base::{Csn, Error, Result, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::thread::yield_now;
use foreshore_sync::{ShardedCounter, SystemClock};
use foreshore_wal::Log;
use kept_pages::KeptPages;
use pins::Pins;
use readers::Readers;
use status::{Status, StatusWindow};
use std::sync::{Arc, OnceLock};
use std::{fmt, io};
use view::{KeptView, Views};

/// A function of commits `from` and `to`: the bytes of undo that a snapshot in `from..to` may need and none from `to`
/// on.
type UndoBetween = Box<dyn Fn(Csn, Csn) -> u64 + Send + Sync>;

/// The outcome of each transaction, and the snapshots in use.
pub struct Visibility {
    log: Log,
    halt: Arc<Halt>,
    window: StatusWindow,
    table: OnceLock<Arc<dyn StatusTable>>,
    readers: Readers,
    pins: Pins,
    views: Views,
    kept_pages: KeptPages,
    undo_between: UndoBetween,
    limits: SnapshotLimits,
    /// The clock for the age of snapshots.
    time: SystemClock,
    cancelled: ShardedCounter,
}

impl Visibility {
    /// Returns the visibility for transactions whose status is in `window`. At most `sessions` transactions run at
    /// once. `slots`: how many snapshots may be in use before taking one needs a lock.
    pub(crate) fn new(
        log: Log,
        halt: Arc<Halt>,
        window: StatusWindow,
        (sessions, slots): (usize, usize),
        limits: SnapshotLimits,
        time: SystemClock,
        undo_between: UndoBetween,
    ) -> Arc<Self> {
        let (readers, pins) = (Readers::new(slots), Pins::new(sessions));
        let views = Views::new(View::of(&readers, &pins, window.late(), || log.durable().csn()));
        Arc::new(Self {
            log,
            halt,
            window,
            table: OnceLock::new(),
            readers,
            pins,
            views,
            kept_pages: KeptPages::default(),
            undo_between,
            limits,
            time,
            cancelled: ShardedCounter::new(),
        })
    }

    /// Sets a status table. It is told of each transaction that ends, and consulted beside the status window.
    ///
    /// Called once, before the first transaction writes. The table begins at the first xid that is drawn.
    ///
    /// # Panics
    /// If a table is set already.
    pub fn set_status_table(&self, table: Arc<dyn StatusTable>) {
        assert!(self.table.set(table).is_ok(), "a status table is set already");
    }

    /// Returns the status window.
    pub(crate) const fn window(&self) -> &StatusWindow {
        &self.window
    }

    /// Returns the status of the transaction with `xid`.
    #[inline]
    pub(crate) fn status(&self, xid: Xid) -> Status {
        self.window.get(xid)
    }

    /// Moves the status window over at most `most` xids below `next`, and returns how many it has passed.
    pub(crate) fn slide(&self, next: Xid, most: u64) -> u64 {
        self.window.slide(next, self.log.durable().csn(), most, &self.readers)
    }

    /// Prepares the status table, if there is one, for xids ahead of `xid`.
    pub(crate) fn prepare_table(&self, xid: Xid) -> Result<()> {
        self.table.get().map_or(Ok(()), |table| table.prepare(xid))
    }

    /// Ends the transaction with `xid`, whose commit record has the LSN of `csn`. Returns the number that it commits
    /// with; for `push` see [`StatusWindow::commit`]. The status table is set before the window.
    pub(crate) fn commit(&self, xid: Xid, csn: Csn, push: impl FnMut(Csn) -> Csn) -> Csn {
        if let Some(Err(cause)) = self.table.get().map(|table| table.set(xid, true)) {
            self.halt.halt(&cause);
        }
        self.window.commit(xid, csn, push)
    }

    /// Ends the transaction with `xid` as rolled back.
    ///
    /// # Errors
    /// Those of the status table. The transaction then still counts as running.
    pub(crate) fn abort(&self, xid: Xid) -> Result<()> {
        self.table.get().map_or(Ok(()), |table| table.set(xid, false))?;
        self.window.abort(xid);
        Ok(())
    }

    /// Checks the answer of the window against the status table, if there is one, and halts the engine if they differ.
    /// `by_window`: `None` for a frozen xid. `is_drawn`: whether the xid was ever drawn; if not, the table is not
    /// asked.
    #[inline]
    pub(crate) fn confirm(&self, xid: Xid, by_window: Option<bool>, is_drawn: impl FnOnce() -> bool) {
        if let Some(table) = self.table.get().filter(|_| is_drawn()) {
            // The table may have forgotten what became of a pinned xid.
            self.ask_table(&**table, xid, by_window.filter(|_| xid >= self.window.lo()));
        }
    }

    fn ask_table(&self, table: &dyn StatusTable, xid: Xid, by_window: Option<bool>) {
        match table.has_committed(xid) {
            Ok(found) if by_window.is_none_or(|known| known == found) => {}
            Ok(_) => self.halt.halt(&Error::io(
                "read",
                "the status table",
                io::Error::other("it contradicts the status window"),
            )),
            Err(cause) => self.halt.halt(&cause),
        }
    }

    /// Returns the newest view that was shared.
    pub(crate) fn newest_view(&self) -> KeptView {
        self.views.newest()
    }

    /// Replaces a kept view by the newest one, if that is another one.
    pub(crate) fn renew(&self, kept: &mut KeptView) {
        self.views.renew(kept);
    }

    /// Cancels the snapshots beyond their limits, makes a view of all readers, and shares it with all sessions.
    pub(crate) fn refresh_view(&self) -> KeptView {
        if self.readers.is_any_limited() {
            self.cancel_beyond_limits();
        }
        // The window is read before the durable CSN, so every commit that it has passed is at or below that.
        let past = self.window.late();
        self.views.share(View::of(&self.readers, &self.pins, past, || self.log.durable().csn()))
    }

    /// Returns the commit up to which pages of dropped tables and replaced values may be reused. That commit is
    /// durable, and no reader has a snapshot below it, now or later. Zero while an operation of a cancelled reader is
    /// running. A result stays valid, although a later one may be lower or zero.
    #[must_use]
    pub fn passed(&self) -> Csn {
        let horizon = self.refresh_view().horizon();
        // After the view, which leaves cancelled readers out.
        let is_at_work = self.readers.is_any_cancelled_at_work() && !mutant("txn: no wait for cancelled readers");
        if is_at_work { Csn::ZERO } else { horizon }
    }

    /// Returns whether the changes of `header_xid` can no longer be lost or undone, and no reader needs the state
    /// before them.
    pub fn is_settled(&self, header_xid: Xid) -> bool {
        let view = self.views.newest();
        match self.csn_by(&view, header_xid) {
            Some(csn) if csn <= view.horizon() || mutant("sabotage: a ghost goes that a snapshot needs") => true,
            // A newer view cannot help if a known reader or a pin holds the horizon, or the commit is not durable.
            Some(csn) if csn <= view.floor() || csn.lsn() > self.log.durable() => false,
            None if self.window.get(header_xid) == Status::Live => false,
            _ => {
                let view = self.refresh_view();
                self.csn_by(&view, header_xid).is_some_and(|csn| csn <= view.horizon())
            }
        }
    }

    /// Returns the commit number of the transaction with `xid`, or one that is equivalent for every reader (see
    /// [`View::csn_of_frozen`]). Returns zero if every reader sees its changes, or if it was rolled back.
    /// Returns `None` if it has not ended, or only a newer view can tell.
    pub(crate) fn csn_by(&self, view: &View, xid: Xid) -> Option<Csn> {
        match self.window.get(xid) {
            Status::Live | Status::Spare => None,
            Status::Aborted => Some(Csn::ZERO),
            Status::Committed(csn) => Some(csn),
            Status::Frozen => view.csn_of_frozen(xid),
        }
    }

    /// Runs `touch` with a pinned horizon, for the session of lock owner `index`. `touch` may access versions that
    /// commits above the horizon replaced. A collector frees none of them meanwhile.
    pub(crate) fn pinned<T>(&self, index: usize, view: &View, touch: impl FnOnce(Csn) -> T) -> T {
        let horizon = self.pins.pin(index, view.horizon());
        let touched = touch(horizon);
        self.pins.unpin(index);
        touched
    }

    /// Waits until it has seen each session without a pin, or `may_wait` returns false. Returns whether it has seen
    /// all.
    pub(crate) fn have_all_unpinned(&self, may_wait: impl FnMut() -> bool) -> bool {
        self.pins.have_all_been_off(may_wait)
    }

    /// Waits until no writer accesses what commits below `newest` replaced, and no reader is taking a snapshot below
    /// it. Also returns once `is_over` returns true.
    pub(crate) fn wait_for_pins(&self, newest: Csn, is_over: impl Fn() -> bool) {
        while (self.pins.is_any_below(newest) || self.readers.is_any_taking_below(newest)) && !is_over() {
            // WAIT: window - a writer links one version, or a reader takes its snapshot; either may have lost its
            // processor.
            yield_now();
        }
    }

    /// Returns how many snapshots were cancelled.
    pub(crate) fn cancelled(&self) -> u64 {
        self.cancelled.sum()
    }
}

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visibility").field("window_lo", &self.window.lo()).finish_non_exhaustive()
    }
}

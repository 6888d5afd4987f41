//! The changes of a transaction: their log records, their undo entries, and the links to older row versions.

use super::Txn;
use crate::manager::TxnManager;
use crate::resource::compensation_cost;
use crate::sessions::Lease;
use crate::undo::{Before, Link, MAX_STRUCTURE, UndoPtr, Undoable};
use crate::visibility::View;
use foreshore_base::Lsn;
use foreshore_buffer::format::{SEVERAL, UNDOABLE};
use foreshore_buffer::{Change, ExclusiveGuard};
use foreshore_sync::model::mutant;
use foreshore_wal::Dep;

impl Txn {
    /// Takes the empty buffer in which changes are encoded. The caller returns it by
    /// [`return_buffer`](Self::return_buffer), so that transactions of one session allocate it once.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.lease_mut().buffer);
        buffer.clear();
        buffer
    }

    /// Returns the buffer of [`take_buffer`](Self::take_buffer) to the session.
    pub fn return_buffer(&mut self, buffer: Vec<u8>) {
        self.lease_mut().buffer = buffer;
    }

    /// Prepares for a record of this transaction that is about to be appended. Before the first record, checkpoints are
    /// told to keep the log from here on.
    pub(super) fn before_record(&self) {
        if self.run().trail.last_lsn == Lsn::ZERO {
            self.manager.xids.note_first_record(self.lease().owner.index());
        }
    }

    /// Returns the newest view of the readers that any session has computed. It says which old versions are needed.
    pub fn view(&mut self) -> &View {
        let (manager, lease) = self.manager_and_lease();
        manager.visibility.renew(&mut lease.view);
        &lease.view
    }

    /// Computes a view from all readers, and returns it.
    pub fn refresh_view(&mut self) -> &View {
        let view = self.manager.visibility.refresh_view();
        let kept = &mut self.lease_mut().view;
        *kept = view;
        kept
    }

    /// Logs a change of this transaction, marks its `pages` dirty and sets their LSNs. `dep` has the dependencies
    /// besides the pages and the transaction itself. If the change is [`UNDOABLE`], the newest undo entry belongs to
    /// it.
    pub fn log_change(&mut self, change: &Change<'_>, dep: Dep, pages: &mut [&mut ExclusiveGuard<'_>]) -> Lsn {
        assert!(change.flags & SEVERAL == 0, "several changes are logged as one");
        self.log_changes(u64::from(change.flags & UNDOABLE != 0), change, dep, pages)
    }

    /// Logs several changes by one record, which has the flag [`SEVERAL`] and their number. As many of the newest undo
    /// entries belong to them, in their order. Otherwise it does what [`log_change`](Self::log_change) does.
    pub fn log_several(
        &mut self,
        count: u16,
        change: &Change<'_>,
        dep: Dep,
        pages: &mut [&mut ExclusiveGuard<'_>],
    ) -> Lsn {
        assert!(count > 0 && change.flags == UNDOABLE | SEVERAL, "{count} changes with flags {:#x}", change.flags);
        self.log_changes(u64::from(count), change, dep, pages)
    }

    /// Logs a record with `count` changes that a rollback takes back.
    #[inline]
    fn log_changes(&mut self, count: u64, change: &Change<'_>, dep: Dep, pages: &mut [&mut ExclusiveGuard<'_>]) -> Lsn {
        let xid = self.run().xid.expect("a transaction that changes has an xid");
        let is_late = mutant("txn: the first record is noted behind it");
        if !is_late {
            self.before_record();
        }
        let before = self.run().trail.last_lsn;
        // Of several changes, each needs an LSN that no earlier record of the transaction has.
        let others = count.saturating_sub(1);
        let least = if mutant("sabotage: changes of one record share LSNs") { before } else { Lsn(before.0 + others) };
        let dep = dep.transaction(least).observed(self.run().trail.observed);
        let lease = self.lease_mut();
        let lsn = foreshore_buffer::change(&mut lease.session, dep, xid.0, change, pages);
        if is_late {
            self.before_record();
        }
        let lease = self.lease_mut();
        if count > 0 {
            let mut cost = 0;
            match count {
                1 => cost = compensation_cost(lease.undo.stamp_newest(lsn)),
                _ => lease.undo.stamp_several(count, lsn, |body| cost += compensation_cost(body)),
            }
            lease.session.charge_undo_log(cost);
        }
        assert!(least < lsn, "{xid} logs {count} changes at {lsn}, behind its record at {before}");
        self.run_mut().trail.last_lsn = lsn;
        lsn
    }

    /// Adds the undo entry of a change, before the change itself, and returns the pointer for the tuple header. The
    /// entry has the old value of the row and the data for the undo. A change that is not logged gets an entry too,
    /// with a kind of the resource manager's own. Called under the latch that covers the row. The row's last holder has
    /// ended or is this transaction.
    pub fn push_undo(&mut self, change: &Undoable<'_>) -> UndoPtr {
        self.push(change, false)
    }

    /// Does the same as [`push_undo`](Self::push_undo) for one of several changes, for which space was reserved by
    /// [`try_reserve_several`](Self::try_reserve_several).
    pub fn push_one_of_several(&mut self, change: &Undoable<'_>) -> UndoPtr {
        self.push(change, true)
    }

    #[inline]
    fn push(&mut self, change: &Undoable<'_>, is_one_of_several: bool) -> UndoPtr {
        assert!(self.run().xid.is_some(), "a transaction that changes has an xid");
        assert!(change.structure <= MAX_STRUCTURE, "{} bytes for changes of structure", change.structure);
        if change.structure > 0 {
            self.session().charge_undo_log(change.structure);
        }
        let link = match &change.before {
            None => Link::default(),
            Some(before) if before.lock != UndoPtr::NULL => self.lease_mut().undo.take_lock(before.lock),
            Some(before) => self.behind(before),
        };
        // Space for several was reserved in one place.
        let link = Link { kept: link.kept && !is_one_of_several, ..link };
        let mut change = *change;
        // No reader ever sees a value that this transaction itself has replaced, and the body suffices for the undo.
        if let Some(before) = change.before.as_mut().filter(|before| self.run().xid == Some(before.xid)) {
            *before = Before { front: &[], middle: (0, 0), back: &[], ..*before };
        }
        self.lease_mut().undo.push(&change, &link)
    }

    /// Prefetches the undo entry of a row that is about to be changed or locked. While there is an old reader, every
    /// update reads the entry of the previous update. `undo` is the pointer in the row's header.
    pub fn expect_undo(&self, undo: UndoPtr) {
        if self.lease().view.newest_reader().is_some() {
            self.manager.undo.arena().prefetch(undo);
        }
    }

    /// Returns the state of a row before this transaction locked it, without the value, if a change of the row may
    /// replace the entry of the lock. `undo` is the pointer to that entry in the row's header.
    ///
    /// A change may replace the entry if it is the newest one and no savepoint was taken since. The caller adds the
    /// change with this state, so the row has one entry and not two.
    #[must_use]
    pub fn before_lock(&self, undo: UndoPtr) -> Option<Before<'static>> {
        // The savepoints are searched only if the lock is the newest entry.
        let goes_back =
            || self.run().savepoints.is_any_at(undo) && !mutant("txn: the place of a lock is taken across a savepoint");
        self.lease().undo.before_lock(undo).filter(|_| !goes_back())
    }

    /// Returns the commit number of the row's current version, and the link to the version before it if a reader may
    /// need that.
    fn behind(&mut self, before: &Before<'_>) -> Link {
        if self.run().xid == Some(before.xid) {
            return self.manager.undo.arena().behind_own(before.undo);
        }
        let (TxnManager { visibility, undo, .. }, Lease { view, owner, .. }) = self.manager_and_lease();
        let since = visibility.csn_by(view, before.xid).or_else(|| {
            *view = visibility.refresh_view();
            visibility.csn_by(view, before.xid)
        });
        let since = since.expect("a row that is changed has no other holder");
        let kept = view.newest_reader().is_some_and(|newest| since <= newest);
        if since <= view.horizon() {
            return Link { since, kept, ..Link::default() };
        }
        if view.newest_reader().is_none() {
            return Link { since, next: before.undo, kept, ..Link::default() };
        }
        let clear = |pinned| undo.arena().clear(before.undo, since, pinned, view);
        Link { kept, ..visibility.pinned(owner.index(), view, clear) }
    }
}

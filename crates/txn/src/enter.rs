//! Entering changes: how they are taken back, and what older version of a row lies behind each.

use crate::manager::Lease;
use crate::txn::Txn;
use crate::undo::{Before, Link, MAX_STRUCTURE, UndoPtr, Undoable};
use crate::view::View;
use foreshore_base::Result;
use foreshore_sync::model::mutant;

impl Txn {
    /// Takes the buffer in which changes are encoded, empty. It comes back by [`return_buffer`](Self::return_buffer), so that
    /// transactions of one session allocate it once.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.lease_mut().buffer);
        buffer.clear();
        buffer
    }

    /// Gives back what [`take_buffer`](Self::take_buffer) took.
    pub fn return_buffer(&mut self, buffer: Vec<u8>) {
        self.lease_mut().buffer = buffer;
    }

    /// The newest view of the readers that anybody has made, by which old versions are judged.
    pub fn view(&mut self) -> &View {
        let (manager, lease) = self.manager_and_lease();
        manager.views.renew(&mut lease.view);
        &lease.view
    }

    /// The same after a look at all readers.
    pub fn refresh_view(&mut self) -> &View {
        let view = self.manager.refresh_view();
        let kept = &mut self.lease_mut().view;
        *kept = view;
        kept
    }

    /// Makes sure that one entry of `bytes` fits. Where memory is spent, the transaction waits for some (see [`crate::room`]),
    /// up to its deadline.
    pub(crate) fn reserve_undo(&mut self, bytes: usize) -> Result<()> {
        self.reserve_undo_or_wait(bytes, true)
    }

    /// As [`reserve_undo`](Self::reserve_undo). `waits` says whether to wait for other transactions.
    pub(crate) fn reserve_undo_or_wait(&mut self, bytes: usize, waits: bool) -> Result<()> {
        let (manager, lease) = self.manager_and_lease();
        if manager.try_reserve_undo(lease, bytes).is_ok() {
            return Ok(());
        }
        let (may_agree, most) = (self.may_agree(), self.time_left());
        let (manager, lease) = self.manager_and_lease();
        manager.wait_for_undo(lease, bytes, may_agree, waits, most)
    }

    /// Enters how a change is taken back, and what the row was, before the change itself, and returns what the tuple header
    /// keeps of it. What is not logged gets an entry too, with a kind of the resource manager's own. Called under the latch
    /// that covers the row, whose last holder has ended or is this transaction.
    pub fn push_undo(&mut self, change: &Undoable<'_>) -> UndoPtr {
        assert!(self.xid.is_some(), "a transaction that changes has an xid");
        assert!(change.structure <= MAX_STRUCTURE, "{} bytes for changes of structure", change.structure);
        if change.structure > 0 {
            self.session().charge_undo_log(change.structure);
        }
        let link = match &change.before {
            None => Link::default(),
            Some(before) if before.lock != UndoPtr::NULL => self.lease_mut().undo.take_lock(before.lock),
            Some(before) => self.behind(before),
        };
        let mut change = *change;
        // What the transaction itself had made of the row no reader ever sees, and its way back is in the body.
        if let Some(before) = change.before.as_mut().filter(|before| self.xid == Some(before.xid)) {
            *before = Before { front: &[], middle: (0, 0), back: &[], ..*before };
        }
        self.lease_mut().undo.push(&change, &link)
    }

    /// A change of the row whose header has `undo` is about to be entered, or its lock, if no other transaction holds the row. What of
    /// the undo will be looked at is fetched meanwhile: beside an old reader every update looks at the entry of the one before
    /// it.
    pub fn expect_undo(&self, undo: UndoPtr) {
        if self.lease().view.newest_reader().is_some() {
            self.manager.undo.prefetch(undo);
        }
    }

    /// What a row was before this transaction locked it, without the value, if a change of the row may take the place of the
    /// lock, whose entry is `undo` in the row's header: nothing was entered since, and no savepoint lies between. The change is
    /// entered with this as what was before, so that the row has one entry and not two.
    #[must_use]
    pub fn before_lock(&self, undo: UndoPtr) -> Option<Before<'static>> {
        // The savepoints are looked through only for a lock that is the newest entry.
        let goes_back =
            || self.savepoints.is_any_at(undo) && !mutant("txn: the place of a lock is taken across a savepoint");
        self.lease().undo.before_lock(undo).filter(|_| !goes_back())
    }

    /// Since which commit the row has been what it is, and where the version before is, if a transaction may look for one.
    fn behind(&mut self, before: &Before<'_>) -> Link {
        if self.xid == Some(before.xid) {
            return self.manager.undo.behind_own(before.undo);
        }
        let (manager, Lease { view, owner, .. }) = self.manager_and_lease();
        let since = manager.csn_by(view, before.xid).or_else(|| {
            *view = manager.refresh_view();
            manager.csn_by(view, before.xid)
        });
        let since = since.expect("a row that is changed has no other holder");
        let kept = view.newest_reader().is_some_and(|newest| since <= newest);
        if since <= view.horizon() {
            return Link { since, kept, ..Link::default() };
        }
        if view.newest_reader().is_none() {
            return Link { since, next: before.undo, kept, ..Link::default() };
        }
        // What a collector frees meanwhile lies below the pin.
        let pinned = manager.pins.pin(owner.index(), view.horizon());
        let link = manager.undo.clear(before.undo, since, pinned, view);
        manager.pins.unpin(owner.index());
        Link { kept, ..link }
    }
}

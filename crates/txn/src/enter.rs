//! Entering changes: how they are taken back, and what older version of a row lies behind each.

use crate::manager::Lease;
use crate::txn::Txn;
use crate::undo::{Before, Link, UndoPtr, Undoable};
use crate::view::View;
use foreshore_base::Result;

impl Txn {
    /// The newest view of the readers that anybody has made, by which old versions are judged.
    pub fn view(&mut self) -> &View {
        let manager = self.manager.clone();
        let kept = &mut self.lease_mut().view;
        manager.views.renew(kept);
        kept
    }

    /// The same after a look at all readers.
    pub fn refresh_view(&mut self) -> &View {
        let view = self.manager.refresh_view();
        let kept = &mut self.lease_mut().view;
        *kept = view;
        kept
    }

    /// Makes sure that one entry of `bytes` fits. Where memory is spent, undo is moved to its file, or snapshots are
    /// given up (see [`crate::room`]).
    pub(crate) fn reserve_undo(&mut self, bytes: usize) -> Result<()> {
        let manager = self.manager.clone();
        let may_agree = self.may_agree();
        let Lease { undo, view, session, .. } = self.lease_mut();
        let kept = view.newest_reader().is_some();
        let mut search = None;
        loop {
            let reserved = undo.reserve(bytes, kept, || {
                *view = manager.refresh_view();
                view.horizon()
            });
            if reserved.is_ok() {
                return Ok(());
            }
            // Those who have the room may wait for log space, which the caller reserves again after this.
            session.release();
            undo.fill_up(may_agree);
            if !manager.find_room(search.get_or_insert_with(|| manager.search()), undo, bytes)? {
                return reserved;
            }
        }
    }

    /// Enters how a change is taken back, and what the row was, before the change itself, and returns what the tuple header
    /// keeps of it. What is not logged gets an entry too, with a kind of the resource manager's own. Called under the latch
    /// that covers the row, whose last holder has ended or is this transaction.
    pub fn push_undo(&mut self, change: &Undoable<'_>) -> UndoPtr {
        assert!(self.xid.is_some(), "a transaction that changes has an xid");
        let link = change.before.map_or_else(Link::default, |before| self.behind(&before));
        let mut change = *change;
        // What the transaction itself had made of the row no reader ever sees, and its way back is in the body.
        if let Some(before) = change.before.as_mut().filter(|before| self.xid == Some(before.xid)) {
            *before = Before { front: &[], middle: (0, 0), back: &[], ..*before };
        }
        self.lease_mut().undo.push(&change, &link)
    }

    /// Since which commit the row has been what it is, and where the version before is, if somebody may look for one.
    fn behind(&mut self, before: &Before<'_>) -> Link {
        if self.xid == Some(before.xid) {
            return self.manager.undo.behind_own(before.undo);
        }
        let manager = self.manager.clone();
        let Lease { view, owner, .. } = self.lease_mut();
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
            return Link { since, next: before.undo, countdown: 0, kept };
        }
        // What a collector frees meanwhile lies below the pin.
        let pinned = manager.pins.pin(owner.index(), view.horizon());
        let left = manager.undo.clear(before.undo, since, pinned, view);
        manager.pins.unpin(owner.index());
        let next = if left.is_some() { before.undo } else { UndoPtr::NULL };
        Link { since, next, countdown: left.unwrap_or_default(), kept }
    }
}

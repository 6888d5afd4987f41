//! Old versions that lie in the file: a scan has those of some leaves fetched at once.
//!
//! The versions that one leaf leads to lie in as many chunks as writers have chosen, and those of the next leaves lie in the same
//! chunks. So a scan that misses versions in a leaf asks for those of the leaves behind it, too: of none the first time, as most scans
//! are short, and of twice as many each time. What it misses in these leaves when it comes there, because a row has changed, it
//! fetches for that leaf alone.

use super::Cursor;
use super::span::{End, Span};
use crate::descend::{Access, ReadGuard, Restarts};
use crate::tree::Structure;
use foreshore_base::Result;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_txn::{Fetched, Snapshot, Txn, UndoPtr};

/// Leaves at most, and one of so many frames: they are in memory when the scan comes there.
const MOST: usize = 256;
const SHARE: usize = 16;

/// What was fetched for a scan, and for which leaves.
#[derive(Debug, Default)]
pub(super) struct FetchedAhead {
    pub(super) fetched: Option<Box<Fetched>>,
    /// For which end.
    end: End,
    /// Leaves that were asked for at once the last time.
    window: usize,
    /// Those of them that have not been scanned, with the one at hand.
    left: usize,
}

impl FetchedAhead {
    /// Comes to a leaf. Whether something was fetched for it.
    pub(super) fn begin_leaf(&mut self, end: End) -> bool {
        if self.end != end {
            (self.end, self.window, self.left) = (end, 0, 0);
        }
        self.left > 0
    }

    /// The leaf has been scanned.
    pub(super) fn end_leaf(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

impl Cursor {
    /// Asks for the versions that the leaves in `span` lead to, from one end on, if nothing was fetched for them.
    pub(super) fn want_ahead<const ONCE: bool>(
        &mut self,
        txn: &mut Txn,
        snapshot: &Snapshot,
        span: Option<Span>,
        end: End,
    ) {
        if self.spilled.left > 0 {
            return;
        }
        let most = MOST.min(self.tree.pool().frames() / SHARE);
        let window = (2 * self.spilled.window).clamp(1, most.max(1));
        let (mut leaves, mut behind) = (1, span);
        while leaves < window
            && txn.may_fetch_more()
            && let Some(span) = behind
        {
            leaves += 1;
            let wanted = txn.wanted();
            // An error is for the scan, if it gets there.
            behind = self.want_leaf::<ONCE>(txn, snapshot, span, end).unwrap_or_else(|_| {
                txn.unwant(wanted);
                None
            });
        }
        (self.spilled.window, self.spilled.left) = (window, leaves);
    }

    /// Asks for the versions that the first leaf of a span leads to. Returns what lies behind that leaf.
    fn want_leaf<const ONCE: bool>(
        &self,
        txn: &mut Txn,
        snapshot: &Snapshot,
        span: Span,
        end: End,
    ) -> Result<Option<Span>> {
        let (mut page, mut restarts, mut image) = ([0; PAGE_SIZE], Restarts::default(), Vec::new());
        let wanted = txn.wanted();
        loop {
            let leaf: ReadGuard<'_, ONCE> =
                self.tree.find_again(&mut Structure::of_reader(txn), span.goal(end), 0, 0, &mut restarts)?;
            leaf.page().copy_to(0..PAGE_SIZE, &mut page);
            if !leaf.holds() {
                self.tree.restart(&mut restarts);
                continue;
            }
            let damage = |why| self.tree.corrupted(leaf.pid(), why);
            let node = self.tree.parse(leaf.pid(), &page)?;
            let inside = span.entries(&node).map_err(damage)?;
            for at in inside.clone() {
                let header = node.row(at).map_err(damage)?.header;
                txn.see(snapshot, header.xid, UndoPtr::from_bits(header.undo), &mut image, || leaf.holds());
            }
            if !leaf.holds() {
                txn.unwant(wanted);
            }
            txn.check_snapshot(snapshot)?;
            let rest = span.rest_of(&node, &inside, end).map_err(damage)?;
            return Ok(span.rest(end, rest));
        }
    }
}

//! The removal of the row at one end of a range, in one step.
//!
//! A scan that locks its row, and a remove after it, find the leaf three times and make two undo entries. Mostly the
//! row is free and lies in the leaf in which the range begins. Then one descent, or none after the last such removal,
//! one latch and one undo entry suffice:
//!
//! 1. Read the leaf without its latch, and pass deleted rows. The row is one that no other transaction holds.
//! 2. A serializable transaction covers the keys up to the row by its interval, as a scan does. All of them are in this
//!    leaf.
//! 3. Latch the leaf exclusively if it is unchanged. So all that was read there counts, and an insert into it came
//!    before the read or finds the interval.
//! 4. Change the row as any write does, unless others have shared locks of it.
//!
//! Whatever else is met is left to the scan: a row that is held or locked, a large value, damage, a leaf without rows.
//! Nothing is locked then.

use super::span::{End, Rest, Span};
use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::OVERFLOW;
use crate::node::{Goal, NodeView, Place};
use crate::row::{Found, New};
use crate::tree::{Structure, Tree};
use crate::write::ROW_BODY;
use foreshore_base::Result;
use foreshore_base::limits::MAX_INLINE_VALUE;
use foreshore_buffer::{PageRead, change_cost};
use foreshore_lock::{Interval, LockWait, NewRange, TableMode};
use foreshore_sync::model::mutant;
use foreshore_txn::{Isolation, RowHolder, RowPosition, Txn};
use std::ops::{Bound, Range, RangeBounds};

/// The row at one end of a range, which may be removed while its leaf is unchanged.
struct Outermost {
    leaf: RowPosition,
    place: Place,
    /// Whether the transaction holds it already.
    mine: bool,
}

impl Tree {
    /// Removes the first or the last row between two bounds if that takes one step, and returns where it was. Its key
    /// and its value are copied to `row`. `last` is the result of the last such call for this end, if the transaction
    /// has written nothing since but rows removed from the other end.
    ///
    /// Nothing is removed or locked if `accepts`, which gets the key and the value, returns false, and if the removal
    /// takes more than one step. A scan with locks for update then finds the row.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn pop_at_once(
        &self,
        txn: &mut Txn,
        (lower, upper): (Bound<Vec<u8>>, Bound<Vec<u8>>),
        end: End,
        last: Option<RowPosition>,
        row: (&mut Vec<u8>, &mut Vec<u8>),
        accepts: impl FnOnce(&[u8], &[u8]) -> bool,
    ) -> Result<Option<RowPosition>> {
        let span = Span { lower, upper };
        self.lock_by(txn, TableMode::IntentExclusive, LockWait::Wait)?;
        let (key, value) = row;
        let Some(found) = self.outermost(txn, &span, end, last, (key, value))? else { return Ok(None) };
        if !accepts(key, value) {
            return Ok(None);
        }
        // Removes still work on a full disk.
        txn.freeing(|txn| {
            let taken = self.take_outermost(txn, (&span, end), found, (key, value))?;
            txn.after_xid().map(|()| taken)
        })
    }

    /// Reads the row at one end of a span and copies it. Returns `None` if the row cannot be taken at once.
    fn outermost(
        &self,
        txn: &mut Txn,
        span: &Span,
        end: End,
        last: Option<RowPosition>,
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<Option<Outermost>> {
        let known = last.and_then(|RowPosition { page, at }| Some((ReadGuard::<false>::at(self.pool(), page)?, at)));
        let (leaf, known) = match known {
            Some((leaf, at)) => (leaf, Some(at)),
            None => {
                let goal = span.goal(end);
                (self.find_again(&mut Structure::of(txn), goal, 0, 0, &mut Restarts::default())?, None)
            }
        };
        // An inconsistent page and a damaged one are left to the scan.
        let Ok(node) = self.node(&leaf) else { return Ok(None) };
        let inside = match (known, end) {
            (Some(at), End::Front) => Ok(at + 1..node.len()),
            (Some(at), End::Back) => Ok(0..at),
            (None, _) => span.entries(&node, end),
        };
        let Ok(inside) = inside else { return Ok(None) };
        let mut ghost = None;
        let first = self.first_row(txn, &node, inside, end, &mut ghost);
        if let Some(Ok(ghost)) = ghost.map(|at| node.copy_key(at, Vec::new()))
            && leaf.holds()
        {
            self.note_ghost(leaf.pid(), &ghost);
        }
        let Some((at, place, mine)) = first else { return Ok(None) };
        key.clear();
        node.append_to(place.key.clone(), key);
        value.clear();
        node.append_to(place.value.clone(), value);
        let is_sound = node.must_lead_to(key, at).is_ok();
        let is_inside = (span.lower.as_ref(), span.upper.as_ref()).contains(key);
        let position = RowPosition { page: leaf.position(), at };
        let has_no_conflict = txn.check_conflict(self.table(), key, place.header.xid).is_ok();
        let counts = is_sound && is_inside && has_no_conflict && leaf.holds();
        Ok(counts.then_some(Outermost { leaf: position, place, mine }))
    }

    /// Returns the first entry from one end that is not deleted, its place, and whether the transaction holds it.
    /// `None` if something else comes first. `ghost` becomes a deleted entry before it.
    fn first_row<P: PageRead>(
        &self,
        txn: &mut Txn,
        node: &NodeView<P>,
        mut inside: Range<usize>,
        end: End,
        ghost: &mut Option<usize>,
    ) -> Option<(usize, Place, bool)> {
        loop {
            let at = match end {
                End::Front => inside.next()?,
                End::Back => inside.next_back()?,
            };
            let place = node.place(at).ok()?;
            let mine = match txn.row_holder(place.header.xid) {
                RowHolder::Me => true,
                RowHolder::None => false,
                RowHolder::Other(_) | RowHolder::Unknown => return None,
            };
            if !place.header.is_ghost() {
                return (place.header.flags & OVERFLOW == 0).then_some((at, place, mine));
            }
            // A row that has gone since the snapshot is a conflict.
            txn.check_conflict(self.table(), &[], place.header.xid).ok()?;
            *ghost = Some(at);
        }
    }

    /// Locks the keys up to a row and removes it if its leaf is unchanged. Returns `None` if that needs a wait.
    fn take_outermost(
        &self,
        txn: &mut Txn,
        (span, end): (&Span, End),
        found: Outermost,
        (key, value): (&[u8], &[u8]),
    ) -> Result<Option<RowPosition>> {
        let header = found.place.header;
        let is_plain = !header.is_ghost() && header.flags & OVERFLOW == 0;
        assert!(is_plain, "the row was chosen as one that is there and no large one");
        txn.reserve(change_cost(1, ROW_BODY + key.len() + MAX_INLINE_VALUE), ROW_BODY + key.len() + MAX_INLINE_VALUE)?;
        let Some(covered) = self.cover_up_to(txn, span, end, key) else { return Ok(None) };
        let may_cover = txn.isolation() == Isolation::Serializable;
        assert!(may_cover || covered.is_none(), "only a serializable transaction covers keys");
        let taken = self.remove_unchanged(txn, found, (key, value));
        if !matches!(taken, Ok(Some(_)))
            && let Some(covered) = covered
        {
            let (locks, owner) = txn.locks();
            locks.uncover(owner, covered);
        }
        taken
    }

    /// Removes a row if its leaf is unchanged and no other transaction has a shared lock of it.
    fn remove_unchanged(
        &self,
        txn: &mut Txn,
        Outermost { leaf, place, mine }: Outermost,
        (key, value): (&[u8], &[u8]),
    ) -> Result<Option<RowPosition>> {
        let at = leaf.at;
        let unchanged = match mutant("sabotage: a pop changes a leaf that has changed") {
            true => Some(self.find_again(&mut Structure::of(txn), Goal::At(key), 0, 0, &mut Restarts::default())?),
            false => self.pool().exclusive_at(leaf.page),
        };
        let Some(mut leaf) = unchanged else { return Ok(None) };
        let Some(xid) = txn.try_xid() else { return Ok(None) };
        let found = Found { at, place, mine };
        let is_taken = self.write_row(txn, xid, &mut leaf, key, &found, (value, New::Ghost))?;
        Ok(is_taken.then(|| RowPosition { page: leaf.position(), at }))
    }

    /// Covers the keys from one end of a span up to `key`, if the transaction locks them. The inner `None` stands for
    /// no lock, the outer one for a lock that needs a wait.
    fn cover_up_to(&self, txn: &mut Txn, span: &Span, end: End, key: &[u8]) -> Option<Option<NewRange>> {
        self.cover_passed(txn, || span.passed(end, &Rest::Row(key.to_vec())))
    }

    /// Covers the keys of an interval, as [`cover_up_to`](Self::cover_up_to) does.
    pub(super) fn cover_passed(&self, txn: &mut Txn, passed: impl FnOnce() -> Interval) -> Option<Option<NewRange>> {
        if txn.isolation() != Isolation::Serializable {
            return Some(None);
        }
        let (locks, owner) = txn.locks();
        locks.try_cover(owner, self.table(), &passed()).map(Some)
    }
}

//! Requests for locks of tables and keys: the waits in queues around the calls that do not wait.

use super::LockManager;
use super::owner::Owner;
use crate::interval::Interval;
use crate::keys::{NewRange, NewShare};
use crate::mode::TableMode;
use crate::slot::Edge;
use crate::table_head::Request;
use crate::target::{LockName, Target};
use foreshore_base::{Csn, Error, Result, TableId, Xid};
use std::borrow::Cow;
use std::time::Duration;

impl LockManager {
    /// Locks `table` for `owner`, or strengthens its lock to the supremum of both modes.
    ///
    /// When the new mode reads the whole table, returns the table's tag: the largest commit number of a writer that
    /// has released it. The absence of rows may rest on that. Otherwise, and when the lock was held already, zero.
    ///
    /// # Errors
    /// [`Deadlock`](Error::Deadlock), [`LockTimeout`](Error::LockTimeout).
    pub fn lock_table(&self, owner: &mut Owner, table: TableId, mode: TableMode, timeout: Duration) -> Result<Csn> {
        let held = &mut owner.held;
        let Some(request) = Request::new(held, table, mode) else { return Ok(Csn::ZERO) };
        let tag = match self.tables.request(&self.slots, held, request, true) {
            Some(tag) => tag,
            None => {
                let attempt = || self.tables.try_queued(request).ok_or(LockName::Table(table));
                let wait = (request.owner, Edge::Table(table));
                let granted = self.waits.until_granted(self.graph(), wait, timeout, attempt);
                granted.inspect_err(|_| self.tables.leave_queue(&self.slots, request))?
            }
        };
        held.set_table(table, request.mode);
        Ok(tag)
    }

    /// Locks a table as [`lock_table`](Self::lock_table) does, if that does not have to wait; otherwise `None`, and
    /// nothing has changed.
    pub fn try_lock_table(&self, owner: &mut Owner, table: TableId, mode: TableMode) -> Option<Csn> {
        let held = &mut owner.held;
        let Some(request) = Request::new(held, table, mode) else { return Some(Csn::ZERO) };
        let tag = self.tables.request(&self.slots, held, request, false)?;
        held.set_table(table, request.mode);
        Some(tag)
    }

    /// Enters a shared lock of a key, to the end of the transaction; waits while a writer of another transaction has,
    /// or waits for, its turn. Entering it again costs a look.
    ///
    /// It enters nothing if the transaction's lock of the table lets it read all of it, or one of its intervals covers
    /// the key.
    ///
    /// The lock counts from the moment the caller reads the page afterwards, under a latch or validated by one. If it
    /// finds a live xid of another transaction in the header of a row, the entry stays and the caller goes to
    /// [`wait_xid`](Self::wait_xid).
    ///
    /// # Errors
    /// [`Deadlock`](Error::Deadlock), [`LockTimeout`](Error::LockTimeout).
    pub fn share(&self, owner: &mut Owner, target: Target<'_>, timeout: Duration) -> Result<()> {
        let held = &mut owner.held;
        if self.keys.share(&self.slots, held, target, true).is_some() {
            return Ok(());
        }
        let (index, row) = (held.owner(), self.keys.hash(target));
        let attempt = || self.keys.share(&self.slots, held, target, true).map(drop).ok_or(LockName::row(target));
        let granted = self.waits.until_granted(self.graph(), (index, Edge::Row(row)), timeout, attempt);
        granted.inspect_err(|_| self.keys.points().cancel_request(&self.slots, index, row))
    }

    /// Enters a shared lock as [`share`](Self::share) does, if that does not have to wait; otherwise `None`, and
    /// nothing has changed. Returns what [`unshare`](Self::unshare) takes back.
    pub fn try_share(&self, owner: &mut Owner, target: Target<'_>) -> Option<NewShare> {
        self.keys.share(&self.slots, &mut owner.held, target, false)
    }

    /// Takes out again what [`try_share`](Self::try_share) has entered. For a caller that has handed out nothing that
    /// it read under that lock. A lock that has been merged into an interval since stays.
    pub fn unshare(&self, owner: &mut Owner, share: NewShare) {
        self.keys.unshare(&self.slots, &mut owner.held, share);
    }

    /// Returns whether another transaction has the key shared, by a point lock or by an interval.
    ///
    /// For a writer that holds the page's exclusive latch, before it logs; if there is a row whose header it stores its
    /// xid in, then after it has. On `true` it puts the old header back, unlatches and goes to
    /// [`wait_exclusive`](Self::wait_exclusive). A writer that finds its own xid in the header already does not ask:
    /// readers that came since then wait for it.
    #[must_use]
    pub fn shared_by_other(&self, owner: &Owner, target: Target<'_>) -> bool {
        self.keys.is_shared_by_other(&owner.held, target)
    }

    /// Waits until no other transaction has the key shared, by a point lock or by an interval. On return new readers of
    /// it, and new intervals with it, wait for this writer.
    ///
    /// A writer that has the key shared itself (an upgrade) goes ahead of those that have not, because they wait for
    /// its lock too. Two upgrades are a deadlock.
    ///
    /// The caller latches the page and looks again. **Whatever it finds**, it calls
    /// [`end_exclusive`](Self::end_exclusive) before it waits for anything else. The turn keeps out readers, among
    /// them the transaction that a header may name by then.
    ///
    /// # Errors
    /// [`Deadlock`](Error::Deadlock), [`LockTimeout`](Error::LockTimeout). There is no turn to end then.
    pub fn wait_exclusive(&self, owner: &mut Owner, target: Target<'_>, timeout: Duration) -> Result<()> {
        let held = &mut owner.held;
        assert!(held.turn().is_none(), "one turn at a time");
        let (index, turn) = (held.owner(), (self.keys.hash(target), target.table));
        self.keys.enter_turn(held, turn.0, target);
        let attempt = || self.keys.is_turn_of(index, turn.0, target).then_some(()).ok_or(LockName::row(target));
        let wait = (index, Edge::Turn(turn.0, turn.1));
        let granted = self.waits.until_granted(self.graph(), wait, timeout, attempt);
        match granted {
            Ok(()) => held.set_turn(turn),
            Err(_) => self.keys.leave_turn(&self.slots, index, turn),
        }
        granted
    }

    /// Ends the turn that [`wait_exclusive`](Self::wait_exclusive) gave, if there is one: the next writer or the
    /// readers go on.
    pub fn end_exclusive(&self, owner: &mut Owner) {
        if let Some(turn) = owner.held.take_turn() {
            self.keys.leave_turn(&self.slots, owner.held.owner(), turn);
        }
    }

    /// Covers the keys of `interval` to the end of the transaction, if that does not have to wait; otherwise `None`,
    /// and nothing has changed. Returns what [`uncover`](Self::uncover) takes back.
    ///
    /// The lock counts from the moment the caller validates, afterwards, the leaf that it has read before. Nothing is
    /// covered if the transaction's lock of the table lets it read all of it.
    pub fn try_cover(&self, owner: &mut Owner, table: TableId, interval: &Interval) -> Option<NewRange> {
        self.keys.cover(&self.slots, &mut owner.held, table, interval)
    }

    /// Takes back what [`try_cover`](Self::try_cover) has added, the newest request first. For a caller that has
    /// handed out nothing that it read under that lock. Where locks have been merged since, the intervals stay as wide
    /// as they are.
    pub fn uncover(&self, owner: &mut Owner, new: NewRange) {
        self.keys.uncover(&self.slots, &mut owner.held, new);
    }

    /// Waits until no writer of another transaction is queued on a key of the interval. Nothing is covered then: the
    /// rows may be others by now, and the caller looks again which keys it needs.
    ///
    /// # Errors
    /// [`Deadlock`](Error::Deadlock), [`LockTimeout`](Error::LockTimeout).
    pub fn wait_to_cover(
        &self,
        owner: &mut Owner,
        table: TableId,
        interval: &Interval,
        timeout: Duration,
    ) -> Result<()> {
        let held = &owner.held;
        if interval.is_empty() || held.reads_all(table) {
            return Ok(());
        }
        let ranges = self.keys.ranges();
        let attempt = || match ranges.stand_behind(held, table, interval) {
            Some(key) => Err(LockName::Row(table, Cow::Owned(key))),
            None => Ok(()),
        };
        let granted = self.waits.until_granted(self.graph(), (held.owner(), Edge::Range(table)), timeout, attempt);
        granted.inspect_err(|_| ranges.cancel_request(&self.slots, held.owner(), table))
    }

    /// Returns the error for a caller that does not wait for `target`. The transaction `holder` has it by its header;
    /// without one, others have it by shared locks, or wait to write it.
    #[must_use]
    pub fn refusal(&self, owner: &Owner, target: Target<'_>, holder: Option<Xid>) -> Error {
        let other = || self.keys.other_at(owner.held.owner(), target).map(|index| self.slots.get(index).label());
        refused(&LockName::row(target), holder.map_or_else(other, |xid| self.slots.label_of(xid)))
    }

    /// Returns the error for a scan that does not wait for the writers queued in `interval`.
    #[must_use]
    pub fn range_refusal(&self, owner: &Owner, table: TableId, interval: &Interval) -> Error {
        let writer = self.keys.ranges().writer_in(owner.held.owner(), table, interval);
        let (holder, key) = match writer {
            Some((writer, key)) => (Some(self.slots.get(writer).label()), Cow::Owned(key)),
            None => (None, Cow::Borrowed(interval.low())),
        };
        refused(&LockName::Row(table, key), holder)
    }

    /// Returns the error for a caller that does not wait for `table`.
    #[must_use]
    pub fn table_refusal(&self, owner: &Owner, table: TableId, mode: TableMode) -> Error {
        let other = self.tables.other_on(owner.held.owner(), table, mode);
        refused(&LockName::Table(table), other.map(|index| self.slots.get(index).label()))
    }
}

/// The holder may have ended since.
fn refused(name: &LockName<'_>, holder: Option<&'static str>) -> Error {
    Error::RowLocked { what: name.to_lockable(), holder: holder.unwrap_or_default() }
}

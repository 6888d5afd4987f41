//! Requests for locks of tables and keys. They add the waits in queues to the calls that do not wait.

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
    /// If the new mode reads the whole table, returns the table's tag: the largest commit number of a writer that has
    /// released it. The absence of rows may rest on that commit. Otherwise, and if the lock was held already, returns
    /// zero.
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

    /// Locks a table as [`lock_table`](Self::lock_table) does, if that needs no wait. Otherwise returns `None`, and
    /// nothing has changed.
    pub fn try_lock_table(&self, owner: &mut Owner, table: TableId, mode: TableMode) -> Option<Csn> {
        let held = &mut owner.held;
        let Some(request) = Request::new(held, table, mode) else { return Some(Csn::ZERO) };
        let tag = self.tables.request(&self.slots, held, request, false)?;
        held.set_table(table, request.mode);
        Some(tag)
    }

    /// Enters a shared lock of a key, held to the end of the transaction. It waits while a writer of another
    /// transaction has, or waits for, its turn. Entering the lock again only costs a lookup.
    ///
    /// It enters nothing if the transaction's lock of the table permits it to read the whole table, or if one of its
    /// intervals covers the key.
    ///
    /// The lock takes effect when the caller afterwards reads the page, under a latch or validated by one. If the
    /// caller finds a live xid of another transaction in the header of a row, the entry stays. The caller then calls
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

    /// Enters a shared lock as [`share`](Self::share) does, if that needs no wait. Otherwise returns `None`, and
    /// nothing has changed. [`unshare`](Self::unshare) undoes what it returns.
    pub fn try_share(&self, owner: &mut Owner, target: Target<'_>) -> Option<NewShare> {
        self.keys.share(&self.slots, &mut owner.held, target, false)
    }

    /// Releases a lock that [`try_share`](Self::try_share) has entered. The caller must have returned nothing that it
    /// read under that lock. A lock that was merged into an interval since stays.
    pub fn unshare(&self, owner: &mut Owner, share: NewShare) {
        self.keys.unshare(&self.slots, &mut owner.held, share);
    }

    /// Returns whether another transaction has the key shared, by a point lock or by an interval.
    ///
    /// The caller is a writer that holds the page's exclusive latch and has not logged yet. The lock that it finds may
    /// be an interval that [`try_cover`](Self::try_cover) takes back at once. So a writer that does not wait is
    /// sometimes refused by a scan that gets nothing.
    ///
    /// - If there is a row, it asks after it has stored its xid in the row's header.
    /// - On `true` it restores the old header, unlatches and calls [`wait_exclusive`](Self::wait_exclusive).
    /// - A writer that finds its own xid already in the header does not ask. Readers that came since then wait for it.
    #[must_use]
    pub fn shared_by_other(&self, owner: &Owner, target: Target<'_>) -> bool {
        self.keys.is_shared_by_other(&owner.held, target)
    }

    /// Waits until no other transaction has the key shared, by a point lock or by an interval. On return, new readers
    /// of the key and new intervals that contain it wait for this writer. There are two exceptions: locks that are
    /// merged over the key, and an interval that [`try_cover`](Self::try_cover) takes back at once.
    ///
    /// A writer that has the key shared itself (an upgrade) goes ahead of the others, because they wait for its lock
    /// too. Two upgrades of one key are a deadlock.
    ///
    /// The caller then latches the page and checks again. If it finds the key shared again, it calls this again, and
    /// keeps its place. **Whatever else it finds**, it calls [`end_exclusive`](Self::end_exclusive) before it waits.
    /// The turn keeps out readers, which may include the transaction that a header names by then.
    ///
    /// # Errors
    /// [`Deadlock`](Error::Deadlock), [`LockTimeout`](Error::LockTimeout). There is no turn to end then.
    pub fn wait_exclusive(&self, owner: &mut Owner, target: Target<'_>, timeout: Duration) -> Result<()> {
        let held = &mut owner.held;
        let (index, turn) = (held.owner(), (self.keys.hash(target), target.table));
        match held.take_turn() {
            Some(kept) => assert_eq!(kept, turn, "one turn at a time"),
            None => self.keys.enter_turn(held, turn.0, target),
        }
        let attempt = || self.keys.is_turn_of(index, turn.0, target).then_some(()).ok_or(LockName::row(target));
        let wait = (index, Edge::Turn(turn.0, turn.1));
        let granted = self.waits.until_granted(self.graph(), wait, timeout, attempt);
        match granted {
            Ok(()) => held.set_turn(turn),
            Err(_) => self.keys.leave_turn(&self.slots, index, turn),
        }
        granted
    }

    /// Ends the turn that [`wait_exclusive`](Self::wait_exclusive) gave, if there is one. The next writer or the
    /// readers continue.
    pub fn end_exclusive(&self, owner: &mut Owner) {
        if let Some(turn) = owner.held.take_turn() {
            self.keys.leave_turn(&self.slots, owner.held.owner(), turn);
        }
    }

    /// Covers the keys of `interval` to the end of the transaction, if that needs no wait. Otherwise returns `None`,
    /// and nothing has changed, but writers may have found the keys covered meanwhile. [`uncover`](Self::uncover)
    /// undoes what it returns.
    ///
    /// The caller reads the leaf before the call and validates it afterwards. The lock takes effect at that validation.
    /// Nothing is covered if the transaction's lock of the table permits it to read the whole table.
    pub fn try_cover(&self, owner: &mut Owner, table: TableId, interval: &Interval) -> Option<NewRange> {
        self.keys.cover(&self.slots, &mut owner.held, table, interval)
    }

    /// Undoes an addition by [`try_cover`](Self::try_cover); the newest is undone first. The caller must have returned
    /// nothing that it read under that lock. If locks were merged since, the intervals stay as they are.
    pub fn uncover(&self, owner: &mut Owner, new: NewRange) {
        self.keys.uncover(&self.slots, &mut owner.held, new);
    }

    /// Waits until no writer of another transaction is queued on a key of the interval. It covers nothing. The rows may
    /// have changed meanwhile, so the caller checks again which keys it needs.
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
        granted.inspect_err(|_| ranges.cancel_request(held.owner(), table))
    }

    /// Returns the error for a caller that does not wait for `target`. If the row's header names a transaction, that is
    /// `holder`. Otherwise other transactions have shared locks, or wait to write the key.
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

/// Returns the error of a refused request. The holder has no label here if it has ended since.
fn refused(name: &LockName<'_>, holder: Option<&'static str>) -> Error {
    Error::RowLocked { what: name.to_lockable(), holder: holder.unwrap_or_default() }
}

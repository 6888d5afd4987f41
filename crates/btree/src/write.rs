//! Writing one row: lock, change, log.
//!
//! A row's write lock is the xid in its header. The order on a row, ghost or not, that another transaction may have shared,
//! all of it under the exclusive latch of the leaf: store the xid, fence, look for shared locks; if there are, put the
//! old header back, unlatch and queue behind the readers. Only then is anything logged. A new row has readers too, of
//! its key and of intervals with it. They are looked for before it is inserted: the latch is what a scan that validates
//! the leaf sees.

use crate::before::{before, before_lock};
use crate::format::{GHOST, LEAF_HEADER, RowHeader, SLOT};
use crate::node::{self, NO_WRITER, Row};
use crate::record::{Delta, Logged, RowInsert, RowLock, RowWrite, TreeKind};
use crate::split::structure_cost;
use crate::tree::{Structure, Tree, record, to_log};
use foreshore_base::{Result, Xid, limits::MAX_VALUE};
use foreshore_buffer::format::UNDOABLE;
use foreshore_buffer::{ExclusiveGuard, change_cost};
use foreshore_lock::{LockWait, Locked, TableMode, Target};
use foreshore_sync::model::mutant;
use foreshore_txn::{Before, Isolation, RowHolder, Txn, UndoPtr, Undoable};
use foreshore_wal::Dep;
use std::ops::Range;

/// Fixed part of the body of a row change, generously.
const ROW_BODY: usize = 48;

/// What is to be done with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent<'a> {
    /// Lock it.
    Lock,
    /// Lock it if it exists, for a scan that has met it: that it does not is the scan's to lock.
    Take,
    /// Give it a value, whether it exists or not.
    Put(&'a [u8]),
    /// Give it a value if it does not exist; lock it if it does.
    Insert(&'a [u8]),
    /// Give it a value if it exists.
    Update(&'a [u8]),
    /// Delete it.
    Remove,
}

impl<'a> Intent<'a> {
    /// The value that a row that exists gets.
    const fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Put(value) | Self::Update(value) => Some(value),
            Self::Lock | Self::Take | Self::Insert(_) | Self::Remove => None,
        }
    }

    /// The value that a row that does not exist gets.
    const fn new_row(self) -> Option<&'a [u8]> {
        match self {
            Self::Put(value) | Self::Insert(value) => Some(value),
            Self::Lock | Self::Take | Self::Update(_) | Self::Remove => None,
        }
    }
}

/// How one try has ended.
enum Try {
    /// Done. The value that the row had, if it existed.
    Done(Option<Vec<u8>>),
    /// The row does not exist, and nothing has been done.
    Absent,
    /// Another transaction holds the row.
    Held(Xid),
    /// Other transactions have the row shared.
    Shared,
    /// It is passed over.
    Skipped,
    /// To draw an xid needs a wait.
    NoXid,
    /// The leaf needs so many free bytes.
    Full(usize),
}

/// A row that may be changed, and what came before.
#[derive(Clone, Copy)]
struct Found {
    at: usize,
    header: RowHeader,
    mine: bool,
}

impl Tree {
    /// Locks a row, as `intent` says, and returns its value.
    pub(crate) fn lock_row(
        &self,
        txn: &mut Txn,
        key: &[u8],
        intent: Intent<'_>,
        wait: LockWait,
    ) -> Result<Locked<Vec<u8>>> {
        Ok(match self.write_by(txn, key, intent, wait)? {
            Try::Done(Some(value)) => Locked::Row(value),
            Try::Skipped => Locked::Skipped,
            _ => Locked::Absent,
        })
    }

    /// Gives `key` a value and returns the one that it had.
    ///
    /// # Errors
    /// `KeyTooLarge`, `ValueTooLarge`; `Conflict`, `Deadlock`, `LockTimeout`, `TooManyTransactions`, `TransactionTooLarge`, `UndoMemory`;
    /// `DiskFull`, `LogSpace`, `Io`, `Corrupted`, `OutOfFrames`, `Poisoned`. The row is then as it was. Past the deadline
    /// [`Txn::by_deadline`] makes `Deadline` of those that end a wait.
    pub fn put(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.write(txn, key, Intent::Put(value))
    }

    /// Gives `key` a value if it has none.
    ///
    /// # Errors
    /// `KeyExists` if it has one; the row is then locked, so that this answer holds. Otherwise as [`Tree::put`].
    pub fn insert_new(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<()> {
        match self.write(txn, key, Intent::Insert(value))? {
            None => Ok(()),
            Some(_) => Err(self.key_exists(key)),
        }
    }

    /// Gives `key` a value if it has one, and returns that.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn update(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        self.write(txn, key, Intent::Update(value))
    }

    /// Deletes `key` and returns the value that it had.
    ///
    /// # Errors
    /// As [`Tree::put`].
    pub fn remove(&self, txn: &mut Txn, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.write(txn, key, Intent::Remove)
    }

    fn write(&self, txn: &mut Txn, key: &[u8], intent: Intent<'_>) -> Result<Option<Vec<u8>>> {
        match self.write_by(txn, key, intent, LockWait::Wait)? {
            Try::Done(old) => Ok(old),
            _ => Ok(None),
        }
    }

    /// Done, absent or, where it may not wait, passed over.
    fn write_by(&self, txn: &mut Txn, key: &[u8], intent: Intent<'_>, wait: LockWait) -> Result<Try> {
        Self::check_key(key)?;
        Self::check_value(intent.value().or(intent.new_row()).unwrap_or_default())?;
        match intent {
            Intent::Put(_) | Intent::Insert(_) | Intent::Update(_) => self.write_checked(txn, key, intent, wait),
            // A full disk does not stop what frees space, nor the lock that mostly comes before it and that is not logged.
            Intent::Lock | Intent::Take | Intent::Remove => {
                txn.freeing(|txn| self.write_checked(txn, key, intent, wait))
            }
        }
    }

    fn write_checked(&self, txn: &mut Txn, key: &[u8], intent: Intent<'_>, wait: LockWait) -> Result<Try> {
        self.lock_by(txn, TableMode::IntentExclusive, wait)?;
        // It changes a row, or locks one.
        intent.new_row().map_or(Ok(()), |_| txn.ensure_xid().map(drop))?;
        let mut has_waited = false;
        let outcome = self.write_in_turn(txn, (key, intent), wait, &mut has_waited);
        // A waiter that was woken but did not take the row wakes the next waiter.
        if has_waited && !matches!(outcome, Ok(Try::Done(_))) {
            txn.pass_on(self.table, key);
        }
        outcome.and_then(|done| txn.after_xid().map(|()| done))
    }

    fn write_in_turn(
        &self,
        txn: &mut Txn,
        (key, intent): (&[u8], Intent<'_>),
        wait: LockWait,
        has_waited: &mut bool,
    ) -> Result<Try> {
        let row = Target::row(self.table, key);
        // Only a serializable one promises that it stays so, and a scan does that by its intervals.
        let mut absent = txn.isolation() != Isolation::Serializable
            || intent == Intent::Take && !mutant("btree: a scan locks what is not there")
            || mutant("sabotage: what is absent is not locked");
        let mut entered = None;
        loop {
            let outcome = self.try_write(txn, key, intent);
            // A turn keeps out the very transactions that this one may have to wait for next.
            txn.end_exclusive();
            match outcome? {
                done @ (Try::Done(_) | Try::Skipped) => return Ok(done),
                Try::Absent if absent => return Ok(Try::Absent),
                // That it does not exist must hold to the end of the transaction.
                Try::Absent if self.share_by(txn, row, wait, &mut entered)? => absent = true,
                Try::Absent => return Ok(Try::Skipped),
                refused @ (Try::Held(_) | Try::Shared) if wait != LockWait::Wait => {
                    entered.into_iter().for_each(|share| txn.unshare(share));
                    let holder = if let Try::Held(holder) = refused { Some(holder) } else { None };
                    return self.refuse(txn, row, holder, wait).map(|()| Try::Skipped);
                }
                Try::Held(holder) => {
                    *has_waited = true;
                    txn.wait_row(self.table, key, holder)?;
                }
                Try::Shared => txn.wait_exclusive(row)?,
                Try::NoXid => drop(txn.ensure_xid()?),
                Try::Full(need) => self.room_for_row(txn, key, need)?,
            }
        }
    }

    fn try_write(&self, txn: &mut Txn, key: &[u8], intent: Intent<'_>) -> Result<Try> {
        let value = intent.value().or(intent.new_row()).unwrap_or_default();
        let body_max = ROW_BODY + key.len() + value.len() + MAX_VALUE;
        txn.reserve(change_cost(1, body_max), ROW_BODY + key.len() + MAX_VALUE)?;
        let mut leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of(txn), key, 0, change_cost(1, body_max))?;
        let pid = leaf.pid();
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, &leaf)?;
        let at = match node.search(key).map_err(damage)? {
            Ok(at) => at,
            Err(_) => {
                txn.check_conflict(self.table, key, Xid::ZERO)?;
                let Some(value) = intent.new_row() else {
                    self.note_if_empty(pid, &node);
                    return Ok(Try::Absent);
                };
                let need = SLOT + LEAF_HEADER + key.len() + value.len();
                if need > node.free() {
                    return Ok(Try::Full(need));
                }
                let Some(xid) = txn.try_xid() else { return Ok(Try::NoXid) };
                return self.try_insert(txn, xid, &mut leaf, (key, value));
            }
        };
        let row = node.row(at).map_err(damage)?;
        txn.expect_undo(UndoPtr::from_bits(row.header.undo));
        let mine = match txn.row_holder(row.header.xid) {
            RowHolder::Other(holder) => return Ok(Try::Held(holder)),
            RowHolder::Me => true,
            RowHolder::Nobody => false,
            RowHolder::Unknown => return Err(damage(NO_WRITER)),
        };
        txn.check_conflict(self.table, key, row.header.xid)?;
        let found = Found { at, header: row.header, mine };
        let ghost = row.header.is_ghost();
        let new = match (ghost, intent) {
            (true, _) => intent.new_row(),
            (false, Intent::Remove) => Some(row.value),
            (false, _) => intent.value(),
        };
        if let Some(new) = new {
            if !node::fits(&node, at, new.len()).map_err(damage)? {
                return Ok(Try::Full(new.len() - row.value.len()));
            }
        } else if ghost {
            return Ok(Try::Absent);
        }
        let Some(xid) = txn.try_xid() else { return Ok(Try::NoXid) };
        let old = (!ghost).then(|| row.value.to_vec());
        let (header, lock) = before_lock(txn, mine, row.header);
        let row = Row { header, ..row };
        let written = new.map(|new| self.write_body(xid, &row, intent == Intent::Remove, new));
        if !found.mine && !self.take_header(txn, xid, &mut leaf, key, found)? {
            return Ok(Try::Shared);
        }
        let value = old.as_deref().unwrap_or_default();
        match written {
            Some((logged, differs)) => {
                let before = Before { lock, ..before(header, value, differs, RowWrite::old_middle(key)) };
                self.log_row(txn, &mut leaf, key, &logged, Some(before))?;
                if intent == Intent::Remove {
                    self.note_ghost(pid, key);
                }
            }
            None if !found.mine => self.enter_lock(txn, xid, &mut leaf, key, found, value)?,
            None => {}
        }
        Ok(Try::Done(old))
    }

    /// Inserts a row into a leaf that has the room.
    fn try_insert(
        &self,
        txn: &mut Txn,
        xid: Xid,
        leaf: &mut ExclusiveGuard<'_>,
        (key, value): (&[u8], &[u8]),
    ) -> Result<Try> {
        if txn.shared_by_other(Target::row(self.table, key)) && !mutant("sabotage: an insert asks no reader") {
            return Ok(Try::Shared);
        }
        let owner = RowHeader { xid, flags: 0, undo: 0 }.owner();
        let logged = RowInsert { root: self.root, owner, key, value }.logged();
        self.log_row(txn, leaf, key, &logged, None)?;
        Ok(Try::Done(None))
    }

    /// A change of `row` to `new`, or to a ghost, and what differs in the old value.
    fn write_body(&self, xid: Xid, row: &Row<'_>, remove: bool, new: &[u8]) -> (Logged, Range<usize>) {
        let header = RowHeader { xid, flags: if remove { GHOST } else { 0 }, undo: 0 };
        let delta = Delta::between(row.value, new);
        let write =
            RowWrite { root: self.root, old_owner: row.header.owner(), owner: header.owner(), key: row.key, delta };
        (write.logged(), delta.prefix..delta.prefix + delta.old.len())
    }

    /// Stores the xid in the header of a row that nobody holds. If others have the row shared the old header comes back, and
    /// the answer is no.
    fn take_header(
        &self,
        txn: &mut Txn,
        xid: Xid,
        leaf: &mut ExclusiveGuard<'_>,
        key: &[u8],
        found: Found,
    ) -> Result<bool> {
        let pid = leaf.pid();
        assert_ne!(found.header.xid, xid, "a transaction takes a row of {pid} that is its own");
        let mut put = |header| node::set_header(leaf, found.at, header).map_err(|why| self.corrupted(pid, why));
        put(RowHeader { xid, ..found.header })?;
        if txn.shared_by_other(Target::row(self.table, key)) {
            put(found.header)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Keeps the lock of a row that is not changed. Not logged: a crash ends it.
    fn enter_lock(
        &self,
        txn: &mut Txn,
        xid: Xid,
        leaf: &mut ExclusiveGuard<'_>,
        key: &[u8],
        found: Found,
        value: &[u8],
    ) -> Result<()> {
        let mut body = Vec::with_capacity(ROW_BODY + key.len());
        RowLock { root: self.root, old_owner: found.header.owner(), key }.encode(&mut body);
        // The value too, though it is as it was: who reads an older version takes it from here when the entries of younger ones
        // have gone.
        let before = Some(before(found.header, value, 0..0, 0));
        let change = Undoable { kind: TreeKind::RowLock as u8, table: self.table, body: &body, before, structure: 0 };
        let (pid, undo) = (leaf.pid(), txn.push_undo(&change));
        assert_ne!(undo, UndoPtr::NULL, "a row of {pid} is locked and has no undo entry");
        node::set_header(leaf, found.at, RowHeader { xid, flags: found.header.flags, undo: undo.bits() })
            .map_err(|why| self.corrupted(pid, why))?;
        leaf.mark_dirty();
        Ok(())
    }

    /// Enters the undo of a row change, does and logs it, and leaves the undo pointer in the header.
    fn log_row(
        &self,
        txn: &mut Txn,
        leaf: &mut ExclusiveGuard<'_>,
        key: &[u8],
        logged: &Logged,
        before: Option<Before<'_>>,
    ) -> Result<()> {
        let pid = leaf.pid();
        let (body, undo) = logged.parts();
        let record = record(logged.kind, UNDOABLE, 0, self.table, &[pid], body);
        // Refused before anything is changed, so no undo entry is left without its change.
        self.trees.apply(&record, &mut [leaf])?;
        let undo = Undoable {
            kind: logged.undo_kind as u8,
            table: self.table,
            body: undo,
            before,
            structure: structure_cost(logged.grows),
        };
        let undo = txn.push_undo(&undo);
        assert_ne!(undo, UndoPtr::NULL, "a row of {pid} is written and has no undo entry");
        txn.log_change(&to_log(&record, &[body]), Dep::none(), &mut [leaf]);
        self.point_to_undo(leaf, key, undo)
    }

    /// Leaves an undo pointer in the header of a row that was just written.
    pub(crate) fn point_to_undo(&self, leaf: &mut ExclusiveGuard<'_>, key: &[u8], undo: UndoPtr) -> Result<()> {
        self.edit_header(leaf, key, |header| RowHeader { undo: undo.bits(), ..header })
    }

    /// Changes the header of a row that is there.
    pub(crate) fn edit_header(
        &self,
        leaf: &mut ExclusiveGuard<'_>,
        key: &[u8],
        edit: impl FnOnce(RowHeader) -> RowHeader,
    ) -> Result<()> {
        let pid = leaf.pid();
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, leaf)?;
        let at = node.search(key).map_err(damage)?.map_err(|_| damage("a row that was written or locked is gone"))?;
        let header = edit(node.row(at).map_err(damage)?.header);
        node::set_header(leaf, at, header).map_err(damage)
    }
}

//! Writes of one row: lock, change, log record.
//!
//! A row's write lock is the xid in its header. Other transactions may hold shared locks of the row, whether it is a
//! ghost or not. So a writer takes these steps under the exclusive latch of the leaf:
//!
//! 1. Store the xid in the header and fence.
//! 2. Check for shared locks. If there are any, restore the old header, unlatch and queue behind the readers.
//! 3. Otherwise change the row and log the change.
//!
//! A new row has readers too: of its key, and of intervals around it. The writer checks for them before the insert, and
//! a scan that validates the leaf afterwards sees the latch.

use crate::descend::Restarts;
use crate::format::{LEAF_HEADER, OVERFLOW, SLOT};
use crate::intent::{Done, Intent, Store};
use crate::node::{Goal, NO_WRITER};
use crate::row::{Found, New, Stored};
use crate::tree::{Structure, Tree};
use foreshore_base::{Error, Result, Xid, limits::MAX_INLINE_VALUE};
use foreshore_buffer::{ExclusiveGuard, change_cost};
use foreshore_lock::{LockWait, Locked, TableMode, Target};
use foreshore_sync::model::mutant;
use foreshore_txn::{Isolation, RowHolder, RowPosition, Txn, UndoPtr};

/// Upper bound of the fixed part of a row change's body.
pub(crate) const ROW_BODY: usize = 48;

/// The outcome of one try.
enum Try {
    /// Done. The row existed with these flags, and what it held, the value or a stub, was copied. A row with a large
    /// value is only locked as long as its chain is not retired.
    Replaced(u16),
    /// Done. The row did not exist.
    Inserted,
    /// The row does not exist, and nothing was done.
    Absent,
    /// Another transaction holds the row.
    Held(Xid),
    /// Other transactions hold shared locks of the row.
    Shared,
    /// The row is skipped.
    Skipped,
    /// Drawing an xid needs a wait.
    NoXid,
    /// The leaf needs that many free bytes.
    Full(usize),
    /// Done as `Replaced`, and the leaf is contended.
    Contended(Box<Boundary>),
}

/// A key, the purpose of the write, and whether the chain of a large value that the row has is retired.
type Write<'a> = (&'a [u8], Intent<'a>, bool);
/// The key of the row before which a contended leaf is to be split.
struct Boundary {
    key: Vec<u8>,
    /// Flags of the version that the write replaced.
    flags: u16,
}

/// The outcome of a try, or its error. It has two words, so it passes between functions in registers.
type Tried = Result<Try, Box<Error>>;

const _: () = assert!(size_of::<Tried>() == 16);

/// Runs a write and returns the value that it replaced.
fn returned(write: impl FnOnce(&mut Vec<u8>) -> Result<bool>) -> Result<Option<Vec<u8>>> {
    let mut old = Vec::new();
    Ok(write(&mut old)?.then_some(old))
}

impl Tree {
    /// Locks a row, as `intent` says, and copies its value to `out`; for [`Intent::Take`], what the row holds.
    pub(crate) fn lock_row(
        &self,
        txn: &mut Txn,
        key: &[u8],
        intent: Intent<'_>,
        wait: LockWait,
        out: &mut Vec<u8>,
    ) -> Result<Locked<()>> {
        Ok(match self.write_by(txn, (key, intent), wait, out)? {
            Done::Large if intent == Intent::Lock => Locked::Row(self.load(out)?),
            Done::Row | Done::Large => Locked::Row(()),
            Done::Skipped => Locked::Skipped,
            Done::Absent => Locked::Absent,
        })
    }

    /// Sets the value of `key` and returns the old one.
    ///
    /// # Errors
    /// `KeyTooLarge`, `ValueTooLarge`; `Conflict`, `Deadlock`, `LockTimeout`, `TooManyTransactions`,
    /// `TransactionTooLarge`, `UndoMemory`; `DiskFull`, `LogSpace`, `Io`, `Corrupted`, `OutOfFrames`, `Poisoned`. The
    /// row is then unchanged.
    pub fn put(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        returned(|old| self.put_over(txn, key, value, old))
    }

    /// Sets the value of `key`, copies the old one to `old`, and returns whether there was one.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn put_over(&self, txn: &mut Txn, key: &[u8], value: &[u8], old: &mut Vec<u8>) -> Result<bool> {
        let done = self.write(txn, key, Store::Put, value, old)?;
        self.replaced(done, old)
    }

    /// Sets the value of `key`, and returns whether there was one. Reads no large one. `scratch` is overwritten.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn put_only(&self, txn: &mut Txn, key: &[u8], value: &[u8], scratch: &mut Vec<u8>) -> Result<bool> {
        Ok(self.write(txn, key, Store::Put, value, scratch)?.is_row())
    }

    /// Sets the value of `key` if it has none.
    ///
    /// # Errors
    /// `KeyExists` if it has one; the row is then locked, so that the answer stays true. Those of [`Tree::put`].
    pub fn insert_new(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<()> {
        match self.write(txn, key, Store::Insert, value, &mut Vec::new())?.is_row() {
            false => Ok(()),
            true => Err(self.key_exists(key)),
        }
    }

    /// Sets the value of `key` if it has one, and returns the old one.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn update(&self, txn: &mut Txn, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        returned(|old| {
            let done = self.write(txn, key, Store::Update, value, old)?;
            self.replaced(done, old)
        })
    }

    /// Deletes `key` and returns its value.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn remove(&self, txn: &mut Txn, key: &[u8]) -> Result<Option<Vec<u8>>> {
        returned(|old| self.remove_into(txn, key, old))
    }

    /// Deletes `key`, copies its value to `old`, and returns whether there was one.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn remove_into(&self, txn: &mut Txn, key: &[u8], old: &mut Vec<u8>) -> Result<bool> {
        let done = self.write_by(txn, (key, Intent::Remove), LockWait::Wait, old)?;
        self.replaced(done, old)
    }

    /// Deletes `key`, and returns whether it had a value. Reads no large one. `scratch` is overwritten.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    pub fn remove_only(&self, txn: &mut Txn, key: &[u8], scratch: &mut Vec<u8>) -> Result<bool> {
        Ok(self.write_by(txn, (key, Intent::Remove), LockWait::Wait, scratch)?.is_row())
    }

    /// Returns whether a write has found a row, and replaces a stub in `old` by the value.
    fn replaced(&self, done: Done, old: &mut Vec<u8>) -> Result<bool> {
        if done == Done::Large {
            self.load(old)?;
        }
        Ok(done.is_row())
    }

    fn write(&self, txn: &mut Txn, key: &[u8], store: Store, value: &[u8], old: &mut Vec<u8>) -> Result<Done> {
        if value.len() > MAX_INLINE_VALUE {
            return self.write_large(txn, key, store, value, old);
        }
        let intent = store.of(Stored::value(value));
        self.write_by(txn, (key, intent), LockWait::Wait, old)
    }

    /// Runs a write to its end, and retires the chain of a large value that it replaces or removes. Returns `Skipped`
    /// only if the request may not wait.
    pub(crate) fn write_by(
        &self,
        txn: &mut Txn,
        (key, intent): (&[u8], Intent<'_>),
        wait: LockWait,
        old: &mut Vec<u8>,
    ) -> Result<Done> {
        self.check_key(key)?;
        let mut write = |txn: &mut Txn| {
            let mut done = self.write_checked(txn, (key, intent, false), wait, old)?;
            if matches!(done, Try::Replaced(flags) if flags & OVERFLOW != 0 && intent.writes(true)) {
                // Before the row changes: an undo restores the row first.
                self.retire_chain(txn, self.stub(old)?.chain)?;
                done = self.write_checked(txn, (key, intent, true), wait, old)?;
            }
            Ok(match done {
                Try::Replaced(flags) if flags & OVERFLOW != 0 => Done::Large,
                Try::Replaced(_) => Done::Row,
                Try::Skipped => Done::Skipped,
                _ => Done::Absent,
            })
        };
        let done: Result<Done, Box<Error>> = match intent {
            Intent::Put(_) | Intent::Insert(_) | Intent::Update(_) => write(txn),
            // On a full disk, removes still work, because they free space. So do locks, which are not logged and mostly
            // come before a remove.
            Intent::Lock | Intent::Take | Intent::Remove => txn.freeing(write),
        };
        done.map_err(|error| *error)
    }

    fn write_checked(
        &self,
        txn: &mut Txn,
        (key, intent, is_retired): Write<'_>,
        wait: LockWait,
        old: &mut Vec<u8>,
    ) -> Tried {
        self.lock_by(txn, TableMode::IntentExclusive, wait)?;
        // A put or an insert changes or locks a row in any case, so it needs an xid.
        intent.new_row().map_or(Ok(()), |_| txn.ensure_xid().map(drop))?;
        let mut has_waited = false;
        let outcome = self.write_in_turn(txn, (key, intent, is_retired), wait, &mut has_waited, old);
        // A waiter that was woken but did not take the row wakes the next waiter.
        if has_waited && !matches!(outcome, Ok(Try::Replaced(_) | Try::Inserted)) {
            txn.locks().0.pass_on(self.table(), key);
        }
        let done = outcome?;
        txn.after_xid()?;
        Ok(done)
    }

    fn write_in_turn(
        &self,
        txn: &mut Txn,
        (key, intent, is_retired): Write<'_>,
        wait: LockWait,
        has_waited: &mut bool,
        old: &mut Vec<u8>,
    ) -> Tried {
        let row = Target::row(self.table(), key);
        // Only a serializable transaction guarantees that a missing row stays missing. A scan does so by its intervals.
        let mut absent = txn.isolation() != Isolation::Serializable
            || intent == Intent::Take && !mutant("btree: a scan locks what is not there")
            || mutant("sabotage: what is absent is not locked");
        let mut entered = None;
        loop {
            let outcome = self.try_write(txn, (key, intent, is_retired), old);
            // The turn ends before any other wait, because it excludes transactions that this one may have to wait for
            // next. A writer that finds the key shared again keeps its place.
            if !matches!(outcome, Ok(Try::Shared)) {
                let (locks, owner) = txn.locks();
                locks.end_exclusive(owner);
            }
            match outcome? {
                done @ (Try::Replaced(_) | Try::Inserted | Try::Skipped) => return Ok(done),
                Try::Contended(boundary) => {
                    self.relieve(txn, &boundary.key);
                    return Ok(Try::Replaced(boundary.flags));
                }
                Try::Absent if absent => return Ok(Try::Absent),
                // The row must stay missing to the end of the transaction.
                Try::Absent if self.share_by(txn, row, wait, &mut entered)? => absent = true,
                Try::Absent => return Ok(Try::Skipped),
                refused @ (Try::Held(_) | Try::Shared) if wait != LockWait::Wait => {
                    let (locks, owner) = txn.locks();
                    entered.into_iter().for_each(|share| locks.unshare(owner, share));
                    let holder = if let Try::Held(holder) = refused { Some(holder) } else { None };
                    self.refuse(txn, row, holder, wait)?;
                    return Ok(Try::Skipped);
                }
                Try::Held(holder) => {
                    *has_waited = true;
                    txn.wait_row(self.table(), key, holder)?;
                }
                Try::Shared => txn.wait_exclusive(row)?,
                Try::NoXid => drop(txn.ensure_xid()?),
                Try::Full(need) => {
                    // Where the fences of two leaves overlap, the descent finds another leaf and makes room there.
                    txn.forget_row(self.table());
                    assert!(txn.last_row(self.table()).is_none(), "a full leaf is remembered");
                    self.room_for_row(txn, key, need)?;
                }
            }
        }
    }

    fn try_write(&self, txn: &mut Txn, (key, intent, is_retired): Write<'_>, old: &mut Vec<u8>) -> Tried {
        let len = intent.value().or(intent.new_row()).map_or(0, |value| value.bytes.len());
        let bytes = change_cost(1, ROW_BODY + key.len() + len + MAX_INLINE_VALUE);
        txn.reserve(bytes, ROW_BODY + key.len() + MAX_INLINE_VALUE)?;
        let (mut leaf, known) = match self.last_leaf_written(txn, key) {
            Some(found) => found,
            None => {
                (self.find_again(&mut Structure::of(txn), Goal::At(key), 0, bytes, &mut Restarts::default())?, None)
            }
        };
        let pid = leaf.pid();
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, &leaf)?;
        let place = known.map_or_else(|| node.search(key), |at| Ok(Ok(at))).map_err(damage)?;
        let at = match place {
            Ok(at) => at,
            Err(at) => {
                txn.check_conflict(self.table(), key, Xid::ZERO)?;
                let Some(value) = intent.new_row() else {
                    self.note_if_empty(pid, &node);
                    return Ok(Try::Absent);
                };
                let need = SLOT + LEAF_HEADER + key.len() + value.bytes.len();
                if need > node.free() {
                    return Ok(Try::Full(need));
                }
                let Some(xid) = txn.try_xid() else { return Ok(Try::NoXid) };
                let is_in = self.insert_row(txn, xid, &mut leaf, at, (key, value))?;
                if !is_in {
                    return Ok(Try::Shared);
                }
                txn.note_row(self.table(), RowPosition { page: leaf.position(), at }, false);
                return Ok(Try::Inserted);
            }
        };
        let place = node.place(at).map_err(damage)?;
        txn.expect_undo(UndoPtr::from_bits(place.header.undo));
        let mine = match txn.row_holder(place.header.xid) {
            RowHolder::Other(holder) => return Ok(Try::Held(holder)),
            RowHolder::Me => true,
            RowHolder::None => false,
            RowHolder::Unknown => return Err(damage(NO_WRITER).into()),
        };
        txn.check_conflict(self.table(), key, place.header.xid)?;
        let ghost = place.header.is_ghost();
        let new = intent.change(ghost).filter(|_| ghost || is_retired || place.header.flags & OVERFLOW == 0);
        match new {
            Some(New::Value(new)) if !node.fits(&place, new.bytes.len()) => {
                return Ok(Try::Full(new.bytes.len() - place.value.len()));
            }
            None if ghost => return Ok(Try::Absent),
            _ => {}
        }
        let Some(xid) = txn.try_xid() else { return Ok(Try::NoXid) };
        old.clear();
        if !ghost {
            old.extend_from_slice(&leaf[place.value.clone()]);
        }
        let found = Found { at, place, mine };
        let is_taken = match new {
            Some(new) => self.write_row(txn, xid, &mut leaf, key, &found, (old, new))?,
            None => mine || self.lock_alone(txn, xid, &mut leaf, key, &found, old)?,
        };
        if !is_taken {
            old.clear();
            return Ok(Try::Shared);
        }
        txn.note_row(self.table(), RowPosition { page: leaf.position(), at }, new.is_none());
        Ok(if ghost { Try::Inserted } else { self.done_over(&leaf, &found, new) })
    }

    /// Returns the outcome of a write to a row that existed. Notes contention if the writer has waited for the latch of
    /// the leaf.
    fn done_over(&self, leaf: &ExclusiveGuard<'_>, found: &Found, new: Option<New<'_>>) -> Try {
        let flags = found.place.header.flags;
        if !leaf.has_waited() || !matches!(new, Some(New::Value(_))) {
            return Try::Replaced(flags);
        }
        let before = self.trees().contention().note(leaf.pid(), found.at);
        // The other waiter's entry may be gone by now.
        let key = before.and_then(|at| Some(self.parse(leaf.pid(), leaf).ok()?.key(at).ok()?.to_vec()));
        key.map_or(Try::Replaced(flags), |key| Try::Contended(Box::new(Boundary { key, flags })))
    }

    /// Splits a contended leaf before the row of `key`.
    #[cold]
    fn relieve(&self, txn: &mut Txn, key: &[u8]) {
        // The row has been written, and the split is only for speed. The cause of a failure, such as a full disk, is
        // reported to the operations that need the page.
        let is_split = self.split_before(&mut Structure::of(txn), key).is_ok();
        self.trees().counters().contention_splits.add(u64::from(is_split));
    }
}

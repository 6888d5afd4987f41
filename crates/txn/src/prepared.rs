//! Two-phase commit: transactions that have done their work and wait for a decision.
//!
//! [`Txn::prepare`] logs all that a restart needs to have the transaction again as it is: its name, and the locks that neither its
//! other records nor the pages tell of. When that record is durable the transaction can do nothing any more but commit or be
//! rolled back, and neither its drop nor a restart ends it.
//!
//! **A restart.** The transaction keeps the xid that its records carry in the log: its commit or end record will carry it, too. In rows
//! it gets a **new** one, drawn as any transaction draws it, so all that is known of xids holds for it: the status window has
//! a word for it, its undo pointers lead into this run's arena, and what the last run left in a header means nothing, as ever. Headers
//! are not logged, so this may happen any number of times. The steps, each for all prepared transactions:
//!
//! 1. [`TxnManager::take_over`]: shared locks of keys and intervals, by their bounds.
//! 2. [`TakenOver::hold_rows`]: the rows, when all others have been undone, so what is in them is its own.
//! 3. [`TakenOver::hold_tables`]: the locks of tables, when the catalogue has been read.
//!
//! **Why the prepare record has an LSN above all stamps.** A transaction that gave up a lock or a name that this one
//! has got has logged why. That must survive where the prepare record does.

use crate::format::{PREPARE, decode_prepare, encode_mark, encode_prepare};
use crate::manager::TxnManager;
use crate::resource::compensation_cost;
use crate::txn::{RowHolder, Txn, TxnOptions};
use crate::undo::{UndoPtr, Undoable};
use foreshore_base::{Error, GroupNo, Lsn, Result, TableId, Xid};
use foreshore_lock::{HeldRange, TableMode};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_wal::{CommitTicket, Dep, Record, Session};
use std::sync::Arc;

/// Bytes of the longest name of a prepared transaction.
pub const MAX_PREPARED_NAME: usize = 200;

/// A change as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedChange {
    /// LSN of its record; zero for a lock of a row, which has no record of its own.
    pub lsn: Lsn,
    /// The kind of its record.
    pub kind: u8,
    /// The table changed.
    pub table: TableId,
    /// The body of its record.
    pub body: Box<[u8]>,
}

/// What a prepare record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareBody {
    /// The name by which it is resolved.
    pub name: Box<str>,
    /// The label of the transaction.
    pub label: Box<str>,
    /// Tables locked.
    pub tables: Vec<(TableId, TableMode)>,
    /// Keys that are locked shared.
    pub ranges: Vec<HeldRange>,
    /// Rows that are locked and were not changed, or not in the end.
    pub rows: Vec<LoggedChange>,
    /// The caller's.
    pub note: Box<[u8]>,
}

impl PrepareBody {
    /// Decodes the body of a record of kind [`PREPARE`].
    ///
    /// # Errors
    /// Says what is wrong with one that no engine writes.
    pub fn decode(body: &[u8]) -> Result<Self, &'static str> {
        decode_prepare(body)
    }
}

/// A prepared transaction as a restart finds it.
#[derive(Clone, Debug)]
pub struct InDoubt {
    /// The xid in the log.
    pub xid: Xid,
    /// No record of it lies in an earlier group.
    pub first_group: GroupNo,
    /// LSN of its last record.
    pub last_lsn: Lsn,
    /// What its prepare record says.
    pub body: PrepareBody,
}

/// A transaction that waits to be committed or rolled back. Dropped, it goes on waiting, and the next restart has it.
#[derive(Debug)]
pub struct Prepared {
    txn: Txn,
}

impl Txn {
    /// Prepares the transaction under `name`: when this returns it survives whatever happens, with all its locks, until it is resolved. The
    /// caller answers for names being different. `note` comes back after a restart.
    ///
    /// # Errors
    /// `PreparedName`; `DiskFull`, `LogSpace`, `ValueTooLarge` for more locks than the log takes in a record; `TooManyTransactions`;
    /// `Deadline` where that ends a wait; then it is rolled back. `Poisoned`: whether it is prepared is unknown.
    pub fn prepare(mut self, name: &str, note: &[u8]) -> Result<Prepared> {
        if !(1..=MAX_PREPARED_NAME).contains(&name.len()) {
            return Err(Error::PreparedName { name: name.to_owned() });
        }
        if self.is_broken {
            return Err(Error::RolledBack);
        }
        let xid = self.ensure_xid().map_err(|error| self.by_deadline(error))?;
        // It reads no more, and goes back to nothing.
        self.snapshot = None;
        self.savepoints.clear();
        let body = encode_prepare(&self.prepare_body(name, note)?);
        // See the head of the file.
        let everything = self.manager.log.current();
        let dep = Dep::none().transaction(self.last_lsn).observed(self.observed()).page(everything);
        let record = Record { tag: xid.0, flags: 0, parts: &[&encode_mark(PREPARE), &body] };
        // A checkpoint keeps the log from the first record on: not while that waits for log space.
        let (manager, owner, is_first) = (self.manager.clone(), self.lease().owner.index(), self.last_lsn == Lsn::ZERO);
        let before = || {
            if is_first {
                manager.note_first_record(owner)
            }
        };
        let appended = self.session().append_large_after(record, dep, before);
        let lsn = appended.map_err(|error| self.by_deadline(manager.name_log_holder(error)))?;
        assert!(self.last_lsn < lsn, "{xid} is prepared at {lsn}, and has a record at {}", self.last_lsn);
        self.last_lsn = lsn;
        // WAIT: help - or park behind the leader.
        if !mutant("sabotage: a transaction is prepared before that is durable") {
            self.manager.log.force(lsn)?;
        }
        pause::point("txn: a prepare is durable");
        self.release();
        self.prepared_as = Some(xid);
        // Any thread may resolve it.
        self.lease_mut().owner.set_thread(None);
        Ok(Prepared { txn: self })
    }

    fn prepare_body(&mut self, name: &str, note: &[u8]) -> Result<PrepareBody> {
        let mut rows = Vec::new();
        let row = |kind, table, body| rows.push(LoggedChange { lsn: Lsn::ZERO, kind, table, body });
        self.lease_mut().undo.unlogged(row)?;
        rows.reverse();
        let owner = &self.lease().owner;
        Ok(PrepareBody {
            name: name.into(),
            label: self.label.into(),
            tables: owner.held_tables().to_vec(),
            ranges: owner.held_ranges(),
            rows,
            note: note.into(),
        })
    }
}

impl Prepared {
    /// The xid that its records carry.
    #[must_use]
    pub fn xid(&self) -> Xid {
        self.txn.logged_as().expect("a prepared transaction has an xid")
    }

    /// The xid in the headers of its rows. After a restart it is not the one that its records carry.
    #[must_use]
    pub fn xid_in_rows(&self) -> Xid {
        self.txn.xid().expect("a prepared transaction has an xid")
    }

    /// Commits it, as [`Txn::commit`] does.
    ///
    /// # Errors
    /// `Poisoned`: the next restart tells what has become of it.
    pub fn commit(self) -> Result<CommitTicket> {
        self.txn.pre_commit(false, |_| ())
    }

    /// Takes everything back. Others get what was locked once the decision is durable, and then it returns.
    ///
    /// # Errors
    /// `RollbackParked`: the decision is durable, and the rest is taken back later. `Poisoned`: the next restart tells
    /// what has become of it.
    pub fn rollback(mut self) -> Result<()> {
        self.txn.take_back()
    }
}

/// A prepared transaction on its way from a restart to [`Prepared`].
#[derive(Debug)]
pub struct TakenOver {
    txn: Txn,
    in_doubt: InDoubt,
}

impl TxnManager {
    /// Takes a prepared transaction over from the run before, with its shared locks of keys. Before any other transaction begins.
    ///
    /// # Errors
    /// `TooManyTransactions` if the options leave less room than they did in the run before; `Poisoned`.
    pub fn take_over(self: &Arc<Self>, in_doubt: InDoubt, label: &'static str) -> Result<TakenOver> {
        let mut txn = self.begin(TxnOptions { label, ..TxnOptions::default() })?;
        txn.prepared_as = Some(in_doubt.xid);
        if !mutant("sabotage: a restart forgets the shared locks of a prepared one") {
            self.locks.take_ranges(&mut txn.lease_mut().owner, &in_doubt.body.ranges);
        }
        Ok(TakenOver { txn, in_doubt })
    }
}

impl TakenOver {
    /// What the restart found.
    #[must_use]
    pub const fn in_doubt(&self) -> &InDoubt {
        &self.in_doubt
    }

    /// Has its rows held again, under a new xid, and enters its undo. `changes` are those of it that stand, in log order.
    ///
    /// # Errors
    /// Those of [`ResourceManager::take_over`](crate::ResourceManager::take_over), and of drawing an xid.
    pub fn hold_rows(&mut self, changes: Vec<LoggedChange>) -> Result<()> {
        let Self { txn, in_doubt } = self;
        let (was, first_group) = (in_doubt.xid, in_doubt.first_group);
        let xid = txn.draw_xid(Some((was, first_group)))?;
        txn.manager.prepare_status(xid)?;
        txn.last_lsn = in_doubt.last_lsn;
        let mut all = std::mem::take(&mut in_doubt.body.rows);
        if mutant("sabotage: a restart forgets the locked rows of a prepared one") {
            all.clear();
        }
        all.extend(changes);
        let manager = txn.manager.clone();
        manager.resources().take_over(&mut TakeOver::of_prepared(txn, was), &all)?;
        txn.release();
        Ok(())
    }

    /// Takes its locks of tables, after which it is as it was.
    ///
    /// # Errors
    /// What is wrong with locks that exclude those of another one.
    pub fn hold_tables(mut self) -> Result<Prepared, &'static str> {
        let manager = self.txn.manager.clone();
        let owner = &mut self.txn.lease_mut().owner;
        let is_lost = mutant("sabotage: a restart forgets the table locks of a prepared one");
        for &(table, mode) in self.in_doubt.body.tables.iter().filter(|_| !is_lost) {
            manager.locks.try_lock_table(owner, table, mode).ok_or("two prepared transactions exclude each other")?;
        }
        owner.set_thread(None);
        Ok(Prepared { txn: self.txn })
    }
}

/// A prepared transaction, or one that could not be taken back, whose rows are being held again.
#[derive(Debug)]
pub struct TakeOver<'a> {
    txn: &'a mut Txn,
    was: Xid,
    /// Whether changes on damaged pages may be left out.
    may_lose: bool,
    /// Why some were.
    lost: Option<Error>,
}

impl<'a> TakeOver<'a> {
    fn of_prepared(txn: &'a mut Txn, was: Xid) -> Self {
        Self { txn, was, may_lose: false, lost: None }
    }

    pub(crate) fn of_loser(txn: &'a mut Txn, was: Xid) -> Self {
        Self { txn, was, may_lose: true, lost: None }
    }

    pub(crate) fn into_lost(self) -> Option<Error> {
        self.lost
    }

    /// Whether the transaction is one that a restart could not take back. What it passed over is in the log.
    #[must_use]
    pub const fn is_loser(&self) -> bool {
        self.may_lose
    }

    /// Leaves out a change whose row cannot be reached because of `cause`. Refused, with the same error, unless the
    /// page is damaged and the transaction is to be rolled back: the next restart then finds the change in the log.
    ///
    /// # Errors
    /// `cause`.
    pub fn leave_out(&mut self, cause: Error) -> Result<()> {
        if !self.may_lose || !matches!(cause, Error::Corrupted { .. }) {
            return Err(cause);
        }
        self.lost.get_or_insert(cause);
        Ok(())
    }

    /// The xid that goes into the headers of its rows.
    #[must_use]
    pub fn xid(&self) -> Xid {
        self.txn.xid().expect("drawn before")
    }

    /// The xid that its records have.
    #[must_use]
    pub const fn was(&self) -> Xid {
        self.was
    }

    /// Whether the transaction with `xid`, whose row this one is said to have changed, has ended, or is this one.
    pub fn may_change_row_of(&mut self, xid: Xid) -> bool {
        !matches!(self.txn.row_holder(xid), RowHolder::Other(_) | RowHolder::Unknown)
    }

    /// The session, for changes of structure that finding a row needs.
    pub fn session(&mut self) -> &mut Session {
        self.txn.session()
    }

    /// Makes sure that one entry of so many bytes, of its body and of the row before, can be entered.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`: the memory is smaller than it was. It does not wait, as no transaction ends yet.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.txn.reserve_undo_or_wait(bytes, false)
    }

    /// Enters how a change is taken back, and what the row was. Called under the latch that covers the row.
    pub fn enter(&mut self, change: &Undoable<'_>, lsn: Lsn) -> UndoPtr {
        let pointer = self.txn.push_undo(change);
        if lsn > Lsn::ZERO {
            let lease = self.txn.lease_mut();
            let body = lease.undo.stamp_newest(lsn);
            // The run before had it, and its prepared segments are there.
            lease.session.charge_undo_log(compensation_cost(body));
        }
        pointer
    }
}

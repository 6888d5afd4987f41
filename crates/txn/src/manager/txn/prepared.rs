//! Two-phase commit: transactions that have done their work and wait for a decision.
//!
//! [`Txn::prepare`] logs all that a restart needs to have the transaction again as it is: its name, and the locks that
//! neither its other records nor the pages tell of. When that record is durable the transaction can do nothing any more
//! but commit or be rolled back, and neither its drop nor a restart ends it.
//!
//! **A restart.** The transaction keeps the xid that its records carry in the log: its commit or end record will carry
//! it, too. In rows it gets a **new** one, drawn as any transaction draws it, so all that is known of xids holds for
//! it. The status window has a word for it, and its undo pointers lead into this run's arena. What the last run left in
//! a header means nothing, as ever. Headers are not logged, so this may happen any number of times. The steps, each for
//! all prepared transactions:
//!
//! 1. [`TxnManager::take_over`](crate::TxnManager::take_over): shared locks of keys and intervals, by their bounds.
//! 2. [`TakenOver::hold_rows`](super::TakenOver::hold_rows): the rows, when all others have been undone, so what is in
//!    them is its own.
//! 3. [`TakenOver::hold_tables`](super::TakenOver::hold_tables): the locks of tables, when the catalogue has been read.
//!
//! **Why the prepare record has an LSN above all stamps.** A transaction that released a lock or a name that this one
//! has got has logged why. That must survive where the prepare record does.

use super::Txn;
use super::commit::Flush;
use crate::format::{PREPARE, encode_mark, encode_prepare};
use crate::logged::{LoggedChange, PrepareBody};
use foreshore_base::{Error, GroupNo, Lsn, Result, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_wal::{CommitTicket, Dep, Record};

/// Bytes of the longest name of a prepared transaction.
pub const MAX_PREPARED_NAME: usize = 200;

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
    pub(super) txn: Txn,
}

impl Txn {
    /// Prepares the transaction under `name`: when this returns it survives whatever happens, with all its locks, until
    /// it is resolved. The caller answers for names being different. `note` comes back after a restart.
    ///
    /// # Errors
    /// `PreparedName`; `DiskFull`, `LogSpace`, `ValueTooLarge` for more locks than the log takes in a record;
    /// `TooManyTransactions`; then it is rolled back. `Poisoned`: whether it is prepared is unknown.
    pub fn prepare(mut self, name: &str, note: &[u8]) -> Result<Prepared> {
        if !(1..=MAX_PREPARED_NAME).contains(&name.len()) {
            return Err(Error::PreparedName { name: name.to_owned() });
        }
        if self.run().is_broken {
            return Err(Error::RolledBack);
        }
        let xid = self.ensure_xid()?;
        // It reads no more, and goes back to nothing.
        self.run_mut().end();
        let body = encode_prepare(&self.prepare_body(name, note)?);
        // See the head of the file.
        let everything = self.manager.log.current();
        let dep = Dep::none().transaction(self.run().trail.last_lsn).observed(self.observed()).page(everything);
        let record = Record { tag: xid.0, flags: 0, parts: &[&encode_mark(PREPARE), &body] };
        // A checkpoint keeps the log from the first record on: not while that waits for log space.
        let (manager, owner, is_first) =
            (self.manager.clone(), self.lease().owner.index(), self.run().trail.last_lsn == Lsn::ZERO);
        let before = || {
            if is_first {
                manager.xids.note_first_record(owner)
            }
        };
        let appended = self.session().append_large_after(record, dep, before);
        let lsn = appended.map_err(|error| manager.xids.name_log_holder(error))?;
        assert!(
            self.run().trail.last_lsn < lsn,
            "{xid} is prepared at {lsn}, and has a record at {}",
            self.run().trail.last_lsn
        );
        self.run_mut().trail.last_lsn = lsn;
        // WAIT: help - or park behind the leader.
        if !mutant("sabotage: a transaction is prepared before that is durable") {
            self.manager.log.force(lsn)?;
        }
        pause::point("txn: a prepare is durable");
        self.release();
        self.run_mut().trail.prepared_as = Some(xid);
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
            label: self.run().label.into(),
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
        self.txn.pre_commit(Flush::ByCaller, |_| ())
    }

    /// Rolls back. Others get what was locked once the decision is durable, and then it returns.
    ///
    /// # Errors
    /// `RollbackParked`: the decision is durable, and the rest is rolled back later. `Poisoned`: the next restart tells
    /// what has become of it.
    pub fn rollback(mut self) -> Result<()> {
        self.txn.roll_back()
    }
}

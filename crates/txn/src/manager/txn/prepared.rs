//! Two-phase commit: transactions that have finished their work and wait for a decision.
//!
//! [`Txn::prepare`] logs all that a restart needs to restore the transaction: its name, and the locks that neither its
//! other records nor the pages show. Once that record is durable, the transaction can only be committed or rolled back.
//! Neither its drop nor a restart ends it.
//!
//! **A restart.** In the log the transaction keeps the xid of its records, and its commit or end record will carry it,
//! too. In rows it gets a **new** xid, drawn as usual, so all that holds for xids holds for this one. The status window
//! has a word for it, and its undo pointers lead into this run's arena. Xids that the last run left in headers are
//! meaningless, as always. Headers are not logged, so this may happen any number of times. The steps, each for all
//! prepared transactions:
//!
//! 1. [`TxnManager::take_over`](crate::TxnManager::take_over): shared locks of keys and intervals, by their bounds.
//! 2. [`TakenOver::hold_rows`](super::TakenOver::hold_rows): the rows, after all other transactions have been undone,
//!    so that the rows contain only its own changes.
//! 3. [`TakenOver::hold_tables`](super::TakenOver::hold_tables): the locks of tables, after the catalogue has been
//!    read.
//!
//! **Why the prepare record has an LSN above all stamps.** Another transaction may have released a lock or a name that
//! this one then got. It has logged the reason for that release. That record must survive if the prepare record does.

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
    /// A group such that no record of the transaction lies in an earlier one.
    pub first_group: GroupNo,
    /// LSN of its last record.
    pub last_lsn: Lsn,
    /// The content of its prepare record.
    pub body: PrepareBody,
}

/// A transaction that waits to be committed or rolled back. If it is dropped, it keeps waiting, and the next restart
/// restores it.
#[derive(Debug)]
pub struct Prepared {
    pub(super) txn: Txn,
}

impl Txn {
    /// Prepares the transaction under `name`. When this returns, the transaction survives whatever happens, with all
    /// its locks, until it is resolved. The caller ensures that names are unique. `note` is returned after a restart.
    ///
    /// # Errors
    /// `PreparedName`; `DiskFull`; `LogSpace`; `ValueTooLarge` for more locks than fit in a log record;
    /// `TooManyTransactions`. Then the transaction is rolled back. `Poisoned`: whether it is prepared is unknown.
    pub fn prepare(mut self, name: &str, note: &[u8]) -> Result<Prepared> {
        if !(1..=MAX_PREPARED_NAME).contains(&name.len()) {
            return Err(Error::PreparedName { name: name.to_owned() });
        }
        if self.run().is_broken {
            return Err(Error::RolledBack);
        }
        let xid = self.ensure_xid()?;
        // The transaction reads no more, and returns to no savepoint.
        self.run_mut().end();
        let body = encode_prepare(&self.prepare_body(name, note)?);
        // See the head of the file.
        let everything = self.manager.log.current();
        let dep = Dep::none().transaction(self.run().trail.last_lsn).observed(self.observed()).page(everything);
        let record = Record { tag: xid.0, flags: 0, parts: &[&encode_mark(PREPARE), &body] };
        // A checkpoint keeps the log from the first record on, but not while that record waits for log space.
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
    /// Returns the xid that its records carry.
    #[must_use]
    pub fn xid(&self) -> Xid {
        self.txn.logged_as().expect("a prepared transaction has an xid")
    }

    /// Returns the xid in the headers of its rows. After a restart it differs from the one that its records carry.
    #[must_use]
    pub fn xid_in_rows(&self) -> Xid {
        self.txn.xid().expect("a prepared transaction has an xid")
    }

    /// Commits the transaction, as [`Txn::commit`] does.
    ///
    /// # Errors
    /// `Poisoned`: the next restart shows whether it has committed.
    pub fn commit(self) -> Result<CommitTicket> {
        self.txn.pre_commit(Flush::ByCaller, |_| ())
    }

    /// Rolls back. It returns when the decision is durable and the locks are released.
    ///
    /// # Errors
    /// `RollbackParked`: the decision is durable, and the rest is rolled back later. `Poisoned`: the next restart shows
    /// the outcome.
    pub fn rollback(mut self) -> Result<()> {
        self.txn.roll_back()
    }
}

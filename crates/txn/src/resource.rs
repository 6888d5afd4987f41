//! The interface to the pages: redo and undo of changes. The layer above implements it, and it is set once.

use crate::format::{ABORT, CLR_PREFIX, END, MARK_LEN, MAX_PASSED, PASS, encode_mark};
use crate::logged::LoggedChange;
use crate::undo::{SeveralUndo, UndoEntry, UndoPtr, Undoable};
use crate::visibility::Visibility;
use foreshore_base::{Error, Lsn, Result, TableId, Xid};
use foreshore_buffer::format::{CLR, UNDOABLE};
use foreshore_buffer::{Change, ChangeRecord, ExclusiveGuard};
use foreshore_wal::{Dep, Record, Session, undo_log_cost};

/// The owner of the pages. It redoes logged changes and undoes changes.
pub trait ResourceManager: Send + Sync {
    /// Redoes `record` on `page`, which is number `index` among the record's pages. It is called only if the page is
    /// older than the record, and the caller sets the page's LSN. It depends on the page and the record only. The body
    /// of a compensation comes without its leading LSN (see [`crate::format::split_clr`]).
    ///
    /// # Errors
    /// `Corrupted` when record and page do not fit together.
    fn redo(&self, record: &ChangeRecord<'_>, index: usize, page: &mut ExclusiveGuard<'_>) -> Result<()>;

    /// Undoes `entry` by its key, because the row may have moved to another page or position. It reserves log by
    /// [`UndoContext::reserve`] before its first latch, and logs what it does by [`UndoContext::log_clr`]. An entry
    /// that is only a lock is not logged. If the row is permanently out of reach, for readers too, it is left as it is,
    /// by [`UndoContext::pass_for_good`].
    ///
    /// Returns whether the row stays locked by [`UndoEntry::keep`]. Returns false if that is `None`, or if another lock
    /// that stays covers the row anyway. A row that stays locked and did not exist before is kept as a ghost.
    ///
    /// # Errors
    /// `DiskFull`, `Corrupted`, `OutOfFrames`: the change is not undone, and is retried later (see
    /// [`TxnManager::parked`](crate::TxnManager::parked)). Any other error stops the log.
    fn undo(&self, context: &mut UndoContext<'_>, entry: &UndoEntry<'_>) -> Result<bool>;

    /// Returns the row that a change of `kind` with `body` concerns, as bytes that are unique in its table. `None` for
    /// a change on which all later changes of its transaction depend, such as the creation of a table.
    ///
    /// # Errors
    /// `Corrupted` for a body that no engine writes.
    fn row_of<'c>(&self, kind: u8, body: &'c [u8]) -> Result<Option<&'c [u8]>>;

    /// Returns whether a change of `kind`, which a restart has read from the log, concerns rows only and can be undone
    /// beside new transactions.
    fn is_row_change(&self, _kind: u8) -> bool {
        false
    }

    /// Returns a shorter change for one that a restart has read from the log, if its undo needs less of it: kind and
    /// body.
    ///
    /// # Errors
    /// `Corrupted` for a body that no engine writes.
    fn shorten(&self, _kind: u8, _body: &[u8]) -> Result<Option<(u8, Vec<u8>)>> {
        Ok(None)
    }

    /// Returns the changes of a record that a restart has read from the log and that has
    /// [`SEVERAL`](foreshore_buffer::format::SEVERAL), in their order: kind and body of each. By default there are
    /// none, for a resource manager that logs no such records.
    ///
    /// # Errors
    /// `Corrupted` for a body that no engine writes.
    fn split(&self, _kind: u8, _body: &[u8]) -> Result<Vec<(u8, Vec<u8>)>> {
        Ok(Vec::new())
    }

    /// Returns the body of an undo entry of `kind` with the transaction's xid `was` replaced by `is`. After a restart,
    /// the log has a transaction under another xid than the rows have.
    ///
    /// # Errors
    /// `Corrupted` for a body that no engine writes.
    fn rename(&self, kind: u8, body: &[u8], was: Xid, is: Xid) -> Result<Vec<u8>>;

    /// Locks the rows of a transaction again after a restart. The transaction was prepared, or could not be rolled
    /// back.
    ///
    /// - For each of `changes`, which come in log order, it enters the undo and the row's earlier state.
    /// - It writes the transaction's new xid to the headers of the rows.
    /// - The transaction's last changes are in their pages, and no other thread changes one.
    /// - Changes of a row that damage keeps out of reach go to [`TakeOver::leave_out`], except those that the rollback
    ///   will skip for good.
    ///
    /// # Errors
    /// `Corrupted` when rows and changes do not fit together; `TransactionTooLarge`, `Io`, `OutOfFrames`, `Poisoned`.
    fn take_over(&self, again: &mut dyn TakeOver, changes: &[LoggedChange]) -> Result<()>;
}

/// A transaction whose rows are being locked again after a restart: a prepared one, or one that could not be rolled
/// back.
pub trait TakeOver {
    /// Returns whether the transaction is one that a restart could not roll back. The log has the changes that it
    /// skipped.
    fn is_loser(&self) -> bool;

    /// Leaves out a change whose row cannot be reached because of `cause`. That is permitted only if the page is
    /// damaged and the transaction is to be rolled back. The next restart then finds the change in the log.
    ///
    /// # Errors
    /// `cause`.
    fn leave_out(&mut self, cause: Error) -> Result<()>;

    /// Keeps other transactions out of the table, as [`Txn::exclude_others`](crate::Txn::exclude_others) does.
    fn exclude_others(&mut self, table: TableId);

    /// Returns the xid that goes into the headers of its rows.
    fn xid(&self) -> Xid;

    /// Returns the xid that its records carry.
    fn was(&self) -> Xid;

    /// Returns whether the transaction with `xid` has ended, or is this one. The row's header names `xid`, and a change
    /// of this transaction is to be entered for the row.
    fn may_change_row_of(&mut self, xid: Xid) -> bool;

    /// Returns the session, for structure changes that finding a row requires.
    fn session(&mut self) -> &mut Session;

    /// Ensures that one entry can be added. `bytes` counts its body and the row before.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`: the memory is smaller than in the previous run. The call does not wait,
    /// because no transaction ends yet.
    fn reserve(&mut self, bytes: usize) -> Result<()>;

    /// Adds the undo entry of a change, with the row's earlier state. Called under the latch that covers the row.
    fn enter(&mut self, change: &Undoable<'_>, lsn: Lsn) -> UndoPtr;
}

/// Bytes by which a compensation's body may exceed that of its undo entry: an undone insert may leave a ghost instead
/// of nothing.
const LONGER: usize = 16;

/// Returns the log space that is charged for the compensation of an undo entry. `body` is the length of the entry's
/// body, and the compensation changes at most two pages.
#[must_use]
pub fn compensation_cost(body: usize) -> u64 {
    undo_log_cost(UndoContext::clr_cost(2, body + LONGER))
}

impl SeveralUndo {
    /// Adds a change whose entry has a body of `body` bytes, and `rest` more bytes of the value before. Returns false
    /// and adds nothing if one chunk has too little space for all entries.
    #[must_use]
    pub fn add(&mut self, body: usize, rest: usize) -> bool {
        self.add_entry(body + rest, compensation_cost(body))
    }
}

/// The rollback of one transaction, at run time or at restart.
#[derive(Debug)]
pub struct UndoContext<'a> {
    session: &'a mut Session,
    xid: Xid,
    /// The xid that its records carry.
    tag: Xid,
    last_lsn: Lsn,
    /// Set at a restart: xids below it are of the previous run.
    at_restart: Option<Xid>,
    /// Whether other transactions are running.
    is_beside: bool,
    /// Whether a change was skipped for good that the log does not mention yet.
    has_passed: bool,
    /// The statuses of the other transactions.
    others: Option<&'a Visibility>,
}

impl<'a> UndoContext<'a> {
    /// Returns the rollback of `xid`, whose last record has `last_lsn`. It logs through `session`.
    pub fn new(session: &'a mut Session, xid: Xid, last_lsn: Lsn) -> Self {
        Self { session, xid, tag: xid, last_lsn, at_restart: None, is_beside: true, has_passed: false, others: None }
    }

    /// Returns the rollback of `xid` at a restart. `beside`: the first xid of other transactions that are running.
    pub fn at_restart(session: &'a mut Session, xid: Xid, last_lsn: Lsn, beside: Option<Xid>) -> Self {
        let (at_restart, is_beside) = (beside.or(Some(Xid(u64::MAX))), beside.is_some());
        Self { at_restart, is_beside, ..Self::new(session, xid, last_lsn) }
    }

    /// Provides the statuses of other transactions, to find out whether they are settled.
    #[must_use]
    pub(crate) fn among(self, others: &'a Visibility) -> Self {
        Self { others: Some(others), ..self }
    }

    /// Sets the xid that the records of the rollback carry, if rows have another one.
    pub(crate) fn logged_as(self, tag: Xid) -> Self {
        Self { tag, ..self }
    }

    /// Returns what [`Txn::is_settled`](crate::Txn::is_settled) returns. At a restart that is not yet known, and it
    /// returns false.
    #[must_use]
    pub fn is_settled(&self, header_xid: Xid) -> bool {
        !self.is_at_restart() && self.others.is_some_and(|others| others.is_settled(header_xid))
    }

    /// Returns whether this is a restart.
    #[must_use]
    pub const fn is_at_restart(&self) -> bool {
        self.at_restart.is_some()
    }

    /// Returns whether a row of the transaction may have `header_xid` in its header. At a restart it may carry the lock
    /// of another transaction of the previous run, because locks in headers are not logged. A page may have been
    /// written with the lock of a transaction that followed a commit, and then the commit was lost.
    #[must_use]
    pub fn may_hold(&self, header_xid: Xid) -> bool {
        header_xid == self.xid || self.at_restart.is_some_and(|next| header_xid < next)
    }

    /// Returns whether damaged pages that hide rows are quarantined: at a restart, before other transactions run.
    #[must_use]
    pub const fn may_quarantine(&self) -> bool {
        !self.is_beside
    }

    /// Returns the xid of the transaction that is rolled back.
    #[must_use]
    pub const fn xid(&self) -> Xid {
        self.xid
    }

    /// Returns the LSN of the transaction's last record.
    #[must_use]
    #[inline]
    pub const fn last_lsn(&self) -> Lsn {
        self.last_lsn
    }

    /// Returns the session, for structure changes that the undo needs and that belong to no transaction.
    pub fn session(&mut self) -> &mut Session {
        self.session
    }

    /// Ensures that records of `bytes` together can be appended. If necessary it uses the space that is kept for
    /// rollbacks. Called before the first latch.
    ///
    /// # Errors
    /// `DiskFull` if more was used than was charged; `Poisoned`.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.session.reserve_rollback(bytes)
    }

    /// Returns the bytes of log to reserve for a compensation over `pages` pages with a body of `body` bytes.
    #[must_use]
    pub fn clr_cost(pages: usize, body: usize) -> usize {
        foreshore_buffer::change_cost(pages, CLR_PREFIX + body)
    }

    /// Logs that `change` undoes `entry`, marks its `pages` dirty and sets their LSNs. `dep` has the dependencies
    /// besides the pages and the transaction itself. The flags are completed here.
    pub fn log_clr(
        &mut self,
        entry: &UndoEntry<'_>,
        change: &Change<'_>,
        dep: Dep,
        pages: &mut [&mut ExclusiveGuard<'_>],
    ) -> Lsn {
        assert!(entry.lsn > Lsn::ZERO, "what was not logged is not compensated");
        let prefix = entry.lsn.0.to_le_bytes();
        let body: Vec<&[u8]> = std::iter::once(&prefix[..]).chain(change.body.iter().copied()).collect();
        let clr = Change { flags: (change.flags & !UNDOABLE) | CLR, body: &body, ..*change };
        let dep = dep.transaction(self.last_lsn.max(entry.lsn));
        let lsn = foreshore_buffer::change(self.session, dep, self.tag.0, &clr, pages);
        assert!(entry.lsn < lsn && self.last_lsn < lsn, "the change at {} is compensated at {lsn}", entry.lsn);
        self.last_lsn = lsn;
        // The share of the group stays until the end, because structure changes that follow the rows take log, too.
        self.session.pay_undo_log(Self::clr_cost(2, entry.body.len() + LONGER) as u64);
        self.last_lsn
    }

    /// Logs that all changes are undone.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn log_end(&mut self) -> Result<Lsn> {
        self.log_mark(END)
    }

    /// Logs that the rollback skips `changes`, which come newest first. Called before the compensation of an older
    /// change. The record takes less log than was charged for the compensations of these changes.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn log_pass(&mut self, changes: &[Lsn]) -> Result<()> {
        for changes in changes.chunks(MAX_PASSED) {
            let body: Vec<u8> = changes.iter().flat_map(|change| change.0.to_le_bytes()).collect();
            self.session.reserve_end(Session::cost(MARK_LEN + body.len()))?;
            self.append(&[&encode_mark(PASS), &body]);
        }
        Ok(())
    }

    /// Skips the change of `entry` for good, because its row is out of reach. At a restart the skip is logged before an
    /// older change is undone, unless an earlier restart has logged it.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn pass_for_good(&mut self, entry: &UndoEntry<'_>) -> Result<()> {
        if self.is_at_restart() {
            self.has_passed = true;
            return Ok(());
        }
        self.log_pass(&[entry.lsn])
    }

    /// Returns whether a change was skipped for good at a restart.
    #[must_use]
    pub const fn has_passed(&self) -> bool {
        self.has_passed
    }

    /// Logs that a prepared transaction is to be rolled back.
    ///
    /// # Errors
    /// `Poisoned`.
    pub(crate) fn log_abort(&mut self) -> Result<Lsn> {
        self.log_mark(ABORT)
    }

    fn log_mark(&mut self, kind: u8) -> Result<Lsn> {
        self.session.reserve_end(Session::cost(MARK_LEN))?;
        Ok(self.append(&[&encode_mark(kind)]))
    }

    fn append(&mut self, parts: &[&[u8]]) -> Lsn {
        let record = Record { tag: self.tag.0, flags: 0, parts };
        let lsn = self.session.append(record, Dep::none().transaction(self.last_lsn));
        assert!(self.last_lsn < lsn, "a rollback logs a mark at {lsn}, behind {}", self.last_lsn);
        self.last_lsn = lsn;
        lsn
    }
}

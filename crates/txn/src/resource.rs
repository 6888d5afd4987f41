//! The way to the pages: redo and undo of changes, implemented above this layer and wired once.

use crate::format::{ABORT, CLR_PREFIX, END, MARK_LEN, MAX_PASSED, PASS, encode_mark};
use crate::logged::LoggedChange;
use crate::undo::{UndoEntry, UndoPtr, Undoable};
use crate::visibility::Visibility;
use foreshore_base::{Error, Lsn, Result, Xid};
use foreshore_buffer::format::{CLR, UNDOABLE};
use foreshore_buffer::{Change, ChangeRecord, ExclusiveGuard};
use foreshore_wal::{Dep, Record, Session, undo_log_cost};

/// The owner of the pages: applies logged changes again and undoes changes.
pub trait ResourceManager: Send + Sync {
    /// Applies `record` to `page`, its page number `index`, again. Called only if the page is older than the record;
    /// the caller sets its LSN. Looks at nothing but the page and the record. The body of a compensation comes without
    /// the LSN in front (see [`crate::format::split_clr`]).
    ///
    /// # Errors
    /// `Corrupted` when record and page do not fit together.
    fn redo(&self, record: &ChangeRecord<'_>, index: usize, page: &mut ExclusiveGuard<'_>) -> Result<()>;

    /// Undoes `entry` by its key, wherever that lies by now: page and position may have moved. Reserves through
    /// [`UndoContext::reserve`] before its first latch, and logs what it does by [`UndoContext::log_clr`], unless the
    /// entry is only a lock, which is not logged either. A row that is out of reach for readers, too, for good, is left
    /// as it is, by [`UndoContext::pass_for_good`].
    ///
    /// Returns whether the row stays locked by [`UndoEntry::keep`]; `false` where that is none, or where another lock,
    /// which lasts, covers the row anyway. A row that was not there before is kept as a ghost then.
    ///
    /// # Errors
    /// `DiskFull`, `Corrupted`, `OutOfFrames`: the change is not undone, and it is tried again later (see
    /// [`TxnManager::parked`](crate::TxnManager::parked)). Any other stops the log.
    fn undo(&self, context: &mut UndoContext<'_>, entry: &UndoEntry<'_>) -> Result<bool>;

    /// The row that a change of `kind` with `body` concerns, as bytes that differ from those of all other rows of its
    /// table. `None` for a change that rests on all that its transaction does later, such as the creation of a table.
    ///
    /// # Errors
    /// `Corrupted` for a body that no engine writes.
    fn row_of<'c>(&self, kind: u8, body: &'c [u8]) -> Result<Option<&'c [u8]>>;

    /// Returns the body of an undo entry of `kind` with the xid `is` of its transaction in place of `was`. After a
    /// restart the log has a transaction under another xid than the rows have.
    ///
    /// # Errors
    /// `Corrupted` for a body that no engine writes.
    fn rename(&self, kind: u8, body: &[u8], was: Xid, is: Xid) -> Result<Vec<u8>>;

    /// Has the rows of a prepared transaction, or of one that could not be rolled back, held again after a restart.
    /// Enters for each of `changes`, which are in their order, how it is undone and what the row was before. Leaves the
    /// xid that the transaction has now in the headers of the rows. Its last changes are in their pages. No other
    /// thread changes one. All changes of a row that damage keeps out of reach go to [`TakeOver::leave_out`], but for
    /// those that its rollback will pass over for good.
    ///
    /// # Errors
    /// `Corrupted` when rows and changes do not fit together; `TransactionTooLarge`, `Io`, `OutOfFrames`, `Poisoned`.
    fn take_over(&self, again: &mut dyn TakeOver, changes: &[LoggedChange]) -> Result<()>;
}

/// A prepared transaction, or one that could not be rolled back, whose rows are being held again.
pub trait TakeOver {
    /// Returns whether the transaction is one that a restart could not roll back. What it passed over is in the log.
    fn is_loser(&self) -> bool;

    /// Leaves out a change whose row cannot be reached because of `cause`. Refused, with the same error, unless the
    /// page is damaged and the transaction is to be rolled back: the next restart then finds the change in the log.
    ///
    /// # Errors
    /// `cause`.
    fn leave_out(&mut self, cause: Error) -> Result<()>;

    /// Returns the xid that goes into the headers of its rows.
    fn xid(&self) -> Xid;

    /// Returns the xid that its records have.
    fn was(&self) -> Xid;

    /// Returns whether the transaction with `xid`, whose row this one is said to have changed, has ended, or is this
    /// one.
    fn may_change_row_of(&mut self, xid: Xid) -> bool;

    /// Returns the session, for changes of structure that finding a row needs.
    fn session(&mut self) -> &mut Session;

    /// Makes sure that one entry of so many bytes, of its body and of the row before, can be entered.
    ///
    /// # Errors
    /// `TransactionTooLarge`, `UndoMemory`: the memory is smaller than it was. It does not wait, as no transaction ends
    /// yet.
    fn reserve(&mut self, bytes: usize) -> Result<()>;

    /// Enters how a change is undone, and what the row was. Called under the latch that covers the row.
    fn enter(&mut self, change: &Undoable<'_>, lsn: Lsn) -> UndoPtr;
}

/// Bytes by which the body of a compensation may be longer than that of its undo entry: a row that leaves a ghost
/// instead of nothing.
const LONGER: usize = 16;

/// Log space that is charged for the compensation of an undo entry with a body of so many bytes, on up to two pages.
pub(crate) fn compensation_cost(body: usize) -> u64 {
    undo_log_cost(UndoContext::clr_cost(2, body + LONGER))
}

/// The rollback of one transaction, at run time or at restart.
#[derive(Debug)]
pub struct UndoContext<'a> {
    session: &'a mut Session,
    xid: Xid,
    /// The xid that its records carry.
    tag: Xid,
    last_lsn: Lsn,
    at_restart: bool,
    /// A change was passed over for good, and the log does not say so.
    has_passed: bool,
    /// What became of the transactions that it runs among.
    others: Option<&'a Visibility>,
}

impl<'a> UndoContext<'a> {
    /// The rollback of `xid`, whose last record has `last_lsn`, logged through `session`.
    pub fn new(session: &'a mut Session, xid: Xid, last_lsn: Lsn) -> Self {
        Self { session, xid, tag: xid, last_lsn, at_restart: false, has_passed: false, others: None }
    }

    /// Returns the rollback of `xid` at a restart.
    pub fn at_restart(session: &'a mut Session, xid: Xid, last_lsn: Lsn) -> Self {
        Self { at_restart: true, ..Self::new(session, xid, last_lsn) }
    }

    /// Runs the rollback among other transactions, of which it asks whether they are settled.
    #[must_use]
    pub(crate) fn among(self, others: &'a Visibility) -> Self {
        Self { others: Some(others), ..self }
    }

    /// Gives the records of the rollback another xid than rows have.
    pub(crate) fn logged_as(self, tag: Xid) -> Self {
        Self { tag, ..self }
    }

    /// Returns what [`Txn::is_settled`](crate::Txn::is_settled) returns; never true at a restart, where it is not yet
    /// known.
    #[must_use]
    pub fn is_settled(&self, header_xid: Xid) -> bool {
        !self.at_restart && self.others.is_some_and(|others| others.is_settled(header_xid))
    }

    /// Returns whether this is a restart. A row may then carry the lock of another transaction, for locks in headers
    /// are not logged. A page can go home with the lock of one that followed a commit, and the commit be lost.
    #[must_use]
    pub const fn is_at_restart(&self) -> bool {
        self.at_restart
    }

    /// The transaction rolled back.
    #[must_use]
    pub const fn xid(&self) -> Xid {
        self.xid
    }

    /// LSN of its last record.
    #[must_use]
    pub const fn last_lsn(&self) -> Lsn {
        self.last_lsn
    }

    /// The session, for changes of structure that the undo needs and that belong to no transaction.
    pub fn session(&mut self) -> &mut Session {
        self.session
    }

    /// Makes sure that records of `bytes` together can be appended, from the space kept back for rollbacks if need be.
    /// Before the first latch.
    ///
    /// # Errors
    /// `DiskFull`, if more was used than the account provides for; `Poisoned`.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        self.session.reserve_rollback(bytes)
    }

    /// Bytes that a compensation over `pages` pages with a body of `body` bytes takes of a reservation.
    #[must_use]
    pub fn clr_cost(pages: usize, body: usize) -> usize {
        foreshore_buffer::change_cost(pages, CLR_PREFIX + body)
    }

    /// Logs that `change` takes `entry` back, and marks and stamps its `pages`; `dep` is what it rests on beside them
    /// and the transaction itself. The flags are completed here.
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
        // The share of the group stays until the end: structure that goes with the rows takes log, too.
        self.session.pay_undo_log(Self::clr_cost(2, entry.body.len() + LONGER) as u64);
        self.last_lsn
    }

    /// Logs that nothing is left to undo.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn log_end(&mut self) -> Result<Lsn> {
        self.log_mark(END)
    }

    /// Logs that the rollback leaves `changes` for later, which come from the newest to the oldest. Before the
    /// compensation of an older one. It takes less log than was charged for the compensations of these.
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

    /// Passes over the change of `entry` for good: its row is out of reach. A restart says so in the log before it
    /// undoes an older change, unless one before it did.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn pass_for_good(&mut self, entry: &UndoEntry<'_>) -> Result<()> {
        if self.at_restart {
            self.has_passed = true;
            return Ok(());
        }
        self.log_pass(&[entry.lsn])
    }

    /// Returns whether a change was passed over for good at a restart.
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

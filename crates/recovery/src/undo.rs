//! Undo at a restart: the changes of losers are read again and undone, newest first over all of them.
//!
//! The order matters if two losers have changed one row, or one page: a change is undone from the state that it left.
//! It is the same whether the undo comes before new transactions ([`undo`]) or beside them ([`crate::OpenUndo`]).
//! Beside them, the rows of a loser are its own until it has ended, and only latches protect pages.
//!
//! A loser ends when its last change is undone or skipped. If some were skipped, its rollback is parked after all
//! others have ended. Beside transactions none is skipped to be parked: the undo stops before it, and tries it again.
//!
//! **Memory:** the changes of one stretch of the log at a time, and the skipped ones.

use crate::stats::UndoStats;
use crate::stretch::StretchNo;
use crate::trace::Trace;
use crate::unended::{TOO_FEW, Unended};
use foreshore_base::{Error, GroupNo, Lsn, Result, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::{Clock, SystemClock, pause};
use foreshore_txn::{LoggedChange, ResourceManager, TxnManager, UndoContext, UndoEntry, UndoPtr, Unfinished, may_wait};
use foreshore_wal::{Log, Recovered, Session};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The undo of one loser.
#[derive(Debug)]
struct Rollback {
    last_lsn: Lsn,
    first_group: GroupNo,
    /// Number of remaining changes.
    left: u64,
    /// The skipped ones, newest first.
    passed: Vec<LoggedChange>,
    /// LSNs of skipped ones that are not logged as such.
    unsaid: Vec<Lsn>,
    /// Hashes of their rows.
    rows: HashSet<u64>,
    /// Why the first of them could not be undone.
    cause: Option<Error>,
}

impl Rollback {
    /// Notes a skipped change, which is not logged as such unless an earlier restart did so.
    fn note_passed(&mut self, trace: &Trace, change: Lsn) {
        if !trace.is_passed(change) {
            self.unsaid.push(change);
        }
    }
}

/// What the undo works with.
pub(crate) struct UndoParts<'a> {
    pub(crate) recovered: &'a Recovered,
    pub(crate) manager: &'a dyn ResourceManager,
    pub(crate) session: &'a mut Session,
    /// The first xid of new transactions, if they run.
    pub(crate) beside: Option<Xid>,
}

impl UndoParts<'_> {
    fn context(&mut self, xid: Xid, last_lsn: Lsn) -> UndoContext<'_> {
        UndoContext::at_restart(self.session, xid, last_lsn, self.beside)
    }
}

/// A step of the undo.
#[derive(Debug)]
pub(crate) enum Next {
    /// A change was undone or skipped, or a loser without changes was met.
    Step {
        is_undone: bool,
        /// The loser that has ended by that, with its END record in the log.
        ended: Option<Xid>,
    },
    /// Beside transactions: the next change cannot be undone now. It is tried again.
    Stuck(Error),
    /// No change is left, but for skipped ones.
    Over,
}

/// The undo of all losers. A change that finds no page, or meets a damaged one that does not lead to its row, is
/// skipped. So are the older changes of its row, and those that depend on all changes of the transaction. The others
/// are undone. Skipped changes are parked at the end: their rows stay locked. A change whose row cannot be reached,
/// behind a quarantined page, is skipped for good, and does not keep its transaction from its end.
pub(crate) struct Undo {
    unended: Unended,
    losers: BTreeMap<Xid, Rollback>,
    /// The losers without a change.
    empty: Vec<Xid>,
    hasher: RandomState,
    /// The stretches that are left, from the first one on.
    stretches: StretchNo,
    /// What is left of the stretch behind them, in log order.
    changes: Vec<(Xid, LoggedChange)>,
    /// The losers that would have ended, but some of their changes were skipped.
    unfinished: Vec<Xid>,
}

impl Undo {
    pub(crate) fn new(unended: Unended) -> Self {
        let losers = unended.losers().map(|(xid, open)| {
            let (last_lsn, first_group, left) = (open.last_lsn, open.first_group, open.trace.left());
            let (passed, unsaid, rows) = (Vec::new(), Vec::new(), HashSet::new());
            (xid, Rollback { last_lsn, first_group, left, passed, unsaid, rows, cause: None })
        });
        let losers: BTreeMap<Xid, Rollback> = losers.collect();
        let empty = losers.iter().filter(|(_, rollback)| rollback.left == 0).map(|(&xid, _)| xid).collect();
        let (stretches, hasher) = (unended.stretches(), RandomState::new());
        Self { unended, losers, empty, hasher, stretches, changes: Vec::new(), unfinished: Vec::new() }
    }

    /// Returns how many losers there are, ended or not.
    pub(crate) fn losers(&self) -> usize {
        self.losers.len()
    }

    /// Undoes the next change, or skips it. Space and trees work as at run time.
    ///
    /// # Errors
    /// `Io`, `Corrupted`, `Poisoned`. The undo does not continue in this run.
    pub(crate) fn next(&mut self, parts: &mut UndoParts<'_>) -> Result<Next> {
        if let Some(xid) = self.empty.pop() {
            return Ok(Next::Step { is_undone: false, ended: self.end(parts, xid)? });
        }
        while self.changes.is_empty() {
            // Beside transactions nothing then keeps the rest of the log. Otherwise it is read, so that a surplus is
            // noticed.
            let is_beside = parts.beside.is_some();
            let is_done = self.losers.values().all(|rollback| rollback.left == 0);
            if is_done && (is_beside || self.stretches == 0) {
                return Ok(Next::Over);
            }
            let Some(stretch) = self.stretches.checked_sub(1) else { return Err(self.unended.corrupted(TOO_FEW)) };
            self.stretches = stretch;
            let is_read = |xid| !is_beside || self.losers[&xid].left > 0;
            self.changes = self.unended.losers_in(parts.recovered, parts.manager, stretch, is_read)?;
            if mutant("sabotage: losers are undone the oldest change first") {
                self.changes.reverse();
            }
        }
        let (xid, change) = self.changes.pop().expect("a change is left");
        let rollback = self.losers.get(&xid).expect("a change of a loser was read");
        let Some(left) = rollback.left.checked_sub(1) else { return Err(self.unended.corrupted(TOO_FEW)) };
        let is_undone = match self.undo_or_skip(parts, xid, &change) {
            Err(cause) if parts.beside.is_some() && may_wait(&cause) => {
                self.changes.push((xid, change));
                return Ok(Next::Stuck(cause));
            }
            outcome => outcome?,
        };
        self.losers.get_mut(&xid).expect("as above").left = left;
        let ended = if left == 0 { self.end(parts, xid)? } else { None };
        Ok(Next::Step { is_undone, ended })
    }

    /// Ends a loser of which no change is left, and returns it. If changes were skipped, it has not ended.
    fn end(&mut self, parts: &mut UndoParts<'_>, xid: Xid) -> Result<Option<Xid>> {
        let rollback = self.losers.get_mut(&xid).expect("a loser");
        assert_eq!(rollback.left, 0, "{xid} ends, and has changes left");
        let mut context = parts.context(xid, rollback.last_lsn);
        // A repair of the page that hides the rows of these changes would show them. It refuses pages whose table has
        // such a change (`repair.rs`). With a cause, one of them may be on a damaged page, and the run then continues
        // with older ones.
        context.log_pass(&std::mem::take(&mut rollback.unsaid))?;
        if rollback.cause.is_none() {
            context.log_end()?;
        }
        rollback.last_lsn = context.last_lsn();
        if rollback.cause.is_some() {
            self.unfinished.push(xid);
            return Ok(None);
        }
        pause::point("restart: the end of a loser is logged");
        Ok(Some(xid))
    }

    /// Undoes a change, or skips it. Returns whether it was undone. Beside transactions it is not skipped because of an
    /// error.
    fn undo_or_skip(&mut self, parts: &mut UndoParts<'_>, xid: Xid, change: &LoggedChange) -> Result<bool> {
        let row = parts.manager.row_of(change.kind, &change.body)?;
        let row = row.map(|row| self.hasher.hash_one((change.table.0, row)));
        let (rollback, trace) = (self.losers.get_mut(&xid).expect("a loser"), self.unended.trace_of(xid));
        // An equal hash of another row skips one change more, which is retried like any other.
        let waits = !rollback.rows.is_empty() && row.is_none_or(|row| rollback.rows.contains(&row));
        if !waits {
            let before = rollback.last_lsn;
            let manager = parts.manager;
            let mut context = parts.context(xid, before);
            let outcome = undo_change(manager, &mut context, &mut rollback.unsaid, change);
            assert!(before <= context.last_lsn(), "{xid} is taken back from {before} to {}", context.last_lsn());
            rollback.last_lsn = context.last_lsn();
            match outcome {
                Ok(false) => {
                    rollback.note_passed(trace, change.lsn);
                    return Ok(false);
                }
                Ok(true) => {
                    pause::point("restart: a change is taken back");
                    return Ok(true);
                }
                Err(cause) if parts.beside.is_some() || !may_wait(&cause) => return Err(cause),
                Err(cause) => {
                    rollback.cause.get_or_insert(cause);
                }
            }
        }
        rollback.note_passed(trace, change.lsn);
        rollback.rows.insert(row.unwrap_or_default());
        rollback.passed.push(change.clone());
        Ok(false)
    }

    /// Takes the losers whose rollbacks are to be parked, in the order of that.
    fn take_unfinished(&mut self, manager: &dyn ResourceManager) -> Vec<Unfinished> {
        assert!(self.changes.is_empty(), "rollbacks are parked before the undo is over");
        let parked = |xid: Xid| {
            let rollback = self.losers.get_mut(&xid).expect("a loser");
            let cause = rollback.cause.take().expect("a change was skipped");
            let mut changes = std::mem::take(&mut rollback.passed);
            changes.reverse();
            assert!(!changes.is_empty(), "{xid} is to be parked, and no change was skipped");
            let (first_group, last_lsn) = (rollback.first_group, rollback.last_lsn);
            Unfinished { xid, first_group, last_lsn, changes, cause }
        };
        self.unfinished.sort_unstable();
        let mut unfinished: Vec<_> = std::mem::take(&mut self.unfinished).into_iter().map(parked).collect();
        // Those that keep others out of a table lock it before those that only wrote there.
        unfinished.sort_by_cached_key(|unfinished: &Unfinished| {
            let mut changes = unfinished.changes.iter();
            changes.all(|change| matches!(manager.row_of(change.kind, &change.body), Ok(Some(_))))
        });
        unfinished
    }
}

/// Undoes the changes of losers and logs the end of each, before new transactions begin. No other thread changes a
/// page. Prepared transactions have been taken over, except for their rows.
///
/// # Errors
/// `Io`, `Corrupted`, `Poisoned`; those of [`TxnManager::park`]. The next restart continues where this one stopped.
pub fn undo(
    log: &Log,
    recovered: &Recovered,
    txns: &Arc<TxnManager>,
    manager: &dyn ResourceManager,
    unended: Unended,
) -> Result<(Unended, UndoStats)> {
    let (mut undo, mut stats) = (Undo::new(unended), UndoStats::default());
    if undo.losers() == 0 {
        return Ok((undo.unended, stats));
    }
    let clock = SystemClock::new();
    let mut session = log.session()?;
    let mut parts = UndoParts { recovered, manager, session: &mut session, beside: None };
    // Without other transactions it is never stuck.
    while let Next::Step { is_undone, .. } = undo.next(&mut parts)? {
        stats.undone += u64::from(is_undone);
    }
    drop(session);
    stats.losers = undo.losers() as u64;
    log.force(log.current())?;
    pause::point("restart: the ends of losers are durable");
    let unfinished = undo.take_unfinished(manager);
    stats.parked = unfinished.len() as u64;
    // WAIT: help - no wait of its own; drawing an xid may have to write the log.
    unfinished.into_iter().try_for_each(|unfinished| txns.park(unfinished))?;
    stats.undo_time = clock.now().into();
    Ok((undo.unended, stats))
}

/// Undoes a change. The changes that its transaction has skipped are logged before. Returns false if the row cannot be
/// reached for good.
fn undo_change(
    manager: &dyn ResourceManager,
    context: &mut UndoContext<'_>,
    unsaid: &mut Vec<Lsn>,
    change: &LoggedChange,
) -> Result<bool> {
    context.log_pass(unsaid)?;
    unsaid.clear();
    let LoggedChange { lsn, kind, table, ref body } = *change;
    let entry = UndoEntry { lsn, is_undone: false, kind, table, body, next: UndoPtr::NULL, keep: None };
    manager.undo(context, &entry)?;
    Ok(!context.has_passed())
}

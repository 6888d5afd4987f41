//! Undo at a restart: the changes of losers are read again and undone, newest first over all of them.
//!
//! The order matters if two losers have changed one row, or one page: a change is undone from the state that it left.
//!
//! **Memory:** the changes of one stretch of the log at a time, and the skipped ones, which are then parked. Changes
//! of prepared transactions are read for one transaction at a time, all of them: the take-over enters them in its
//! undo, which bounds them.

use crate::analysis::Open;
use crate::stats::RecoveryStats;
use crate::stretch::{StretchNo, Stretches};
use crate::trace::Trace;
use foreshore_base::{Error, Lsn, Place, Result, Xid};
use foreshore_buffer::format::{ChangeRecord, SEVERAL};
use foreshore_sync::model::mutant;
use foreshore_sync::{Clock, SystemClock, pause};
use foreshore_txn::format::{COPY, CopiedChange, CopyBody};
use foreshore_txn::{LoggedChange, ResourceManager, TxnManager, UndoContext, UndoEntry, UndoPtr, Unfinished, may_wait};
use foreshore_wal::{Log, Recovered, Session};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MALFORMED: &str = "a record of copied changes is malformed";
const OTHERS: &str = "a record of several changes has another number of them";
const TOO_FEW: &str = "changes of a transaction without an end are not in the log, or were compensated out of order";

/// The transactions that had not ended when the log did, and where their changes are.
#[derive(Debug)]
pub struct Unended {
    log_dir: PathBuf,
    stretches: Stretches,
    losers: BTreeMap<Xid, Rollback>,
    prepared: BTreeMap<Xid, Trace>,
}

impl Unended {
    pub(crate) fn new(
        log_dir: &Path,
        stretches: Stretches,
        losers: BTreeMap<Xid, Open>,
        prepared: BTreeMap<Xid, Trace>,
    ) -> Self {
        let rollback = |(xid, open): (Xid, Open)| {
            let left = open.trace.left();
            (xid, Rollback { open, left, passed: Vec::new(), unsaid: Vec::new(), rows: HashSet::new(), cause: None })
        };
        let losers = losers.into_iter().map(rollback).collect();
        Self { log_dir: log_dir.to_owned(), stretches, losers, prepared }
    }

    fn corrupted(&self, why: &'static str) -> Error {
        Error::corrupted(&self.log_dir, Place::File, why)
    }

    /// Calls `found` for each remaining change in a run of stretches, of the transactions that `trace_of` knows, in
    /// log order. Changes are as short as their undo permits.
    fn read<'t>(
        &self,
        log: &Recovered,
        manager: &dyn ResourceManager,
        run: RangeInclusive<StretchNo>,
        trace_of: impl Fn(Xid) -> Option<&'t Trace>,
        mut found: impl FnMut(Xid, LoggedChange),
    ) -> Result<()> {
        for record in self.stretches.read(log, run) {
            let record = record?;
            let xid = Xid(record.tag);
            let Some(trace) = trace_of(xid) else { continue };
            let change = ChangeRecord::decode(&record.payload).map_err(|why| self.corrupted(why))?;
            let (lsn, are_copies) = (record.lsn, change.kind == COPY);
            if !trace.is_about(lsn, are_copies) {
                continue;
            }
            if are_copies {
                let body = CopyBody::decode(change.body).ok_or_else(|| self.corrupted(MALFORMED))?;
                let left = body.changes.into_iter().filter(|change| trace.stands(change.lsn));
                left.for_each(|CopiedChange { lsn, kind, table, body }| {
                    found(xid, LoggedChange { lsn, kind, table, body: body.into() });
                });
                continue;
            }
            let lsns = change.undoable(lsn).map_err(|why| self.corrupted(why))?;
            if !lsns.clone().any(|lsn| trace.stands(Lsn(lsn))) {
                continue;
            }
            let changes = self.changes_in(manager, &change)?;
            if lsns.clone().count() != changes.len() {
                return Err(self.corrupted(OTHERS));
            }
            let left = lsns.map(Lsn).zip(changes).filter(|&(lsn, _)| trace.stands(lsn));
            left.for_each(|(lsn, (kind, body))| found(xid, LoggedChange { lsn, kind, table: change.table, body }));
        }
        Ok(())
    }

    /// Returns the changes of a record, as short as their undo permits: kind and body of each.
    fn changes_in(&self, manager: &dyn ResourceManager, record: &ChangeRecord<'_>) -> Result<Vec<(u8, Box<[u8]>)>> {
        let (kind, body) = (record.kind, record.body);
        if record.flags & SEVERAL != 0 {
            return Ok(manager.split(kind, body)?.into_iter().map(|(kind, body)| (kind, body.into())).collect());
        }
        Ok(vec![match manager.shorten(kind, body)? {
            Some((kind, body)) => (kind, body.into()),
            None => (kind, body.into()),
        }])
    }

    /// Returns the remaining changes of a prepared transaction, in log order.
    ///
    /// # Errors
    /// `Corrupted` if the log no longer has as many; `Io`.
    pub fn changes_of(&self, log: &Recovered, manager: &dyn ResourceManager, xid: Xid) -> Result<Vec<LoggedChange>> {
        let Some(trace) = self.prepared.get(&xid) else { return Ok(Vec::new()) };
        let mut changes = Vec::new();
        for run in trace.runs() {
            self.read(log, manager, run, |other| (other == xid).then_some(trace), |_, change| changes.push(change))?;
        }
        if changes.len() as u64 == trace.left() { Ok(changes) } else { Err(self.corrupted(TOO_FEW)) }
    }

    /// Returns the remaining changes of losers in a stretch, in log order.
    fn losers_in(
        &self,
        log: &Recovered,
        manager: &dyn ResourceManager,
        stretch: StretchNo,
    ) -> Result<Vec<(Xid, LoggedChange)>> {
        let mut changes = Vec::new();
        if self.losers.values().any(|rollback| rollback.open.trace.is_in(stretch)) {
            let trace_of = |xid| self.losers.get(&xid).map(|rollback| &rollback.open.trace);
            self.read(log, manager, stretch..=stretch, trace_of, |xid, change| changes.push((xid, change)))?;
        }
        Ok(changes)
    }
}

/// The undo of one loser.
#[derive(Debug)]
struct Rollback {
    open: Open,
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
    fn note_passed(&mut self, change: Lsn) {
        if !self.open.trace.is_passed(change) {
            self.unsaid.push(change);
        }
    }
}

/// Undoes the changes of losers and logs the end of each. Space and trees work as at run time; no other thread changes
/// a page. Prepared transactions have been taken over, except for their rows.
///
/// A change that finds no page, or meets a damaged one that does not lead to its row, is skipped. So are the older
/// changes of its row, and those that depend on all changes of the transaction. The others are undone. Skipped changes
/// are parked at the end: their rows stay locked. A change whose row cannot be reached, behind a quarantined page, is
/// skipped for good, and does not keep its transaction from its end.
///
/// # Errors
/// `Io`, `Corrupted`, `Poisoned`; those of [`TxnManager::park`]. The next restart continues where this one stopped.
pub fn undo(
    log: &Log,
    recovered: &Recovered,
    txns: &Arc<TxnManager>,
    manager: &dyn ResourceManager,
    unended: &mut Unended,
    stats: &mut RecoveryStats,
) -> Result<()> {
    if unended.losers.is_empty() {
        return Ok(());
    }
    let clock = SystemClock::new();
    let mut undo = Undo { session: log.session()?, manager, hasher: RandomState::new() };
    for stretch in (0..unended.stretches.count()).rev() {
        let mut changes = unended.losers_in(recovered, manager, stretch)?;
        if mutant("sabotage: losers are undone the oldest change first") {
            changes.reverse();
        }
        for (xid, change) in changes.into_iter().rev() {
            let Some(rollback) = unended.losers.get_mut(&xid) else { continue };
            match rollback.left.checked_sub(1) {
                Some(left) => rollback.left = left,
                None => return Err(unended.corrupted(TOO_FEW)),
            }
            stats.undone += u64::from(undo.undo_or_skip(xid, rollback, change)?);
        }
    }
    if unended.losers.values().any(|rollback| rollback.left > 0) {
        return Err(unended.corrupted(TOO_FEW));
    }
    let mut unfinished = Vec::new();
    for (xid, Rollback { open, mut passed, unsaid, cause, .. }) in std::mem::take(&mut unended.losers) {
        stats.losers += 1;
        let Open { last_lsn, first_group, .. } = open;
        let mut context = UndoContext::at_restart(&mut undo.session, xid, last_lsn);
        let Some(cause) = cause else {
            // A repair of the page that hides the rows of these changes would show them. It refuses pages whose table
            // has such a change (`repair.rs`).
            context.log_pass(&unsaid)?;
            context.log_end()?;
            pause::point("restart: the end of a loser is logged");
            continue;
        };
        // One of them may be on a damaged page, and the run then continues with older ones.
        context.log_pass(&unsaid)?;
        passed.reverse();
        unfinished.push(Unfinished { xid, first_group, last_lsn: context.last_lsn(), changes: passed, cause });
    }
    drop(undo);
    log.force(log.current())?;
    pause::point("restart: the ends of losers are durable");
    stats.parked = unfinished.len() as u64;
    // Those that keep others out of a table lock it before those that only wrote there.
    unfinished.sort_by_cached_key(|unfinished: &Unfinished| {
        let mut changes = unfinished.changes.iter();
        changes.all(|change| matches!(manager.row_of(change.kind, &change.body), Ok(Some(_))))
    });
    // WAIT: help - no wait of its own; drawing an xid may have to write the log.
    unfinished.into_iter().try_for_each(|unfinished| txns.park(unfinished))?;
    stats.undo_time = clock.now().into();
    Ok(())
}

/// The state of the undo of all losers.
struct Undo<'a> {
    session: Session,
    manager: &'a dyn ResourceManager,
    hasher: RandomState,
}

impl Undo<'_> {
    /// Undoes a change, or skips it. Returns whether it was undone.
    fn undo_or_skip(&mut self, xid: Xid, rollback: &mut Rollback, change: LoggedChange) -> Result<bool> {
        let row = self.manager.row_of(change.kind, &change.body)?;
        let row = row.map(|row| self.hasher.hash_one((change.table.0, row)));
        // An equal hash of another row skips one change more, which is retried like any other.
        let waits = !rollback.rows.is_empty() && row.is_none_or(|row| rollback.rows.contains(&row));
        if !waits {
            let mut context = UndoContext::at_restart(&mut self.session, xid, rollback.open.last_lsn);
            let outcome = undo_change(self.manager, &mut context, &mut rollback.unsaid, &change);
            let before = rollback.open.last_lsn;
            assert!(before <= context.last_lsn(), "{xid} is taken back from {before} to {}", context.last_lsn());
            rollback.open.last_lsn = context.last_lsn();
            match outcome {
                Ok(false) => {
                    rollback.note_passed(change.lsn);
                    return Ok(false);
                }
                Ok(true) => {
                    pause::point("restart: a change is taken back");
                    return Ok(true);
                }
                Err(cause) if !may_wait(&cause) => return Err(cause),
                Err(cause) => {
                    rollback.cause.get_or_insert(cause);
                }
            }
        }
        rollback.note_passed(change.lsn);
        rollback.rows.insert(row.unwrap_or_default());
        rollback.passed.push(change);
        Ok(false)
    }
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

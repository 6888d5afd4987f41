//! Undo at a restart: the changes of losers are read again and taken back, the newest first over all of them.
//!
//! The order matters where two losers have changed one row, or one page: a change is taken back from the state that it left.
//!
//! **Memory:** the changes of one stretch of the log at a time. Changes of prepared transactions are read for one transaction at a time,
//! all of them: whoever takes it over enters them in its undo, which bounds them.

use crate::analysis::Open;
use crate::restart::RecoveryStats;
use crate::stretch::{StretchNo, Stretches};
use crate::trace::Trace;
use foreshore_base::{Error, Place, Result, Xid};
use foreshore_buffer::format::{CLR, ChangeRecord, UNDOABLE};
use foreshore_txn::{LoggedChange, ResourceManager, TxnManager, UndoContext, UndoEntry, UndoPtr};
use foreshore_wal::{Log, LoggedRecord, Recovered, Session};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

const TOO_FEW: &str = "changes of a transaction without an end are not in the log, or were compensated out of order";

/// The transactions that had not ended when the log did, and where in it their changes are.
#[derive(Debug)]
pub struct Unended {
    log_dir: PathBuf,
    stretches: Stretches,
    losers: BTreeMap<Xid, Open>,
    prepared: BTreeMap<Xid, Trace>,
}

impl Unended {
    pub(crate) fn new(
        log_dir: &Path,
        stretches: Stretches,
        losers: BTreeMap<Xid, Open>,
        prepared: BTreeMap<Xid, Trace>,
    ) -> Self {
        Self { log_dir: log_dir.to_owned(), stretches, losers, prepared }
    }

    fn corrupted(&self, why: &'static str) -> Error {
        Error::corrupted(&self.log_dir, Place::File, why)
    }

    /// Calls `found` for each change in a run of stretches that can be taken back.
    fn read(
        &self,
        log: &Recovered,
        run: RangeInclusive<StretchNo>,
        mut found: impl FnMut(&LoggedRecord, &ChangeRecord<'_>),
    ) -> Result<()> {
        for record in self.stretches.read(log, run) {
            let record = record?;
            let change = ChangeRecord::decode(&record.payload).map_err(|why| self.corrupted(why))?;
            if change.flags & (CLR | UNDOABLE) == UNDOABLE {
                found(&record, &change);
            }
        }
        Ok(())
    }

    /// The changes of a prepared transaction that stand, in log order.
    ///
    /// # Errors
    /// `Corrupted` if the log does not hold as many as it did; `Io`.
    pub fn changes_of(&self, log: &Recovered, xid: Xid) -> Result<Vec<LoggedChange>> {
        let Some(trace) = self.prepared.get(&xid) else { return Ok(Vec::new()) };
        let mut changes = Vec::new();
        for run in trace.runs() {
            self.read(log, run, |record, change| {
                if Xid(record.tag) == xid && trace.stands(record.lsn) {
                    changes.push(logged(record, change));
                }
            })?;
        }
        if changes.len() as u64 == trace.left() { Ok(changes) } else { Err(self.corrupted(TOO_FEW)) }
    }

    /// The changes of losers in a stretch that are left, in log order.
    fn losers_in(&self, log: &Recovered, stretch: StretchNo) -> Result<Vec<(Xid, LoggedChange)>> {
        let mut changes = Vec::new();
        if self.losers.values().any(|open| open.trace.is_in(stretch)) {
            self.read(log, stretch..=stretch, |record, change| {
                let xid = Xid(record.tag);
                if self.losers.get(&xid).is_some_and(|open| open.trace.stands(record.lsn)) {
                    changes.push((xid, logged(record, change)));
                }
            })?;
        }
        Ok(changes)
    }
}

fn logged(record: &LoggedRecord, change: &ChangeRecord<'_>) -> LoggedChange {
    LoggedChange { lsn: record.lsn, kind: change.kind, table: change.table, body: change.body.into() }
}

/// Takes back what losers did and logs the end of each. Space and trees work as they do at run time; nobody else changes a page.
/// Prepared transactions have been taken over, but for their rows.
///
/// # Errors
/// `DiskFull`, `Io`, `Corrupted`, `Poisoned`. The next restart goes on where this one stopped.
pub fn undo(
    log: &Log,
    recovered: &Recovered,
    txns: &TxnManager,
    manager: &dyn ResourceManager,
    unended: &mut Unended,
    stats: &mut RecoveryStats,
) -> Result<()> {
    if unended.losers.is_empty() {
        return Ok(());
    }
    let mut session = log.session()?;
    let mut left: BTreeMap<Xid, u64> = unended.losers.iter().map(|(&xid, open)| (xid, open.trace.left())).collect();
    for stretch in (0..unended.stretches.count()).rev() {
        for (xid, change) in unended.losers_in(recovered, stretch)?.into_iter().rev() {
            let (Some(open), Some(left)) = (unended.losers.get_mut(&xid), left.get_mut(&xid)) else { continue };
            *left = left.checked_sub(1).ok_or_else(|| Error::corrupted(&unended.log_dir, Place::File, TOO_FEW))?;
            undo_change(&mut session, txns, manager, (xid, open), &change)?;
            stats.undone += 1;
        }
    }
    if left.values().any(|&left| left > 0) {
        return Err(unended.corrupted(TOO_FEW));
    }
    for (xid, open) in std::mem::take(&mut unended.losers) {
        UndoContext::at_restart(&mut session, xid, open.last_lsn).log_end()?;
        stats.losers += 1;
    }
    drop(session);
    log.force(log.current())
}

fn undo_change(
    session: &mut Session,
    txns: &TxnManager,
    manager: &dyn ResourceManager,
    (xid, open): (Xid, &mut Open),
    change: &LoggedChange,
) -> Result<()> {
    let mut context = UndoContext::at_restart(session, xid, open.last_lsn).among(txns);
    let LoggedChange { lsn, kind, table, ref body } = *change;
    let entry = UndoEntry { lsn, is_taken_back: false, kind, table, body, next: UndoPtr::NULL, keep: None };
    manager.undo(&mut context, &entry)?;
    open.last_lsn = context.last_lsn();
    Ok(())
}

//! The transactions that had not ended when the log did, and their changes, which are read again from the log.
//!
//! Changes of losers are read one stretch of the log at a time. Those of prepared transactions are read for one
//! transaction at a time, all of them: the take-over enters them in its undo, which bounds them.

use crate::analysis::Open;
use crate::stretch::{StretchNo, Stretches};
use crate::trace::Trace;
use crate::xid_set::KnownEnds;
use foreshore_base::{Error, GroupNo, Lsn, Place, Result, TableId, Xid};
use foreshore_buffer::format::{ChangeRecord, SEVERAL};
use foreshore_txn::format::{COPY, CopiedChange, CopyBody};
use foreshore_txn::{LoggedChange, LosersHold, ResourceManager};
use foreshore_wal::Recovered;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

const MALFORMED: &str = "a record of copied changes is malformed";
const OTHERS: &str = "a record of several changes has another number of them";
pub(crate) const TOO_FEW: &str =
    "changes of a transaction without an end are not in the log, or were compensated out of order";

/// Most losers that are undone beside new transactions, as checkpoints list them all.
pub(crate) const MAX_LOSERS: usize = 128;

/// Changes of losers from which on they are undone beside new transactions. Fewer are undone in a fraction of a second
/// if their pages are in memory.
const WAITS_FROM: u64 = 20_000;

/// How a restart undoes losers.
#[derive(Clone, Copy, Debug)]
pub struct UndoOptions {
    /// Whether losers may be undone beside new transactions.
    pub may_wait: bool,
    /// Changes from which on they are; `None`: where it pays.
    pub waits_from: Option<u64>,
    /// Tables with a larger id are those of users.
    pub last_system_table: TableId,
}

/// The transactions that had not ended when the log did, and where their changes are.
#[derive(Debug)]
pub struct Unended {
    log_dir: PathBuf,
    stretches: Stretches,
    losers: BTreeMap<Xid, Open>,
    prepared: BTreeMap<Xid, Trace>,
    /// The transactions that have ended; `None` if the log does not tell, or losers need not wait.
    ends: Option<KnownEnds>,
    scan_start: GroupNo,
    /// Whether losers may be undone only before new transactions begin, because of what the restart has found.
    is_eager: bool,
}

impl Unended {
    pub(crate) fn new(
        log_dir: &Path,
        stretches: Stretches,
        (losers, prepared): (BTreeMap<Xid, Open>, BTreeMap<Xid, Trace>),
        ends: Option<KnownEnds>,
        (scan_start, is_eager): (GroupNo, bool),
    ) -> Self {
        Self { log_dir: log_dir.to_owned(), stretches, losers, prepared, ends, scan_start, is_eager }
    }

    /// Returns what the losers hold, if they are to be undone beside new transactions. They are not if
    ///
    /// - there are few changes, or no threads;
    /// - the restart has met damage, prepared transactions, or losers that an earlier restart has left;
    /// - a loser has changed more than rows of users, or an earlier rollback of it has skipped or copied changes;
    /// - there are very many losers or xids.
    #[must_use]
    pub fn to_hold(&mut self, manager: &dyn ResourceManager, options: UndoOptions) -> Option<LosersHold> {
        let UndoOptions { may_wait, waits_from, last_system_table } = options;
        let ends = self.ends.take()?;
        let losers = || self.losers.values();
        let left: u64 = losers().map(|open| open.trace.left()).sum();
        let is_row = |&(table, kind): &(TableId, u8)| table > last_system_table && manager.is_row_change(kind);
        let may_wait = may_wait
            && !self.is_eager
            && self.prepared.is_empty()
            && (1..=MAX_LOSERS).contains(&self.losers.len())
            && left >= waits_from.unwrap_or(WAITS_FROM)
            && losers().all(|open| open.is_plain && open.changed.iter().all(is_row));
        let xids = if may_wait { ends.maybe_live()? } else { return None };
        let tables: BTreeSet<TableId> =
            losers().flat_map(|open| open.changed.iter().map(|&(table, _)| table)).collect();
        Some(LosersHold {
            xids,
            losers: self.losers.keys().copied().collect(),
            first_group: self.scan_start,
            tables: tables.into_iter().collect(),
            undo_log: losers().map(|open| open.undo_log).sum(),
        })
    }

    /// Returns the losers.
    pub(crate) fn losers(&self) -> impl Iterator<Item = (Xid, &Open)> {
        self.losers.iter().map(|(&xid, open)| (xid, open))
    }

    /// Returns what the log has of a loser.
    pub(crate) fn trace_of(&self, loser: Xid) -> &Trace {
        &self.losers[&loser].trace
    }

    /// Returns how many stretches of log there are.
    pub(crate) fn stretches(&self) -> StretchNo {
        self.stretches.count()
    }

    pub(crate) fn corrupted(&self, why: &'static str) -> Error {
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

    /// Returns the remaining changes in a stretch, of the losers for which `is_read` returns true, in log order.
    pub(crate) fn losers_in(
        &self,
        log: &Recovered,
        manager: &dyn ResourceManager,
        stretch: StretchNo,
        is_read: impl Fn(Xid) -> bool,
    ) -> Result<Vec<(Xid, LoggedChange)>> {
        let mut changes = Vec::new();
        if self.losers.iter().any(|(&xid, open)| open.trace.is_in(stretch) && is_read(xid)) {
            let trace_of = |xid| self.losers.get(&xid).filter(|_| is_read(xid)).map(|open| &open.trace);
            self.read(log, manager, stretch..=stretch, trace_of, |xid, change| changes.push((xid, change)))?;
        }
        Ok(changes)
    }
}

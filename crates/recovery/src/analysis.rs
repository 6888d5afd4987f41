//! Analysis: which transactions were running when the log ended, and which of their changes stand.

use crate::format::CheckpointBody;
use foreshore_base::{Csn, GroupNo, Lsn, Xid};
use foreshore_buffer::format::{CLR, ChangeRecord, UNDOABLE};
use foreshore_txn::format::{self as records, ABORT, CHECKPOINT, COMMIT, END, PREPARE, XID_CEILING};
use foreshore_txn::{InDoubt, LoggedChange, PrepareBody};
use std::collections::{BTreeMap, HashSet};

/// A transaction whose end has not been seen.
#[derive(Debug, Default)]
pub(crate) struct Open {
    /// In log order; the last one is undone first.
    pub(crate) undo: Vec<LoggedChange>,
    pub(crate) last_lsn: Lsn,
    /// The first group that a record of it was met in.
    first_group: Option<GroupNo>,
    /// It has prepared, and there is no decision yet.
    prepared: Option<Box<PrepareBody>>,
    /// A compensation was met for a change that was not.
    unmatched: bool,
}

impl Open {
    fn into_doubt(self, xid: Xid) -> Option<InDoubt> {
        let Self { undo: changes, last_lsn, first_group, prepared, .. } = self;
        Some(InDoubt { xid, first_group: first_group?, last_lsn, changes, body: *prepared? })
    }
}

/// What one pass over the log finds out.
#[derive(Debug)]
pub(crate) struct Analysis {
    open: BTreeMap<Xid, Open>,
    ceiling: Xid,
    clock: Csn,
    /// LSN of the checkpoint record to look for; zero if there has been no checkpoint.
    wanted: Lsn,
    checkpoint: Option<CheckpointBody>,
    pub(crate) commits: u64,
}

/// The outcome of the pass.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// By xid.
    pub(crate) losers: BTreeMap<Xid, Open>,
    /// Those that wait for a decision, by xid.
    pub(crate) in_doubt: Vec<InDoubt>,
    /// First xid that nobody has been given.
    pub(crate) next_xid: Xid,
    pub(crate) clock: Csn,
}

impl Analysis {
    /// Starts with what the superblock says.
    pub(crate) fn new(checkpoint_lsn: Lsn, ceiling: Xid) -> Self {
        Self { open: BTreeMap::new(), ceiling, clock: Csn::ZERO, wanted: checkpoint_lsn, checkpoint: None, commits: 0 }
    }

    /// Takes note of a record. Records come in log order.
    ///
    /// # Errors
    /// Says what is wrong with a record that no engine writes.
    pub(crate) fn note(&mut self, xid: Xid, lsn: Lsn, record: &ChangeRecord<'_>) -> Result<(), &'static str> {
        match record.kind {
            COMMIT => {
                self.open.remove(&xid);
                self.clock = self.clock.max(lsn.csn());
                self.commits += 1;
            }
            END => {
                self.open.remove(&xid);
                self.clock = self.clock.max(lsn.csn());
            }
            XID_CEILING => {
                let ceiling = records::decode_ceiling(record.body).ok_or("an xid ceiling record is malformed")?;
                self.ceiling = self.ceiling.max(ceiling);
            }
            CHECKPOINT => {
                let body = CheckpointBody::decode(record.body)?;
                self.ceiling = self.ceiling.max(body.ceiling);
                self.clock = self.clock.max(body.clock);
                if lsn == self.wanted {
                    self.checkpoint = Some(body);
                }
            }
            _ if xid == Xid::ZERO => {}
            PREPARE => {
                let open = self.open.entry(xid).or_default();
                open.last_lsn = lsn;
                open.prepared = Some(Box::new(PrepareBody::decode(record.body)?));
            }
            ABORT => {
                let open = self.open.entry(xid).or_default();
                open.last_lsn = lsn;
                open.prepared = None;
            }
            _ => self.note_change(xid, lsn, record)?,
        }
        Ok(())
    }

    /// Takes note of the group that the record of a transaction stands in.
    pub(crate) fn note_group(&mut self, xid: Xid, group: GroupNo) {
        if let Some(open) = self.open.get_mut(&xid) {
            open.first_group = Some(open.first_group.map_or(group, |first| first.min(group)));
        }
    }

    fn note_change(&mut self, xid: Xid, lsn: Lsn, record: &ChangeRecord<'_>) -> Result<(), &'static str> {
        let open = self.open.entry(xid).or_default();
        open.last_lsn = lsn;
        if record.flags & CLR != 0 {
            let (compensates, _) = records::split_clr(record.body).ok_or("a compensation record is too short")?;
            // Rollback goes backwards, so it is nearly always the last one.
            match open.undo.iter().rposition(|entry| entry.lsn == compensates) {
                Some(at) => drop(open.undo.remove(at)),
                None => open.unmatched = true,
            }
        } else if record.flags & UNDOABLE != 0 {
            let body = record.body.into();
            open.undo.push(LoggedChange { lsn, kind: record.kind, table: record.table, body });
        }
        Ok(())
    }

    /// Ends the pass: what is open and was not finished at the checkpoint is a loser.
    ///
    /// # Errors
    /// Says what the log lacks.
    pub(crate) fn finish(mut self) -> Result<Outcome, &'static str> {
        if let Some(checkpoint) = &self.checkpoint {
            let active: HashSet<Xid> = checkpoint.active.iter().map(|&(xid, _)| xid).collect();
            // A transaction drawn before the checkpoint that was not running at it has its end in the log before it,
            // though records of it may lie behind the start of the scan.
            self.open.retain(|xid, _| *xid >= checkpoint.next_xid || active.contains(xid));
        } else if self.wanted != Lsn::ZERO {
            return Err("the checkpoint that the superblock names is not in the log");
        }
        if self.open.values().any(|open| open.unmatched) {
            return Err("a compensation names a change that is not in the log");
        }
        if self.open.keys().next_back().is_some_and(|&last| last >= self.ceiling) {
            return Err("a record carries an xid that was never handed out");
        }
        let (in_doubt, losers): (BTreeMap<_, _>, _) =
            self.open.into_iter().partition(|(_, open)| open.prepared.is_some());
        let in_doubt = in_doubt.into_iter().map(|(xid, open)| open.into_doubt(xid));
        let in_doubt = in_doubt.collect::<Option<_>>().ok_or("a prepared transaction without a place in the log")?;
        Ok(Outcome { losers, in_doubt, next_xid: self.ceiling, clock: self.clock })
    }
}

#[cfg(test)]
mod tests;

//! Analysis: which transactions were running when the log ended, and which of their changes remain.

use crate::format::CheckpointBody;
use crate::stretch::Stretches;
use crate::trace::Trace;
use crate::xid_set::{KnownEnds, XidSet};
use foreshore_base::{Csn, GroupNo, Incarnation, Lsn, TableId, Xid};
use foreshore_buffer::format::{CLR, ChangeRecord};
use foreshore_sync::model::mutant;
use foreshore_txn::format::{
    self as records, ABORT, CHECKPOINT, COMMIT, COPY, CopyBody, END, PASS, PREPARE, XID_CEILING,
};
use foreshore_txn::{InDoubt, PrepareBody, compensation_cost};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Memory that a change takes besides its body when it is read again.
const CHANGE_BYTES: usize = 64;

/// Where a record was met.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) xid: Xid,
    pub(crate) lsn: Lsn,
    pub(crate) group: GroupNo,
    /// The run that logged it.
    pub(crate) incarnation: Incarnation,
}

/// A transaction whose end has not been seen.
#[derive(Debug)]
pub(crate) struct Open {
    /// Its changes.
    pub(crate) trace: Trace,
    pub(crate) last_lsn: Lsn,
    /// The first group that a record of it was met in.
    pub(crate) first_group: GroupNo,
    /// The tables that it has changed, with the kinds of changes.
    pub(crate) changed: BTreeSet<(TableId, u8)>,
    /// The one of the newest change. Most changes are like the one before.
    last_changed: Option<(TableId, u8)>,
    /// Bytes of log that its remaining compensations take, about.
    pub(crate) undo_log: u64,
    /// Whether no rollback of it has skipped or copied changes.
    pub(crate) is_plain: bool,
    /// The run of its first record.
    began: Incarnation,
    /// Set if it has prepared, and there is no decision yet.
    prepared: Option<Box<PrepareBody>>,
    /// Whether a compensation was met that does not match its changes.
    is_unmatched: bool,
    /// A set of copies of its changes that is not complete yet.
    copies: Option<Copies>,
}

/// A set of copies of the remaining changes of a rollback.
#[derive(Debug)]
struct Copies {
    /// The changes in it.
    trace: Trace,
    /// LSN of its first record.
    from: Lsn,
    /// No record of it lies in an earlier group.
    first_group: GroupNo,
}

/// The state of one pass over the log.
#[derive(Debug)]
pub(crate) struct Analysis {
    open: BTreeMap<Xid, Open>,
    stretches: Stretches,
    ceiling: Xid,
    clock: Csn,
    /// LSN of the checkpoint record to look for; zero if there has been no checkpoint.
    wanted: Lsn,
    checkpoint: Option<(CheckpointBody, Incarnation)>,
    committed: XidSet,
    pub(crate) commits: u64,
}

/// The outcome of the pass.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// By xid.
    pub(crate) losers: BTreeMap<Xid, Open>,
    /// Those that wait for a decision, by xid.
    pub(crate) in_doubt: Vec<InDoubt>,
    /// Their changes.
    pub(crate) prepared: BTreeMap<Xid, Trace>,
    /// The log in which the changes of all these lie.
    pub(crate) stretches: Stretches,
    /// The xids that have ended; `None` if there is no loser, or the log does not tell enough.
    pub(crate) ends: Option<KnownEnds>,
    /// First xid that has not been drawn.
    pub(crate) next_xid: Xid,
    pub(crate) clock: Csn,
}

impl Analysis {
    /// Starts from the superblock. The log will be read again in stretches of `stretch` bytes.
    pub(crate) fn new(checkpoint_lsn: Lsn, ceiling: Xid, stretch: usize) -> Self {
        Self {
            open: BTreeMap::new(),
            stretches: Stretches::new(stretch),
            ceiling,
            clock: Csn::ZERO,
            wanted: checkpoint_lsn,
            checkpoint: None,
            committed: XidSet::default(),
            commits: 0,
        }
    }

    /// Notes a record. Records come in log order.
    ///
    /// # Errors
    /// Says what is wrong with a record that no engine writes.
    pub(crate) fn note(&mut self, at: At, record: &ChangeRecord<'_>) -> Result<(), &'static str> {
        let At { xid, lsn, .. } = at;
        match record.kind {
            COMMIT => {
                self.open.remove(&xid);
                self.committed.insert(xid);
                self.clock = self.clock.max(lsn.csn());
                self.commits += 1;
            }
            END => {
                self.open.remove(&xid);
                self.clock = self.clock.max(lsn.csn());
            }
            XID_CEILING => {
                let ceiling = records::decode_ceiling(record.body).ok_or("an xid ceiling record is malformed")?;
                if !mutant("sabotage: xids are handed out twice after a restart") {
                    self.ceiling = self.ceiling.max(ceiling);
                }
            }
            CHECKPOINT => {
                let body = CheckpointBody::decode(record.body)?;
                self.ceiling = self.ceiling.max(body.ceiling);
                self.clock = self.clock.max(body.clock);
                if lsn == self.wanted {
                    self.checkpoint = Some((body, at.incarnation));
                }
            }
            _ if xid == Xid::ZERO => {}
            PREPARE if mutant("sabotage: a prepared transaction is forgotten at a restart") => {
                self.open(at);
            }
            PREPARE => {
                self.open(at).prepared = Some(Box::new(records::decode_prepare(record.body)?));
            }
            ABORT if mutant("sabotage: the decision to roll back is forgotten at a restart") => {}
            ABORT => self.open(at).prepared = None,
            PASS => {
                let changes =
                    records::decode_pass(record.body).ok_or("a record of changes passed over is malformed")?;
                let open = self.open(at);
                open.is_plain = false;
                changes.for_each(|change| open.is_unmatched |= !open.trace.pass(change, lsn));
            }
            COPY => self.note_copies(at, record.body)?,
            _ => self.note_change(at, record)?,
        }
        Ok(())
    }

    /// Returns the transaction of a record.
    fn open(&mut self, At { xid, lsn, group, incarnation }: At) -> &mut Open {
        let open = self.open.entry(xid).or_insert_with(|| Open {
            trace: Trace::default(),
            last_lsn: lsn,
            first_group: group,
            changed: BTreeSet::new(),
            last_changed: None,
            undo_log: 0,
            is_plain: true,
            began: incarnation,
            prepared: None,
            is_unmatched: false,
            copies: None,
        });
        open.last_lsn = lsn;
        open.first_group = open.first_group.min(group);
        open
    }

    /// Notes a record of a set of copies. An incomplete set is ignored. After a complete one nothing earlier of the
    /// transaction counts, and a part of it may be missing.
    fn note_copies(&mut self, at: At, body: &[u8]) -> Result<(), &'static str> {
        let body = CopyBody::decode(body).ok_or("a record of copied changes is malformed")?;
        let bytes = body.changes.iter().map(|change| CHANGE_BYTES + change.body.len()).sum();
        let stretch = self.stretches.note(at.lsn, at.group, bytes);
        let open = self.open(at);
        open.is_plain = false;
        if body.is_first {
            open.copies = Some(Copies { trace: Trace::default(), from: at.lsn, first_group: at.group });
        }
        // The scan began after the first record of the set, so a later set counts.
        let Some(copies) = &mut open.copies else { return Ok(()) };
        copies.first_group = copies.first_group.min(at.group);
        body.changes.iter().for_each(|change| copies.trace.add(change.lsn, stretch));
        if body.is_last {
            let Some(Copies { trace, from, first_group }) = open.copies.take() else { return Ok(()) };
            open.trace = trace.copied(from, at.lsn);
            open.first_group = first_group;
            open.is_unmatched = false;
        }
        Ok(())
    }

    fn note_change(&mut self, at: At, record: &ChangeRecord<'_>) -> Result<(), &'static str> {
        if record.flags & CLR != 0 {
            let (change, _) = records::split_clr(record.body).ok_or("a compensation record is too short")?;
            let open = self.open(at);
            let is_lost = mutant("sabotage: compensations are forgotten at a restart");
            open.is_unmatched |= !is_lost && !open.trace.mark_undone(change, at.lsn);
            open.undo_log = open.undo_log.saturating_sub(compensation_cost(record.body.len()));
            return Ok(());
        }
        let changes = record.undoable(at.lsn)?;
        if changes.is_empty() {
            self.open(at);
            return Ok(());
        }
        let count = (changes.end() - changes.start()) as usize + 1;
        let stretch = self.stretches.note(at.lsn, at.group, count * CHANGE_BYTES + record.body.len());
        let open = self.open(at);
        changes.for_each(|change| open.trace.add(Lsn(change), stretch));
        let changed = (record.table, record.kind);
        if open.last_changed != Some(changed) {
            open.last_changed = Some(changed);
            open.changed.insert(changed);
        }
        // Several changes share what is common to them.
        open.undo_log += compensation_cost(record.body.len()) + (count as u64 - 1) * compensation_cost(CHANGE_BYTES);
        Ok(())
    }

    /// Ends the pass: an open transaction that had not ended at the checkpoint is a loser.
    ///
    /// # Errors
    /// Says what the log lacks.
    pub(crate) fn finish(mut self) -> Result<Outcome, &'static str> {
        if let Some((checkpoint, _)) = &self.checkpoint {
            let active: HashSet<Xid> = checkpoint.active.iter().map(|&(xid, _)| xid).collect();
            // A transaction drawn before the checkpoint that was not running at it has its end in the log before it,
            // though records of it may lie after the start of the scan.
            self.open.retain(|xid, _| *xid >= checkpoint.next_xid || active.contains(xid));
        } else if self.wanted != Lsn::ZERO {
            return Err("the checkpoint that the superblock names is not in the log");
        }
        if self.open.values().any(|open| open.is_unmatched) {
            return Err("a compensation names a change that is not in the log, or not the newest");
        }
        if self.open.keys().next_back().is_some_and(|&last| last >= self.ceiling) {
            return Err("a record carries an xid that was never handed out");
        }
        let (mut losers, mut in_doubt, mut prepared) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (xid, mut open) in self.open {
            let Some(body) = open.prepared.take() else {
                losers.insert(xid, open);
                continue;
            };
            in_doubt.push(InDoubt { xid, first_group: open.first_group, last_lsn: open.last_lsn, body: *body });
            prepared.insert(xid, open.trace);
        }
        // An earlier restart has left a loser, and a checkpoint counts the xids as over that were unknown to it.
        let known_in = self.checkpoint.as_ref().map_or(Incarnation(0), |&(_, incarnation)| incarnation);
        let is_told = !losers.is_empty() && losers.values().all(|open| open.began >= known_in);
        let (stretches, next_xid, clock) = (self.stretches, self.ceiling, self.clock);
        let (checkpoint, committed) = (self.checkpoint.map(|(body, _)| body), self.committed);
        let ends = is_told.then_some(KnownEnds { checkpoint, committed, next: next_xid });
        Ok(Outcome { losers, in_doubt, prepared, stretches, ends, next_xid, clock })
    }
}

#[cfg(test)]
mod tests;

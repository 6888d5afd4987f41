//! Restart: repeat history, then take back what had not committed.
//!
//! After ARIES (Mohan et al., 1992), with analysis and redo in one pass over the log, since the superblock names a group
//! that lies before everything either of them needs. Restart may itself be cut short at any point and begin again: redo
//! skips what a page already holds, and compensations, which are redone like any change, take the changes they
//! compensate out of what is left to undo.

use crate::analysis::{Analysis, Open, Outcome};
use foreshore_base::{Csn, Error, PageId, Place, Result, Xid};
use foreshore_buffer::Pool;
use foreshore_buffer::format::{CLR, ChangeRecord};
use foreshore_space::SuperBlock;
use foreshore_txn::{InDoubt, ResourceManager, Start, TxnManager, UndoContext, UndoEntry, UndoPtr, format::split_clr};
use foreshore_wal::{Log, LoggedRecord, Recovered};
use std::{
    collections::{BTreeMap, BinaryHeap},
    path::Path,
};

/// What a restart did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryStats {
    /// Whether the database had been closed, and nothing was logged after that.
    pub was_clean: bool,
    /// Records read.
    pub records: u64,
    /// Commits among them.
    pub commits: u64,
    /// Changes of pages that were applied again.
    pub redone: u64,
    /// Transactions that are prepared and wait for a decision.
    pub prepared: u64,
    /// Transactions that were taken back.
    pub losers: u64,
    /// Changes that were taken back.
    pub undone: u64,
    /// Torn pages restored from the doublewrite file.
    pub restored: u64,
}

/// The transactions that were running when the log ended.
#[derive(Debug)]
pub struct Losers(BTreeMap<Xid, Open>);

/// What replay leaves to do.
#[derive(Debug)]
pub struct Replayed {
    /// To be undone, once transactions and trees are wired.
    pub losers: Losers,
    /// To be taken over, once transactions and trees are wired.
    pub in_doubt: Vec<InDoubt>,
    /// Where xids and commit stamps go on.
    pub start: Start,
    /// What has been done so far.
    pub stats: RecoveryStats,
}

/// Repeats history: restores torn pages, reads the log from where `superblock` says, and applies every change that its
/// page lacks. `redo` is called for changes of pages only, and touches nothing but the page it is given.
///
/// # Errors
/// `LostLog` or `Corrupted` if the log lacks what the superblock names; `Corrupted` for a page that no record in the log
/// can rebuild; `Io`.
pub fn replay(
    log_dir: &Path,
    log: &Log,
    recovered: &Recovered,
    superblock: &SuperBlock,
    pool: &Pool,
    redo: &dyn ResourceManager,
) -> Result<Replayed> {
    if superblock.checkpoint_lsn > recovered.end() {
        // The superblock was switched when the checkpoint was durable.
        return Err(recovered.lost(recovered.next_group()));
    }
    if superblock.scan_start < recovered.first_group() {
        return Err(recovered.lost(superblock.scan_start));
    }
    if superblock.scan_start > recovered.next_group() {
        return Err(recovered.lost(recovered.next_group()));
    }
    let malformed = |why| Error::corrupted(log_dir, Place::File, why);
    let mut stats = RecoveryStats { was_clean: superblock.clean, ..RecoveryStats::default() };
    stats.restored = pool.restore_doublewrite(log.durable())? as u64;
    let mut analysis = Analysis::new(superblock.checkpoint_lsn, superblock.xid_ceiling);
    for record in recovered.records(superblock.scan_start) {
        let record = record?;
        let mut change = ChangeRecord::decode(&record.payload).map_err(malformed)?;
        stats.records += 1;
        stats.was_clean &= record.lsn <= superblock.checkpoint_lsn;
        analysis.note(Xid(record.tag), record.lsn, &change).map_err(malformed)?;
        analysis.note_group(Xid(record.tag), record.group);
        if change.flags & CLR != 0 {
            // What it compensates matters to the analysis only.
            change.body = split_clr(change.body).ok_or_else(|| malformed("a compensation record is too short"))?.1;
        }
        for (index, &pid) in change.pages().iter().enumerate() {
            stats.redone += u64::from(redo_page(pool, redo, &record, &change, index, pid)?);
        }
    }
    stats.commits = analysis.commits;
    let Outcome { losers, in_doubt, next_xid, clock } = analysis.finish().map_err(malformed)?;
    let start = Start { next_xid, clock: clock.max(Csn(recovered.max_lsn().0)) };
    stats.prepared = in_doubt.len() as u64;
    if in_doubt.iter().any(|found| found.body.seed != in_doubt[0].body.seed) {
        return Err(malformed("prepared transactions have keys hashed by two seeds"));
    }
    Ok(Replayed { losers: Losers(losers), in_doubt, start, stats })
}

/// Applies a change to one of its pages unless the page holds it. Returns whether it did.
fn redo_page(
    pool: &Pool,
    redo: &dyn ResourceManager,
    record: &LoggedRecord,
    change: &ChangeRecord<'_>,
    index: usize,
    pid: PageId,
) -> Result<bool> {
    let mut page = match change.initialises(index) {
        true => pool.exclusive_or_blank(pid)?,
        false => pool.exclusive(pid)?,
    };
    // Stamps on one page only grow, so this one comparison makes redo idempotent.
    if page.lsn() >= record.lsn {
        return Ok(false);
    }
    page.set_rec_group_for_redo(record.group);
    redo.redo(change, index, &mut page)?;
    page.set_lsn(record.lsn);
    Ok(true)
}

/// Takes back what `losers` did, newest change first over all of them, and logs the end of each. Space and trees work as
/// they do at run time; nobody else changes a page. Prepared transactions have been taken over, but for their rows.
///
/// # Errors
/// `DiskFull`, `Io`, `Corrupted`, `Poisoned`. The next restart goes on where this one stopped.
pub fn undo(
    log: &Log,
    txns: &TxnManager,
    manager: &dyn ResourceManager,
    losers: Losers,
    stats: &mut RecoveryStats,
) -> Result<()> {
    let Losers(mut losers) = losers;
    if losers.is_empty() {
        return Ok(());
    }
    let mut session = log.session()?;
    let newest = |open: &Open| open.undo.last().map(|entry| entry.lsn);
    // In descending order over all of them: two losers may have changed one page, and a change is taken back from the
    // state that it left. Those with nothing left come last.
    let mut queue: BinaryHeap<_> = losers.iter().map(|(&xid, open)| (newest(open), xid)).collect();
    while let Some((_, xid)) = queue.pop() {
        let open = losers.get_mut(&xid).expect("the queue holds losers");
        let mut context = UndoContext::at_restart(&mut session, xid, open.last_lsn).among(txns);
        let Some(entry) = open.undo.pop() else {
            context.log_end()?;
            stats.losers += 1;
            continue;
        };
        let (lsn, body) = (entry.lsn, &entry.body);
        let (kind, table, next) = (entry.kind, entry.table, UndoPtr::NULL);
        let entry = UndoEntry { lsn, is_taken_back: false, kind, table, body, next, keep: None };
        manager.undo(&mut context, &entry)?;
        open.last_lsn = context.last_lsn();
        stats.undone += 1;
        queue.push((newest(open), xid));
    }
    drop(session);
    log.force(log.current())
}

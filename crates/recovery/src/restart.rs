//! Restart: repeats history, then undoes uncommitted transactions.
//!
//! After ARIES (Mohan et al., 1992), with analysis and redo in one pass over the log. The superblock names two groups:
//! the scan start is before everything that analysis or redo needs, the redo start before everything that a page
//! needs. Groups between them are only analysed.
//!
//! Restart may itself be interrupted at any point and start over. Redo skips what a page already has. Compensations,
//! which are redone like any change, exclude the changes that they compensate from undo.
//!
//! **Why no page needs a record of a group before the redo start.** Let `R` be the redo start of the superblock in
//! use, and `r` a record of an earlier group that changed page `p`.
//!
//! 1. The checkpoint loaded the number of the next group, `begin`, before all else, and `R` is not above it. So `r`
//!    was appended before that load. `p` was marked dirty before `r` was appended, with a group at most that of `r`.
//! 2. The checkpoint then wrote pages, and took `R` as the least group that a dirty page needed. `p` was not among
//!    these, otherwise `R` would not be above the group of `r`. So `p` had been written with `r` after it was marked,
//!    and is clean or was marked again for later records.
//! 3. The data file was synced before the superblock was written: that image of `p`, or a newer one, is home.
//! 4. Later home writes replaced it by newer images. If power loss tears one, its image in the doublewrite file is
//!    newer still, and has `r`. A page that fell behind the end of the file by a lost growth had no sync after its
//!    first write. So it was dirty at the checkpoint, or was initialised after it: all its records are at `R` or
//!    later.
//! 5. A page that is formatted anew has an initialising record. If that is at `R` or later, redo starts from it, and
//!    needs nothing of the earlier use of the id. If it is before `R`, steps 1 to 4 hold for it as for any record.
//!
//! Records of one page need not lie in groups in the order of their LSNs: one cut may be written as several groups.
//! The argument is about each record alone. So is the comparison with the LSN of the page, which skips those that it
//! has.
//!
//! Each slot of the superblock has its own pair. A restart that falls back to the older one reads and redoes from
//! there. Its pages were synced before it was written, newer images do no harm, and the log from its scan start on is
//! kept.

use crate::analysis::{Analysis, At, Outcome};
use crate::redo::{Redo, Redone};
use crate::stats::RecoveryStats;
use crate::undo::Unended;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Csn, Error, Incarnation, PageId, Place, Result, Xid};
use foreshore_buffer::Pool;
use foreshore_buffer::format::ChangeRecord;
use foreshore_space::SuperBlock;
use foreshore_sync::model::mutant;
use foreshore_sync::{Clock, SystemClock, available_parallelism, pause};
use foreshore_txn::{InDoubt, ResourceManager, Start};
use foreshore_wal::{Log, Recovered};
use std::path::Path;
use std::sync::Arc;

/// Share of the pool's memory for the changes of one stretch of log.
const STRETCH_SHARE: usize = 16;
/// Smallest stretch, in bytes: each costs a search for its beginning.
const MIN_STRETCH: usize = 16 << 10;

/// Redo workers for each processor.
const WORKERS_EACH: usize = 2;

/// The result of replay.
#[derive(Debug)]
pub struct Replayed {
    /// To be undone, once transactions and trees are wired, and the changes of those in doubt.
    pub unended: Unended,
    /// To be taken over, once transactions and trees are wired.
    pub in_doubt: Vec<InDoubt>,
    /// Where xids and commit stamps continue.
    pub start: Start,
    /// Pages that redo met and that are quarantined, map pages among them.
    pub quarantined: Vec<PageId>,
    /// Whether an earlier start has begun to redo the same log, and has ended before a checkpoint.
    pub is_repeated: bool,
    /// What has been done so far.
    pub stats: RecoveryStats,
}

/// Bytes of log from which on redo has several workers. Less takes no longer than to start them.
const PARALLEL: u64 = 1 << 20;

/// Repeats history: restores torn pages, reads the log from where `superblock` says, and applies every change that its
/// page lacks. `manager` redoes changes of pages. `workers` threads do that; `None`: as many as pay.
///
/// # Errors
/// - `LostLog` or `Corrupted` if the log lacks what the superblock names
/// - `Corrupted` for a page that is ahead of the log, or for a damaged one that the database cannot do without
/// - `Io`, also for a page that cannot be read.
pub fn replay(
    log_dir: &Path,
    log: &Log,
    recovered: &Recovered,
    superblock: &SuperBlock,
    pool: &Pool,
    manager: &Arc<dyn ResourceManager>,
    workers: Option<usize>,
) -> Result<Replayed> {
    check_log(recovered, superblock)?;
    let malformed = |why| Error::corrupted(log_dir, Place::File, why);
    let mut stats = RecoveryStats { was_clean: superblock.clean, ..RecoveryStats::default() };
    if !mutant("sabotage: torn pages are not restored") {
        stats.restored = pool.restore_doublewrite(log.durable())? as u64;
    }
    let clock = SystemClock::new();
    let stretch = (pool.frames() * PAGE_SIZE / STRETCH_SHARE).max(MIN_STRETCH);
    let mut analysis = Analysis::new(superblock.checkpoint_lsn, superblock.xid_ceiling, stretch);
    stats.scanned_bytes = recovered.bytes_from(recovered.first_group());
    stats.redo_bytes = recovered.bytes_from(superblock.redo_start);
    let workers = workers.unwrap_or_else(|| workers_for(stats.redo_bytes));
    let mut redo = Redo::new(workers, log_dir, pool, manager);
    let read = read_log(recovered, superblock, &mut analysis, &mut redo, &mut stats, &malformed);
    // A record that could not be redone stands before one that could not be read.
    let Redone { changes, quarantined } = redo.finish()?;
    let is_repeated = read?.is_some_and(|oldest| recovered.incarnation().0 > oldest.0 + 1)
        && !mutant("sabotage: starts that crash leave their pages to others");
    stats.redone = changes;
    stats.commits = analysis.commits;
    let outcome = analysis.finish().map_err(malformed)?;
    let Outcome { losers, in_doubt, prepared, stretches, next_xid, .. } = outcome;
    let start = Start { next_xid, clock: outcome.clock.max(Csn(recovered.max_lsn().0)) };
    stats.prepared = in_doubt.len() as u64;
    if !quarantined.is_empty() || pool.stamps().has_rebuilt() {
        // Quarantined pages are home as such before anything is logged. So a restart that finds one of them whole finds
        // the log that it needs, too. Pages that were made anew are home before the redo start moves behind the record
        // that initialised them: until then some may be below their stamps.
        pool.flush_all()?;
    }
    pool.stamps().end_redo();
    stats.redo_time = clock.now().into();
    pause::point("restart: history is repeated");
    stats.quarantined = quarantined.len() as u64;
    let quarantined = quarantined.into_iter().collect();
    let unended = Unended::new(log_dir, stretches, losers, prepared);
    Ok(Replayed { unended, in_doubt, start, quarantined, is_repeated, stats })
}

/// Refuses a log that lacks what the superblock names.
pub(crate) fn check_log(recovered: &Recovered, superblock: &SuperBlock) -> Result<()> {
    if superblock.checkpoint_lsn > recovered.end() {
        // The superblock was switched when the checkpoint was durable.
        return Err(recovered.lost(recovered.next_group()));
    }
    if superblock.scan_start < recovered.first_group() {
        return Err(recovered.lost(superblock.scan_start));
    }
    if superblock.redo_start > recovered.next_group() {
        return Err(recovered.lost(recovered.next_group()));
    }
    Ok(())
}

/// Returns the workers for so many bytes of log. More than the processors, because some wait for reads.
fn workers_for(bytes: u64) -> usize {
    if bytes < PARALLEL { 1 } else { WORKERS_EACH * available_parallelism() }
}

/// Passes every record to the analysis, and from the redo start on to redo. Returns the oldest incarnation of the
/// latter. Each start is one more.
fn read_log(
    recovered: &Recovered,
    superblock: &SuperBlock,
    analysis: &mut Analysis,
    redo: &mut Redo<'_>,
    stats: &mut RecoveryStats,
    malformed: &dyn Fn(&'static str) -> Error,
) -> Result<Option<Incarnation>> {
    // With the planted defect that starts it where redo does, a transaction from before a checkpoint is forgotten.
    let is_late = mutant("sabotage: the analysis begins where redo does");
    let mut records = recovered.records(if is_late { superblock.redo_start } else { superblock.scan_start });
    let mut oldest = None;
    while let Some(record) = records.next() {
        let record = record?;
        let change = ChangeRecord::decode(&record.payload).map_err(malformed)?;
        stats.records += 1;
        stats.was_clean &= record.lsn <= superblock.checkpoint_lsn;
        let at = At { xid: Xid(record.tag), lsn: record.lsn, group: record.group };
        analysis.note(at, &change).map_err(malformed)?;
        if record.group < superblock.redo_start {
            // See the head of the file.
            stats.analysed += 1;
            continue;
        }
        oldest = oldest.or(Some(records.incarnation()));
        if !redo.redo(&record, &change, malformed)? {
            break;
        }
    }
    stats.log_bytes = records.bytes();
    Ok(oldest)
}

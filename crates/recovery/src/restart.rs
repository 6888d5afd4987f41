//! Restart: repeats history, then undoes uncommitted transactions.
//!
//! After ARIES (Mohan et al., 1992), with analysis and redo in one pass over the log. The superblock names two groups:
//! the scan start is before everything that analysis or redo needs, the redo start before everything that a page
//! needs. Groups between them are only analysed.
//!
//! **Redo by first touch.** While the log is read, changes are only collected, if there is memory for them. If there is
//! much to redo, the database opens then. Each page gets its changes when it is first read (`redo/pending.rs`). Threads
//! redo the rest meanwhile. Until no page waits, checkpoints leave the redo start where it is, so a crash leaves
//! what a crash in the middle of redo leaves. All is redone before the database opens if
//!
//! - there is little to redo, or there are no threads
//! - an earlier start has begun to redo the same log: restarts that crash must get on
//! - the changes did not fit in memory, and a page that was made anew went home below its stamp meanwhile
//!
//! Restart may itself be interrupted at any point and start over. Redo skips what a page already has. Compensations,
//! which are redone like any change, exclude the changes that they compensate from undo.
//!
//! **Why no page needs a record of a group before the redo start.** Let `R` be the redo start of the superblock in
//! use, and `r` a record of an earlier group that changed page `p`.
//!
//! 1. The checkpoint loaded the number of the next group, `begin`, before all else, and `R` is not above it. So `r`
//!    was appended before that load. `p` was marked dirty before `r` was appended, with a group at most that of `r`.
//! 2. The checkpoint then wrote pages, and took `R` as the least group that a page needed, be it dirty or waiting for
//!    its redo. A page that waits is marked dirty before it no longer does. `p` was not among these, otherwise `R`
//!    would not be above the group of `r`. So `p` had been written with `r` after it was marked, and is clean or was
//!    marked again for later records.
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
use crate::read_ahead::ReadAhead;
use crate::redo::{EagerRedo, OpenRedo, PendingRedo, WaitingRecord, without_clr};
use crate::stats::RecoveryStats;
use crate::unended::Unended;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Csn, Error, Incarnation, PageId, Place, Result, Xid};
use foreshore_buffer::Pool;
use foreshore_buffer::format::ChangeRecord;
use foreshore_space::SuperBlock;
use foreshore_sync::model::mutant;
use foreshore_sync::{Clock, SystemClock, available_parallelism, pause, spawn};
use foreshore_txn::{InDoubt, ResourceManager, Start};
use foreshore_wal::{Log, Recovered};
use std::path::Path;
use std::sync::Arc;

/// Share of the pool's memory for the changes of one stretch of log.
const STRETCH_SHARE: usize = 16;
/// Smallest stretch, in bytes: each costs a search for its beginning.
const MIN_STRETCH: usize = 16 << 10;

/// Redo threads for each processor before the database is open: some wait for reads. Afterwards there is one each, as
/// they share the processors with transactions.
const THREADS_EACH: usize = 2;
/// Bytes of log from which on redo has several threads, and goes on when the database is open. Less takes no longer
/// than to start them.
const PARALLEL: u64 = 1 << 20;

/// How a restart redoes pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedoOptions {
    /// Threads that redo pages before the database is open, the one that analyses the log among them; the others redo
    /// what waits when it is open. If there are several, one more reads the log. `None`: as many as pay.
    pub threads: Option<usize>,
    /// Whether redo may go on when the database is open.
    pub may_wait: bool,
    /// Bytes of log behind the redo start from which on it does; `None`: where it pays.
    pub waits_from: Option<u64>,
    /// Whether threads then redo what is not needed yet. Otherwise the first checkpoint does.
    pub has_threads: bool,
}

impl RedoOptions {
    /// Returns the threads that redo what waits beside the work of the database.
    fn threads_beside(&self) -> usize {
        self.threads.map_or_else(available_parallelism, |all| all.saturating_sub(1))
    }
}

/// The result of replay.
#[allow(missing_debug_implementations)]
pub struct Replayed {
    /// To be undone, once transactions and trees are wired, and the changes of those in doubt.
    pub unended: Unended,
    /// To be taken over, once transactions and trees are wired.
    pub in_doubt: Vec<InDoubt>,
    /// Where xids and commit stamps continue.
    pub start: Start,
    /// Pages that redo has met so far and that are quarantined, map pages among them.
    pub quarantined: Vec<PageId>,
    /// The redo that goes on when the database is open. Its threads are not started yet.
    pub redo: OpenRedo,
    /// Whether an earlier start has begun to redo the same log, and has ended before a checkpoint.
    pub is_repeated: bool,
    /// What has been done so far.
    pub stats: RecoveryStats,
}

/// Repeats history: restores torn pages, reads the log from where `superblock` says, and applies every change that its
/// page lacks, or has it wait for its page. `manager` redoes changes of pages.
///
/// # Errors
/// - `LostLog` or `Corrupted` if the log lacks what the superblock names
/// - `Corrupted` for a page that is ahead of the log, or for a damaged one that the database cannot do without
/// - `Io`, also for a page that cannot be read.
///
/// If redo goes on, errors of pages come from their reads, and stop the log.
pub fn replay(
    log_dir: &Path,
    log: &Log,
    recovered: &Recovered,
    superblock: &SuperBlock,
    pool: &Pool,
    manager: &Arc<dyn ResourceManager>,
    options: RedoOptions,
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
    let pending = PendingRedo::new(pool, log_dir, manager, (superblock.redo_start, recovered.end()));
    pool.set_redo(Arc::clone(&pending) as _);
    let threads = options.threads.unwrap_or_else(|| threads_for(stats.redo_bytes));
    let mut redo = EagerRedo::new(&pending, pool, threads, |body| spawn("foreshore-redo", body));
    let log = (recovered, reads_ahead(options.threads, stats.scanned_bytes));
    let read = read_log(log, superblock, (&mut analysis, &mut redo), &mut stats, &malformed);
    let is_repeated = matches!(read, Ok(Some(oldest)) if recovered.incarnation().0 > oldest.0 + 1)
        && !mutant("sabotage: starts that crash leave their pages to others");
    let waits_from = options.waits_from.unwrap_or(PARALLEL);
    let may_wait = options.may_wait && stats.redo_bytes >= waits_from && !is_repeated && read.is_ok();
    let waits = redo.finish(may_wait);
    // A record that could not be redone stands before one that could not be read.
    pending.check()?;
    read?;
    let quarantined = pending.quarantined(usize::MAX);
    stats.commits = analysis.commits;
    let outcome = analysis.finish().map_err(malformed)?;
    let Outcome { losers, in_doubt, prepared, stretches, ends, next_xid, .. } = outcome;
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
    pending.set_live();
    let beside = if waits && options.has_threads { options.threads_beside() } else { 0 };
    let redo = OpenRedo::new(&pending, pool, beside);
    let is_eager = is_repeated || !quarantined.is_empty();
    let unended = Unended::new(log_dir, stretches, (losers, prepared), ends, (superblock.scan_start, is_eager));
    Ok(Replayed { unended, in_doubt, start, quarantined, redo, is_repeated, stats })
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

/// Returns the threads for so many bytes of log.
fn threads_for(bytes: u64) -> usize {
    if bytes < PARALLEL { 1 } else { THREADS_EACH * available_parallelism() }
}

/// Whether a thread of its own reads so many bytes of log.
fn reads_ahead(threads: Option<usize>, bytes: u64) -> bool {
    threads.map_or(bytes >= PARALLEL, |threads| threads > 1)
}

/// Passes every record to the analysis, and from the redo start on to redo. Returns the oldest incarnation of the
/// latter. Each start is one more.
fn read_log(
    (recovered, may_spawn): (&Recovered, bool),
    superblock: &SuperBlock,
    (analysis, redo): (&mut Analysis, &mut EagerRedo<'_>),
    stats: &mut RecoveryStats,
    malformed: &dyn Fn(&'static str) -> Error,
) -> Result<Option<Incarnation>> {
    // With the planted defect that starts it where redo does, a transaction from before a checkpoint is forgotten.
    let is_late = mutant("sabotage: the analysis begins where redo does");
    let from = if is_late { superblock.redo_start } else { superblock.scan_start };
    let mut records = ReadAhead::new(recovered, from, may_spawn);
    let mut oldest = None;
    'log: while records.next()? {
        for record in records.records() {
            let change = ChangeRecord::decode(record.payload).map_err(malformed)?;
            stats.records += 1;
            stats.was_clean &= record.lsn <= superblock.checkpoint_lsn;
            let (xid, lsn, group, incarnation) = (Xid(record.tag), record.lsn, record.group, record.incarnation);
            let at = At { xid, lsn, group, incarnation };
            analysis.note(at, &change).map_err(malformed)?;
            if record.group < superblock.redo_start {
                // See the head of the file.
                stats.analysed += 1;
                continue;
            }
            oldest = oldest.or(Some(record.incarnation));
            // What is wrong with a compensation is found here.
            without_clr(&change).map_err(malformed)?;
            let (lsn, group, payload) = (record.lsn, record.group, record.payload);
            if !redo.add(&WaitingRecord { lsn, group, payload }, &change) {
                break 'log;
            }
        }
    }
    stats.log_bytes = records.read_bytes();
    Ok(oldest)
}

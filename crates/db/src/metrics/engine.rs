//! The metrics of the engine, by layer.

use super::exposition::Exposition;
use crate::Stats;
use foreshore_base::limits::PAGE_SIZE;
use std::time::Duration;

pub(super) fn all(out: &mut Exposition, stats: &Stats) {
    let info = [("version", env!("CARGO_PKG_VERSION")), ("backend", &*stats.backend)];
    out.family("info", "Always 1; the labels are the version of the engine and the storage in use.", [(info, true)]);
    transactions(out, stats);
    oldest(out, stats);
    waits(out, stats);
    log(out, stats);
    archive(out, stats);
    pages(out, stats);
    trees(out, stats);
    memory(out, stats);
    recovery(out, stats);
}

fn transactions(out: &mut Exposition, stats: &Stats) {
    let txn = &stats.txn;
    out.one("commits_total", "Transactions committed.", txn.commits);
    out.one("rollbacks_total", "Transactions rolled back.", txn.aborts);
    out.one("rollbacks_parked", "Rollbacks that wait for free space, or for a restart.", txn.parked);
    out.one("transactions_prepared", "Prepared transactions that wait for a decision.", stats.prepared);
    out.one("sessions", "Sessions created. They are reused.", txn.sessions);
    out.one("status_words", "Transactions that have a word in the status window.", txn.status_used);
    out.one("status_words_pinned", "Those that run since half a window ago.", txn.status_pinned);
    out.one("status_words_limit", "Words of the status window.", txn.status_capacity);
    out.one("undo_spilled_bytes", "Undo in its temporary file.", txn.undo_spilled_bytes);
    out.one("undo_fetches_total", "Chunks of undo that were read back from there.", txn.undo_fetches);
    out.one("versions_pruned_total", "Old versions removed from inside a version chain.", txn.versions_pruned);
    out.one("snapshots_cancelled_total", "Snapshots cancelled for age or size.", txn.snapshots_cancelled);
    out.one("held_tables", "Dropped tables whose pages are kept.", stats.held_tables);
    let held: Vec<_> = stats.held.iter().map(|held| (held.table.0.to_string(), held)).collect();
    let rows = held.iter().map(|(id, held)| (id.as_str(), held.rows));
    out.by("held_rows", "Rows of leaves with deleted rows that are kept for snapshots.", "table_id", rows);
    let leaves = held.iter().map(|(id, held)| (id.as_str(), held.leaves));
    out.by("held_leaves", "Leaves with deleted rows that are kept for snapshots.", "table_id", leaves);
}

fn oldest(out: &mut Exposition, stats: &Stats) {
    if let Some(oldest) = &stats.oldest_transaction {
        let mut one = |name, help, number: u64| out.by(name, help, "label", [(oldest.label, number)]);
        one("oldest_transaction_log_bytes", "Log kept for the oldest transaction, about.", oldest.log_bytes);
        one("oldest_transaction_versions", "Row versions kept for its rollback.", oldest.versions);
        let age = [(oldest.label, oldest.age)];
        out.by("oldest_transaction_age_seconds", "The time that the oldest transaction has run.", "label", age);
    }
    if let Some(oldest) = &stats.oldest_snapshot {
        let (age, bytes) = ([(oldest.label, oldest.age)], [(oldest.label, oldest.bytes)]);
        out.by("oldest_snapshot_age_seconds", "The time that the oldest snapshot has been in use.", "label", age);
        out.by("oldest_snapshot_bytes", "Memory and pages that its end frees, about.", "label", bytes);
    }
}

fn waits(out: &mut Exposition, stats: &Stats) {
    let classes =
        [("lock", stats.lock.waits), ("eviction", stats.pool.evictions_inline), ("growth", stats.space.growths_inline)];
    let help = "Waits by class: for a lock, for the eviction of a page, for a growth of the data file.";
    out.by("waits_total", help, "class", classes);
    out.one("durability_yields_total", "Yields of the processor in waits for durability.", stats.log.yields);
    out.one("deadlocks_total", "Waits for locks that were refused to break a deadlock.", stats.lock.deadlocks);
    out.one("lock_timeouts_total", "Waits for locks that reached their timeout.", stats.lock.timeouts);
    let slowed = Duration::from_nanos(stats.log.slowed_nanos);
    out.one(
        "log_slowed_seconds_total",
        "The time that writers were slowed down to keep the log in its budget.",
        slowed,
    );
}

fn log(out: &mut Exposition, stats: &Stats) {
    let log = &stats.log;
    out.one("log_records_total", "Log records appended; each fragment counts.", log.records);
    out.one("log_record_bytes_total", "Log records appended, in bytes.", log.record_bytes);
    out.one("log_groups_total", "Groups of log written.", log.groups);
    out.one("log_bytes_total", "Groups of log written, in bytes.", log.group_bytes);
    out.one("log_writes_total", "Durable writes of groups.", log.writes);
    out.one("log_segments_created_total", "Files of the log created.", log.segments_made);
    out.one("log_segments_reused_total", "Files of the log reused.", log.segments_recycled);
    out.one("log_retained_bytes", "Log kept for restart, or for the archive.", stats.log_retained_bytes);
    out.one("log_tickets_watched", "Tickets of commits with a waiting future or callback.", log.watchers);
    out.one("log_callback_panics_total", "Callbacks and wakers of tickets that panicked.", log.callback_panics);
    let checkpoint = &stats.checkpoint;
    out.one("checkpoints_total", "Checkpoints completed.", checkpoint.checkpoints);
    out.one("checkpoint_failures_total", "Checkpoints that failed.", checkpoint.failures);
    out.one("log_redo_bytes", "Log that a restart would redo now.", checkpoint.redo_log_bytes);
    out.one("log_budget_bytes", "The log budget in effect.", checkpoint.budget);
    let kept = [("pages", checkpoint.page_log_bytes), ("transactions", checkpoint.transaction_log_bytes)];
    let help = "Log since the redo start, for pages that are not home; and earlier log, kept for transactions alone.";
    out.by("checkpoint_log_bytes", help, "kept_for", kept);
}

fn archive(out: &mut Exposition, stats: &Stats) {
    let Some(archive) = &stats.archive else { return };
    out.one(
        "archive_failing",
        "1 if the last write to the archive failed, otherwise 0.",
        stats.archive_failure.is_some(),
    );
    out.one("archive_files", "Files in the archive of the log.", archive.files);
    out.one("archive_bytes", "Bytes of these files.", archive.bytes);
    out.one("archive_behind_bytes", "Log that is not archived yet.", archive.behind_bytes);
    out.one("archive_files_written_total", "Files written to the archive.", archive.written_files);
    out.one("archive_failures_total", "Writes to the archive that failed.", archive.failures);
    out.one(
        "archive_groups_lost_total",
        "Groups of log that were reused before they were archived.",
        archive.lost_groups,
    );
    out.one("archive_files_unsound", "Files that the last open found damaged or unreadable.", archive.unsound_files);
    out.one("archive_files_dropped_total", "Files removed to keep the limit of the archive.", archive.dropped_files);
}

fn pages(out: &mut Exposition, stats: &Stats) {
    let (pool, space) = (&stats.pool, &stats.space);
    out.one("pool_frames", "Frames of the buffer pool.", pool.frames);
    out.one("pool_frames_free", "Frames that hold no page.", pool.frames_free);
    out.one("pool_dirty_pages", "Pages in frames that differ from the data file.", pool.pages_dirty);
    out.one("pool_misses_total", "Uses of a page that was in no frame, and read-aheads.", pool.misses);
    out.one("pages_read_total", "Pages read from the data file.", pool.pages_read);
    out.one("pages_read_ahead_total", "Pages read ahead of need.", pool.pages_ahead);
    out.one("pages_written_total", "Pages written, at home and to the doublewrite file.", pool.pages_written);
    out.one("evictions_total", "Pages evicted from their frames.", pool.evictions);
    out.one("page_batches_total", "Batches of pages written home.", pool.batches);
    out.one("doublewrite_batches_total", "Batches that went through the doublewrite file.", pool.doublewrite_batches);
    out.one("data_syncs_total", "Syncs of the data file.", pool.data_syncs);
    out.one("stamps_new", "1 if the open has made the file of stamps anew, otherwise 0.", pool.stamps.is_new);
    out.one("stamps_dropped_total", "Writes of pages that got no stamp for want of memory.", pool.stamps.dropped);
    out.one("stamp_failures_total", "Operations on the file of stamps that failed.", pool.stamps.failures);
    let bytes = |pages: u64| pages * PAGE_SIZE as u64;
    let states = [("used", bytes(space.used_pages)), ("free", bytes(space.free_pages))];
    out.by("data_file_bytes", "The data file by use.", "state", states);
    out.one("data_file_growths_total", "Growths of the data file.", space.growths);
    out.one("data_file_cuts_total", "Cuts of the end of the data file.", space.cuts);
    out.one("damaged_pages", "Known damaged pages.", stats.damage.pages);
}

fn trees(out: &mut Exposition, stats: &Stats) {
    let tree = &stats.tree;
    let kinds = [
        ("leaf_split", tree.leaf_splits),
        ("contention_split", tree.contention_splits),
        ("inner_split", tree.inner_splits),
        ("root_split", tree.root_splits),
        ("leaf_load", tree.loaded_leaves),
        ("purge", tree.purges),
        ("merge", tree.merges),
        ("shift", tree.shifts),
        ("collapse", tree.collapses),
        ("move", tree.moves),
    ];
    out.by("tree_changes_total", "Changes of the structure of trees, by kind.", "kind", kinds);
    out.one("tree_read_restarts_total", "Reads of nodes repeated because the node changed.", tree.restarts);
    out.one("large_values_written_total", "Large values whose pages were written.", tree.chains_built);
    out.one("large_values_freed_total", "Large values whose pages were freed.", tree.chains_freed);
}

fn memory(out: &mut Exposition, stats: &Stats) {
    let (share, used) = (&stats.memory, &stats.memory_use);
    out.one("memory_limit_bytes", "The memory limit.", share.limit);
    let shares = [
        ("log", share.log_buffer),
        ("staging", share.staging),
        ("undo", share.undo),
        ("status", share.status),
        ("locks", share.locks),
        ("pool", share.pool),
    ];
    out.by("memory_share_bytes", "Shares of the memory limit.", "share", shares);
    let used =
        [("log", used.log), ("undo", used.undo), ("status", used.status), ("locks", used.locks), ("pool", used.pool)];
    out.by("memory_used_bytes", "The part of each share that is in use.", "share", used);
}

fn recovery(out: &mut Exposition, stats: &Stats) {
    let recovery = &stats.recovery;
    out.one("recovery_clean", "1 if the database had been closed when it was opened, otherwise 0.", recovery.was_clean);
    out.one("recovery_records", "Log records that the open read.", recovery.records);
    out.one("recovery_redone", "Changes of pages applied again since the open began.", recovery.redone);
    out.one("recovery_pending_pages", "Pages whose redo waits until they are read.", recovery.pending_pages);
    out.one("recovery_pending_bytes", "Memory of the changes that wait for these pages.", recovery.pending_bytes);
    out.one("recovery_undone", "Changes undone since the open began.", recovery.undone);
    out.one("recovery_losers", "Transactions that had not committed before the open.", recovery.losers);
    out.one("recovery_pending_losers", "Those of them that are still undone.", recovery.pending_losers);
    out.one("recovery_restored_pages", "Torn pages that the open restored.", recovery.restored);
    out.one("recovery_log_bytes", "Log that the open read.", recovery.log_bytes);
    out.one(
        "recovery_redo_seconds",
        "Time of the open for analysis, and for the redo that did not wait.",
        recovery.redo_time,
    );
    out.one("recovery_undo_seconds", "Time of undo, before the open and after it.", recovery.undo_time);
    out.one("recovery_open_seconds", "Time of the open until transactions could begin.", recovery.open_time);
}

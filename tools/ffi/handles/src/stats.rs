//! Counters of a database as JSON.

use foreshore::Stats;
use std::fmt::Write;

/// Writes one object of numbers.
macro_rules! object {
    ($out:ident, $name:literal, $from:expr, $($field:ident),+) => {
        let _ = write!($out, "{}\"{}\":{{", if $out.len() > 1 { "," } else { "" }, $name);
        let from = &$from;
        let fields = [$((stringify!($field), u64::try_from(from.$field).unwrap_or(u64::MAX))),+];
        for (at, (name, value)) in fields.into_iter().enumerate() {
            let _ = write!($out, "{}\"{name}\":{value}", if at > 0 { "," } else { "" });
        }
        $out.push('}');
    };
}

/// Returns the counters as a JSON object of objects of numbers, by layer, with the names of the Rust library. `backend`
/// and `page_writes` are texts: how the files are written.
#[must_use]
pub fn stats_json(stats: &Stats) -> String {
    let mut out = String::from("{");
    object!(out, "txn", stats.txn, commits, aborts, parked, sessions, undo_bytes, snapshots_cancelled);
    object!(out, "lock", stats.lock, waits, deadlocks, timeouts);
    object!(out, "log", stats.log, records, record_bytes, groups, group_bytes, writes, watchers, callback_panics);
    object!(out, "pool", stats.pool, frames, frames_free, pages_dirty, misses, pages_read, pages_written, evictions);
    object!(out, "space", stats.space, file_pages, used_pages, free_pages);
    object!(out, "checkpoint", stats.checkpoint, checkpoints, failures, budget);
    object!(out, "damage", stats.damage, pages);
    object!(out, "memory", stats.memory, limit, log_buffer, staging, undo, status, locks, pool);
    let _ = write!(out, ",\"log_retained_bytes\":{},\"prepared\":{}", stats.log_retained_bytes, stats.prepared);
    let _ = write!(out, ",\"backend\":\"{}\",\"page_writes\":\"{}\"", stats.backend, stats.pool.page_writes);
    out.push('}');
    out
}

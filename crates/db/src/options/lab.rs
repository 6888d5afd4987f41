//! Options for the lab, the simulator and tests only.

use foreshore_buffer::replacement::MakeReplacementPolicy;
use foreshore_io::Fs;
use foreshore_space::Growth;
use foreshore_sync::Nanos;
use foreshore_txn::{MakeStatusTable, PrecommitRelease};
use foreshore_wal::{GroupSource, log_buffer::MakeLogBuffer};
use std::sync::Arc;

/// Replacements for parts of the engine, and sizes and switches that only experiments and tests change. Not a stable
/// interface.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// The file system; `None`: the one that [`Options::device`](crate::Options::device) selects.
    pub fs: Option<Arc<dyn Fs>>,
    /// Size of a log segment in bytes: a power of two from 64 KiB to 1 GiB.
    pub segment_bytes: u64,
    /// Maker of the log buffer; `None`: the engine's own.
    pub log_buffer: Option<Arc<dyn MakeLogBuffer>>,
    /// Group policy, in place of [`Options::group`](crate::Options::group).
    pub group: Option<GroupSource>,
    /// Maker of the replacement policy of the buffer pool; `None`: the engine's own.
    pub replacement: Option<Arc<dyn MakeReplacementPolicy>>,
    /// Whether a miss also loads the neighbours of its page.
    pub read_around: bool,
    /// Makes commits hold their locks until they are durable. The function is called at pre-commit and may release some
    /// locks earlier. `None`: all locks are released at pre-commit.
    pub hold_until_durable: Option<PrecommitRelease>,
    /// Maker of a transaction status table that is looked up in addition to the status window, to measure its cost.
    pub status: Option<Arc<dyn MakeStatusTable>>,
    /// Whether intent locks are entered in words of the transaction's own slot. If false, all go to the lock table.
    pub fast_intents: bool,
    /// How the data file grows.
    pub growth: Growth,
    /// Bytes of memory for undo, from 64 KiB to a quarter of the memory limit; `None`: an eighth of the memory limit.
    pub undo_limit: Option<u64>,
    /// The clock for the timestamps of log groups; it returns the time since 1970. `None`: the system clock.
    pub wall_clock: Option<fn() -> Nanos>,
    /// Whether profiling is on when the database opens. See [`Db::set_profiling`](crate::Db::set_profiling).
    pub profile: bool,
    /// Number of threads that redo the log at open; 1: the opening thread itself. The others also redo what waits when
    /// the database is open. `None`: two for each processor, or 1 for a short log or without background threads.
    pub redo_workers: Option<usize>,
    /// Bytes of log to redo from which on pages are redone when they are first read. `None`: where it pays, and never
    /// without background threads.
    pub redo_waits_from: Option<u64>,
    /// Changes of losers from which on they are undone beside new transactions. `None`: where it pays, and never
    /// without background threads.
    pub undo_waits_from: Option<u64>,
    /// Whether threads do the background work. If false, the caller runs it by [`Db::step`](crate::Db::step), and the
    /// engine's group commit is greedy.
    pub background: bool,
    /// Seed of the order in which [`Db::step`](crate::Db::step) runs background work, and of the pauses before retries.
    pub step_seed: u64,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            fs: None,
            segment_bytes: 16 << 20,
            log_buffer: None,
            group: None,
            replacement: None,
            read_around: true,
            hold_until_durable: None,
            status: None,
            fast_intents: true,
            growth: Growth::AHEAD,
            undo_limit: None,
            wall_clock: None,
            profile: false,
            redo_workers: None,
            redo_waits_from: None,
            undo_waits_from: None,
            background: true,
            step_seed: 1,
        }
    }
}

//! Options for the lab, the simulator and tests only.

use foreshore_buffer::replacement::MakeReplacementPolicy;
use foreshore_io::Fs;
use foreshore_space::Growth;
use foreshore_sync::Nanos;
use foreshore_txn::{MakeStatusTable, PrecommitRelease};
use foreshore_wal::{GroupSource, log_buffer::MakeLogBuffer};
use std::sync::Arc;

/// Parts plugged in instead of the engine's own, and sizes and switches that a user cannot judge. No promise of
/// stability.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// The file system; `None`: the operating system's.
    pub fs: Option<Arc<dyn Fs>>,
    /// Bytes of a log segment: a power of two from 64 KiB to 1 GiB.
    pub segment_bytes: u64,
    /// Maker of the log buffer; `None`: the engine's own.
    pub log_buffer: Option<Arc<dyn MakeLogBuffer>>,
    /// Group policy, in place of [`Options::group`](crate::Options::group).
    pub group: Option<GroupSource>,
    /// Maker of the replacement policy of the buffer pool; `None`: the engine's own.
    pub replacement: Option<Arc<dyn MakeReplacementPolicy>>,
    /// Makes commits hold locks until they are durable, except those that the function releases at pre-commit.
    pub hold_until_durable: Option<PrecommitRelease>,
    /// A status table that is consulted besides the status window.
    pub status: Option<Arc<dyn MakeStatusTable>>,
    /// Whether intents on tables are entered in words of the session. If not, all go to the lock table.
    pub fast_intents: bool,
    /// How the data file grows.
    pub growth: Growth,
    /// Bytes of memory for undo, from 64 KiB to a quarter of the memory limit; `None`: an eighth of that.
    pub undo_limit: Option<u64>,
    /// The clock that log groups are stamped with, time since 1970; `None`: the system's.
    pub wall_clock: Option<fn() -> Nanos>,
    /// Profiling is on from the start: see [`Db::set_profiling`](crate::Db::set_profiling).
    pub profile: bool,
    /// Threads that redo the log when the database is opened; 1: the thread that opens it, `None`: as many as pay.
    pub redo_workers: Option<usize>,
    /// Threads do the background work. Without them the owner calls [`Db::step`](crate::Db::step).
    pub background: bool,
    /// Seed of the order in which [`Db::step`](crate::Db::step) takes up background work.
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
            hold_until_durable: None,
            status: None,
            fast_intents: true,
            growth: Growth::AHEAD,
            undo_limit: None,
            wall_clock: None,
            profile: false,
            redo_workers: None,
            background: true,
            step_seed: 1,
        }
    }
}

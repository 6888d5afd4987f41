//! Where the time of the workers went.

use foreshore::TimeSplit;
use serde::Serialize;
use std::time::Duration;

/// Where the time of the workers went, in fractions of threads x wall time that sum to 1. The estimate uses the
/// transactions that the engine measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Breakdown {
    /// Transactions at work, the workload's own part included.
    pub work: f64,
    /// Putting records into the log buffer.
    pub log_insert: f64,
    /// Waiting for durability, or for room in the log.
    pub log_wait: f64,
    /// Waiting for locks.
    pub lock_wait: f64,
    /// Waiting for latches of pages.
    pub latch_wait: f64,
    /// Reading and writing pages.
    pub io: f64,
    /// Transactions that were run again.
    pub retry: f64,
    /// The rest: between transactions, and without a processor.
    pub idle: f64,
}

impl Breakdown {
    /// Computes the fractions for `threads` that were watched for `window`. `split` comes from one in `one_in`
    /// transactions. `tickets` is the time of waits for tickets, over all of them.
    pub(crate) fn new(split: TimeSplit, one_in: u32, tickets: Duration, window: Duration, threads: usize) -> Self {
        let whole = window.as_secs_f64() * threads as f64;
        let of = |time: Duration| time.as_secs_f64() * f64::from(one_in) / whole;
        let log_wait = of(split.log_wait) + tickets.as_secs_f64() / whole;
        let parts = [
            of(split.work + split.caller),
            of(split.log_insert),
            log_wait,
            of(split.lock_wait),
            of(split.latch_wait),
            of(split.io),
            of(split.retry),
        ];
        // An estimate may come out a little above the whole.
        let sum: f64 = parts.iter().sum();
        let [work, log_insert, log_wait, lock_wait, latch_wait, io, retry] = parts.map(|part| part / sum.max(1.0));
        Self { work, log_insert, log_wait, lock_wait, latch_wait, io, retry, idle: (1.0 - sum).max(0.0) }
    }
}

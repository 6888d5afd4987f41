//! Counts the read-modify-writes of operations by stepping through another process, one instruction at a time.
//!
//! A read-modify-write is an instruction with the prefix `lock`, or an `xchg` with memory. It is contended if
//! two threads write its cache line of 64 bytes while the operations run, by whatever instruction. Such a line
//! moves between caches, which stops an operation from scaling. On a machine with few processors its time
//! cannot be measured, but the instructions can be counted. Nothing is left out: reference counts, locks of the
//! standard library and of libc are instructions too.
//!
//! | module | holds |
//! |---|---|
//! | `turns` | the stepped process: workers that run their operations by turns |
//! | `tracer` | the stepping: threads, turns, waits |
//! | `decoder` | what an instruction writes |
//! | `tally` | which thread wrote which line |
//! | `symbols` | functions by address |
//!
//! The stepped process loads and warms up at full speed. Then its workers run one operation each, by turns, and
//! only the worker whose turn it is runs. A worker never waits for another one, and no spinning is counted.
//! Background threads run when a worker waits for them, and after each [`Plan::background_every`] rounds. That
//! models a device at full speed, which answers many transactions at once. Background threads are stepped too.
//! A line that one of them and a worker write is contended, but the read-modify-writes of background threads
//! are not counted.
//!
//! Only Linux on x86-64 is supported. Other systems, and those that forbid `ptrace`, give an error.

mod turns;

pub(crate) use turns::{Operations, by_turns};

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod decoder;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod symbols;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tally;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracer;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use tracer::count;

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests;

use serde::Serialize;

/// How many operations are counted, and when background threads run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Operations of each worker at most.
    pub rounds: u64,
    /// Rounds after which the background threads run.
    pub background_every: u64,
    /// Instructions at most; the round in which they are reached is the last one.
    pub instructions: u64,
}

impl Default for Plan {
    /// As many rounds between background threads as a pipelined worker has transactions in flight.
    fn default() -> Self {
        Self { rounds: 128, background_every: 64, instructions: 2_000_000 }
    }
}

/// What the operations of all workers did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Operations.
    pub operations: u64,
    /// Their instructions.
    pub instructions: u64,
    /// Their read-modify-writes.
    pub rmw: u64,
    /// Of those, the ones of lines that two threads wrote.
    pub contended: u64,
    /// The instructions with contended read-modify-writes, most frequent first.
    pub sites: Vec<Site>,
}

/// An instruction that did contended read-modify-writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Site {
    /// The function, or the mapped file if it has no symbols.
    pub function: String,
    /// Its place in the file, for tools such as `addr2line`.
    pub offset: u64,
    /// Contended read-modify-writes of an operation.
    pub contended_rmw_per_txn: f64,
}

/// Refuses: this system is not supported.
///
/// # Errors
/// `InvalidOption`, always.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub fn count(_: &mut std::process::Command, _: Plan) -> foreshore::Result<Counts> {
    Err(crate::units::invalid("count-rmw", "true", "Linux on x86-64, whose instructions are decoded"))
}

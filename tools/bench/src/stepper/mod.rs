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
//! | `counts` | what is asked for, and the result |
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

mod counts;

pub(crate) use counts::Operations;
pub use counts::{Counts, Plan, Site};

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod decoder;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod symbols;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tally;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracer;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod turns;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use tracer::count;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use turns::by_turns;

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests;

/// Refuses: this system is not supported.
///
/// # Errors
/// `InvalidOption`, always.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub fn count(_: &mut std::process::Command, _: Plan) -> foreshore::Result<Counts> {
    Err(unsupported())
}

/// Refuses: no tracer gives turns on this system.
///
/// # Errors
/// `InvalidOption`, always.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) fn by_turns(_: Vec<Operations<'_>>, _: std::time::Duration) -> foreshore::Result<()> {
    Err(unsupported())
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn unsupported() -> foreshore::Error {
    crate::units::invalid("count-rmw", "true", "Linux on x86-64, whose instructions are decoded")
}

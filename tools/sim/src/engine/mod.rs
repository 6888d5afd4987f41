//! The whole engine, with its threads, under a seeded scheduler on a simulated disk.
//!
//! A seed decides the options, the workload, the faults and every switch of threads, so it gives the same run each
//! time. A run is some lives of one database:
//!
//! 1. It opens with options drawn anew. Power may be lost in that recovery, or soon behind it beside commits, when
//!    pages still wait for their redo, up to three times in a row.
//! 2. What it holds is compared with what the lives before have left ([`check::check_recovered`]).
//! 3. Sessions run transactions beside the engine's own threads, until they are through or a fault has stopped the
//!    database.
//! 4. What they were told is checked ([`check::check`]), and memory against its limits.
//! 5. No number of a table's sequence is handed out twice in a run, and what is restored hands out none that has a row.
//! 6. Some lives make a backup, full or incremental, and some runs have an archive. What is restored from them is
//!    compared, too.
//! 7. It is closed, or stopped and opened again, or power is lost.
//!
//! A run that gets stuck is stopped by the scheduler, which says what each thread waits for.

pub mod check;
pub mod history;
pub mod part;
#[cfg(foreshore_sim)]
mod rows;

#[cfg(foreshore_sim)]
mod combine;
#[cfg(foreshore_sim)]
mod copies;
#[cfg(foreshore_sim)]
mod device;
#[cfg(foreshore_sim)]
mod inspect;
#[cfg(foreshore_sim)]
mod life;
#[cfg(foreshore_sim)]
mod load;
#[cfg(foreshore_sim)]
mod numbers;
#[cfg(foreshore_sim)]
mod plan;
#[cfg(foreshore_sim)]
mod report;
#[cfg(foreshore_sim)]
mod run;
#[cfg(foreshore_sim)]
mod sequence;
#[cfg(foreshore_sim)]
mod session;
#[cfg(foreshore_sim)]
mod shared;
#[cfg(foreshore_sim)]
mod tables;
#[cfg(foreshore_sim)]
mod visit;
#[cfg(foreshore_sim)]
mod work;

#[cfg(foreshore_sim)]
pub use report::Report;
#[cfg(foreshore_sim)]
pub use run::{Failure, Wanted, run};

//! Events for the crate `tracing`, with the feature of that name. Without it these functions are empty.
//!
//! Every event has the target `foreshore`. No event is made under a latch. Those of a checkpoint and of a close are
//! made under a mutex, so subscribers must not call the database.

#![cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "without the feature nothing is said"))]

use crate::Error;
use foreshore_base::{Csn, Error as Storage};
use foreshore_recovery::RecoveryStats;
use std::fmt::Debug;
use std::path::Path;

/// The name of all events, for filters of subscribers.
#[cfg(feature = "tracing")]
const TARGET: &str = "foreshore";

#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $($event:tt)+) => { tracing::$level!(target: TARGET, $($event)+) };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $($event:tt)+) => {
        ()
    };
}

/// A database was opened.
pub(crate) fn opened(dir: &Path, restart: &RecoveryStats) {
    event!(
        info,
        dir = %dir.display(),
        was_clean = restart.was_clean,
        records = restart.records,
        redone = restart.redone,
        pending_pages = restart.pending_pages,
        losers = restart.losers,
        undone = restart.undone,
        prepared = restart.prepared,
        parked = restart.parked,
        quarantined = restart.quarantined,
        "opened"
    );
}

/// A database was closed, or its close failed.
pub(crate) fn closed(dir: &Path, result: &Result<(), Storage>) {
    match result {
        Ok(()) => event!(info, dir = %dir.display(), "closed"),
        Err(error) => event!(error, dir = %dir.display(), error = %Error::from(error.clone()), "closing failed"),
    }
}

/// The log has stopped: no transaction commits until the database is opened again.
pub(crate) fn stopped(cause: &Error) {
    event!(error, error = %cause, "stopped");
}

/// A transaction has committed. `csn` is its number; durability may follow.
#[inline]
pub(crate) fn committed(label: &str, csn: Csn) {
    event!(trace, label, csn = csn.0, "committed");
}

/// A transaction was rolled back, or its rollback is parked or failed.
#[inline]
pub(crate) fn rolled_back<T>(label: &str, result: &Result<T, Storage>) {
    match result {
        Ok(_) => event!(trace, label, "rolled back"),
        Err(error) => event!(warn, label, error = %Error::from(error.clone()), "a rollback did not end"),
    }
}

/// A closure runs again. `runs` is the number of runs that have ended.
pub(crate) fn runs_again(label: &str, runs: u32, cause: &Error) {
    event!(debug, label, runs, error = %cause, "runs again");
}

/// A closure is not run again, though its last run could be.
pub(crate) fn given_up(label: &str, runs: u32, cause: &Error) {
    event!(warn, label, runs, error = %cause, "given up");
}

/// An idle transaction was rolled back because of its age.
pub(crate) fn too_old(label: &str) {
    event!(warn, label, "ended for its age");
}

/// A damaged page was met for the first time.
pub(crate) fn damaged(error: &Error) {
    event!(error, %error, "damaged");
}

/// A long piece of work has ended: a backup, a compaction, a vacuum.
pub(crate) fn ended<T: Debug, E: std::fmt::Display>(work: &str, result: &Result<T, E>) {
    match result {
        Ok(done) => event!(info, work, ?done, "ended"),
        Err(error) => event!(warn, work, %error, "failed"),
    }
}

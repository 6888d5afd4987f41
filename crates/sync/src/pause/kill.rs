//! Points at which the process kills itself, in builds with `--cfg foreshore_kill`. Each pass of a point is counted,
//! and the n-th pass of the chosen one ends the process by SIGKILL.

use rustix::process::{Signal, getpid, kill_process};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The chosen point, and the pass of it that kills.
static CHOSEN: OnceLock<(String, u64)> = OnceLock::new();
/// Passes of each point so far.
static PASSES: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Makes the process kill itself at pass `pass` of the point `name`, counted from 1. Returns false if a point is
/// chosen already.
pub fn kill_at(name: String, pass: u64) -> bool {
    CHOSEN.set((name, pass)).is_ok()
}

/// Returns how often each point was passed so far.
#[must_use]
pub fn passes() -> BTreeMap<&'static str, u64> {
    PASSES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

pub(super) fn pass(name: &'static str) {
    let mut passes = PASSES.lock().unwrap_or_else(PoisonError::into_inner);
    let count = passes.entry(name).or_default();
    *count += 1;
    if CHOSEN.get().is_some_and(|(chosen, pass)| chosen == name && *count == *pass) {
        while kill_process(getpid(), Signal::KILL).is_ok() {
            // WAIT: park - the signal ends the process, at the latest when this thread is scheduled again.
            std::thread::sleep(Duration::from_secs(1));
        }
        std::process::abort();
    }
}

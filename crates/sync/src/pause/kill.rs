//! The point at which the process kills itself, in builds with debug assertions. Its passes are counted, and the n-th
//! ends the process by SIGKILL.

use rustix::process::{Signal, getpid, kill_process};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A chosen point.
struct Chosen {
    name: String,
    /// The pass that kills, counted from 1.
    fatal: u64,
    /// Passes so far.
    passes: Mutex<u64>,
}

/// What the process has chosen, if anything.
static CHOSEN: OnceLock<Chosen> = OnceLock::new();

/// Makes the process kill itself at pass `fatal` of the point `name`, counted from 1. Returns false if a point is
/// chosen already.
pub fn kill_at(name: String, fatal: u64) -> bool {
    CHOSEN.set(Chosen { name, fatal, passes: Mutex::new(0) }).is_ok()
}

/// Returns how often the chosen point was passed so far.
#[must_use]
pub fn passes() -> u64 {
    CHOSEN.get().map_or(0, |chosen| *chosen.passes.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn pass(name: &'static str) {
    let Some(chosen) = CHOSEN.get().filter(|chosen| chosen.name == name) else { return };
    let mut passes = chosen.passes.lock().unwrap_or_else(PoisonError::into_inner);
    *passes += 1;
    if *passes == chosen.fatal {
        while kill_process(getpid(), Signal::KILL).is_ok() {
            // WAIT: park - the signal ends the process, at the latest when this thread is scheduled again.
            std::thread::sleep(Duration::from_secs(1));
        }
        std::process::abort();
    }
}

//! Ctrl-C while a line of the shell runs: the first ends the verb at its next line of output, a second ends the shell.

use crate::exit::Failure;
use signal_hook::{consts::SIGINT, flag};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

/// The exit status of a shell that a second Ctrl-C ended.
const EXIT_STATUS: i32 = 130;

/// Whether Ctrl-C was pressed since the last `clear`.
static IS_PRESSED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Sets the handlers, for the rest of the process.
pub(crate) fn install() -> Result<(), Failure> {
    // The first handler looks at the flag before the second sets it.
    flag::register_conditional_shutdown(SIGINT, EXIT_STATUS, Arc::clone(&IS_PRESSED))
        .and_then(|_| flag::register(SIGINT, Arc::clone(&IS_PRESSED)))
        .map_err(|error| Failure::Failed(foreshore::Error::io("handle", "Ctrl-C", error)))?;
    Ok(())
}

/// Forgets an earlier Ctrl-C.
pub(crate) fn clear() {
    // ORDERING: relaxed, the flag guards no other data.
    IS_PRESSED.store(false, Ordering::Relaxed);
}

/// Fails if Ctrl-C was pressed since the last `clear`.
pub(crate) fn check() -> Result<(), Failure> {
    // ORDERING: relaxed, as in `clear`.
    if IS_PRESSED.load(Ordering::Relaxed) { Err(Failure::Interrupted) } else { Ok(()) }
}

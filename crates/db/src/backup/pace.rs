//! The pace of a backup, which is that of [`foreshore_wal::Pace`].
//!
//! The long steps of a backup call [`Pace::rest`]. The checkpoint does so after each batch of pages. The copy of the
//! pages does so before each run, and the copy of the log before each group. The log that grows meanwhile is copied
//! too.

use crate::engine::Engine;
use foreshore_base::Result;
use foreshore_sync::{Clock, Parker, SystemClock, pause};
use std::time::Duration;

/// How long a rest lasts until it is asked again whether the backup goes on.
const LOOK: Duration = Duration::from_millis(100);

/// The pace of one backup.
pub(super) struct Pace<'e> {
    slices: foreshore_wal::Pace<'e>,
    clock: SystemClock,
    has_threads: bool,
}

impl<'e> Pace<'e> {
    pub(super) fn new(engine: &'e Engine) -> Self {
        let (slices, has_threads) = (engine.storage.log().pace(), engine.purger.has_threads());
        Self { slices, clock: SystemClock::new(), has_threads }
    }

    /// Rests if it is time to. Fails if `go_on` does, also meanwhile.
    pub(super) fn rest(&self, go_on: impl Fn() -> Result<()>) -> Result<()> {
        go_on()?;
        let Some(rest) = self.slices.rest() else { return Ok(()) };
        // Without threads nothing depends on time.
        if !rest.is_zero() && self.has_threads {
            pause::point("backup: a rest begins");
            let until = self.clock.now() + rest;
            loop {
                let left = until.since(self.clock.now());
                if left.is_zero() {
                    break;
                }
                // WAIT: park - for the time alone, with nothing held. An unpark for an earlier wait ends a look.
                Parker::current().park_timeout(left.min(LOOK));
                go_on()?;
            }
        }
        self.slices.begin();
        Ok(())
    }
}

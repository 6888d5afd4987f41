//! Background work on the data file.

use crate::engine::Engine;
use foreshore_base::Error;
use foreshore_sync::{NextWake, Step};
use std::sync::Weak;
use std::time::Duration;

/// After how long what could not be done is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// The step that grows the file, and frees the pages of dropped tables when that is done. It does not keep the engine alive.
pub(crate) struct Upkeep(pub(crate) Weak<Engine>);

impl Step for Upkeep {
    fn step(&self) -> NextWake {
        let Some(engine) = self.0.upgrade() else { return NextWake::OnSignal };
        let grown = engine.space.extend_step();
        if grown == NextWake::Now {
            return grown;
        }
        match engine.reclaim_some() {
            Ok(true) => NextWake::Now,
            Ok(false) | Err(Error::Closed | Error::Poisoned { .. }) => grown,
            // A check goes on in the table, all sessions are in use, the disk is full.
            Err(_) => match grown {
                NextWake::After(pause) => NextWake::After(pause.min(RETRY)),
                _ => NextWake::After(RETRY),
            },
        }
    }
}

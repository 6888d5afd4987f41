//! Background work on the data file.

use crate::engine::Engine;
use foreshore_base::Error;
use foreshore_sync::{NextWake, Step};
use std::sync::Weak;
use std::time::Duration;

/// Pause before work that failed is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// Time between two tries of parked rollbacks while nothing else wakes the thread. Each try costs a descent and a
/// system call.
const RETRY_PARKED: Duration = Duration::from_millis(200);

/// The step of upkeep: grows the file, frees the pages of dropped tables, and retries parked rollbacks. It does not
/// keep the engine alive.
pub(crate) struct Upkeep(pub(crate) Weak<Engine>);

impl Step for Upkeep {
    fn step(&self) -> NextWake {
        let Some(engine) = self.0.upgrade() else { return NextWake::OnSignal };
        let grown = engine.space.extend_step();
        if grown == NextWake::Now {
            return grown;
        }
        let reclaimed = engine.reclaim_some();
        let is_parked = engine.txns.retry_parked() > 0;
        let next = match reclaimed {
            Ok(Some(Duration::ZERO)) => return NextWake::Now,
            // A damaged page is in the way.
            Ok(Some(pause)) => no_later(grown, pause),
            Ok(None) | Err(Error::Closed | Error::Poisoned { .. }) => grown,
            // A check walks the table, all sessions are in use, or the disk is full.
            Err(_) => no_later(grown, RETRY),
        };
        if is_parked && engine.log.poisoned().is_none() { no_later(next, RETRY_PARKED) } else { next }
    }
}

/// Returns the next step, after `pause` at the latest.
fn no_later(next: NextWake, pause: Duration) -> NextWake {
    match next {
        NextWake::After(sooner) => NextWake::After(sooner.min(pause)),
        _ => NextWake::After(pause),
    }
}

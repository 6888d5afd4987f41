//! The pace of a backup: it rests while others commit, so that they keep most of their rate.
//!
//! A commit waits for a durable write to the log. It shares the disk with all that a backup writes, so beside a copy at
//! full speed commits fall to a quarter of their rate. A backup therefore works in short slices. After a slice in which
//! the log has grown it rests for [`REST`] times as long as that slice took.
//!
//! - *Commits* have the disk to themselves for three quarters of the time.
//! - *The backup* takes four times as long as it works. It works longer than at full speed, since the log that grows
//!   meanwhile is copied too. While none commits it is not slowed at all.
//!
//! The long steps of a backup call [`Pace::rest`]. The checkpoint does so after each batch of pages. The copy of the
//! pages does so before each run, and the copy of the log before each group.

use crate::engine::Engine;
use foreshore_base::Result;
use foreshore_sync::{Clock, Nanos, Parker, SystemClock, pause};
use std::cell::Cell;
use std::time::Duration;

/// A rest takes so many times as long as the slice before it.
const REST: u32 = 3;
/// The shortest slice: a rest costs two switches of the thread, and no timer is exact.
const SLICE: Duration = Duration::from_millis(1);
/// How long a rest lasts until it is asked again whether the backup goes on.
const LOOK: Duration = Duration::from_millis(100);

/// The pace of one backup.
pub(super) struct Pace<'e> {
    engine: &'e Engine,
    clock: SystemClock,
    /// When the slice began.
    began: Cell<Nanos>,
    /// Bytes of log that were written by then.
    written: Cell<u64>,
}

impl<'e> Pace<'e> {
    pub(super) fn new(engine: &'e Engine) -> Self {
        let clock = SystemClock::new();
        let (began, written) = (Cell::new(clock.now()), Cell::new(engine.storage.log().written_bytes()));
        Self { engine, clock, began, written }
    }

    /// Rests if the slice is long enough and others have written to the log. Fails if `go_on` does, also meanwhile.
    pub(super) fn rest(&self, go_on: impl Fn() -> Result<()>) -> Result<()> {
        go_on()?;
        let ended = self.clock.now();
        let worked = ended.since(self.began.get());
        if worked < SLICE {
            return Ok(());
        }
        let log = self.engine.storage.log();
        // Without threads nothing depends on time.
        if log.written_bytes() != self.written.get() && self.engine.purger.has_threads() {
            pause::point("backup: a rest begins");
            let until = ended + worked * REST;
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
        self.began.set(self.clock.now());
        self.written.set(log.written_bytes());
        Ok(())
    }
}

//! The restore of a log.

use crate::log::Log;
use crate::restore::{self, RestoreSource, RestoreTarget, RestoreUntil, RestoredLog};
use foreshore_base::Result;

impl Log {
    /// Writes a new log from that of a backup and an archive that continues it, up to a position. When it returns, all
    /// is durable except the name of the folder itself. The log has the uuid of the target, and goes on where the
    /// position is.
    ///
    /// # Errors
    /// - `Restore` for a position that cannot be reached, or if groups are missing.
    /// - `Foreign` if log or archive are those of another database or of another timeline of it.
    /// - `Newer`, `Corrupted`, `Truncated` for a file; `InvalidOption`; the error of a disk.
    ///
    /// What was written is no log then, since it has no control file.
    pub fn restore(source: &RestoreSource, until: RestoreUntil, to: RestoreTarget<'_>) -> Result<RestoredLog> {
        restore::restore(source, until, Some(to))
    }

    /// Reads and checks all that [`restore`](Self::restore) would read, and writes nothing.
    ///
    /// # Errors
    /// Those of [`restore`](Self::restore).
    pub fn verify_restore(source: &RestoreSource, until: RestoreUntil) -> Result<RestoredLog> {
        restore::restore(source, until, None)
    }
}

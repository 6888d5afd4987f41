//! The restore of a log.

use crate::history::{self, HistoryEvent};
use crate::log::Log;
use crate::restore::{self, RestoreSource, RestoreTarget, RestoreUntil, RestoredLog};
use foreshore_base::Result;
use foreshore_io::Fs;
use std::path::Path;
use std::sync::Arc;

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

    /// Reads the log of a backup, its archive, and the log in `own` of the database that both are of. Calls `each` for
    /// each record that counts, from the first one of the backup up to the end of `own`, in the order of LSNs. A gap
    /// between them is no error: `each` gets it, and then the records of `own`. Only reads files.
    ///
    /// # Errors
    /// - `Foreign` if they are those of another database, or of another timeline of it.
    /// - `LostLog`, `Newer`, `Corrupted`, `Truncated` for a file; the error of a disk; or that of `each`.
    pub fn read_history(
        source: &RestoreSource,
        own: (&Arc<dyn Fs>, &Path),
        each: &mut dyn FnMut(HistoryEvent) -> Result<()>,
    ) -> Result<()> {
        history::read_history(source, own, each)
    }
}

//! The files of an open database, and the layers that read and write them.

use crate::fence::{Fenced, Gate};
use crate::files::Files;
use crate::known_backups::KnownBackups;
use foreshore_base::{Error, Result};
use foreshore_buffer::Pool;
use foreshore_io::{DirLock, File, Fs};
use foreshore_recovery::{Checkpointer, OpenUndo, RecoveryStats};
use foreshore_space::Space;
use foreshore_sync::{LockRank, Mutex};
use foreshore_wal::Log;
use std::sync::Arc;
use std::time::Duration;

/// What an opener may do to the files of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Create a database if there is none, and write.
    Create,
    /// Write to a database that exists.
    Existing,
    /// Read a database that exists.
    ReadOnly,
}

/// A locked directory, whose files are accessed through a gate.
pub(crate) struct Directory {
    files: Files,
    access: Access,
    /// The file system as given, to open the directory again.
    given: Arc<dyn Fs>,
    /// The file system behind the gate.
    fs: Arc<dyn Fs>,
    gate: Arc<Gate>,
    lock: Mutex<Option<Box<dyn DirLock>>>,
}

impl Directory {
    pub(crate) fn lock(files: Files, given: Arc<dyn Fs>, access: Access) -> Result<Arc<Self>> {
        let lock = Mutex::new(LockRank::Leaf, Some(given.lock(&files.lock)?));
        let gate = Gate::new();
        let fs = Arc::new(Fenced::new(Arc::clone(&given), Arc::clone(&gate)));
        Ok(Arc::new(Self { files, access, given, fs, gate, lock }))
    }

    /// Returns the paths.
    pub(crate) const fn files(&self) -> &Files {
        &self.files
    }

    /// Returns what the opener may do.
    pub(crate) const fn access(&self) -> Access {
        self.access
    }

    /// Whether the database is only read.
    pub(crate) fn is_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }

    /// Returns the file system behind the gate.
    pub(crate) const fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    /// Locks the directory again, once it is released.
    pub(crate) fn lock_again(&self, access: Access) -> Result<Arc<Self>> {
        Self::lock(self.files.clone(), Arc::clone(&self.given), access)
    }

    /// Ends all access to the files, and releases the directory.
    pub(crate) fn release(&self) {
        self.gate.shut();
        let lock = self.lock.lock().take();
        drop(lock);
    }
}

/// The storage of an open database.
pub(crate) struct Storage {
    directory: Arc<Directory>,
    backups: KnownBackups,
    backend: String,
    data: Arc<dyn File>,
    log: Log,
    pool: Pool,
    space: Arc<Space>,
    checkpointer: Arc<Checkpointer>,
    recovery: RecoveryStats,
    undo: Arc<OpenUndo>,
}

impl Storage {
    pub(crate) fn new(
        (directory, backups): (&Arc<Directory>, KnownBackups),
        data: Arc<dyn File>,
        log: Log,
        pool: Pool,
        space: Arc<Space>,
        checkpointer: Checkpointer,
        (recovery, undo): (RecoveryStats, Arc<OpenUndo>),
    ) -> Self {
        let (directory, checkpointer) = (Arc::clone(directory), Arc::new(checkpointer));
        let backend = directory.given.backend().name;
        Self { directory, backups, backend, data, log, pool, space, checkpointer, recovery, undo }
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns the paths.
    pub(crate) fn files(&self) -> &Files {
        &self.directory.files
    }

    /// Returns the backups that an increment may continue.
    pub(crate) const fn backups(&self) -> &KnownBackups {
        &self.backups
    }

    /// Returns the name of the storage in use.
    pub(crate) fn backend(&self) -> &str {
        &self.backend
    }

    /// Returns the data file.
    pub(crate) fn data(&self) -> &dyn File {
        &*self.data
    }

    pub(crate) const fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) const fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) const fn checkpointer(&self) -> &Arc<Checkpointer> {
        &self.checkpointer
    }

    /// Notes how long the start took.
    pub(crate) fn opened(&mut self, time: Duration) {
        self.recovery.open_time = time;
    }

    /// Returns the work of the recovery at the start, and of the redo and undo since then.
    pub(crate) fn recovery(&self) -> RecoveryStats {
        let redone = self.checkpointer.redone(self.recovery);
        self.undo.stats().map_or(redone, |undo| redone.with_undo(undo))
    }

    /// Returns the undo of losers that goes on.
    pub(crate) const fn undo(&self) -> &Arc<OpenUndo> {
        &self.undo
    }

    /// Makes all records of the log durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.log.force(self.log.current())
    }

    /// Takes the final checkpoint. `is_quiet`: no transaction runs, so the checkpoint notes a clean close. Otherwise it
    /// is an ordinary one, and the next open undoes the transactions that are left.
    pub(crate) fn finish(&self, is_quiet: bool) -> Result<()> {
        if let Some(cause) = self.log.poisoned() {
            return Err(Error::poisoned(&cause));
        }
        // Records for which no thread has waited, such as relaxed commits and freed pages, come before the checkpoint,
        // too.
        self.sync()?;
        let taken = if is_quiet { self.checkpointer.close() } else { self.checkpointer.checkpoint() };
        // What is not archived stays in the log, for the next run.
        let _ = self.log.archive_all();
        taken
    }

    /// Stops the layers, and releases the directory.
    pub(crate) fn stop(&self) -> Result<()> {
        self.checkpointer.end_redo();
        self.pool.close();
        let stopped = self.sync();
        // From here nothing reaches the disk. A thread that still waits for the log gets this error, and the gate
        // refuses operations in progress in other layers.
        self.log.poison(&Error::Closed);
        self.log.release_archive();
        self.directory.release();
        stopped
    }
}

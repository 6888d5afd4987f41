//! Redo of the records of the log: by the thread that reads it, or by workers.

mod page;
mod queue;
mod workers;

pub(crate) use page::{Redoer, Redone, without_clr};

use foreshore_base::{Error, Result};
use foreshore_buffer::{ChangeRecord, Pool};
use foreshore_sync::{Joiner, spawn};
use foreshore_txn::ResourceManager;
use foreshore_wal::LoggedRecord;
use std::io;
use std::path::Path;
use std::sync::Arc;
use workers::{Body, RedoWorkers};

/// Redo of the records that the reader of the log passes on, in log order.
pub(crate) enum Redo<'a> {
    /// On the thread that reads.
    Here(Redoer<'a>),
    /// On threads of its own.
    Workers(RedoWorkers),
}

impl<'a> Redo<'a> {
    /// Redo by `workers` threads; by the thread that reads if that is one, or if there are no threads.
    pub(crate) fn new(workers: usize, log_dir: &Path, pool: &'a Pool, manager: &'a Arc<dyn ResourceManager>) -> Self {
        Self::with(workers, log_dir, pool, manager, |body| spawn("foreshore-redo", body))
    }

    fn with(
        workers: usize,
        log_dir: &Path,
        pool: &'a Pool,
        manager: &'a Arc<dyn ResourceManager>,
        spawn: impl FnMut(Body) -> io::Result<Joiner>,
    ) -> Self {
        let started = (workers > 1).then(|| RedoWorkers::start(workers, log_dir, pool, manager, spawn)).flatten();
        started.map_or_else(|| Self::Here(Redoer::new(pool, &**manager)), Self::Workers)
    }

    /// Redoes a record, or has it redone. Returns false if the rest of the log need not be read, because
    /// [`Redo::finish`] will return an error.
    ///
    /// # Errors
    /// Those of [`Redoer::redo_page`]; `malformed` says what is wrong with the record.
    pub(crate) fn redo(
        &mut self,
        record: &LoggedRecord,
        change: &ChangeRecord<'_>,
        malformed: &dyn Fn(&'static str) -> Error,
    ) -> Result<bool> {
        let change = without_clr(change).map_err(malformed)?;
        match self {
            Self::Here(redoer) => {
                for index in 0..change.pages().len() {
                    redoer.redo_page((record.lsn, record.group), &change, index)?;
                }
                Ok(true)
            }
            Self::Workers(workers) => {
                workers.redo(record, change.pages());
                Ok(!workers.has_failed())
            }
        }
    }

    /// Waits until everything is redone.
    ///
    /// # Errors
    /// That of the first record that could not be redone.
    pub(crate) fn finish(self) -> Result<Redone> {
        match self {
            Self::Here(redoer) => Ok(redoer.into_redone()),
            Self::Workers(workers) => workers.finish(),
        }
    }
}

#[cfg(test)]
mod tests;

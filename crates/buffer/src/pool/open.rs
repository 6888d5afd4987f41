//! The opening of a pool: its files, its parts and its threads.

use super::Pool;
use crate::cleaner::Cleaner;
use crate::doublewrite::Doublewrite;
use crate::home::Home;
use crate::loader::{Loader, Reader};
use crate::options::PoolOptions;
use crate::reclaimer::Reclaimer;
use crate::replacement::S3c;
use crate::residency::Residency;
use crate::stamps::Stamps;
use foreshore_base::{Error, Result, Uuid};
use foreshore_io::File;
use foreshore_sync::{Daemon, LockRank, Mutex, Signal, Step};
use foreshore_wal::Log;
use std::io;
use std::sync::Arc;

impl Pool {
    /// Formats an empty doublewrite file, allocates its space and syncs it. The data file needs no format of the pool.
    /// The caller syncs the directory.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub fn create_files(doublewrite: &dyn File, uuid: Uuid) -> Result<()> {
        Doublewrite::format(doublewrite, uuid)
    }

    /// Checks the header of a doublewrite file like [`Pool::open`], for callers that check all files of a database
    /// before they write to any.
    ///
    /// # Errors
    /// `Foreign`, `Newer`, `Corrupted`, `Truncated`, `Io`.
    pub fn check_files(doublewrite: &Arc<dyn File>, uuid: Uuid) -> Result<()> {
        Doublewrite::open(doublewrite.clone(), uuid).map(drop)
    }

    /// Opens a pool over `data`, with no page in memory.
    ///
    /// After a crash [`Pool::restore_doublewrite`] comes next, before any page is fixed.
    ///
    /// # Errors
    /// `InvalidOption`; `Foreign`, `Newer`, `Corrupted` or `Truncated` for the doublewrite file; `Io`, also for want of
    /// memory or threads.
    pub fn open(
        data: Arc<dyn File>,
        doublewrite: Arc<dyn File>,
        uuid: Uuid,
        log: Log,
        options: &PoolOptions,
    ) -> Result<Self> {
        options.check()?;
        let PoolOptions { frames, background, ref replacement, doublewrite: kind, read_around } = *options;
        let doublewrite = Doublewrite::open(doublewrite, uuid)?;
        let policy = match replacement {
            None => S3c::new(frames).map(|own| Box::new(own) as Box<_>),
            Some(maker) => maker.make(frames),
        };
        let residency = policy
            .and_then(|policy| Residency::new(frames, policy, log.clone()))
            .map_err(|e| Error::io("map memory for", data.path(), e))?;
        let residency = Arc::new(residency);
        let stamps = Arc::new(Stamps::new(frames));
        let home = Home::new(data.clone(), doublewrite, log, stamps.clone(), kind);
        let cleaner = Arc::new(Cleaner::new(residency.clone(), home));
        let reclaimer = Arc::new(Reclaimer::new(residency.clone(), cleaner.clone(), background));
        let loader = Loader::new(residency.clone(), reclaimer.clone(), data.clone(), stamps, read_around);
        let daemons = Arc::new(Mutex::new(LockRank::Leaf, Vec::new()));
        let pool = Self { daemons, residency, loader: Arc::new(loader), reclaimer, cleaner };
        if background {
            pool.spawn(&*data)?;
        }
        Ok(pool)
    }

    /// Returns the stamps of the data file.
    #[must_use]
    pub fn stamps(&self) -> &Stamps {
        self.cleaner.home().stamps()
    }

    /// Starts the threads: one keeps frames free, one helps to write pages home, and some read ahead if there are
    /// frames for that.
    fn spawn(&self, data: &dyn File) -> Result<()> {
        let spawn = |name: &str, op: &'static str, signal: &Signal, step: Arc<dyn Step>| {
            let (log, path) = (self.log().clone(), data.path().to_owned());
            let on_panic = move |_: &str, message: &str| {
                log.poison(&Error::io(op, path, io::Error::other(message.to_owned())));
            };
            let daemon = Daemon::spawn(name, signal.clone(), step, Box::new(on_panic))
                .map_err(|e| Error::io("start a thread for", data.path(), e))?;
            self.daemons.lock().push(daemon);
            Ok(())
        };
        spawn("foreshore-pages", "write pages to", self.residency.low(), self.reclaimer.clone())?;
        spawn("foreshore-clean", "write pages to", self.cleaner.passes(), self.cleaner.clone())?;
        let read_ahead = |signal| spawn("foreshore-ahead", "read", signal, Arc::new(Reader(self.loader.clone())));
        self.loader.ahead().signals().iter().try_for_each(read_ahead)
    }
}

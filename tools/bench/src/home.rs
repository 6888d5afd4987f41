//! Where the database of a run lives.

use crate::Config;
use foreshore::{Db, Error, Options, Result};
use foreshore_io::Fs;
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How long a close waits for transactions: there are none left by then.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// Segments that a log budget must have room for.
const SEGMENTS_OF_BUDGET: u64 = 4;

/// A directory and the file system that holds it, through which every open of the run goes: what lies in memory
/// lives as long as this value.
pub(crate) struct Home {
    dir: PathBuf,
    fs: Arc<dyn Fs>,
    options: Options,
    is_in_memory: bool,
    /// Removed with the value.
    is_own: bool,
}

impl Home {
    /// Takes the directory of `config`, or makes one of its own.
    pub(crate) fn new(config: &Config) -> Result<Self> {
        let is_in_memory = config.storage.is_in_memory();
        let is_own = config.dir.is_none() && !is_in_memory;
        let dir = match &config.dir {
            Some(dir) => dir.clone(),
            None if is_own => own_directory()?,
            None => PathBuf::from("bench"),
        };
        // From here on the guard removes what was made, whatever fails.
        let mut home =
            Self { fs: Arc::new(foreshore_io::Mem::null()), options: Options::new(), is_in_memory, is_own, dir };
        home.fs = config.storage.device.open(&home.dir)?;
        home.configure(config)?;
        Ok(home)
    }

    /// Opens from now on with the options of `config`. Directory and device stay.
    ///
    /// # Errors
    /// `InvalidOption` if the log buffer cannot be made so.
    pub(crate) fn configure(&mut self, config: &Config) -> Result<()> {
        let storage = &config.storage;
        let mut options = Options::new()
            .memory_limit(storage.memory)
            .spill_limit(storage.spill)
            .log_budget(storage.log_budget.max(storage.segment.saturating_mul(SEGMENTS_OF_BUDGET)))
            .doublewrite(storage.doublewrite)
            .lab(|lab| {
                lab.fs = Some(Arc::clone(&self.fs));
                lab.segment_bytes = storage.segment;
                lab.profile = config.window.breakdown;
            });
        if let Some(target) = storage.restart_target {
            options = options.restart_target(target);
        }
        if storage.archive > 0 {
            options = options.archive(self.archive()).archive_limit(storage.archive);
        }
        self.options = config.parts.set(options)?;
        Ok(())
    }

    /// The name of the file system.
    pub(crate) fn filesystem(&self) -> Result<String> {
        Ok(if self.is_in_memory { "memory".to_owned() } else { foreshore_io::filesystem_name(&self.dir)? })
    }

    /// Where archived log goes: beside the database.
    fn archive(&self) -> PathBuf {
        let mut archive = self.dir.clone().into_os_string();
        archive.push("-archive");
        archive.into()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn fs(&self) -> &dyn Fs {
        &*self.fs
    }

    /// Whether nothing lies in the directory.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        Ok(self.fs.kind(&self.dir)?.is_none() || self.fs.list(&self.dir)?.is_empty())
    }

    /// Whether the directory has the data file of a database.
    pub(crate) fn has_database(&self) -> Result<bool> {
        Ok(self.fs.kind(&self.dir.join("data"))?.is_some())
    }

    /// Opens the database, or creates it.
    pub(crate) fn open(&self) -> Result<Db> {
        self.options.open(&self.dir)
    }

    /// Closes a handle that [`Home::open`] gave.
    pub(crate) fn close(db: &Db) -> Result<()> {
        db.close(CLOSE_WAIT)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.is_own {
            // A directory that cannot be removed is a nuisance, not a failed run.
            let _ = fs::remove_dir_all(&self.dir);
            let _ = fs::remove_dir_all(self.archive());
        }
    }
}

/// Creates a new directory below the current one.
pub(crate) fn own_directory() -> Result<PathBuf> {
    let process = std::process::id();
    for attempt in 0_u32.. {
        // A process that was killed may have left the directory of this number behind.
        let suffix = if attempt == 0 { String::new() } else { format!("-{attempt}") };
        let dir = PathBuf::from(format!(".bench-{process}{suffix}"));
        match fs::DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io("create", dir, e)),
        }
    }
    unreachable!("fewer directories than numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Storage;
    use foreshore::Device;

    fn on(device: Device) -> Config {
        Config { storage: Storage { device, ..Storage::default() }, ..Config::default() }
    }

    #[test]
    fn own_directories_differ_and_go_with_the_home() {
        let config = on(Device::Buffered);
        let (a, b) = (Home::new(&config).unwrap(), Home::new(&config).unwrap());
        let dirs = [a.dir().to_owned(), b.dir().to_owned()];
        assert_ne!(dirs[0], dirs[1]);
        assert!(dirs.iter().all(|dir| dir.is_dir()));
        drop((a, b));
        assert!(!dirs.iter().any(|dir| dir.exists()));
    }

    #[test]
    fn a_restart_target_bounds_the_log() {
        let mut config = on(Device::Null);
        config.storage.restart_target = Some(Duration::from_secs(4));
        let db = Home::new(&config).unwrap().open().unwrap();
        assert_eq!(db.stats().checkpoint.budget, 4 * (32 << 20), "at 32 MiB a second");
        config.storage.restart_target = Some(Duration::ZERO);
        let refused = Home::new(&config).unwrap().open();
        assert!(matches!(refused, Err(Error::InvalidOption { name: "restart_target", .. })), "{refused:?}");
    }

    #[test]
    fn archived_log_lies_beside_the_database_and_goes_with_it() {
        let mut config = on(Device::Buffered);
        config.storage.archive = 1 << 20;
        let home = Home::new(&config).unwrap();
        let archive = home.archive();
        let db = home.open().unwrap();
        assert!(db.stats().archive.is_some() && archive.is_dir());
        Home::close(&db).unwrap();
        drop((db, home));
        assert!(!archive.exists());
    }

    #[test]
    fn in_memory_touches_no_disk() {
        let config = on(Device::Null);
        let home = Home::new(&config).unwrap();
        assert!(home.is_empty().unwrap());
        assert!(!home.dir().exists());
    }
}

//! A database as a crash leaves it: no file is written any more from one moment on.

use super::commits::Place;
use foreshore::{Db, Error, Options, Result};
use foreshore_base::limits::BLOCK;
use foreshore_io::{AlignedBuf, File, FileLayer, Fs, FsLayer, Kind};
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Bytes that are read or copied at a time.
const CHUNK: usize = 1 << 20;
/// The file of a database that a crash unlocks.
const LOCK: &str = "LOCK";

/// Ends all writes to the files of a database.
#[derive(Clone, Debug, Default)]
pub(super) struct Crash(Arc<AtomicBool>);

impl Crash {
    /// From here on every write fails, so that the files are what a killed process leaves.
    pub(super) fn now(&self) {
        // ORDERING: Release, pairs with `check`; a write that has begun may still end.
        self.0.store(true, Ordering::Release);
    }

    fn check(&self, path: &Path) -> foreshore_base::Result<()> {
        // ORDERING: Acquire, pairs with `now`.
        if self.0.load(Ordering::Acquire) {
            return Err(foreshore_base::Error::io("write to", path, io::Error::other("the experiment has crashed it")));
        }
        Ok(())
    }
}

/// Files that a crash ends.
#[derive(Debug)]
struct Mortal {
    below: Arc<dyn Fs>,
    crash: Crash,
}

impl FsLayer for Mortal {
    fn below(&self) -> &dyn Fs {
        &*self.below
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(MortalFile { below: file, crash: self.crash.clone() })
    }

    fn create(&self, path: &Path) -> foreshore_base::Result<Arc<dyn File>> {
        self.crash.check(path)?;
        self.below.create(path).map(|file| self.wrap(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> foreshore_base::Result<()> {
        self.crash.check(from)?;
        self.below.rename(from, to)
    }

    fn remove(&self, path: &Path) -> foreshore_base::Result<()> {
        self.crash.check(path)?;
        self.below.remove(path)
    }
}

#[derive(Debug)]
struct MortalFile {
    below: Arc<dyn File>,
    crash: Crash,
}

impl FileLayer for MortalFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> foreshore_base::Result<()> {
        self.crash.check(self.below.path())?;
        self.below.write_at(buf, offset)
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> foreshore_base::Result<()> {
        self.crash.check(self.below.path())?;
        self.below.write_durable(buf, offset)
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> foreshore_base::Result<()> {
        self.crash.check(self.below.path())?;
        self.below.write_many(parts)
    }

    fn write_whole(&self, parts: &[(&[u8], u64)]) -> foreshore_base::Result<bool> {
        self.crash.check(self.below.path())?;
        self.below.write_whole(parts)
    }

    fn set_len(&self, len: u64) -> foreshore_base::Result<()> {
        self.crash.check(self.below.path())?;
        self.below.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> foreshore_base::Result<()> {
        self.crash.check(self.below.path())?;
        self.below.allocate(offset, len)
    }
}

/// A crashed database, of which copies are opened.
pub(super) struct Crashed<'a> {
    place: &'a Place,
    files: Vec<String>,
}

impl<'a> Crashed<'a> {
    /// Makes a database by `work`, and crashes it when that returns.
    pub(super) fn make<T>(
        place: &'a Place,
        options: Options,
        work: impl FnOnce(&Db, &Crash) -> Result<T>,
    ) -> Result<(Self, T)> {
        let crash = Crash::default();
        let fs: Arc<dyn Fs> = Arc::new(Mortal { below: Arc::clone(place.fs()), crash: crash.clone() });
        let db = options.lab(|lab| lab.fs = Some(fs)).open(dir(place, false))?;
        let made = work(&db, &crash)?;
        crash.now();
        drop(db);
        let mut files = Vec::new();
        list(&**place.fs(), &dir(place, false), "", &mut files)?;
        Ok((Self { place, files }, made))
    }

    /// Makes the copy that [`Crashed::open`] opens, in place of an earlier one.
    pub(super) fn copy(&self) -> Result<()> {
        let (fs, from, to) = (&**self.place.fs(), dir(self.place, false), dir(self.place, true));
        remove_all(fs, &to)?;
        fs.create_dir(&to)?;
        fs.create_dir(&to.join("log"))?;
        for name in &self.files {
            copy(fs, &from.join(name), &to.join(name))?;
        }
        Ok(())
    }

    /// Opens the copy, which is a restart.
    pub(super) fn open(&self, options: Options) -> Result<Db> {
        options.lab(|lab| lab.fs = Some(Arc::clone(self.place.fs()))).open(dir(self.place, true))
    }

    /// Returns the length of the data file.
    pub(super) fn data_bytes(&self) -> Result<u64> {
        Ok(self.place.fs().open(&dir(self.place, false).join("data"))?.len()?)
    }

    /// Reads the log of the copy from end to end, past the page cache; MB a second.
    pub(super) fn read_mb_per_s(&self) -> Result<f64> {
        let (mut buf, mut bytes, mut took) = (AlignedBuf::new(CHUNK), 0_u64, Duration::ZERO);
        for name in self.files.iter().filter(|name| name.ends_with(".seg")) {
            let file = self.place.fs().open(&dir(self.place, true).join(name))?;
            file.read_past_cache()?;
            let begun = Instant::now();
            for offset in (0..file.len()?).step_by(CHUNK) {
                bytes += file.read_at(&mut buf, offset)? as u64;
            }
            took += begun.elapsed();
        }
        Ok(bytes as f64 / 1e6 / took.as_secs_f64())
    }
}

fn dir(place: &Place, is_copy: bool) -> PathBuf {
    place.dir().join(if is_copy { "copy" } else { "crashed" })
}

/// Adds the files of a database below `dir`.
fn list(fs: &dyn Fs, dir: &Path, prefix: &str, files: &mut Vec<String>) -> Result<()> {
    for name in fs.list(dir)?.into_iter().filter(|name| name != LOCK) {
        let path = dir.join(&name);
        match fs.kind(&path)? {
            Some(Kind::Dir) => list(fs, &path, &format!("{name}/"), files)?,
            _ => files.push(format!("{prefix}{name}")),
        }
    }
    Ok(())
}

/// Removes the files of an earlier copy.
fn remove_all(fs: &dyn Fs, dir: &Path) -> Result<()> {
    if fs.kind(dir)?.is_none() {
        return Ok(());
    }
    let mut files = Vec::new();
    list(fs, dir, "", &mut files)?;
    Ok(files.iter().try_for_each(|name| fs.remove(&dir.join(name)))?)
}

/// Copies whole blocks, with the space that the file has.
fn copy(fs: &dyn Fs, from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (fs.open(from)?, fs.create(to)?);
    let len = from.len()?;
    if len > 0 {
        to.allocate(0, len)?;
    }
    let mut buf = AlignedBuf::new(CHUNK);
    for offset in (0..len).step_by(CHUNK) {
        let read = from.read_at(&mut buf, offset)?;
        let (whole, rest) = (read - read % BLOCK, read % BLOCK);
        if whole > 0 {
            to.write_at(&buf[..whole], offset)?;
        }
        if rest > 0 {
            return Err(Error::io("copy", from.path().to_owned(), io::Error::other("a length that is no block")));
        }
    }
    Ok(to.sync()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore::{Device, TableDef};

    const ROWS: TableDef<u64, u64> = TableDef::new("rows");

    #[test]
    fn a_crash_loses_nothing_durable_and_its_copies_open_again_and_again() {
        let place = Place::new(Device::Null).unwrap();
        let put = |db: &Db, key| db.run(|tx| tx.open(ROWS)?.insert(key, key).map(drop));
        let (crashed, refused) = Crashed::make(&place, Options::new(), |db, crash| {
            (0..100).try_for_each(|key| put(db, key))?;
            crash.now();
            Ok(put(db, 100).is_err())
        })
        .unwrap();
        assert!(refused, "a commit after the crash");
        for _ in 0..2 {
            crashed.copy().unwrap();
            let db = crashed.open(Options::new()).unwrap();
            let recovery = db.stats().recovery;
            assert!(!recovery.was_clean && recovery.redone > 0 && recovery.log_bytes > 0, "{recovery:?}");
            assert_eq!(db.read().open(ROWS).unwrap().iter().count(), 100);
        }
        assert!(crashed.read_mb_per_s().unwrap() > 0.0);
    }
}

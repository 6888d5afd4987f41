//! Files in memory: no device (`null`), or one of a known latency (`delay`).

use crate::{
    Backend, DirLock, File, Fs, Kind,
    content::Content,
    names::{NameLock, Names, normal},
    pause::Pause,
    retry::check_range,
};
use foreshore_base::{Error, Result};
use foreshore_sync::{LockRank, Mutex, RwLock};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// A file system in memory. Its contents live as long as a clone of it, so a database in it can be closed and reopened.
/// Creating a directory also creates its ancestors, since paths of the real disk do not exist here.
#[derive(Clone)]
pub struct Mem {
    names: Arc<Mutex<Names<Contents>>>,
    /// The latency of a durable write or a sync.
    pause: Arc<Pause>,
    name: Arc<str>,
}

/// Returns the name of a backend in memory with latency `delay`.
pub(crate) fn delay_name(delay: Duration) -> String {
    match delay.as_nanos() {
        nanos if nanos.is_multiple_of(1000) => format!("delay:{}us", delay.as_micros()),
        nanos => format!("delay:{nanos}ns"),
    }
}

impl Mem {
    /// Returns a file system in memory whose syncs cost nothing.
    #[must_use]
    pub fn null() -> Self {
        Self::new("null".into(), Duration::ZERO)
    }

    /// Returns a file system in memory where every durable write, every sync and every change of a length takes
    /// `delay`. On a real device the file system would have to note the length. Operations of several threads overlap.
    #[must_use]
    pub fn delay(delay: Duration) -> Self {
        Self::new(delay_name(delay), delay)
    }

    fn new(name: String, delay: Duration) -> Self {
        Self {
            names: Arc::new(Mutex::new(LockRank::File, Names::new())),
            pause: Arc::new(Pause::new(delay)),
            name: name.into(),
        }
    }

    fn open_file(&self, path: &Path, contents: Contents) -> Arc<dyn File> {
        Arc::new(MemFile { path: path.to_owned(), contents, pause: Arc::clone(&self.pause) })
    }

    /// Wraps a lock that was taken for the name `key`.
    fn name_lock(&self, key: PathBuf) -> Box<dyn DirLock> {
        let all = Arc::clone(&self.names);
        Box::new(NameLock::new(key, move |key| all.lock().unlock(key)))
    }
}

impl fmt::Debug for Mem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mem").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Fs for Mem {
    fn create_dir(&self, dir: &Path) -> Result<()> {
        let dir = normal(dir);
        let mut names = self.names.lock();
        // The ancestors of a database directory on a real disk need not exist here.
        let mut path = PathBuf::new();
        for part in &dir {
            path.push(part);
            names.create_dir(&path).map_err(|e| Error::io("create", &dir, e))?;
        }
        Ok(())
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        Ok(self.names.lock().kind(&normal(path)))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let contents = self.names.lock().file(&normal(path)).map_err(|e| Error::io("open", path, e))?;
        Ok(self.open_file(path, contents))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let contents = Contents::default();
        self.names.lock().create(&normal(path), contents.clone()).map_err(|e| Error::io("create", path, e))?;
        Ok(self.open_file(path, contents))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.names.lock().list(&normal(dir)).map_err(|e| Error::io("list", dir, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.names.lock().rename(&normal(from), &normal(to)).map_err(|e| Error::io("rename", from, e))?;
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.names.lock().remove(&normal(path)).map_err(|e| Error::io("remove", path, e))?;
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.names.lock().need_dir(&normal(dir)).map_err(|e| Error::io("sync", dir, e))?;
        self.pause.run();
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        let key = normal(path);
        let mut names = self.names.lock();
        if names.kind(&key).is_none() {
            names.create(&key, Contents::default()).map_err(|e| Error::io("lock", path, e))?;
        }
        if !names.lock(&key) {
            return Err(Error::Locked { path: path.parent().unwrap_or(Path::new("")).into() });
        }
        Ok(self.name_lock(key))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        let key = normal(path);
        let mut names = self.names.lock();
        names.file(&key).map_err(|e| Error::io("lock", path, e))?;
        if !names.lock_shared(&key) {
            return Err(Error::Locked { path: path.parent().unwrap_or(Path::new("")).into() });
        }
        Ok(self.name_lock(key))
    }

    fn backend(&self) -> Backend {
        Backend { name: self.name.to_string(), durable: false, needs_alignment: false }
    }
}

/// A file's bytes, shared by all handles of it.
#[derive(Clone)]
struct Contents(Arc<RwLock<Content>>);

impl Default for Contents {
    fn default() -> Self {
        Self(Arc::new(RwLock::new(LockRank::File, Content::default())))
    }
}

impl PartialEq for Contents {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

struct MemFile {
    path: PathBuf,
    contents: Contents,
    pause: Arc<Pause>,
}

impl MemFile {
    /// Makes a change, and takes the latency if it changes the length.
    fn resize(&self, change: impl FnOnce(&mut Content)) {
        let is_resized = {
            let mut content = self.contents.0.write();
            let before = content.len();
            change(&mut content);
            content.len() != before
        };
        if is_resized {
            self.pause.run();
        }
    }

    fn error(&self, op: &'static str, e: io::Error) -> Error {
        Error::io(op, &self.path, e)
    }
}

impl fmt::Debug for MemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemFile").field(&self.path).finish()
    }
}

impl File for MemFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        check_range(offset, buf.len() as u64).map_err(|e| self.error("read", e))?;
        Ok(self.contents.0.read().read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        check_range(offset, buf.len() as u64).map_err(|e| self.error("write", e))?;
        if !buf.is_empty() {
            let mut content = self.contents.0.write();
            content.grow(offset + buf.len() as u64);
            content.write(offset, buf);
        }
        Ok(())
    }

    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> {
        parts.iter_mut().map(|(buf, offset)| self.read_at(buf, *offset)).collect()
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)?;
        self.sync()
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        parts.iter().try_for_each(|&(buf, offset)| self.write_at(buf, offset))
    }

    fn writes_whole(&self, _: usize) -> bool {
        false
    }

    fn write_whole(&self, _: &[(&[u8], u64)]) -> Result<bool> {
        Ok(false)
    }

    fn sync(&self) -> Result<()> {
        self.pause.run();
        Ok(())
    }

    /// Does nothing: there is no cache in front of memory.
    fn read_past_cache(&self) -> Result<()> {
        Ok(())
    }

    fn read_cached(&self) {}

    fn len(&self) -> Result<u64> {
        Ok(self.contents.0.read().len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        check_range(0, len).map_err(|e| self.error("set the length of", e))?;
        self.resize(|content| content.set_len(len));
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        check_range(offset, len).map_err(|e| self.error("allocate space for", e))?;
        if len != 0 {
            self.resize(|content| content.allocate(offset, len));
        }
        Ok(())
    }
}

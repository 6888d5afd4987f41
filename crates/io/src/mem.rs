//! Files in memory: no device (`null`), or one of a known latency (`delay`).

use crate::{
    Backend, DirLock, File, Fs, Kind,
    names::{Names, normal},
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

/// Bytes in a chunk, the unit of allocation and of locking.
const CHUNK: usize = 1 << 20;

/// A file system in memory. Its contents live as long as a clone of it, so a database in it can be closed and opened
/// again. Creating a directory also creates those above it, which exist on the real disk and not here.
#[derive(Clone)]
pub struct Mem {
    names: Arc<Mutex<Names<Contents>>>,
    /// What a durable write or a sync takes.
    pause: Arc<Pause>,
    name: Arc<str>,
}

/// Returns the name of a memory that takes `delay` to be durable.
pub(crate) fn delay_name(delay: Duration) -> String {
    match delay.as_nanos() {
        nanos if nanos.is_multiple_of(1000) => format!("delay:{}us", delay.as_micros()),
        nanos => format!("delay:{nanos}ns"),
    }
}

impl Mem {
    /// Syncs cost nothing.
    #[must_use]
    pub fn null() -> Self {
        Self::new("null".into(), Duration::ZERO)
    }

    /// Every durable write, every sync and every change of the length of a file takes `delay`: the file system of such a
    /// device would have to note the length. Those of several threads overlap.
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
        // What leads to a database on a real disk need not exist here.
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
        Ok(Box::new(MemLock { names: Arc::clone(&self.names), key }))
    }

    fn backend(&self) -> Backend {
        Backend { name: self.name.to_string(), durable: false, needs_alignment: false }
    }
}

struct MemLock {
    names: Arc<Mutex<Names<Contents>>>,
    key: PathBuf,
}

impl DirLock for MemLock {}

impl fmt::Debug for MemLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemLock").field(&self.key).finish()
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.names.lock().unlock(&self.key);
    }
}

/// A file's bytes, shared by everybody who has it open.
///
/// The table lock is held shared to copy bytes, under a chunk's own lock, and exclusively only to change the length
/// or the set of chunks.
#[derive(Clone)]
struct Contents(Arc<RwLock<Table>>);

#[derive(Default)]
struct Table {
    len: u64,
    /// By offset / [`CHUNK`]. A missing chunk reads as zeros.
    chunks: Vec<Option<Chunk>>,
}

type Chunk = RwLock<Box<[u8]>>;

impl Default for Contents {
    fn default() -> Self {
        Self(Arc::new(RwLock::new(LockRank::File, Table::default())))
    }
}

impl PartialEq for Contents {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The pieces of `[offset, offset + len)`: chunk, range in the chunk, range from the start.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset + done as u64;
        let (chunk, within) = ((at / CHUNK as u64) as usize, (at % CHUNK as u64) as usize);
        let n = (CHUNK - within).min(len - done);
        done += n;
        Some((chunk, within, done - n..done))
    })
}

impl Contents {
    fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let table = self.0.read();
        let n = usize::try_from(table.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        for (index, within, range) in pieces(offset, n) {
            let part = &mut buf[range];
            match table.chunks.get(index) {
                Some(Some(chunk)) => part.copy_from_slice(&chunk.read()[within..within + part.len()]),
                _ => part.fill(0),
            }
        }
        n
    }

    fn write(&self, buf: &[u8], offset: u64) {
        loop {
            let table = self.0.read();
            if table.covers(offset, buf.len()) {
                for (index, within, range) in pieces(offset, buf.len()) {
                    let chunk = table.chunks[index].as_ref().expect("covered ranges have chunks");
                    chunk.write()[within..within + range.len()].copy_from_slice(&buf[range]);
                }
                return;
            }
            drop(table);
            // Again after this only if another thread cuts the file in between.
            self.0.write().cover(offset, buf.len());
        }
    }

    /// Returns whether the length has changed.
    fn set_len(&self, len: u64) -> bool {
        let mut table = self.0.write();
        let changes = table.len != len;
        table.set_len(len);
        changes
    }
}

impl Table {
    /// Whether the range lies inside the file and has its chunks.
    fn covers(&self, offset: u64, len: usize) -> bool {
        offset + len as u64 <= self.len
            && pieces(offset, len).all(|(index, ..)| self.chunks.get(index).is_some_and(Option::is_some))
    }

    /// Grows the file to the end of the range and gives it its chunks.
    fn cover(&mut self, offset: u64, len: usize) {
        self.len = self.len.max(offset + len as u64);
        for (index, ..) in pieces(offset, len) {
            if index >= self.chunks.len() {
                self.chunks.resize_with(index + 1, || None);
            }
            // Zeroed by the allocator: pages that nobody touches are never committed.
            self.chunks[index].get_or_insert_with(|| RwLock::new(LockRank::Leaf, vec![0; CHUNK].into()));
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            // What is cut off must read as zeros when the file grows again.
            let keep = usize::try_from(len.div_ceil(CHUNK as u64)).unwrap_or(usize::MAX);
            self.chunks.truncate(keep);
            let tail = (len % CHUNK as u64) as usize;
            if let Some(Some(last)) = self.chunks.get_mut(keep.wrapping_sub(1))
                && tail != 0
            {
                last.write()[tail..].fill(0);
            }
        }
        self.len = len;
    }
}

struct MemFile {
    path: PathBuf,
    contents: Contents,
    pause: Arc<Pause>,
}

impl MemFile {
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
        Ok(self.contents.read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        check_range(offset, buf.len() as u64).map_err(|e| self.error("write", e))?;
        if !buf.is_empty() {
            self.contents.write(buf, offset);
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

    /// There is no cache in front of memory.
    fn read_past_cache(&self) -> Result<()> {
        Ok(())
    }

    fn read_cached(&self) {}

    fn len(&self) -> Result<u64> {
        Ok(self.contents.0.read().len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        check_range(0, len).map_err(|e| self.error("set the length of", e))?;
        if self.contents.set_len(len) {
            self.pause.run();
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        check_range(offset, len).map_err(|e| self.error("allocate space for", e))?;
        if len != 0 {
            let len = usize::try_from(len)
                .map_err(|_| self.error("allocate space for", io::ErrorKind::StorageFull.into()))?;
            let grows = {
                let mut table = self.contents.0.write();
                let before = table.len;
                table.cover(offset, len);
                table.len > before
            };
            if grows {
                self.pause.run();
            }
        }
        Ok(())
    }
}

//! Access to files that `close` revokes.
//!
//! A transaction may outlive `close`, and must not write a byte more: the directory may already belong to the next
//! open. So the engine accesses its files through a gate. `close` waits for the calls in flight and refuses later ones.

use foreshore_base::{Error, Result};
use foreshore_io::{DirLock, File, FileLayer, Fs, FsLayer};
use foreshore_sync::{LockRank, RwLock};
use std::{path::Path, sync::Arc};

/// The gate that every call with an effect on files passes.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Held shared by calls in flight.
    is_open: RwLock<bool>,
}

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { is_open: RwLock::new(LockRank::FileFence, true) })
    }

    /// Waits for the calls in flight. Later ones fail with `Closed`.
    pub(crate) fn shut(&self) {
        *self.is_open.write() = false;
    }

    fn pass<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let is_open = self.is_open.read();
        if *is_open { call() } else { Err(Error::Closed) }
    }
}

/// A file system behind a gate. Reads are not blocked: a page that is read too late is never used.
#[derive(Debug)]
pub(crate) struct Fenced {
    inner: Arc<dyn Fs>,
    gate: Arc<Gate>,
}

impl Fenced {
    pub(crate) fn new(inner: Arc<dyn Fs>, gate: Arc<Gate>) -> Self {
        Self { inner, gate }
    }
}

impl FsLayer for Fenced {
    fn below(&self) -> &dyn Fs {
        &*self.inner
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FencedFile { inner: file, gate: Arc::clone(&self.gate) })
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.gate.pass(|| self.inner.create_dir(dir))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.gate.pass(|| self.inner.create(path)).map(|file| self.wrap(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.gate.pass(|| self.inner.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.gate.pass(|| self.inner.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.gate.pass(|| self.inner.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        self.gate.pass(|| self.inner.lock(path))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        self.gate.pass(|| self.inner.lock_shared(path))
    }
}

#[derive(Debug)]
struct FencedFile {
    inner: Arc<dyn File>,
    gate: Arc<Gate>,
}

impl FileLayer for FencedFile {
    fn below(&self) -> &dyn File {
        &*self.inner
    }

    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> {
        self.inner.read_many(parts)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.gate.pass(|| self.inner.write_at(buf, offset))
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.gate.pass(|| self.inner.write_durable(buf, offset))
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        self.gate.pass(|| self.inner.write_many(parts))
    }

    fn write_whole(&self, parts: &[(&[u8], u64)]) -> Result<bool> {
        self.gate.pass(|| self.inner.write_whole(parts))
    }

    fn sync(&self) -> Result<()> {
        self.gate.pass(|| self.inner.sync())
    }

    fn read_past_cache(&self) -> Result<()> {
        self.gate.pass(|| self.inner.read_past_cache())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.gate.pass(|| self.inner.set_len(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.gate.pass(|| self.inner.allocate(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_io::Mem;

    #[test]
    fn a_shut_gate_keeps_writes_out_and_lets_reads_through() {
        let gate = Gate::new();
        let mem: Arc<dyn Fs> = Arc::new(Mem::null());
        let fs: Arc<dyn Fs> = Arc::new(Fenced::new(Arc::clone(&mem), Arc::clone(&gate)));
        let dir = Path::new("/d");
        fs.create_dir(dir).unwrap();
        let file = fs.create(&dir.join("f")).unwrap();
        file.write_at(b"before", 0).unwrap();
        gate.shut();
        assert!(matches!(file.write_at(b"after!", 0), Err(Error::Closed)));
        assert!(matches!(file.write_durable(b"after!", 0), Err(Error::Closed)));
        assert!(matches!(file.write_many(&[(b"after!", 0)]), Err(Error::Closed)));
        assert!(matches!(file.write_whole(&[(b"after!", 0)]), Err(Error::Closed)));
        assert!(matches!(file.sync(), Err(Error::Closed)));
        assert!(matches!(file.read_past_cache(), Err(Error::Closed)));
        assert!(matches!(file.set_len(1), Err(Error::Closed)));
        assert!(matches!(file.allocate(0, 4096), Err(Error::Closed)));
        assert!(matches!(fs.create(&dir.join("g")), Err(Error::Closed)));
        assert!(matches!(fs.rename(&dir.join("f"), &dir.join("g")), Err(Error::Closed)));
        assert!(matches!(fs.remove(&dir.join("f")), Err(Error::Closed)));
        let mut bytes = [0; 6];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 6);
        assert_eq!(&bytes, b"before");
        assert_eq!(mem.list(dir).unwrap(), ["f"]);
    }
}

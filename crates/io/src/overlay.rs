//! A file system whose changes stay in memory.

use crate::content::pieces;
use crate::retry::check_range;
use crate::{AlignedBuf, Backend, DirLock, File, Fs, Kind};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, Result};
use foreshore_sync::{LockRank, Mutex, RwLock};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::{fmt, io, sync::Arc};

/// A file system that shows the files of another one and keeps every change in memory. Nothing reaches the file system
/// below: a file is opened there, read, and no more. [`Fs::lock`] takes the lock that is shared below.
///
/// While an overlay is in use the files below must not change. Directories are those of the file system below.
pub struct Overlay {
    below: Arc<dyn Fs>,
    /// Files that were opened or created here, and names that were removed.
    names: Mutex<BTreeMap<PathBuf, Option<Arc<Contents>>>>,
}

impl Overlay {
    /// Returns an overlay without changes.
    #[must_use]
    pub fn new(below: Arc<dyn Fs>) -> Self {
        Self { below, names: Mutex::new(LockRank::FileOverlay, BTreeMap::new()) }
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("below", &self.below).finish_non_exhaustive()
    }
}

impl Fs for Overlay {
    fn create_dir(&self, dir: &Path) -> Result<()> {
        match self.below.kind(dir)? {
            Some(Kind::Dir) => Ok(()),
            _ => Err(Error::io("create", dir, io::ErrorKind::ReadOnlyFilesystem.into())),
        }
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        match self.names.lock().get(path) {
            Some(file) => Ok(file.as_ref().map(|_| Kind::File)),
            None => self.below.kind(path),
        }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut names = self.names.lock();
        let contents = match names.get(path) {
            Some(Some(contents)) => Arc::clone(contents),
            Some(None) => return Err(Error::io("open", path, io::ErrorKind::NotFound.into())),
            None => {
                let contents = Contents::over(self.below.open(path)?)?;
                names.insert(path.to_owned(), Some(Arc::clone(&contents)));
                contents
            }
        };
        Ok(Arc::new(OverlayFile { path: path.to_owned(), contents }))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        if self.kind(path)?.is_some() {
            return Err(Error::io("create", path, io::ErrorKind::AlreadyExists.into()));
        }
        let contents = Contents::new();
        self.names.lock().insert(path.to_owned(), Some(Arc::clone(&contents)));
        Ok(Arc::new(OverlayFile { path: path.to_owned(), contents }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        let mut listed = self.below.list(dir)?;
        for (path, file) in self.names.lock().iter().filter(|(path, _)| path.parent() == Some(dir)) {
            let Some(name) = path.file_name() else { continue };
            let name = name.to_string_lossy();
            listed.retain(|listed| *listed != name);
            if file.is_some() {
                listed.push(name.into_owned());
            }
        }
        listed.sort_unstable();
        Ok(listed)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        drop(self.open(from)?);
        let mut names = self.names.lock();
        let contents = names.insert(from.to_owned(), None).flatten();
        names.insert(to.to_owned(), contents);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if self.kind(path)? != Some(Kind::File) {
            return Err(Error::io("remove", path, io::ErrorKind::NotFound.into()));
        }
        self.names.lock().insert(path.to_owned(), None);
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        self.below.lock_shared(path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        self.below.lock_shared(path)
    }

    fn backend(&self) -> Backend {
        Backend { name: "read-only".into(), durable: false, needs_alignment: self.below.backend().needs_alignment }
    }
}

type Block = Box<[u8; BLOCK]>;

/// A file, shared by all handles of it.
#[derive(Debug)]
struct Contents {
    /// The file below, unless the file was created here.
    below: Option<Arc<dyn File>>,
    changed: RwLock<Changed>,
}

/// What differs from the file below.
#[derive(Debug, Default)]
struct Changed {
    len: u64,
    /// The file below counts up to here. Bytes behind it read as zeros.
    below_len: u64,
    /// Changed blocks, by offset / [`BLOCK`].
    blocks: BTreeMap<usize, Block>,
}

impl Changed {
    /// Whether the file below has all of these bytes, as they are here.
    fn is_below(&self, offset: u64, len: usize) -> bool {
        let end = offset + len as u64;
        let blocks = (offset / BLOCK as u64) as usize..end.div_ceil(BLOCK as u64) as usize;
        end <= self.below_len
            && self.blocks.range((Bound::Included(blocks.start), Bound::Excluded(blocks.end))).next().is_none()
    }
}

impl Contents {
    fn new() -> Arc<Self> {
        Arc::new(Self { below: None, changed: RwLock::new(LockRank::FileOverlay, Changed::default()) })
    }

    fn over(below: Arc<dyn File>) -> Result<Arc<Self>> {
        let len = below.len()?;
        let changed = Changed { len, below_len: len, blocks: BTreeMap::new() };
        Ok(Arc::new(Self { below: Some(below), changed: RwLock::new(LockRank::FileOverlay, changed) }))
    }

    /// Reads a block as the file below has it.
    fn read_below(&self, block: usize, below_len: u64) -> Result<AlignedBuf> {
        let (mut bytes, offset) = (AlignedBuf::new(BLOCK), (block * BLOCK) as u64);
        let len = usize::try_from(below_len.saturating_sub(offset)).unwrap_or(BLOCK).min(BLOCK);
        if let Some(below) = self.below.as_ref().filter(|_| len > 0) {
            below.read_at(&mut bytes, offset)?;
        }
        bytes[len..].fill(0);
        Ok(bytes)
    }

    fn read(&self, changed: &Changed, buf: &mut [u8], offset: u64) -> Result<usize> {
        let n = usize::try_from(changed.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        if let Some(below) = self.below.as_ref().filter(|_| changed.is_below(offset, n)) {
            // The whole buffer: direct I/O takes no other lengths. The file ends where it ends below, or the bytes
            // behind the first `n` are not asked for.
            return below.read_at(buf, offset).map(|read| read.min(n));
        }
        for (block, range, from) in pieces(offset, n, BLOCK) {
            let part = &mut buf[from..from + range.len()];
            match changed.blocks.get(&block) {
                Some(bytes) => part.copy_from_slice(&bytes[range]),
                None => part.copy_from_slice(&self.read_below(block, changed.below_len)?[range]),
            }
        }
        Ok(n)
    }

    fn write(&self, buf: &[u8], offset: u64) -> Result<()> {
        let changed = &mut *self.changed.write();
        for (block, range, from) in pieces(offset, buf.len(), BLOCK) {
            let bytes = match changed.blocks.entry(block) {
                std::collections::btree_map::Entry::Occupied(block) => block.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => {
                    let mut bytes = Box::new([0; BLOCK]);
                    if range.len() < BLOCK {
                        bytes.copy_from_slice(&self.read_below(block, changed.below_len)?);
                    }
                    free.insert(bytes)
                }
            };
            bytes[range.clone()].copy_from_slice(&buf[from..from + range.len()]);
        }
        if !buf.is_empty() {
            changed.len = changed.len.max(offset + buf.len() as u64);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) {
        let changed = &mut *self.changed.write();
        let tail = (len % BLOCK as u64) as usize;
        let whole = (len / BLOCK as u64) as usize;
        changed.blocks.split_off(&(whole + usize::from(tail > 0)));
        if let Some(last) = changed.blocks.get_mut(&whole) {
            last[tail..].fill(0);
        }
        changed.below_len = changed.below_len.min(len);
        changed.len = len;
    }
}

/// An open file of an [`Overlay`].
struct OverlayFile {
    path: PathBuf,
    contents: Arc<Contents>,
}

impl OverlayFile {
    fn check(&self, op: &'static str, offset: u64, len: u64) -> Result<()> {
        check_range(offset, len).map_err(|e| Error::io(op, &self.path, e))
    }
}

impl fmt::Debug for OverlayFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OverlayFile").field(&self.path).finish()
    }
}

impl File for OverlayFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.check("read", offset, buf.len() as u64)?;
        self.contents.read(&self.contents.changed.read(), buf, offset)
    }

    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> {
        let changed = self.contents.changed.read();
        let is_below = |(buf, offset): &(&mut [u8], u64)| {
            check_range(*offset, buf.len() as u64).is_ok() && changed.is_below(*offset, buf.len())
        };
        match &self.contents.below {
            Some(below) if parts.iter().all(is_below) => below.read_many(parts),
            _ => {
                let read = |(buf, offset): &mut (&mut [u8], u64)| {
                    self.check("read", *offset, buf.len() as u64)?;
                    self.contents.read(&changed, buf, *offset)
                };
                parts.iter_mut().map(read).collect()
            }
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check("write", offset, buf.len() as u64)?;
        self.contents.write(buf, offset)
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)
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
        Ok(())
    }

    /// Does nothing: it would write dirty pages of the cache below.
    fn read_past_cache(&self) -> Result<()> {
        Ok(())
    }

    fn read_cached(&self) {}

    fn len(&self) -> Result<u64> {
        Ok(self.contents.changed.read().len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check("set the length of", 0, len)?;
        self.contents.set_len(len);
        Ok(())
    }

    /// Grows the file and takes no memory.
    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check("allocate space for", offset, len)?;
        if len > 0 {
            let mut changed = self.contents.changed.write();
            changed.len = changed.len.max(offset + len);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mem;

    /// Returns a file system with one file of `bytes`.
    fn with_file(bytes: &[u8]) -> Arc<dyn Fs> {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        fs.create_dir(Path::new("/d")).unwrap();
        fs.create(Path::new("/d/f")).unwrap().write_at(bytes, 0).unwrap();
        fs
    }

    fn contents(file: &dyn File) -> Vec<u8> {
        let mut bytes = vec![7; usize::try_from(file.len().unwrap()).unwrap()];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    }

    #[test]
    fn a_file_over_another_reads_as_if_it_were_written_and_the_other_stays() {
        let path = Path::new("/d/f");
        let start: Vec<u8> = (0..5 * BLOCK + 100).map(|at| (at % 251) as u8).collect();
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let (below, plain) = (with_file(&start), with_file(&start));
            let overlay = Overlay::new(Arc::clone(&below));
            let (file, model) = (overlay.open(path).unwrap(), plain.open(path).unwrap());
            for step in 0..20 {
                let (offset, len) = (draw(8 * BLOCK as u64), draw(2 * BLOCK as u64) as usize);
                match draw(4) {
                    0 => [&file, &model].map(|file| file.set_len(offset).unwrap()),
                    1 => [&file, &model].map(|file| file.allocate(offset, len as u64).unwrap()),
                    _ => [&file, &model].map(|file| file.write_at(&vec![step; len], offset).unwrap()),
                };
                assert_eq!(contents(&*overlay.open(path).unwrap()), contents(&*model));
                let (mut one, mut other) = (vec![1; len], vec![2; len]);
                let read = file.read_many(&mut [(&mut one, offset)]).remove(0).unwrap();
                assert_eq!(read, model.read_at(&mut other, offset).unwrap());
                assert_eq!(one[..read], other[..read]);
            }
            assert_eq!(contents(&*below.open(path).unwrap()), start);
        }
    }

    #[test]
    fn names_change_above_and_not_below() {
        let below = with_file(b"old");
        let fs = Overlay::new(Arc::clone(&below));
        let (dir, old, new) = (Path::new("/d"), Path::new("/d/f"), Path::new("/d/g"));
        fs.create(new).unwrap().write_at(b"new", 0).unwrap();
        assert!(fs.create(old).is_err());
        assert_eq!(fs.list(dir).unwrap(), ["f", "g"]);
        fs.rename(new, old).unwrap();
        assert_eq!(fs.list(dir).unwrap(), ["f"]);
        assert_eq!(contents(&*fs.open(old).unwrap()), b"new");
        assert!(fs.open(new).is_err());
        fs.remove(old).unwrap();
        assert_eq!((fs.kind(old).unwrap(), fs.list(dir).unwrap().len()), (None, 0));
        assert!(fs.remove(old).is_err() && fs.create_dir(&dir.join("inner")).is_err());
        assert_eq!(below.list(dir).unwrap(), ["f"]);
        assert_eq!(contents(&*below.open(old).unwrap()), b"old");
    }

    #[test]
    fn overlays_share_the_lock_and_an_opener_for_writes_has_it_alone() {
        let below = with_file(b"");
        let lock = Path::new("/d/LOCK");
        let overlays = [Overlay::new(Arc::clone(&below)), Overlay::new(Arc::clone(&below))];
        assert!(overlays[0].lock(lock).is_err(), "there is no such file");
        let alone = below.lock(lock).unwrap();
        assert!(matches!(overlays[0].lock(lock), Err(Error::Locked { .. })));
        drop(alone);
        let [first, second] = [&overlays[0], &overlays[1]].map(|fs| fs.lock(lock).unwrap());
        assert!(matches!(below.lock(lock), Err(Error::Locked { .. })));
        drop(first);
        assert!(matches!(below.lock(lock), Err(Error::Locked { .. })));
        drop(second);
        drop(below.lock(lock).unwrap());
    }
}

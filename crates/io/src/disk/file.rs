//! An open file of the operating system.

#[cfg(feature = "uring")]
use super::uring::Ring;
use super::{
    descriptor::Descriptor,
    handle::Handle,
    many::{self, Op, Workers},
};
use crate::{
    AlignedBuf, File, os,
    retry::{self, RawFile, uninterrupted},
    syncs::Syncs,
};
use foreshore_base::{Error, Result, limits::BLOCK};
use rustix::{fd::OwnedFd, fs, io::Errno};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes of zeros written at once where the file system cannot allocate space.
const ZEROS: usize = 64 * BLOCK;

/// A file opened by [`Disk`](crate::Disk).
#[derive(Debug)]
pub(super) struct DiskFile {
    handle: Handle,
    path: PathBuf,
    /// The workers for batches. Without them the caller does one part after another.
    workers: Option<Arc<Workers>>,
    syncs: Syncs,
    /// Whether another process writes the file, and this one only reads it.
    read_only: bool,
}

impl DiskFile {
    pub(super) fn new(fd: OwnedFd, path: PathBuf, direct: bool) -> Self {
        let handle = Handle::new(Descriptor::new(fd, direct));
        Self { handle, path, workers: None, syncs: Syncs::new(), read_only: false }
    }

    /// Marks the file as written by another process, so that its page cache is left alone.
    pub(super) fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Lets `workers` read and write batches.
    pub(super) fn with_workers(mut self, workers: Arc<Workers>) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sends durable writes through `ring`.
    #[cfg(feature = "uring")]
    pub(super) fn with_ring(mut self, ring: Option<Arc<Ring>>) -> Self {
        self.handle.own.ring = ring;
        self
    }

    fn error(&self, op: &'static str, e: io::Error) -> Error {
        Error::io(op, &self.path, e)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(os::sync_data(&self.handle.own.fd)?)
    }

    /// Writes zeros from the end of the file up to `end`, for file systems without `fallocate`.
    fn grow_by_zeros(&self, end: u64) -> io::Result<()> {
        let zeros = AlignedBuf::new(ZEROS);
        let mut at = self.handle.own.length()?;
        while at < end {
            let n = zeros.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            retry::write_full(&self.handle.own, &zeros[..n], at, false)?;
            at += n as u64;
        }
        Ok(())
    }
}

impl File for DiskFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.handle.read_full(buf, offset).map_err(|e| self.error("read", e))
    }

    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> {
        let read = match &self.workers {
            // One part alone does not queue behind the writes of other batches.
            Some(workers) if parts.len() > 1 => many::read(workers, &self.handle, parts),
            _ => parts.iter_mut().map(|(buf, offset)| self.handle.read_full(buf, *offset)).collect(),
        };
        read.into_iter().map(|read| read.map_err(|e| self.error("read", e))).collect()
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        retry::write_full(&self.handle.own, buf, offset, false).map_err(|e| self.error("write", e))
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        let write = || retry::write_full(&self.handle.own, buf, offset, self.handle.own.direct);
        let written = match self.handle.own.direct {
            // The kernel may report lost pages of the open file to such a write, and then no longer to a sync.
            true => write().inspect_err(|e| self.syncs.note_failure(e)),
            false => self.syncs.write_durable(write, || self.sync_data()),
        };
        written.map_err(|e| self.error("write", e))
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        match &self.workers {
            Some(workers) => {
                let mut written = many::write(workers, &self.handle, Op::Write, parts).into_iter();
                written.try_for_each(|written| written.map(drop)).map_err(|e| self.error("write", e))
            }
            None => parts.iter().try_for_each(|&(buf, offset)| self.write_at(buf, offset)),
        }
    }

    fn writes_whole(&self, len: usize) -> bool {
        let lens = if self.handle.own.direct { os::whole_lengths(&self.handle.own.fd) } else { None };
        len.is_power_of_two() && lens.is_some_and(|lens| lens.contains(&len))
    }

    fn write_whole(&self, parts: &[(&[u8], u64)]) -> Result<bool> {
        let Some(workers) = &self.workers else { return Ok(false) };
        let written = many::write(workers, &self.handle, Op::WriteWhole, parts).into_iter();
        // A refused part must not hide the error of another.
        let written: io::Result<Vec<_>> = written.collect();
        written.map(|written| written.iter().all(|&is_whole| is_whole > 0)).map_err(|e| self.error("write", e))
    }

    fn sync(&self) -> Result<()> {
        self.syncs.sync_all(|| self.sync_data()).map_err(|e| self.error("sync", e))
    }

    fn read_past_cache(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.handle.read_past_cache(&self.path).map_err(|e| self.error("read past the cache", e))
    }

    fn read_cached(&self) {
        self.handle.read_cached();
    }

    fn len(&self) -> Result<u64> {
        self.handle.own.length().map_err(|e| self.error("stat", e))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        retry::check_range(0, len)
            .and_then(|()| uninterrupted(|| Ok(fs::ftruncate(&self.handle.own.fd, len)?)))
            .map_err(|e| self.error("set the length of", e))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        retry::check_range(offset, len).map_err(|e| self.error("allocate space for", e))?;
        if len == 0 {
            return Ok(());
        }
        loop {
            match os::allocate(&self.handle.own.fd, offset, len) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => break self.grow_by_zeros(offset + len),
                result => break result.map_err(io::Error::from),
            }
        }
        .map_err(|e| self.error("allocate space for", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_sync_fails_the_file_and_forgives_later_durable_writes() {
        let open = |path: &Path| fs::open(path, fs::OFlags::RDWR | fs::OFlags::CREATE, fs::Mode::RUSR).unwrap();
        let path = std::env::temp_dir().join(format!("foreshore-sync-{}", std::process::id()));
        // A device that cannot be synced stands for one that fails once.
        let mut file = DiskFile::new(open("/dev/null".as_ref()), path.clone(), false);
        let failure = |file: &DiskFile| format!("{:?}", file.sync().unwrap_err());
        let first = failure(&file);
        assert!(file.write_durable(&[1], 0).is_err());
        file.handle.own.fd = open(&path);
        os::sync_data(&file.handle.own.fd).unwrap();
        assert_eq!(failure(&file), first);
        file.write_durable(&[1], 0).unwrap();
        assert_eq!(failure(&file), first);
        DiskFile::new(open(&path), path.clone(), false).sync().unwrap();
        std::fs::remove_file(path).unwrap();
    }
}

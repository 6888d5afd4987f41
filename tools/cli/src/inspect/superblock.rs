//! The newest superblock of a database, read without opening the database.

use crate::exit::Failure;
use foreshore::Error;
use foreshore_io::{AlignedBuf, Fs, Kind, ReadOnly};
use foreshore_space::SuperBlock;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database directory that is read while another process may use it.
pub(crate) struct Directory {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) superblock: SuperBlock,
    path: PathBuf,
}

impl Directory {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let fs: Arc<dyn Fs> = Arc::new(ReadOnly::new(path).map_err(Failure::unopened)?);
        let (data, unfinished) = (path.join("data"), path.join("UNFINISHED"));
        let kind = |path: &Path| fs.kind(path).map_err(Failure::unopened);
        if kind(&data)? != Some(Kind::File) || kind(&unfinished)?.is_some() {
            return Err(Failure::Unopened(Error::NoDatabase { path: path.to_owned() }));
        }
        let newest = fs.open(&data).and_then(|data| SuperBlock::read_newest_for_reading(&*data));
        let (superblock, _) = newest.map_err(Failure::unopened)?;
        Ok(Self { fs, superblock, path: path.to_owned() })
    }

    /// Returns the directory of the log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    /// Reads `len` bytes of a file, or fewer at its end.
    pub(crate) fn read(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = AlignedBuf::new(len);
        let file = self.fs.open(&self.path.join(name)).map_err(Failure::unopened)?;
        let count = file.read_at(&mut bytes, offset).map_err(Failure::unopened)?;
        Ok(bytes[..count].to_vec())
    }

    /// Returns the length of a file in bytes.
    pub(crate) fn len(&self, name: &str) -> Result<u64, Failure> {
        self.fs.open(&self.path.join(name)).and_then(|file| file.len()).map_err(Failure::unopened)
    }
}

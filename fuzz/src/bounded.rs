//! A disk that is full where a file would be longer than any input needs. A page id from a damaged file may be far
//! beyond the end of the data file. A file system answers that with a sparse file, the simulated disk with memory.

use foreshore_base::{Error, Result};
use foreshore_io::{File, FileLayer, Fs, FsLayer, Sim};
use std::sync::Arc;

/// Bytes that a file may have.
const LONGEST: u64 = 1 << 30;

/// The disk.
#[derive(Debug)]
pub struct Bounded(pub Sim);

#[derive(Debug)]
struct BoundedFile(Arc<dyn File>);

impl FsLayer for Bounded {
    fn below(&self) -> &dyn Fs {
        &self.0
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(BoundedFile(file))
    }
}

impl BoundedFile {
    fn check(&self, end: u64) -> Result<()> {
        if end <= LONGEST {
            return Ok(());
        }
        Err(Error::DiskFull { path: self.0.path().to_owned(), held_by: None })
    }
}

impl FileLayer for BoundedFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check(offset.saturating_add(buf.len() as u64))?;
        self.0.write_at(buf, offset)
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check(offset.saturating_add(buf.len() as u64))?;
        self.0.write_durable(buf, offset)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check(len)?;
        self.0.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check(offset.saturating_add(len))?;
        self.0.allocate(offset, len)
    }
}

//! The directory of a log.

use crate::format::{SegmentHeader, number_of, segment_name};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, Result, Uuid};
use foreshore_io::{AlignedBuf, File, Fs};
use std::path::PathBuf;
use std::sync::Arc;

/// The directory and identity of one log.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) uuid: Uuid,
}

impl Home {
    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        self.dir.join(segment_name(number))
    }

    /// Opens segment `number` and checks its header and length.
    pub(crate) fn open_segment(&self, number: u64) -> Result<(Arc<dyn File>, u64)> {
        self.check_segment(number, self.fs.open(&self.segment_path(number))?)
    }

    /// Opens segment `number` for recovery: reads go past the page cache, which may show groups whose sync has failed.
    pub(crate) fn open_past_cache(&self, number: u64) -> Result<Arc<dyn File>> {
        let file = self.fs.open(&self.segment_path(number))?;
        file.read_past_cache()?;
        Ok(file)
    }

    /// Checks header and length of segment `number`.
    pub(crate) fn check_segment(&self, number: u64, file: Arc<dyn File>) -> Result<(Arc<dyn File>, u64)> {
        let path = file.path().to_owned();
        let mut block = AlignedBuf::new(BLOCK);
        let read = file.read_at(&mut block, 0)?;
        let header = SegmentHeader::decode(&block[..read], &path, self.uuid)?;
        if header.number != number {
            return Err(Error::Foreign { path, why: "it carries the number of another segment" });
        }
        let len = file.len()?;
        if len < header.size {
            return Err(Error::Truncated { file: path, len, expected: header.size });
        }
        Ok((file, header.size))
    }

    /// Returns the numbers of the segments in the directory, ascending.
    pub(crate) fn segment_numbers(&self) -> Result<Vec<u64>> {
        let names = self.fs.list(&self.dir)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name, ".seg")).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

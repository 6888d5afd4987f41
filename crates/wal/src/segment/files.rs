//! The creation and recycling of segment files.

use super::home::Home;
use super::list::Spare;
use crate::format::{SegmentHeader, temporary_name};
use foreshore_base::Result;
use foreshore_base::limits::BLOCK;
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use std::cmp;
use std::sync::Arc;

/// Bytes zeroed by one write.
const PIECE: usize = 1 << 20;

/// A maker of segment files of one size.
#[derive(Debug)]
pub(crate) struct Files {
    pub(super) home: Home,
    pub(super) size: u64,
    /// Whether blocks are written and not only allocated. A write into an unwritten extent changes the metadata of the
    /// file, so every group would cost a write to the journal of the file system.
    zero_fill: bool,
}

impl Files {
    /// Makes segments of `size` bytes in `home`.
    pub(crate) fn new(home: Home, size: u64) -> Self {
        Self { zero_fill: home.fs.backend().durable, home, size }
    }

    /// Creates segment `number`: allocates its blocks, writes its header, and makes its name durable.
    pub(crate) fn create(&self, number: u64) -> Result<Arc<dyn File>> {
        let (fs, temporary) = (&self.home.fs, self.home.dir.join(temporary_name(number)));
        if fs.kind(&temporary)?.is_some() {
            fs.remove(&temporary)?;
        }
        let file = fs.create(&temporary)?;
        self.grow(&*file, 0).and_then(|()| self.finish(&*file, number)).inspect_err(|_| {
            // The partial file only takes space. A failure of the removal matters less than the first error.
            let _ = fs.remove(&temporary);
        })
    }

    /// Reuses the file `spare` for segment `number`, with a durable name and header. They are written even if they are
    /// the same, because a sync of the run before may have failed. The old groups in the file continue no chain, so
    /// readers skip them. After a failure the file mostly has its old name and header.
    pub(super) fn recycle(&self, spare: Spare, number: u64) -> Result<Arc<dyn File>> {
        let (fs, old) = (&self.home.fs, self.home.segment_path(spare.number));
        let temporary = self.home.dir.join(temporary_name(number));
        fs.rename(&old, &temporary)?;
        pause::point("wal: a segment is taken for another");
        let finished = fs.open(&temporary).and_then(|file| {
            match spare.size.cmp(&self.size) {
                cmp::Ordering::Less => self.grow(&*file, spare.size)?,
                cmp::Ordering::Equal => {}
                cmp::Ordering::Greater => file.set_len(self.size)?,
            }
            self.finish(&*file, number)
        });
        finished.inspect_err(|_| {
            // A failure of the removals matters less than the first error.
            let names = [temporary, self.home.segment_path(number)];
            let _ = names.iter().any(|name| fs.rename(name, &old).is_ok());
        })
    }

    /// Allocates the blocks of a file from `from` on.
    fn grow(&self, file: &dyn File, from: u64) -> Result<()> {
        assert!(from < self.size, "a segment grows from {from} to {} bytes", self.size);
        let missing = self.size - from;
        file.allocate(from, missing)?;
        if self.zero_fill {
            let zeros = AlignedBuf::new(PIECE.min(usize::try_from(missing).unwrap_or(PIECE)));
            let mut at = from;
            while at < self.size {
                let len = (zeros.len() as u64).min(self.size - at);
                file.write_at(&zeros[..len as usize], at)?;
                at += len;
            }
        }
        Ok(())
    }

    /// Writes the header, syncs, and renames the file to its name.
    pub(crate) fn finish(&self, file: &dyn File, number: u64) -> Result<Arc<dyn File>> {
        let Home { fs, dir, uuid } = &self.home;
        let mut block = AlignedBuf::new(BLOCK);
        block.copy_from_slice(&SegmentHeader { uuid: *uuid, number, size: self.size }.encode());
        file.write_at(&block, 0)?;
        file.sync()?;
        pause::point("wal: a segment is filled");
        let path = self.home.segment_path(number);
        fs.rename(&dir.join(temporary_name(number)), &path)?;
        pause::point("wal: a segment has its name");
        if !mutant("sabotage: the name of a segment is not synced") {
            fs.sync_dir(dir)?;
        }
        fs.open(&path)
    }
}

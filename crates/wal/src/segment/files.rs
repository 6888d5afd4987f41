//! Making and recycling segment files.

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

/// Makes segment files of one size.
#[derive(Debug)]
pub(crate) struct Files {
    pub(super) home: Home,
    pub(super) size: u64,
    /// Whether blocks are written, not only reserved. A write into a reserved but unwritten extent changes the metadata
    /// of the file, and then every group would pay for the journal of the file system.
    zero_fill: bool,
}

impl Files {
    /// Makes segments of `size` bytes in `home`.
    pub(crate) fn new(home: Home, size: u64) -> Self {
        Self { zero_fill: home.fs.backend().durable, home, size }
    }

    /// Makes segment `number`: its blocks are there, its header is written, and its name is durable.
    pub(crate) fn create(&self, number: u64) -> Result<Arc<dyn File>> {
        let (fs, temporary) = (&self.home.fs, self.home.dir.join(temporary_name(number)));
        if fs.kind(&temporary)?.is_some() {
            fs.remove(&temporary)?;
        }
        let file = fs.create(&temporary)?;
        self.grow(&*file, 0).and_then(|()| self.finish(&*file, number)).inspect_err(|_| {
            // What was made of it would only take space; the error at hand says more than a failure of this.
            let _ = fs.remove(&temporary);
        })
    }

    /// Gives the file `spare` to segment `number`, under a name and header that are certainly durable. They are written
    /// also if they are the same: a sync of the run before may have failed. Groups inside keep numbers and checksums
    /// that continue no chain from here on, so readers pass them over. After a failure the file mostly is where it was,
    /// with the old header.
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
            // The error at hand says more than a failure of these.
            let names = [temporary, self.home.segment_path(number)];
            let _ = names.iter().any(|name| fs.rename(name, &old).is_ok());
        })
    }

    /// Gives a file its blocks from `from` on.
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

    /// Writes the header, syncs and gives the file its name.
    fn finish(&self, file: &dyn File, number: u64) -> Result<Arc<dyn File>> {
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

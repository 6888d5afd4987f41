//! Reading and writing the two superblock slots.
//!
//! A slot is overwritten only while the other one is sound, so one sound slot exists at every moment. The log that the
//! older slot needs is kept, so falling back to it works.

use crate::format::{SUPERBLOCK_VERSION, Slot, SuperBlock};
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Error, Place, Result};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::model::mutant;

/// Byte offset of slot 0 or 1.
const fn slot_offset(slot: u64) -> u64 {
    slot * PAGE_SIZE as u64
}

fn read_slot(file: &dyn File, slot: u64) -> Result<Slot> {
    let mut buf = AlignedBuf::new(BLOCK);
    let read = file.read_at(&mut buf, slot_offset(slot))?;
    Ok(match SuperBlock::decode(&buf[..read]) {
        // Written to the wrong place: believing it would let the next one overwrite the only sound slot.
        Slot::Sound(superblock) if superblock.slot() != slot => Slot::Damaged,
        other => other,
    })
}

impl SuperBlock {
    /// Reads both slots of the data file: the newest sound superblock, and the older one if it is sound too.
    ///
    /// # Errors
    /// - `Foreign` if neither slot has the magic, or the page size is another one
    /// - `Newer` for a version, a flag or a feature unknown to this build
    /// - `Corrupted` if no slot is sound
    /// - `Truncated` if the file is shorter than it must be.
    pub fn read_newest(file: &dyn File) -> Result<(Self, Option<Self>)> {
        Self::read(file, |superblock| superblock.write_features == 0)
    }

    /// Does the same as [`read_newest`](Self::read_newest) for a caller that does not write to the file, nor copies it.
    /// It needs to know no feature of writers.
    ///
    /// # Errors
    /// Those of [`read_newest`](Self::read_newest).
    pub fn read_newest_for_reading(file: &dyn File) -> Result<(Self, Option<Self>)> {
        Self::read(file, |_| true)
    }

    fn read(file: &dyn File, is_known: impl Fn(&Self) -> bool) -> Result<(Self, Option<Self>)> {
        let newer = |found| Error::Newer { path: file.path().to_owned(), found, supported: SUPERBLOCK_VERSION };
        let slots = [read_slot(file, 0)?, read_slot(file, 1)?];
        let mut sound = Vec::with_capacity(2);
        for slot in &slots {
            match slot {
                Slot::Newer(found) => return Err(newer(*found)),
                Slot::Sound(superblock) if !is_known(superblock) => return Err(newer(SUPERBLOCK_VERSION + 1)),
                Slot::PageSize => {
                    let why = "its pages have another size";
                    return Err(Error::Foreign { path: file.path().to_owned(), why });
                }
                Slot::Sound(superblock) => sound.push(superblock.clone()),
                Slot::Damaged | Slot::Foreign => {}
            }
        }
        sound.sort_by_key(|superblock| superblock.seq);
        let newest = match sound.pop() {
            Some(newest) => newest,
            None if slots.contains(&Slot::Damaged) => {
                return Err(Error::corrupted(file.path(), Place::File, "no superblock is sound"));
            }
            None => return Err(Error::Foreign { path: file.path().to_owned(), why: "it has no superblock" }),
        };
        let older = sound.pop();
        if older.as_ref().is_some_and(|older| older.uuid != newest.uuid || older.seq == newest.seq) {
            return Err(Error::corrupted(file.path(), Place::File, "the superblocks contradict each other"));
        }
        let (len, expected) = (file.len()?, newest.data_pages.saturating_mul(PAGE_SIZE as u64));
        if len < expected {
            return Err(Error::Truncated { file: file.path().to_owned(), len, expected });
        }
        Ok((newest, older))
    }

    /// Writes this superblock with `seq + 1` over the slot that does not hold the newest, and makes it durable.
    /// `self.seq` is that of the newest one on disk, or 0 in a file that has none. Returns what has been written.
    ///
    /// The length and all pages that the superblock speaks of are made durable first.
    ///
    /// # Errors
    /// `Io` or `DiskFull`: the newest superblock is then the old one or the new one.
    pub fn write_next(&self, file: &dyn File) -> Result<Self> {
        file.sync()?;
        self.write_synced(file)
    }

    /// Does the same as [`write_next`](Self::write_next) in a file that the caller has synced.
    ///
    /// # Errors
    /// Those of [`write_next`](Self::write_next).
    pub fn write_synced(&self, file: &dyn File) -> Result<Self> {
        let next = Self { seq: self.seq + 1, ..self.clone() };
        let mut buf = AlignedBuf::new(BLOCK);
        next.encode(&mut buf);
        match mutant("sabotage: a superblock is written without a sync") {
            true => file.write_at(&buf, slot_offset(next.slot()))?,
            false => file.write_durable(&buf, slot_offset(next.slot()))?,
        }
        Ok(next)
    }

    /// The slot of a sequence number. Numbers alternate, and the newest one is never written over.
    const fn slot(&self) -> u64 {
        self.seq % 2
    }
}

#[cfg(test)]
mod tests;

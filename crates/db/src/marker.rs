//! The file `UNFINISHED`: marks an interrupted creation, which the next open removes.
//!
//! It holds the superblock of the new database, whose uuid goes into every file. Creation:
//!
//! 1. The marker and its name are written durably. No other file exists yet.
//! 2. Log, doublewrite file and `data` are created, with the same superblock. The log of the first pages is made
//!    durable.
//! 3. The name of the marker is removed, durably.
//! 4. The first checkpoint is taken, and a superblock names it. `open` returns.
//!
//! **Invariant:** nothing that was acknowledged is removed. A marker counts only if no other file exists, or if all of
//! these hold, as they do before step 3:
//!
//! - `data` and log carry the uuid of the marker, or end before it.
//! - No superblock names a checkpoint.
//! - The log holds no record of a transaction or a checkpoint.
//!
//! A stray file of that name fails the first of these, whatever else is damaged or missing.

use crate::files::Files;
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Error, GroupNo, Lsn, Result, Uuid};
use foreshore_buffer::format::{ChangeRecord, TRANSACTION_KINDS};
use foreshore_io::{Fs, Kind};
use foreshore_space::SuperBlock;
use foreshore_wal::Follower;
use std::sync::Arc;

/// Writes the marker of a creation, durably. No other file exists.
pub(crate) fn write(fs: &dyn Fs, files: &Files, superblock: &SuperBlock) -> Result<()> {
    let marker = match fs.kind(&files.unfinished)? {
        None => fs.create(&files.unfinished)?,
        Some(_) => fs.open(&files.unfinished)?,
    };
    // The contents of an earlier marker mean nothing to this creation.
    marker.set_len(0)?;
    superblock.write_next(&*marker)?;
    fs.sync_dir(&files.dir)
}

/// Checks that the files beside the marker may be removed, and writes nothing.
///
/// # Errors
/// `Foreign` if the marker does not belong to the other files; otherwise their damage, or the error of the read.
pub(crate) fn check(fs: &Arc<dyn Fs>, files: &Files) -> Result<()> {
    if is_alone(&**fs, files)? {
        return Ok(());
    }
    let stray = |why| Error::Foreign { path: files.unfinished.clone(), why };
    if fs.kind(&files.unfinished)? != Some(Kind::File) {
        return Err(stray("a directory stands in the place of a file"));
    }
    let uuid = match SuperBlock::read_newest(&*fs.open(&files.unfinished)?) {
        Ok((superblock, _)) => superblock.uuid,
        Err(Error::Foreign { .. } | Error::Corrupted { .. } | Error::Truncated { .. }) => {
            return Err(stray("no creation of a database has written it; remove it to open what lies beside it"));
        }
        Err(error) => return Err(error),
    };
    let is_begun = is_begun_data(&**fs, files, uuid)? && is_begun_log(fs, files, uuid)?;
    if is_begun { Ok(()) } else { Err(stray("a complete database lies beside it; remove it to open that")) }
}

/// Returns whether the marker is the only file.
fn is_alone(fs: &dyn Fs, files: &Files) -> Result<bool> {
    let has_log = match fs.kind(&files.log)? {
        Some(Kind::Dir) => !fs.list(&files.log)?.is_empty(),
        other => other.is_some(),
    };
    Ok(!has_log && fs.kind(&files.data)?.is_none() && fs.kind(&files.doublewrite)?.is_none())
}

/// Returns whether `data` is missing, or is in the state of a creation before its first checkpoint.
fn is_begun_data(fs: &dyn Fs, files: &Files, uuid: Uuid) -> Result<bool> {
    if fs.kind(&files.data)?.is_none() {
        return Ok(true);
    }
    let data = fs.open(&files.data)?;
    match SuperBlock::read_newest(&*data) {
        Ok((newest, older)) => Ok(older.is_none() && newest.uuid == uuid && newest.checkpoint_lsn == Lsn::ZERO),
        // Power was lost before the first superblock was durable: the file has nothing else.
        Err(Error::Foreign { .. } | Error::Corrupted { .. }) if data.len()? <= (PAGE_SIZE + BLOCK) as u64 => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns whether the log has no control file yet, or only records of a creation before its first checkpoint.
fn is_begun_log(fs: &Arc<dyn Fs>, files: &Files, uuid: Uuid) -> Result<bool> {
    if fs.kind(&files.log.join("ctl"))?.is_none() {
        return Ok(true);
    }
    let mut follower = Follower::open(fs, &files.log, uuid, GroupNo::ZERO)?;
    while let Some(record) = follower.read()? {
        let change = ChangeRecord::decode(&record.payload);
        if change.map_or(true, |change| TRANSACTION_KINDS.contains(&change.kind)) {
            return Ok(false);
        }
    }
    Ok(true)
}

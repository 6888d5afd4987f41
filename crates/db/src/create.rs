//! Creation of the files of a database, and removal of those of a creation that did not finish.

use crate::files::Files;
use crate::marker;
use foreshore_base::{Error, GroupNo, Lsn, Place, Result, Uuid, Xid};
use foreshore_buffer::Pool;
use foreshore_io::{Fs, Kind};
use foreshore_space::{BackupMark, SuperBlock};
use foreshore_sync::pause;
use foreshore_wal::{Log, LogOptions};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

/// Contents of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// No file of a database.
    Nothing,
    /// Files of a creation that did not finish.
    Unfinished,
    /// A database.
    Database,
}

/// Creates the directory of a database, durably, unless it exists.
///
/// # Errors
/// `Foreign` if a file stands in its place.
pub(crate) fn create_dir(fs: &dyn Fs, dir: &Path) -> Result<()> {
    match fs.kind(dir)? {
        Some(Kind::Dir) => Ok(()),
        Some(Kind::File) => {
            Err(Error::Foreign { path: dir.to_owned(), why: "a file stands in the place of the directory" })
        }
        None => {
            fs.create_dir(dir)?;
            // The parent of a relative path of one name is the current directory.
            dir.parent().map_or(Ok(()), |parent| {
                let is_here = parent.as_os_str().is_empty();
                fs.sync_dir(if is_here { Path::new(".") } else { parent })
            })
        }
    }
}

/// Finds out what the directory holds, and writes nothing.
///
/// # Errors
/// - `Corrupted` if some files of a database are there and others are missing.
/// - `Foreign` if a file stands in the place of a directory or the reverse, or if `UNFINISHED` does not belong to
///   the other files.
pub(crate) fn contents(files: &Files, fs: &Arc<dyn Fs>) -> Result<Contents> {
    if fs.kind(&files.unfinished)?.is_some() {
        return marker::check(fs, files).map(|()| Contents::Unfinished);
    }
    let wanted = [(&files.data, Kind::File), (&files.log, Kind::Dir), (&files.doublewrite, Kind::File)];
    let mut missing = None;
    let mut found = 0;
    for (path, kind) in wanted {
        match fs.kind(path)? {
            None => missing = Some(path),
            Some(is) if is == kind => found += 1,
            Some(_) => {
                let why = "a file stands in the place of a directory, or a directory in that of a file";
                return Err(Error::Foreign { path: path.clone(), why });
            }
        }
    }
    match (found, missing) {
        (0, _) if fs.kind(&files.stamps)?.is_none() => Ok(Contents::Nothing),
        // It is what is left of a database.
        (0, Some(path)) => Err(Error::corrupted(path, Place::File, "the file is missing")),
        (_, None) => Ok(Contents::Database),
        (_, Some(path)) => {
            check_owner(files, &**fs)?;
            Err(Error::corrupted(path, Place::File, "the file is missing"))
        }
    }
}

/// Returns an error if `data`, log or doublewrite file do not belong to a database.
fn check_owner(files: &Files, fs: &dyn Fs) -> Result<()> {
    if fs.kind(&files.data)?.is_some() {
        return match SuperBlock::read_newest(&*fs.open(&files.data)?) {
            Err(error @ Error::Foreign { .. }) => Err(error),
            _ => Ok(()),
        };
    }
    let has_doublewrite = fs.kind(&files.doublewrite)?.is_some();
    if has_doublewrite || fs.list(&files.log)?.iter().any(|name| name == "ctl" || name.ends_with(".seg")) {
        return Ok(());
    }
    Err(Error::Foreign { path: files.log.clone(), why: "it holds no file of a log" })
}

/// Removes the files of an unfinished creation, backup or restore, except its marker, durably.
pub(crate) fn clear(files: &Files, fs: &dyn Fs) -> Result<()> {
    let remove = |path: &Path| if fs.kind(path)?.is_some() { fs.remove(path) } else { Ok(()) };
    remove(&files.data)?;
    // Before the rest: without a superblock it is no database, even if the marker is gone.
    fs.sync_dir(&files.dir)?;
    remove(&files.doublewrite)?;
    remove(&files.stamps)?;
    remove(&files.stamps.with_extension("tmp"))?;
    if fs.kind(&files.log)? == Some(Kind::Dir) {
        // Removed first and durably. Without it there is no log, whatever other files of it survive power loss.
        let control = files.log.join("ctl");
        if fs.kind(&control)?.is_some() {
            fs.remove(&control)?;
            fs.sync_dir(&files.log)?;
        }
        for name in fs.list(&files.log)? {
            fs.remove(&files.log.join(name))?;
        }
        fs.sync_dir(&files.log)?;
    }
    fs.sync_dir(&files.dir)
}

/// Creates the files of a new database, the marker first: while it exists, the next open starts over.
pub(crate) fn create(files: &Files, fs: &Arc<dyn Fs>, contents: Contents, options: &LogOptions) -> Result<()> {
    if contents == Contents::Unfinished {
        clear(files, &**fs)?;
    }
    let uuid = new_uuid();
    let superblock = SuperBlock {
        uuid,
        seq: 0,
        checkpoint_lsn: Lsn::ZERO,
        checkpoint_group: GroupNo::ZERO,
        // A restart before the first checkpoint reads all of the log.
        scan_start: Log::FIRST_GROUP,
        redo_start: Log::FIRST_GROUP,
        data_pages: 0,
        xid_ceiling: Xid(1),
        clean: false,
        features: 0,
        write_features: 0,
        created: 0,
        restart_speed: 0,
        quarantined: Vec::new(),
        backups: BackupMark::default(),
    };
    marker::write(&**fs, files, &superblock)?;
    pause::point("create: the marker is durable");
    Log::create(fs, &files.log, uuid, options)?;
    pause::point("create: the log is there");
    Pool::create_files(&*fs.create(&files.doublewrite)?, uuid)?;
    superblock.write_next(&*fs.create(&files.data)?)?;
    pause::point("create: all files are there");
    fs.sync_dir(&files.dir)
}

/// 128 bits from the hash keys that the standard library draws from the system.
pub(crate) fn new_uuid() -> Uuid {
    let mut bytes = [0; 16];
    for half in bytes.chunks_exact_mut(8) {
        half.copy_from_slice(&RandomState::new().hash_one(half.len()).to_le_bytes());
    }
    Uuid(bytes)
}

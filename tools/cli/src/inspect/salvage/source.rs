//! The damaged database, which is only read.

use super::target::create_dir;
use crate::exit::Failure;
use foreshore::{Db, Error, Options};
use foreshore_io::{Fs, ReadOnly};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Opens the database for reading. If it was not closed, recovers a copy in `copy`.
pub(super) fn open(options: &Options, dir: &Path, copy: &Path) -> Result<Db, Failure> {
    match options.open_read_only(dir) {
        Err(Error::NotClosed { .. }) => {
            copy_files(dir, copy)?;
            options.open_existing(copy)
        }
        opened => opened,
    }
    .map_err(Failure::unopened)
}

/// Copies the files of a database. No process has it open for writing meanwhile.
fn copy_files(dir: &Path, copy: &Path) -> Result<(), Failure> {
    let reader = ReadOnly::new(dir).map_err(Failure::unopened)?;
    let _lock = reader.lock_shared(&dir.join("LOCK")).map_err(Failure::unopened)?;
    copy_dir(dir, copy).map_err(|error| Error::io("copy", dir, error).into())
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        // Links are followed, as the engine does: the log may lie on another device.
        if fs::metadata(&from)?.is_dir() {
            copy_dir(&from, &to)?;
        } else {
            fs::copy(from, &to)?;
            // Files may be read-only, and recovery writes to their copies.
            fs::set_permissions(to, Permissions::from_mode(0o600))?;
        }
    }
    Ok(())
}

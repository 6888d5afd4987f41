//! The damaged database, which is only read.

use super::target::create_dir;
use crate::exit::Failure;
use foreshore::{Db, Error, Options};
use foreshore_io::{Fs, ReadOnly};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Opens the database for reading. If it was not closed, recovers a copy in `copy`. If the end of a file of pages is
/// missing, the copy gets zeros in its place.
pub(super) fn open(options: &Options, dir: &Path, copy: &Path) -> Result<Db, Failure> {
    let mut opened = options.open_read_only(dir);
    if matches!(opened, Err(Error::NotClosed { .. } | Error::Truncated { .. })) {
        copy_files(dir, copy)?;
    }
    // Each of the two files once.
    for _ in 0..2 {
        let Err(Error::Truncated { file, expected, .. }) = &opened else { break };
        let file = file.strip_prefix(dir).map_or_else(|_| file.clone(), |name| copy.join(name));
        let extended = File::options().write(true).open(&file).and_then(|file| file.set_len(*expected));
        extended.map_err(|error| Error::io("extend", file, error))?;
        opened = options.open_read_only(copy);
    }
    if matches!(opened, Err(Error::NotClosed { .. })) {
        let recovered = options.open_existing(copy).and_then(|db| db.close(Duration::from_secs(60)));
        opened = recovered.and_then(|()| options.open_read_only(copy));
    }
    // A prepared transaction is left.
    if matches!(opened, Err(Error::NotClosed { .. })) {
        opened = options.open_existing(copy);
    }
    opened.map_err(Failure::unopened)
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

//! The directory of the new database.
//!
//! The new database is made in a directory beside it, `OUT.unfinished`. When it is closed, it gets its name by one
//! rename. So after a crash `OUT` is a whole database or none.

use crate::exit::Failure;
use foreshore::Error;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A new database that is not finished. Its directory is removed on drop.
pub(super) struct Target {
    out: PathBuf,
    unfinished: PathBuf,
}

impl Target {
    /// Begins a database for `out`, which is missing or empty, and does not lie in `dir`.
    pub(super) fn create(dir: &Path, out: &Path) -> Result<Self, Failure> {
        let failed = |op| move |error| Failure::from(Error::io(op, out, error));
        match fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => return Err(Error::NotEmpty { dir: out.to_owned() }.into()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(Failure::Refused(format!("{} is no directory", out.display())));
            }
            Err(error) => return Err(failed("read")(error)),
        }
        let Some(name) = out.file_name() else {
            return Err(Failure::Refused(format!("{} cannot name a new directory", out.display())));
        };
        let parent = fs::canonicalize(parent_of(out)).map_err(failed("find the directory of"))?;
        if fs::canonicalize(dir).is_ok_and(|dir| parent.starts_with(dir)) {
            return Err(Failure::Refused(format!("{} lies in {}", out.display(), dir.display())));
        }
        let mut unfinished = name.to_owned();
        unfinished.push(".unfinished");
        let unfinished = out.with_file_name(unfinished);
        match create_dir(&unfinished) {
            Ok(()) => {
                let target = Self { out: out.to_owned(), unfinished };
                target.check_replaceable()?;
                Ok(target)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Failure::Refused(format!(
                "{} exists: another salvage runs, or did not finish. Then remove it",
                unfinished.display()
            ))),
            Err(error) => Err(Error::io("create", unfinished, error).into()),
        }
    }

    /// Checks that an empty directory `out` can be replaced at the end. A mount point cannot, nor a link.
    fn check_replaceable(&self) -> Result<(), Failure> {
        let Ok(old) = fs::symlink_metadata(&self.out) else { return Ok(()) };
        let replaced = fs::remove_dir(&self.out).and_then(|()| DirBuilder::new().mode(old.mode()).create(&self.out));
        let refused = |error| Failure::Refused(format!("{} cannot be replaced: {error}", self.out.display()));
        replaced.map_err(refused)
    }

    /// Returns the path of a directory that is removed unless [`finish`](Self::finish) names it.
    pub(super) fn dir(&self, name: &str) -> PathBuf {
        self.unfinished.join(name)
    }

    /// Gives the closed database in directory `name` its final name.
    pub(super) fn finish(self, name: &str) -> Result<(), Failure> {
        let renamed = fs::rename(self.dir(name), &self.out);
        renamed.map_err(|error| Error::io("rename a directory to", &self.out, error))?;
        let parent = parent_of(&self.out);
        let synced = File::open(parent).and_then(|dir| dir.sync_all());
        synced.map_err(|error| Error::io("sync", parent, error).into())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // What is left is no database of `out`, and the next salvage names it.
        let _ = fs::remove_dir_all(&self.unfinished);
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a directory that only its owner may read.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(dir)
}

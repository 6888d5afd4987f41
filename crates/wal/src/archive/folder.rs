//! The files of an archive.
//!
//! A name consists of the number of the first group, so no name is ever taken from the content of a file. What else
//! lies in the folder is left alone.

use crate::format::archive::{ARCHIVE_SUFFIX, ArchiveHeader, archive_name};
use crate::format::{FIRST_GROUP, number_of};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Place, Result, Uuid};
use foreshore_io::{AlignedBuf, File, Fs};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How the name of a file ends while it is written.
const UNFINISHED_SUFFIX: &str = ".arc.tmp";

/// What a file has behind its name that is not sound, and whose groups are archived again.
const ASIDE_SUFFIX: &str = ".unsound";

/// The first group of a file that is not sound, by its name, and what is wrong with it.
pub(crate) type Unsound = (GroupNo, Error);

/// The folder of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    /// Of the database whose log it holds.
    pub(crate) uuid: Uuid,
}

impl Folder {
    /// Returns the path of the file that begins with `first`.
    pub(crate) fn path(&self, first: GroupNo) -> PathBuf {
        self.dir.join(archive_name(first))
    }

    /// Returns the path of the file that begins with `first` while it is written.
    pub(crate) fn unfinished(&self, first: GroupNo) -> PathBuf {
        self.dir.join(format!("{:020}{UNFINISHED_SUFFIX}", first.0))
    }

    /// Returns the first groups of the files, ascending.
    pub(crate) fn firsts(&self) -> Result<Vec<GroupNo>> {
        let names = self.fs.list(&self.dir)?;
        let mut firsts: Vec<_> = names.iter().filter_map(|name| number_of(name, ARCHIVE_SUFFIX).map(GroupNo)).collect();
        firsts.sort_unstable();
        Ok(firsts)
    }

    /// Removes files that were not finished.
    pub(crate) fn clear(&self) -> Result<()> {
        let names = self.fs.list(&self.dir)?;
        let mut unfinished = names.iter().filter(|name| number_of(name, UNFINISHED_SUFFIX).is_some());
        unfinished.try_for_each(|name| self.fs.remove(&self.dir.join(name)))
    }

    /// Returns the headers of the files, ascending, and the files that are not sound.
    ///
    /// # Errors
    /// `Foreign` if the newest file that can be read is that of another database, or the error of the folder.
    pub(crate) fn files(&self) -> Result<(VecDeque<ArchiveHeader>, Vec<Unsound>)> {
        let (mut files, mut unsound, mut foreign) = (VecDeque::<ArchiveHeader>::new(), Vec::new(), None);
        for first in self.firsts()? {
            match self.open(first) {
                // It may begin in the file before it, if that could not be read once.
                Ok((_, header)) if files.back().is_none_or(|before| before.last < header.last) => {
                    files.push_back(header);
                    foreign = None;
                }
                Ok((file, _)) => {
                    let why = "the file before it has its groups, too";
                    unsound.push((first, Error::corrupted(file.path(), Place::File, why)));
                }
                Err(error) => {
                    if matches!(error, Error::Foreign { .. }) {
                        foreign = Some(error.clone());
                    }
                    unsound.push((first, error));
                }
            }
        }
        foreign.map_or(Ok((files, unsound)), Err)
    }

    /// Gives the file that begins with `first` a name under which no restore finds it.
    pub(crate) fn put_aside(&self, first: GroupNo) -> Result<()> {
        let path = self.path(first);
        let mut aside = path.clone().into_os_string();
        aside.push(ASIDE_SUFFIX);
        self.fs.rename(&path, Path::new(&aside))?;
        self.fs.sync_dir(&self.dir)
    }

    /// Opens the file that begins with `first` and checks its header and length.
    pub(crate) fn open(&self, first: GroupNo) -> Result<(Arc<dyn File>, ArchiveHeader)> {
        let file = self.fs.open(&self.path(first)).map_err(|error| match error {
            // Not of another database: a link, or a pipe.
            Error::Foreign { path, why } => Error::corrupted(path, Place::File, why),
            error => error,
        })?;
        let mut block = AlignedBuf::new(BLOCK);
        let read = file.read_at(&mut block, 0)?;
        let header = ArchiveHeader::decode(&block[..read], file.path(), self.uuid)?;
        if header.first != first {
            return Err(Error::corrupted(file.path(), Place::File, "its name is that of another group"));
        }
        let (len, expected) = (file.len()?, FIRST_GROUP + header.bytes);
        if len < expected {
            return Err(Error::Truncated { file: file.path().to_owned(), len, expected });
        }
        Ok((file, header))
    }
}

/// Returns the error of an archive whose log is not that of `path`'s neighbour.
pub(crate) fn forked(path: &Path) -> Error {
    Error::Foreign { path: path.to_owned(), why: "its log is that of another timeline of the database" }
}

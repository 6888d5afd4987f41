//! The files of an archive.
//!
//! | name | file |
//! |---|---|
//! | `<first group>.arc` | groups of the log |
//! | `<first group>.arc.tmp` | the same, while it is written |
//! | `<first group>.arc.unsound` | put aside: its groups are archived again |
//! | `<first group>.arc.begin` | empty; the first group of an archive that had no file when it was opened |
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

/// How the name of a file ends that is not sound, and whose groups are archived again.
const ASIDE_SUFFIX: &str = ".arc.unsound";

/// How the name of the mark ends that says where an archive begins.
const BEGIN_SUFFIX: &str = ".arc.begin";

/// The first group of a file that is not sound, by its name, and what is wrong with it.
pub(crate) type Unsound = (GroupNo, Error);

/// A file that is not restored from, but takes space: it is not sound, or put aside, or the mark of the beginning.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    /// Its first group, by its name.
    pub(crate) first: GroupNo,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// The file is not in the place of its groups.
    pub(crate) is_aside: bool,
}

/// Returns the first group of the oldest name below `end`.
pub(crate) fn oldest_name(files: &VecDeque<ArchiveHeader>, others: &VecDeque<Other>, end: GroupNo) -> Option<GroupNo> {
    let others = others.iter().filter(|other| !other.is_aside).map(|other| other.first);
    files.iter().map(|file| file.first).chain(others).filter(|&first| first < end).min()
}

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

    /// Removes files that were not finished, and the mark of the beginning if a file says the same.
    pub(crate) fn clear(&self) -> Result<()> {
        let names = self.fs.list(&self.dir)?;
        let mut unfinished = names.iter().filter(|name| number_of(name, UNFINISHED_SUFFIX).is_some());
        unfinished.try_for_each(|name| self.fs.remove(&self.dir.join(name)))?;
        self.firsts()?.into_iter().try_for_each(|first| self.unmark_begin(first))
    }

    /// Returns the headers of the files, ascending, and the files that are not sound. Calls `each` before each file.
    ///
    /// # Errors
    /// `Foreign` if the newest file that can be read is that of another database, or the error of the folder.
    pub(crate) fn files(&self, each: &dyn Fn()) -> Result<(VecDeque<ArchiveHeader>, Vec<Unsound>)> {
        let (mut files, mut unsound, mut foreign) = (VecDeque::<ArchiveHeader>::new(), Vec::new(), None);
        for first in self.firsts()? {
            each();
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

    /// Returns the other files beside `files`, ascending.
    pub(crate) fn others(&self, files: &VecDeque<ArchiveHeader>) -> Result<VecDeque<Other>> {
        let is_sound = |first: u64| files.binary_search_by_key(&GroupNo(first), |file| file.first).is_ok();
        let mut others = VecDeque::new();
        for name in self.fs.list(&self.dir)? {
            let unsound = number_of(&name, ARCHIVE_SUFFIX).filter(|&first| !is_sound(first));
            let other = || [ASIDE_SUFFIX, BEGIN_SUFFIX].iter().find_map(|suffix| number_of(&name, suffix));
            if let Some(first) = unsound.or_else(other) {
                let path = self.dir.join(&name);
                // What cannot be opened, like a link, has no bytes here.
                let bytes = self.fs.open(&path).and_then(|file| file.len()).unwrap_or(0);
                let is_aside = name.ends_with(ASIDE_SUFFIX);
                others.push_back(Other { first: GroupNo(first), path, bytes, is_aside });
            }
        }
        others.make_contiguous().sort_by_key(|other| other.first);
        Ok(others)
    }

    /// Notes durably that the archive begins with `first`, while it has no file.
    pub(crate) fn mark_begin(&self, first: GroupNo) -> Result<()> {
        let mark = self.mark(first);
        // A start that was interrupted has made it already.
        if self.fs.kind(&mark)?.is_none() {
            self.fs.create(&mark)?;
        }
        self.fs.sync_dir(&self.dir)
    }

    /// Removes the mark of the beginning, if there is one at `first`: the file that begins there says the same.
    pub(crate) fn unmark_begin(&self, first: GroupNo) -> Result<()> {
        let mark = self.mark(first);
        if self.fs.kind(&mark)?.is_some() { self.fs.remove(&mark) } else { Ok(()) }
    }

    /// Returns the path of the mark that the archive begins with `first`.
    pub(crate) fn mark(&self, first: GroupNo) -> PathBuf {
        self.dir.join(format!("{:020}{BEGIN_SUFFIX}", first.0))
    }

    /// Gives the file that begins with `first` a name under which no restore finds it.
    pub(crate) fn put_aside(&self, first: GroupNo) -> Result<()> {
        self.fs.rename(&self.path(first), &self.dir.join(format!("{:020}{ASIDE_SUFFIX}", first.0)))?;
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

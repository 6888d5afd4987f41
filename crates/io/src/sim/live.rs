//! The live image: names and contents as the running program sees them, its open files, and their write-back errors.

use super::media::Ino;
use crate::content::Content;
use crate::names::Names;
use std::{collections::BTreeMap, io, path::Path};

#[derive(Clone)]
pub(super) struct Live {
    names: Names<Ino>,
    files: BTreeMap<Ino, Content>,
    /// Counts of open handles by file. A file without names and handles is removed.
    handles: BTreeMap<Ino, usize>,
    next_ino: Ino,
    /// Write-back errors by file.
    errors: BTreeMap<Ino, Errors>,
}

/// Counts of the write-back errors of a file. A handle that has seen fewer than `met` reports one at its next sync.
#[derive(Clone, Copy, Default)]
struct Errors {
    met: u64,
    reported: u64,
}

impl Live {
    /// Returns the image of a machine that has just started: no handles, no locks.
    pub(super) fn new(mut names: Names<Ino>, files: BTreeMap<Ino, Content>) -> Self {
        names.unlock_all();
        let next_ino = files.keys().next_back().map_or(0, |last| last + 1);
        Self { names, files, handles: BTreeMap::new(), next_ino, errors: BTreeMap::new() }
    }

    /// Returns a copy without handles and locks. Files without a name are gone.
    pub(super) fn fork(&self) -> Self {
        let mut fork = self.clone();
        fork.names.unlock_all();
        fork.handles.clear();
        let named: Vec<_> = fork.names.files().collect();
        fork.files.retain(|ino, _| named.contains(ino));
        fork
    }

    pub(super) const fn names(&self) -> &Names<Ino> {
        &self.names
    }

    /// Returns the names, to lock them or to add a directory. Those of files change by the methods below.
    pub(super) const fn names_mut(&mut self) -> &mut Names<Ino> {
        &mut self.names
    }

    /// Creates an empty file.
    pub(super) fn create(&mut self, path: &Path) -> io::Result<Ino> {
        let ino = self.next_ino;
        self.names.create(path, ino)?;
        self.next_ino += 1;
        self.files.insert(ino, Content::default());
        Ok(ino)
    }

    /// Renames a file. One that had the name `to` is removed once it has no handle.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Ino> {
        let replaced = self.names.file(to).ok();
        let ino = self.names.rename(from, to)?;
        if let Some(replaced) = replaced {
            self.reap(replaced);
        }
        Ok(ino)
    }

    /// Removes the name of a file, and the file once it has no handle.
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<Ino> {
        let ino = self.names.remove(path)?;
        self.reap(ino);
        Ok(ino)
    }

    /// Counts a handle.
    pub(super) fn hold(&mut self, ino: Ino) {
        *self.handles.entry(ino).or_default() += 1;
    }

    /// Releases a handle.
    pub(super) fn release(&mut self, ino: Ino) {
        let handles = self.handles.get_mut(&ino).expect("an open file has a handle");
        *handles -= 1;
        if *handles == 0 {
            self.handles.remove(&ino);
            self.reap(ino);
        }
    }

    /// Removes a file that has neither name nor handle.
    fn reap(&mut self, ino: Ino) {
        if !self.handles.contains_key(&ino) && !self.names.files().any(|named| named == ino) {
            self.files.remove(&ino);
            self.errors.remove(&ino);
        }
    }

    /// Returns the files.
    pub(super) fn inos(&self) -> Vec<Ino> {
        self.files.keys().copied().collect()
    }

    /// Returns the content of a file that has a name or a handle.
    pub(super) fn content(&mut self, ino: Ino) -> &mut Content {
        self.files.get_mut(&ino).expect("a file that is named or open has content")
    }

    /// Returns a copy of the content of a file; empty if there is none.
    pub(super) fn copy_of(&self, ino: Ino) -> Content {
        self.files.get(&ino).cloned().unwrap_or_default()
    }

    /// Returns the length of a file; 0 if there is none.
    pub(super) fn len_of(&self, ino: Ino) -> u64 {
        self.files.get(&ino).map_or(0, Content::len)
    }

    /// Returns the error count that a new handle has seen. An error that no handle has reported counts as unseen, so
    /// the new handle reports it, too (`errseq_sample`).
    pub(super) fn sample_errors(&self, ino: Ino) -> u64 {
        self.errors.get(&ino).map_or(0, |errors| errors.reported)
    }

    /// Notes that the write-back of a file has failed.
    pub(super) fn add_error(&mut self, ino: Ino) {
        self.errors.entry(ino).or_default().met += 1;
    }

    /// Returns whether a file has an error that a handle has not `seen`, and marks it as seen.
    pub(super) fn report_error(&mut self, ino: Ino, seen: &mut u64) -> bool {
        let Some(errors) = self.errors.get_mut(&ino) else { return false };
        let is_new = *seen < errors.met;
        (*seen, errors.reported) = (errors.met, errors.met);
        is_new
    }
}

//! Inspection and damage of a disk, for tests. None of it counts as an operation.

use super::{Sim, state::State};
use crate::content::Content;
use crate::names::normal;
use foreshore_base::{Error, Result};
use std::{
    io,
    path::{Path, PathBuf},
};

impl Sim {
    /// Returns a copy of the machine: both images, the record and the planned faults, but no open file and no lock.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::from_state(self.state.lock().fork())
    }

    /// Kills the program: every later call of it fails. Returns the machine without it, with all that was written,
    /// durable or not, and with no write held.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut state = self.state.lock();
        let machine = state.fork();
        state.power_off();
        self.state.notify_power_loss(&state);
        Self::from_state(machine)
    }

    /// Returns every file with its live length, by path from the root.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.state.lock();
        state.live.names().entries().map(|(path, ino)| (path.to_owned(), state.live.len_of(ino))).collect()
    }

    /// Returns the live bytes of a file.
    pub fn contents(&self, path: &Path) -> Result<Vec<u8>> {
        Ok(self.content_of(path)?.to_vec())
    }

    /// Flips the bits of `mask` in the byte at `offset`, in both images.
    ///
    /// # Errors
    /// `Io` if the file is shorter.
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) -> Result<()> {
        let mut byte = self.range(path, offset, 1)?;
        byte[0] ^= mask;
        self.patch(path, offset, &byte)
    }

    /// Exchanges two ranges of `len` bytes, as misdirected writes do.
    pub fn swap(&self, path: &Path, a: u64, b: u64, len: usize) -> Result<()> {
        let (at_a, at_b) = (self.range(path, a, len)?, self.range(path, b, len)?);
        self.patch(path, a, &at_b)?;
        self.patch(path, b, &at_a)
    }

    /// Overwrites bytes inside a file. With older bytes this is a lost write.
    pub fn patch(&self, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
        self.range(path, offset, bytes.len())?;
        self.damage(path, |content| content.write(offset, bytes))
    }

    /// Truncates or grows a file without the program's knowledge.
    pub fn truncate(&self, path: &Path, len: u64) -> Result<()> {
        self.damage(path, |content| content.set_len(len))
    }

    /// Replaces the bytes of a file by those of a file of another disk, such as a backup or another database.
    pub fn replace(&self, path: &Path, other: &Self, other_path: &Path) -> Result<()> {
        let theirs = other.content_of(other_path)?;
        self.damage(path, |content| content.clone_from(&theirs))
    }

    fn content_of(&self, path: &Path) -> Result<Content> {
        let state = self.state.lock();
        let ino = state.live.names().file(&normal(path)).map_err(|e| Error::io("open", path, e))?;
        Ok(state.live.copy_of(ino))
    }

    /// Returns bytes of a file, all of which must exist.
    fn range(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        if self.content_of(path)?.read(&mut bytes, offset) == len {
            return Ok(bytes);
        }
        Err(Error::io("read", path, io::ErrorKind::UnexpectedEof.into()))
    }

    /// Changes a file in both images, and starts the record anew.
    fn damage(&self, path: &Path, change: impl Fn(&mut Content)) -> Result<()> {
        let state: &mut State = &mut self.state.lock();
        let ino = state.live.names().file(&normal(path)).map_err(|e| Error::io("open", path, e))?;
        change(state.live.content(ino));
        state.record.damage(|media| change(media.files.entry(ino).or_default()));
        Ok(())
    }
}

//! The archiver's work: one thread at a time has the turn to write, and publishes each file when it is durable.
//!
//! The turn is a fact of the state, and no lock is held while a device works. So log can be given up meanwhile. A file
//! that is then finished counts all the same, and one that fails for it is no failure of the archive.

use super::file::{self, Part};
use super::folder::Other;
use super::join::{Found, cursor};
use super::pace::Pace;
use super::state::State;
use super::{Archive, Extent};
use crate::log_core::Core;
use foreshore_base::{Error, GroupNo, Result};
use foreshore_sync::{Clock, MutexGuard};
use std::io;

/// The most bytes of groups in a file, apart from its last group.
const MOST_BYTES: u64 = 64 << 20;

/// The turn to write to an archive, until this is dropped.
#[must_use]
pub(super) struct Turn<'a>(&'a Archive);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        assert!(state.at_work.is_some(), "a turn to write to the archive ends, and no thread has it");
        state.at_work = None;
        self.0.publish(state);
    }
}

impl Archive {
    /// Waits for the turn to write.
    pub(super) fn turn(&self) -> Turn<'_> {
        let mut state = self.state.lock();
        while state.at_work.is_some() {
            // WAIT: park - for the thread with the turn, which notifies at its end.
            state = self.changed.wait(state);
        }
        self.take_turn(state)
    }

    /// Takes the turn to write, which no thread has.
    pub(super) fn take_turn(&self, mut state: MutexGuard<'_, State>) -> Turn<'_> {
        assert!(state.at_work.is_none(), "two threads write to the archive");
        state.at_work = Some(self.clock.now());
        Turn(self)
    }

    /// Copies the log as far as `extent` says.
    ///
    /// # Errors
    /// The error of a file, which is counted. What was copied before it stays archived.
    pub(crate) fn copy(&self, core: &Core, extent: Extent) -> Result<()> {
        self.copy_in(&self.turn(), core, (extent, usize::MAX))
    }

    /// The same in a turn, and at most so many files.
    pub(super) fn copy_in(&self, _: &Turn<'_>, core: &Core, (extent, most): (Extent, usize)) -> Result<()> {
        let mut files = 0;
        let upto = upto(core, extent);
        let done = loop {
            match self.write_next(core, upto) {
                Ok(true) if files + 1 < most => files += 1,
                Ok(true) => break Ok(()),
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        let state = &mut *self.state.lock();
        if done.is_err() {
            state.failed = state.failed.saturating_add(1);
            state.shown.stats.failures += 1;
        }
        state.shown.failure = done.as_ref().err().or(state.drop_failure.as_ref()).cloned();
        done
    }

    /// Notes that the device has done some work.
    pub(super) fn note_work(&self, state: &mut State) {
        assert!(state.at_work.is_some(), "a thread works at the archive without the turn");
        state.at_work = Some(self.clock.now());
    }

    /// Writes the next file, up to group `upto` at most. Returns false if there is none to write. Under the turn.
    fn write_next(&self, core: &Core, upto: GroupNo) -> Result<bool> {
        let pace = Pace::new(self, core);
        let mut state = self.state.lock();
        self.note_work(&mut state);
        if state.lock.is_none() {
            return Ok(false);
        }
        if state.unread.is_some() {
            drop(state);
            return self.read_again(core).map(|()| true);
        }
        if state.next > upto {
            return Ok(false);
        }
        let part = Part {
            home: core.segments.home(),
            first: state.next,
            upto,
            behind: state.behind(),
            prev_crc: state.prev_crc(),
            most: core.options.segment_bytes.min(MOST_BYTES),
            pace,
        };
        let kept = state.at.take();
        drop(state);
        let write = |mut at| {
            let header = file::write(&self.folder, &part, &mut at)?;
            Ok((header, at))
        };
        let anew = || cursor(core, part.first).and_then(write);
        // The segment of a kept cursor may have been recycled, because all of it was archived. The next group is in the
        // log all the same.
        let written = match kept.map(write) {
            None | Some(Err(Error::LostLog { .. })) => anew(),
            Some(written) => written,
        };
        let mut state = self.state.lock();
        match written {
            Ok((header, at)) => {
                assert!(header.first == part.first && header.last <= part.upto, "{header:?}, up to {}", part.upto);
                state.failed = 0;
                state.add(header, at);
            }
            // The log was given up, and perhaps recycled meanwhile.
            Err(_) if state.next > part.first => return Ok(true),
            Err(error) => return Err(error),
        }
        // The name of the file says what the mark of the beginning says.
        let (path, mark) = (self.folder.path(part.first), self.folder.mark(part.first));
        state.others.retain(|other| other.path != path && other.path != mark);
        self.publish(state);
        // The archive has the log all the same, whatever fails here.
        let _ = self.folder.unmark_begin(part.first);
        let drop_failure = self.drop_old().err();
        self.state.lock().drop_failure = drop_failure;
        Ok(true)
    }

    /// Reads the files again, since one that is in the way could not be read.
    fn read_again(&self, core: &Core) -> Result<()> {
        // Log before it may be recycled.
        let rest = self.next();
        let found = Found::read(core, &self.folder, Some(rest), &|| self.note_work(&mut self.state.lock()));
        let mut state = self.state.lock();
        let found = match found {
            // Log was given up meanwhile.
            Ok(found) if state.next > found.next => return Ok(()),
            Err(_) if state.next > rest => return Ok(()),
            found => found?,
        };
        let unread = found.unread.clone();
        state.adopt(found);
        self.publish(state);
        unread.map_or(Ok(()), Err)
    }

    /// Removes the oldest files, as many as are above the limit, except the last sound one.
    fn drop_old(&self) -> Result<()> {
        loop {
            let (path, is_sound) = {
                let mut state = self.state.lock();
                self.note_work(&mut state);
                if self.limit == 0 || state.bytes() <= self.limit {
                    return Ok(());
                }
                let sound = &state.files[0];
                let stays = state.files.len() == 1 || state.next <= sound.last;
                // The mark of the beginning goes with the file behind it.
                let goes = |other: &&Other| other.first <= sound.first && (other.bytes > 0 || !stays);
                match state.others.iter().find(goes) {
                    Some(other) => (other.path.clone(), false),
                    None if stays => return Ok(()),
                    None => (self.folder.path(sound.first), true),
                }
            };
            match self.folder.fs.remove(&path) {
                // Others have removed it.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
            self.state.lock().forget(&path, is_sound);
            // In order, so that no gap is left.
            self.folder.fs.sync_dir(&self.folder.dir)?;
        }
    }
}

/// Returns the last group to copy.
pub(super) fn upto(core: &Core, extent: Extent) -> GroupNo {
    let durable = core.pipeline.progress().durable_group();
    match extent {
        Extent::End => durable,
        Extent::Segments => {
            let last = core.segments.list().live.back().map_or(GroupNo::ZERO, |live| live.first);
            GroupNo(last.0.saturating_sub(1)).min(durable)
        }
    }
}
